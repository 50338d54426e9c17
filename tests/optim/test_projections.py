"""Projections on the l1 ball and the simplexes: three ways to one nearest point."""

import numpy as np
import pytest
from helpers.update_cases import seeds
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.optim.projections import (
    entropic_floor_projection,
    project_l1_ball,
    shares,
    threshold,
    threshold_by_pivot,
    threshold_by_sorting,
)

sizes = st.integers(1, 60)
totals = st.sampled_from([1e-3, 0.5, 1.0, 20.0])
methods = pytest.mark.parametrize("method", ["sort", "pivot", "auto"])


def draw(seed, n):
    """A vector, often with ties and zeros, and weights."""
    rng = np.random.default_rng(seed)
    vector = rng.normal(size=n) * 3
    if rng.random() < 0.4:
        vector = np.round(vector)
    weights = 10.0 ** rng.uniform(-1, 1, n) if rng.random() < 0.7 else np.ones(n)
    return vector, weights


@given(seed=seeds, n=sizes, total=totals)
def test_sorting_and_pivots_find_the_root(seed, n, total):
    centers, slopes = draw(seed, n)
    for find in (threshold_by_sorting, threshold_by_pivot, threshold):
        theta = find(centers, slopes, total)
        reached = np.maximum(centers - theta * slopes, 0).sum()
        assert reached == pytest.approx(total, rel=1e-10, abs=1e-12 * np.abs(centers).sum())


@methods
@given(seed=seeds, n=sizes, radius=totals)
def test_ball_projection_is_optimal(method, seed, n, radius):
    """In the metric 1 / slopes: vector - w = theta slopes where w > 0, and less where it is 0."""
    vector, slopes = draw(seed, n)
    found = project_l1_ball(vector, slopes, radius, method)
    if np.abs(vector).sum() <= radius:
        np.testing.assert_array_equal(found, vector)
        return
    assert np.all(found * vector >= 0)
    assert np.abs(found).sum() == pytest.approx(radius, abs=1e-9)
    thetas = np.abs(vector - found) / slopes
    theta = thetas[found != 0].mean()
    np.testing.assert_allclose(thetas[found != 0], theta, rtol=0, atol=1e-9)
    assert np.all(thetas[found == 0] <= theta + 1e-9)


def test_large_vectors_take_pivots_and_agree_with_sorting():
    vector, slopes = draw(7, 50_000)
    found = project_l1_ball(vector, slopes, 30.0)
    by_sort = project_l1_ball(vector, slopes, 30.0, "sort")
    np.testing.assert_allclose(found, by_sort, atol=1e-13)
    np.testing.assert_array_equal(found == 0, by_sort == 0)


@pytest.mark.parametrize("size", [1e8, 1e16, 1e20, 1e150])
def test_a_total_that_is_lost_in_rounding_is_found_again(size):
    centers = np.array([size, size, 0.5 * size, -size])
    for method in ("sort", "pivot"):
        np.testing.assert_allclose(shares(centers, np.ones(4), 1.0, method), [0.5, 0.5, 0, 0])


@given(
    seed=seeds,
    n=st.integers(1, 40),
    fraction=st.sampled_from([0.0, 1e-3, 0.3, 0.9, 1.0]),
    spread=st.sampled_from([0.0, 0.3, 2.0, 10.0]),
)
def test_entropic_projection_is_optimal(seed, n, fraction, spread):
    """max(floor, u / Z): one Z for all above the floor, and u / Z below it for the others."""
    rng = np.random.default_rng(seed)
    weights = np.exp(spread * rng.normal(size=n))
    floor = fraction / n
    found = entropic_floor_projection(weights, floor)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.all(found >= floor)
    scales = weights / found
    above = found > floor * (1 + 1e-12)
    if above.any():
        np.testing.assert_allclose(scales[above], scales[above].mean(), rtol=1e-12)
        assert np.all(scales[~above] <= scales[above].mean() * (1 + 1e-12))


def test_entropic_projection_of_several_outputs_and_units():
    weights = np.array([[1.0, 5.0], [2.0, 1e-9], [7.0, 3.0], [1e-3, 2e-9]])
    together = entropic_floor_projection(weights, 0.1)
    for k in range(2):
        alone = entropic_floor_projection(weights[:, k] * 1e200, 0.1)
        np.testing.assert_allclose(together[:, k], alone, rtol=1e-14)


def test_entropic_projection_takes_zeros_to_the_floor():
    found = entropic_floor_projection(np.array([0.0, 0.0, 3.0, 1.0]), 0.1)
    np.testing.assert_allclose(found, [0.1, 0.1, 0.6, 0.2])
    np.testing.assert_array_equal(entropic_floor_projection(np.array([0.0, 2.0]), 0.0), [0.0, 1.0])
