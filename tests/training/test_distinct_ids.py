"""The distinct ids among many, against sorting them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.training.distinct_ids import DistinctIds


@given(
    some=st.lists(st.lists(st.integers(0, 9_999), unique=True), min_size=1, max_size=4),
    n_more=st.integers(0, 100),
)
def test_distinct_ids_and_places(some, n_more):
    arrays = [np.array(sorted(ids), np.int64) for ids in some]
    largest = max((int(ids[-1]) for ids in arrays if len(ids)), default=0)
    distinct_ids = DistinctIds(largest + 1 + n_more)
    expected = np.unique(np.concatenate(arrays))
    for _ in range(2):  # it leaves no traces
        distinct, places = distinct_ids.among(arrays)
        np.testing.assert_array_equal(distinct, expected)
        assert len(places) == len(arrays)
        for ids, own in zip(arrays, places, strict=True):
            np.testing.assert_array_equal(distinct[own], ids)


@pytest.mark.parametrize("n_features", [1, 63, 64, 65, 4095, 4096, 4097])
def test_the_last_feature_has_a_place(n_features):
    ids = np.unique([0, n_features - 1])
    distinct, _ = DistinctIds(n_features).among([ids])
    np.testing.assert_array_equal(distinct, ids)
