"""Base class of regularizers, and helpers that several of them use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import InputError
from dadagrad.optim.arrays import Array
from dadagrad.optim.registry import Named, Registry, Sizes

Coupling = Literal["nothing", "outputs", "features"]

MIN_CURVATURE = 1e-300  # smaller ones count as 0: their inverse overflows
FEASIBLE = 1e-9  # how far outside a domain, relative to its size, rounding may put a point


class Regularizer(Named, ABC):
    """A convex phi, with or without a domain, and its prox in a diagonal preconditioner.

    Weights are (n_features, n_outputs) float64, or (n_features,) for one output. phi is the sum
    over the outputs (columns), but for the mixed norms, which are sums over features (rows).

    A subclass defines `value` and `prox`.

    Attributes
    ----------
    name : str
        Name in reports and checkpoints; by default that of the class.
    couples : {"nothing", "outputs", "features"}
        The weights that the prox of one weight depends on: itself alone, its row, or all.
    zero_stays : bool
        True if the prox keeps signs and zeros: a weight whose center is 0 is always 0.
    is_zero : bool
        True if phi = 0 without a domain, so that the prox is its center.
    l1_is_constant : bool
        True if |w|_1 has one value in the whole domain, so that adding l1 changes nothing.
    """

    l1_is_constant: ClassVar[bool] = False

    @property
    def couples(self) -> Coupling:
        return "features"

    @property
    def zero_stays(self) -> bool:
        return False

    @property
    def is_zero(self) -> bool:
        return False

    def split_l2(self) -> tuple[Regularizer, float]:
        """phi without a term l2/2 |w|_2^2, and l2."""
        return self, 0.0

    @abstractmethod
    def value(self, weights: Array) -> float:
        """phi; infinite outside the domain."""

    @abstractmethod
    def prox(self, center: Array, curvature: Array | float, scale: float) -> Array:
        """argmin_w  scale phi(w) + 1/2 sum_i curvature_i (w_i - center_i)^2, over the domain.

        Parameters
        ----------
        center : (n_features,) or (n_features, n_outputs) float64
        curvature : like `center`, or a float for all weights; not negative
            Where it is 0 the center counts for nothing. Of all minimisers the smallest (in the
            Euclidean norm) is taken: the weight is 0, but for the simplex kinds.
        scale : float, not negative
            The factor of phi; a domain does not depend on it.
        """


REGULARIZERS: Registry[Regularizer] = Registry("regularizer", Regularizer)  # type: ignore[type-abstract]
"""Built-in regularizers and domains by name."""


def everywhere(curvature: Array | float, center: Array) -> Array:
    """The curvature of each weight, in the shape of `center`."""
    if isinstance(curvature, np.ndarray) and curvature.shape == center.shape:
        return curvature
    # A copy: kernels would be compiled again for the read-only array that broadcasting gives.
    return np.array(np.broadcast_to(curvature, center.shape), dtype=np.float64)


def block_lengths(size: Sizes, n_features: int) -> NDArray[np.int64]:
    """Number of features in every block; `InputError` if they do not sum to `n_features`."""
    if isinstance(size, int):
        starts = np.arange(0, n_features, size)
        return np.diff(np.append(starts, n_features))
    lengths = np.array(size)
    if lengths.sum() != n_features:
        raise InputError(
            f"the blocks have {lengths.sum()} features together, but there are {n_features}; "
            "give block lengths that sum to that, or one length for all blocks"
        )
    return lengths


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
