"""The running mean of weights."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.learner_cases import seeds
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.errors import InputError
from dadagrad.optim.baselines import RunningMean

importances = st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=8, max_size=8)


@given(counts=importances, seed=seeds)
def test_running_mean_is_the_weighted_mean(counts, seed):
    stream = np.random.default_rng(seed).normal(size=(8, 3, 2))
    mean = RunningMean.zero(3, 2)
    for weights, importance in zip(stream, counts, strict=True):
        mean.add(weights, importance)
    expected = np.zeros((3, 2))
    if any(counts):
        expected = np.average(stream, axis=0, weights=counts)
    np.testing.assert_allclose(mean.value, expected, atol=1e-12)
    assert mean.arrays["importance"][0] == sum(counts)


def test_running_mean_of_equal_weights_is_exact():
    weights = np.array([[0.1], [1 / 3]])
    mean = RunningMean.zero(2, 1)
    for _ in range(1000):
        mean.add(weights)
    np.testing.assert_array_equal(mean.value, weights)


@pytest.mark.parametrize("importance", [-1.0, np.nan, np.inf])
def test_running_mean_refuses_bad_importance(importance):
    with pytest.raises(InputError, match="importance of a row must be finite and not negative"):
        RunningMean.zero(2, 1).add(np.zeros((2, 1)), importance)
