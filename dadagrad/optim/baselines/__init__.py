"""Updates that learn row by row, and are no gradient step in a preconditioner."""

from __future__ import annotations

from dadagrad.optim.baselines.arow import Arow, ArowFull
from dadagrad.optim.baselines.base import GradientLearner, Learner, LearnerState, Row
from dadagrad.optim.baselines.coin_betting import CoinBetting
from dadagrad.optim.baselines.exponentiated_gradient import (
    ExponentiatedGradient,
    SignedExponentiatedGradient,
)
from dadagrad.optim.baselines.passive_aggressive import (
    PassiveAggressive,
    PassiveAggressive1,
    PassiveAggressive2,
)
from dadagrad.optim.baselines.strongly_convex import StronglyConvexBall, StronglyConvexSimplex

__all__ = [
    "Arow",
    "ArowFull",
    "CoinBetting",
    "ExponentiatedGradient",
    "GradientLearner",
    "Learner",
    "LearnerState",
    "PassiveAggressive",
    "PassiveAggressive1",
    "PassiveAggressive2",
    "Row",
    "SignedExponentiatedGradient",
    "StronglyConvexBall",
    "StronglyConvexSimplex",
]
