"""What comes of a run: a model, and a report in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dadagrad.algorithm import has_step_size
from dadagrad.data.dataset import Dataset
from dadagrad.data.skipping import n_skipped, skipped_partitions
from dadagrad.method import Method
from dadagrad.model import Model
from dadagrad.training.begin import AnyCoordinator
from dadagrad.training.states import TrainingState, nonzero_weights


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a run made.

    Attributes
    ----------
    model : Model
    report : dict
        Counts, rates and losses, as `dadagrad train --json` prints them. `bytes_per_step` is what
        the weights sent to the workers of a cluster and the gradients received took, in the mean
        of this call's steps; None without a cluster.
    complete : bool
        False where the run was stopped on request and can be resumed.
    coordinator : Coordinator
        As the run left it, with the whole state: for whoever goes on training.
    """

    model: Model
    report: dict[str, Any]
    complete: bool
    coordinator: AnyCoordinator = field(repr=False)


def make_model(
    method: Method, state: TrainingState, data: Dataset, report: dict[str, Any]
) -> Model:
    """The predict-only model: the features with a weight, their names where known."""
    ids, weights = nonzero_weights(method, state)
    return Model(
        n_features=method.n_features,
        ids=ids,
        weights=weights,
        intercept=state.intercepts(method),
        loss=method.config.loss,
        task=method.task,
        label_columns=method.label_columns,
        feature_space=data.schema.feature_space,
        names=data.names(ids),
        report={**report, "config": method.config.to_json(), "data": data.url},
    )


def make_report(
    coordinator: AnyCoordinator, data: Dataset, complete: bool, seconds: float
) -> dict[str, Any]:
    """Counts, rates and losses of a run on `data` that took so long; plain JSON."""
    tally, method = coordinator.tally, coordinator.method
    error = tally.error(method)
    return {
        "examples": tally.examples,
        "steps": coordinator.steps,
        "passes": coordinator.cursor.pass_number,
        "seconds": seconds,
        "examples_per_second": tally.examples / seconds,
        "nnz_per_second": tally.entries / seconds,
        "progressive_loss": float(tally.mean_loss(method)[0]),
        "progressive_error": None if error is None else float(error[0]),
        "features": method.n_features,
        "step_size": method.step_sizes[0] if has_step_size(method.config) else None,
        "batch_size": method.config.batch_size,
        "delay": method.delay,
        "skipped": n_skipped(data),
        "skipped_partitions": list(skipped_partitions(data)),
        "complete": complete,
    }
