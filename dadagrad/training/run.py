"""Training and resuming of runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dadagrad.config import SETTINGS, TrainConfig, make_config
from dadagrad.data.dataset import IN_MEMORY, Dataset, Schema
from dadagrad.data.ingest.ingest import arguments_of, split_options
from dadagrad.data.reading.options import OPTIONS
from dadagrad.data.views import with_label_columns
from dadagrad.errors import InputError, OnError
from dadagrad.optim.losses import Loss
from dadagrad.optim.preconditioners import Preconditioner
from dadagrad.optim.regularizers import Regularizer
from dadagrad.optim.updates import Update
from dadagrad.settings import check_names
from dadagrad.storage.backends import absolute
from dadagrad.training.callbacks import Callbacks, as_callbacks
from dadagrad.training.checkpoints.reader import CheckpointReader
from dadagrad.training.checkpoints.shards import StoredState
from dadagrad.training.checkpoints.snapshot import CheckpointSaver, Start, check_same_data, restore
from dadagrad.training.engines.resources import Resources
from dadagrad.training.engines.watcher import Watcher
from dadagrad.training.execution import Run
from dadagrad.training.holdout import split_setting, split_share
from dadagrad.training.initial import InitialModel, InitialState
from dadagrad.training.result import TrainResult
from dadagrad.training.schedule import resolve_config

__all__ = ["TrainResult", "resume", "train"]


def train(
    data: Any,
    config: TrainConfig | None = None,
    *,
    threads: int | None = None,
    workers: int | None = None,
    client: Any = None,
    memory: int | None = None,
    holdout: Any = None,
    checkpoints: str | None = None,
    save_every: int | None = None,
    save_seconds: float | None = 60.0,
    keep: int = 3,
    callbacks: Callbacks | None = None,
    messages: Callable[[str], None] | None = None,
    metadata: dict[str, Any] | None = None,
    on_error: OnError = "raise",
    trace: str | None = None,
    initial_model: InitialModel | None = None,
    save_to: str | None = None,
    keep_state: bool | None = None,
    **settings: Any,
) -> TrainResult:
    """Train a model on `data`.

    Parameters
    ----------
    data : Dataset, str, data frame, pair (X, y), or list of datasets
        A dataset or its URL; a matrix (NumPy, SciPy, dask) and its labels; or rows that are not a
        dataset yet: files, or a data frame of pandas, polars, pyarrow or dask, which are read as
        `ingest` reads them, or a pair (X, y) of a matrix and its labels, which are shuffled unless
        `shuffle` is False; a third item has the weights of the rows. Several datasets are learned
        from in their order in each pass, with the bits of runs on one after the other that go on
        from each other's model.
    config : TrainConfig, optional
        Settings, which decide every bit of the model.
    threads : int, optional
        Threads of this process; by default as many as it has cores.
    workers : int, optional
        Start a Dask cluster of so many processes on this machine, which share its cores, and train
        on it.
    client : distributed.Client or str, optional
        Train on the workers of a Dask cluster: a client, the address of a scheduler, or "current"
        for the active client. Rows that are not a dataset yet, such as those of a dask data frame,
        are first written for the workers to a temporary dataset, by the workers themselves as far
        as `ingest` can have them do it. It is in the folder of the environment variable TMPDIR,
        which all workers must see.
    memory : int, optional
        Bytes that the run may take in this process, by default the free memory. A run that is
        predicted to take more is refused.
    holdout : float, Dataset, str, pair (X, y) or data frame, optional
        Rows to measure the model on: a share of `data`, or other rows with labels, such as those of
        the last day, which get the features of `data` as in `dadagrad.evaluate`. Early stopping
        needs some.
    checkpoints : str or None
        URL of a folder for checkpoints; it must not hold another run's.
    save_every : int or None
        Steps between checkpoints.
    save_seconds : float or None
        Seconds between checkpoints where `save_every` is None.
    keep : int
        Checkpoints that are kept.
    callbacks : list of Callback or callable, optional
        Receivers of the events of the run; a function is called with the `RoundEvent` at the end of
        each round. An error that one raises ends the run.
    messages : callable or None
        Called with messages for people.
    metadata : dict
        Plain JSON that is stored with the checkpoints.
    on_error : "raise" or "skip"
        End the run at a partition that is missing or damaged, or leave it out from then on, like
        rows of weight 0; likewise for a malformed row of a raw file or a table. The bits are the
        same everywhere if the same partitions are bad when they are first read; the report names
        them.
    trace : str or None
        URL of a JSON file for the times of all tasks (`dadagrad.training.engines.trace`), which is
        replaced if it exists.
    initial_model : TrainResult or str, optional
        Go on from the state of an earlier run: its result, or the URL of its model that was saved
        with the state (`TrainResult.save`). Settings are by default those of that run.
    save_to : str, optional
        URL of a folder in which the model is saved at the end, as `TrainResult.save` does. If the
        state is too large for this process, and stays on the workers of a cluster, these write the
        weights, unless features have names or rows are held out.
    keep_state : bool, optional
        See `TrainResult.save`.
    **settings
        Single settings of `TrainConfig`, such as ``loss="hinge"``; they replace those of `config`.
        Lists of `step_size`, `l1` and `l2` are tried side by side in the same pass: the model is
        that with the least progressive loss, and the report has the losses of all. Options of
        `ingest` say how rows that are not a dataset become features, such as ``label="y"``.

    Raises
    ------
    InputError
        The data and the configuration do not fit, the run does not fit into memory, or
        `checkpoints` holds another run.
    TrainingError
        A score or gradient is not finite.
    CorruptionError
        A partition is missing or damaged, and `on_error` is "raise"; or all are.
    """
    _check_folders(checkpoints, save_to)
    receivers = as_callbacks(callbacks)
    options, settings = split_options(settings)
    holdout, settings = split_setting(holdout, settings)
    resources = Resources(threads, workers, client, memory, trace)
    initial = None
    if initial_model is not None:
        values = {name: getattr(config, name, None) for name in SETTINGS} | settings
        initial = InitialState.load(initial_model, values)
        options["like"] = initial.model
        if config is None:
            config = initial.config
    config = make_config(config, settings, arguments_of(train))
    data = resources.dataset(data, on_error, shuffle=config.row_order, **options)
    if initial is not None:
        data = initial.adopt(data)
    config = resolve_config(data, config, on_cluster=resources.on_cluster)
    run = Run(
        data, config, resources, holdout=holdout,
        on_error=on_error, messages=messages, save_to=save_to, keep_state=keep_state,
    )  # fmt: skip
    start = None
    if initial is not None:
        run.problem, start = initial.begin(run.problem)
        run.earlier_names = start.names
        config = run.problem.config
    # A cluster that is not there, or too little memory, is no beginning of a run.
    with resources.engine(run.readable) as engine:
        run.check(engine.workers(), checkpoints=checkpoints is not None)
        if checkpoints is None:
            return run.execute(engine, start=start, callbacks=receivers)
        with CheckpointSaver(
            checkpoints, run.readable, config, keep=keep, notes=metadata or {}, new=True,
            every=save_every, seconds=save_seconds, holdout=run.holdout,
        ) as saver:  # fmt: skip
            saver.begin(start, run.problem.units)
            return run.execute(engine, saver, start, receivers)


def resume(
    checkpoints: str,
    *,
    data: Any = None,
    holdout: Any = None,
    loss: Loss | str | None = None,
    regularizer: Regularizer | str | None = None,
    preconditioner: Preconditioner | str | None = None,
    update: Update | str | None = None,
    threads: int | None = None,
    workers: int | None = None,
    client: Any = None,
    memory: int | None = None,
    save_every: int | None = None,
    save_seconds: float | None = 60.0,
    keep: int = 3,
    callbacks: Callbacks | None = None,
    messages: Callable[[str], None] | None = None,
    on_error: OnError | None = None,
    trace: str | None = None,
    save_to: str | None = None,
    keep_state: bool | None = None,
    **options: Any,
) -> TrainResult:
    """Go on with the run whose checkpoints are at `checkpoints`, from the newest valid one.

    The model has the same bits as that of a run that never stopped. `data` is needed where the
    run's data was not a dataset at a URL, and `holdout` where other data to measure on was not.
    With early stopping it must be the same data. `options` are those of `ingest` with which `train`
    read the data, such as ``label="y"``. Other parameters are those of `train`. `on_error` is what
    it was unless given; what was skipped before stays so.

    A checkpoint has objects by name alone, and nothing read from it is imported: `loss`,
    `regularizer`, `preconditioner` and `update` are needed for objects of a user's own classes.

    Raises
    ------
    InputError
        There is no checkpoint; an object is missing or not that of the run; or the data is not
        what the run was started with.
    """
    check_names(options, OPTIONS, arguments_of(resume))
    receivers = as_callbacks(callbacks)
    resources = Resources(threads, workers, client, memory, trace)
    snapshot = CheckpointReader(checkpoints).load(read_shards=not resources.on_cluster)
    meta = snapshot.meta
    data = _data_or_url(data, "data", meta["data"], checkpoints)
    holdout = _data_or_url(holdout, "holdout", meta.get("holdout_data"), checkpoints)
    objects = {
        "loss": loss,
        "regularizer": regularizer,
        "preconditioner": preconditioner,
        "update": update,
    }
    config = TrainConfig.from_json(meta["config"], objects)
    data = _open_again(data, config, resources, meta, checkpoints, options)
    skipped = meta.get("skipped")
    if on_error is None or skipped:
        on_error = "raise" if skipped is None else "skip"
    run = Run(
        data, config, resources, holdout=holdout, on_error=on_error, skipped=skipped,
        messages=messages, save_to=save_to, keep_state=keep_state,
    )  # fmt: skip
    if config.early_stopping and run.holdout is not None and run.holdout.data is not None:
        check_same_data("holdout", run.holdout.data, meta.get("holdout_data"), checkpoints)
    start = None
    if snapshot.arrays:
        run.problem, start = restore(snapshot, run.problem, checkpoints)
        run.earlier_names = start.names
    is_complete = start is not None and start.place.cursor.pass_number >= config.passes
    if start is not None and is_complete and not (config.early_stopping or run.workers_write):
        return _finish_complete(run, start, checkpoints)
    with resources.engine(run.readable) as engine:
        run.check(engine.workers(), checkpoints=True)
        with CheckpointSaver(
            checkpoints, run.readable, config, keep=keep, notes=meta["notes"],
            every=save_every, seconds=save_seconds, holdout=run.holdout,
        ) as saver:  # fmt: skip
            return run.execute(engine, saver, start, receivers)


def _check_folders(checkpoints: str | None, save_to: str | None) -> None:
    """Refuse folders of a new run that are taken, before its data is read."""
    if checkpoints is not None and CheckpointReader(checkpoints).list():
        raise InputError(
            f"{checkpoints} already holds the checkpoints of a run; go on with it by "
            "`dadagrad resume`, or choose another folder"
        )
    if save_to and checkpoints and absolute(save_to) == absolute(checkpoints):
        raise InputError("save_to and checkpoints name the same folder; give each its own")


def _data_or_url(data: Any, name: str, described: Any, checkpoints: str) -> Any:
    """Return the `data` that `resume` was called with, by default the URL in the checkpoints.

    `name` is that of the parameter. Raises `InputError` if the run had the data in memory.
    """
    if data is not None or described is None:
        return data
    if described["url"] == IN_MEMORY:
        raise InputError(
            f"the run at {checkpoints} was started with {name} that was no dataset at a URL; give "
            f"the same {name} again to go on with it, and the options that read it, such as label="
        )
    return described["url"]


def _open_again(
    data: Any,
    config: TrainConfig,
    resources: Resources,
    meta: dict[str, Any],
    checkpoints: str,
    options: dict[str, Any],
) -> Dataset:
    """Open the data of a run; `InputError` if it is not the data that `meta` describes."""
    schema = Schema.from_json(meta["data"]["schema"])
    dataset = resources.dataset(data, shuffle=config.row_order, **options)
    with suppress(InputError):  # other data, of which the digest tells
        dataset = with_label_columns(dataset, schema.label_columns, schema.n_features)
    learned = split_share(dataset, config)[0]
    check_same_data("data", learned, meta["data"], checkpoints)
    learned.compare_content(meta.get("content", {}))
    return dataset


def _finish_complete(run: Run, start: Start, checkpoints: str) -> TrainResult:
    """Return the result of a run that is complete at `start`; save and measure it, if wanted."""
    if isinstance(start.state, StoredState):
        start = replace(start, state=start.state.weights_alone(run.problem))
    run.messages(f"the run at {checkpoints} is complete: there is nothing to resume")
    watcher = Watcher(seconds_before=start.seconds)
    result = run.result(run.coordinator(start), True, watcher, checkpoints, start)
    if run.save_to is not None:
        result.save(run.save_to, keep_state=run.keep_state)
    if run.holdout is not None:
        run.holdout.report(result, run.problem.loss, start.record.losses)
    return result
