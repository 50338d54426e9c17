"""Training of an estimator, and what the estimator keeps of it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dadagrad.clusters import has_active_client
from dadagrad.config import TrainConfig
from dadagrad.data.dataset import IN_MEMORY, Dataset, MemoryDataset
from dadagrad.data.tables.encoder import scales_cells
from dadagrad.errors import InputError
from dadagrad.estimators.arguments import is_stored
from dadagrad.model.model import Model
from dadagrad.model.raw import is_unprepared
from dadagrad.problem import Problem
from dadagrad.progress.display import ProgressDisplay, RunDisplay
from dadagrad.summary import run_lines
from dadagrad.training.callbacks import Callbacks, as_callbacks
from dadagrad.training.checkpoints.reader import CheckpointReader
from dadagrad.training.checkpoints.snapshot import Start, check_settings
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.engines.resources import Resources
from dadagrad.training.engines.warm_up import warm_up
from dadagrad.training.execution import Run
from dadagrad.training.initial import (
    InitialState,
    config_of,
    continue_problem,
    continue_state,
    load_with_state,
)
from dadagrad.training.messages import Place
from dadagrad.training.result import TrainResult, make_model, make_report
from dadagrad.training.run import resume, train
from dadagrad.training.schedule import resolve_config
from dadagrad.training.schedule.base import Cursor
from dadagrad.training.state.base import TrainingState

_CUMULATIVE = (
    "rows", "steps", "progressive_loss", "progressive_error", "features", "step_size",
    "batch_size", "settings", "best", "calibration",
)  # fmt: skip
"""Entries of a report that describe all calls of `partial_fit` together."""


@dataclass(eq=False)
class FittedState:
    """State of training, and the model and coefficients, which are made when first asked for.

    `partial_fit` changes `state` in place and makes a new `FittedState`; a model that was made
    before stays as it is. `state` is None for a model that was saved without it. `origin` is the
    training data without rows.
    """

    problem: Problem
    state: TrainingState | None
    place: Place
    origin: Dataset
    report: dict[str, Any]
    feature_names: NDArray[np.object_] | None = None
    sparse: bool = False
    _model: Model | None = None

    @property
    def names(self) -> Mapping[int, str]:
        """Names of features in the model, if it is there already."""
        return {} if self._model is None else self._model.names

    @property
    def model(self) -> Model:
        """The model, which can be saved."""
        if self._model is None:
            assert self.state is not None, "a model that was saved is there"
            self._model = make_model(self.problem, self.state, self.origin, self.report)
        names = self.feature_names
        if names is not None and not self._model.names:
            named = {column: str(names[column]) for column in self._model.ids.tolist()}
            self._model = replace(self._model, names=named)
        return self._model

    def are_columns(self, X: Any) -> bool:
        """True for rows of columns, of which the training data made features.

        True as well for a matrix that may hold raw cells of such columns, which the model refuses.
        """
        schema = self.origin.schema
        if is_unprepared(schema, X):
            return schema.feature_space.of_table
        return not is_stored(X) and scales_cells(schema.feature_space)

    def refuse_columns(self, X: Any) -> None:
        """Raise `InputError` for rows of columns, whose features are not made here."""
        if self.are_columns(X):
            raise InputError(
                "the features of this model were made of the columns of a table; give partial_fit "
                "a dataset of dadagrad.ingest(table, like=model), or go on by "
                "dadagrad.train(table, initial_model=model)"
            )

    @cached_property
    def coefficients(self) -> Any:
        """(n_outputs, n_features) float64: an array, or a CSR matrix."""
        model = self.model
        shape = model.n_outputs, model.n_features
        if self.sparse:
            kept = scipy.sparse.csr_matrix(model.weights.T.astype(np.float64))
            entries = kept.data, model.ids[kept.indices], kept.indptr
            return scipy.sparse.csr_matrix(entries, shape)
        coefficients = np.zeros(shape)
        coefficients[:, model.ids] = model.weights.T
        coefficients.flags.writeable = False  # predictions are those of the model
        return coefficients

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the coefficients, which the model holds in less space."""
        return {name: kept for name, kept in self.__dict__.items() if name != "coefficients"}


def restore(source: Any, objects: Mapping[str, Any]) -> FittedState:
    """Return the state of a `Model` or `TrainResult`, or of the model that was saved at a URL.

    `objects` are those of `config_of`.
    """
    model, arrays = load_with_state(source)
    config = config_of(source, model, objects)
    problem = Problem(config, model.task, model.label_columns, model.n_features)
    state, place = None, Place()
    if arrays:
        problem, start = InitialState(model, config, arrays).begin(problem)
        state, place = start.state, start.place
    place = replace(place, steps=model.report.get("steps", 0))
    origin = MemoryDataset((), model.schema, str(model.report.get("data")))
    names = None
    if not model.feature_space and len(model.names) == model.n_features:
        names = np.array([model.names[column] for column in range(model.n_features)], object)
    return FittedState(problem, state, place, origin, model.report, names, _model=model)


def _state_at_end(
    end: Coordinator, data: Dataset, report: dict[str, Any], model: Model | None
) -> FittedState:
    """Return the state at the end of a run on `data`, with its `model` if it was made already."""
    origin = MemoryDataset((), data.schema, data.url)
    return FittedState(end.problem, end.state, end.place, origin, report, _model=model)


def _display(verbose: int, callbacks: Callbacks | None) -> dict[str, Any]:
    """The arguments `callbacks` and `messages` of a run, which show it if `verbose` is above 0."""
    receivers = as_callbacks(callbacks)
    if verbose <= 0:
        return {"callbacks": receivers}
    display = ProgressDisplay()
    return {"callbacks": [RunDisplay(display), *receivers], "messages": display.say}


def fit(
    data: Dataset,
    config: TrainConfig,
    resources: dict[str, Any],
    checkpoints: str | None,
    verbose: int = 0,
    callbacks: Callbacks | None = None,
) -> FittedState:
    """Train on `data` from the start, or from the checkpoints of the same run.

    Raises `InputError` if `checkpoints` holds another run, `KeyboardInterrupt` if interrupted.
    """
    are_arrays = data.url == IN_MEMORY
    if not are_arrays and not any(resources.values()) and has_active_client():
        warnings.warn(
            "a Dask client is active, and training runs in this process; client='current' trains "
            "on its workers, and threads=N in this process without this warning",
            stacklevel=5,
        )
    config = resolve_config(data, config, on_cluster=resources["client"] is not None)
    shown = _display(verbose, callbacks)
    if checkpoints is not None and CheckpointReader(checkpoints).list():
        meta = CheckpointReader(checkpoints).newest_meta()
        check_settings(meta["config"], config, checkpoints)
        names = "loss", "regularizer", "preconditioner", "update"
        objects = {name: getattr(config, name) for name in names}  # a checkpoint has their names
        result = resume(checkpoints, data=data, **objects, **resources, **shown)
    else:
        result = train(data, config, **resources, checkpoints=checkpoints, **shown)
    if verbose > 0:
        for line in run_lines(result.report, result.model.loss):
            ProgressDisplay().say(line)
    if not result.complete:
        later = f"; fit again to go on from {checkpoints}" if checkpoints else ""
        raise KeyboardInterrupt(f"training was interrupted{later}")
    return _state_at_end(result.coordinator, data, result.report, result.model)


def partial_fit(
    data: Dataset,
    config: TrainConfig,
    threads: int | None,
    before: FittedState | None,
    verbose: int = 0,
    callbacks: Callbacks | None = None,
) -> FittedState:
    """Learn from one pass over `data`, starting from `before`, whose state is changed.

    The label columns of `data` have all classes of all calls. `step_size="auto"` stands for the
    step size of `before`, or is chosen on `data`.
    """
    if before is not None and before.state is None:
        raise InputError(
            "partial_fit continues from the state of training, and this model was saved without "
            "it; save it by TrainResult.save(URL, keep_state=True), or call fit"
        )
    resources = Resources(threads=threads)
    config = replace(resolve_config(data, config, on_cluster=False), passes=1)
    run = Run(data, config, resources)
    start = None
    if before is None:
        run.check([], checkpoints=False)
    else:
        assert before.state is not None
        run.problem = continue_problem(run.problem, before.problem)
        before.state = continue_state(run.problem, before.state.arrays, before.state.t)
        place = replace(before.place, cursor=Cursor(), passes=before.place.passes[:1])
        start = Start(before.state, place)
    warm_up(run.problem, run.messages)
    # The rows of this call count as new ones, beside those of the first pass of `fit`.
    later_passes = () if before is None else before.place.passes[1:]
    with resources.engine(data) as engine:
        if start is None:
            start = run.begin(engine)
        else:
            run.go_on(engine, start)
        watcher = run.watch(engine, start, _display(verbose, callbacks)["callbacks"])
        with watcher.events():
            coordinator, complete = run.learn(engine, start, watcher)
            if not complete:
                raise KeyboardInterrupt(
                    "training was interrupted; the model has learned from some rows"
                )
            report = make_report(coordinator, data, complete, watcher.seconds)
            report = {name: report[name] for name in _CUMULATIVE}
            if before is not None:
                first_rows = sum(metrics.rows for metrics in before.place.passes[:1])
                report["rows"] += before.report["rows"] - first_rows
            model = None
            if not isinstance(data, MemoryDataset):
                # The model is made while the dataset is open, which knows the names of features.
                known = {} if before is None else before.names
                model = make_model(coordinator.problem, coordinator.state, data, report, known)
            state = _state_at_end(coordinator, data, report, model)
            state.place = replace(state.place, passes=state.place.passes + later_passes)
            state.sparse = before is not None and before.sparse
            if callbacks is not None:
                watcher.result = TrainResult(state.model, report, complete, coordinator)
    return state
