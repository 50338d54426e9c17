"""Per-coordinate gradient descent of McMahan's lecture (2012) is one setting of mirror descent.

    w_t+1,i = clip(w_t,i - eta_t,i g_t,i, -B, B),   eta_t,i = B sqrt(2) / sqrt(sum_s<=t g_s,i^2)

is `MirrorDescent` in the diagonal metric with delta 0, step size B sqrt(2) and the box [-B, B].
"""

from __future__ import annotations

import numpy as np
from helpers.theorem_cases import N_FEATURES, Case, Game, play, seeds, streams
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.optim.preconditioners import Diagonal
from dadagrad.optim.regularizers import ElasticBox
from dadagrad.optim.updates import MirrorDescent

boxes = st.sampled_from([0.1, 1.0, 30.0])


def per_coordinate(box: float, stream: str, n_steps: int, seed: int) -> Game:
    case = Case(ElasticBox(low=-box, high=box))
    return play(MirrorDescent, box * np.sqrt(2.0), Diagonal(0.0), stream, n_steps, case, seed)


@given(stream=streams, box=boxes, seed=seeds)
def test_each_step_is_that_of_the_lecture(stream, box, seed):
    game = per_coordinate(box, stream, 30, seed)
    weights, squares = np.zeros(N_FEATURES), np.zeros(N_FEATURES)
    for played, gradient in zip(game.weights, game.gradients, strict=True):
        np.testing.assert_allclose(played, weights, atol=1e-12 * box)
        squares += gradient**2
        for i in np.flatnonzero(gradient):
            eta = box * np.sqrt(2) / np.sqrt(squares[i])
            weights[i] = min(box, max(-box, weights[i] - eta * gradient[i]))


@given(stream=streams, box=boxes, seed=seeds)
def test_regret_is_below_the_bound_of_the_lecture(stream, box, seed):
    """At every step: sum_i 2 sqrt(2) B sqrt(sum_t g_t,i^2), for each feature alone too."""
    game = per_coordinate(box, stream, 100, seed)
    suffered = np.cumsum(game.gradients * game.weights, axis=0)
    # The best in the box is at -B sign(total).
    regret = suffered + box * np.abs(np.cumsum(game.gradients, axis=0))
    lengths = np.sqrt(np.cumsum(game.gradients**2, axis=0))
    assert (regret <= 2 * np.sqrt(2) * box * lengths * (1 + 1e-9) + 1e-12).all()
