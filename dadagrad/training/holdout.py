"""Rows that are held out: a share of the data of a run, or other data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from dadagrad.config import TrainConfig
from dadagrad.data.dataset import Dataset
from dadagrad.data.ingest.ingest import as_dataset
from dadagrad.data.ingest.sources import is_raw
from dadagrad.data.skipping import skipping
from dadagrad.data.views import hold_out
from dadagrad.errors import InputError, OnError
from dadagrad.model.evaluate import evaluate, suit
from dadagrad.model.model import Model
from dadagrad.optim.losses import Loss
from dadagrad.problem import Problem
from dadagrad.storage.backends import absolute
from dadagrad.training.result import TrainResult


@dataclass(frozen=True, slots=True)
class Holdout:
    """Rows that the models of a run are measured on.

    Attributes
    ----------
    rows : Dataset
        The rows, without partitions that are skipped.
    data : Dataset or None
        All of them, where they are not a share of the data of the run.
    url : str or None
        The URL of these data, maybe of a raw file, if they have one.
    threads : int
        Threads that read and score.
    """

    rows: Dataset
    data: Dataset | None
    url: str | None
    threads: int

    def measure(self, model: Model, loss: Loss, *, curves: bool = False) -> dict[str, Any]:
        """Measure a model, as `dadagrad.evaluate` does; with the URL of other data as ``data``."""
        place = {} if self.data is None else {"data": self.url or self.data.url}
        return place | evaluate(model, self.rows, loss=loss, curves=curves, threads=self.threads)

    def report(self, result: TrainResult, loss: Loss, losses: list[float]) -> None:
        """Add the metrics of a model to its report, also where the model is saved already.

        The model comes first: one that took hours is not lost with rows that cannot be read.
        `losses` are those after each pass, if they were measured.
        """
        measured = self.measure(result.model, loss, curves=True)
        if losses:
            measured["loss_of_pass"] = losses
        result.report["holdout"] = result.model.report["holdout"] = measured
        if result.saved_to is not None:
            result.model.save_report(result.saved_to)


def split_setting(holdout: Any, settings: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return other data, if `holdout` is not a share, and `settings` with the share.

    None is neither: the configuration decides.
    """
    if holdout is None:
        return None, settings
    if isinstance(holdout, Real):
        return None, settings | {"holdout": holdout}
    return holdout, settings | {"holdout": 0.0}


def split_share(data: Dataset, config: TrainConfig) -> tuple[Dataset, Dataset | None]:
    """Return the rows to learn from, and those held out, if the configuration asks for some."""
    return hold_out(data, config.holdout, config.seed) if config.holdout else (data, None)


def split_holdout(
    data: Dataset,
    holdout: Any,
    problem: Problem,
    *,
    threads: int,
    on_error: OnError,
    skipped: Mapping[str, str] | None,
) -> tuple[Dataset, Holdout | None]:
    """Return the rows to learn from, and those of `data`, or of other data, to measure on.

    Rows of other data get the features and the numbers of the labels of `data`. Raises `InputError`
    if no model of `problem` can be measured on them, or if early stopping has none.
    """
    learned, share = split_share(data, problem.config)
    if holdout is not None:
        options: dict[str, Any] = {"on_error": on_error} if is_raw(holdout) else {}
        rows = as_dataset(holdout, like=data, shuffle=None, **options)
        rows = suit(problem.task, data.schema, rows)
        url = absolute(os.fspath(holdout)) if isinstance(holdout, str | os.PathLike) else None
        return learned, Holdout(skipping(rows, on_error), rows, url, threads)
    if share is not None:
        return learned, Holdout(skipping(share, on_error, skipped), None, None, threads)
    if problem.config.early_stopping:
        raise InputError(
            "early_stopping measures the loss on rows that are held out; give --holdout, such as "
            "0.1, or leave out early_stopping"
        )
    return learned, None
