"""Progressive validation: each row is predicted before it is learned from, and counted here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import InputError, TrainingError
from dadagrad.losses import check_targets

if TYPE_CHECKING:
    from dadagrad.data.rows import Rows
    from dadagrad.method import Method


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over rows; tallies of disjoint rows add up.

    Attributes
    ----------
    examples, entries : int
        Rows of positive importance, and their non-zeros.
    weight : float
        Total importance.
    loss : (n_settings,) float64
        Importance-weighted sum of the loss of each setting: the mean over its targets, or the one
        loss of all its outputs where it couples them.
    mistakes : (n_settings,) float64
        Importance-weighted count of the rows that were predicted wrong; for a multilabel task
        the mean over its labels.
    """

    examples: int
    entries: int
    weight: float
    loss: NDArray[np.float64]
    mistakes: NDArray[np.float64]

    @classmethod
    def zero(cls, method: Method) -> Tally:
        return cls(0, 0, 0.0, np.zeros(method.n_settings), np.zeros(method.n_settings))

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.examples + other.examples,
            self.entries + other.entries,
            self.weight + other.weight,
            self.loss + other.loss,
            self.mistakes + other.mistakes,
        )

    def __sub__(self, other: Tally) -> Tally:
        """What was counted since `other`."""
        return Tally(
            self.examples - other.examples,
            self.entries - other.entries,
            self.weight - other.weight,
            self.loss - other.loss,
            self.mistakes - other.mistakes,
        )

    def mean_loss(self, method: Method) -> NDArray[np.float64]:
        """Mean loss of each setting over rows and targets; NaN before the first row."""
        return self.loss / self.weight if self.weight else np.full(method.n_settings, np.nan)

    def error(self, method: Method) -> NDArray[np.float64] | None:
        """Share of rows predicted wrong, by setting; None for a regression."""
        if method.task == "regression":
            return None
        return self.mistakes / self.weight if self.weight else np.full(method.n_settings, np.nan)

    def to_json(self) -> dict[str, Any]:
        return {
            "examples": self.examples,
            "entries": self.entries,
            "weight": self.weight,
            "loss": self.loss.tolist(),
            "mistakes": self.mistakes.tolist(),
        }

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Tally:
        return cls(
            int(plain["examples"]),
            int(plain["entries"]),
            float(plain["weight"]),
            np.array(plain["loss"], np.float64),
            np.array(plain["mistakes"], np.float64),
        )


def count(
    method: Method,
    margins: NDArray[np.float64],
    rows: Rows,
    importance: NDArray[np.float64] | None,
    where: str,
    first_row: int,
) -> Tally:
    """Count `rows`, the first of which is row `first_row` of `where`, by their margins.

    Raises
    ------
    TrainingError
        A margin is not finite; names `where` and the row.
    InputError
        A label is not one of the classes, or no target of the loss; names `where`, the row and
        the label.
    """
    finite = np.isfinite(margins).all(axis=1)
    if not finite.all():
        row = first_row + int(np.flatnonzero(~finite)[0])
        raise TrainingError(
            f"{where}: the margin of row {row} is not finite, so the weights have diverged or a "
            f"value is too large; choose a step size below {max(method.step_sizes):g}, or "
            "normalise the rows"
        )
    _check_labels(method, rows.labels, where, first_row)
    targets = method.targets(rows.labels)
    losses = _losses(method, margins, targets)
    mistakes = _mistakes(method, margins, targets, rows.labels)
    # Plain sums of columns: a product with BLAS has other bits on another number of threads.
    if importance is None:
        return Tally(
            rows.n_rows,
            rows.nnz,
            float(rows.n_rows),
            _per_setting(method, losses.sum(axis=0)),
            mistakes.sum(axis=0),
        )
    counted = importance > 0.0
    return Tally(
        int(np.count_nonzero(counted)),
        int(np.diff(rows.indptr)[counted].sum()),
        float(importance.sum()),
        _per_setting(method, (importance[:, None] * losses).sum(axis=0)),
        (importance[:, None] * mistakes).sum(axis=0),
    )


def _losses(
    method: Method, margins: NDArray[np.float64], targets: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(n_rows, n_outputs), or (n_rows, n_settings) where the loss couples outputs."""
    if not method.loss.couples:
        return method.loss.value(margins, targets)
    shape = (len(margins), method.n_settings, method.n_targets)
    return method.loss.value(margins.reshape(shape), targets.reshape(shape))


def _per_setting(method: Method, losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of each setting's share of `losses`."""
    means: NDArray[np.float64] = losses.reshape(method.n_settings, -1).mean(axis=1)
    return means


def _mistakes(
    method: Method,
    margins: NDArray[np.float64],
    targets: NDArray[np.float64],
    labels: NDArray[np.float64],
) -> NDArray[np.float64]:
    """(n_rows, n_settings): 1 where a row is predicted wrong. A margin of 0 predicts -1.

    Of a ranking a row is a pair, and wrong where the order is; equal scores are no order.
    """
    shape = (len(margins), method.n_settings, method.n_targets)
    if method.task == "regression":
        return np.zeros(shape[:2])
    if method.task == "multiclass":
        predicted = method.classes[margins.reshape(shape).argmax(axis=2)]
        return np.asarray(predicted != labels[:, :1], np.float64)
    wrong: NDArray[np.float64] = ((margins > 0) != (targets > 0)).reshape(shape).mean(axis=2)
    return wrong


def _check_labels(method: Method, labels: NDArray[np.float64], where: str, first_row: int) -> None:
    if method.task in ("regression", "ranking"):
        check_targets(method.loss, labels, where, first_row)
        return
    for number, column in enumerate(method.label_columns):
        values = np.array(column.values)
        known = np.isin(labels[:, number], values)
        if not known.all():
            row = int(np.flatnonzero(~known)[0])
            raise InputError(
                f"{where}: row {first_row + row} has label {labels[row, number]:g} in column "
                f"{column.name!r}, which is not one of the declared classes "
                f"({', '.join(f'{value:g}' for value in values[:10])})"
            )
