"""Names and parameters of losses and updates that tests go through."""

from __future__ import annotations

from typing import Any

from numba import njit

from dadagrad.kernels import training as kernels
from dadagrad.optim.losses import LOSSES, Loss
from dadagrad.optim.registry import parameters
from dadagrad.optim.updates import UPDATES

GRADIENT_UPDATES = tuple(name for name in UPDATES if UPDATES[name].uses_penalties)
"""Updates that step in any preconditioner with any regularizer."""

_LOSS_TEXTS = {"huber": "huber:width=0.7", "quantile": "quantile:q=0.3"}


def loss_of(name: str) -> Loss:
    """The loss of a name, with parameters other than the usual ones."""
    return LOSSES.make(_LOSS_TEXTS.get(name, name))


def kernel_parameter(loss: Loss) -> float:
    """The number that a loss gives to the kernels."""
    return float(next(iter(parameters(loss).values()), 0.0))


@njit
def compiled_slope(code: int, parameter: float, margin: float, target: float) -> Any:
    """The slope of a built-in loss as the kernels compute it."""
    return kernels.loss_slope(code, parameter, margin, target)
