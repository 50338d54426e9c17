"""Reasons of predictions: the features that contribute most to the score of a row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.rows import Rows
from dadagrad.model.base import LinearModel
from dadagrad.optim.arrays import Array

Contribution = tuple[str, float]
"""The name of a feature, or else its id, and weight times value."""


def reasons_texts(
    model: LinearModel, rows: Rows, scores: Array, count: int
) -> dict[str, list[str]]:
    """Columns of reasons, in the words of `predict`, by their names.

    A reason is a feature and what it adds to the score, or takes from it: that of the larger of two
    classes, of the class that is predicted, or with several label columns of each.
    """
    outputs = np.zeros(rows.n_rows, np.int64)
    columns = {"reasons": outputs}
    if model.task == "multiclass":
        columns = {"reasons": scores.argmax(axis=1)}
    elif model.n_outputs > 1:
        names = enumerate(model.output_names)
        columns = {f"reasons_{name}": outputs + number for number, name in names}
    return {
        name: [
            "; ".join(f"{feature} {part:+.3g}" for feature, part in largest)
            for largest in contributions(model, rows, explained, count)
        ]
        for name, explained in columns.items()
    }


def contributions(
    model: LinearModel, rows: Rows, outputs: NDArray[np.int64], count: int
) -> Iterator[list[Contribution]]:
    """The `count` largest contributions to a score of each row, the largest absolute value first.

    With the intercept, all of them sum to the score. `outputs`, (n_rows,), has the number of the
    output whose score is explained. Features without a weight contribute nothing.
    """
    in_rows, in_model = model.common_features(rows)
    positions = np.full(rows.n_local, -1, np.int64)
    positions[in_rows] = in_model
    for row, output in enumerate(outputs.tolist()):
        begin, end = rows.indptr[row : row + 2].tolist()
        place = positions[rows.indices[begin:end]]
        known = place >= 0
        parts = model.weights[place[known], output].astype(np.float64)
        if rows.values is not None:
            parts *= rows.values[begin:end][known]
        if rows.row_scale is not None:
            parts *= rows.row_scale[row]
        largest = np.argsort(-np.abs(parts), kind="stable")[:count]
        largest = largest[parts[largest] != 0.0]
        ids = model.ids[place[known][largest]]
        names = model.schema.names_of(ids, model.names)
        yield [
            (str(feature) if name is None else name, part)
            for feature, name, part in zip(
                ids.tolist(), names, parts[largest].tolist(), strict=True
            )
        ]
