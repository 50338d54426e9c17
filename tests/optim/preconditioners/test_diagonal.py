"""Diagonal preconditioners of time, and those that do not see scales."""

import numpy as np
import pytest
from helpers.objects import GRADIENT_UPDATES
from helpers.update_cases import draw_gradients, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad import InputError
from dadagrad.optim.preconditioners import Identity, Normalized
from dadagrad.optim.regularizers import ElasticBox
from dadagrad.optim.updates import UPDATES, DualAveraging, MirrorDescent

SHAPE = (6, 2)


@pytest.mark.parametrize(("schedule", "power"), [("constant", 0.0), ("sqrt", 0.5), ("linear", 1.0)])
def test_schedules_are_powers_of_the_importance_so_far(schedule, power):
    update = MirrorDescent(0.3, Identity(schedule), ElasticBox())
    state, weights, t = update.init(*SHAPE), np.zeros(SHAPE), 0.0
    for importance, gradient in zip((0.5, 0.5, 3.0), draw_gradients(0, SHAPE, 3), strict=True):
        state = update.step(state, gradient, importance)
        t += importance
        weights = weights - 0.3 / t**power * importance * gradient
        np.testing.assert_allclose(update.weights(state), weights, atol=1e-12)
    with pytest.raises(InputError, match="'cubic' is not known; choose one of constant"):
        Identity("cubic")


@given(
    name=st.sampled_from(GRADIENT_UPDATES),
    told=st.sampled_from(["gradients", "scales", "scales by ids"]),
    seed=seeds,
    exponents=st.lists(st.integers(-30, 30), min_size=6, max_size=6),
)
@settings(max_examples=150)
def test_normalized_does_not_see_the_scale_of_a_feature(name, told, seed, exponents):
    """Rescaling features by powers of two leaves every margin as it is, bit for bit.

    With gradients alone slopes must be 0 or of one size; with scales any slopes will do, and the
    scale of the loss is not seen either.
    """
    rng = np.random.default_rng(seed)
    rows, targets = rng.normal(size=(20, 6)), rng.choice([-1.0, 1.0], 20)
    slopes = rng.choice([1e-100, 1e-3, 1.0, 1e3], 20)
    powers = 2.0 ** np.array(exponents)
    update, ids = UPDATES[name](0.5, Normalized(0.0), ElasticBox()), np.arange(6)
    found = []
    for data, factor in ((rows, 1.0), (rows * powers, 4.0)):
        state, margins = update.init(6, 1), []
        for t, (row, target) in enumerate(zip(data, targets, strict=True)):
            weights = update.weights(state)
            margins.append((row[:, None] * weights).sum())
            if told == "gradients":
                slope = -target if target * margins[-1] < 1.0 else 0.0
                state = update.step(state, slope * row[:, None])
                continue
            if name == "dual-averaging" and t:
                weighed = np.abs(np.abs(data[:t]).max(0)[:, None] * weights).max()
                assert weighed <= 0.5 * np.sqrt(t) * (1 + 1e-12)
            gradient = factor * slopes[t] * np.sign(margins[-1] - target) * row[:, None]
            named = ids if told == "scales by ids" else None
            state = update.step(state, gradient, 1.0, named, scales=np.abs(row))
        found.append(margins)
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0][1:]).max() > 0.0


def test_a_tiny_first_slope_gives_no_huge_weight_with_scales():
    update, row = DualAveraging(0.5, Normalized(0.0), ElasticBox()), np.array([[2.0], [-0.1]])
    state = update.step(update.init(2, 1), 1e-12 * row, scales=np.abs(row[:, 0]))
    np.testing.assert_allclose(update.weights(state) * row, [[-0.5], [-0.5]], rtol=1e-12)
    blind = update.step(update.init(2, 1), 1e-12 * row)
    assert np.abs(update.weights(blind)).max() > 1e11
