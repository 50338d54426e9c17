"""AROW against its matrix formulas and against a solver of what it minimises."""

from copy import deepcopy

import numpy as np
import pytest
from helpers.learner_cases import draw_rows, finish, learn, seeds, walk
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dadagrad.optim.baselines import Arow, ArowFull

trusts = st.sampled_from([0.1, 1.0, 10.0])
N_FEATURES, N_OUTPUTS = 6, 2


@given(r=trusts, seed=seeds)
def test_full_arow_is_the_matrix_formula(r, seed):
    """Fig. 1 of the paper with dense matrices, and Sigma as the inverse of I + sum x x' / r."""
    rows = draw_rows(seed, 15, N_FEATURES, N_OUTPUTS)
    mean = np.zeros((N_FEATURES, N_OUTPUTS))
    covariance = [np.eye(N_FEATURES) for _ in range(N_OUTPUTS)]
    inverse = [np.eye(N_FEATURES) for _ in range(N_OUTPUTS)]
    for row, _, after, state in walk(ArowFull(r), rows, N_FEATURES, N_OUTPUTS):
        x = row.dense(N_FEATURES)
        for k, y in enumerate(row.targets):
            margin = mean[:, k] @ x
            if y * margin < 1:
                v = x @ covariance[k] @ x
                beta = 1 / (v + r)
                alpha = max(0.0, 1 - y * margin) * beta
                mean[:, k] += alpha * y * covariance[k] @ x
                covariance[k] = (
                    covariance[k] - beta * covariance[k] @ np.outer(x, x) @ covariance[k]
                )
                inverse[k] += np.outer(x, x) / r
            np.testing.assert_allclose(
                state.arrays["covariance"][k] @ inverse[k], np.eye(N_FEATURES), atol=1e-9
            )
        np.testing.assert_allclose(after, mean, atol=1e-10)
        np.testing.assert_allclose(state.arrays["covariance"], covariance, atol=1e-10)


@settings(max_examples=25)
@given(r=trusts, importance=st.sampled_from([0.5, 1.0, 4.0]), seed=seeds)
def test_diagonal_arow_minimises_its_objective(r, importance, seed):
    """KL between diagonal Gaussians, and c times both terms of the row, over mean and log variance.

    Crammer et al. 2009, with lambda_1 = lambda_2 = 1 / 2 r.
    """
    learner = Arow(r)
    rows = draw_rows(seed, 6, 4)
    state = finish(learner, rows[:-1], 4)
    mean, variance = learner.weights(state)[:, 0], learner.variances(state)[:, 0]
    x, y = rows[-1].dense(4), rows[-1].targets[0]
    assume(y * (mean @ x) < 1)

    def objective(point):
        m, s = point[:4], np.exp(point[4:])
        divergence = 0.5 * np.sum(s / variance - point[4:] + np.square(m - mean) / variance)
        row = max(0.0, 1 - y * (m @ x)) ** 2 + np.sum(s * x**2)
        return divergence + importance * row / (2 * r)

    def slope(point):
        m, s = point[:4], np.exp(point[4:])
        short = max(0.0, 1 - y * (m @ x))
        by_mean = (m - mean) / variance - importance * short * y * x / r
        by_log = 0.5 * (s / variance - 1) + importance * s * x**2 / (2 * r)
        return np.concatenate([by_mean, by_log])

    start = np.concatenate([mean, np.log(variance)])
    found = minimize(objective, start, jac=slope, method="BFGS", options={"gtol": 1e-9}).x
    state = learn(learner, state, rows[-1], importance)
    np.testing.assert_allclose(learner.weights(state)[:, 0], found[:4], atol=1e-6)
    np.testing.assert_allclose(learner.variances(state)[:, 0], np.exp(found[4:]), atol=1e-6)


@given(r=trusts, seed=seeds)
def test_full_arow_of_importance_three_is_three_rows(r, seed):
    learner = ArowFull(r)
    once, thrice = learner.init(N_FEATURES, 1), learner.init(N_FEATURES, 1)
    for row in draw_rows(seed, 8, N_FEATURES):
        once = learn(learner, once, row, 3.0)
        for _ in range(3):
            thrice = learn(learner, thrice, row)
    np.testing.assert_allclose(learner.weights(once), learner.weights(thrice), atol=1e-9)
    np.testing.assert_allclose(once.arrays["covariance"], thrice.arrays["covariance"], atol=1e-9)


@pytest.mark.parametrize("learner", [Arow(1.0), ArowFull(1.0)], ids=["diagonal", "full"])
def test_a_margin_of_one_is_enough(learner):
    """At exactly 1, neither the weights nor the covariance move."""
    state = learner.init(3, 1)
    state.arrays["mean"][0] = 1.0
    before = deepcopy(state)
    row = draw_rows(0, 1, 3)[0]._replace(ids=np.array([0]), values=np.ones(1), targets=np.ones(1))
    state = learn(learner, state, row)
    for name, array in state.arrays.items():
        np.testing.assert_array_equal(array, before.arrays[name])
