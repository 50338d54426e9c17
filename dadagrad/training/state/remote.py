"""The end of a run whose state is in no process whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import InputError
from dadagrad.model.stored_weights import StoredWeights
from dadagrad.problem import Problem
from dadagrad.training.state.compiled import State


@dataclass(slots=True)
class RemoteWeights(State):
    """The end of a run whose state was too large for this process: its weights, without features.

    Attributes
    ----------
    ids : (k,) int64 or None
        The features with a weight other than 0; None if the weights stayed on the workers, too.
    values : (k, n_outputs) float32
        Their weights.
    stored : StoredWeights or None
        The weights that the workers have written to a model.
    nonzeros : int
        The number of weights other than 0.
    """

    ids: NDArray[np.int64] | None = None
    values: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), np.float32))
    stored: StoredWeights | None = None
    nonzeros: int = 0

    @classmethod
    def gathered(
        cls, end: State, parts: list[tuple[NDArray[np.int64], NDArray[np.float32]]]
    ) -> RemoteWeights:
        """The weights of a run whose state at its `end` is in `parts`, which are taken out."""
        ids = np.empty(sum(len(ids) for ids, _ in parts), np.int64)
        values = np.empty((len(ids), *parts[0][1].shape[1:]), np.float32)
        stop = len(ids)
        while parts:  # each goes before the next is copied: there may not be memory for all twice
            ids_of_part, values_of_part = parts.pop()
            start = stop - len(ids_of_part)
            ids[start:stop], values[start:stop] = ids_of_part, values_of_part
            stop = start
        named: dict[str, Any] = end.common().arrays
        nonzeros = int(np.count_nonzero(values))
        return cls(**named, t=end.t, ids=ids, values=values, nonzeros=nonzeros)

    def nonzero_weights(self, problem: Problem) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        if self.ids is None:
            return np.empty(0, np.int64), np.empty((0, problem.n_outputs), np.float32)
        return self.ids, self.values

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        raise InputError(
            "the state of this run stayed on the workers of its cluster, because it was too large "
            "for this process; keep it by checkpoints"
        )
