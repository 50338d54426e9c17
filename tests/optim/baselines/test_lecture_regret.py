"""Per-coordinate gradient descent of McMahan's lecture (2012) is one setting of mirror descent.

    w_t+1,i = clip(w_t,i - eta_t,i g_t,i, -B, B),   eta_t,i = B sqrt(2) / sqrt(sum_s<=t g_s,i^2)

is `MirrorDescent` in the diagonal metric with delta 0, step size B sqrt(2) and the box [-B, B].
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.optim.preconditioners import Diagonal
from dadagrad.optim.regularizers import ElasticBox
from dadagrad.optim.updates import MirrorDescent

N_FEATURES = 5
seeds = st.integers(0, 2**32 - 1)
boxes = st.sampled_from([0.1, 1.0, 30.0])


def per_coordinate(box: float) -> MirrorDescent:
    return MirrorDescent(box * np.sqrt(2.0), Diagonal(0.0), ElasticBox(low=-box, high=box))


def next_gradient(stream: str, rng: np.random.Generator, t: int, weights: np.ndarray) -> np.ndarray:
    """The gradient of step t, by an opponent who sees the weights; the last feature stays out."""
    if stream == "sparse":
        gradient = rng.normal(size=N_FEATURES) * (rng.random(N_FEATURES) < 0.3)
    elif stream == "against":  # always the sign that hurts
        gradient = np.where(weights >= 0, 1.0, -1.0)
    elif stream == "growing":
        gradient = np.where(weights >= 0, 1.0, -1.0) * 1.1**t
    elif stream == "turning":  # leads to one side of the box, then to the other
        gradient = np.full(N_FEATURES, 1.0 if t < 50 else -1.0)
    else:  # sizes that differ by feature and by step
        gradient = rng.standard_cauchy(N_FEATURES) * 10.0 ** np.arange(-2, N_FEATURES - 2)
    gradient[-1] = 0.0
    return gradient


streams = st.sampled_from(["sparse", "against", "growing", "turning", "cauchy"])


@given(stream=streams, box=boxes, seed=seeds)
def test_each_step_is_that_of_the_lecture(stream, box, seed):
    rng = np.random.default_rng(seed)
    update = per_coordinate(box)
    state = update.init(N_FEATURES, 1)
    weights, squares = np.zeros(N_FEATURES), np.zeros(N_FEATURES)
    for t in range(30):
        gradient = next_gradient(stream, rng, t, weights)
        squares += gradient**2
        for i in np.flatnonzero(gradient):
            eta = box * np.sqrt(2) / np.sqrt(squares[i])
            weights[i] = min(box, max(-box, weights[i] - eta * gradient[i]))
        state = update.step(state, gradient[:, None])
        np.testing.assert_allclose(update.weights(state)[:, 0], weights, atol=1e-12 * box)


@given(stream=streams, box=boxes, seed=seeds)
def test_regret_is_below_the_bound_of_the_lecture(stream, box, seed):
    """At every step: sum_i 2 sqrt(2) B sqrt(sum_t g_t,i^2), for each feature alone too."""
    rng = np.random.default_rng(seed)
    update = per_coordinate(box)
    state = update.init(N_FEATURES, 1)
    suffered, total, squares = (np.zeros(N_FEATURES) for _ in range(3))
    for t in range(100):
        weights = update.weights(state)[:, 0].copy()
        gradient = next_gradient(stream, rng, t, weights)
        suffered += gradient * weights
        total += gradient
        squares += gradient**2
        state = update.step(state, gradient[:, None])
        regret = suffered + box * np.abs(total)  # the best in the box is at -B sign(total)
        assert (regret <= 2 * np.sqrt(2) * box * np.sqrt(squares) * (1 + 1e-12)).all()


def test_the_first_step_of_the_lecture_by_hand():
    """B = 2, g = 3, then -1: eta = 2 sqrt(2) / 3 clips 2 sqrt(2) to 2; then 2 sqrt(2 / 10)."""
    update = per_coordinate(2.0)
    state = update.step(update.init(1, 1), np.array([[3.0]]))
    assert update.weights(state)[0, 0] == -2.0
    state = update.step(state, np.array([[-1.0]]))
    assert update.weights(state)[0, 0] == pytest.approx(-2.0 + 2.0 * np.sqrt(2.0 / 10.0))
