"""The reference updates against the closed forms and the equalities of the papers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from helpers.objects import GRADIENT_UPDATES, preconditioner_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad.optim.preconditioners import PRECONDITIONERS, Diagonal, Full
from dadagrad.optim.regularizers import ElasticBox, L2Norm, MixedL2
from dadagrad.optim.updates import UPDATES, GradientUpdate

N_FEATURES = 5
seeds = st.integers(0, 2**32 - 1)
deltas = st.sampled_from([0.0, 1e-3, 1.0])
strengths = st.sampled_from([0.0, 0.01, 0.3])
boxes = st.sampled_from([(-np.inf, np.inf), (-0.2, 0.3), (0.0, np.inf)])
each_update = pytest.mark.parametrize("name", GRADIENT_UPDATES)
each_metric = pytest.mark.parametrize("metric_name", list(PRECONDITIONERS))


def sparse_gradients(seed: int, n_steps: int = 12) -> np.ndarray:
    """(n_steps, N_FEATURES) gradients with many exact zeros; the last feature never occurs."""
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(n_steps, N_FEATURES)) * (rng.random((n_steps, N_FEATURES)) < 0.6)
    gradients[:, -1] = 0.0
    return gradients


def wide_gradients(seed: int, n_steps: int = 14) -> np.ndarray:
    """(n_steps, 12, 2) gradients of which most features are 0."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_steps, 12, 2)) * (rng.random((n_steps, 12, 1)) < 0.3)


def walk(
    update: GradientUpdate, gradients: np.ndarray, importance: float = 1.0
) -> Iterator[np.ndarray]:
    """The weights after each step."""
    state = update.init(*gradients.shape[1:])
    for gradient in gradients:
        state = update.step(state, gradient, importance)
        yield update.weights(state)


def assert_alike(updates: list[GradientUpdate], gradients: np.ndarray, atol: float) -> None:
    """All updates have the weights of the first after each step."""
    for expected, *others in zip(*(walk(update, gradients) for update in updates), strict=True):
        for found in others:
            np.testing.assert_allclose(found, expected, atol=atol)


@given(seed=seeds, delta=deltas, l1=strengths, l2=strengths, box=boxes)
def test_dual_averaging_is_its_closed_form(seed, delta, l1, l2, box):
    eta, gradients = 0.4, sparse_gradients(seed)
    update = UPDATES["dual-averaging"](eta, Diagonal(delta), ElasticBox(l1, l2, *box))
    for t, weights in enumerate(walk(update, gradients), start=1):
        u = gradients[:t].sum(0)
        h = delta + np.sqrt(np.square(gradients[:t]).sum(0))
        kept = np.maximum(np.abs(u) - t * l1, 0.0)
        with np.errstate(invalid="ignore"):
            closed = np.where(h > 0, -np.sign(u) * eta * kept / (h + eta * t * l2), 0.0)
        np.testing.assert_allclose(weights, np.clip(closed, *box), atol=1e-12)


@given(seed=seeds, delta=deltas, l1=strengths, l2=strengths)
def test_mirror_descent_is_its_closed_form(seed, delta, l1, l2):
    eta, gradients = 0.4, sparse_gradients(seed)
    update = UPDATES["mirror-descent"](eta, Diagonal(delta), ElasticBox(l1, l2))
    weights, squares = np.zeros(N_FEATURES), np.zeros(N_FEATURES)
    for gradient, found in zip(gradients, walk(update, gradients), strict=True):
        squares += gradient**2
        h = delta + np.sqrt(squares)
        for i in np.flatnonzero(h > 0):
            v = weights[i] - eta * gradient[i] / h[i]
            shrunk = max(abs(v) - eta * l1 / h[i], 0.0)
            weights[i] = np.sign(v) * shrunk / (1 + eta * l2 / h[i])
        np.testing.assert_allclose(found, weights, atol=1e-12)


@given(seed=seeds, delta=deltas, l1=strengths, l2=strengths)
def test_ftrl_minimises_its_objective(seed, delta, l1, l2):
    """<sum g, w> + t phi(w) + sum_s (H_s - H_s-1) (w - w_s)^2 / 2 eta, where H_0 is delta."""
    eta, gradients = 0.4, sparse_gradients(seed)
    played = list(walk(UPDATES["ftrl"](eta, Diagonal(delta), ElasticBox(l1, l2)), gradients))
    centers = [np.zeros(N_FEATURES), np.zeros(N_FEATURES), *played[:-1]]
    growths = np.diff(np.sqrt(np.cumsum(np.square(gradients), axis=0)), axis=0, prepend=0.0)

    def objective(weights: np.ndarray) -> np.ndarray:
        pairs = zip([delta, *growths], centers, strict=True)
        proximal = sum(growth * np.square(weights - center) for growth, center in pairs)
        penalty = len(gradients) * (l1 * np.abs(weights) + 0.5 * l2 * np.square(weights))
        return gradients.sum(0) * weights + penalty + 0.5 / eta * proximal

    best = objective(played[-1])
    for change in (-1.0, -1e-2, -1e-4, 1e-4, 1e-2, 1.0):
        assert (objective(played[-1] + change) >= best - 1e-12).all()


@each_update
@given(seed=seeds, importance=st.sampled_from([0.25, 1.0, 3.0]))
def test_importance_multiplies_gradient_and_penalty(name, seed, importance):
    """A step of importance c on (g, phi) is a step of importance 1 on (c g, c phi)."""
    one = UPDATES[name](0.4, Diagonal(0.1), ElasticBox(0.02 * importance, 0.1 * importance))
    many = UPDATES[name](0.4, Diagonal(0.1), ElasticBox(0.02, 0.1))
    gradients = sparse_gradients(seed)
    expected = list(walk(one, importance * gradients))
    np.testing.assert_allclose(list(walk(many, gradients, importance)), expected, atol=1e-12)
    assert many.step(many.init(N_FEATURES), gradients[0], importance).t == importance


@each_update
def test_a_step_leaves_the_state_it_was_given(name):
    update = UPDATES[name](0.4, Diagonal(0.1), ElasticBox(l1=0.02))
    state = update.step(update.init(N_FEATURES), sparse_gradients(1)[0])
    before = state.primary.copy(), state.preconditioner["squares"].copy()
    update.step(state, sparse_gradients(1)[1])
    np.testing.assert_array_equal(state.primary, before[0])
    np.testing.assert_array_equal(state.preconditioner["squares"], before[1])


@pytest.mark.parametrize("metric_name", [name for name in PRECONDITIONERS if name != "ada-lr"])
@given(seed=seeds, delta=st.sampled_from([1e-3, 0.3]))
@settings(max_examples=20)
def test_ftrl_without_penalty_is_mirror_descent(metric_name, seed, delta):
    """Where H only grows; ADA-LR turns its directions round and forgets some."""
    preconditioner = preconditioner_of(metric_name, delta)
    names = ("ftrl", "mirror-descent")
    updates = [UPDATES[name](0.4, preconditioner, ElasticBox()) for name in names]
    assert_alike(updates, wide_gradients(seed), 1e-8)


@each_update
@pytest.mark.parametrize("metric_name", ["diagonal", "full", "sketch", "fd-son"])
@given(seed=seeds)
@settings(max_examples=10)
def test_a_penalty_of_strength_0_is_none(metric_name, name, seed):
    """Also one that has to be iterated to."""
    penalties = (ElasticBox(), L2Norm(0.0), ElasticBox(low=-1e9, high=1e9))
    preconditioner = preconditioner_of(metric_name)
    updates = [UPDATES[name](0.4, preconditioner, penalty) for penalty in penalties]
    assert_alike(updates, wide_gradients(seed, n_steps=6), 1e-9)


@each_update
@pytest.mark.parametrize("metric_name", ["diagonal", "normalized", "identity"])
def test_vectors_are_columns(metric_name, name):
    update = UPDATES[name](0.4, preconditioner_of(metric_name), ElasticBox(0.02, 0.1))
    gradients = wide_gradients(3)
    vectors = [list(walk(update, gradients[:, :, output])) for output in range(2)]
    np.testing.assert_array_equal(list(walk(update, gradients)), np.stack(vectors, axis=-1))


@each_metric
@each_update
@pytest.mark.parametrize(
    "regularizer", [ElasticBox(), ElasticBox(0.02, 0.1), MixedL2(0.05)], ids=["no", "l1l2", "mixed"]
)
@given(seed=seeds)
@settings(max_examples=3)
def test_steps_by_ids_have_the_bits_of_whole_steps(metric_name, name, regularizer, seed):
    update = UPDATES[name](0.4, preconditioner_of(metric_name), regularizer)
    lazy, eager = update.init(12, 2), update.init(12, 2)
    # A random projection is a product over the ids, whose sum BLAS may take in another order.
    tolerance = 1e-9 if metric_name in ("radagrad", "ada-lr") else 0.0
    for gradient in wide_gradients(seed, n_steps=7):
        ids = np.flatnonzero(gradient.any(1))
        lazy = update.step(lazy, gradient[ids], 2.0, ids=ids)
        eager = update.step(eager, gradient, 2.0)
        whole = update.weights(eager)
        read = np.array([0, 3, 4, 11])
        np.testing.assert_allclose(update.weights(lazy), whole, rtol=0, atol=tolerance)
        np.testing.assert_allclose(update.weights(lazy, read), whole[read], rtol=0, atol=tolerance)
        assert lazy.t == eager.t
    if not tolerance:
        for key, array in eager.preconditioner.items():
            np.testing.assert_array_equal(lazy.preconditioner[key], array)


@pytest.mark.parametrize(
    ("name", "metric_name"),
    [
        ("dual-averaging", "diagonal"),
        ("dual-averaging", "normalized"),
        ("dual-averaging", "identity"),
        ("ftrl", "diagonal"),
        ("ftrl", "normalized"),
    ],
)
@pytest.mark.parametrize("regularizer", [ElasticBox(0.02, 0.1), MixedL2(0.05)])
def test_a_sparse_example_reads_its_features_alone(metric_name, name, regularizer):
    """All others are not a number here, before and after."""
    update = UPDATES[name](0.4, preconditioner_of(metric_name), regularizer)
    state, ids = update.init(100, 2), np.array([0, 7, 99])
    others = np.setdiff1d(np.arange(100), ids)
    for array in (state.primary, *state.preconditioner.values()):
        if array.shape[:1] == (100,):
            array[others] = np.nan
    for gradient in np.random.default_rng(0).normal(size=(5, 3, 2)):
        state = update.step(state, gradient, ids=ids)
        assert np.isfinite(update.weights(state, ids)).all()
    assert np.isnan(state.primary[others]).all()
    assert update.weights(state, ids).any()


@given(seed=seeds, l1=st.sampled_from([0.02, 0.2]))
def test_the_full_updates_minimise_their_objectives(seed, l1):
    """Eqs. 3 and 4 with H_t that contains g_t: no point nearby is better."""
    eta, penalty, rng = 0.4, ElasticBox(l1, 0.1), np.random.default_rng(seed)
    gradients = rng.normal(size=(5, 6, 1))
    averaged, mirrored = (
        list(walk(UPDATES[name](eta, Full(0.3), penalty), gradients))[-2:]
        for name in ("dual-averaging", "mirror-descent")
    )
    g = gradients[:, :, 0]
    values, vectors = np.linalg.eigh(g.T @ g)
    h = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T + 0.3 * np.eye(6)

    def objective(w: np.ndarray, linear: np.ndarray, t: int, center: np.ndarray) -> float:
        proximal = (w - center) @ h @ (w - center) / (2 * eta)
        return float(linear @ w + t * penalty.value(w) + proximal)

    for weights, parts in (
        (averaged[1][:, 0], (g.sum(0), 5, np.zeros(6))),
        (mirrored[1][:, 0], (g[-1], 1, mirrored[0][:, 0])),
    ):
        best = objective(weights, *parts)
        for width in (1e-4, 1e-2, 1.0):
            for _ in range(20):
                other = weights + width * rng.normal(size=6)
                assert objective(other, *parts) >= best - 1e-12


@each_metric
def test_the_state_is_arrays_with_names(metric_name):
    """What a checkpoint stores: a copy of the arrays goes on with the same bits."""
    update = UPDATES["dual-averaging"](0.4, preconditioner_of(metric_name), ElasticBox())
    gradients, state = wide_gradients(6), update.init(12, 2)
    for gradient in gradients[:7]:
        state = update.step(state, gradient)
    arrays = {key: np.array(array) for key, array in state.preconditioner.items()}
    copy = replace(state, primary=state.primary.copy(), preconditioner=arrays)
    for gradient in gradients[7:]:
        state, copy = update.step(state, gradient), update.step(copy, gradient)
    np.testing.assert_array_equal(update.weights(state), update.weights(copy))


@each_metric
@each_update
@pytest.mark.parametrize("delta", [0.0, 0.3])
def test_weights_are_0_before_the_first_step_and_numbers_after_it(metric_name, name, delta):
    for regularizer in (ElasticBox(), ElasticBox(0.5)):
        update = UPDATES[name](0.4, preconditioner_of(metric_name, delta), regularizer)
        state = update.init(12, 2)
        assert not update.weights(state).any()
        for gradient in wide_gradients(5, n_steps=4):
            state = update.step(state, gradient)
            assert np.isfinite(update.weights(state)).all()
