"""Numbers of some features: the input and the result of the work on a slice of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import TrainingError
from dadagrad.kernels.id_sets import DistinctIds, add_at, look_up


class Content(Protocol):
    """Arrays with a row for each feature."""

    @property
    def arrays(self) -> dict[str, NDArray[Any]]: ...


class Input(Content, Protocol):
    """Weights or states that rows are worked on with."""

    @property
    def n_features(self) -> int: ...

    def pull(self, positions: NDArray[np.int64]) -> Self:
        """The numbers of the features at some positions, in arrays of their own."""

    def copy(self) -> Self: ...


C = TypeVar("C", bound=Content, covariant=True)


@dataclass(frozen=True, slots=True)
class FeatureSlice(Generic[C]):
    """Numbers of some features.

    Attributes
    ----------
    ids : (k,) int64
        The features, strictly increasing.
    content : Weights, Gradient or State
        Their numbers, in this order.
    """

    ids: NDArray[np.int64]
    content: C


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of some features, to compute a gradient at.

    `weights` is (k, n_outputs) float32, `intercept` (n_outputs,) float64.
    """

    weights: NDArray[np.float32]
    intercept: NDArray[np.float64]

    @property
    def n_features(self) -> int:
        return len(self.weights)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"weights": self.weights, "intercept": self.intercept}

    def pull(self, positions: NDArray[np.int64]) -> Weights:
        return Weights(self.weights[positions], self.intercept)

    def copy(self) -> Weights:
        return replace(self, weights=self.weights.copy())


@dataclass(frozen=True, slots=True)
class Gradient:
    """The importance-weighted sum of the rows' gradients, of the features where it is not 0.

    Attributes
    ----------
    gradient : (k, n_outputs) float64, or float32 of a slice of rows in compiled updates
        A preconditioner that is not diagonal divides what rounding leaves outside of the span of
        the rows by its own size.
    squares : like `gradient`, or (0, 0)
        Sum of the squares of the rows' gradients, where the problem needs them.
    intercept : (2, n_outputs) float64
        Sums of the intercept's gradients and of their squares.
    """

    gradient: NDArray[Any]
    squares: NDArray[Any]
    intercept: NDArray[np.float64]

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"gradient": self.gradient, "squares": self.squares, "intercept": self.intercept}


def add_gradients(
    slices: Sequence[FeatureSlice[Gradient]], distinct: DistinctIds
) -> FeatureSlice[Gradient]:
    """The sum of the gradients of some slices of rows, in float64 and in the order of `slices`."""
    if len(slices) == 1:
        ids, places = slices[0].ids, [np.arange(len(slices[0].ids))]
    else:
        ids, places = distinct.unite([each.ids for each in slices])

    def add(terms: list[NDArray[Any]]) -> NDArray[np.float64]:
        n_outputs = terms[0].shape[1]  # 0 of squares that the problem does not need
        sums = np.zeros((len(ids) if n_outputs else 0, n_outputs))
        for place, term in zip(places if n_outputs else (), terms, strict=False):
            add_at(sums, place, term)
        return sums

    gradients = [each.content for each in slices]
    return FeatureSlice(
        ids,
        Gradient(
            add([each.gradient for each in gradients]),
            add([each.squares for each in gradients]),
            sum((each.intercept for each in gradients), start=np.zeros(())),
        ),
    )


def not_finite(change: Content, n_settings: int) -> dict[str, NDArray[np.bool_]]:
    """The settings, (n_settings,), of which each array of a change has a number not finite."""
    settings = {}
    outputs = 1 if isinstance(change, Gradient) else 0  # axis of the outputs, or of their groups
    for name, array in change.arrays.items():
        settings[name] = np.zeros(n_settings, np.bool_)
        finite = np.isfinite(array)
        if not finite.all():  # the common case apart: numpy is slow at reducing short rows
            by_output = np.moveaxis(finite, outputs, 0).reshape(n_settings, -1)
            settings[name] = ~by_output.all(axis=1)
    return settings


@dataclass(frozen=True, slots=True)
class SharedFeatures:
    """Features of the coordinator's state, which stays as it is until the round ends.

    `pull` copies the numbers of increasing feature ids. `partial` is False: it has all features.
    """

    partial: ClassVar[bool] = False
    pull: Callable[[NDArray[np.int64]], Input]

    def read(
        self, vocabulary: NDArray[np.int64], touched: NDArray[np.int32] | None
    ) -> FeatureSlice[Any]:
        """The features at the `touched` positions of the vocabulary, or all of it for None.

        The arrays are the caller's to change.
        """
        ids = vocabulary if touched is None else look_up(vocabulary, touched)
        return FeatureSlice(ids, self.pull(ids))


@dataclass(frozen=True, slots=True)
class SentFeatures:
    """Features that came with a message.

    `partial` is True if the content is that of the features that the rows touch, in the order of
    the partition's vocabulary; else it is that of the vocabulary.
    """

    content: Input
    partial: bool = False

    def read(
        self, vocabulary: NDArray[np.int64], touched: NDArray[np.int32] | None
    ) -> FeatureSlice[Any]:
        """See `SharedFeatures.read`."""
        ids = vocabulary if touched is None else look_up(vocabulary, touched)
        if not len(ids):  # of a partition that has been skipped, also after it was first read
            content = self.content.pull(np.empty(0, np.int64))
        elif touched is not None and not self.partial:
            content = self.content.pull(touched.astype(np.int64))
        elif len(ids) == self.content.n_features:
            content = self.content.copy()
        else:
            raise TrainingError(
                f"what was sent for {self.content.n_features} features came to rows that touch "
                f"{len(ids)}: the data was changed during the run, or not all workers read the same"
            )
        return FeatureSlice(ids, content)
