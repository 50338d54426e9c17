"""The prox in preconditioners that are not diagonal: against solvers and its own equations."""

from __future__ import annotations

import logging

import numpy as np
import pytest
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
    ElasticBox,
    FloorSimplex,
    GroupL2,
    L1Ball,
    L2Ball,
    L2Norm,
    LInfinityNorm,
    MixedL2,
    MixedLInfinity,
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
REGULARIZERS = [
    ElasticBox(0.05, 0.3, -0.2, 0.3),
    ElasticBox(low=0.0),
    L2Norm(0.2),
    LInfinityNorm(0.2),
    GroupL2(0.1, 3),
    MixedL2(0.1),
    MixedLInfinity(0.1),
    L1Ball(0.7),
    L2Ball(0.5),
    Simplex(),
    FloorSimplex(0.01),
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


def matrix(preconditioner, arrays, n_features: int, output: int = 0) -> np.ndarray:
    """H of one output, as products with unit vectors."""
    n_outputs = len(next(iter(arrays.values())))
    units = [np.eye(n_features)[:, [i]] * np.ones(n_outputs) for i in range(n_features)]
    return np.stack([preconditioner.multiply(arrays, unit)[:, output] for unit in units], axis=1)


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
    seed=seeds,
    l1=st.sampled_from([0.0, 0.1, 1.0]),
    box=st.sampled_from([(-np.inf, np.inf), (-0.3, 0.2), (0.0, np.inf)]),
)
def test_l1_in_a_box_agrees_with_a_generic_solver(preconditioner, seed, l1, box):
    arrays, center = draw(preconditioner, seed)
    weights = preconditioner.prox(arrays, ElasticBox(l1, 0.0, *box), center, SCALE)[:, 0]
    slope = SCALE * l1 * np.append(np.ones(10), 0.0)
    bounds = [(0.0, box[1])] * 5 + [(0.0, -box[0])] * 5 + [(0.0, None)]
    h = matrix(preconditioner, arrays, 5)
    # The generic solver stops at about 1e-16 in the objective.
    np.testing.assert_allclose(
        weights, generic_prox(h, center[:, 0], slope, bounds=bounds), atol=2e-6
    )


@given(
    preconditioner=preconditioners,
    regularizer=st.sampled_from([L1Ball(0.7), LInfinityNorm(0.2), Simplex(), FloorSimplex(0.05)]),
    seed=seeds,
)
def test_coupled_weights_agree_with_a_generic_solver(preconditioner, regularizer, seed):
    arrays, center = draw(preconditioner, seed)
    h, ones, zero = matrix(preconditioner, arrays, 5), np.ones(5), np.zeros(5)
    slope, rows = np.zeros(11), {}
    if isinstance(regularizer, L1Ball):
        rows["inequalities"] = np.concatenate([-ones, -ones, [0.0]]), regularizer.radius
    elif isinstance(regularizer, LInfinityNorm):
        rows["inequalities"] = np.block([[-np.eye(5), -np.eye(5), ones[:, None]]]), 0.0
        slope[-1] = SCALE * regularizer.strength
    else:
        floor = getattr(regularizer, "floor", 0.0)
        rows["equalities"] = np.concatenate([ones, zero, [0.0]]), -1.0
        rows["bounds"] = [(floor, None)] * 5 + [(0.0, 0.0)] * 5 + [(0.0, None)]
    weights = preconditioner.prox(arrays, regularizer, center, SCALE)[:, 0]
    np.testing.assert_allclose(weights, generic_prox(h, center[:, 0], slope, **rows), atol=2e-6)


@given(
    preconditioner=preconditioners,
    regularizer=st.sampled_from([L2Norm(0.2), GroupL2(0.1, 3), L2Ball(0.5)]),
    seed=seeds,
)
def test_lengths_satisfy_their_own_equations(preconditioner, regularizer, seed):
    """0 is H (w - c) + scale strength w_b / |w_b| in each block; in the ball, + mu w, mu >= 0."""
    arrays, center = draw(preconditioner, seed, 8)
    h = matrix(preconditioner, arrays, 8)
    weights = preconditioner.prox(arrays, regularizer, center, SCALE)[:, 0]
    slope = h @ (weights - center[:, 0])
    if isinstance(regularizer, L2Ball):
        length = np.linalg.norm(weights)
        assert length <= 0.5 * (1 + 1e-9)
        mu = -slope @ weights / length**2 if length > 0.5 * (1 - 1e-9) else 0.0
        assert mu >= -1e-9
        np.testing.assert_allclose(slope + mu * weights, 0.0, atol=1e-8)
        return
    size = 8 if isinstance(regularizer, L2Norm) else 3
    strength = SCALE * regularizer.strength
    for first in range(0, 8, size):
        block, pull = weights[first : first + size], slope[first : first + size]
        if block.any():
            rest = pull + strength * block / np.linalg.norm(block)
            np.testing.assert_allclose(rest, 0.0, atol=1e-8)
        else:
            assert np.linalg.norm(pull) <= strength * (1 + 1e-9)


@given(
    make=st.sampled_from([Full, lambda d: Sketch(d, 3), lambda d: RadaGrad(d, 3)]),
    regularizer=st.sampled_from(REGULARIZERS),
    delta=st.sampled_from([1.0, 1e-1, 1e-2]),
    seed=seeds,
)
@settings(max_examples=100)
def test_every_regularizer_reaches_a_fixed_point_of_proximal_gradient(
    make, regularizer, delta, seed
):
    preconditioner = make(delta)
    arrays, center = draw(preconditioner, seed, 8, 2)
    weights = preconditioner.prox(arrays, regularizer, center, SCALE)
    majorant = preconditioner.majorant(arrays).max()
    slope = preconditioner.multiply(arrays, weights - center)
    again = regularizer.prox(weights - slope / majorant, majorant, SCALE)
    size = np.sqrt(majorant * np.vdot(weights, preconditioner.multiply(arrays, weights)))
    reach = max(np.abs(preconditioner.multiply(arrays, center)).max(), size)
    assert majorant * np.abs(again - weights).max() <= 1e-9 * reach
    assert np.isfinite(regularizer.value(weights))


@given(seed=seeds, l1=st.sampled_from([0.02, 0.1, 0.5]), delta=st.sampled_from([1.0, 1e-1, 1e-2]))
def test_zeros_are_exact_and_the_rest_solves_its_linear_system(seed, l1, delta):
    preconditioner = Sketch(delta, 3)
    arrays, center = draw(preconditioner, seed, 20)
    h = matrix(preconditioner, arrays, 20)
    weights = preconditioner.prox(arrays, ElasticBox(l1, 0.01), center, SCALE)[:, 0]
    support = weights != 0.0
    shifted, pull = h + SCALE * 0.01 * np.eye(20), h @ center[:, 0]
    exact = np.linalg.solve(
        shifted[np.ix_(support, support)], (pull - SCALE * l1 * np.sign(weights))[support]
    )
    np.testing.assert_allclose(weights[support], exact, atol=1e-7 * np.abs(exact).max(initial=1))
    assert np.abs(pull - shifted @ weights)[~support].max(initial=0) <= SCALE * l1 * (1 + 1e-6)
    if l1 == 0.5:
        assert not support.all()


@given(seed=seeds)
def test_rows_of_all_outputs_vanish_together(seed):
    """The mixed norm couples outputs that have an H each."""
    preconditioner = Full(0.1)
    arrays, center = draw(preconditioner, seed, 6, 3)
    weights = preconditioner.prox(arrays, MixedL2(0.4), center, 2.0)
    slope = preconditioner.multiply(arrays, weights - center)
    for row, pull in zip(weights, slope, strict=True):
        if row.any():
            assert np.abs(pull + 0.8 * row / np.linalg.norm(row)).max() <= 1e-9
        else:
            assert np.linalg.norm(pull) <= 0.8 + 1e-9


@pytest.mark.parametrize("delta", [1e-6, 1e-3, 1.0])
def test_nearly_singular_preconditioners_are_solved(delta, caplog, monkeypatch):
    # Without restarts the momentum would need some ten times as many iterations.
    monkeypatch.setattr(prox, "MAX_ITERATIONS", 5_000)
    rng, preconditioner = np.random.default_rng(3), Full(delta)
    arrays = preconditioner.init(30, 1)
    for length in np.geomspace(1e-3, 1e3, 15):
        arrays = preconditioner.add(arrays, length * rng.normal(size=(30, 1)))
    center = rng.normal(size=(30, 1))
    h = matrix(preconditioner, arrays, 30)
    l1 = 0.01 * np.abs(h @ center).max()
    weights = preconditioner.prox(arrays, ElasticBox(l1), center, 1.0)[:, 0]
    support = weights != 0.0
    pull = h @ center[:, 0] - l1 * np.sign(weights)
    exact = np.zeros(30)
    exact[support] = np.linalg.solve(h[np.ix_(support, support)], pull[support])
    distance = np.sqrt((weights - exact) @ h @ (weights - exact))
    assert distance <= 1e-10 * np.sqrt(exact @ h @ exact)
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
    support, exact = weights != 0.0, np.zeros(n)
    pull = h @ center - l1 * np.sign(weights)
    exact[support] = np.linalg.solve(h[np.ix_(support, support)], pull[support])
    distance = np.sqrt((weights - exact) @ h @ (weights - exact))
    assert distance <= 1e-10 * np.sqrt(exact @ h @ exact)


@given(preconditioner=preconditioners)
def test_without_a_regularizer_it_is_the_center(preconditioner):
    arrays, center = draw(preconditioner, 0)
    np.testing.assert_array_equal(preconditioner.prox(arrays, ElasticBox(), center, 1.0), center)


@given(preconditioner=preconditioners, regularizer=st.sampled_from(REGULARIZERS))
def test_a_start_does_not_change_the_result(preconditioner, regularizer):
    arrays, center = draw(preconditioner, 1, 8, 2)
    cold = preconditioner.prox(arrays, regularizer, center, SCALE)
    start = np.random.default_rng(2).normal(size=center.shape)
    warm = preconditioner.prox(arrays, regularizer, center, SCALE, start=start)
    np.testing.assert_allclose(warm, cold, atol=1e-9)


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
