"""Learners: algorithms that learn row by row and are no gradient step in a metric."""

from __future__ import annotations

from dadagrad.learners.arow import Arow, ArowFull
from dadagrad.learners.averaging import Averaged, RunningMean
from dadagrad.learners.base import Learner, LearnerState
from dadagrad.learners.coin_betting import CoinBetting
from dadagrad.learners.exponentiated_gradient import ExponentiatedGradient
from dadagrad.learners.make import LEARNERS, make_learner
from dadagrad.learners.passive_aggressive import PassiveAggressive
from dadagrad.learners.strongly_convex import StronglyConvexBall, StronglyConvexSimplex

__all__ = [
    "LEARNERS",
    "Arow",
    "ArowFull",
    "Averaged",
    "CoinBetting",
    "ExponentiatedGradient",
    "Learner",
    "LearnerState",
    "PassiveAggressive",
    "RunningMean",
    "StronglyConvexBall",
    "StronglyConvexSimplex",
    "make_learner",
]
