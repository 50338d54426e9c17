"""Every regularizer and domain: the prox is the minimiser, and its zeros are zeros."""

import numpy as np
import pytest
from helpers.objects import example
from helpers.prox_cases import draw_prox, violation
from helpers.update_cases import seeds
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad import InputError
from dadagrad.optim.regularizers import (
    REGULARIZERS,
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
    kernels,
)
from dadagrad.optim.regularizers.base import MIN_CURVATURE

BUILT_IN = [example(REGULARIZERS, name) for name in REGULARIZERS]
PLAIN = [
    *BUILT_IN,
    ElasticBox(),
    ElasticBox(1.0, low=0.0),
    ElasticBox(low=0.0, high=0.0),
    *(kind(strength) for kind in (L2Norm, LInfinityNorm, MixedL2) for strength in (1e-3, 1.0)),
    MixedLInfinity(1.0),
    GroupL2(1.0, (3, 1, 4)),
    *(kind(radius) for kind in (L1Ball, L2Ball, Simplex) for radius in (1e-2, 5.0)),
    FloorSimplex(0.1),
    FloorSimplex(1 / 8),
]
ALL = [
    *PLAIN,
    *(WithElasticNet(inner, l1, l2) for inner in BUILT_IN for l1, l2 in ((0.3, 0.0), (0.01, 2.0))),
]
NORMS = [each for each in BUILT_IN if hasattr(each, "strength")]
DOMAINS = [each for each in BUILT_IN if each.couples == "features" and each not in NORMS]
regularizers = st.sampled_from(ALL)


def with_strength(norm, strength):
    return GroupL2(strength, 3) if isinstance(norm, GroupL2) else type(norm)(strength)


@given(regularizer=regularizers, seed=seeds, spread=st.sampled_from([0.0, 1.0, 4.0]))
@settings(max_examples=500)
def test_the_pull_of_the_center_is_a_subgradient(regularizer, seed, spread):
    """H (c - w) / scale is in the subdifferential of phi at w: this alone makes w the minimiser."""
    center, curvature, scale = draw_prox(seed, spread=spread)
    weights = regularizer.prox(center, curvature, scale)
    pull = curvature * (center - weights) / scale
    size = max(1.0, float(np.abs(curvature * center).max()) / scale)
    assert violation(regularizer, weights, pull) <= 1e-9 * max(1.0, size / 1e2)


@given(regularizer=regularizers, seed=seeds)
@settings(max_examples=300)
def test_weights_that_are_not_coupled_are_solved_alone(regularizer, seed):
    center, curvature, scale = draw_prox(seed)
    together = regularizer.prox(center, curvature, scale)
    if regularizer.couples != "outputs":
        apart = [regularizer.prox(center[:, k], curvature[:, k], scale) for k in range(2)]
        np.testing.assert_array_equal(together, np.stack(apart, axis=1))
        whole = regularizer.value(together)
        assert whole == pytest.approx(sum(map(regularizer.value, apart)))
    if regularizer.couples != "features":
        rows = [regularizer.prox(center[i : i + 1], curvature[i : i + 1], scale) for i in range(8)]
        np.testing.assert_array_equal(together, np.concatenate(rows))


@given(regularizer=regularizers, seed=seeds)
@settings(max_examples=300)
def test_zeros_and_signs_stay_where_that_is_promised(regularizer, seed):
    center, curvature, scale = draw_prox(seed)
    found = regularizer.prox(center, curvature, scale)
    if regularizer.zero_stays:
        assert np.all(found[center == 0] == 0)
        assert np.all(found * center >= 0)


@given(regularizer=regularizers, seed=seeds)
@settings(max_examples=300)
def test_a_weight_without_curvature_counts_for_nothing(regularizer, seed):
    """It is 0, but on a simplex, where it is the limit of a vanishing curvature around 0."""
    center, curvature, scale = draw_prox(seed)
    curvature[[1, 4], 0] = 0.0
    found = regularizer.prox(center, curvature, scale)
    center[[1, 4], 0] = 0.0
    np.testing.assert_array_equal(regularizer.prox(center, curvature, scale), found)
    if regularizer.zero_stays:
        assert not found[[1, 4], 0].any()
        assert not regularizer.prox(center, 0.0, scale).any()
    else:
        limit = regularizer.prox(center, np.maximum(curvature, 1e-9), scale)
        np.testing.assert_allclose(found, limit, atol=1e-6)


@given(norm=st.sampled_from(NORMS), size=st.sampled_from([1e-150, 1e-30, 1e30, 1e150]))
@settings(max_examples=60)
def test_units_do_not_matter(norm, size):
    """The prox of size * center with size * strength is size times the prox."""
    center, curvature, scale = draw_prox(3)
    found = with_strength(norm, 0.4).prox(center, curvature, scale)
    larger = with_strength(norm, 0.4 * size).prox(center * size, curvature, scale)
    np.testing.assert_allclose(larger / size, found, rtol=1e-10)
    np.testing.assert_array_equal(larger == 0, found == 0)


@given(domain=st.sampled_from(DOMAINS), size=st.sampled_from([1e6, 1e12, 1e17, 1e100]))
@settings(max_examples=60)
def test_far_centers_come_inside(domain, size):
    center = np.array([size, -size, 0.5 * size, 1.0])
    found = domain.prox(center, np.array([1.0, 2.0, 0.5, 1.0]), 1.0)
    assert domain.value(found) == 0.0
    assert np.any(found != 0)


@given(excess=st.sampled_from([1e-12, 1e-6, 5e-3]))
def test_a_little_outside_a_ball_comes_inside(excess):
    for ball, center in ((L1Ball(2.0), np.array([1.5, -0.5])), (L2Ball(2.5), np.array([1.5, 2]))):
        found = ball.prox(center * (1 + excess), np.array([1.0, 3.0]), 1.0)
        norm = np.linalg.norm(found, 1 if isinstance(ball, L1Ball) else 2)
        assert norm == pytest.approx(ball.radius, rel=1e-14)


def test_zeros_are_exact_and_ties_stay_ties():
    for regularizer, center, expected in (
        (ElasticBox(l1=1.0), [0.5, -0.5, 0.999, 3.0], [0.0, 0.0, 0.0, 2.0]),
        (L2Norm(2.5), [1.5, -2.0], [0.0, 0.0]),
        (L2Norm(2.5), [3.0, -4.0], [1.5, -2.0]),
        (LInfinityNorm(7.0), [3.0, -4.0], [0.0, 0.0]),
        (LInfinityNorm(6.0), [3.0, -4.0], [0.5, -0.5]),
        (LInfinityNorm(0.5), [3.0, -4.0], [3.0, -3.5]),
        (L1Ball(2.0), [3.0, -3.0, 1.0, 0.0], [1.0, -1.0, 0.0, 0.0]),
        (Simplex(2.0), [5.0, 5.0, 4.0], [1.0, 1.0, 0.0]),
        (FloorSimplex(0.25), [5.0, 0.0, -4.0], [0.5, 0.25, 0.25]),
        (FloorSimplex(0.25), [0.0, 1.0, 2.0, 3.0], [0.25] * 4),
    ):
        np.testing.assert_array_equal(regularizer.prox(np.array(center), 1.0, 1.0), expected)


def test_on_a_simplex_unknown_features_share_what_is_left():
    """All are alike before the first gradient; what one feature loses goes to the unknown ones."""
    np.testing.assert_array_equal(Simplex(2.0).prox(np.zeros(4), 0.0, 1.0), [0.5] * 4)
    np.testing.assert_array_equal(FloorSimplex(0.1).prox(np.zeros(4), 0.0, 1.0), [0.25] * 4)
    center, curvature = np.array([-1.0, 9.0, 9.0]), np.array([1.0, 0.0, 0.0])
    np.testing.assert_array_equal(Simplex().prox(center, curvature, 1.0), [0.0, 0.5, 0.5])


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
    center, curvature = rng.normal(size=(300_000, 1)), 10.0 ** rng.uniform(-2, 2, (300_000, 1))
    for norm in (L2Norm(100.0), LInfinityNorm(100.0)):
        weights = norm.prox(center, curvature, 1.0)
        assert violation(norm, weights, curvature * (center - weights)) <= 1e-9


def test_a_second_call_compiles_nothing():
    rng = np.random.default_rng(0)
    for mixed, kernel in ((MixedL2, kernels.l2_norms), (MixedLInfinity, kernels.l_infinity_norms)):
        mixed(0.1).prox(rng.normal(size=(20, 2)), 1.0, 1.0)
        compiled = list(kernel.signatures)
        for n_outputs in (1, 3):
            center = rng.normal(size=(20, n_outputs))
            mixed(0.1).prox(center, np.ones_like(center), 1.0)
            mixed(0.1).prox(np.asfortranarray(center)[::2], 1.0, 1.0)
        assert kernel.signatures == compiled
    assert kernels.MIN_CURVATURE == MIN_CURVATURE


def test_values():
    """Values of norms inside their proxes are compared with conjugates above."""
    weights = np.array([[3.0, 0.0], [-4.0, 2.0], [0.0, 0.0]])
    assert ElasticBox(2.0, 4.0, -5.0, 5.0).value(weights) == 2 * 9 + 2 * 29
    assert WithElasticNet(L2Norm(2.0), 2.0, 4.0).value(weights) == 14 + 2 * 9 + 2 * 29
    for inside in (L1Ball(7.0), L2Ball(5.0)):
        assert inside.value(weights) == 0.0
    for outside in (
        ElasticBox(low=-3.5), WithElasticNet(L1Ball(1.0), 2.0), L1Ball(6.9), L2Ball(4.9)
    ):  # fmt: skip
        assert outside.value(weights) == np.inf
    shares = np.array([0.4, 0.6])
    assert Simplex().value(shares) == FloorSimplex(0.4).value(shares) == 0.0
    for outside in (Simplex(1.1), FloorSimplex(0.45)):
        assert outside.value(shares) == np.inf
    assert Simplex().value(np.array([-0.1, 1.1])) == np.inf


def test_an_elastic_net_has_the_coupling_of_its_inner():
    for inner in BUILT_IN:
        both = WithElasticNet(inner, 0.1, 0.1)
        assert (both.couples, both.zero_stays) == (inner.couples, inner.zero_stays)
    assert {each.name for each in BUILT_IN if not each.zero_stays} == {"simplex", "floor-simplex"}


class Shifting(ElasticBox):
    zero_stays = False


def test_what_cannot_be_is_refused():
    for call, message in (
        *(
            (lambda box=box: ElasticBox(low=box[0], high=box[1]), "does not contain 0")
            for box in ((0.1, 1.0), (-1.0, -0.1))
        ),
        (lambda: ElasticBox(high=np.nan), "high of elastic-box must be a number, not nan"),
        (lambda: WithElasticNet(Shifting(), 0.1), "l1=0.1 cannot be added to Shifting"),
        (
            lambda: GroupL2(1.0, (2, 3)).prox(np.ones(4), 1.0, 1.0),
            "the blocks have 5 features together, but there are 4",
        ),
        (
            lambda: FloorSimplex(0.4).prox(np.ones(3), 1.0, 1.0),
            "a floor of 0.4 under 3 weights .* choose a floor from 0 to 0.333333",
        ),
    ):
        with pytest.raises(InputError, match=message):
            call()
