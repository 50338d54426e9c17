"""Newton's method for the prox in metrics of a few directions, with every regularizer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad.metrics import (
    AdaLowRank,
    CorrectedSketch,
    Full,
    RadaGrad,
    Sketch,
    SketchedNewton,
    dual,
    newton,
    proximal,
)
from dadagrad.metrics.directions import Directions
from dadagrad.regularizers import (
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

seeds = st.integers(0, 2**32 - 1)
deltas = st.sampled_from([1.0, 1e-1, 1e-2, 1e-4, 1e-6])
LOW_RANK = {
    "sketch": lambda delta: Sketch(delta, 3),
    "corrected-sketch": lambda delta: CorrectedSketch(3, delta),
    "radagrad": lambda delta: RadaGrad(delta, 3),
    "ada-lr": lambda delta: AdaLowRank(delta, 3),
    "fd-son": lambda delta: SketchedNewton(delta, 3),
    "full": lambda delta: Full(delta),
}
REGULARIZERS = [
    ElasticBox(0.05),
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
    WithElasticNet(L1Ball(0.7), 0.02, 0.1),
    WithElasticNet(Simplex(), 0.1, 0.2),
    WithElasticNet(MixedL2(0.1), 0.02, 0.1),
]
each_metric = pytest.mark.parametrize("make", LOW_RANK.values(), ids=list(LOW_RANK))
each_regularizer = pytest.mark.parametrize(
    "regularizer", REGULARIZERS, ids=[f"{i}-{type(r).__name__}" for i, r in enumerate(REGULARIZERS)]
)
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


def violation(regularizer, hs, weights, center) -> float:
    """How far the weights are from a step of proximal gradient, as a slope.

    Relative to H center, or to what a change of |weights|_H can do to the slope.
    """
    majorant = max(np.linalg.eigvalsh(h)[-1] for h in hs)
    columns = zip(hs, (weights - center).T, strict=True)
    slope = np.stack([h @ moved for h, moved in columns], axis=1)
    pull = max(np.abs(h @ center[:, k]).max() for k, h in enumerate(hs))
    size = max(weights[:, k] @ h @ weights[:, k] for k, h in enumerate(hs))
    again = regularizer.prox(weights - slope / majorant, majorant, SCALE)
    reach = max(pull, np.sqrt(majorant * size))
    return float(majorant * np.abs(again - weights).max() / reach)


@each_metric
@each_regularizer
@given(seed=seeds, delta=deltas)
@settings(max_examples=10)
def test_it_is_optimal(make, regularizer, seed, delta):
    """A fixed point of proximal gradient, which needs nothing of what Newton's method uses."""
    metric = make(delta)
    arrays, center = draw(metric, seed)
    weights = metric.prox(arrays, regularizer, center, SCALE)
    assert violation(regularizer, matrices(metric, arrays, N_FEATURES, 2), weights, center) <= 1e-9
    assert np.isfinite(regularizer.value(weights))


@each_metric
@each_regularizer
@pytest.mark.parametrize("delta", [1.0, 1e-2, 1e-4])
def test_it_needs_no_other_method(make, regularizer, delta, monkeypatch):
    metric = make(delta)
    arrays, center = draw(metric, 0)
    if make is LOW_RANK["ada-lr"] and not dual.without_l2(regularizer)[1]:
        pytest.skip("nothing across the directions: the other method has the last word")
    monkeypatch.setattr(proximal, "MOST_ITERATIONS", 0)
    monkeypatch.setattr(proximal, "logger", None)
    metric.prox(arrays, regularizer, center, SCALE)


@each_metric
@each_regularizer
def test_a_start_changes_the_way_but_not_the_answer(make, regularizer):
    metric = make(0.01)
    arrays, center = draw(metric, 3)
    if make is LOW_RANK["ada-lr"] and isinstance(regularizer, ElasticBox | L2Ball | L2Norm):
        pytest.skip("H is singular: there are many answers")
    cold = metric.prox(arrays, regularizer, center, SCALE)
    near = cold + 1e-3 * np.random.default_rng(4).normal(size=center.shape)
    for start in (cold, near, np.zeros_like(center), 100.0 * near):
        warm = metric.prox(arrays, regularizer, center, SCALE, start=start)
        np.testing.assert_allclose(warm, cold, atol=1e-9 * max(1.0, np.abs(cold).max()))
        if make is not LOW_RANK["ada-lr"]:
            np.testing.assert_array_equal(warm == 0.0, cold == 0.0)


@each_metric
@each_regularizer
def test_the_same_question_has_the_same_bits(make, regularizer):
    metric = make(1e-3)
    arrays, center = draw(metric, 5)
    before = {name: array.copy() for name, array in arrays.items()}
    first = metric.prox(arrays, regularizer, center, SCALE)
    again = metric.prox(before, regularizer, center.copy(), SCALE)
    assert first.tobytes() == again.tobytes()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, before[name])


@each_metric
@given(seed=seeds, l1=st.sampled_from([0.02, 0.1, 0.5]), delta=deltas)
@settings(max_examples=20)
def test_zeros_are_exact_and_the_rest_solves_its_system(make, seed, l1, delta):
    metric = make(delta)
    arrays, center = draw(metric, seed, 1, 20)
    (h,) = matrices(metric, arrays, 20, 1)
    weights = metric.prox(arrays, ElasticBox(l1, 0.01), center, SCALE)[:, 0]
    support = weights != 0.0
    shifted = h + SCALE * 0.01 * np.eye(20)
    pull = h @ center[:, 0]
    exact = np.linalg.solve(
        shifted[np.ix_(support, support)], (pull - SCALE * l1 * np.sign(weights))[support]
    )
    np.testing.assert_allclose(weights[support], exact, atol=1e-9 * np.abs(exact).max(initial=1))
    assert np.abs(pull - shifted @ weights)[~support].max(initial=0) <= SCALE * l1 * (1 + 1e-9)
    if l1 == 0.5:
        assert not support.all()


@pytest.mark.parametrize("update_start", [True, False])
@pytest.mark.parametrize("delta", [1.0, 1e-2, 1e-4])
def test_few_steps_are_enough(delta, update_start, monkeypatch):
    """Where accelerated proximal gradient took up to a thousand."""
    taken = []
    step = newton.Search._step
    monkeypatch.setattr(
        newton.Search, "_step", lambda self, point: (taken.append(1), step(self, point))[1]
    )
    metric = Sketch(delta, 10)
    arrays, center = draw(metric, 6, 1, 300)
    start = np.zeros_like(center) if update_start else None
    weights = metric.prox(arrays, ElasticBox(0.03), center, SCALE, start=start)
    assert 0 < np.count_nonzero(weights) < 300
    assert 0 < len(taken) <= 40


def test_far_starts_go_through_shifts(monkeypatch):
    """Newton's method alone is lost there."""
    metric = Sketch(1e-6, 3)
    arrays, center = draw(metric, 7, 1, 40)
    box = ElasticBox(0.05)
    expected = metric.prox(arrays, box, center, SCALE)
    monkeypatch.setattr(dual, "STEPS_FROM_START", 0)
    found = metric.prox(arrays, box, center, SCALE, start=1e6 * center)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


@each_regularizer
def test_the_other_method_takes_over(regularizer, monkeypatch):
    metric = Sketch(0.3, 3)
    arrays, center = draw(metric, 8)
    expected = metric.prox(arrays, regularizer, center, SCALE)
    monkeypatch.setattr(proximal, "find", lambda *given: (given[-1], False))
    found = metric.prox(arrays, regularizer, center, SCALE)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def refuse(*given, **named):
    raise AssertionError("not needed here")


def test_where_rounding_stops_the_search_a_linear_system_goes_on(monkeypatch):
    monkeypatch.setattr(dual, "_nearest", refuse)
    monkeypatch.setattr(proximal, "minimise", refuse)
    rng, metric = np.random.default_rng(3), Full(1e-6)
    arrays = metric.init(30, 1)
    for length in np.geomspace(1e-3, 1e3, 15):
        arrays = metric.add(arrays, length * rng.normal(size=(30, 1)))
    center = rng.normal(size=(30, 1))
    l1 = 0.01 * np.abs(metric.multiply(arrays, center)).max()
    hs = matrices(metric, arrays, 30, 1)
    weights = metric.prox(arrays, ElasticBox(l1), center, SCALE)
    assert violation(ElasticBox(l1), hs, weights, center) <= 1e-9


def test_a_small_delta_puts_the_center_far_out_at_first(monkeypatch):
    """Newton's method is lost there, and found by way of the shifts alone."""
    monkeypatch.setattr(dual, "_nearest", refuse)
    monkeypatch.setattr(proximal, "minimise", refuse)
    rng, metric = np.random.default_rng(0), Sketch(1e-4, 10)
    rows = rng.normal(size=(40, 30)) / np.sqrt(3)
    arrays, total = metric.init(30, 1), np.zeros((30, 1))
    for t, row in enumerate(rows, start=1):
        gradient = -row[:, None] * np.sign(row[:3].sum()) * 0.5
        arrays, total = metric.add(arrays, gradient), total + gradient
        center = -0.5 * metric.solve(arrays, total)
        metric.prox(arrays, ElasticBox(0.001), center, 0.5 * t)


@each_metric
def test_squares_in_the_metric(make):
    """v' H v and v' H^-1 v, of the directions that Newton's method is given."""
    metric = make(0.3)
    if make is LOW_RANK["ada-lr"]:
        return  # no inverse
    arrays, vector = draw(metric, 9, 1)
    (h,) = matrices(metric, arrays, N_FEATURES, 1)
    given = []
    regularizer = ElasticBox(0.1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            proximal, "find", lambda *args: (given.append(args[1][0]), (args[-1], False))[1]
        )
        metric.prox(arrays, regularizer, vector, SCALE)
    (directions,) = given
    v = vector[:, 0]
    assert directions.square(v) == pytest.approx(v @ h @ v, rel=1e-9)
    assert directions.inverse_square(v) == pytest.approx(v @ np.linalg.solve(h, v), rel=1e-8)


@pytest.mark.parametrize(
    "phi",
    [Simplex(), Simplex(20.0), FloorSimplex(0.05), L1Ball(0.7), L1Ball(50.0), LInfinityNorm(0.2)],
    ids=str,
)
@given(seed=seeds, base=st.sampled_from([1.0, 0.03]))
@settings(max_examples=40)
def test_what_moves_together(phi, seed, base):
    """The derivative of the prox where it has one, which is where a small step crosses no kink."""
    center = np.random.default_rng(seed).normal(size=N_FEATURES)
    weights = phi.prox(center, base, SCALE)
    free, tied = newton.tied_weights(phi, weights)
    sign = 1.0 if isinstance(phi, LInfinityNorm) else -1.0
    expected = np.diag(free.astype(float)) + sign * np.outer(tied, tied)
    step = 1e-7
    for k, unit in enumerate(np.eye(N_FEATURES)):
        moved = [phi.prox(center + way * step * unit, base, SCALE) for way in (1.0, -1.0)]
        slopes = [newton.tied_weights(phi, one)[0] for one in moved]
        if all((slope == free).all() for slope in slopes):
            quotient = (moved[0] - moved[1]) / (2.0 * step)
            np.testing.assert_allclose(expected[:, k], quotient, atol=1e-6)


def test_a_simplex_without_a_base_takes_few_steps(monkeypatch):
    """Met in ADA-LR's metric: difference quotients jumped over kinks that were near."""
    rows = [
        [-0.37235496, 0.13344473, 0.81469064, -0.14119711],
        [0.70045113, 0.49018723, -0.01056309, -0.27490147],
        [0.18001, -0.24493758, -0.04443668, 0.13585962],
        [-0.55013226, 0.37241895, -0.54820806, 0.06224671],
        [-0.08755361, -0.50878439, -0.18334861, -0.81358804],
        [0.1673477, -0.53325147, 0.00664665, 0.46929157],
    ]
    curvature = np.array([1.03336156, 0.43375463, 0.41409819, 0.18376628])
    part = Directions(np.array(rows), np.diag(np.sqrt(curvature)), np.ones(4), curvature, 0.0)
    pull = [0.48551181, -1.08417061, -0.15643894, 0.57277188, 0.25784713, -0.03762503]
    start = [0.46302869, -1.28407207, -0.03789365, 0.35478307, 0.39772857, 0.23129014]
    counts = []
    prox = newton.Search._prox

    def counted(self, center):
        counts.append(1)
        return prox(self, center)

    monkeypatch.setattr(newton.Search, "_prox", counted)
    pull, start = np.array(pull)[:, None], np.array(start)[:, None]
    weights, _ = dual.find(Simplex(), [part], pull, 6.0, start)
    assert len(counts) < 100
    # Optimal in H + 0: the slopes of the weights that are not 0 are the least, and equal.
    h = part.columns() @ part.columns().T
    slopes = (h @ weights - pull)[:, 0]
    held = weights[:, 0] > 0.0
    assert np.ptp(slopes[held]) < 1e-7
    assert slopes.min() > slopes[held].max() - 1e-7
