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
    # What was met before leaves no traces.
    for now in (arrays, arrays, *([one] for one in arrays)):
        distinct, places = distinct_ids.among(now)
        np.testing.assert_array_equal(distinct, np.unique(np.concatenate(now)))
        assert len(places) == len(now)
        for ids, own in zip(now, places, strict=True):
            np.testing.assert_array_equal(distinct[own], ids)


@pytest.mark.parametrize("n_features", [1, 63, 64, 65, 4095, 4096, 4097])
def test_the_last_feature_has_a_place(n_features):
    ids = np.unique([0, n_features - 1])
    distinct, _ = DistinctIds(n_features).among([ids])
    np.testing.assert_array_equal(distinct, ids)
