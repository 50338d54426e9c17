"""Newton's method for the prox with coupled weights: against scipy and their own equations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dadagrad.metrics import CorrectedSketch, Full, RadaGrad, Sketch, SketchedNewton
from dadagrad.regularizers import (
    FloorSimplex,
    GroupL2,
    L1Ball,
    L2Ball,
    L2Norm,
    LInfinityNorm,
    Simplex,
)

seeds = st.integers(0, 2**32 - 1)
METRICS = [
    Sketch(0.3, 3),
    CorrectedSketch(3, 0.3),
    RadaGrad(0.3, 3),
    SketchedNewton(0.3, 3),
    Full(0.3),
]
each_metric = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
N_FEATURES, SCALE = 8, 0.7


def draw(metric, seed: int, n_outputs: int = 2, n_features: int = N_FEATURES):
    """The metric after some gradients of unequal lengths, and the center of dual averaging."""
    rng = np.random.default_rng(seed)
    arrays, total = metric.init(n_features, n_outputs), np.zeros((n_features, n_outputs))
    lengths = np.geomspace(1.0, 0.1, n_features)[:, None]
    for _ in range(7):
        gradient = rng.normal(size=total.shape) * lengths
        arrays, total = metric.add(arrays, gradient), total + gradient
    return arrays, -metric.solve(arrays, total)


def matrices(metric, arrays, n_features: int, n_outputs: int) -> list[np.ndarray]:
    """H of each output, as products with unit vectors."""
    units = [np.eye(n_features)[:, [i]] * np.ones(n_outputs) for i in range(n_features)]
    products = np.stack([metric.multiply(arrays, unit) for unit in units], axis=1)
    return [products[:, :, k] for k in range(n_outputs)]


def split_solver(h, center, penalty, constraints, bounds):
    """argmin over w = p - q with p, q >= 0, and one more variable s, by scipy."""
    n = len(center)

    def objective(z):
        moved = z[:n] - z[n : 2 * n] - center
        value = 0.5 * moved @ h @ moved + penalty[0](z)
        slope = h @ moved
        return value, np.concatenate([slope, -slope, [0.0]]) + penalty[1]

    start = np.concatenate([np.maximum(center, 0), np.maximum(-center, 0), [1.0]])
    found = minimize(
        objective,
        start,
        jac=True,
        method="SLSQP",
        bounds=bounds,
        constraints=constraints,
        options={"ftol": 1e-16, "maxiter": 2000},
    )
    return found.x[:n] - found.x[n : 2 * n]


def generic(regularizer, h, center) -> np.ndarray:
    """The prox of a norm or a domain whose constraints are linear in (p, q, s)."""
    n = len(center)
    ones, zero = np.ones(n), np.zeros(n)
    slope = np.zeros(2 * n + 1)
    bounds = [(0.0, None)] * (2 * n + 1)
    if isinstance(regularizer, L1Ball):
        row = np.concatenate([-ones, -ones, [0.0]])
        rows = [
            {"type": "ineq", "fun": lambda z: row @ z + regularizer.radius, "jac": lambda z: row}
        ]
    elif isinstance(regularizer, LInfinityNorm):
        matrix = np.block([[-np.eye(n), -np.eye(n), ones[:, None]]])
        rows = [{"type": "ineq", "fun": lambda z: matrix @ z, "jac": lambda z: matrix}]
        slope[-1] = SCALE * regularizer.strength
    else:
        floor = getattr(regularizer, "floor", 0.0)
        row = np.concatenate([ones, zero, [0.0]])
        rows = [{"type": "eq", "fun": lambda z: row @ z - 1.0, "jac": lambda z: row}]
        bounds = [(floor, None)] * n + [(0.0, 0.0)] * n + [(0.0, None)]
    return split_solver(h, center, (lambda z: slope @ z, slope), rows, bounds)


@each_metric
@pytest.mark.parametrize(
    "regularizer",
    [L1Ball(0.7), LInfinityNorm(0.2), Simplex(), FloorSimplex(0.05)],
    ids=lambda regularizer: type(regularizer).__name__,
)
@given(seed=seeds)
@settings(max_examples=10)
def test_coupled_weights_agree_with_a_generic_solver(metric, regularizer, seed):
    arrays, center = draw(metric, seed, 1, 5)
    (h,) = matrices(metric, arrays, 5, 1)
    weights = metric.prox(arrays, regularizer, center, SCALE)[:, 0]
    np.testing.assert_allclose(weights, generic(regularizer, h, center[:, 0]), atol=1e-6)


@each_metric
@pytest.mark.parametrize("regularizer", [L2Norm(0.2), GroupL2(0.1, 3), L2Ball(0.5)])
@given(seed=seeds)
@settings(max_examples=10)
def test_lengths_satisfy_their_own_equations(metric, regularizer, seed):
    """0 is H (w - c) + scale strength w_b / |w_b| in each block; in the ball, + mu w, mu >= 0."""
    arrays, center = draw(metric, seed, 1)
    (h,) = matrices(metric, arrays, N_FEATURES, 1)
    weights = metric.prox(arrays, regularizer, center, SCALE)[:, 0]
    slope = h @ (weights - center[:, 0])
    if isinstance(regularizer, L2Ball):
        length = np.linalg.norm(weights)
        assert length <= 0.5 * (1 + 1e-9)
        mu = -slope @ weights / length**2 if length > 0.5 * (1 - 1e-9) else 0.0
        assert mu >= -1e-9
        np.testing.assert_allclose(slope + mu * weights, 0.0, atol=1e-8)
        return
    size = N_FEATURES if isinstance(regularizer, L2Norm) else 3
    strength = SCALE * regularizer.strength
    for first in range(0, N_FEATURES, size):
        block, pull = weights[first : first + size], slope[first : first + size]
        if block.any():
            rest = pull + strength * block / np.linalg.norm(block)
            np.testing.assert_allclose(rest, 0.0, atol=1e-8)
        else:
            assert np.linalg.norm(pull) <= strength * (1 + 1e-9)
