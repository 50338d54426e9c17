"""The learning curve of a run: loss and error as rows go by, kept with checkpoints and model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dadagrad.training.callbacks import Callback, RoundEvent

SPACING = 32
"""A point is kept where the rows have grown by one part in so many, and at the end of a pass."""
COLUMNS = ("rows", "pass_number", "weight", "loss", "error", "seconds")


@dataclass(slots=True)
class LearningCurve(Callback):
    """Points of a learning curve, whose number grows with the logarithm of the rows.

    Attributes
    ----------
    points : list of tuple
        Rows so far, number of the pass, total importance of its rows, their mean loss and error
        (None for a regression), and the seconds of the run.
    """

    points: list[tuple[int, int, float, float, float | None, float]] = field(default_factory=list)

    def on_round(self, event: RoundEvent) -> None:
        """Add a point if the last one is far enough."""
        rows, last = event.rows, self.points[-1][0] if self.points else 0
        if rows <= last:  # the run went back to a checkpoint
            self.points = [point for point in self.points if point[0] < rows]
        elif rows < last + last // SPACING and not event.ends_pass:
            return
        weight, loss = event.passes[-1].weight, event.loss
        if weight and math.isfinite(loss):
            point = (rows, event.pass_number, weight, loss, event.error, event.seconds)
            self.points.append(point)

    def to_json(self) -> dict[str, Any]:
        """Return the curve as plain JSON: a list for each of `COLUMNS`."""
        columns = zip(*self.points, strict=True) if self.points else ((),) * len(COLUMNS)
        return {name: list(column) for name, column in zip(COLUMNS, columns, strict=True)}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> LearningCurve:
        """Invert `to_json`; `ValueError`, `KeyError` or `TypeError` for anything else."""
        columns = (plain[name] for name in COLUMNS)
        return cls(
            [
                (
                    int(rows), int(number), float(weight), float(loss),
                    None if error is None else float(error), float(seconds),
                )
                for rows, number, weight, loss, error, seconds in zip(*columns, strict=True)
            ]
        )  # fmt: skip
