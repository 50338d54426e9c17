"""Passive-aggressive steps against a generic solver of what they minimise."""

import numpy as np
import pytest
from helpers.learner_cases import Row, draw_rows, finish, learn, learner_of, seeds
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dadagrad import InputError

variants = st.sampled_from(["pa", "pa-1", "pa-2"])
tasks = st.sampled_from(["binary", "multiclass", "regression"])
prices = st.sampled_from([0.05, 0.3, 2.0])
EPSILON = 0.1


def pa(variant, task="binary", C=1.0, epsilon=EPSILON):
    """A variant with the loss of a task."""
    loss = {"binary": "hinge", "multiclass": "multiclass-hinge", "regression": "absolute"}[task]
    price = "" if variant == "pa" else f",C={C}"
    return learner_of(f"{variant}:epsilon={epsilon}{price}", loss)


def solve(learner, weights, row, importance):
    """argmin 1/2 |W - weights|^2 + c C slack (or slack^2), by SLSQP, on all outputs at once."""
    n_features, n_outputs = weights.shape
    x = row.dense(n_features)
    targets = row.targets
    n_slacks = 1 if learner.loss.task == "multiclass" else n_outputs
    price = importance * getattr(learner, "C", 1.0)

    def parts(point):
        return point[: weights.size].reshape(weights.shape), point[weights.size :]

    def objective(point):
        moved, slack = parts(point)
        cost = {"pa": 0.0, "pa-1": price * slack.sum(), "pa-2": price * np.square(slack).sum()}
        return 0.5 * np.square(moved - weights).sum() + cost[learner.name]

    def reached(point):
        moved, slack = parts(point)
        slack = 0.0 if learner.name == "pa" else slack
        scores = x @ moved
        if learner.loss.task == "binary":
            return targets * scores - 1.0 + slack
        if learner.loss.task == "regression":
            off = scores - targets
            return np.concatenate([EPSILON + slack - off, EPSILON + slack + off])
        right = int(np.argmax(targets))
        others = [k for k in range(n_outputs) if k != right]
        wrong = max(others, key=lambda k: (x @ weights)[k])
        return scores[right] - scores[wrong] - 1.0 + slack

    constraints = [
        {"type": "ineq", "fun": reached},
        {"type": "ineq", "fun": lambda point: parts(point)[1]},
    ]
    start = np.concatenate([weights.ravel(), np.ones(n_slacks)])
    precise = {"method": "SLSQP", "options": {"ftol": 1e-15, "maxiter": 500}}
    return parts(minimize(objective, start, constraints=constraints, **precise).x)[0]


@settings(max_examples=40)
@given(
    variant=variants,
    task=tasks,
    price=prices,
    importance=st.sampled_from([0.5, 1.0, 3.0]),
    seed=seeds,
)
def test_a_step_is_what_a_solver_finds(variant, task, price, importance, seed):
    learner = pa(variant, task, price, EPSILON)
    n_features, n_outputs = 4, 3
    rows = [row for row in draw_rows(seed, 12, n_features, n_outputs, task) if len(row.ids)][:6]
    state = finish(learner, rows[:-1], n_features, n_outputs)
    before = learner.weights(state)
    after = learner.weights(learn(learner, state, rows[-1], importance))
    np.testing.assert_allclose(after, solve(learner, before, rows[-1], importance), atol=1e-6)


def test_a_row_without_values_asks_for_nothing():
    for variant in ("pa", "pa-1", "pa-2"):
        learner = pa(variant)
        empty = Row(np.zeros(0, np.int64), np.zeros(0), np.ones(1))
        zero = Row(np.array([1]), np.zeros(1), np.ones(1))
        state = finish(learner, [empty, zero], 3)
        assert state.t == 2.0
        assert not learner.weights(state).any()


def test_multiclass_needs_one_right_class():
    learner = pa("pa-1", "multiclass")
    both = Row(np.array([0]), np.ones(1), np.ones(2))
    with pytest.raises(InputError, match="one \\+1 and -1 elsewhere, not 2 above 0"):
        learn(learner, learner.init(3, 2), both)
