"""The result of a run: a model, and a report in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from dadagrad.data.dataset import IN_MEMORY, Dataset
from dadagrad.data.skipping import n_skipped, skipped_partitions
from dadagrad.errors import InputError
from dadagrad.model.model import Model, write_model
from dadagrad.model.stored_weights import model_digest
from dadagrad.model.writer import ModelWriter
from dadagrad.optim.calibration import CALIBRATIONS, Calibration, Uncalibrated, bin_scores, log_loss
from dadagrad.optim.registry import describe
from dadagrad.problem import Problem
from dadagrad.storage.arrays import AnyArray
from dadagrad.summary import html_table, percent, run_lines, significant
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.messages import Place
from dadagrad.training.progressive import ProgressiveMetrics, best_setting
from dadagrad.training.state import state_bytes
from dadagrad.training.state.base import TrainingState
from dadagrad.training.state.remote import RemoteWeights

MAX_KEPT_STATE, MAX_WRITTEN_STATE = 32 << 20, 1 << 30
"""Bytes other than 0, and bytes in all, of a state that is saved with a model unasked."""
MIN_LOG_LOSS = 0.9
"""Log loss of the last pass, as a share of that of the first, from which its rows calibrate."""


@dataclass(frozen=True, repr=False)
class TrainResult:
    """Result of a run.

    Attributes
    ----------
    model : Model
        Where the workers of a cluster have written it, because it may be too large for this
        process, it is loaded at the first use. Raises `InputError` if another model has replaced
        it, or if the workers hold all weights of a run that was stopped.
    report : dict
        Counts, rates and losses, as `dadagrad train --json` prints them. `progressive_loss` and
        `progressive_error` are those of the first pass, in which each row is predicted before it is
        learned from; None before the first row. `by_pass` has both for each pass, of which the
        later are training losses and errors. `settings` are the step size, l1, l2, progressive loss
        and error of each setting that was learned (None where it diverged); the model is that of
        number `best`.
        `constant_loss` and `constant_error` are those of the best constant score. `repeatable` is
        True if the settings and the dataset alone make the model again. `earlier_rows` are those
        of the models that the run went on from.
        `bytes_per_step` is the mean size of the weights sent to workers and of the gradients
        received, for a step of this call; None without a cluster. `stopped_by` is the name of the
        signal that stopped the run, or None.
    complete : bool
        False if the run was stopped on request and can be resumed.
    coordinator : Coordinator
        The coordinator at the end of the run, with the whole state, to continue training.
    saved_to : str or None
        URL of the model, if the run has saved it.
    """

    _model: Model
    report: dict[str, Any]
    complete: bool
    coordinator: Coordinator
    saved_to: str | None = None

    @cached_property
    def model(self) -> Model:
        if self._remote_end is None:
            return self._model
        if self.saved_to is None:
            raise InputError(
                "the run was stopped, and its weights stayed on the workers of its cluster; go on "
                "with it from its checkpoints"
            )
        model = Model.load(self.saved_to)
        if model.digest != self.digest:
            raise InputError(
                f"the model of this run is not at {self.saved_to} any more: another one was saved "
                "there; give each run a folder of its own"
            )
        return model

    @property
    def digest(self) -> str | None:
        """The digest of the model, which is not loaded for it; None where `model` raises."""
        if self._remote_end is None:
            return self._model.digest
        stored = self._remote_end.stored
        return None if stored is None else model_digest(stored.digests, self._model.intercept)

    @property
    def loss(self) -> str:
        """The loss of the model."""
        return self._model.loss

    @property
    def _remote_end(self) -> RemoteWeights | None:
        """The end of the run, if `_model` is without its weights; None if it has them."""
        state = self.coordinator.state
        return state if isinstance(state, RemoteWeights) and state.ids is None else None

    def __repr__(self) -> str:
        report = self.report
        texts = [f"{report['rows']:,} rows" if self.complete else "stopped"]
        if report["progressive_error"] is not None:
            texts.append(f"error {percent(report['progressive_error'])}")
        if report["progressive_loss"] is not None:
            texts.append(f"{self.loss} loss {significant(report['progressive_loss'])}")
        return f"TrainResult({', '.join(texts)})"

    def _repr_html_(self) -> str:
        title, *_ = run_lines(self.report, self.loss)
        return html_table(title, {} if self.digest is None else self.model.facts())

    def state_arrays(self) -> dict[str, AnyArray]:
        """The state of the model's training, in the memory of the run."""
        problem, place, best = self.coordinator.problem, self.coordinator.place, self.report["best"]
        state = self.coordinator.state.of_setting(problem, best)
        metrics = {}
        if place.passes:
            first, earlier = place.passes[0], place.earlier
            metrics = (first if earlier is None else earlier + first).to_arrays(best)
        return state.arrays | problem.units.arrays | metrics | {"t": np.array([state.t])}

    def save(self, url: str, *, keep_state: bool | None = None) -> None:
        """Save the model, with the state from which ``train(..., initial_model=url)`` goes on.

        `keep_state` is by default True for a state of at most 32 MB other than 0, and 1 GB in
        all, if it is in this process. Raises as `Model.save`.
        """
        self.model.save(url, self._kept_state(keep_state))

    def _kept_state(self, keep_state: bool | None) -> dict[str, AnyArray]:
        if keep_state is not None:
            return self.state_arrays() if keep_state else {}
        is_large = state_bytes(self.coordinator.problem) > MAX_WRITTEN_STATE
        if is_large or isinstance(self.coordinator.state, RemoteWeights):
            return {}
        arrays, units = self.state_arrays(), self.coordinator.problem.units.arrays
        of_training = [array for name, array in arrays.items() if name not in units]
        nonzeros = sum(np.count_nonzero(array) * array.itemsize for array in of_training)
        return arrays if nonzeros <= MAX_KEPT_STATE else {}


def write_result(result: TrainResult, writer: ModelWriter, keep_state: bool | None) -> None:
    """Save as `TrainResult.save` does; the weights may be in the folder of `writer` already."""
    stored = None if result._remote_end is None else result._remote_end.stored
    write_model(writer, result._model, result._kept_state(keep_state), stored)


def make_model(
    problem: Problem,
    state: TrainingState,
    data: Dataset,
    report: dict[str, Any],
    names: Mapping[int, str] = MappingProxyType({}),
) -> Model:
    """The predict-only model: the features with a weight, their names in `data` or in `names`.

    Of several settings it is that of the best, whose number `report` has.
    """
    best = report.get("best", 0)
    state, problem = state.of_setting(problem, best), problem.settings[best]
    urls = [source.url for source in data.sources]
    ids, weights = state.nonzero_weights(problem)
    weights = problem.units.raw_weights(ids, weights)
    return Model(
        n_features=problem.n_features,
        ids=ids,
        weights=weights,
        intercept=problem.units.raw_intercept(state.intercepts(problem), ids, weights),
        loss=describe(problem.loss),
        task=problem.task,
        label_columns=problem.label_columns,
        feature_space=data.schema.feature_space,
        names={each: names[each] for each in ids.tolist() if each in names} | data.names(ids),
        calibration=CALIBRATIONS.make(report.get("calibration", "none")),
        report={
            **report,
            "config": problem.config.to_json(),
            "data": urls if len(urls) > 1 else data.url,
        },
        user_link=problem.loss.link,
    )


def model_of_setting(coordinator: Coordinator, data: Dataset, setting: int) -> Model:
    """The calibrated model of a setting between two passes, to be measured."""
    report = report_of_setting(coordinator.problem, coordinator.place, setting)
    return make_model(coordinator.problem, coordinator.state, data, report)


def report_of_setting(problem: Problem, place: Place, setting: int) -> dict[str, Any]:
    """The entries of a report that make the model that of a setting, with its calibration."""
    calibration = calibrate(problem, place.passes, setting, earlier=place.earlier)
    return {"best": setting, "calibration": describe(calibration)}


def make_report(
    coordinator: Coordinator,
    data: Dataset,
    complete: bool,
    seconds: float,
    n_passes: int | None = None,
) -> dict[str, Any]:
    """Counts, rates and losses of a run on `data` that took so long; plain JSON.

    The model is that after `n_passes`, by default after all.
    """
    metrics, problem, place = coordinator.metrics, coordinator.problem, coordinator.place
    passes, first = place.passes, coordinator.first_metrics
    settings, best = report_settings(coordinator), best_setting(passes)
    return {
        "rows": metrics.rows,
        "steps": place.steps,
        "passes": place.cursor.pass_number,
        "seconds": seconds,
        "rows_per_second": metrics.rows / seconds,
        "nnz_per_second": metrics.entries / seconds,
        **_mean_metrics(problem, first, best, "progressive_"),
        "by_pass": [
            {"rows": each.rows, "nnz": each.entries, **_mean_metrics(problem, each, best)}
            for each in passes
        ],
        "features": problem.n_features,
        "outputs": problem.n_targets,
        "step_size": settings[best]["step_size"],
        "average": problem.config.average is True,
        "batch_size": problem.config.batch_size,
        "streams": problem.config.n_streams,
        "skipped": n_skipped(data),
        "skipped_partitions": list(skipped_partitions(data)),
        "complete": complete,
        "earlier_rows": 0 if place.earlier is None else place.earlier.rows,
        "repeatable": place.earlier is None and (data.url == IN_MEMORY or not data.is_temporary),
        "settings": settings,
        "best": best,
        "calibration": describe(
            calibrate(problem, passes[:n_passes] or [first], best, earlier=place.earlier)
        ),
    }


def report_settings(coordinator: Coordinator) -> list[dict[str, Any]]:
    """Step size, l1, l2 and progressive metrics of each setting of a run; plain JSON."""
    problem, first = coordinator.problem, coordinator.first_metrics
    settings = [
        {
            "step_size": setting.step_size if problem.config.update.has_step_size else None,
            "l1": setting.config.l1,
            "l2": setting.config.l2,
            **_mean_metrics(problem, first, number, "progressive_"),
        }
        for number, setting in enumerate(problem.settings)
    ]
    for diverged in np.flatnonzero(~np.isfinite(coordinator.metrics.loss)).tolist():
        settings[diverged] |= {"progressive_loss": None, "progressive_error": None}
    return settings


def _mean_metrics(
    problem: Problem, metrics: ProgressiveMetrics, setting: int, prefix: str = ""
) -> dict[str, float | None]:
    """Mean loss and error of some rows, None without any; a regression has no error."""
    if not metrics.weight:
        return {f"{prefix}loss": None, f"{prefix}error": None}
    error = None if problem.task == "regression" else float(metrics.mean_error()[setting])
    return {f"{prefix}loss": float(metrics.mean_loss()[setting]), f"{prefix}error": error}


def calibrate(
    problem: Problem,
    passes: Sequence[ProgressiveMetrics],
    setting: int,
    *,
    earlier: ProgressiveMetrics | None = None,
) -> Calibration:
    """Fit the calibration of a setting to the scores of the first or the last pass.

    Those of the last pass are of weights closer to the final ones, but of rows that were learned
    from before. They serve where this makes little difference: where the log loss of the
    probabilities that are fitted to them is at least `MIN_LOG_LOSS` times that of the first pass.
    The scores of `earlier` runs are added to both.
    """
    calibration = problem.config.calibration
    fitted: list[tuple[Calibration, float]] = []
    for metrics in passes if len(passes) == 1 else (passes[0], passes[-1]):
        scores = bin_scores()[np.flatnonzero(metrics.histogram[setting].any(axis=1))]
        if not scores.any():
            continue  # all rows of the first batch have the score 0
        if earlier is not None:
            metrics = earlier + metrics
        histogram = metrics.histogram[setting]
        # The weights of rows, which grow with their number, are again their own in the mean, or 1
        # if these are less: the unit of weights does not say how many rows there are.
        n_rows = max(metrics.weight, metrics.rows)
        weights = histogram * (problem.n_targets * n_rows / histogram.sum())
        fit = calibration.fit(weights, even_at_0=problem.task != "multiclass")
        fitted.append((fit, log_loss(fit, histogram)))
    if not fitted:
        return calibration if problem.loss.classifies else Uncalibrated()
    (first, first_loss), (last, last_loss) = fitted[0], fitted[-1]
    is_whole = 2.0 * passes[-1].weight > passes[0].weight
    return last if is_whole and last_loss >= MIN_LOG_LOSS * first_loss else first
