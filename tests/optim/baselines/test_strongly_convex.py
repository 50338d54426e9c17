"""The scheme of Shalev-Shwartz and Singer: its steps, its projection and its theorem 1."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.learner_cases import Linear, Row, draw_rows, learn, seeds, walk
from helpers.theorem_cases import STREAMS
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dadagrad import InputError, dataset_from_arrays, train
from dadagrad.optim.baselines import StronglyConvexBall, StronglyConvexSimplex
from dadagrad.optim.losses import LOSSES
from dadagrad.optim.projections import entropic_floor_projection

N_FEATURES, N_OUTPUTS = 6, 2
sigmas = st.sampled_from([0.01, 0.1, 1.0])
losses = st.sampled_from(["hinge", "squared-hinge", "logistic"]).map(LOSSES.make)


def to_ball(weights, radius):
    norms = np.linalg.norm(weights, axis=0)
    return weights * np.minimum(1.0, radius / np.maximum(norms, 1e-300))


@given(loss=losses, sigma=sigmas, radius=st.sampled_from([None, 0.3, 1e200]), seed=seeds)
def test_ball_is_the_dense_scheme(loss, sigma, radius, seed):
    """w_t+1 = projection of w_t - eta_t (sigma w_t + slope x), eta_t = 1 / sigma t (eq. 9)."""
    learner = StronglyConvexBall(sigma, radius, loss=loss)
    weights = np.zeros((N_FEATURES, N_OUTPUTS))
    rows = draw_rows(seed, 15, N_FEATURES, N_OUTPUTS)
    for t, (row, _, after, state) in enumerate(walk(learner, rows, N_FEATURES, N_OUTPUTS), 1):
        x = row.dense(N_FEATURES)
        step = sigma * weights + np.outer(x, loss.slope(x @ weights, row.targets))
        weights = to_ball(weights - step / (sigma * t), learner.ball(N_OUTPUTS))
        np.testing.assert_allclose(after, weights, rtol=1e-9, atol=1e-12)
        squares = np.square(weights).sum(axis=0)
        np.testing.assert_allclose(state.arrays["norm_squares"], squares, rtol=1e-9, atol=1e-12)


@given(
    sigma=sigmas,
    floor=st.sampled_from([None, 0.05, 1 / N_FEATURES]),
    radius=st.sampled_from([1.0, 5.0]),
    seed=seeds,
)
def test_simplex_is_the_dense_scheme(sigma, floor, radius, seed):
    """Eq. 12: theta = log p - eta (sigma (log p + 1) + slope x), then the entropic projection.

    The weights are radius p, and so the gradient of the loss by p is radius slope x.
    """
    loss = LOSSES.make("logistic")
    learner = StronglyConvexSimplex(sigma, floor, radius, loss=loss)
    shares = np.full((N_FEATURES, N_OUTPUTS), 1 / N_FEATURES)
    least = 1 / N_FEATURES**2 if floor is None else floor
    rows = draw_rows(seed, 10, N_FEATURES, N_OUTPUTS)
    for t, (row, before, after, _) in enumerate(walk(learner, rows, N_FEATURES, N_OUTPUTS), 1):
        np.testing.assert_allclose(before, radius * shares, rtol=1e-9)
        x = radius * row.dense(N_FEATURES)
        slope = loss.slope(x @ shares, row.targets)
        step = sigma * (np.log(shares) + 1) + np.outer(x, slope)
        theta = np.log(shares) - step / (sigma * t)
        shares = entropic_floor_projection(np.exp(theta - theta.max(axis=0)), least)
        np.testing.assert_allclose(after, radius * shares, rtol=1e-9)


@settings(max_examples=30)
@given(
    loss=losses,
    sigma=sigmas,
    stream=st.sampled_from(["sparse", "against", "wrong_label", "bursts"]),
    seed=seeds,
)
def test_theorem_1_in_the_ball(loss, sigma, stream, seed):
    """Regret <= L / sigma (1 + log T), L = max |lambda_t|^2 / 2, against a solver's best.

    Rows have at most length 1; the opponent of a stream sees the weights.
    """
    n_features, n_rows, rng = 3, 80, np.random.default_rng(seed)
    learner = StronglyConvexBall(sigma, loss=loss)
    state, rows, suffered, longest = learner.init(n_features, 1), [], 0.0, 0.0
    for t in range(1, n_rows + 1):
        weights = learner.weights(state)[:, 0]
        given_loss = STREAMS[stream](rng, t, weights)
        x = given_loss.x / max(np.linalg.norm(given_loss.x), 1.0)
        row = Row(np.arange(n_features), x, np.array([given_loss.y]))
        margin = np.array([x @ weights])
        slope = loss.slope(margin, row.targets)[0]
        suffered += 0.5 * sigma * weights @ weights + loss.value(margin, row.targets)[0]
        longest = max(longest, np.linalg.norm(sigma * weights + slope * x))
        rows.append(row)
        state = learn(learner, state, row)
    x = np.array([row.values for row in rows])
    y = np.array([row.targets[0] for row in rows])

    def objective(u):
        return n_rows * 0.5 * sigma * u @ u + loss.value(x @ u, y).sum()

    best = minimize(objective, np.zeros(n_features), method="Nelder-Mead")
    assert np.linalg.norm(best.x) <= learner.ball(1) * (1 + 1e-6)  # lemma 4: it is in the ball
    bound = 0.5 * longest**2 / sigma * (1 + np.log(n_rows))
    assert suffered - best.fun <= bound + 1e-9
    if loss.name == "hinge":  # corollary 1, with R = 1
        assert suffered - best.fun <= (np.sqrt(sigma) + 1) ** 2 / (2 * sigma) * (1 + np.log(n_rows))


@settings(max_examples=20)
@given(loss=losses, sigma=sigmas, size=st.sampled_from([1, 4, 15]), seed=seeds)
def test_batches_are_the_dense_scheme_of_mean_losses(loss, sigma, size, seed):
    """The mean loss of `size` rows is loss_t, in a run of the whole library."""
    n_steps, rng = 30, np.random.default_rng(seed)
    X = rng.normal(size=(n_steps * size, 3))
    y = np.where(X[:, 0] + rng.normal(size=len(X)) > 0, 1.0, -1.0)
    update = StronglyConvexBall(sigma)
    plain = {"fit_intercept": False, "scale_columns": False}
    data = dataset_from_arrays(X, y)
    model = train(data, loss=loss.name, update=update, batch_size=size, **plain).model
    weights = np.zeros(3)
    ball = replace(update, loss=loss).ball(1)
    for t, (x, signs) in enumerate(zip(np.split(X, n_steps), np.split(y, n_steps), strict=True), 1):
        scores = x @ weights
        step = sigma * weights + loss.slope(scores, signs) @ x / size
        weights = to_ball((weights - step / (sigma * t))[:, None], ball)[:, 0]
    np.testing.assert_allclose(model.weights[:, 0], weights, rtol=1e-4, atol=1e-5)


@settings(max_examples=30)
@given(sigma=sigmas, adversary=st.booleans(), seed=seeds)
def test_theorem_1_on_the_simplex(sigma, adversary, seed):
    """With the entropy, the l-infinity norm of lambda, and u on a fine grid of the simplex."""
    rng = np.random.default_rng(seed)
    n_rows, floor = 60, 0.02
    loss = LOSSES.make("logistic")
    learner = StronglyConvexSimplex(sigma, floor, loss=loss)
    state = learner.init(3, 1)
    grid = rng.dirichlet(np.ones(3), 4000) * (1 - 3 * floor) + floor

    def entropy(w):
        return np.sum(w * np.log(w), axis=-1) + np.log(3)

    suffered, rivals, longest = 0.0, np.zeros(len(grid)), 0.0
    for _ in range(n_rows):
        weights = learner.weights(state)[:, 0]
        x, y = rng.uniform(-1, 1, 3), rng.choice([-1.0, 1.0])
        if adversary:
            x, y = np.where(weights == weights.max(), 1.0, -1.0), -1.0
        margin, target = np.array([x @ weights]), np.array([y])
        suffered += sigma * entropy(weights) + loss.value(margin, target)[0]
        rivals += sigma * entropy(grid) + loss.value(grid @ x, target)
        step = sigma * (np.log(weights) + 1) + loss.slope(margin, target)[0] * x
        longest = max(longest, np.abs(step).max())
        state = learn(learner, state, Row(np.arange(3), x, target))
    bound = 0.5 * longest**2 / sigma * (1 + np.log(n_rows))
    assert suffered - rivals.min() <= bound
    assert longest <= sigma * (np.log(1 / floor) + 1) + 1.0  # what corollary 3 puts there


@given(importances=st.lists(st.sampled_from([0.5, 1.0, 2.0, 7.0]), min_size=5, max_size=5))
def test_importance_counts_the_whole_loss(importances):
    """c g_t in place of g_t, t the sum of c: without a ball, w = - sum c slope x / (sigma t)."""
    learner = StronglyConvexBall(0.5, radius=1e6, loss=Linear())
    state, total = learner.init(N_FEATURES, 1), np.zeros(N_FEATURES)
    for row, importance in zip(draw_rows(1, 5, N_FEATURES), importances, strict=True):
        row = row._replace(targets=np.ones(1))
        state = learn(learner, state, row, importance)
        total += importance * row.dense(N_FEATURES)
    assert state.t == sum(importances)
    expected = -total / (0.5 * state.t)
    np.testing.assert_allclose(learner.weights(state)[:, 0], expected, atol=1e-12)


def test_the_ball_holds_over_a_long_stream():
    learner = StronglyConvexBall(1e-3, radius=2.0, loss=LOSSES.make("hinge"))
    rows = draw_rows(7, 1500, N_FEATURES, N_OUTPUTS)
    touched = False
    for number, (_, _, after, state) in enumerate(walk(learner, rows, N_FEATURES, N_OUTPUTS)):
        norms = np.linalg.norm(after, axis=0)
        assert (norms <= 2.0 + 1e-9).all()
        touched = touched or (number > 1000 and (norms > 2.0 - 1e-9).any())
        np.testing.assert_allclose(np.sqrt(state.arrays["norm_squares"]), norms, rtol=1e-9)
    assert touched


def test_a_row_that_outweighs_all_before_leaves_nothing_of_them():
    """1 - c / t rounds to 0 there: the old weights must go, and no division by 0 may come."""
    learner = StronglyConvexBall(1.0, radius=1e6, loss=Linear())
    state = learn(learner, learner.init(2, 1), Row(np.array([0]), np.ones(1), np.ones(1)))
    state = learn(learner, state, Row(np.array([1]), np.ones(1), np.ones(1)), 1e20)
    np.testing.assert_array_equal(learner.weights(state)[:, 0], [0.0, -1.0])


def test_the_ball_that_holds_the_minimiser():
    for loss, expected in (
        ("hinge", 10.0),
        ("ranking", 10.0),
        ("squared-hinge", 10.0),
        ("logistic", np.sqrt(200 * np.log(2))),
        ("multiclass-hinge", np.sqrt(200)),
        ("softmax", np.sqrt(200 * np.log(3))),
    ):
        assert StronglyConvexBall(0.01, loss=LOSSES.make(loss)).ball(3) == pytest.approx(expected)


def test_a_floor_must_leave_room():
    with pytest.raises(InputError, match=r"a floor of 0.26 under 4 weights .* from 0 to 0.25"):
        StronglyConvexSimplex(floor=0.26).init(4, 1)


def test_a_regression_loss_needs_a_radius():
    with pytest.raises(InputError, match="for the loss 'squared'; give a radius"):
        StronglyConvexBall(loss=LOSSES.make("squared"))
    assert StronglyConvexBall(radius=3.0, loss=LOSSES.make("squared")).ball(1) == 3.0
