"""Prediction for rows in memory: matrices, data frames, texts, and single rows in microseconds.

A single row, a dict or a text, becomes features in plain Python, without the libraries for tables,
which take milliseconds to start: `RowReader` has the formulas of `TableEncoder` for one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Entries, finish_entries
from dadagrad.errors import InputError
from dadagrad.model.base import LinearModel, refuse_not_finite

Array = NDArray[np.float64]
_MAX_SINGLE = 64  # rows that are read one by one


class MemoryPrediction(LinearModel):
    """Linear model that predicts for rows in memory."""

    def predict(self, data: Any) -> NDArray[Any]:
        """Return the predicted labels of rows.

        Parameters
        ----------
        data : matrix, data frame, dict, list, Dataset or str
            Rows in the feature space of the model: (n_rows, n_features) of NumPy or SciPy, a
            dataset or its URL; or rows as those from which it was trained: a data frame, a dict of
            one row by column, a list of dicts, a list of texts (of a model of one column of text),
            a file. A dict of a model without a table has values by feature: its id, or its name.

        Returns
        -------
        (n_rows,) array, or (n_rows, n_label_columns)
            Numbers, or texts where the labels were texts.

        Raises
        ------
        InputError
            The rows are not those of the model, or a score is not finite.

        Notes
        -----
        A single dict, text or sparse row takes some 20 to 50 microseconds.
        """
        labels = self.predict_labels(self.decision_function(data))
        column = self.label_columns[0]
        if column.names is None or labels.ndim > 1:
            return labels
        names: NDArray[Any] = self._names_of_labels[np.searchsorted(column.values or (), labels)]
        return names

    def predict_proba(self, data: Any) -> Array:
        """Return `probabilities` for rows of `data`, as `predict` takes them."""
        return self.probabilities(self.decision_function(data))

    def decision_function(self, data: Any) -> Array:
        """Return the (n_rows, n_outputs) scores of rows of `data`, as `predict` takes them."""
        scores = self._scores_of(data)
        refuse_not_finite(scores, "row")
        return scores

    def _scores_of(self, data: Any) -> Array:
        if isinstance(data, dict):
            return self._score_entries([self._reader(data)])
        if isinstance(data, list | tuple) and 0 < len(data) <= _MAX_SINGLE:
            kind = str if self._is_text else dict
            if all(isinstance(row, kind) for row in data):
                return self._score_entries(map(self._reader, data))
        if getattr(data, "format", None) == "csr" and data.shape[0] == 1:
            self._check_width(data.shape[1])
            return self._score_entries([(data.indices, data.data.astype(np.float32))])
        if isinstance(data, np.ndarray) and data.ndim == 2 and len(data) <= _MAX_SINGLE:
            self._check_width(data.shape[1])
            values = data[:, self.ids].astype(np.float32)
            return values @ self.weights.astype(np.float64) + self.intercept
        # These modules load slowly.
        from dadagrad.data.ingest.ingest import as_dataset
        from dadagrad.model.raw import is_unprepared, read_raw

        if is_unprepared(self.schema, data):
            parts = [self.scores(raw.rows) for raw in read_raw(self.schema, data)]
        else:
            dataset: Dataset = as_dataset(data)
            self._check_width(dataset.schema.n_features)
            parts = [self.scores(dataset.read(n)) for n in range(len(dataset.partitions))]
        return np.concatenate([np.zeros((0, len(self.intercept))), *parts])

    def _check_width(self, n_features: int) -> None:
        if n_features != self.n_features and not self.schema.numbers_own_features:
            raise InputError(
                f"the rows have {n_features} features, and the model was trained on "
                f"{self.n_features}; give rows of the same features"
            )

    def _score_entries(self, rows: Iterable[Entries]) -> Array:
        """Scores of rows, each given by its entries."""
        last, scores = len(self.ids) - 1, []
        for ids, values in rows:
            if last < 0:
                scores.append(self.intercept)
                continue
            position = self.ids.searchsorted(ids)
            np.minimum(position, last, out=position)
            is_feature = self.ids[position] == ids
            weights = self.weights[position].astype(np.float64)
            scores.append((values * is_feature) @ weights + self.intercept)
        return np.array(scores)

    @cached_property
    def _names_of_labels(self) -> NDArray[Any]:
        return np.array(self.label_columns[0].names, object)

    @cached_property
    def _is_text(self) -> bool:
        return (self.feature_space or {}).get("format") == "text"

    @cached_property
    def _reader(self) -> Callable[[Any], Entries]:
        """Entries of a single row."""
        space = self.feature_space or {}
        if space.get("format") in ("text", "table"):
            from dadagrad.data.tables.encoder import TableEncoder
            from dadagrad.data.tables.single_row import RowReader

            return RowReader(TableEncoder.from_json(space))
        return _IdReader(space, {name: feature for feature, name in self.names.items()})


class _IdReader:
    """Reader of a dict of values by feature, which is given by its id or its name."""

    def __init__(self, space: Mapping[str, Any], ids: Mapping[str, int]) -> None:
        self._ids = ids
        self._first = 1 if space.get("zero_based") is False else 0
        self._hash_bits = space.get("hash_bits") if space.get("format") == "vw" else None
        self._binary, self._norm = space.get("binary", False), space.get("norm", "none")

    def __call__(self, row: Mapping[Any, float]) -> Entries:
        ids = [self._id(key) for key in row]
        return finish_entries(ids, list(row.values()), binary=self._binary, norm=self._norm)

    def _id(self, key: Any) -> int:
        if not isinstance(key, str):
            return int(key) - self._first
        if self._hash_bits is not None:
            from sklearn.utils import murmurhash3_32

            hashed: int = murmurhash3_32(key)
            return int(abs(hashed) & (2**self._hash_bits - 1))
        return self._ids.get(key, -1)
