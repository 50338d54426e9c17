"""Losses: slopes are derivatives, nothing overflows, and the kernels use the same formulas."""

import numpy as np
import pytest
from helpers.objects import compiled_mean_slope, compiled_slope, example, kernel_parameter
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad import InputError
from dadagrad.kernels import training as kernels
from dadagrad.optim.losses import (
    LOSSES,
    Absolute,
    Hinge,
    MulticlassHinge,
    Poisson,
    Quantile,
    Ranking,
    Softmax,
    Squared,
    SquaredHinge,
    check_targets,
)

EVERY = [example(LOSSES, name) for name in LOSSES]
losses = st.sampled_from(EVERY)
losses_of_one_score = st.sampled_from([loss for loss in EVERY if not loss.couples])
CLASSES = 4
Scored = tuple[np.ndarray, np.ndarray]


def scored(loss, data, size=10.0):
    """Scores and labels of six rows; (6, CLASSES) of a loss that couples classes."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    shape = (6, CLASSES) if loss.couples else (6,)
    scores = rng.uniform(-size, size, shape)
    if data.draw(st.booleans()):
        scores = np.round(scores)  # with ties, and at kinks
    if loss.couples:
        return scores, signs(rng.integers(0, CLASSES, 6))
    if loss.ranks:
        return scores, np.ones(6)
    if loss.classifies:
        return scores, rng.choice([-1.0, 1.0], 6)
    return scores, np.maximum(np.round(rng.uniform(-5, 50, 6), 1), loss.label_range[0])


def signs(right, n_classes=CLASSES):
    """The labels of rows of the classes `right`."""
    return np.where(np.arange(n_classes) == np.asarray(right)[..., None], 1.0, -1.0)


def compiled_slopes(loss, scores, labels):
    """The slopes as the kernels compute them, row by row."""
    slopes = np.full(scores.shape, np.nan)
    if not loss.couples:
        for row, (score, label) in enumerate(zip(scores, labels, strict=True)):
            slopes[row] = compiled_slope(loss.code, kernel_parameter(loss), score, label)
        return slopes
    n_rows, n_classes = scores.shape
    columns, classes = np.zeros(n_classes, np.int64), np.arange(n_classes, dtype=float)
    right = np.where((labels > 0).any(axis=1), labels.argmax(axis=1), 7.0)[:, None]
    for row in range(n_rows):
        of_row = row, scores[row], slopes[row]
        kernels._fill_coupled(loss.code, n_classes, columns, classes, right, *of_row)
    return slopes


@given(loss=losses, data=st.data())
@settings(max_examples=200)
def test_slope_is_the_derivative_of_value(loss, data):
    """Between one-sided differences of the value: they enclose the slope also at a kink."""
    scores, labels = scored(loss, data)
    slopes, here, step = loss.slope(scores, labels), loss.value(scores, labels), 1e-6
    for k in range(scores.shape[1] if loss.couples else 1):
        change = np.zeros(scores.shape)
        change[..., k if loss.couples else slice(None)] = step
        below = (here - loss.value(scores - change, labels)) / step
        above = (loss.value(scores + change, labels) - here) / step
        slope = slopes[:, k] if loss.couples else slopes
        slack = 1e-6 * (1.0 + np.abs(slope)) + 1e-14 * np.abs(here) / step
        assert (below - slack <= slope).all()
        assert (slope <= above + slack).all()


@given(loss=losses, data=st.data())
@settings(max_examples=200)
def test_value_is_convex_and_not_negative(loss, data):
    here, labels = scored(loss, data)
    there = here + np.random.default_rng(0).normal(scale=3.0, size=here.shape)
    rise = loss.slope(here, labels) * (there - here)
    tangent = loss.value(here, labels) + (rise.sum(axis=-1) if loss.couples else rise)
    assert (loss.value(here, labels) >= 0.0).all()
    assert (loss.value(there, labels) >= tangent - 1e-9 * (1 + np.abs(tangent))).all()


@given(loss=losses, data=st.data(), size=st.sampled_from([3.0, 1e4]))
@settings(max_examples=200)
def test_compiled_slope_is_the_same(loss, data, size):
    scores, labels = scored(loss, data, size)
    found, expected = compiled_slopes(loss, scores, labels), loss.slope(scores, labels)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-300)
    if loss.couples:  # what one class wins, the others lose
        assert np.abs(found.sum(axis=1)).max() <= 1e-12


@given(
    loss=losses_of_one_score, data=st.data(), pace=st.floats(1e-3, 1e3), share=st.floats(0.01, 0.99)
)
@settings(max_examples=180)
def test_a_step_is_the_flow_along_the_slope(loss, data, pace, share):
    """It begins with the slope, and two steps are the one of both: a row of weight h is h rows."""
    scores, labels = scored(loss, data)

    def after(start, share):
        return start - share * pace * loss.mean_slope(start, labels, share * pace)

    end, halfway = after(scores, 1.0), after(scores, share)
    size = 1e-9 * (1.0 + np.abs(scores) + np.abs(labels))
    assert (np.abs(after(halfway, 1.0 - share) - end) <= size).all()
    short = loss.mean_slope(scores, labels, 1e-10)
    np.testing.assert_allclose(short, loss.slope(scores, labels), rtol=1e-4, atol=1e-6)


@given(
    loss=losses_of_one_score, data=st.data(), pace=st.sampled_from([1e-6, 0.1, 0.5, 1.0, 30.0, 1e9])
)
@settings(max_examples=180)
def test_no_step_passes_the_target_and_the_kernels_take_the_same(loss, data, pace):
    scores, labels = scored(loss, data, 3.0)
    means = loss.mean_slope(scores, labels, pace)
    ends = scores - pace * means
    turned = loss.slope(scores, labels) * loss.slope(ends, labels) < 0.0
    assert (loss.value(ends, labels)[turned] <= 1e-9).all()
    assert (loss.value(ends, labels) <= loss.value(scores, labels) + 1e-9).all()
    parameter = kernel_parameter(loss)
    pairs = zip(scores, labels, strict=True)
    found = [compiled_mean_slope(loss.code, parameter, *pair, pace) for pair in pairs]
    np.testing.assert_allclose(found, means, rtol=1e-9, atol=1e-12)


@given(loss=losses, size=st.sampled_from([1e4, 1e150, 1e300]))
@settings(max_examples=60)
def test_nothing_overflows(loss, size):
    scores, labels = np.array([-size, size, -size, size]), np.array([-1.0, -1.0, 1.0, 1.0])
    labels = np.maximum(labels, loss.label_range[0])
    if loss.couples:
        rows = [[size, -size, 0.0], [-size, -size, -size], [-size, size, size]]
        scores, labels = np.tile(rows, (3, 1)), signs(np.repeat(np.arange(3), 3), 3)
    with np.errstate(over="raise", invalid="raise"):
        slope = loss.slope(scores, labels)
        assert np.isfinite(slope).all()
        np.testing.assert_allclose(compiled_slopes(loss, scores, labels), slope, rtol=1e-14)
        if not isinstance(loss, Squared | SquaredHinge | Poisson) or size < 1e154:
            assert np.isfinite(loss.value(scores, labels)).all()


def test_slope_at_a_kink_is_zero():
    for loss, score, label in (
        *((kind(), label, label) for kind in (Hinge, SquaredHinge) for label in (-1.0, 1.0)),
        (Ranking(), 1.0, 1.0),
        (Absolute(), 0.3, 0.3),
        (Quantile(0.9), 0.3, 0.3),
    ):
        assert loss.slope(np.array(score), np.array(label)) == 0.0
        assert compiled_slope(loss.code, kernel_parameter(loss), score, label) == 0.0


def test_multiclass_hinge_of_known_scores():
    scores = np.array([[0.0, 2.5, 1.0], [0.0, 2.5, 1.0], [0.0, 2.0, 1.0], [0.0, 0.0, 0.0]])
    labels = signs(np.array([0, 1, 1, 0]), 3)
    np.testing.assert_array_equal(MulticlassHinge().value(scores, labels), [3.5, 0.0, 0.0, 1.0])
    # In the third row the loss is 0 exactly at its kink; in the fourth the first class wins.
    expected = [[-1, 1, 0], [0, 0, 0], [0, 0, 0], [-1, 1, 0]]
    for slopes in (
        MulticlassHinge().slope(scores, labels),
        compiled_slopes(MulticlassHinge(), scores, labels),
    ):
        np.testing.assert_array_equal(slopes, expected)


def test_a_label_that_is_no_class_has_no_slope():
    for loss in (Softmax(), MulticlassHinge()):
        slopes = compiled_slopes(loss, np.array([[1.0, 2.0, 3.0]]), -np.ones((1, 3)))
        np.testing.assert_array_equal(slopes, np.zeros((1, 3)))


@given(losses.filter(lambda loss: loss.center(np.zeros((1, 1)), np.zeros(1))), st.data())
def test_a_centered_label_has_the_loss_of_a_score_less_its_center(loss, data):
    scores, labels = scored(loss, data)
    center = np.array([data.draw(st.floats(-5, 5))])
    centered, (factor,) = loss.center(labels[:, None], center)
    values = factor * loss.value(scores - center, centered[:, 0])
    np.testing.assert_allclose(values, loss.value(scores, labels), rtol=1e-9, atol=1e-9)


def test_poisson_goes_on_straight_where_the_exponential_is_capped():
    scores, label = np.array([30.0, 31.0, 1e4]), np.array(2.0)
    slopes = Poisson().slope(scores, label)
    np.testing.assert_array_equal(slopes, slopes[0])
    values = Poisson().value(scores, label)
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
