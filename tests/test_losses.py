"""Losses: slopes are derivatives, nothing overflows, and the kernels use the same formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dadagrad import kernels
from dadagrad.errors import InputError
from dadagrad.losses import LOSSES, Absolute, Hinge, Huber, Loss, Squared, SquaredHinge, make_loss

ALL = [make_loss(name, huber_width=0.7) for name in LOSSES]
each_loss = pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.name)


def targets(loss: Loss) -> st.SearchStrategy[float]:
    return st.sampled_from([-1.0, 1.0]) if loss.classifies else st.floats(-5, 5)


def distance_from_kinks(loss: Loss, margin: float, target: float) -> float:
    """How far `margin` is from the nearest point where the slope is not smooth."""
    if isinstance(loss, Hinge | SquaredHinge):
        return abs(target * margin - 1.0)
    if isinstance(loss, Absolute):
        return abs(margin - target)
    if isinstance(loss, Huber):
        return abs(abs(margin - target) - loss.width)
    return np.inf


@each_loss
@given(data=st.data(), margin=st.floats(-30, 30))
def test_slope_is_the_derivative_of_value(loss, data, margin):
    target = data.draw(targets(loss))
    step = 1e-4
    if distance_from_kinks(loss, margin, target) <= step:
        margin += 3 * step
    around = loss.value(np.array([margin - step, margin + step]), np.array(target))
    numerical = (around[1] - around[0]) / (2 * step)
    assert loss.slope(np.array(margin), np.array(target)) == pytest.approx(
        numerical, rel=1e-5, abs=1e-7
    )


@each_loss
@given(data=st.data(), margins=st.lists(st.floats(-10, 10), min_size=2, max_size=2))
def test_value_is_convex_and_not_negative(loss, data, margins):
    target = np.array(data.draw(targets(loss)))
    here, there = (np.array(margin) for margin in margins)
    assert loss.value(here, target) >= 0.0
    tangent = loss.value(here, target) + loss.slope(here, target) * (there - here)
    assert loss.value(there, target) >= tangent - 1e-9


@each_loss
@pytest.mark.parametrize("size", [1e4, 1e150, 1e300])
def test_nothing_overflows(loss, size):
    with np.errstate(over="raise", invalid="raise"):
        margins, signs = np.array([-size, size, -size, size]), np.array([-1.0, -1.0, 1.0, 1.0])
        slope = loss.slope(margins, signs)
        compiled = [
            kernels.loss_slope(loss.code, loss.parameter, m, y)
            for m, y in zip(margins, signs, strict=True)
        ]
        assert np.isfinite(slope).all()
        np.testing.assert_allclose(compiled, slope, rtol=1e-14)
        if not isinstance(loss, Squared | SquaredHinge) or size < 1e154:
            assert np.isfinite(loss.value(margins, signs)).all()


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge()], ids=lambda loss: loss.name)
def test_slope_at_margin_one_is_zero(loss):
    for sign in (-1.0, 1.0):
        assert loss.slope(np.array(sign), np.array(sign)) == 0.0
        assert kernels.loss_slope(loss.code, loss.parameter, sign, sign) == 0.0


def test_slope_of_absolute_at_the_target_is_zero():
    assert Absolute().slope(np.array(0.3), np.array(0.3)) == 0.0
    assert kernels.loss_slope(Absolute.code, 0.0, 0.3, 0.3) == 0.0


@each_loss
@given(data=st.data(), margin=st.floats(-1e4, 1e4))
def test_compiled_slope_is_the_same(loss, data, margin):
    target = data.draw(targets(loss))
    expected = float(loss.slope(np.array(margin), np.array(target)))
    compiled = kernels.loss_slope(loss.code, loss.parameter, margin, target)
    assert compiled == pytest.approx(expected, rel=1e-14, abs=1e-300)


def test_codes_are_those_of_the_kernels():
    for name in LOSSES:
        constant = getattr(kernels, name.upper().replace("-", "_"))
        assert LOSSES[name].code == constant, name
    assert len({loss.code for loss in ALL}) == len(ALL)


def test_known_values():
    assert Hinge().value(np.array(0.25), np.array(1.0)) == 0.75
    assert SquaredHinge().value(np.array(0.0), np.array(-1.0)) == 0.5
    assert make_loss("logistic").value(np.array(0.0), np.array(1.0)) == pytest.approx(np.log(2))
    assert Squared().value(np.array(3.0), np.array(1.0)) == 2.0
    assert Absolute().value(np.array(3.0), np.array(1.0)) == 2.0
    huber = Huber(1.0).value(np.array([0.5, 3.0]), np.array(0.0))
    np.testing.assert_array_equal(huber, [0.125, 2.5])


def test_make_loss_names_the_choices():
    with pytest.raises(InputError, match="loss 'hinged' is not known; choose one of hinge, "):
        make_loss("hinged")


@pytest.mark.parametrize("width", [0.0, -1.0, np.nan, np.inf])
def test_huber_needs_a_positive_width(width):
    with pytest.raises(InputError, match="width of the Huber loss"):
        Huber(width)
