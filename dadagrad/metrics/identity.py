"""A metric that adapts to nothing but time: H = t^p I.

================  ===  ====================================================================
schedule           p   with it
================  ===  ====================================================================
``"constant"``     0   mirror descent is projected gradient descent with a fixed step
``"sqrt"``       1/2   dual averaging is RDA (Xiao 2010), mirror descent is FOBOS with
                       eta / sqrt(t) (Duchi and Singer 2009)
``"linear"``       1   steps eta / t, for strongly convex losses (Shalev-Shwartz and Singer
                       2007)
================  ===  ====================================================================

t is the importance seen so far, the present step included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dadagrad.errors import InputError
from dadagrad.metrics.metric import Array, Arrays, Ids, Separable, Shapes, zeros

POWERS = {"constant": 0.0, "sqrt": 0.5, "linear": 1.0}


@dataclass(frozen=True, slots=True)
class Identity(Separable):
    """H = t^p I. Keeps t as ``time``: (n_outputs,), or () for plain vectors."""

    schedule: str = "sqrt"
    name: ClassVar[str] = "identity"
    local: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.schedule not in POWERS:
            raise InputError(
                f"schedule {self.schedule!r} is not known; choose one of {', '.join(POWERS)}"
            )

    def init(self, n_features: int, n_outputs: int | None = None) -> Arrays:
        # The number of features is all that tells how long the diagonal is.
        return {"time": zeros(1, n_outputs)[0, ...], "n_features": np.array(n_features)}

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        return {"time": (n_outputs,), "n_features": ()}

    def add(
        self,
        arrays: Arrays,
        gradient: Array,
        importance: float = 1.0,
        ids: Ids | None = None,
        total: Array | None = None,
        scales: Array | None = None,
    ) -> Arrays:
        return {**arrays, "time": np.asarray(arrays["time"] + importance)}

    def curvature(self, arrays: Arrays, ids: Ids | None = None) -> Array:
        n_rows = int(arrays["n_features"]) if ids is None else len(ids)
        power = POWERS[self.schedule]
        # Before the first step every schedule has H = 0, hence no weights.
        row = np.where(arrays["time"] > 0, np.power(arrays["time"], power), 0.0)
        return np.broadcast_to(row, (n_rows, *row.shape))

    def merge(self, arrays: Arrays, other: Arrays, total: Array | None = None) -> Arrays:
        return {**arrays, "time": np.asarray(arrays["time"] + other["time"])}
