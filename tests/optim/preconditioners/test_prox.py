"""The prox in preconditioners that are not diagonal: against solvers and its own equations."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from helpers.objects import example
from helpers.prox_cases import violation
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dadagrad.optim.preconditioners import (
    AdaLowRank,
    Block,
    CorrectedSketch,
    Full,
    RadaGrad,
    Sketch,
    SketchedNewton,
    prox,
)
from dadagrad.optim.regularizers import (
    REGULARIZERS,
    ElasticBox,
    FloorSimplex,
    L1Ball,
    L2Norm,
    LInfinityNorm,
    MixedL2,
    Simplex,
    WithElasticNet,
)
from dadagrad.optim.updates import DualAveraging

seeds = st.integers(0, 2**32 - 1)
preconditioners = st.sampled_from(
    [
        Full(0.1),
        Block(3, 0.1),
        Sketch(0.1, 3),
        CorrectedSketch(3, 0.1),
        RadaGrad(0.1, 3),
        SketchedNewton(0.1, 3),
    ]
)
ALL = [
    *(example(REGULARIZERS, name) for name in REGULARIZERS),
    ElasticBox(),
    ElasticBox(low=0.0),
    L1Ball(0.7),
    MixedL2(0.4),
    WithElasticNet(L2Norm(0.1), 0.03, 0.1),
    WithElasticNet(Simplex(), 0.1, 0.2),
]
SCALE = 0.7


def draw(preconditioner, seed: int, n_features: int = 5, n_outputs: int = 1):
    """The arrays after gradients of unequal lengths, and the center of dual averaging."""
    rng = np.random.default_rng(seed)
    arrays, total = preconditioner.init(n_features, n_outputs), np.zeros((n_features, n_outputs))
    for _ in range(7):
        gradient = rng.normal(size=total.shape) * np.geomspace(1.0, 0.1, n_features)[:, None]
        arrays, total = preconditioner.add(arrays, gradient), total + gradient
    return arrays, -preconditioner.solve(arrays, total)


def matrix(preconditioner, arrays, n_features: int) -> np.ndarray:
    """H of the first output, as products with unit vectors."""
    n_outputs = len(next(iter(arrays.values())))
    units = [np.eye(n_features)[:, [i]] * np.ones(n_outputs) for i in range(n_features)]
    return np.stack([preconditioner.multiply(arrays, unit)[:, 0] for unit in units], axis=1)


def assert_solves_its_linear_system(weights, h, pull, l1: float) -> None:
    """The weights that are not 0 solve H w = pull - l1 sign(w), to 1e-10 in the norm of H."""
    support, exact = weights != 0.0, np.zeros(len(weights))
    wanted = (pull - l1 * np.sign(weights))[support]
    exact[support] = np.linalg.solve(h[np.ix_(support, support)], wanted)
    distance = np.sqrt((weights - exact) @ h @ (weights - exact))
    assert distance <= 1e-10 * np.sqrt(exact @ h @ exact)


def generic_prox(h, center, slope, equalities=None, inequalities=None, bounds=None) -> np.ndarray:
    """argmin over w = p - q, p and q >= 0, and one more variable s >= 0, by SciPy.

    `slope` is that of the penalty by (p, q, s), the constraints are pairs (matrix, offset).
    """
    n = len(center)

    def objective(z):
        pull = h @ (z[:n] - z[n : 2 * n] - center)
        value = 0.5 * (z[:n] - z[n : 2 * n] - center) @ pull + slope @ z
        return value, np.concatenate([pull, -pull, [0.0]]) + slope

    constraints = [
        {"type": kind, "fun": lambda z, a=a, b=b: a @ z + b, "jac": lambda z, a=a: a}
        for kind, linear in (("eq", equalities), ("ineq", inequalities))
        if linear is not None
        for a, b in [linear]
    ]
    solved = minimize(
        objective,
        np.concatenate([np.maximum(center, 0), np.maximum(-center, 0), [1.0]]),
        jac=True,
        method="SLSQP",
        bounds=bounds or [(0.0, None)] * (2 * n + 1),
        constraints=constraints,
        options={"ftol": 1e-16, "maxiter": 2000},
    )
    return solved.x[:n] - solved.x[n : 2 * n]


@given(
    preconditioner=preconditioners,
    regularizer=st.sampled_from(
        [
            ElasticBox(0.1),
            ElasticBox(1.0),
            ElasticBox(0.1, low=-0.3, high=0.2),
            ElasticBox(low=0.0),
            L1Ball(0.7),
            LInfinityNorm(0.2),
            Simplex(),
            FloorSimplex(0.05),
        ]
    ),
    seed=seeds,
)
@settings(max_examples=100)
def test_it_agrees_with_a_generic_solver(preconditioner, regularizer, seed):
    arrays, center = draw(preconditioner, seed)
    h, ones, zero = matrix(preconditioner, arrays, 5), np.ones(5), np.zeros(5)
    slope, rows = np.zeros(11), {}
    if isinstance(regularizer, ElasticBox):
        slope[:10] = SCALE * regularizer.l1
        sides = [(0.0, regularizer.high)] * 5 + [(0.0, -regularizer.low)] * 5
        rows["bounds"] = [*sides, (0.0, None)]
    elif isinstance(regularizer, L1Ball):
        rows["inequalities"] = np.concatenate([-ones, -ones, [0.0]]), regularizer.radius
    elif isinstance(regularizer, LInfinityNorm):
        rows["inequalities"] = np.block([[-np.eye(5), -np.eye(5), ones[:, None]]]), 0.0
        slope[-1] = SCALE * regularizer.strength
    else:
        floor = getattr(regularizer, "floor", 0.0)
        rows["equalities"] = np.concatenate([ones, zero, [0.0]]), -1.0
        rows["bounds"] = [(floor, None)] * 5 + [(0.0, 0.0)] * 5 + [(0.0, None)]
    weights = preconditioner.prox(arrays, regularizer, center, SCALE)[:, 0]
    # The generic solver stops at about 1e-16 in the objective.
    np.testing.assert_allclose(weights, generic_prox(h, center[:, 0], slope, **rows), atol=2e-6)


@pytest.mark.parametrize("regularizer", ALL, ids=repr)
@given(preconditioner=preconditioners, seed=seeds)
@settings(max_examples=15)
def test_the_pull_of_the_center_is_a_subgradient(preconditioner, regularizer, seed):
    """From any start, H (c - w) / scale is in the subdifferential of phi at w."""
    arrays, center = draw(preconditioner, seed, 8, 2)
    start = np.random.default_rng(seed).normal(size=center.shape)
    for first in (None, start):
        weights = preconditioner.prox(arrays, regularizer, center, SCALE, start=first)
        pull = preconditioner.multiply(arrays, center - weights) / SCALE
        size = max(1.0, np.abs(preconditioner.multiply(arrays, center)).max())
        assert violation(regularizer, weights, pull) <= 1e-8 * size
    if regularizer.is_zero:
        np.testing.assert_array_equal(weights, center)


@given(seed=seeds, delta=st.sampled_from([1.0, 1e-1, 1e-2]))
def test_zeros_are_exact(seed, delta):
    preconditioner = Sketch(delta, 3)
    arrays, center = draw(preconditioner, seed, 20)
    weights = preconditioner.prox(arrays, ElasticBox(0.5, 0.01), center, SCALE)
    assert np.any(weights == 0.0)
    pull = preconditioner.multiply(arrays, center - weights) / SCALE
    assert (weights[np.abs(pull) < 0.5 * (1 - 1e-6)] == 0.0).all()


@pytest.mark.parametrize("delta", [1e-6, 1e-3, 1.0])
def test_nearly_singular_preconditioners_are_solved(delta, caplog, monkeypatch):
    # Without restarts the momentum would need some ten times as many iterations.
    monkeypatch.setattr(prox, "MAX_ITERATIONS", 5_000)
    rng, preconditioner = np.random.default_rng(3), Full(delta)
    arrays = preconditioner.init(30, 1)
    for length in np.geomspace(1e-3, 1e3, 15):
        arrays = preconditioner.add(arrays, length * rng.normal(size=(30, 1)))
    center, h = rng.normal(size=(30, 1)), matrix(preconditioner, arrays, 30)
    l1 = 0.01 * np.abs(h @ center).max()
    weights = preconditioner.prox(arrays, ElasticBox(l1), center, 1.0)[:, 0]
    assert_solves_its_linear_system(weights, h, h @ center[:, 0], l1)
    assert not caplog.records


@pytest.mark.parametrize("seed", [13, 15, 21, 28, 31])
def test_the_distance_to_the_optimum_is_bounded_before_the_iteration_stops(seed):
    """Short steps and a small slope are not enough: without the bound it stops too early here."""
    rng = np.random.default_rng(seed)
    n = rng.integers(3, 12)
    basis = np.linalg.qr(rng.normal(size=(n, n))).Q
    values = np.geomspace(1, 10.0 ** -rng.integers(3, 6), n)
    h, inverse = (basis * values) @ basis.T, (basis / values) @ basis.T
    center = rng.normal(size=n) / np.sqrt(values.min()) ** rng.integers(0, 2)
    l1 = 0.003 * np.abs(h @ center).max()
    weights = prox.minimise(
        ElasticBox(l1),
        center[:, None],
        1.0,
        multiply=lambda vector: h @ vector,
        solve=lambda vector: inverse @ vector,
        majorant=np.ones((n, 1)),
    )[:, 0]
    assert_solves_its_linear_system(weights, h, h @ center, l1)


def test_too_few_iterations_are_logged(monkeypatch, caplog):
    monkeypatch.setattr(prox, "MAX_ITERATIONS", 2)
    arrays, center = draw(Full(0.1), 0)
    with caplog.at_level(logging.WARNING):
        Full(0.1).prox(arrays, ElasticBox(0.1), center, 1.0)
    assert "did not converge in 2 iterations" in caplog.text


@pytest.mark.parametrize("preconditioner", [Full(0.0), AdaLowRank(0.0, 4)])
def test_without_delta_a_feature_that_never_occurred_weighs_nothing(preconditioner):
    rng = np.random.default_rng(4)
    arrays = preconditioner.init(5, 1)
    for _ in range(8):
        gradient = np.append(rng.normal(size=4), 0.0)[:, None]
        arrays = preconditioner.add(arrays, gradient)
    center = -preconditioner.solve(arrays, np.array([[1.0], [2.0], [-1.0], [0.5], [0.0]]))
    weights = preconditioner.prox(arrays, ElasticBox(0.01), center, 1.0)
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
