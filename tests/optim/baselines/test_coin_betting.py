"""Coin betting: the theorem of its docstring on random and adversarial gradients, and its parts."""

import numpy as np
import pytest
from helpers.learner_cases import Linear, Row, learn, one_feature, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad.optim.baselines import CoinBetting

RIVALS = np.concatenate([[0.0], *(sign * np.geomspace(1e-6, 1e4, 41) for sign in (-1, 1))])
wealths = st.sampled_from([0.01, 1.0, 5.0])
leashes = st.sampled_from([0.3, 1.0, 10.0])
STREAMS = ("normal", "heavy-tailed", "constant", "growing", "against", "trap", "rare")


def next_gradient(stream, rng, t, weight):
    """The gradient of step t, by an opponent who sees the weight played."""
    against = 1.0 if weight >= 0 else -1.0
    if stream == "normal":
        return float(rng.normal() + 0.3)
    if stream == "heavy-tailed":
        return float(rng.standard_cauchy())
    if stream == "constant":
        return -1.0
    if stream == "growing":  # each gradient is larger than all before, and hurts
        return against * 1.2**t
    if stream == "against":
        return against
    if stream == "trap":  # lure the weight out, then strike with what was never seen
        return 1000.0 if t and t % 50 == 0 else -1.0
    return float(rng.normal() * (rng.random() < 0.2))  # rare: mostly no gradient at all


def bound(learner, arrays, u):
    """The theorem's right side for one weight, written out again."""
    first, h, travel = (float(arrays[name][0, 0]) for name in ("first", "largest", "travel"))
    if first == 0.0:
        return np.zeros_like(u)
    v = first**2 + float(arrays["gradient_squares"][0, 0])
    size, opening = np.abs(u), learner.wealth * first**2
    slow = size * np.sqrt(2 * v * np.log1p(2 * np.square(v * size / opening)))
    fast = 4 * h * size * np.log(np.maximum(1.0, 4 * h * size * np.sqrt(v) / opening))
    clipped = (h - first) * (learner.leash * np.sqrt(travel) + size)
    leashed = h * size * (1 + np.square(size / learner.leash))
    return learner.wealth * first + np.maximum(slow, fast) + clipped + leashed


def bet(learner, state, gradient):
    return learn(learner, state, one_feature(gradient))


@settings(max_examples=60)
@given(
    stream=st.sampled_from(STREAMS),
    wealth=wealths,
    leash=leashes,
    scale=st.sampled_from([1e-8, 1.0, 1e8]),
    seed=seeds,
)
def test_regret_is_below_the_theorem(stream, wealth, leash, scale, seed):
    """At every step of the stream, not only the last, and against every rival."""
    rng = np.random.default_rng(seed)
    learner = CoinBetting(wealth, leash, loss=Linear())
    state = learner.init(1, 1)
    suffered = total = 0.0
    for t in range(120):
        weight = learner.weights(state)[0, 0]
        gradient = scale * next_gradient(stream, rng, t, weight)
        suffered += gradient * weight
        total += gradient
        state = bet(learner, state, gradient)
        regret = suffered - total * RIVALS
        room = bound(learner, state.arrays, RIVALS)
        assert (regret <= room * (1 + 1e-9) + 1e-12 * scale).all()


@given(seed=seeds)
def test_the_stake_is_the_formula_of_the_paper(seed):
    """Eq. 9 of Mhammedi and Koolen, in the units of the gradients."""
    rng = np.random.default_rng(seed)
    learner = CoinBetting(2.0, 1e6, loss=Linear())
    gradients = rng.normal(size=(25, 4)) * (rng.random((25, 4)) < 0.7)
    state = learner.init(4, 1)
    for gradient in gradients:
        state = learn(learner, state, Row(np.arange(4), gradient, np.ones(1)))
    total, squares, first, h, _ = (array[:, 0] for array in state.arrays.values())
    v, size = first**2 + squares, np.abs(total)
    stake = -total * 2.0 * (2 * v + h * size) * first**2
    stake /= 2 * np.square(v + h * size) * np.sqrt(v)
    stake *= np.exp(total**2 / (2 * v + 2 * h * size))
    np.testing.assert_allclose(learner.weights(state)[:, 0], stake, rtol=1e-9)


def test_sums_are_what_the_docstring_says():
    """Larger gradients are fed clipped to the largest before them; the first one whole."""
    learner = CoinBetting(leash=1e6, loss=Linear())
    state = learner.init(1, 1)
    for gradient in (0.0, -2.0, 1.0, -5.0, 4.0):
        state = bet(learner, state, gradient)
    found = {name: float(array[0, 0]) for name, array in state.arrays.items()}
    assert found == {
        "gradient_sum": -2.0 + 1.0 - 2.0 + 4.0,
        "gradient_squares": 4.0 + 1.0 + 4.0 + 16.0,
        "first": 2.0,
        "largest": 5.0,
        "travel": 1.0 + 0.5 + 1.0 + 0.8,
    }


def test_the_leash_holds_and_lets_go():
    learner = CoinBetting(1.0, 1.0, loss=Linear())
    state = learner.init(1, 1)
    for t in range(1, 400):
        state = bet(learner, state, -1.0)
        assert 0.0 < learner.weights(state)[0, 0] <= np.sqrt(t)
    assert learner.weights(state)[0, 0] == pytest.approx(np.sqrt(399))
    # What pushed further out was not fed, so coming back does not take 400 steps.
    for _ in range(100):
        state = bet(learner, state, 1.0)
    assert learner.weights(state)[0, 0] <= 0.1


def test_nothing_overflows():
    """From one end of float64 to the other, then gradients that all agree, without end.

    The first gradient sets the opening wealth, so what follows takes its logarithm to catch up.
    """
    first, others = np.array([(1e-150, 1e150), (1e-80, 1e80), (1e-200, 1.0), (1e-300, 1e-200)]).T
    learner = CoinBetting(loss=Linear())
    state = learner.init(4, 1)
    for t in range(4000):
        state = learn(learner, state, Row(np.arange(4), -others if t else -first, np.ones(1)))
        weights = learner.weights(state)[:, 0]
        assert (weights >= 0.0).all()
        assert (weights <= learner.leash * np.sqrt(t + 1) * (1 + 1e-12)).all()
    assert (weights > 1.0).tolist() == [False, True, True, True]
