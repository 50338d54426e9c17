"""The l2 and l-infinity norms, by output, by block and by row: minimisers with exact zeros."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.prox_cases import (
    assert_no_point_is_better,
    draw_prox,
    l2_violation,
    l_infinity_violation,
    solve,
    solve_l2_norm,
)
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.errors import InputError
from dadagrad.optim.regularizers import GroupL2, L2Norm, LInfinityNorm, MixedL2, MixedLInfinity

seeds = st.integers(0, 2**32 - 1)
strengths = st.sampled_from([1e-3, 0.1, 1.0, 10.0])
KINDS = {
    "l2-norm": L2Norm,
    "l-infinity": LInfinityNorm,
    "group": lambda strength: GroupL2(strength, (2, 1, 2)),
    "mixed-l2": MixedL2,
    "mixed-l-infinity": MixedLInfinity,
}
each_kind = pytest.mark.parametrize("kind", list(KINDS))


@given(strength=strengths, seed=seeds)
def test_l2_norm_agrees_with_a_solver(strength, seed):
    center, curvature, scale = draw_prox(seed, n_features=4)
    found = L2Norm(strength).prox(center, curvature, scale)
    solved = solve_l2_norm(center, curvature, scale * strength)
    np.testing.assert_allclose(found, solved, atol=1e-6)


@given(strength=strengths, seed=seeds)
def test_l_infinity_norm_agrees_with_a_solver(strength, seed):
    center, curvature, scale = draw_prox(seed, n_features=4)
    found = LInfinityNorm(strength).prox(center, curvature, scale)
    solved = solve(center, curvature, level=scale * strength)
    np.testing.assert_allclose(found, solved, atol=1e-6)


@given(strength=strengths, seed=seeds, spread=st.sampled_from([0.0, 1.0, 4.0]))
def test_optimality_violation_is_nothing(strength, seed, spread):
    center, curvature, scale = draw_prox(seed, n_features=40, spread=spread)
    size = max(1.0, scale * strength, float(np.abs(curvature * center).max()))
    for norm, violation in ((L2Norm, l2_violation), (LInfinityNorm, l_infinity_violation)):
        weights = norm(strength).prox(center, curvature, scale)
        pull = curvature * (center - weights)
        assert violation(weights, pull, scale * strength) <= 1e-9 * max(1.0, size / 1e4)


@given(strength=strengths, seed=seeds)
def test_rows_and_blocks_are_norms_of_their_own(strength, seed):
    prox = draw_prox(seed, n_features=30)
    center, curvature, scale = prox[0].reshape(10, 3), prox[1].reshape(10, 3), prox[2]
    for mixed, plain in ((MixedL2, L2Norm), (MixedLInfinity, LInfinityNorm)):
        found = mixed(strength).prox(center, curvature, scale)
        for i in range(10):
            alone = plain(strength).prox(center[i], curvature[i], scale)
            np.testing.assert_allclose(found[i], alone, rtol=1e-12, atol=1e-13)
            np.testing.assert_array_equal(found[i] == 0, alone == 0)
    for blocks, cuts in ((4, [4, 8]), ((1, 7, 2), [1, 8])):
        found = GroupL2(strength, blocks).prox(center, curvature, scale)
        pieces = zip(np.split(center, cuts), np.split(curvature, cuts), strict=True)
        alone = np.concatenate([L2Norm(strength).prox(*piece, scale) for piece in pieces])
        np.testing.assert_array_equal(found, alone)


@each_kind
@given(strength=strengths, seed=seeds)
def test_no_random_point_is_better(kind, strength, seed):
    prox = draw_prox(seed, n_features=10)
    shaped = prox[0].reshape(5, 2), prox[1].reshape(5, 2), prox[2]
    assert_no_point_is_better(KINDS[kind](strength), shaped)


@each_kind
@given(seed=seeds)
def test_outputs_are_apart_unless_rows_couple(kind, seed):
    """Each output's prox is that of a plain vector, except for norms of rows."""
    center, curvature, scale = draw_prox(seed, n_features=10)
    center, curvature = center.reshape(5, 2), curvature.reshape(5, 2)
    regularizer = KINDS[kind](0.3)
    together = regularizer.prox(center, curvature, scale)
    apart = [regularizer.prox(center[:, k], curvature[:, k], scale) for k in range(2)]
    if regularizer.couples == "features":
        np.testing.assert_array_equal(together, np.stack(apart, axis=1))
        assert regularizer.value(together) == pytest.approx(sum(map(regularizer.value, apart)))
    else:
        assert regularizer.couples == "outputs"
        rows = [regularizer.prox(center[i : i + 1], curvature[i : i + 1], scale) for i in range(5)]
        np.testing.assert_array_equal(together, np.concatenate(rows))


@pytest.mark.parametrize("curvature", [np.array([1.0, 1.0]), 1.0, np.array([0.5, 2.0])])
def test_l2_norm_is_zero_exactly_at_its_bound(curvature):
    center = np.array([3.0, -4.0]) / curvature
    np.testing.assert_array_equal(L2Norm(2.5).prox(center, curvature, 2.0), [0.0, 0.0])
    assert np.all(L2Norm(2.5).prox(center, curvature, 2.0 * (1 - 1e-15)) != 0.0)


def test_l_infinity_norm_is_zero_exactly_at_its_bound():
    center = np.array([3.0, -4.0])
    np.testing.assert_array_equal(LInfinityNorm(7.0).prox(center, 1.0, 1.0), [0.0, 0.0])
    np.testing.assert_array_equal(LInfinityNorm(6.0).prox(center, 1.0, 1.0), [0.5, -0.5])
    np.testing.assert_array_equal(LInfinityNorm(0.5).prox(center, 1.0, 1.0), [3.0, -3.5])


def test_l2_norm_shrinks_by_its_strength_where_curvature_is_equal():
    found = L2Norm(2.5).prox(np.array([3.0, -4.0]), 1.0, 1.0)
    np.testing.assert_allclose(found, [1.5, -2.0], rtol=1e-15)


@each_kind
@given(seed=seeds)
def test_without_curvature_the_weight_is_zero_and_counts_for_nothing(kind, seed):
    center, curvature, scale = draw_prox(seed, n_features=10)
    center, curvature = center.reshape(5, 2), curvature.reshape(5, 2)
    curvature[1:3, 0] = 0.0
    regularizer = KINDS[kind](0.1)
    found = regularizer.prox(center, curvature, scale)
    assert np.all(found[1:3, 0] == 0.0)
    center[1:3, 0] = 0.0
    np.testing.assert_array_equal(found, regularizer.prox(center, curvature, scale))
    np.testing.assert_array_equal(regularizer.prox(center, 0.0, scale), np.zeros((5, 2)))


@each_kind
@given(seed=seeds)
def test_without_strength_or_scale_the_center_stays(kind, seed):
    center, curvature, scale = draw_prox(seed, n_features=5)
    np.testing.assert_allclose(KINDS[kind](0.0).prox(center, curvature, scale), center)
    np.testing.assert_allclose(KINDS[kind](1.0).prox(center, curvature, 0.0), center)


@each_kind
@given(seed=seeds)
def test_a_zero_center_stays_zero_and_signs_are_kept(kind, seed):
    center, curvature, scale = draw_prox(seed, n_features=5)
    found = KINDS[kind](0.1).prox(center, curvature, scale)
    assert KINDS[kind](0.1).zero_stays
    assert np.all(found[center == 0] == 0)
    assert np.all(found * center >= 0)


@each_kind
@pytest.mark.parametrize("size", [1e-150, 1e-30, 1e30, 1e150])
def test_units_do_not_matter(kind, size):
    """The prox of size * center with size * strength is size times the prox."""
    center, curvature, scale = draw_prox(3, n_features=5)
    found = KINDS[kind](0.4).prox(center, curvature, scale)
    larger = KINDS[kind](0.4 * size).prox(center * size, curvature, scale)
    np.testing.assert_allclose(larger / size, found, rtol=1e-10)
    np.testing.assert_array_equal(larger == 0, found == 0)


def test_steep_ladders_of_curvature_converge():
    """Curvatures over 24 decades, each with a say at another shift."""
    curvature = 10.0 ** np.arange(-12, 13)
    for power in (0.0, 0.5, 1.0, 1.5):
        center = curvature**-power
        for fraction in (1e-9, 1e-3, 0.5, 1 - 1e-9):
            strength = fraction * float(np.linalg.norm(curvature * center))
            weights = L2Norm(strength).prox(center, curvature, 1.0)
            pull = curvature * (center - weights)
            alpha = strength * weights / np.linalg.norm(weights)
            size = np.abs(curvature * center) + alpha
            assert np.all(np.abs(pull - alpha) <= 1e-12 * np.maximum(size, strength))


def test_a_long_vector_keeps_its_digits():
    rng = np.random.default_rng(0)
    center, curvature = rng.normal(size=300_000), 10.0 ** rng.uniform(-2, 2, 300_000)
    for norm, violation in ((L2Norm, l2_violation), (LInfinityNorm, l_infinity_violation)):
        weights = norm(100.0).prox(center, curvature, 1.0)
        assert violation(weights, curvature * (center - weights), 100.0) <= 1e-9


def test_values():
    weights = np.array([[3.0, 0.0], [-4.0, 2.0], [0.0, 0.0]])
    assert L2Norm(2.0).value(weights) == 2 * (5 + 2)
    assert LInfinityNorm(2.0).value(weights) == 2 * (4 + 2)
    assert GroupL2(2.0, 1).value(weights) == 2 * (3 + 4 + 2)
    assert GroupL2(2.0, (2, 1)).value(weights) == 2 * (5 + 2)
    assert MixedL2(2.0).value(weights) == pytest.approx(2 * (3 + np.sqrt(20)))
    assert MixedLInfinity(2.0).value(weights) == 2 * (3 + 4)
    assert MixedL2(2.0).value(weights[:, 0]) == 2 * 7


def test_blocks_must_cover_the_features():
    with pytest.raises(InputError, match="the blocks have 5 features together, but there are 4"):
        GroupL2(1.0, (2, 3)).prox(np.ones(4), 1.0, 1.0)
