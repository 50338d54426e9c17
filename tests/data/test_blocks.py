"""Blocks of rows: joined, cut, reordered and scaled; vocabularies."""

import numpy as np
import pytest
from helpers.blocks import block_rows, dense_block, make_block
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.data.blocks import Block, concatenate, cut, take, transform_values

lengths = st.lists(st.integers(0, 9), min_size=1, max_size=8)


@given(lengths, st.data())
def test_cut_take_and_concatenate_agree_with_lists_of_rows(sizes, data):
    block = make_block(sizes)
    rows = block_rows(block)
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    assert block_rows(cut(block, start, stop)) == rows[start:stop]
    order = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9))
    assert block_rows(take(block, np.array(order, int))) == [rows[row] for row in order]
    parts = [cut(block, 0, stop), cut(block, stop, len(rows))]
    assert block_rows(concatenate(parts)) == rows


def test_columns_that_only_some_blocks_have_are_filled():
    plain = Block(np.array([0, 1]), np.array([3]), None, np.array([[1.0]]))
    rows = block_rows(concatenate([plain, make_block([2], 7)]))
    assert rows[0] == (1.0, ((3, 1.0),), 1.0, "", 0)
    assert rows[1] == block_rows(make_block([2], 7))[0]


@pytest.mark.parametrize("binary", [False, True])
def test_l2_norm_scales_each_row_to_length_one(binary):
    block = transform_values(make_block([3, 0, 1]), binary=binary, norm="l2")
    assert (block.values is None) == binary
    norms = np.linalg.norm(dense_block(block, 1000), axis=1)
    np.testing.assert_allclose(norms, [1, 0, 1], atol=1e-6)
