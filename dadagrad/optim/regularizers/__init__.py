"""Regularizers and domains, each a prox in a diagonal preconditioner.

    prox(center, curvature, scale)
        = argmin_w  scale phi(w) + 1/2 sum_i curvature_i (w_i - center_i)^2

Every update of `dadagrad.optim.updates` is this one primitive with its own center and scale; any
other preconditioner calls the same prox in its iterations.
"""

from __future__ import annotations

import math

from dadagrad.errors import InputError
from dadagrad.optim.regularizers.base import REGULARIZERS, Coupling, Regularizer
from dadagrad.optim.regularizers.domains import FloorSimplex, L1Ball, L2Ball, Simplex
from dadagrad.optim.regularizers.elastic_net import ElasticBox, WithElasticNet
from dadagrad.optim.regularizers.norms import (
    GroupL2,
    L2Norm,
    LInfinityNorm,
    MixedL2,
    MixedLInfinity,
)

__all__ = [
    "REGULARIZERS",
    "Coupling",
    "ElasticBox",
    "FloorSimplex",
    "GroupL2",
    "L1Ball",
    "L2Ball",
    "L2Norm",
    "LInfinityNorm",
    "MixedL2",
    "MixedLInfinity",
    "Regularizer",
    "Simplex",
    "WithElasticNet",
    "add_penalties",
]


def add_penalties(
    regularizer: Regularizer | None,
    l1: float,
    l2: float,
    low: float,
    high: float,
) -> Regularizer:
    """Return the sum of a regularizer, l1 |w|_1 and l2/2 |w|_2^2, over the box [low, high].

    Raises
    ------
    InputError
        The box excludes 0, or is combined with a regularizer other than `ElasticBox`.
    """
    box = ElasticBox(l1, l2, low, high)
    if regularizer is None:
        return box
    if isinstance(regularizer, ElasticBox):
        return ElasticBox(
            regularizer.l1 + l1,
            regularizer.l2 + l2,
            max(regularizer.low, low),
            min(regularizer.high, high),
        )
    if low > -math.inf or high < math.inf:
        raise InputError(
            f"low={low:g} and high={high:g} cannot be combined with regularizer "
            f"{regularizer.name!r}: the two together have no exact prox; leave out one of them"
        )
    return WithElasticNet(regularizer, l1, l2) if l1 or l2 else regularizer
