"""The prox in preconditioners that are not diagonal: against solvers and its own equations."""

import logging

import numpy as np
import pytest
from helpers.objects import example
from helpers.prox_cases import violation
from helpers.update_cases import arrays_after, seeds
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
    MixedL2,
    Simplex,
    WithElasticNet,
)
from dadagrad.optim.updates import DualAveraging

SKETCHES = Sketch(0.1, 3), CorrectedSketch(3, 0.1), RadaGrad(0.1, 3), SketchedNewton(0.1, 3)
preconditioners = st.sampled_from([Full(0.1), Block(3, 0.1), *SKETCHES])
BOXES = ElasticBox(0.1), ElasticBox(1.0), ElasticBox(0.1, low=-0.3, high=0.2)
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


def draw(preconditioner, seed, n_features=5, n_outputs=1):
    """The arrays after gradients of unequal lengths, and the center of dual averaging."""
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(7, n_features, n_outputs))
    gradients *= np.geomspace(1.0, 0.1, n_features)[:, None]
    arrays = arrays_after(preconditioner, gradients)
    return arrays, -preconditioner.solve(arrays, gradients.sum(axis=0))


def matrix(preconditioner, arrays, n_features):
    """H of the first output, as products with unit vectors."""
    n_outputs = len(next(iter(arrays.values())))
    units = [np.eye(n_features)[:, [i]] * np.ones(n_outputs) for i in range(n_features)]
    return np.stack([preconditioner.multiply(arrays, unit)[:, 0] for unit in units], axis=1)


def assert_solves_its_linear_system(weights, h, pull, l1):
    """The weights that are not 0 solve H w = pull - l1 sign(w), to 1e-10 in the norm of H."""
    support, exact = weights != 0.0, np.zeros(len(weights))
    wanted = (pull - l1 * np.sign(weights))[support]
    exact[support] = np.linalg.solve(h[np.ix_(support, support)], wanted)
    distance = np.sqrt((weights - exact) @ h @ (weights - exact))
    assert distance <= 1e-10 * np.sqrt(exact @ h @ exact)


@pytest.mark.filterwarnings("ignore:Values in x were outside bounds")  # of the solver
@given(
    preconditioner=preconditioners,
    regularizer=st.sampled_from([*BOXES, L1Ball(0.7), Simplex(), FloorSimplex(0.05)]),
    seed=seeds,
)
@settings(max_examples=40)
def test_the_prox_agrees_with_a_generic_solver(preconditioner, regularizer, seed):
    """SciPy's, of w = p - q with p, q >= 0."""
    arrays, center = draw(preconditioner, seed)
    h, ones, zeros = matrix(preconditioner, arrays, 5), np.ones(5), np.zeros(5)
    start = np.concatenate([np.maximum(center[:, 0], 0), np.maximum(-center[:, 0], 0)])
    slope, bounds, constraints = np.zeros(10), [(0.0, None)] * 10, []
    if isinstance(regularizer, ElasticBox):
        slope[:] = SCALE * regularizer.l1
        bounds = [(0.0, regularizer.high)] * 5 + [(0.0, -regularizer.low)] * 5
    elif isinstance(regularizer, L1Ball):
        constraints = [{"type": "ineq", "fun": lambda z: regularizer.radius - z.sum()}]
    else:
        bounds = [(getattr(regularizer, "floor", 0.0), None)] * 5 + [(0.0, 0.0)] * 5
        constraints = [{"type": "eq", "fun": lambda z: z @ np.concatenate([ones, zeros]) - 1.0}]

    def objective(z):
        pull = h @ (z[:5] - z[5:] - center[:, 0])
        value = 0.5 * (z[:5] - z[5:] - center[:, 0]) @ pull + slope @ z
        return value, np.concatenate([pull, -pull]) + slope

    options = {"ftol": 1e-16, "maxiter": 2000}
    solved = minimize(
        objective, start, jac=True, method="SLSQP",
        bounds=bounds, constraints=constraints, options=options,
    ).x  # fmt: skip
    weights = preconditioner.prox(arrays, regularizer, center, SCALE)[:, 0]
    # The generic solver stops at about 1e-16 in the objective.
    np.testing.assert_allclose(weights, solved[:5] - solved[5:], atol=2e-6)


@given(preconditioner=preconditioners, regularizer=st.sampled_from(ALL), seed=seeds)
@settings(max_examples=90)
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


@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_nearly_singular_preconditioners_are_solved(delta, caplog, monkeypatch):
    # Without restarts the momentum would need some ten times as many iterations.
    monkeypatch.setattr(prox, "MAX_ITERATIONS", 5_000)
    rng, preconditioner = np.random.default_rng(3), Full(delta)
    lengths = np.geomspace(1e-3, 1e3, 15)[:, None, None]
    arrays = arrays_after(preconditioner, lengths * rng.normal(size=(15, 30, 1)))
    center, h = rng.normal(size=(30, 1)), matrix(preconditioner, arrays, 30)
    l1 = 0.01 * np.abs(h @ center).max()
    weights = preconditioner.prox(arrays, ElasticBox(l1), center, 1.0)[:, 0]
    assert_solves_its_linear_system(weights, h, h @ center[:, 0], l1)
    assert not caplog.records


@pytest.mark.parametrize(("l1", "high"), [(1e-3, np.inf), (1e-2, 1e-3)])
@pytest.mark.parametrize(
    "preconditioner", [Sketch(1e-6, 4), SketchedNewton(1e-6, 4), CorrectedSketch(4)], ids=repr
)
def test_l1_in_a_sketch_takes_a_few_steps(preconditioner, high, l1, monkeypatch, caplog):
    monkeypatch.setattr(prox, "MAX_NEWTON_STEPS", 40)
    monkeypatch.setattr(prox, "MAX_ITERATIONS", 0)  # the other iteration would not end
    gradients = np.random.default_rng(3).normal(size=(12, 60, 1)) / np.arange(1, 61)[:, None]
    arrays = arrays_after(preconditioner, gradients)
    center = -preconditioner.solve(arrays, gradients.sum(axis=0))
    regularizer = ElasticBox(l1, low=-high, high=high)
    weights = preconditioner.prox(arrays, regularizer, center, 12.0)
    assert not caplog.records
    pull = preconditioner.multiply(arrays, center - weights) / 12.0
    assert violation(regularizer, weights, pull) <= 1e-9
    assert 0 < np.count_nonzero(weights) < 60


@pytest.mark.parametrize(
    "preconditioner",
    [Full(1e-6), Block(7, 1e-6), Sketch(1e-6, 3), CorrectedSketch(3), RadaGrad(1e-6, 3),
     SketchedNewton(1e-6, 3), Full(0.0), AdaLowRank(0.0, 3)],
    ids=repr,
)  # fmt: skip
def test_l2_makes_nearly_singular_preconditioners_regular(preconditioner, monkeypatch, caplog):
    rng, l2 = np.random.default_rng(3), 0.1
    arrays = arrays_after(preconditioner, rng.normal(size=(6, 20, 1)))
    center, h = rng.normal(size=(20, 1)), matrix(preconditioner, arrays, 20)
    pull, regular = h @ center[:, 0], h + l2 * np.eye(20)
    for l1, most in ((0.0, 0), (0.02, 1_000)):  # l2 alone needs no iteration
        monkeypatch.setattr(prox, "MAX_ITERATIONS", most)
        weights = preconditioner.prox(arrays, ElasticBox(l1, l2), center, 1.0)[:, 0]
        assert_solves_its_linear_system(weights, regular, pull, l1)
        slope = pull - regular @ weights
        assert (np.abs(slope[weights == 0.0]) <= l1 + 1e-9).all()
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


def test_a_prox_that_is_not_a_number_ends_the_iteration(caplog):
    arrays, center = draw(Full(0.1), 0)
    weights = Full(0.1).prox(arrays, L1Ball(0.7), np.nan * center, 1.0)
    assert np.isnan(weights).all()
    assert not caplog.records


def test_too_few_iterations_are_logged(monkeypatch, caplog):
    monkeypatch.setattr(prox, "MAX_ITERATIONS", 2)
    arrays, center = draw(Full(0.1), 0)
    with caplog.at_level(logging.WARNING):
        Full(0.1).prox(arrays, ElasticBox(0.1), center, 1.0)
    assert "did not converge in 2 iterations" in caplog.text


@pytest.mark.parametrize("preconditioner", [Full(0.0), AdaLowRank(0.0, 4)])
def test_without_delta_a_feature_that_never_occurred_weighs_nothing(preconditioner):
    rng = np.random.default_rng(4)
    gradients = np.pad(rng.normal(size=(8, 4, 1)), ((0, 0), (0, 1), (0, 0)))
    arrays = arrays_after(preconditioner, gradients)
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
