"""A block: what a parser makes of a stretch of a source, before it becomes a partition."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Block:
    """Parsed rows with global feature ids.

    Attributes
    ----------
    indptr : (n_rows + 1,) int64
    ids : (nnz,) int64
        Global feature ids, strictly increasing within a row.
    values : (nnz,) float32 or None
        None means that every entry is 1.
    labels : (n_rows, n_label_columns) float64, or (n_rows,) object array of str
        Strings become class codes when the whole source is known.
    weights : (n_rows,) float32 or None
    row_scale : (n_rows,) float32 or None
        Each entry of row r is ``values * row_scale[r]``.
    queries : (n_rows,) int64 or None
        Group of the row (svmlight's ``qid``).
    tags : (n_rows,) object array of str or None
        Name of the row (Vowpal Wabbit's tag).
    skipped : int
        Rows left out because they were wrong and the user asked for that.
    names : dict of int to str
        Names of feature ids, where the source has them and they were asked for.
    """

    indptr: NDArray[np.int64]
    ids: NDArray[np.int64]
    values: NDArray[np.float32] | None
    labels: NDArray[np.float64] | NDArray[np.object_]
    weights: NDArray[np.float32] | None = None
    row_scale: NDArray[np.float32] | None = None
    queries: NDArray[np.int64] | None = None
    tags: NDArray[np.object_] | None = None
    skipped: int = 0
    names: dict[int, str] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        return len(self.ids)
