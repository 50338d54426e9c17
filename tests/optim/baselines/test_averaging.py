"""Averages of weights: dense, and lazily by feature."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.learner_cases import draw_rows, learn, learner_of, seeds
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.errors import InputError
from dadagrad.optim.baselines import Averaged, RunningMean
from dadagrad.optim.updates import UPDATES

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


@given(
    learner=st.sampled_from(["pa", "arow", "coin-betting"]).map(learner_of),
    counts=importances,
    seed=seeds,
)
def test_lazy_average_is_the_dense_one(learner, counts, seed):
    """At every row, of the weights that each row met, and by feature as well as whole."""
    averaged, mean = Averaged(learner), RunningMean.zero(6, 2)
    state, plain = averaged.init(6, 2), learner.init(6, 2)
    assert not averaged.weights(state).any()
    for row, importance in zip(draw_rows(seed, 8, 6, 2), counts, strict=True):
        mean.add(learner.weights(plain), importance)
        np.testing.assert_array_equal(
            averaged.margins(state, row.ids, row.values),
            learner.margins(plain, row.ids, row.values),
        )
        plain = learn(learner, plain, row, importance)
        state = learn(averaged, state, row, importance)
        np.testing.assert_allclose(averaged.weights(state), mean.value, atol=1e-12)
        ids = np.array([0, 4])
        np.testing.assert_array_equal(averaged.weights(state, ids), averaged.weights(state)[ids])


def test_learners_that_move_all_weights_are_refused():
    for name in UPDATES:
        if UPDATES[name].by_row and not UPDATES[name].local:
            learner = learner_of(name)
            with pytest.raises(
                InputError, match=f"{type(learner).__name__} changes .* RunningMean"
            ):
                Averaged(learner)
