"""Units in which rows are learned from: known numbers that move and divide columns and labels."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.rows import Rows


@dataclass(frozen=True, eq=False)
class Units:
    """Numbers that change rows before they are learned from, and the model after.

    Attributes
    ----------
    scales : (n_features,) float32 or None
        Numbers that columns are divided by.
    means : (n_features,) float32 or None
        Numbers that are subtracted from dense columns before they are divided; 0 for the others.
    centers : (n_label_columns,) float64 or None
        Scores that a regression starts from: it learns from the labels of `Loss.center`.
    """

    scales: NDArray[np.float32] | None = field(default=None, repr=False)
    means: NDArray[np.float32] | None = field(default=None, repr=False)
    centers: NDArray[np.float64] | None = field(default=None, repr=False)

    @classmethod
    def take(cls, arrays: dict[str, NDArray[Any]], n_features: int, n_label_columns: int) -> Units:
        """Remove the units from the arrays of a state; `ValueError` if they have other shapes."""
        kinds = dict.fromkeys(("scales", "means"), ((n_features,), "<f4"))
        kinds["centers"] = (n_label_columns,), "<f8"
        units = {name: arrays.pop(name) for name in kinds if name in arrays}
        for name, array in units.items():
            if (array.shape, array.dtype.str) != kinds[name]:
                raise ValueError(f"{name} are {array.dtype}, shape {array.shape}")
        return cls(**units)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays by name, without those that are None."""
        every = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: array for name, array in every.items() if array is not None}

    def grown(self, n_features: int) -> Units:
        """The units of more features, which have the median scale and lose no mean."""
        scales, means = self.scales, self.means
        if scales is not None:
            unknown = np.full(n_features - len(scales), np.median(scales), np.float32)
            scales = np.append(scales, unknown)
        if means is not None:
            means = np.append(means, np.zeros(n_features - len(means), np.float32))
        return replace(self, scales=scales, means=means)

    def center_columns(self, rows: Rows) -> Rows:
        """The rows of a partition without the means; they may have more entries."""
        if self.means is None or not rows.n_rows:
            return rows
        return rows.center_columns(self._centered, self.means[self._centered])

    @cached_property
    def _centered(self) -> NDArray[np.int64]:
        """The columns with a mean; there may be millions of others."""
        assert self.means is not None
        return np.flatnonzero(self.means)

    def scale_columns(self, rows: Rows) -> Rows:
        """The rows with columns that are divided by the scales."""
        return rows if self.scales is None else rows.divide_columns(self.scales)

    def raw_weights(
        self, ids: NDArray[np.int64], weights: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """The weights of features `ids` for columns that are not divided, (k, n_outputs)."""
        return weights if self.scales is None else weights / self.scales[ids, None]

    def raw_intercept(
        self,
        intercept: NDArray[np.float64],
        ids: NDArray[np.int64],
        raw_weights: NDArray[np.float32],
    ) -> NDArray[np.float64]:
        """The (n_outputs,) intercepts for columns and labels that keep their means and centers."""
        if self.centers is not None:
            intercept = intercept + self.centers
        if self.means is not None:
            # Not a product of matrices, whose bits depend on the machine.
            shares = self.means[ids, None].astype(np.float64) * raw_weights
            intercept = intercept - shares.sum(axis=0)
        return intercept
