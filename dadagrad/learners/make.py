"""Learners by the names that configuration and the command line use."""

from __future__ import annotations

from typing import Final

from dadagrad.errors import InputError
from dadagrad.learners.arow import Arow, ArowFull
from dadagrad.learners.base import Learner, require_one_of
from dadagrad.learners.coin_betting import CoinBetting
from dadagrad.learners.exponentiated_gradient import ExponentiatedGradient
from dadagrad.learners.passive_aggressive import PassiveAggressive
from dadagrad.learners.strongly_convex import StronglyConvexBall, StronglyConvexSimplex
from dadagrad.losses import Loss

HINGES: Final = ("hinge", "squared-hinge", "ranking")
TASKS: Final = {
    **dict.fromkeys(HINGES, "binary"),
    "multiclass-hinge": "multiclass",
    "absolute": "regression",
}
"""What passive-aggressive learning makes of each loss that it can follow."""

SUITED: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("pa", "pa-1", "pa-2"), tuple(TASKS)),
    **dict.fromkeys(("arow", "arow-full"), HINGES),
}
"""The losses of the learners that have their own; the others take the slope of any loss."""

LEARNERS: Final = (*SUITED, "eg", "eg-signed", "strongly-convex", "strongly-convex-simplex", "coin")
"""The name of every learner."""


def make_learner(
    name: str,
    loss: Loss,
    *,
    aggressiveness: float = 1.0,
    epsilon: float = 0.1,
    r: float = 1.0,
    step_size: float = 0.1,
    radius: float | None = None,
    sigma: float = 1e-4,
    floor: float | None = None,
    wealth: float = 1.0,
    leash: float = 10.0,
) -> Learner:
    """The learner called `name`.

    Parameters
    ----------
    name : str
        One of `LEARNERS`.
    loss : Loss
        What is to be made small. AROW follows a hinge of its own, each output alone;
        passive-aggressive learning does so too, and compares the outputs of a row for
        "multiclass-hinge", and is a regression that lets `epsilon` pass for "absolute". All other
        losses these refuse.
    aggressiveness, epsilon : float
        Of "pa", "pa-1", "pa-2".
    r : float
        Of "arow", "arow-full".
    step_size : float
        Of "eg", "eg-signed".
    radius : float or None
        Of "eg", "eg-signed" and "strongly-convex-simplex", where None is 1, and of
        "strongly-convex", where None finds the ball that holds the minimiser.
    sigma : float
        Of "strongly-convex", "strongly-convex-simplex".
    floor : float or None
        Of "strongly-convex-simplex".
    wealth, leash : float
        Of "coin".

    Raises
    ------
    InputError
        If the name is not known, a setting is out of its range, or the loss does not
        suit the learner.
    """
    require_one_of("learner", name, LEARNERS)
    if loss.name not in SUITED.get(name, (loss.name,)):
        raise InputError(
            f"{name} follows a loss of its own and cannot follow {loss.name!r}; choose one of "
            f"{', '.join(SUITED[name])}, or another learner"
        )
    if name.startswith("pa"):
        return PassiveAggressive(name, TASKS[loss.name], aggressiveness, epsilon)
    if name == "arow":
        return Arow(r)
    if name == "arow-full":
        return ArowFull(r)
    if name == "coin":
        return CoinBetting(loss, wealth, leash)
    if name == "strongly-convex":
        return StronglyConvexBall(loss, sigma, radius)
    total = 1.0 if radius is None else radius
    if name == "strongly-convex-simplex":
        return StronglyConvexSimplex(loss, sigma, floor, total)
    return ExponentiatedGradient(loss, step_size, total, signed=name == "eg-signed")
