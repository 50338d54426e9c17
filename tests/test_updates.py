"""The reference updates against the closed forms and the equalities of the papers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.errors import InputError
from dadagrad.metrics import Diagonal
from dadagrad.regularizers import ElasticBox
from dadagrad.updates import (
    UPDATES,
    DualAveraging,
    FollowTheLeader,
    MirrorDescent,
    init,
    make_update,
)

N_FEATURES = 5
seeds = st.integers(0, 2**32 - 1)
deltas = st.sampled_from([0.0, 1e-3, 1.0])
strengths = st.sampled_from([0.0, 0.01, 0.3])
boxes = st.sampled_from([(-np.inf, np.inf), (-0.2, 0.3), (0.0, np.inf)])
each_update = pytest.mark.parametrize("name", list(UPDATES))


def sparse_gradients(seed: int, n_steps: int = 12) -> np.ndarray:
    """(n_steps, N_FEATURES) gradients with many exact zeros; the last feature never occurs."""
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(n_steps, N_FEATURES)) * (rng.random((n_steps, N_FEATURES)) < 0.6)
    gradients[:, -1] = 0.0
    return gradients


@given(seed=seeds, delta=deltas, l1=strengths, l2=strengths, box=boxes)
def test_dual_averaging_is_its_closed_form(seed, delta, l1, l2, box):
    eta = 0.4
    update = DualAveraging(eta, Diagonal(delta), ElasticBox(l1, l2, *box))
    state = init(N_FEATURES)
    gradients = sparse_gradients(seed)
    for t, gradient in enumerate(gradients, start=1):
        state = update.step(state, gradient)
        u = gradients[:t].sum(0)
        h = delta + np.sqrt(np.square(gradients[:t]).sum(0))
        kept = np.maximum(np.abs(u) - t * l1, 0.0)
        with np.errstate(invalid="ignore"):
            closed = np.where(h > 0, -np.sign(u) * eta * kept / (h + eta * t * l2), 0.0)
        np.testing.assert_allclose(update.weights(state), np.clip(closed, *box), atol=1e-12)


@given(seed=seeds, delta=deltas)
def test_ftrl_without_penalty_is_mirror_descent(seed, delta):
    ftrl = FollowTheLeader(0.4, Diagonal(delta), ElasticBox())
    mirror = MirrorDescent(0.4, Diagonal(delta), ElasticBox())
    ftrl_state, mirror_state = init(N_FEATURES), init(N_FEATURES)
    for gradient in sparse_gradients(seed):
        ftrl_state = ftrl.step(ftrl_state, gradient)
        mirror_state = mirror.step(mirror_state, gradient)
        np.testing.assert_allclose(
            ftrl.weights(ftrl_state), mirror.weights(mirror_state), atol=1e-12
        )


@given(seed=seeds, delta=deltas, l1=strengths, l2=strengths)
def test_mirror_descent_is_its_closed_form(seed, delta, l1, l2):
    eta = 0.4
    update = MirrorDescent(eta, Diagonal(delta), ElasticBox(l1, l2))
    state = init(N_FEATURES)
    weights, squares = np.zeros(N_FEATURES), np.zeros(N_FEATURES)
    for gradient in sparse_gradients(seed):
        state = update.step(state, gradient)
        squares += gradient**2
        h = delta + np.sqrt(squares)
        for i in np.flatnonzero(h > 0):
            v = weights[i] - eta * gradient[i] / h[i]
            shrunk = max(abs(v) - eta * l1 / h[i], 0.0)
            weights[i] = np.sign(v) * shrunk / (1 + eta * l2 / h[i])
        np.testing.assert_allclose(update.weights(state), weights, atol=1e-12)


@given(seed=seeds, delta=deltas, l1=strengths, l2=strengths)
def test_ftrl_minimises_its_objective(seed, delta, l1, l2):
    """<sum g, w> + t phi(w) + sum_s (H_s - H_s-1) (w - w_s)^2 / 2 eta, where H_0 is delta."""
    eta = 0.4
    update = FollowTheLeader(eta, Diagonal(delta), ElasticBox(l1, l2))
    state = init(N_FEATURES)
    linear, centers, growths = np.zeros(N_FEATURES), [np.zeros(N_FEATURES)], [delta]
    squares = np.zeros(N_FEATURES)
    gradients = sparse_gradients(seed)
    for gradient in gradients:
        linear += gradient
        centers.append(update.weights(state))
        growths.append(np.sqrt(squares + gradient**2) - np.sqrt(squares))
        squares = squares + gradient**2
        state = update.step(state, gradient)

    def objective(weights: np.ndarray) -> np.ndarray:
        proximal = sum(
            growth * np.square(weights - center)
            for growth, center in zip(growths, centers, strict=True)
        )
        penalty = len(gradients) * (l1 * np.abs(weights) + 0.5 * l2 * np.square(weights))
        return linear * weights + penalty + 0.5 / eta * proximal

    weights = update.weights(state)
    best = objective(weights)
    for change in (-1.0, -1e-2, -1e-4, 1e-4, 1e-2, 1.0):
        assert (objective(weights + change) >= best - 1e-12).all()


@each_update
def test_a_feature_that_never_occurs_weighs_nothing(name):
    update = make_update(name, 0.4, Diagonal(0.0), ElasticBox(l1=0.01, l2=0.1))
    state = init(N_FEATURES)
    for gradient in sparse_gradients(0):
        state = update.step(state, gradient)
        assert update.weights(state)[-1] == 0.0
        assert np.isfinite(update.weights(state)).all()


@each_update
@given(seed=seeds, importance=st.sampled_from([0.25, 1.0, 3.0]))
def test_importance_multiplies_gradient_and_penalty(name, seed, importance):
    """A step of importance c on (g, phi) is a step of importance 1 on (c g, c phi)."""
    one = make_update(name, 0.4, Diagonal(0.1), ElasticBox(0.02 * importance, 0.1 * importance))
    many = make_update(name, 0.4, Diagonal(0.1), ElasticBox(0.02, 0.1))
    one_state, many_state = init(N_FEATURES), init(N_FEATURES)
    for gradient in sparse_gradients(seed):
        one_state = one.step(one_state, importance * gradient)
        many_state = many.step(many_state, gradient, importance)
        np.testing.assert_allclose(one.weights(one_state), many.weights(many_state), atol=1e-12)
    assert many_state.t == pytest.approx(importance * one_state.t)


@given(seed=seeds)
def test_two_equal_steps_and_one_of_importance_two_share_the_gradient_sum(seed):
    """They differ in the squares: 2 g^2 of two steps, 4 g^2 of one that is twice as long."""
    update = DualAveraging(0.4, Diagonal(0.1), ElasticBox(l1=0.02))
    gradient = sparse_gradients(seed)[0]
    twice = update.step(update.step(init(N_FEATURES), gradient), gradient)
    once = update.step(init(N_FEATURES), gradient, importance=2.0)
    assert twice.t == once.t
    np.testing.assert_array_equal(twice.primary, once.primary)
    np.testing.assert_allclose(once.gradient_squares, 2 * twice.gradient_squares)


@each_update
def test_a_step_leaves_the_state_it_was_given(name):
    update = make_update(name, 0.4, Diagonal(0.1), ElasticBox(l1=0.02))
    state = update.step(init(N_FEATURES), sparse_gradients(1)[0])
    before = state.primary.copy(), state.gradient_squares.copy()
    update.step(state, sparse_gradients(1)[1])
    np.testing.assert_array_equal(state.primary, before[0])
    np.testing.assert_array_equal(state.gradient_squares, before[1])


def test_l1_keeps_features_out_and_lets_them_come_back():
    update = DualAveraging(1.0, Diagonal(1.0), ElasticBox(l1=0.5))
    state = update.step(init(1), np.array([0.4]))
    assert update.weights(state)[0] == 0.0
    state = update.step(state, np.array([2.0]))
    assert update.weights(state)[0] < 0.0
    state = update.step(state, np.array([-2.0]))
    assert update.weights(state)[0] == 0.0


def test_make_update_names_the_choices():
    with pytest.raises(InputError, match="update 'adam' is not known; choose one of dual-aver"):
        make_update("adam", 0.1, Diagonal(0.0), ElasticBox())


@pytest.mark.parametrize("step_size", [0.0, -1.0, np.nan, np.inf])
def test_step_size_must_be_positive(step_size):
    with pytest.raises(InputError, match="step_size must be finite and positive"):
        make_update("ftrl", step_size, Diagonal(0.0), ElasticBox())


@pytest.mark.parametrize("delta", [-1.0, np.nan, np.inf])
def test_delta_must_not_be_negative(delta):
    with pytest.raises(InputError, match="delta must be finite and not negative"):
        Diagonal(delta)
