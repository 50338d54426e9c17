"""Arrays in large pages are arrays like others."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad.data.buffers import LARGE_PAGE, zeros


@settings(max_examples=30, deadline=None)
@given(
    shape=st.one_of(
        st.integers(0, 2 * LARGE_PAGE),
        st.tuples(st.integers(0, 300), st.integers(0, 3000), st.integers(1, 2)),
    ),
    dtype=st.sampled_from([np.uint8, np.float32, np.float64, np.complex128]),
)
def test_zeros_of_a_shape(shape, dtype):
    array, expected = zeros(shape, dtype), np.zeros(shape, dtype)
    assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert not array.any()
    array.fill(3)
    assert (array == 3).all()
    if array.size:
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(array[:1])), array[:1])


@pytest.mark.parametrize("shape", [1 << 60, (1 << 31, 1 << 31)])
def test_more_than_there_is(shape):
    with pytest.raises((MemoryError, ValueError)):
        zeros(shape, np.float64)
