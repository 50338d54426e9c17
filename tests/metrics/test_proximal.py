"""The prox in metrics that are not diagonal: against a generic solver, and optimal by itself."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from dadagrad.metrics import Block, CorrectedSketch, Full, RadaGrad, Sketch, proximal
from dadagrad.regularizers import ElasticBox, L1Ball, L2Norm, MixedL2
from dadagrad.updates import DualAveraging

seeds = st.integers(0, 2**32 - 1)
boxes = st.sampled_from([(-np.inf, np.inf), (-0.3, 0.2), (0.0, np.inf)])
METRICS = [
    Full(0.1),
    Block(0.1, 3),
    Sketch(0.1, 3),
    CorrectedSketch(3, 0.1),
    RadaGrad(0.1, 3),
]
each_metric = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)


def draw_prox(metric, seed: int, n_features: int = 5, n_outputs: int = 1):
    """The arrays of a metric after some gradients, and a center."""
    rng = np.random.default_rng(seed)
    arrays = metric.init(n_features, n_outputs)
    for _ in range(9):
        arrays = metric.add(arrays, rng.normal(size=(n_features, n_outputs)))
    return arrays, rng.normal(size=(n_features, n_outputs))


def matrix_of(metric, arrays, n_features: int, output: int = 0) -> np.ndarray:
    n_outputs = len(next(iter(arrays.values())))
    columns = []
    for i in range(n_features):
        vector = np.zeros((n_features, n_outputs))
        vector[i, output] = 1.0
        columns.append(metric.multiply(arrays, vector)[:, output])
    return np.stack(columns, axis=1)


def elastic_violation(regularizer, h, weights, center, scale) -> float:
    """How far 0 is from the subdifferential of the whole objective."""
    smooth = h @ (weights - center) + scale * regularizer.l2 * weights
    at_zero = weights == 0.0
    lower = smooth + scale * regularizer.l1 * np.where(at_zero, -1.0, np.sign(weights))
    upper = smooth + scale * regularizer.l1 * np.where(at_zero, 1.0, np.sign(weights))
    lower = np.where(weights == regularizer.low, -np.inf, lower)
    upper = np.where(weights == regularizer.high, np.inf, upper)
    return float(np.maximum(np.maximum(lower, -upper), 0.0).max())


@each_metric
@given(
    seed=seeds,
    l1=st.sampled_from([0.0, 0.1, 1.0]),
    l2=st.sampled_from([0.0, 0.5]),
    box=boxes,
    scale=st.sampled_from([0.3, 3.0]),
)
def test_elastic_box_agrees_with_a_generic_solver(metric, seed, l1, l2, box, scale):
    regularizer = ElasticBox(l1, l2, *box)
    arrays, center = draw_prox(metric, seed)
    h, center_ = matrix_of(metric, arrays, 5), center[:, 0]
    weights = metric.prox(arrays, regularizer, center, scale)[:, 0]
    assert elastic_violation(regularizer, h, weights, center_, scale) <= 1e-9

    # w = p - q with p, q >= 0 turns the kink into a bound.
    def smooth(both: np.ndarray) -> tuple[float, np.ndarray]:
        w = both[:5] - both[5:]
        pull = h @ (w - center_)
        value = 0.5 * (w - center_) @ pull + scale * (l1 * both.sum() + 0.5 * l2 * w @ w)
        slope = pull + scale * l2 * w
        return value, np.concatenate([slope, -slope]) + scale * l1

    start = np.concatenate([np.maximum(center_, 0.0), np.maximum(-center_, 0.0)])
    bounds = [(0.0, max(box[1], 0.0))] * 5 + [(0.0, max(-box[0], 0.0))] * 5
    found = minimize(
        smooth,
        np.clip(start, 0.0, [high for _, high in bounds]),
        jac=True,
        method="SLSQP",
        bounds=bounds,
        options={"ftol": 1e-16, "maxiter": 1000},
    )
    np.testing.assert_allclose(weights, found.x[:5] - found.x[5:], atol=1e-6)


@each_metric
@given(seed=seeds, l1=st.sampled_from([0.02, 0.1, 0.5]))
def test_zeros_are_exact_and_the_rest_is_optimal(metric, seed, l1):
    regularizer = ElasticBox(l1)
    arrays, center = draw_prox(metric, seed, n_features=20, n_outputs=2)
    weights = metric.prox(arrays, regularizer, center, 3.0)
    for output in range(2):
        h = matrix_of(metric, arrays, 20, output)
        found = weights[:, output]
        assert elastic_violation(regularizer, h, found, center[:, output], 3.0) <= 1e-9
        # On its support the answer solves a linear system.
        support = found != 0.0
        pull = h @ center[:, output] - 3.0 * l1 * np.sign(found)
        exact = np.linalg.solve(h[np.ix_(support, support)], pull[support])
        np.testing.assert_allclose(found[support], exact, atol=1e-10 * np.abs(exact).max(initial=1))
    if l1 == 0.5:
        assert (weights == 0.0).any()


@each_metric
@given(seed=seeds, strength=st.sampled_from([0.1, 1.0, 100.0]))
def test_the_euclidean_norm_is_optimal(metric, seed, strength):
    """0 = H (w - center) + scale strength w / |w|, or w = 0 and |H center| <= scale strength."""
    arrays, center = draw_prox(metric, seed)
    h = matrix_of(metric, arrays, 5)
    weights = metric.prox(arrays, L2Norm(strength), center, 0.7)[:, 0]
    length = np.linalg.norm(weights)
    if length == 0.0:
        assert np.linalg.norm(h @ center) <= 0.7 * strength
    else:
        rest = h @ (weights - center[:, 0]) + 0.7 * strength * weights / length
        assert np.abs(rest).max() <= 1e-9
    if strength == 100.0:
        assert length == 0.0


@each_metric
@given(seed=seeds)
def test_a_ball_is_projected_on(metric, seed):
    """Feasible, and the objective grows towards every corner of the ball."""
    arrays, center = draw_prox(metric, seed)
    h, radius = matrix_of(metric, arrays, 5), 0.5
    weights = metric.prox(arrays, L1Ball(radius), center, 1.0)[:, 0]
    assert np.abs(weights).sum() <= radius * (1 + 1e-9)
    slope = h @ (weights - center[:, 0])
    for corner in radius * np.vstack([np.eye(5), -np.eye(5)]):
        assert slope @ (corner - weights) >= -1e-8


@given(seed=seeds)
def test_rows_of_all_outputs_vanish_together(seed):
    """The mixed norm couples outputs that have a metric each."""
    metric, regularizer = Full(0.1), MixedL2(0.4)
    arrays, center = draw_prox(metric, seed, n_features=6, n_outputs=3)
    weights = metric.prox(arrays, regularizer, center, 2.0)
    slope = metric.multiply(arrays, weights - center)
    for row, pull in zip(weights, slope, strict=True):
        if row.any():
            rest = pull + 0.8 * row / np.linalg.norm(row)
            assert np.abs(rest).max() <= 1e-9
        else:
            assert np.linalg.norm(pull) <= 0.8 + 1e-9


@each_metric
def test_without_a_regularizer_it_is_the_center(metric, monkeypatch):
    monkeypatch.setattr(proximal, "MOST_ITERATIONS", 0)
    arrays, center = draw_prox(metric, 0)
    np.testing.assert_array_equal(metric.prox(arrays, ElasticBox(), center, 1.0), center)


@each_metric
def test_a_start_changes_the_way_but_not_the_answer(metric):
    arrays, center = draw_prox(metric, 1, n_features=20)
    regularizer = ElasticBox(0.2, 0.1, -0.4, 0.4)
    cold = metric.prox(arrays, regularizer, center, 1.0)
    start = np.random.default_rng(2).normal(size=center.shape)
    warm = metric.prox(arrays, regularizer, center, 1.0, start=start)
    np.testing.assert_allclose(warm, cold, atol=1e-10)


@pytest.mark.parametrize("delta", [1e-6, 1e-3, 1.0])
def test_ill_conditioned_metrics_are_solved_too(delta, caplog, monkeypatch):
    """Without new starts the momentum would need some ten times as many iterations."""
    monkeypatch.setattr(proximal, "MOST_ITERATIONS", 5_000)
    rng = np.random.default_rng(3)
    metric = Full(delta)
    arrays = metric.init(30, 1)
    for length in np.geomspace(1e-3, 1e3, 15):
        arrays = metric.add(arrays, length * rng.normal(size=(30, 1)))
    center = rng.normal(size=(30, 1))
    h = matrix_of(metric, arrays, 30)
    l1 = 0.01 * np.abs(h @ center).max()
    weights = metric.prox(arrays, ElasticBox(l1), center, 1.0)
    violation = elastic_violation(ElasticBox(l1), h, weights[:, 0], center[:, 0], 1.0)
    assert violation <= 1e-9 * np.abs(h).max()
    assert not caplog.records


def test_too_few_iterations_are_told(monkeypatch, caplog):
    monkeypatch.setattr(proximal, "MOST_ITERATIONS", 2)
    metric = Block(0.1, 3)
    arrays, center = draw_prox(metric, 0)
    with caplog.at_level(logging.WARNING):
        metric.prox(arrays, ElasticBox(0.1), center, 1.0)
    assert "did not converge in 2 iterations" in caplog.text


def test_without_delta_a_feature_that_never_came_weighs_nothing():
    metric, rng = Full(0.0), np.random.default_rng(4)
    arrays = metric.init(5, 1)
    for _ in range(8):
        gradient = rng.normal(size=(5, 1))
        gradient[-1] = 0.0
        arrays = metric.add(arrays, gradient)
    center = -metric.solve(arrays, np.array([[1.0], [2.0], [-1.0], [0.5], [0.0]]))
    weights = metric.prox(arrays, ElasticBox(0.01), center, 1.0)
    assert weights[-1, 0] == 0.0
    assert np.isfinite(weights).all()
    assert weights.any()


def test_a_tie_between_l1_and_the_gradients_leaves_rounding_and_no_search(caplog):
    """Gradients of 0 and +-1, as of hinge and binary features, make |u_i| = t l1 exactly."""
    update = DualAveraging(1.0, Sketch(0.3, 2), ElasticBox(l1=1 / 3))
    state = update.init(2, 1)
    for gradient in ((0.0, 1.0), (1.0, -1.0), (0.0, -1.0)):
        state = update.step(state, np.array(gradient)[:, None])
        weights = update.weights(state)
    assert np.abs(weights).max() < 1e-14
    assert not caplog.records
