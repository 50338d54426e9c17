"""Training for an estimator: a whole fit, or a little more of it."""

from __future__ import annotations

import logging

from dadagrad.algorithm import has_step_size
from dadagrad.config import TrainConfig
from dadagrad.data.dataset import Dataset, MemoryDataset, Schema
from dadagrad.errors import InputError
from dadagrad.estimators.dask_blocks import DaskDataset
from dadagrad.estimators.learned import Learned
from dadagrad.method import Method, make_method
from dadagrad.training.begin import make_coordinator, make_plan, online_plan
from dadagrad.training.budget import make_budget
from dadagrad.training.checkpoint import CheckpointReader
from dadagrad.training.fitting_in import problem
from dadagrad.training.result import TrainResult, make_model, make_report
from dadagrad.training.run import Where, resume, train, with_batch_size
from dadagrad.training.states import zero_state
from dadagrad.training.step_size import choose_step_size
from dadagrad.training.warm_up import warm_up
from dadagrad.training.watch import Watcher

logger = logging.getLogger(__name__)

_REPORTED = (
    "examples", "steps", "progressive_loss", "progressive_error", "features", "step_size",
    "batch_size",
)  # fmt: skip
"""What a report says that is of all calls together: rates are not."""

_UNCHANGEABLE = (
    "update", "loss", "squares", "fit_intercept", "metric", "rank", "blocks", "average",
)  # fmt: skip


def fit(
    data: Dataset, config: TrainConfig, threads: int | None, checkpoints: str | None
) -> Learned:
    """Train on `data` from the start, or from the checkpoints of just this run.

    Raises `InputError` if `checkpoints` holds another run, and `KeyboardInterrupt` if this one is
    interrupted: an estimator is fitted or it is not.
    """
    config = with_batch_size(config, data, on_dask=False)
    where = Where(threads=threads)
    if checkpoints is not None and CheckpointReader(checkpoints).list():
        _check_same_run(checkpoints, config)
        result = resume(checkpoints, data=data, where=where)
    else:
        result = train(data, config, where=where, checkpoints=checkpoints)
    return _learned(result, data, checkpoints)


def _learned(result: TrainResult, data: Dataset, checkpoints: str | None) -> Learned:
    if not result.complete:
        later = f"; fit again to go on from {checkpoints}" if checkpoints else ""
        raise KeyboardInterrupt(f"training was interrupted{later}")
    return Learned.by(result.coordinator, data, result.report, result.model)


def _check_same_run(checkpoints: str, config: TrainConfig) -> None:
    """Refuse to go on with a run of other settings; of other data, `resume` does."""
    before = CheckpointReader(checkpoints).load().meta["config"]
    now = config.to_json()
    if config.step_size == "auto":  # before, it may have been chosen already
        now["step_size"] = before["step_size"]
    for name, value in now.items():
        if before.get(name) != value:
            raise InputError(
                f"{checkpoints} holds the checkpoints of a run with {name}={before.get(name)!r}; "
                f"this one has {name}={value!r}: choose another folder, or the same settings"
            )


def fit_more(
    data: Dataset,
    schema: Schema,
    config: TrainConfig,
    threads: int | None,
    before: Learned | None,
) -> Learned:
    """One pass over `data`, going on from `before`.

    Parameters
    ----------
    data : Dataset
    schema : Schema
        That of `data`, with all the classes there will be.
    config : TrainConfig
        With `step_size="auto"`, the step size is that of `before`; where there is none it is
        chosen on `data`.
    threads : int or None
    before : Learned or None
        Its state goes on changing.
    """
    config = with_batch_size(config, data, on_dask=False)
    assert isinstance(config.batch_size, int)
    method = make_method(config, schema, config.batch_size)
    if before is not None:
        method = _continued(method, before.method)
    rows = [partition.n_rows for partition in data.partitions]
    plan = make_plan(config, rows, passes=1)
    where = Where(threads=threads)
    if before is None:
        budget = make_budget(data, method, plan, on_dask=False, threads=where.local_threads)
        why = problem(budget, method, None, [])
        if why is not None:
            raise InputError(why)
    warm_up(method, logger.info)
    if before is None and config.step_size == "auto" and has_step_size(config):
        method = method.with_step_sizes((choose_step_size(data, method, online_plan(plan)),))
    coordinator = make_coordinator(
        method,
        plan,
        zero_state(method) if before is None else before.state,
        steps=0 if before is None else before.steps,
        tally=None if before is None else before.tally,
    )
    watcher = Watcher()
    with where.engine(data) as engine, watcher.on_interrupt():
        complete = engine.run(coordinator, watcher)
    if not complete:
        raise KeyboardInterrupt("training was interrupted; some of the rows were learned from")
    whole = make_report(coordinator, data, complete, watcher.seconds)
    report = {name: whole[name] for name in _REPORTED}
    if isinstance(data, MemoryDataset | DaskDataset):
        return Learned.by(coordinator, data, report)
    # Made now, while the dataset is at hand: it knows the names of features.
    model = make_model(method, coordinator.state, data, report)
    return Learned.by(coordinator, data, report, model)


def _continued(method: Method, before: Method) -> Method:
    """`method` with the step size of `before`, if it can go on from its state."""
    for name in _UNCHANGEABLE:
        old, new = getattr(before.config, name), getattr(method.config, name)
        if old != new:
            raise InputError(
                f"{name} was {old!r} and is {new!r} now; what was learned under one cannot be "
                "gone on with under the other: clone the estimator, or call fit"
            )
    if method.config.step_size == "auto":
        return method.with_step_sizes(before.step_sizes)
    return method
