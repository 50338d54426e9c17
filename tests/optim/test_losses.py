"""Losses: slopes are derivatives, nothing overflows, and the kernels use the same formulas."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.objects import compiled_slope, kernel_parameter, loss_of
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.errors import InputError
from dadagrad.kernels import training as kernels
from dadagrad.optim.losses import (
    LOSSES,
    MAX_LOG_MEAN,
    Absolute,
    Hinge,
    Huber,
    Loss,
    MulticlassHinge,
    Poisson,
    Quantile,
    Ranking,
    Softmax,
    Squared,
    SquaredHinge,
    check_targets,
)

EVERY = [loss_of(name) for name in LOSSES]
ALL = [loss for loss in EVERY if not loss.couples]
COUPLED = [loss for loss in EVERY if loss.couples]
each_loss = pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.name)
each_coupled = pytest.mark.parametrize("loss", COUPLED, ids=lambda loss: loss.name)


def targets(loss: Loss) -> st.SearchStrategy[float]:
    if isinstance(loss, Ranking):
        return st.just(1.0)
    if isinstance(loss, Poisson):
        return st.just(0.0) | st.floats(1e-3, 50)
    return st.sampled_from([-1.0, 1.0]) if loss.classifies else st.floats(-5, 5)


def signs(n_classes: int, right: int) -> np.ndarray:
    """The targets of a row of class `right`."""
    return np.where(np.arange(n_classes) == right, 1.0, -1.0)


def compiled_slopes(loss: Loss, margins: np.ndarray, right: int) -> np.ndarray:
    """What the kernels make of (n_rows, n_classes) `margins` of rows of one class."""
    n_rows, n_classes = margins.shape
    slopes = np.full(margins.shape, np.nan)
    for row in range(n_rows):
        kernels._fill_coupled(
            loss.code,
            n_classes,
            np.zeros(n_classes, np.int64),
            np.arange(n_classes, dtype=float),
            np.full((n_rows, 1), float(right)),
            row,
            margins[row],
            slopes[row],
        )
    return slopes


def distance_from_kinks(loss: Loss, margin: float, target: float) -> float:
    """How far `margin` is from the nearest point where the slope is not smooth."""
    if isinstance(loss, Hinge | SquaredHinge | Ranking):
        return abs(target * margin - 1.0)
    if isinstance(loss, Absolute | Quantile):
        return abs(margin - target)
    if isinstance(loss, Poisson):
        return abs(margin - MAX_LOG_MEAN)
    if isinstance(loss, Huber):
        return abs(abs(margin - target) - loss.width)
    return np.inf


@each_loss
@given(data=st.data(), margin=st.floats(-30, 30))
def test_slope_is_the_derivative_of_value(loss, data, margin):
    target = data.draw(targets(loss))
    step = 1e-6 if isinstance(loss, Poisson) and margin > 10.0 else 1e-4
    if distance_from_kinks(loss, margin, target) <= step:
        margin += 3 * step
    around = loss.value(np.array([margin - step, margin + step]), np.array(target))
    numerical = (around[1] - around[0]) / (2 * step)
    assert loss.slope(np.array(margin), np.array(target)) == pytest.approx(
        numerical, rel=1e-5, abs=1e-7
    )


@each_coupled
@given(margins=st.lists(st.floats(-30, 30), min_size=2, max_size=5), right=st.integers(0, 4))
def test_slopes_over_classes_are_the_derivatives_of_value(loss, margins, right):
    margins = np.array(margins)
    target = signs(len(margins), right % len(margins))
    step = 1e-5
    if isinstance(loss, MulticlassHinge):
        # Far enough apart, and from a loss of 0, that no step of this size crosses a kink.
        margins = np.round(margins, 2) + 0.003 * np.arange(len(margins))
    slopes = loss.slope(margins, target)
    for k in range(len(margins)):
        change = step * (np.arange(len(margins)) == k)
        numerical = (
            loss.value(margins + change, target) - loss.value(margins - change, target)
        ) / (2 * step)
        assert slopes[k] == pytest.approx(numerical, rel=1e-5, abs=1e-5)


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
        margins, answers = np.array([-size, size, -size, size]), np.array([-1.0, -1.0, 1.0, 1.0])
        answers = np.maximum(answers, loss.label_range[0])
        slope = loss.slope(margins, answers)
        compiled = [
            compiled_slope(loss.code, kernel_parameter(loss), m, y)
            for m, y in zip(margins, answers, strict=True)
        ]
        assert np.isfinite(slope).all()
        np.testing.assert_allclose(compiled, slope, rtol=1e-14)
        if not isinstance(loss, Squared | SquaredHinge | Poisson) or size < 1e154:
            assert np.isfinite(loss.value(margins, answers)).all()


@each_coupled
@pytest.mark.parametrize("size", [1e4, 1e150, 1e300])
def test_nothing_overflows_over_classes(loss, size):
    margins = np.array([[size, -size, 0.0], [-size, -size, -size], [-size, size, size]])
    with np.errstate(over="raise", invalid="raise"):
        for right in range(3):
            target = np.tile(signs(3, right), (3, 1))
            assert np.isfinite(loss.value(margins, target)).all()
            assert np.isfinite(loss.slope(margins, target)).all()
            np.testing.assert_allclose(
                compiled_slopes(loss, margins, right), loss.slope(margins, target), rtol=1e-14
            )


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge()], ids=lambda loss: loss.name)
def test_slope_at_margin_one_is_zero(loss):
    for sign in (-1.0, 1.0):
        assert loss.slope(np.array(sign), np.array(sign)) == 0.0
        assert compiled_slope(loss.code, kernel_parameter(loss), sign, sign) == 0.0


def test_slope_of_absolute_at_the_target_is_zero():
    assert Absolute().slope(np.array(0.3), np.array(0.3)) == 0.0
    assert compiled_slope(Absolute.code, 0.0, 0.3, 0.3) == 0.0


@each_loss
@given(data=st.data(), margin=st.floats(-1e4, 1e4))
def test_compiled_slope_is_the_same(loss, data, margin):
    target = data.draw(targets(loss))
    expected = float(loss.slope(np.array(margin), np.array(target)))
    compiled = compiled_slope(loss.code, kernel_parameter(loss), margin, target)
    assert compiled == pytest.approx(expected, rel=1e-14, abs=1e-300)


@each_coupled
@given(margins=st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=5), right=st.integers(0, 4))
def test_compiled_slopes_over_classes_are_the_same(loss, margins, right):
    margins, right = np.array([margins]), right % len(margins)
    expected = loss.slope(margins, signs(margins.shape[1], right)[None])
    found = compiled_slopes(loss, margins, right)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-300)
    # What one class wins, the others lose.
    assert abs(found.sum()) <= 1e-12


@each_coupled
@given(seed=st.integers(0, 2**32 - 1))
def test_value_over_classes_is_convex_and_not_negative(loss, seed):
    rng = np.random.default_rng(seed)
    here, there = rng.normal(scale=3.0, size=(2, 6, 4))
    target = np.stack([signs(4, right) for right in rng.integers(0, 4, 6)])
    assert (loss.value(here, target) >= 0.0).all()
    tangent = loss.value(here, target) + (loss.slope(here, target) * (there - here)).sum(axis=1)
    assert (loss.value(there, target) >= tangent - 1e-9).all()


def test_multiclass_hinge_of_known_margins():
    margins = np.array([[0.0, 2.5, 1.0], [0.0, 2.5, 1.0], [0.0, 2.0, 1.0], [0.0, 0.0, 0.0]])
    target = np.stack([signs(3, right) for right in (0, 1, 1, 0)])
    np.testing.assert_array_equal(MulticlassHinge().value(margins, target), [3.5, 0.0, 0.0, 1.0])
    slopes = MulticlassHinge().slope(margins, target)
    # In the third row the loss is 0 exactly at its kink; in the fourth the first class wins.
    np.testing.assert_array_equal(slopes, [[-1, 1, 0], [0, 0, 0], [0, 0, 0], [-1, 1, 0]])
    for row, right in enumerate((0, 1, 1, 0)):
        np.testing.assert_array_equal(
            compiled_slopes(MulticlassHinge(), margins, right)[row], slopes[row]
        )


def test_softmax_of_known_margins():
    margins = np.log([[1.0, 2.0, 5.0]])
    target = signs(3, 1)[None]
    np.testing.assert_allclose(Softmax().value(margins, target), np.log([4.0]))
    np.testing.assert_allclose(Softmax().slope(margins, target), [[0.125, -0.75, 0.625]])


def test_softmax_over_two_classes_is_logistic():
    difference = np.linspace(-40, 40, 9)
    margins = np.stack([-0.5 * difference, 0.5 * difference], axis=1)
    logistic = LOSSES.make("logistic")
    np.testing.assert_allclose(
        Softmax().value(margins, np.tile(signs(2, 1), (9, 1))),
        logistic.value(difference, np.array(1.0)),
        rtol=1e-12, atol=1e-16,
    )  # fmt: skip
    np.testing.assert_allclose(
        Softmax().slope(margins, np.tile(signs(2, 1), (9, 1)))[:, 1],
        logistic.slope(difference, np.array(1.0)),
        rtol=1e-12,
    )


@each_coupled
def test_a_label_that_is_no_class_has_no_slope(loss):
    slopes = compiled_slopes(loss, np.array([[1.0, 2.0, 3.0]]), 7)
    np.testing.assert_array_equal(slopes, np.zeros((1, 3)))


def test_quantile_at_the_target_is_zero():
    assert Quantile(0.9).slope(np.array(0.3), np.array(0.3)) == 0.0
    assert compiled_slope(Quantile.code, 0.9, 0.3, 0.3) == 0.0


def test_the_least_mean_of_the_quantile_loss_is_at_the_quantile():
    targets = np.random.default_rng(0).exponential(size=2001)
    margins = np.sort(targets)
    means = Quantile(0.8).value(margins[:, None], targets).mean(axis=1)
    assert margins[means.argmin()] == np.quantile(targets, 0.8)


@given(mean=st.floats(1e-3, 1e3), target=st.just(0.0) | st.floats(1e-3, 1e3))
def test_poisson_is_half_the_deviance(mean, target):
    found = Poisson().value(np.log(np.array(mean)), np.array(target))
    ratio = target * np.log(target / mean) if target else 0.0
    assert found == pytest.approx(ratio - target + mean, rel=1e-9, abs=1e-9)


def test_poisson_goes_on_straight_where_the_exponential_is_capped():
    margins, target = np.array([30.0, 31.0, 1e4]), np.array(2.0)
    slopes = Poisson().slope(margins, target)
    np.testing.assert_array_equal(slopes, slopes[0])
    values = Poisson().value(margins, target)
    assert values[1] - values[0] == pytest.approx(slopes[0])
    assert (values[2] - values[0]) / (1e4 - 30.0) == pytest.approx(slopes[0])


def test_a_label_out_of_range_is_named():
    labels = np.array([[0.0], [3.0], [-1.5]])
    with pytest.raises(
        InputError, match=r"here: row 12 has label -1\.5; the poisson loss needs .* 0"
    ):
        check_targets(Poisson(), labels, "here", 10)
    check_targets(Squared(), labels, "here", 10)
    check_targets(Poisson(), labels[:2], "here", 10)


def test_codes_are_those_of_the_kernels():
    for name in LOSSES:
        if name != "ranking":
            constant = getattr(kernels, name.upper().replace("-", "_"))
            assert LOSSES[name].code == constant, name
    assert LOSSES["ranking"].code == kernels.HINGE
    assert len({loss.code for loss in EVERY}) == len(EVERY) - 1
    assert kernels.MAX_LOG_MEAN == MAX_LOG_MEAN


def test_known_values():
    assert Hinge().value(np.array(0.25), np.array(1.0)) == 0.75
    assert SquaredHinge().value(np.array(0.0), np.array(-1.0)) == 0.5
    assert LOSSES.make("logistic").value(np.array(0.0), np.array(1.0)) == pytest.approx(np.log(2))
    assert Squared().value(np.array(3.0), np.array(1.0)) == 2.0
    assert Absolute().value(np.array(3.0), np.array(1.0)) == 2.0
    huber = Huber(1.0).value(np.array([0.5, 3.0]), np.array(0.0))
    np.testing.assert_array_equal(huber, [0.125, 2.5])
