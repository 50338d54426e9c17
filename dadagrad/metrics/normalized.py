"""A diagonal metric that does not see the scale of a feature.

H_i = m_i (delta + sqrt(G_i)),   m_i = max over steps of |x_i|

Scaling a feature by s scales its gradients and m_i by s and, with delta = 0, H_i by s^2, its weight
-eta u_i / H_i by 1/s, and so no margin at all (after Ross, Mineiro and Langford 2013). Data need no
pass that scales them. As |u_i| <= sqrt(t G_i), no weight of dual averaging adds more than
eta sqrt(t) to the margin of a row that was seen, however small or large the slopes are.

The values x come as `scales` with each step. Without them m_i is the largest |g_i|, which has the
same scale, but not the same bound: a feature that is first met with the slope d weighs eta / (d x).
That is harmless where slopes are 0 or of one size (hinge, absolute). With other losses a tiny first
slope gives a huge weight, which a positive delta bounds at the price of seeing scales. No formula
in gradients alone helps: of one gradient d x_i nothing but the sign is free of the scale, so the
weight after it must be a multiple of 1 / (d x_i), or 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dadagrad.metrics.metric import Array, Arrays, Ids, Separable, Shapes, check_delta, zeros


@dataclass(frozen=True, slots=True)
class Normalized(Separable):
    """H_i = m_i (delta + sqrt(G_i)). Keeps G as ``squares`` and m as ``largest``."""

    delta: float
    name: ClassVar[str] = "normalized"

    def __post_init__(self) -> None:
        check_delta(self.delta)

    def init(self, n_features: int, n_outputs: int | None = None) -> Arrays:
        return {
            "squares": zeros(n_features, n_outputs),
            "largest": zeros(n_features, n_outputs),
        }

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        return {"squares": (n_features, n_outputs), "largest": (n_features, n_outputs)}

    def add(
        self,
        arrays: Arrays,
        gradient: Array,
        importance: float = 1.0,
        ids: Ids | None = None,
        total: Array | None = None,
        scales: Array | None = None,
    ) -> Arrays:
        if scales is None:
            sizes = np.abs(gradient)
        else:
            sizes = scales if gradient.ndim == 1 else scales[:, np.newaxis]
        if ids is None:
            return {
                "squares": arrays["squares"] + np.square(gradient),
                "largest": np.maximum(arrays["largest"], sizes),
            }
        arrays["squares"][ids] += np.square(gradient)
        arrays["largest"][ids] = np.maximum(arrays["largest"][ids], sizes)
        return arrays

    def curvature(self, arrays: Arrays, ids: Ids | None = None) -> Array:
        squares, largest = arrays["squares"], arrays["largest"]
        if ids is not None:
            squares, largest = squares[ids], largest[ids]
        return largest * (self.delta + np.sqrt(squares))

    def merge(self, arrays: Arrays, other: Arrays, total: Array | None = None) -> Arrays:
        return {
            "squares": arrays["squares"] + other["squares"],
            "largest": np.maximum(arrays["largest"], other["largest"]),
        }
