"""The heap of sparse projected steps against projecting the whole vector by sorting."""

import numpy as np
import pytest
from helpers.training_cases import make_data
from helpers.update_cases import seeds
from hypothesis import given
from hypothesis import strategies as st

from dadagrad import InputError, train
from dadagrad.optim.projection_tree import ProjectedGradient
from dadagrad.optim.projections import project_l1_ball

N_FEATURES = 60


class Ball:
    """Weights of one output in an l1 ball, changed by sparse steps."""

    def __init__(self, n_features, radius):
        self.update = ProjectedGradient(radius=radius)
        self.state = self.update.init(n_features, 1)

    def add(self, ids, change):
        self.update.add(self.state, 0, ids, change)

    def weights(self, ids=None):
        return self.update.weights(self.state, ids)[:, 0]


def draw_step(rng, weights):
    """Ids and changes: ties, zeros, sign flips, and exact ends of weights."""
    ids = rng.permutation(len(weights))[: rng.integers(0, 12)]
    kind = rng.integers(5)
    if kind == 0:  # all alike: ties of keys
        change = np.full(len(ids), rng.choice([-0.25, 0.25]))
    elif kind == 1:  # to exactly 0
        change = -weights[ids]
    elif kind == 2:  # to the other side
        change = -2.0 * weights[ids]
    elif kind == 3:  # many do not move
        change = np.where(rng.random(len(ids)) < 0.5, 0.0, rng.normal(size=len(ids)))
    else:
        change = rng.normal(size=len(ids)) * 10.0 ** rng.integers(-3, 2)
    return ids, change


def project(vector, radius):
    return project_l1_ball(vector, np.ones(len(vector)), radius, "sort")


@given(seed=seeds, radius=st.sampled_from([0.01, 1.0, 10.0]))
def test_after_every_step_it_is_the_projection_by_sorting(seed, radius):
    rng = np.random.default_rng(seed)
    ball, expected = Ball(N_FEATURES, radius), np.zeros(N_FEATURES)
    for _ in range(60):
        # The ball's own weights, so that "to exactly 0" is exact.
        ids, change = draw_step(rng, ball.weights())
        ball.add(ids, change)
        expected[ids] += change
        expected = project(expected, radius)
        np.testing.assert_allclose(ball.weights(), expected, atol=1e-9 * radius)


@pytest.mark.parametrize("radius", [0.05, 3.0])
def test_a_long_sequence_keeps_its_digits(radius):
    rng = np.random.default_rng(1)
    ball, expected = Ball(500, radius), np.zeros(500)
    born = ended = 0
    for _ in range(4_000):
        before = expected != 0
        ids, change = draw_step(rng, ball.weights())
        ball.add(ids, change)
        expected[ids] += change
        expected = project(expected, radius)
        born += np.count_nonzero(~before & (expected != 0))
        ended += np.count_nonzero(before & (expected == 0))
    assert min(born, ended) > 500
    np.testing.assert_allclose(ball.weights(), expected, atol=1e-9 * radius)
    assert np.abs(ball.weights()).sum() <= radius * (1 + 1e-11)


def test_a_shift_many_radii_long_costs_no_digits():
    """Each step moves two features by a million radii, which leaves them half the ball each."""
    radius = 1e-6
    ball = Ball(10, radius)
    for step in range(3_000):
        ids = np.array([step % 10, (step + 1 + step // 10 % 9) % 10])
        ball.add(ids, np.sign(ball.weights(ids) + 1e-12))
        assert np.abs(ball.weights()).sum() == pytest.approx(radius, rel=1e-8)


def test_zeros_are_exact_and_weights_come_back():
    ball = Ball(3, 1.0)
    ball.add(np.array([0, 1]), np.array([0.9, -0.3]))
    np.testing.assert_allclose(ball.weights(), [0.8, -0.2, 0.0], rtol=1e-15)
    ball.add(np.array([2]), np.array([5.0]))
    np.testing.assert_array_equal(ball.weights(), [0.0, 0.0, 1.0])
    ball.add(np.array([1, 2]), np.array([-0.5, -1.0]))
    np.testing.assert_array_equal(ball.weights(), [0.0, -0.5, 0.0])
    np.testing.assert_array_equal(ball.weights(np.array([1, 2])), [-0.5, 0.0])


@pytest.mark.parametrize("size", [1e6, 1e15, 1e100])
def test_a_step_far_out_comes_back_inside(size):
    ball = Ball(3, 1.0)
    ball.add(np.array([0, 1, 2]), np.array([0.3, -0.3, 0.3]))
    ball.add(np.array([1]), np.array([-size]))
    np.testing.assert_array_equal(ball.weights(), [0.0, -1.0, 0.0])
    ball.add(np.array([0]), np.array([1.0]))
    np.testing.assert_array_equal(ball.weights(), [0.5, -0.5, 0.0])


def test_a_feature_named_twice_gets_both_changes():
    ball = Ball(2, 10.0)
    ball.add(np.array([1, 1, 1]), np.array([1.0, -1.0, 0.5]))
    np.testing.assert_array_equal(ball.weights(), [0.0, 0.5])


@pytest.mark.parametrize("n_features", [0, 2**31])
def test_sizes_are_checked(n_features):
    with pytest.raises(InputError, match="n_features must be from 1 to 2147483647"):
        ProjectedGradient(radius=1.0).init(n_features, 1)


@given(seed=seeds, radius=st.sampled_from([0.3, 2.0]), by_ids=st.booleans())
def test_the_update_takes_projected_gradient_steps(seed, radius, by_ids):
    """Against a projection of all weights after each step of eta / sqrt(t), for two outputs."""
    rng = np.random.default_rng(seed)
    update = ProjectedGradient(0.5, radius=radius)
    state, weights, t = update.init(8, 2), np.zeros((8, 2)), 0.0
    for importance in (1.0, 0.5, 2.0, 1.0, 1.0):
        gradient = rng.normal(size=(8, 2)) * (rng.random((8, 2)) < 0.4)
        ids = np.flatnonzero(gradient.any(axis=1)) if by_ids else None
        state = update.step(state, gradient if ids is None else gradient[ids], importance, ids)
        t += importance
        moved = weights - 0.5 * importance / np.sqrt(t) * gradient
        weights = np.stack([project(column, radius) for column in moved.T], axis=1)
        np.testing.assert_allclose(update.weights(state), weights, atol=1e-12)
        some = update.weights(state, np.array([0, 5]))
        np.testing.assert_array_equal(some, update.weights(state)[[0, 5]])


@pytest.mark.parametrize("batch_size", [1, 20])
def test_training_by_projected_gradient_stays_in_the_ball_and_learns(batch_size):
    data = make_data((60, 60), seed=1)
    result = train(
        data, update="projected-gradient:radius=3", step_size=0.5, batch_size=batch_size, passes=5
    )
    assert np.abs(result.model.weights).sum() <= 3.0 * (1 + 1e-6)
    assert result.report["by_pass"][-1]["error"] < 0.4
