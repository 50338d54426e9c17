"""An example of every built-in loss, regularizer, preconditioner and update for tests."""

from numba import njit

from dadagrad.kernels import training as kernels
from dadagrad.optim.losses import Hinge
from dadagrad.optim.preconditioners import PRECONDITIONERS
from dadagrad.optim.registry import parameters
from dadagrad.optim.regularizers import REGULARIZERS
from dadagrad.optim.updates import UPDATES

GRADIENT_UPDATES = tuple(name for name in UPDATES if UPDATES[name].uses_penalties)
"""Updates that step in any preconditioner with any regularizer."""

TEXTS = {
    "huber": "huber:width=0.7",
    "quantile": "quantile:q=0.3",
    "block": "block:size=3",
    "elastic-box": "elastic-box:l1=0.1,l2=0.3,low=-0.5,high=1.0",
    "group": "group:strength=0.1,size=3",
    "floor-simplex": "floor-simplex:floor=0.02",
    **{name: f"{name}:strength=0.1" for name in REGULARIZERS if "l2" in name or "infinity" in name},
    **{name: f"{name}:radius=2.0" for name in ("l1-ball", "l2-ball", "projected-gradient")},
}
"""Text of objects that need parameters, or that are tested with others than the usual ones."""


class OwnHinge(Hinge):
    name = "own-hinge"


def example(registry, name):
    """The object of a name, with the parameters of `TEXTS`."""
    return registry.make(TEXTS.get(name, name))


def preconditioner_of(name, delta=0.3):
    """A preconditioner small enough for a few features: of rank 3, or blocks of 2."""
    usual = {"delta": delta, "rank": 3, "size": 2, "seed": 1}
    cls = PRECONDITIONERS[name]
    return cls(**{key: usual[key] for key in usual if key in cls.__dataclass_fields__})


def kernel_parameter(loss):
    """The number that a loss gives to the kernels."""
    return float(next(iter(parameters(loss).values()), 0.0))


@njit
def compiled_mean_slope(code, parameter, score, target, pace):
    """The mean slope of a built-in loss along a step as the kernels compute it."""
    return kernels.mean_slope(code, parameter, score, target, pace)


@njit
def compiled_slope(code, parameter, score, target):
    """The slope of a built-in loss as the kernels compute it."""
    return kernels.loss_slope(code, parameter, None, score, target)
