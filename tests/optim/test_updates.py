"""The reference updates against the closed forms and the equalities of the papers."""

import numpy as np
import pytest
from helpers.objects import GRADIENT_UPDATES, preconditioner_of
from helpers.update_cases import assert_alike, draw_gradients, seeds, walk
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad.optim.preconditioners import PRECONDITIONERS, Diagonal, Global, Identity, Normalized
from dadagrad.optim.regularizers import (
    ElasticBox,
    FloorSimplex,
    L2Norm,
    MixedL2,
    MixedLInfinity,
    Simplex,
    WithElasticNet,
)
from dadagrad.optim.updates import UPDATES, MirrorDescent

N_FEATURES = 5
WIDE = (12, 2)
deltas = st.sampled_from([0.0, 1e-3, 1.0])
strengths = st.sampled_from([0.0, 0.01, 0.3])
boxes = st.sampled_from([(-np.inf, np.inf), (-0.2, 0.3), (0.0, np.inf)])
POWERS = {"constant": 0.0, "sqrt": 0.5, "linear": 1.0}
diagonals = st.sampled_from(["diagonal", "normalized", *POWERS])
updates = st.sampled_from(GRADIENT_UPDATES)
preconditioners = st.sampled_from(list(PRECONDITIONERS))


def diagonal_of(name, gradients, delta):
    """A diagonal preconditioner, and H after each of the gradients by its formula.

    Dual averaging in "sqrt" is RDA (Xiao 2010), mirror descent FOBOS (Duchi and Singer 2009).
    """
    roots = delta + np.sqrt(np.cumsum(np.square(gradients), axis=0))
    if name == "diagonal":
        return Diagonal(delta), roots
    if name == "normalized":
        return Normalized(delta), np.maximum.accumulate(np.abs(gradients)) * roots
    times = np.arange(1.0, len(gradients) + 1)[:, None] ** POWERS[name]
    return Identity(name), np.broadcast_to(times, gradients.shape)


@given(kind=diagonals, seed=seeds, delta=deltas, l1=strengths, l2=strengths, box=boxes)
@settings(max_examples=80)
def test_dual_averaging_is_its_closed_form(kind, seed, delta, l1, l2, box):
    """Duchi et al. (2011), eq. 24, with l2 and a box."""
    eta, gradients = 0.4, draw_gradients(seed, (N_FEATURES,))
    preconditioner, curvatures = diagonal_of(kind, gradients, delta)
    update = UPDATES["dual-averaging"](eta, preconditioner, ElasticBox(l1, l2, *box))
    for t, (weights, h) in enumerate(zip(walk(update, gradients), curvatures, strict=True), 1):
        u = gradients[:t].sum(0)
        kept = np.maximum(np.abs(u) - t * l1, 0.0)
        with np.errstate(invalid="ignore"):
            closed = np.where(h > 0, -np.sign(u) * eta * kept / (h + eta * t * l2), 0.0)
        np.testing.assert_allclose(weights, np.clip(closed, *box), atol=1e-12)


@given(kind=diagonals, seed=seeds, delta=deltas, l1=strengths, l2=strengths, box=boxes)
@settings(max_examples=80)
def test_mirror_descent_is_its_closed_form(kind, seed, delta, l1, l2, box):
    eta, gradients = 0.4, draw_gradients(seed, (N_FEATURES,))
    preconditioner, curvatures = diagonal_of(kind, gradients, delta)
    update = UPDATES["mirror-descent"](eta, preconditioner, ElasticBox(l1, l2, *box))
    weights = np.zeros(N_FEATURES)
    for gradient, h, found in zip(gradients, curvatures, walk(update, gradients), strict=True):
        for i in np.flatnonzero(h > 0):
            v = weights[i] - eta * gradient[i] / h[i]
            shrunk = max(abs(v) - eta * l1 / h[i], 0.0)
            weights[i] = np.clip(np.sign(v) * shrunk / (1 + eta * l2 / h[i]), *box)
        np.testing.assert_allclose(found, weights, atol=1e-12)


@given(seed=seeds, delta=deltas, l1=strengths, l2=strengths)
def test_ftrl_minimises_its_objective(seed, delta, l1, l2):
    """<sum g, w> + t phi(w) + sum_s (H_s - H_s-1) (w - w_s)^2 / 2 eta, where H_0 is delta."""
    eta, gradients = 0.4, draw_gradients(seed, (N_FEATURES,))
    played = list(walk(UPDATES["ftrl"](eta, Diagonal(delta), ElasticBox(l1, l2)), gradients))
    centers = [np.zeros(N_FEATURES), np.zeros(N_FEATURES), *played[:-1]]
    growths = np.diff(np.sqrt(np.cumsum(np.square(gradients), axis=0)), axis=0, prepend=0.0)

    def objective(weights):
        pairs = zip([delta, *growths], centers, strict=True)
        proximal = sum(growth * np.square(weights - center) for growth, center in pairs)
        penalty = len(gradients) * (l1 * np.abs(weights) + 0.5 * l2 * np.square(weights))
        return gradients.sum(0) * weights + penalty + 0.5 / eta * proximal

    best = objective(played[-1])
    for change in (-1.0, -1e-2, -1e-4, 1e-4, 1e-2, 1.0):
        assert (objective(played[-1] + change) >= best - 1e-12).all()


@given(name=updates, seed=seeds, importance=st.sampled_from([0.25, 1.0, 3.0]))
@settings(max_examples=40)
def test_importance_multiplies_gradient_and_penalty(name, seed, importance):
    """A step of importance c on (g, phi) is a step of importance 1 on (c g, c phi)."""
    one = UPDATES[name](0.4, Diagonal(0.1), ElasticBox(0.02 * importance, 0.1 * importance))
    many = UPDATES[name](0.4, Diagonal(0.1), ElasticBox(0.02, 0.1))
    gradients = draw_gradients(seed, (N_FEATURES,))
    expected = list(walk(one, importance * gradients))
    np.testing.assert_allclose(list(walk(many, gradients, importance)), expected, atol=1e-12)
    assert many.step(many.init(N_FEATURES, 1), gradients[0][:, None], importance).t == importance


@given(
    kind=st.sampled_from([name for name in PRECONDITIONERS if name != "ada-lr"]),
    seed=seeds,
    delta=st.sampled_from([1e-3, 0.3]),
)
@settings(max_examples=100)
def test_ftrl_without_penalty_is_mirror_descent(kind, seed, delta):
    """H must only grow; ADA-LR turns its directions round and forgets some."""
    preconditioner = preconditioner_of(kind, delta)
    names = ("ftrl", "mirror-descent")
    updates = [UPDATES[name](0.4, preconditioner, ElasticBox()) for name in names]
    assert_alike(updates, draw_gradients(seed, WIDE, density=0.3), 1e-8)


@given(kind=st.sampled_from(["diagonal", "full", "sketch", "fd-son"]), name=updates, seed=seeds)
@settings(max_examples=40)
def test_a_penalty_of_strength_0_is_none(kind, name, seed):
    """Also one that has to be iterated to."""
    penalties = (ElasticBox(), L2Norm(0.0), ElasticBox(low=-1e9, high=1e9))
    preconditioner = preconditioner_of(kind)
    updates = [UPDATES[name](0.4, preconditioner, penalty) for penalty in penalties]
    assert_alike(updates, draw_gradients(seed, WIDE, n_steps=6, density=0.3), 1e-9)


PENALTIES = [
    *(ElasticBox(), ElasticBox(0.03, 0.2, -0.1, 0.3), MixedL2(0.05)),
    WithElasticNet(MixedLInfinity(0.05), 0.02, 0.1),
]


@given(kind=preconditioners, name=updates, regularizer=st.sampled_from(PENALTIES), seed=seeds)
@settings(max_examples=100)
def test_steps_by_ids_have_the_bits_of_whole_steps(kind, name, regularizer, seed):
    """The ids may name features whose gradient is 0. Weights are read by other ids."""
    update = UPDATES[name](0.4, preconditioner_of(kind), regularizer)
    rng = np.random.default_rng(seed)
    lazy, eager = update.init(*WIDE), update.init(*WIDE)
    # A random projection is a product over the ids, whose sum BLAS may take in another order.
    tolerance = 1e-9 if kind in ("radagrad", "ada-lr") else 0.0
    for _ in range(7):
        ids = np.flatnonzero(rng.random(12) < 0.4)
        gradient = np.zeros(WIDE)
        gradient[ids] = rng.normal(size=(len(ids), 2))
        gradient[ids[: len(ids) // 3]] = 0.0
        importance = float(rng.choice([0.5, 1.0, 3.0]))
        lazy = update.step(lazy, gradient[ids], importance, ids=ids)
        eager = update.step(eager, gradient, importance)
    assert lazy.t == eager.t
    whole, read = update.weights(eager), np.flatnonzero(rng.random(12) < 0.5)
    np.testing.assert_allclose(update.weights(lazy), whole, rtol=0, atol=tolerance)
    np.testing.assert_allclose(update.weights(lazy, read), whole[read], rtol=0, atol=tolerance)
    if not tolerance:
        for key, array in eager.arrays.items():
            np.testing.assert_array_equal(lazy.arrays[key], array)


@pytest.mark.parametrize(
    ("name", "kind", "regularizer"),
    [
        *(
            ("dual-averaging", kind, MixedL2(0.05))
            for kind in ("diagonal", "normalized", "identity")
        ),
        ("dual-averaging", "sketch", ElasticBox()),
        ("ftrl", "diagonal", ElasticBox(0.02, 0.1)),
        ("ftrl", "normalized", MixedL2(0.05)),
    ],
)
def test_a_sparse_example_reads_its_features_alone(name, kind, regularizer):
    """All others are not a number here, before and after."""
    update = UPDATES[name](0.4, preconditioner_of(kind), regularizer)
    state, ids = update.init(100, 2), np.array([0, 7, 99])
    others = np.setdiff1d(np.arange(100), ids)
    for array in state.arrays.values():
        for features in [axis for axis, size in enumerate(array.shape) if size == 100]:
            np.moveaxis(array, features, 0)[others] = np.nan
    for gradient in np.random.default_rng(0).normal(size=(5, 3, 2)):
        state = update.step(state, gradient, ids=ids)
        assert np.isfinite(update.weights(state, ids)).all()
    assert np.isnan(state.primary[others]).all()
    assert update.weights(state, ids).any()


@given(
    kind=preconditioners,
    name=updates,
    delta=st.sampled_from([0.0, 0.3]),
    l1=st.sampled_from([0.0, 0.5]),
)
@settings(max_examples=150)
def test_weights_are_0_before_the_first_step_and_numbers_after_it(kind, name, delta, l1):
    update = UPDATES[name](0.4, preconditioner_of(kind, delta), ElasticBox(l1))
    assert not update.weights(update.init(*WIDE)).any()
    assert np.isfinite(list(walk(update, draw_gradients(5, WIDE, 4, 0.3)))).all()


@given(
    kind=st.sampled_from(["diagonal", "full", "identity"]),
    regularizer=st.sampled_from([Simplex(2.0), FloorSimplex(0.05)]),
)
def test_mirror_descent_never_leaves_its_domain(kind, regularizer):
    """It starts inside, and a point inside is its own prox, bit for bit."""
    update = UPDATES["mirror-descent"](0.1, preconditioner_of(kind, 0.3), regularizer)
    state = update.init(*WIDE)
    assert regularizer.value(update.weights(state)) == 0.0
    for gradient in draw_gradients(5, WIDE, 4, 0.3):
        state = update.step(state, gradient)
        assert regularizer.value(update.weights(state)) == 0.0
    weights = update.weights(state)
    again = update.preconditioner.prox(state.preconditioner, regularizer, weights, 0.1)
    np.testing.assert_array_equal(again, weights)


@given(seed=seeds)
def test_the_global_rate_is_that_of_the_lecture(seed):
    """w <- w - eta g / sqrt(sum_s |g_s|^2), for each output."""
    gradients, eta = 0.1 + draw_gradients(seed, (4, 2), 6), 0.4
    weights, squares = np.zeros((4, 2)), np.zeros(2)
    update = MirrorDescent(eta, Global(), ElasticBox())
    for found, gradient in zip(walk(update, gradients), gradients, strict=True):
        squares += np.square(gradient).sum(axis=0)
        weights -= eta * gradient / np.sqrt(squares)
        np.testing.assert_allclose(found, weights, atol=1e-12)
