"""Translation of the labels of data into those of a model, and their names."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import Dataset, LabelColumn
from dadagrad.errors import InputError
from dadagrad.model.model import Model

Array = NDArray[np.float64]


class LabelTranslation:
    """Translation of the labels of `data` into the values that `model` has for them.

    Each dataset numbers the labels that were text on its own, so their names are compared.
    """

    def __init__(self, model: Model, data: Dataset) -> None:
        ours, theirs = model.label_columns, data.schema.label_columns
        if not theirs:
            raise InputError(
                f"the data at {data.url} has no labels to compare predictions with; ingest it "
                "with its labels, that is without --no-labels (in Parquet, the column must be "
                "named 'label'), or use `dadagrad predict`"
            )
        if len(ours) != len(theirs):
            raise InputError(
                f"the model has {len(ours)} label columns and the data at {data.url} has "
                f"{len(theirs)}; evaluate it on data with the same"
            )
        regression = model.task in ("regression", "ranking")
        pairs = [] if regression else list(zip(ours, theirs, strict=True))
        self._columns = [_Column(mine, other, data.url) for mine, other in pairs]
        if regression and any(column.names for column in theirs):
            raise InputError(
                f"the labels of {data.url} are text, and the model is a {model.task} on numbers"
            )

    def __call__(self, labels: Array, first: int) -> Array:
        """Translate (n_rows, n_label_columns) `labels`; row `first` of the data has the first."""
        if not self._columns:
            return labels
        columns = zip(self._columns, labels.T, strict=True)
        return np.stack([column.translate(values, first) for column, values in columns], axis=1)


class _Column:
    """Translation of one label column."""

    def __init__(self, ours: LabelColumn, theirs: LabelColumn, url: str) -> None:
        self._url, self._name = url, theirs.name
        self._classes = [label_text(ours, value) for value in ours.values or ()]
        known = np.array(ours.values or (), np.float64)
        if (ours.names is None) != (theirs.names is None):
            kinds = ("numbers", "text") if ours.names is None else ("text", "numbers")
            raise InputError(
                f"the labels of the model are {kinds[0]}, those of {url}, column {theirs.name!r}, "
                f"are {kinds[1]}; ingest the data with the labels of the training data"
            )
        if ours.names is None or theirs.names is None:
            self._from, self._to = known, known
            if theirs.values is not None:
                for value in sorted(set(theirs.values) - set(known.tolist())):
                    raise self._unknown(label_text(theirs, value))
            return
        value_of = dict(zip(ours.names, known.tolist(), strict=True))
        for name in theirs.names:
            if name not in value_of:
                raise self._unknown(repr(name))
        self._from = np.array(theirs.values, np.float64)
        self._to = np.array([value_of[name] for name in theirs.names], np.float64)

    def translate(self, labels: Array, first: int) -> Array:
        position = np.minimum(np.searchsorted(self._from, labels), len(self._from) - 1)
        wrong = np.flatnonzero(self._from[position] != labels)
        if len(wrong):
            row = int(wrong[0])
            raise self._unknown(f"{labels[row]:g} (row {first + row})")
        translated: Array = self._to[position]
        return translated

    def _unknown(self, label: str) -> InputError:
        shown = ", ".join(self._classes[:10]) + (", ..." if len(self._classes) > 10 else "")
        return InputError(
            f"{self._url}: column {self._name!r} has the label {label}, which the model was not "
            f"trained on; it knows {shown}"
        )


def label_text(column: LabelColumn, value: float) -> str:
    """The text of a value of a label column."""
    if column.names is not None and column.values is not None:
        return column.names[column.values.index(value)]
    return str(int(value)) if float(value).is_integer() else repr(float(value))
