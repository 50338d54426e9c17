"""What every regularizer has, and what several of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import InputError

Array = NDArray[np.float64]
Coupling = Literal["nothing", "outputs", "features"]

LEAST_CURVATURE = 1e-300  # smaller ones count as 0: their inverse overflows
FEASIBLE = 1e-9  # how far outside a domain, relative to its size, rounding may put a point


class Regularizer(Protocol):
    """A convex phi, with or without a domain, and its prox in a diagonal metric.

    Weights are (n_features, n_outputs) float64, or (n_features,) for one output. phi is the sum
    over the outputs (columns), but for the mixed norms, which are sums over features (rows).
    """

    @property
    def couples(self) -> Coupling:
        """What the prox of one weight depends on.

        "nothing" (itself alone), "outputs" (its row) or "features" (everything).
        """

    @property
    def zero_stays(self) -> bool:
        """Whether a weight whose center is 0 is always 0."""

    def value(self, weights: Array) -> float:
        """phi; infinite outside the domain."""

    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        """argmin_w  scale phi(w) + 1/2 sum_i curvature_i (w_i - center_i)^2, over the domain.

        Parameters
        ----------
        center : (n_features,) or (n_features, n_outputs) float64
        curvature : like `center`, or a float that holds everywhere; not negative
            Where it is 0 the center counts for nothing. Of all minimisers the smallest (in the
            Euclidean norm) is taken: the weight is 0, but for the simplex kinds.
        scale : float, not negative
            What multiplies phi; a domain does not depend on it.
        """


def check_strength(name: str, strength: float) -> None:
    """Refuse a strength that is negative or not finite; `InputError`."""
    if not (np.isfinite(strength) and strength >= 0):
        raise InputError(f"{name} must be finite and not negative, not {strength}")


def check_positive(name: str, size: float) -> None:
    """Refuse a size that is not positive or not finite; `InputError`."""
    if not (np.isfinite(size) and size > 0):
        raise InputError(f"{name} must be finite and positive, not {size}")


def everywhere(curvature: Array | float, center: Array) -> Array:
    """The curvature of each weight, in the shape of `center`."""
    if isinstance(curvature, np.ndarray) and curvature.shape == center.shape:
        return curvature
    # A copy: kernels would be compiled again for the read-only array that broadcasting gives.
    return np.array(np.broadcast_to(curvature, center.shape), dtype=np.float64)


def as_columns(weights: Array) -> Array:
    """(n_features, n_outputs): a plain vector becomes one column."""
    return weights[:, np.newaxis] if weights.ndim == 1 else weights


def by_column(
    center: Array, curvature: Array | float, prox: Callable[[Array, Array], Array]
) -> Array:
    """`prox` of each output's own (n_features,) center and curvature."""
    curvature = everywhere(curvature, center)
    if center.ndim == 1:
        return prox(center, curvature)
    weights = np.empty_like(center)
    for output in range(center.shape[1]):
        weights[:, output] = prox(center[:, output], curvature[:, output])
    return weights
