"""The prox of the elastic net in a box: it is the minimiser, and its zeros are zeros."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from dadagrad.errors import InputError
from dadagrad.optim.regularizers import ElasticBox

strengths = st.sampled_from([0.0, 1e-3, 0.1, 1.0])
boxes = st.sampled_from([(-np.inf, np.inf), (-0.5, 0.5), (0.0, np.inf), (-2.0, 0.1), (0.0, 0.0)])
seeds = st.integers(0, 2**32 - 1)


def draw_prox(seed: int, n_features: int = 6) -> tuple[np.ndarray, np.ndarray, float]:
    """A center, a curvature between 0.1 and 10, and a scale."""
    rng = np.random.default_rng(seed)
    center = rng.normal(size=n_features) * 2
    curvature = 10.0 ** rng.uniform(-1, 1, n_features)
    return center, curvature, float(10.0 ** rng.uniform(-2, 1))


def objective(
    regularizer: ElasticBox, weights: np.ndarray, prox: tuple[np.ndarray, np.ndarray, float]
) -> float:
    center, curvature, scale = prox
    distance = 0.5 * float(np.sum(curvature * np.square(weights - center)))
    return scale * regularizer.value(weights) + distance


@given(l1=strengths, l2=strengths, box=boxes, seed=seeds)
def test_prox_agrees_with_a_solver(l1, l2, box, seed):
    regularizer = ElasticBox(l1, l2, *box)
    center, curvature, scale = prox = draw_prox(seed, n_features=3)
    found = regularizer.prox(*prox)
    for i in range(3):
        # A bounded scalar search on each side of the kink at 0, which knows nothing of prox.
        def along(weight: float, i: int = i) -> float:
            penalty = l1 * abs(weight) + 0.5 * l2 * weight**2
            return float(scale * penalty + 0.5 * curvature[i] * (weight - center[i]) ** 2)

        sides = [(max(box[0], -9.0), 0.0), (0.0, min(box[1], 9.0))]
        solutions = [
            minimize_scalar(along, bounds=side, method="bounded", options={"xatol": 1e-9}).x
            for side in sides
            if side[0] < side[1]
        ]
        best = min([*solutions, 0.0], key=along)
        assert found[i] == pytest.approx(best, abs=1e-6)


@given(l1=strengths, l2=strengths, box=boxes, seed=seeds)
def test_optimality_violation_is_nothing(l1, l2, box, seed):
    """0 is in the subdifferential of the objective plus the normal cone of the box."""
    regularizer = ElasticBox(l1, l2, *box)
    center, curvature, scale = prox = draw_prox(seed)
    weights = regularizer.prox(*prox)
    smooth = curvature * (weights - center) + scale * l2 * weights
    at_zero = weights == 0.0
    lower = smooth + scale * l1 * np.where(at_zero, -1.0, np.sign(weights))
    upper = smooth + scale * l1 * np.where(at_zero, 1.0, np.sign(weights))
    lower = np.where(weights == box[0], -np.inf, lower)
    upper = np.where(weights == box[1], np.inf, upper)
    violation = np.maximum(np.maximum(lower, -upper), 0.0)
    assert violation.max() <= 1e-9


@given(l1=strengths, l2=strengths, box=boxes, seed=seeds)
def test_no_random_point_is_better(l1, l2, box, seed):
    regularizer = ElasticBox(l1, l2, *box)
    prox = draw_prox(seed)
    weights = regularizer.prox(*prox)
    best = objective(regularizer, weights, prox)
    assert np.isfinite(best)
    rng = np.random.default_rng(seed)
    for width in (1e-3, 0.1, 2.0):
        for _ in range(20):
            other = np.clip(weights + width * rng.normal(size=len(weights)), *box)
            assert objective(regularizer, other, prox) >= best - 1e-12


def test_zeros_are_exact():
    center = np.array([0.5, -0.5, 0.999, 3.0])
    weights = ElasticBox(l1=1.0).prox(center, np.ones(4), 1.0)
    np.testing.assert_array_equal(weights, [0.0, 0.0, 0.0, 2.0])


def test_without_curvature_the_weight_is_zero():
    weights = ElasticBox().prox(np.array([7.0, 7.0]), np.array([0.0, 2.0]), 1.0)
    np.testing.assert_array_equal(weights, [0.0, 7.0])


def test_value_is_infinite_outside_the_box():
    regularizer = ElasticBox(l1=2.0, l2=4.0, low=-1.0, high=1.0)
    assert regularizer.value(np.array([0.5, -0.5])) == 2.0 * 1.0 + 2.0 * 0.5
    assert regularizer.value(np.array([1.5, 0.0])) == np.inf
    assert regularizer.value(np.array([-1.5, 0.0])) == np.inf


@pytest.mark.parametrize("box", [(0.1, 1.0), (-1.0, -0.1), (np.nan, 1.0), (-1.0, np.nan)])
def test_the_box_must_contain_zero(box):
    with pytest.raises(InputError, match="does not contain 0"):
        ElasticBox(low=box[0], high=box[1])
