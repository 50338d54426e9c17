"""Balls and simplexes: the nearest point in the metric, inside, with exact zeros."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.prox_cases import (
    assert_no_point_is_better,
    draw_prox,
    l1_ball_violation,
    l2_ball_violation,
    simplex_violation,
    solve,
)
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.errors import InputError
from dadagrad.optim.regularizers import FloorSimplex, L1Ball, L2Ball, Simplex

seeds = st.integers(0, 2**32 - 1)
radii = st.sampled_from([1e-2, 0.5, 1.0, 5.0])


@given(radius=radii, seed=seeds)
def test_domains_agree_with_a_solver(radius, seed):
    center, curvature, scale = draw_prox(seed, n_features=4)
    cases = [
        (L1Ball(radius), {"l1_radius": radius}),
        (L2Ball(radius), {"l2_radius": radius}),
        (Simplex(radius), {"floor": 0.0, "total": radius}),
        (FloorSimplex(0.1), {"floor": 0.1, "total": 1.0}),
        (FloorSimplex(0.25), {"floor": 0.25, "total": 1.0}),
    ]
    for domain, parts in cases:
        found = domain.prox(center, curvature, scale)
        np.testing.assert_allclose(found, solve(center, curvature, **parts), atol=1e-6)


@given(radius=radii, seed=seeds, spread=st.sampled_from([0.0, 1.0, 4.0]))
def test_optimal_and_inside(radius, seed, spread):
    center, curvature, scale = draw_prox(seed, n_features=40, spread=spread)
    tolerance = 1e-9 * max(1.0, float(curvature.max()) / 1e2)
    weights = L1Ball(radius).prox(center, curvature, scale)
    assert np.abs(weights).sum() <= radius + 1e-9
    assert l1_ball_violation(weights, curvature * (center - weights), radius) <= tolerance
    weights = L2Ball(radius).prox(center, curvature, scale)
    assert np.linalg.norm(weights) <= radius + 1e-9
    assert l2_ball_violation(weights, curvature * (center - weights), radius) <= tolerance
    weights = Simplex(radius).prox(center, curvature, scale)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(radius, abs=1e-9)
    assert simplex_violation(weights, curvature * (center - weights)) <= tolerance
    weights = FloorSimplex(0.02).prox(center, curvature, scale)
    assert weights.min() >= 0.02
    assert weights.sum() == pytest.approx(1.0, abs=1e-9)
    above = np.where(weights > 0.02, weights, 0.0)
    assert simplex_violation(above, curvature * (center - weights)) <= tolerance


def into_simplex(weights, floor, total):
    above = np.abs(weights - floor)
    return floor + above / above.sum(axis=0) * (total - floor * len(weights))


@given(radius=radii, seed=seeds)
def test_no_random_point_is_closer(radius, seed):
    center, curvature, scale = draw_prox(seed, n_features=10)
    prox = center.reshape(5, 2), curvature.reshape(5, 2), scale
    assert_no_point_is_better(
        L1Ball(radius),
        prox,
        lambda w: w / np.maximum(np.abs(w).sum(axis=0) / radius, 1.0),
    )
    assert_no_point_is_better(
        L2Ball(radius),
        prox,
        lambda w: w / np.maximum(np.linalg.norm(w, axis=0) / radius, 1.0),
    )
    assert_no_point_is_better(Simplex(radius), prox, lambda w: into_simplex(w, 0.0, radius))
    assert_no_point_is_better(FloorSimplex(0.1), prox, lambda w: into_simplex(w, 0.1, 1.0))


@given(seed=seeds)
def test_the_prox_of_a_point_inside_is_that_point(seed):
    center, curvature, scale = draw_prox(seed, n_features=6)
    inside = center / (2 * np.abs(center).sum() + 1)
    np.testing.assert_array_equal(L1Ball(1.0).prox(inside, curvature, scale), inside)
    np.testing.assert_array_equal(L2Ball(1.0).prox(inside, curvature, scale), inside)
    inside = into_simplex(center, 0.05, 1.0)
    np.testing.assert_allclose(Simplex().prox(inside, curvature, scale), inside, atol=1e-14)
    np.testing.assert_allclose(
        FloorSimplex(0.05).prox(inside, curvature, scale), inside, atol=1e-14
    )


@pytest.mark.parametrize("excess", [1e-12, 1e-6, 5e-3])
def test_a_little_outside_comes_inside(excess):
    for ball, center in ((L1Ball(2.0), np.array([1.5, -0.5])), (L2Ball(2.5), np.array([1.5, 2]))):
        found = ball.prox(center * (1 + excess), np.array([1.0, 3.0]), 1.0)
        norm = np.linalg.norm(found, 1 if isinstance(ball, L1Ball) else 2)
        assert norm == pytest.approx(ball.radius, rel=1e-14)


def test_zeros_are_exact_and_ties_stay_ties():
    center = np.array([3.0, -3.0, 1.0, 0.0])
    np.testing.assert_array_equal(L1Ball(2.0).prox(center, 1.0, 1.0), [1.0, -1.0, 0.0, 0.0])
    np.testing.assert_array_equal(
        Simplex(2.0).prox(np.array([5.0, 5.0, 4.0]), 1.0, 1.0), [1.0, 1.0, 0.0]
    )
    found = FloorSimplex(0.25).prox(np.array([5.0, 0.0, -4.0]), 1.0, 1.0)
    np.testing.assert_array_equal(found, [0.5, 0.25, 0.25])
    np.testing.assert_array_equal(FloorSimplex(0.25).prox(np.arange(4.0), 1.0, 1.0), [0.25] * 4)


@pytest.mark.parametrize("ball", [L1Ball(0.7), L2Ball(0.7)])
@given(seed=seeds)
def test_in_a_ball_no_curvature_means_no_weight(ball, seed):
    center, curvature, scale = draw_prox(seed, n_features=6)
    curvature[[1, 4]] = 0.0
    found = ball.prox(center, curvature, scale)
    assert np.all(found[[1, 4]] == 0.0)
    known = curvature > 0
    alone = ball.prox(center[known], curvature[known], scale)
    np.testing.assert_array_equal(found[known], alone)
    np.testing.assert_array_equal(ball.prox(center, 0.0, scale), np.zeros(6))


@pytest.mark.parametrize("simplex", [Simplex(1.0), Simplex(5.0), FloorSimplex(0.1)])
@given(seed=seeds)
def test_in_a_simplex_no_curvature_is_the_limit_of_little(simplex, seed):
    center, curvature, scale = draw_prox(seed, n_features=6)
    curvature[[1, 4]] = 0.0
    found = simplex.prox(center, curvature, scale)
    assert simplex.value(found) == 0.0
    assert found[1] == found[4]
    little = np.where(curvature > 0, curvature, 1e-9)
    limit = simplex.prox(np.where(curvature > 0, center, 0.0), little, scale)
    np.testing.assert_allclose(found, limit, atol=1e-6)


def test_before_the_first_gradient_simplex_weights_are_equal():
    np.testing.assert_array_equal(Simplex(2.0).prox(np.zeros(4), 0.0, 1.0), [0.5] * 4)
    np.testing.assert_array_equal(FloorSimplex(0.1).prox(np.zeros(4), 0.0, 1.0), [0.25] * 4)


def test_what_one_feature_loses_goes_to_the_unknown_ones():
    center, curvature = np.array([-1.0, 9.0, 9.0]), np.array([1.0, 0.0, 0.0])
    np.testing.assert_array_equal(Simplex().prox(center, curvature, 1.0), [0.0, 0.5, 0.5])


@pytest.mark.parametrize("size", [1e6, 1e12, 1e17, 1e100])
@pytest.mark.parametrize("domain", [L1Ball(1.0), L2Ball(1.0), Simplex(), FloorSimplex(0.01)])
def test_far_centers_come_inside(domain, size):
    center = np.array([size, -size, 0.5 * size, 1.0])
    found = domain.prox(center, np.array([1.0, 2.0, 0.5, 1.0]), 1.0)
    assert domain.value(found) == 0.0
    assert np.any(found != 0)


def test_values():
    inside, outside = np.array([[0.5, -0.5], [0.5, 0.5]]), np.array([[0.5, -0.5], [0.5, 0.6]])
    assert L1Ball(1.0).value(inside) == 0
    assert L1Ball(1.0).value(outside) == np.inf
    assert L2Ball(0.75).value(inside) == 0
    assert L2Ball(0.75).value(outside) == np.inf
    assert Simplex().value(inside[:, 0]) == 0
    assert Simplex().value(inside) == np.inf
    assert Simplex().value(np.array([0.5, 0.6])) == np.inf
    assert FloorSimplex(0.4).value(np.array([0.4, 0.6])) == 0
    assert FloorSimplex(0.45).value(np.array([0.4, 0.6])) == np.inf


def test_what_they_say_of_themselves():
    for domain, stays in ((L1Ball(1), True), (L2Ball(1), True), (Simplex(), False)):
        assert (domain.couples, domain.zero_stays) == ("features", stays)
    assert not FloorSimplex(0.1).zero_stays


def test_the_floor_must_leave_room():
    with pytest.raises(InputError, match="floor must be a finite number of at least 0"):
        FloorSimplex(-0.1)
    with pytest.raises(InputError, match=r"3 weights of at least 0.4 sum to more than 1"):
        FloorSimplex(0.4).prox(np.ones(3), 1.0, 1.0)
