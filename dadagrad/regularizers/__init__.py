"""Regularizers and domains, each a prox in a diagonal metric.

    prox(center, curvature, scale)
        = argmin_w  scale phi(w) + 1/2 sum_i curvature_i (w_i - center_i)^2

Every update of `dadagrad.updates` is this one primitive with its own center and scale; any other
metric calls the same prox in its iterations.

==================  ===================================  ========  ===========================
class               phi or domain                        couples   prox
==================  ===================================  ========  ===========================
`ElasticBox`        l1, l2, a box                        nothing   closed form
`L2Norm`            strength |w|_2                       features  bisection and Newton
`LInfinityNorm`     strength |w|_inf                     features  threshold
`GroupL2`           strength sum over blocks |w_b|_2     features  bisection and Newton
`MixedL2`           strength sum over rows |row|_2       outputs   bisection and Newton
`MixedLInfinity`    strength sum over rows |row|_inf     outputs   threshold
`L1Ball`            |w|_1 <= radius                      features  threshold
`L2Ball`            |w|_2 <= radius                      features  bisection and Newton
`Simplex`           w >= 0, sum w = radius               features  threshold
`FloorSimplex`      w >= floor, sum w = 1                features  threshold
`WithElasticNet`    any of these, plus l1 and l2         as inner  center and curvature change
==================  ===================================  ========  ===========================
"""

from __future__ import annotations

import math

from dadagrad.errors import InputError
from dadagrad.regularizers.base import Coupling, Regularizer
from dadagrad.regularizers.domains import FloorSimplex, L1Ball, L2Ball, Simplex
from dadagrad.regularizers.elastic_box import ElasticBox
from dadagrad.regularizers.elastic_net import WithElasticNet
from dadagrad.regularizers.mixed import MixedL2, MixedLInfinity
from dadagrad.regularizers.norms import GroupL2, L2Norm, LInfinityNorm

__all__ = [
    "DOMAINS",
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
    "make_regularizer",
]

REGULARIZERS = ("l2-norm", "l-infinity", "group", "mixed-l2", "mixed-l-infinity")
"""Names that configuration and the command line use for a norm."""
DOMAINS = ("l1-ball", "l2-ball", "simplex", "floor-simplex")
"""Names that configuration and the command line use for a domain."""


def make_regularizer(
    *,
    l1: float = 0.0,
    l2: float = 0.0,
    low: float = -math.inf,
    high: float = math.inf,
    regularizer: str | None = None,
    strength: float | None = None,
    domain: str | None = None,
    radius: float | None = None,
    floor: float | None = None,
    blocks: int | tuple[int, ...] | None = None,
) -> Regularizer:
    """The one regularizer that these settings describe.

    Parameters
    ----------
    l1, l2 : float
        Added to anything. On the simplex kinds l1 changes nothing, as |w|_1 is constant there.
    low, high : float
        A box; only with l1 and l2.
    regularizer : str, optional
        One of `REGULARIZERS`, with its `strength`.
    domain : str, optional
        One of `DOMAINS`: the balls need a `radius`, the simplex takes one (1 if not given), the
        floor simplex needs a `floor`.
    blocks : int or tuple of int, optional
        Needed by "group"; otherwise not looked at, because the block metric takes them as well.

    Raises
    ------
    InputError
        If a name is not known, a setting is missing, or settings cannot be combined.
    """
    box = ElasticBox(l1, l2, low, high)
    if regularizer is not None and domain is not None:
        raise InputError(
            f"regularizer {regularizer!r} and domain {domain!r} cannot be combined: the two "
            "together have no exact prox here; choose one of them"
        )
    name, chosen = ("regularizer", regularizer) if domain is None else ("domain", domain)
    _refuse_unused(regularizer, strength, domain, radius, floor)
    if chosen is None:
        return box
    if low > -math.inf or high < math.inf:
        raise InputError(
            f"the box [{low}, {high}] cannot be combined with {name} {chosen!r}: the two together "
            f"have no exact prox here; leave out low and high, or the {name}"
        )
    inner = (
        _make_norm(chosen, strength, blocks)
        if name == "regularizer"
        else _make_domain(chosen, radius, floor)
    )
    return WithElasticNet(inner, l1, l2) if l1 or l2 else inner


def _refuse_unused(
    regularizer: str | None,
    strength: float | None,
    domain: str | None,
    radius: float | None,
    floor: float | None,
) -> None:
    """A number that nothing would look at is a mistake."""
    if strength is not None and regularizer is None:
        raise InputError(
            f"strength {strength} is given without a regularizer; choose a regularizer "
            f"({', '.join(REGULARIZERS)}), or leave strength out"
        )
    takes_radius = ("l1-ball", "l2-ball", "simplex")
    if radius is not None and domain not in takes_radius and (domain is None or domain in DOMAINS):
        raise InputError(
            f"radius {radius} is given with domain {domain!r}; only {', '.join(takes_radius)} "
            "have one: choose such a domain, or leave radius out"
        )
    if floor is not None and domain != "floor-simplex" and (domain is None or domain in DOMAINS):
        raise InputError(
            f"floor {floor} is given with domain {domain!r}; only floor-simplex has one: choose "
            "that domain, or leave floor out"
        )


def _make_norm(
    name: str, strength: float | None, blocks: int | tuple[int, ...] | None
) -> Regularizer:
    if name not in REGULARIZERS:
        raise InputError(
            f"regularizer {name!r} is not known; choose one of {', '.join(REGULARIZERS)}"
        )
    if strength is None:
        raise InputError(f"regularizer {name!r} needs a strength; give one, such as 0.001")
    if name == "group":
        if blocks is None:
            raise InputError(
                "regularizer 'group' needs blocks; give the number of features in each block, or "
                "the length of every block"
            )
        return GroupL2(strength, blocks)
    if name == "l2-norm":
        return L2Norm(strength)
    if name == "l-infinity":
        return LInfinityNorm(strength)
    return MixedL2(strength) if name == "mixed-l2" else MixedLInfinity(strength)


def _make_domain(name: str, radius: float | None, floor: float | None) -> Regularizer:
    if name not in DOMAINS:
        raise InputError(f"domain {name!r} is not known; choose one of {', '.join(DOMAINS)}")
    if name == "floor-simplex":
        if floor is None:
            raise InputError("domain 'floor-simplex' needs a floor; give one, such as 1e-6")
        return FloorSimplex(floor)
    if name == "simplex":
        return Simplex(1.0 if radius is None else radius)
    if radius is None:
        raise InputError(f"domain {name!r} needs a radius; give one, such as 10")
    return L1Ball(radius) if name == "l1-ball" else L2Ball(radius)
