"""Random proxes, and a proof that a point is the minimiser."""

import numpy as np

from dadagrad.optim.regularizers import (
    ElasticBox,
    GroupL2,
    L1Ball,
    L2Ball,
    LInfinityNorm,
    MixedL2,
    MixedLInfinity,
    Simplex,
    WithElasticNet,
)
from dadagrad.optim.regularizers.base import block_lengths


def draw_prox(seed, spread=1.0):
    """(8, 2) of a center with zeros and ties, a curvature over 2 * spread decades, and a scale."""
    rng, shape = np.random.default_rng(seed), (8, 2)
    center = rng.normal(size=shape) * 2
    center[rng.random(shape) < 0.1] = 0.0
    if rng.random() < 0.3:
        center = np.round(center)
    curvature = 10.0 ** rng.uniform(-spread, spread, shape)
    if rng.random() < 0.3:
        curvature[:] = 1.0
    return center, curvature, float(10.0 ** rng.uniform(-1, 0.7))


def split_penalties(regularizer):
    """The regularizer without l1 and l2, and these."""
    if isinstance(regularizer, ElasticBox):
        box = ElasticBox(low=regularizer.low, high=regularizer.high)
        return box, regularizer.l1, regularizer.l2
    if isinstance(regularizer, WithElasticNet):
        inner, l1, l2 = split_penalties(regularizer.inner)
        return inner, l1 + regularizer.l1, l2 + regularizer.l2
    return regularizer, 0.0, 0.0


def violation(regularizer, weights, pull):
    """Distance (n_features, n_outputs) of `pull` from the subgradients of phi at `weights`.

    p is a subgradient at w exactly where phi(w) + phi*(p) = <p, w> (Fenchel and Young). phi* of a
    domain is max <p, z> over it; that of a norm is 0 where the dual norm of p is at most the
    strength, and infinite beyond. Parts that l1 and l2 can take of the pull are taken first.
    """
    inner, l1, l2 = split_penalties(regularizer)
    pull = pull - l2 * weights
    if not inner.l1_is_constant:
        pull = pull - np.where(weights != 0, l1 * np.sign(weights), np.clip(pull, -l1, l1))
    inside = float(np.sum(pull * weights))
    if hasattr(inner, "strength"):
        excess = float(dual_norms(inner, pull).max(initial=0.0)) - inner.strength
        return max(excess, abs(inner.value(weights) - inside))
    assert inner.value(weights) == 0.0
    return abs(float(support(inner, pull).sum()) - inside)


def dual_norms(norm, pull):
    """The dual norm of each output, row or block."""
    if isinstance(norm, GroupL2):
        starts = np.cumsum(block_lengths(norm.size, len(pull)))[:-1]
        return np.array([np.linalg.norm(part, axis=0) for part in np.split(pull, starts)])
    axis = 1 if isinstance(norm, MixedL2 | MixedLInfinity) else 0
    if isinstance(norm, LInfinityNorm | MixedLInfinity):
        return np.abs(pull).sum(axis=axis)
    return np.linalg.norm(pull, axis=axis)


def support(domain, pull):
    """max <p, z> over the domain, for each output."""
    if isinstance(domain, ElasticBox):
        ends = np.where(pull > 0, domain.high, domain.low)
        return np.where(np.abs(pull) > 1e-9, pull * np.clip(ends, -1e9, 1e9), 0.0).sum(axis=0)
    if isinstance(domain, L1Ball):
        return domain.radius * np.abs(pull).max(axis=0)
    if isinstance(domain, L2Ball):
        return domain.radius * np.linalg.norm(pull, axis=0)
    if isinstance(domain, Simplex):
        return domain.radius * pull.max(axis=0)
    free = max(1.0 - len(pull) * domain.floor, 0.0)
    return domain.floor * pull.sum(axis=0) + free * pull.max(axis=0)
