"""Progressive validation: each row is predicted before it is learned from, and counted here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dadagrad.errors import InputError, TrainingError
from dadagrad.losses import check_targets
from dadagrad.training.spread import in_turn

if TYPE_CHECKING:
    from dadagrad.kernels import Batch
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


class Counter:
    """Counts the rows of a piece, bundle of outputs by bundle.

    Parameters
    ----------
    method : Method
    batch : Batch
        The rows, the first of which is row `first_row` of `where`.
    margins : (n_outputs, n_rows) float64
        Those of a bundle must be there when it is counted, and stay.
    """

    def __init__(
        self,
        method: Method,
        batch: Batch,
        margins: NDArray[np.float64],
        where: str,
        first_row: int,
    ) -> None:
        self._method = method
        self._batch = batch
        self._margins = margins
        self._where = where
        self._first_row = first_row
        self._loss = np.zeros(method.n_bundles if method.loss.couples else method.n_outputs)
        self._mistakes = np.zeros(method.n_outputs)
        # Bundles of which some row cannot be counted.
        self._not_finite = np.zeros(method.n_bundles, np.bool_)
        self._unknown = np.zeros(method.n_bundles, np.bool_)

    def count(self, bundle: int) -> None:
        """Count the rows by the margins of one bundle; several threads may count at a time."""
        width = self._method.bundle_width
        outputs = range(bundle * width, (bundle + 1) * width)
        if self._method.loss.couples:
            self._count_coupled(bundle, self._margins[outputs.start : outputs.stop].T)
            return
        for output in outputs:
            self._count_output(bundle, output)

    def _count_output(self, bundle: int, output: int) -> None:
        from dadagrad.loss_kernels import count_rows

        method, problem = self._method, self._method.problem
        own = slice(output, output + 1)
        problem = problem._replace(
            label_column=problem.label_column[own], positive=problem.positive[own]
        )
        other = np.nan
        if method.task in ("binary", "multilabel"):
            other = method.label_columns[problem.label_column[0]].values[0]
        loss, mistakes, unknown = count_rows(self._batch, problem, other, self._margins[output])
        self._loss[output], self._mistakes[output] = loss, mistakes
        self._not_finite[bundle] |= np.isnan(loss)
        self._unknown[bundle] |= unknown > 0

    def _count_coupled(self, bundle: int, margins: NDArray[np.float64]) -> None:
        """The same for (n_rows, n_targets) margins of a loss that couples them."""
        if not np.isfinite(margins).all():
            self._not_finite[bundle] = True
            return
        wanted = self._method.classes == self._batch.labels.T
        losses = self._method.loss.value(margins, np.where(wanted, 1.0, -1.0))
        self._loss[bundle] = self._weighted(losses)

    def _weighted(self, rows: NDArray[Any]) -> float:
        """The importance-weighted sum of (n_rows,) numbers."""
        importance = self._batch.importance
        # No product with BLAS, which has other bits on another number of threads.
        return float((importance * rows).sum() if len(importance) else rows.sum())

    def tally(self) -> Tally:
        """What was counted, when all bundles have been.

        Raises
        ------
        TrainingError
            A margin is not finite; names `where` and the row.
        InputError
            A label is not one of the classes, or no target of the loss; names `where`, the row
            and the label.
        """
        self._check()
        method, batch = self._method, self._batch
        lengths = np.diff(batch.indptr)
        n_rows = len(lengths)
        counted = batch.importance > 0.0 if len(batch.importance) else np.ones(n_rows, np.bool_)
        if method.task == "multiclass":
            mistakes = self._wrong_classes()
        elif method.task == "regression":
            mistakes = np.zeros(method.n_settings)
        else:
            mistakes = self._mistakes.reshape(method.n_settings, -1).mean(axis=1)
        return Tally(
            int(np.count_nonzero(counted)),
            int(lengths[counted].sum()),
            float(batch.importance.sum()) if len(batch.importance) else float(n_rows),
            self._loss.reshape(method.n_settings, -1).mean(axis=1),
            mistakes,
        )

    def _wrong_classes(self) -> NDArray[np.float64]:
        """(n_settings,): rows of which another class has the largest margin."""
        method, labels = self._method, self._batch.labels[0]
        settings = self._margins.reshape(method.n_settings, method.n_targets, -1)
        return np.array(
            [
                self._weighted(method.classes[margins.argmax(axis=0)] != labels)
                for margins in settings
            ]
        )

    def _check(self) -> None:
        method, labels = self._method, self._batch.labels.T
        if self._not_finite.any():
            finite = np.isfinite(self._margins).all(axis=0)
            for row in np.flatnonzero(~finite)[:1]:
                raise TrainingError(
                    f"{self._where}: the margin of row {self._first_row + row} is not finite, so "
                    "the weights have diverged or a value is too large; choose a step size below "
                    f"{max(method.step_sizes):g}, or normalise the rows"
                )
        if method.task in ("regression", "ranking"):
            check_targets(method.loss, labels, self._where, self._first_row)
        elif method.task == "multiclass" or self._unknown.any():
            for number, column in enumerate(method.label_columns):
                known = np.isin(labels[:, number], np.array(column.values))
                if not known.all():
                    self._refuse_label(int(np.flatnonzero(~known)[0]), number)

    def _refuse_label(self, row: int, number: int) -> NoReturn:
        column = self._method.label_columns[number]
        values = column.values or ()
        raise InputError(
            f"{self._where}: row {self._first_row + row} has label "
            f"{self._batch.labels[number, row]:g} in column {column.name!r}, which is not one of "
            f"the declared classes ({', '.join(f'{value:g}' for value in values[:10])})"
        )


def count(
    method: Method, batch: Batch, margins: NDArray[np.float64], where: str, first_row: int
) -> Tally:
    """Count the rows of `batch` by their (n_outputs, n_rows) margins: see `Counter`."""
    counter = Counter(method, batch, np.ascontiguousarray(margins), where, first_row)
    in_turn(counter.count, method.n_bundles)
    return counter.tally()
