"""The base classes of preconditioners, and the checks that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from dadagrad.errors import InputError
from dadagrad.optim.arrays import Array, Arrays, Ids, Shapes, quotient, rows_of
from dadagrad.optim.preconditioners.prox import minimise, minimise_dual
from dadagrad.optim.registry import Named, Registry
from dadagrad.optim.regularizers import Regularizer


class Step(NamedTuple):
    """A gradient that a preconditioner adds.

    Attributes
    ----------
    gradient : (n_features, n_outputs) or (len(ids), n_outputs) float64
        As the step takes it: already multiplied by its importance.
    importance : float
        How much time the step takes, for preconditioners that grow with time.
    ids : (len(ids),) int64, optional
        The rows that `gradient` has; the others are 0.
    total : like `gradient`, optional
        The same rows of u, the sum of all gradients, this one included. An update that gives it
        with every step can call `Preconditioner.solve_sum`.
    scales : (n_features,) or (len(ids),) float64, optional
        The largest absolute value that each feature has in the rows of the step, for
        preconditioners that do not see the scale of a feature.
    """

    gradient: Array
    importance: float = 1.0
    ids: Ids | None = None
    total: Array | None = None
    scales: Array | None = None


class Preconditioner(Named, ABC):
    """A symmetric positive semi-definite H for each output, made of the gradients so far.

    H_t contains the gradient of step t: the regret bounds of mirror descent need that, and those
    of dual averaging hold with it (Duchi et al. 2011, theorems 5 and 7; Wan et al. 2018,
    theorems 1 and 2). Where H is singular, its inverse is the pseudo-inverse.

    Vectors are (n_features, n_outputs) float64. `ids` are strictly increasing row numbers.
    """

    @property
    def divergence_remedy(self) -> str:
        """A change of the preconditioner for weights that diverge; empty if none is known."""
        return ""

    @abstractmethod
    def init(self, n_features: int, n_outputs: int) -> Arrays:
        """The arrays before the first gradient."""

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        """Shapes of the arrays of `init`, found without the memory for them.

        An axis that differs between two features and three is one of features.
        """
        two, three = self.init(2, n_outputs), self.init(3, n_outputs)
        if not isinstance(two, dict):
            raise InputError(
                f"the init of {self.name} is a {type(two).__name__}; return a dict of arrays"
            )
        return {
            name: tuple(
                n_features if size != other else size
                for size, other in zip(two[name].shape, three[name].shape, strict=True)
            )
            for name in two
        }

    @abstractmethod
    def add(self, arrays: Arrays, step: Step) -> Arrays:
        """The arrays after one more step; may reuse the memory of `arrays`."""

    @abstractmethod
    def solve(self, arrays: Arrays, vector: Array, ids: Ids | None = None) -> Array:
        """H^-1 `vector`, or only the rows `ids` of the result."""

    def solve_sum(self, arrays: Arrays, total: Array, ids: Ids | None = None) -> Array:
        """H^-1 u, or only the rows `ids` of it, for the sum u that `add` was told of."""
        return self.solve(arrays, total, ids)

    @abstractmethod
    def multiply(self, arrays: Arrays, vector: Array) -> Array:
        """H `vector`."""

    def apply(
        self, arrays: Arrays, vector: Array, function: Callable[[Array], Array]
    ) -> Array | None:
        """f(H) `vector`, for a `function` f of eigenvalues; None if these are not known."""
        return None

    def factor(self, arrays: Arrays, output: int) -> tuple[float, Array] | None:
        """base and the (n_features, r) U of an output's H = base I + U U', if U has few columns.

        None if H does not have this form.
        """
        return None

    @abstractmethod
    def majorant(self, arrays: Arrays) -> Array:
        """A diagonal D >= H, (n_features, n_outputs): 0 only where H is."""

    def prox(
        self,
        arrays: Arrays,
        regularizer: Regularizer,
        center: Array,
        scale: float,
        ids: Ids | None = None,
        start: Array | None = None,
    ) -> Array:
        """argmin_w  scale phi(w) + 1/2 |w - center|_H^2.

        With `ids`, `center` and the result have only those rows: for `DiagonalPreconditioner`
        with a regularizer that does not couple features, and for any without a regularizer.
        `start` is the first point of an iteration. Outputs that the regularizer does not couple
        are solved one by one; all `arrays` have the outputs as their first axis.
        """
        without_l2, l2 = regularizer.split_l2()
        ridge = scale * l2
        if ridge > 0.0:
            # With l2, scale phi(w) + 1/2 |w - c|_H^2 is, but for a constant, what the rest of phi
            # has in H + ridge I around (H + ridge I)^-1 H c.
            shrunk = self.apply(arrays, center, lambda values: values / (values + ridge))
            if shrunk is None:
                ridge = 0.0
            else:
                regularizer, center = without_l2, shrunk
        if regularizer.is_zero:
            return center
        n_outputs = center.shape[1]
        n_together = n_outputs if regularizer.couples == "outputs" else 1
        weights = []
        for first in range(0, n_outputs, n_together):
            outputs = slice(first, first + n_together)
            of_outputs = {name: array[outputs] for name, array in arrays.items()}
            begin = None if start is None else start[:, outputs]
            weights.append(
                self._prox_in_ridge(
                    of_outputs, ridge, regularizer, center[:, outputs], scale, begin
                )
            )
        return np.concatenate(weights, axis=1)

    def _prox_in_ridge(
        self,
        arrays: Arrays,
        ridge: float,
        regularizer: Regularizer,
        center: Array,
        scale: float,
        start: Array | None,
    ) -> Array:
        """`prox` in H + ridge I, of outputs that are solved together."""
        if regularizer.couples == "nothing" and (form := self.factor(arrays, 0)):
            base, factor = form
            weights = minimise_dual(
                regularizer, center, scale, base=base + ridge, factor=factor, start=start
            )
            if weights is not None:
                return weights

        def solve(vector: Array) -> Array:
            solved = None
            if ridge > 0.0:
                solved = self.apply(arrays, vector, lambda values: 1.0 / (values + ridge))
            return self.solve(arrays, vector) if solved is None else solved

        return minimise(
            regularizer,
            center,
            scale,
            multiply=lambda vector: self.multiply(arrays, vector) + ridge * vector,
            solve=solve,
            majorant=self.majorant(arrays) + ridge,
            start=start,
        )


PRECONDITIONERS: Registry[Preconditioner] = Registry("preconditioner", Preconditioner)  # type: ignore[type-abstract]
"""Built-in preconditioners by name."""


class DiagonalPreconditioner(Preconditioner):
    """A diagonal H: each weight has a curvature of its own.

    `local` tells whether a gradient of 0 leaves a weight's curvature as it is.
    """

    local: ClassVar[bool] = True

    @abstractmethod
    def curvature(self, arrays: Arrays, ids: Ids | None = None) -> Array:
        """The diagonal of H, or its rows `ids`."""

    def solve(self, arrays: Arrays, vector: Array, ids: Ids | None = None) -> Array:
        """H^-1 `vector`, and 0 where H is 0."""
        return quotient(rows_of(vector, ids), self.curvature(arrays, ids))

    def multiply(self, arrays: Arrays, vector: Array) -> Array:
        return self.curvature(arrays) * vector

    def majorant(self, arrays: Arrays) -> Array:
        return self.curvature(arrays)

    def prox(
        self,
        arrays: Arrays,
        regularizer: Regularizer,
        center: Array,
        scale: float,
        ids: Ids | None = None,
        start: Array | None = None,
    ) -> Array:
        return regularizer.prox(center, self.curvature(arrays, ids), scale)


class MatrixPreconditioner(Preconditioner):
    """An H that is not diagonal. It defines `shapes`, which begin with the outputs; `init` is 0."""

    def init(self, n_features: int, n_outputs: int) -> Arrays:
        shapes = self.shapes(n_features, n_outputs)
        return {name: np.zeros(shape) for name, shape in shapes.items()}
