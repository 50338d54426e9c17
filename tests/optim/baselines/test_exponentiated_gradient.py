"""EG and EG+- against the multiplicative formulas of Kivinen and Warmuth, and their regret."""

import numpy as np
import pytest
from helpers.learner_cases import Linear, Row, draw_rows, finish, learn, one_feature, seeds, walk
from helpers.theorem_cases import STREAMS, streams
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from dadagrad.optim.baselines import ExponentiatedGradient, SignedExponentiatedGradient
from dadagrad.optim.losses import LOSSES

NAMES = ["hinge", "squared-hinge", "logistic", "squared", "absolute", "multiclass-hinge", "softmax"]
losses = st.sampled_from(NAMES).map(LOSSES.make)
radii = st.sampled_from([0.5, 1.0, 20.0])
N_FEATURES, N_OUTPUTS = 7, 2


@given(loss=losses, radius=radii, seed=seeds)
def test_eg_is_the_multiplicative_update(loss, radius, seed):
    learner = ExponentiatedGradient(radius, 0.2, loss=loss)
    weights = np.full((N_FEATURES, N_OUTPUTS), radius / N_FEATURES)
    rows = draw_rows(seed, 10, N_FEATURES, N_OUTPUTS, "multiclass")
    for row, before, after, _ in walk(learner, rows, N_FEATURES, N_OUTPUTS):
        np.testing.assert_allclose(before, weights, rtol=1e-9, atol=1e-300)
        x = row.dense(N_FEATURES)
        slope = loss.slope(x @ weights, row.targets)
        weights = weights * np.exp(-0.2 * radius * np.outer(x, slope))
        weights *= radius / weights.sum(axis=0)
        np.testing.assert_allclose(after, weights, rtol=1e-9, atol=1e-300)
        np.testing.assert_allclose(after.sum(axis=0), radius, rtol=1e-12)
        assert (after >= 0).all()


@given(loss=losses, radius=radii, seed=seeds)
def test_signed_eg_is_eg_on_the_row_and_its_negative(loss, radius, seed):
    """w = w+ - w-, each n of the 2 n weights of EG on (x, -x)."""
    signed = SignedExponentiatedGradient(radius, 0.2, loss=loss)
    plain = ExponentiatedGradient(radius, 0.2, loss=loss)
    state = plain.init(2 * N_FEATURES, N_OUTPUTS)
    rows = draw_rows(seed, 10, N_FEATURES, N_OUTPUTS, "multiclass")
    for row, _, after, _ in walk(signed, rows, N_FEATURES, N_OUTPUTS):
        ids = np.concatenate([row.ids, row.ids + N_FEATURES])
        values = np.concatenate([row.values, -row.values])
        state = learn(plain, state, Row(ids, values, row.targets))
        both = plain.weights(state)
        np.testing.assert_allclose(after, both[:N_FEATURES] - both[N_FEATURES:], atol=1e-10)
        assert (np.abs(after).sum(axis=0) <= radius * (1 + 1e-12)).all()
        assert (after[-1] == 0.0).all()  # the feature that never occurs


@given(signed=st.booleans(), radius=radii, size=st.sampled_from([1e3, 1e30]), seed=seeds)
def test_nothing_overflows(signed, radius, size, seed):
    learner = (SignedExponentiatedGradient if signed else ExponentiatedGradient)(
        radius, 10.0, loss=Linear()
    )
    for row, _, after, _ in walk(
        learner,
        [row._replace(values=size * row.values) for row in draw_rows(seed, 20, N_FEATURES)],
        N_FEATURES,
    ):
        assert np.isfinite(after).all()
        norm = np.abs(after).sum()
        assert norm <= radius * (1 + 1e-12)
        if not signed or len(row.ids):
            assert norm == pytest.approx(radius, rel=1e-9)


@given(
    signed=st.booleans(), radius=radii, eta=st.sampled_from([0.01, 0.3]), stream=streams, seed=seeds
)
def test_regret_is_below_its_bound(signed, radius, eta, stream, seed):
    """log(n) / eta + eta / 2 sum |U g|_inf^2, for the best u in hindsight; n is 2 n if signed."""
    rng = np.random.default_rng(seed)
    learner = (SignedExponentiatedGradient if signed else ExponentiatedGradient)(
        radius, eta, loss=Linear()
    )
    state = learner.init(N_FEATURES, 1)
    suffered, total, squares = 0.0, np.zeros(N_FEATURES), 0.0
    for t in range(1, 61):
        weights = learner.weights(state)[:, 0]
        gradient = STREAMS[stream](rng, t, weights).gradient(weights)
        suffered += gradient @ weights
        total += gradient
        squares += np.square(radius * np.abs(gradient).max())
        state = learn(learner, state, Row(np.arange(N_FEATURES), gradient, np.ones(1)))
    best = -radius * np.abs(total).max() if signed else radius * total.min()
    n = 2 * N_FEATURES if signed else N_FEATURES
    assert suffered - best <= np.log(n) / eta + 0.5 * eta * squares + 1e-9


def test_small_scores_give_signed_weights_to_full_precision():
    """2 sinh(s) / Z is s / n there; subtracting the two halves would lose most digits."""
    learner = SignedExponentiatedGradient(loss=Linear(), step_size=1.0)
    weights = learner.weights(finish(learner, [one_feature(-1e-12)], 4))
    np.testing.assert_allclose(weights[:, 0], [1e-12 / 4, 0, 0, 0], rtol=1e-12)


@pytest.mark.parametrize("n_features", [1, 2, 31, 32, 33, 1024, 1025, 40_000])
def test_the_tree_sums_its_leaves(n_features):
    """A running sum of exponentials would keep the rounding of the large ones it once held."""
    rng = np.random.default_rng(n_features)
    learner = ExponentiatedGradient(loss=Linear(), step_size=1.0)
    state = learner.init(n_features, 2)
    for _ in range(4):
        scores, root = state.arrays["scores"], list(state.arrays.values())[-1]
        np.testing.assert_allclose(root, logsumexp(scores, axis=0)[None], rtol=1e-13)
        ids = np.unique(rng.integers(0, n_features, 5))
        state = learn(learner, state, Row(ids, 300 * rng.normal(size=len(ids)), np.ones(2)))
    ids = np.flatnonzero(state.arrays["scores"][:, 0])
    state = learn(learner, state, Row(ids, state.arrays["scores"][ids, 0].copy(), np.ones(2)))
    fresh = learner.init(n_features, 2)
    for name, array in state.arrays.items():
        np.testing.assert_array_equal(array, fresh.arrays[name])
