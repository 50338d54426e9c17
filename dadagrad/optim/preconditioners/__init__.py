"""Preconditioners: the norm in which an update measures the length of its steps.

A preconditioner is a frozen choice of formula. It remembers the stream in a dict of named arrays
that it makes (`init`) and grows (`add`), so that a checkpoint can store them.
"""

from __future__ import annotations

from dadagrad.optim.arrays import Arrays
from dadagrad.optim.preconditioners.base import (
    PRECONDITIONERS,
    DiagonalPreconditioner,
    Preconditioner,
    Step,
)
from dadagrad.optim.preconditioners.diagonal import Diagonal, Global, Identity, Normalized
from dadagrad.optim.preconditioners.full import Block, Full
from dadagrad.optim.preconditioners.random_projection import AdaLowRank, RadaGrad
from dadagrad.optim.preconditioners.sketch import CorrectedSketch, Sketch, SketchedNewton

__all__ = [
    "PRECONDITIONERS",
    "AdaLowRank",
    "Arrays",
    "Block",
    "CorrectedSketch",
    "Diagonal",
    "DiagonalPreconditioner",
    "Full",
    "Global",
    "Identity",
    "Normalized",
    "Preconditioner",
    "RadaGrad",
    "Sketch",
    "SketchedNewton",
    "Step",
]
