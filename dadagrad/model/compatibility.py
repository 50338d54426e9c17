"""Checks that data suit a model, and the translation of their labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import Dataset, LabelColumn, Schema
from dadagrad.errors import InputError
from dadagrad.problem import Task, has_classes
from dadagrad.summary import listed

Array = NDArray[np.float64]

_MAX_SHOWN = 60  # letters of a label, or of a property of a feature space


def check_suitable(task: Task, trained: Schema, data: Dataset) -> None:
    """Raise `InputError` if no model of a `task` on data of a schema can be evaluated on `data`.

    Only metadata is read.
    """
    check_features(trained, data.schema)
    LabelTranslation(task, trained.label_columns, data)
    if task == "ranking" and not data.schema.queried:
        raise InputError(
            f"the data at {data.url} has no queries, and the model is a ranking; ingest svmlight "
            "with a qid:N in each line, or give Parquet a column 'query'"
        )
    if data.n_rows == 0:
        raise InputError(f"the data at {data.url} has no rows; an evaluation needs at least one")


def check_features(trained: Schema, data: Schema) -> None:
    """Raise `InputError` unless `data` has the features of a model that was `trained` on others.

    The number of features must be the same, unless the source numbers its features itself: then
    held-out rows may lack the last features, or have new ones, which weigh 0.
    """
    mine, theirs = trained.feature_space or {}, data.feature_space or {}
    keys = sorted({*mine, *theirs} - {"reading"})
    differing = [key for key in keys if mine.get(key) != theirs.get(key)]
    if "format" in differing:  # all else differs as well
        differing = ["format"]
    remedy = "ingest the data with --like and the model"
    if differing:
        space_of_data, space_of_model = (
            ", ".join(f"{key} {space.get(key)!r:.{_MAX_SHOWN}}" for key in differing)
            for space in (theirs, mine)
        )
        raise InputError(
            f"the data is in another feature space than the model: it has {space_of_data}, the "
            f"model was trained with {space_of_model}; {remedy}"
        )
    if data.n_features != trained.n_features and not data.numbers_own_features:
        raise InputError(
            f"the model was trained on {trained.n_features} features and the data has "
            f"{data.n_features}; {remedy}"
        )


class LabelTranslation:
    """Translation of the labels of `data` into the values that a model of `columns` has for them.

    Each dataset numbers the labels that were text on its own, so their names are compared.
    """

    def __init__(self, task: Task, columns: Sequence[LabelColumn], data: Dataset) -> None:
        theirs = data.schema.label_columns
        if not theirs:
            raise InputError(
                f"the data at {data.url} has no labels to compare predictions with; ingest it "
                "with its labels, that is without --no-labels (in Parquet, the column must be "
                "named 'label'), or use `dadagrad predict`"
            )
        if len(columns) != len(theirs):
            raise InputError(
                f"the model has {len(columns)} label columns and the data at {data.url} has "
                f"{len(theirs)}; evaluate it on data with the same"
            )
        if not has_classes(task) and any(column.names for column in theirs):
            raise InputError(
                f"the labels of {data.url} are text, and the model is a {task} on numbers"
            )
        pairs = zip(columns, theirs, strict=True) if has_classes(task) else []
        self._columns = [_ColumnTranslation(mine, other, data.url) for mine, other in pairs]

    def __call__(self, labels: Array, first: int) -> Array:
        """Translate (n_rows, n_label_columns) `labels`; row `first` of the data has the first."""
        if not self._columns:
            return labels
        columns = zip(self._columns, labels.T, strict=True)
        return np.stack([column.translate(values, first) for column, values in columns], axis=1)


class _ColumnTranslation:
    """Translation of one label column."""

    def __init__(self, ours: LabelColumn, theirs: LabelColumn, url: str) -> None:
        self._known = dict(zip(ours.texts, ours.values or (), strict=True))
        self._place = url if theirs.name == "label" else f"{url}: column {theirs.name!r}"
        if (ours.names is None) != (theirs.names is None):
            mine, other = ("numbers", "text") if ours.names is None else ("text", "numbers")
            raise InputError(
                f"{self._place} has labels that are {other}, those of the model are {mine}; ingest "
                "the data with the labels of the training data"
            )
        values, texts = theirs.values, theirs.texts
        if values is None:
            values, texts = ours.values or (), ours.texts
        for text in texts:
            if text not in self._known:
                raise self._unknown(text if ours.names is None else repr(text))
        # A last value that equals no label stands for those that are not known.
        self._from = np.array([*values, np.nan])
        self._to = np.array([self._known[text] for text in texts])

    def translate(self, labels: Array, first: int) -> Array:
        position = np.searchsorted(self._from[:-1], labels)
        wrong = np.flatnonzero(self._from[position] != labels)
        if len(wrong):
            row = int(wrong[0])
            raise self._unknown(f"{labels[row]:g} (row {first + row})")
        translated: Array = self._to[position]
        return translated

    def _unknown(self, label: str) -> InputError:
        return InputError(
            f"{self._place} has the label {label:.{_MAX_SHOWN}}, which the model was not trained "
            f"on; it knows {listed(list(self._known))}"
        )
