"""l1 and squared l2 on top of every other regularizer."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.prox_cases import assert_no_point_is_better, draw_prox, l2_violation, solve
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.optim.regularizers import (
    ElasticBox,
    FloorSimplex,
    GroupL2,
    L1Ball,
    L2Ball,
    L2Norm,
    LInfinityNorm,
    MixedL2,
    MixedLInfinity,
    Simplex,
    WithElasticNet,
)

seeds = st.integers(0, 2**32 - 1)
l1s = st.sampled_from([0.0, 0.01, 0.3])
l2s = st.sampled_from([0.0, 0.1, 2.0])


@given(l1=l1s, l2=l2s, seed=seeds)
def test_agrees_with_a_solver(l1, l2, seed):
    center, curvature, scale = draw_prox(seed, n_features=4)
    parts = {"l1": scale * l1, "square": scale * l2}
    cases = [
        (LInfinityNorm(0.2), {"level": 0.2 * scale}),
        (L1Ball(0.8), {"l1_radius": 0.8}),
        (L2Ball(0.8), {"l2_radius": 0.8}),
        (Simplex(), {"floor": 0.0, "total": 1.0}),
        (FloorSimplex(0.1), {"floor": 0.1, "total": 1.0}),
    ]
    for inner, more in cases:
        found = WithElasticNet(inner, l1, l2).prox(center, curvature, scale)
        np.testing.assert_allclose(found, solve(center, curvature, **parts, **more), atol=1e-6)


@given(l1=l1s, l2=l2s, seed=seeds)
def test_with_the_l2_norm_it_is_optimal(l1, l2, seed):
    center, curvature, scale = draw_prox(seed, n_features=6)
    weights = WithElasticNet(L2Norm(0.3), l1, l2).prox(center, curvature, scale)
    pull = curvature * (center - weights) - scale * l2 * weights
    # What l1 can take of the pull: all of its strength on a weight, up to it on a zero.
    taken = np.where(
        weights != 0, scale * l1 * np.sign(weights), np.clip(pull, -scale * l1, scale * l1)
    )
    assert l2_violation(weights, pull - taken, scale * 0.3) <= 1e-9


@pytest.mark.parametrize(
    "inner",
    [
        L2Norm(0.3),
        LInfinityNorm(0.3),
        GroupL2(0.3, 2),
        MixedL2(0.3),
        MixedLInfinity(0.3),
        ElasticBox(l1=0.1, low=-0.5),
    ],
    ids=lambda inner: type(inner).__name__,
)
@given(l1=l1s, l2=l2s, seed=seeds)
def test_no_random_point_is_better(inner, l1, l2, seed):
    center, curvature, scale = draw_prox(seed, n_features=10)
    into = (lambda w: np.maximum(w, -0.5)) if isinstance(inner, ElasticBox) else (lambda w: w)
    prox = center.reshape(5, 2), curvature.reshape(5, 2), scale
    assert_no_point_is_better(WithElasticNet(inner, l1, l2), prox, into)


@given(seed=seeds)
def test_on_a_simplex_l1_changes_nothing(seed):
    prox = draw_prox(seed, n_features=6)
    for simplex in (Simplex(2.0), FloorSimplex(0.05)):
        found = WithElasticNet(simplex, l1=3.0).prox(*prox)
        np.testing.assert_array_equal(found, simplex.prox(*prox))
        # Because it is a constant there:
        total = np.abs(found).sum()
        assert WithElasticNet(simplex, l1=3.0).value(found) == pytest.approx(3.0 * total)
        assert total == pytest.approx(2.0 if isinstance(simplex, Simplex) else 1.0)


def test_without_curvature_the_weight_is_zero():
    for inner in (L2Norm(0.1), MixedL2(0.1), LInfinityNorm(0.1), L1Ball(5.0)):
        found = WithElasticNet(inner, 0.1, 0.1).prox(
            np.array([7.0, 2.0]), np.array([0.0, 2.0]), 1.0
        )
        assert found[0] == 0.0
        assert found[1] > 0.0


def test_it_takes_after_its_inner():
    assert WithElasticNet(MixedL2(1.0), 1.0).couples == "outputs"
    assert WithElasticNet(MixedL2(1.0), 1.0).zero_stays
    assert not WithElasticNet(Simplex(), 1.0).zero_stays


def test_value_adds_up():
    assert WithElasticNet(L2Norm(1.0), 2.0, 4.0).value(np.array([3.0, -4.0])) == 5 + 14 + 50
    assert WithElasticNet(L1Ball(1.0), 2.0).value(np.array([3.0])) == np.inf
