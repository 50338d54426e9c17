"""A grid of settings, trained in one stream over the data; the worse half is dropped on the way.

Each setting is a group of outputs, which learns from the same rows as all others, so that a row is
read once for the whole grid. At three places of the first pass, after an eighth, a quarter and half
of its rows, the settings are compared by their progressive loss since the place before: successive
halving (Jamieson and Talwalkar 2016, "Non-stochastic best arm identification"). Those that share
the penalties l1 and l2 compete, and the better half of them stays. Where each pair of penalties has
one setting, all compete, and the better half of them stays, or `PATH`. So up to `PATH` pairs, or
more if many were given, have a model at the end, and these are the regularization path. The places
depend on the schedule alone, so that the result has the same bits on any number of threads and
workers. A model that stays has the bits of a run with its settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.config import TrainConfig, check_compiled, make_config
from dadagrad.data.ingest.ingest import arguments_of, split_options
from dadagrad.errors import InputError
from dadagrad.optim.losses import LOSSES, Loss
from dadagrad.optim.registry import describe
from dadagrad.problem import Problem
from dadagrad.training.callbacks import Callback, Callbacks, LearningCurve, as_callbacks
from dadagrad.training.checkpoints.snapshot import Start
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.engines import Engine
from dadagrad.training.engines.resources import Resources
from dadagrad.training.engines.warm_up import warm_up
from dadagrad.training.execution import Run
from dadagrad.training.holdout import split_setting
from dadagrad.training.progressive import ProgressiveMetrics, best_setting
from dadagrad.training.result import TrainResult, model_of_setting, report_settings
from dadagrad.training.schedule import resolve_config
from dadagrad.training.schedule.base import Cursor
from dadagrad.training.state import count_nonzeros
from dadagrad.training.state.compiled import State

PLACES = (1 / 8, 1 / 4, 1 / 2)
"""Shares of the first pass after which settings are dropped."""
PATH = 6
"""Pairs of penalties of which none is dropped for the sake of another."""


@dataclass(frozen=True)
class SweepResult:
    """Result of a sweep.

    Attributes
    ----------
    best : TrainResult
        The best setting that was trained to the end, as a run of its own would have given it: by
        the holdout if there is one, else by the progressive metrics since the last comparison.
    table : list of dict
        For each setting, in the order of the grid: ``loss``, ``step_size``, ``l1``, ``l2``,
        ``rows`` (that it learned from), ``progressive_loss`` and ``progressive_error`` (over these
        rows, or None where it diverged), ``dropped``, and where it was not, ``nonzeros`` and
        ``holdout`` (of `dadagrad.evaluate`, or None).
    complete : bool
        False if the sweep was stopped on request.
    """

    best: TrainResult
    table: list[dict[str, Any]]
    complete: bool

    def __repr__(self) -> str:
        n_dropped = sum(entry["dropped"] for entry in self.table)
        return f"SweepResult({len(self.table)} settings, {n_dropped} dropped, best {self.best!r})"

    @property
    def path(self) -> list[dict[str, Any]]:
        """The settings that were trained to the end, by the strength of their penalties."""
        finished = [entry for entry in self.table if not entry["dropped"]]
        return sorted(finished, key=lambda entry: (entry["l1"], entry["l2"]))


def sweep(
    data: Any,
    config: TrainConfig | None = None,
    *,
    loss: Loss | str | Sequence[Loss | str] | None = None,
    threads: int | None = None,
    workers: int | None = None,
    client: Any = None,
    memory: int | None = None,
    holdout: Any = None,
    callbacks: Callbacks | None = None,
    messages: Callable[[str], None] | None = None,
    **settings: Any,
) -> SweepResult:
    """Train all combinations of settings in one stream, and return the best.

    Parameters
    ----------
    data, config, threads, workers, client, memory, holdout, callbacks, messages
        As in `dadagrad.train`.
    loss : Loss, str, or a list of them
        Several must be built-in losses for classes, which are compared by the error.
    **settings
        As in `dadagrad.train`: lists of `step_size`, `l1` and `l2` are combined with each other.

    Raises
    ------
    InputError
        As `dadagrad.train`, or the settings cannot be trained side by side.
    """
    options, settings = split_options(settings)
    holdout, settings = split_setting(holdout, settings)
    receivers = as_callbacks(callbacks)
    resources = Resources(threads, workers, client, memory)
    losses: list[Any] = list(loss) if isinstance(loss, list | tuple) else [loss]
    if not losses:
        raise InputError("loss must have at least one loss, not an empty list")
    losses = [each for each in losses if each is not None]
    settings |= {"loss": losses[0]} if losses else {}
    base = make_config(config, settings, arguments_of(sweep))
    data = resources.dataset(data, shuffle=base.row_order, **options)
    base = resolve_config(data, base, on_cluster=resources.on_cluster)
    grid = make_grid(base, losses)
    run = Run(data, base, resources, holdout=holdout, messages=messages)
    run.set_problem(
        run.problem.with_configs(grid), most_rows=math.ceil(PLACES[0] * run.data.n_rows)
    )
    with resources.engine(run.readable) as engine:
        run.check(engine.workers(), checkpoints=False)
        run.compile_seconds = warm_up(run.problem, run.messages)
        start = run.begin(engine)
        swept = _Sweep(run, engine, start, receivers)
        with swept.watcher.events():
            result = swept.execute(start)
            swept.watcher.result = result.best
        return result


def make_grid(base: TrainConfig, losses: Sequence[Loss | str] = ()) -> list[TrainConfig]:
    """Return all combinations of the settings of `base` and of losses.

    Raises `InputError` if they cannot be trained side by side.
    """
    if base.early_stopping:
        raise InputError("a sweep trains for all its passes: leave out early_stopping")
    configs = [replace(base, loss=loss) for loss in losses] or [base]
    grid = [alternative for config in configs for alternative in config.alternatives()]
    if len(grid) > 1:
        _check_side_by_side(grid)
    return grid


def _check_side_by_side(grid: Sequence[TrainConfig]) -> None:
    check_compiled(grid[0], "several settings side by side need")
    losses = {describe(each.loss): each.loss for each in grid}
    if len(losses) == 1:
        return
    for name, loss in losses.items():
        if not loss.classifies or loss.code is None or type(loss) is not LOSSES[loss.name]:
            raise InputError(
                f"loss {name!r} cannot be compared with others: several losses must be built in "
                "and classify; sweep it alone"
            )
    if len({loss.couples for loss in losses.values()}) > 1:
        raise InputError(
            f"the losses {', '.join(losses)} have different outputs: multiclass-hinge and softmax "
            "compare all classes, the others do not; sweep them apart"
        )


class _Sweep:
    """A sweep on an engine.

    Attributes
    ----------
    watcher : Watcher
        Its events have the metrics of the whole grid.
    """

    def __init__(
        self, run: Run, engine: Engine, start: Start, callbacks: Sequence[Callback]
    ) -> None:
        self._run, self._engine, self._curve = run, engine, start.curve
        self._table = [_describe(setting) for setting in run.problem.settings]
        self._numbers = list(range(len(self._table)))  # settings that are still trained
        self.watcher = run.watch(engine, start, callbacks)
        self.watcher.convert = self._widen

    def _widen(self, metrics: ProgressiveMetrics) -> ProgressiveMetrics:
        """Metrics of the whole grid: settings that are no longer trained get an immense loss."""
        n_settings = len(self._table)
        loss, mistakes = np.full(n_settings, np.finfo(float).max), np.zeros(n_settings)
        loss[self._numbers], mistakes[self._numbers] = metrics.loss, metrics.mistakes
        histogram = np.zeros((n_settings, *metrics.histogram.shape[1:]))
        histogram[self._numbers] = metrics.histogram
        return replace(metrics, loss=loss, mistakes=mistakes, histogram=histogram)

    def execute(self, start: Start) -> SweepResult:
        """Train to the end, drop settings on the way, and measure those that are left."""
        run = self._run
        complete, values = True, np.zeros(0)
        for stop in (*_stops(run), None):
            if stop is not None and run.problem.n_settings == 1:
                continue  # nothing to drop; and the state of one setting may stay on workers
            before = start.place.passes[:1]
            coordinator, complete = run.learn(self._engine, start, self.watcher, stop=stop)
            learned = coordinator.first_metrics
            has_new_rows = learned.weight > sum(metrics.weight for metrics in before)
            if before and has_new_rows:
                learned = learned - before[0]
            with np.errstate(invalid="ignore"):  # infinite losses of settings that diverged
                sums = learned.mistakes if self._compares_errors else learned.loss
                values = np.where(np.isfinite(coordinator.metrics.loss), sums, np.inf)
            self._record(coordinator)
            if not complete or stop is None:
                break
            if has_new_rows:
                start = self._drop(coordinator, values)
            else:  # all rows since the last place weigh 0, and tell nothing
                start = self._select(coordinator, range(run.problem.n_settings))
        return self._finish(coordinator, values, complete)

    @property
    def _compares_errors(self) -> bool:
        return len({entry["loss"] for entry in self._table}) > 1

    def _record(self, coordinator: Coordinator) -> None:
        """Note the progressive metrics of the first pass in the table."""
        rows = coordinator.metrics.rows
        for number, setting in zip(self._numbers, report_settings(coordinator), strict=True):
            measured = {name: setting[name] for name in ("progressive_loss", "progressive_error")}
            self._table[number] |= {"rows": rows, **measured}

    def _drop(self, coordinator: Coordinator, values: NDArray[np.float64]) -> Start:
        """Drop the worse half of the rivals; return the start of the others.

        Rivals are the settings of one pair of penalties, or else all, if more than `PATH` are left.
        """
        rivals: dict[tuple[float, float], list[int]] = {}
        for place, number in enumerate(self._numbers):
            entry = self._table[number]
            rivals.setdefault((entry["l1"], entry["l2"]), []).append(place)
        groups, fewest = list(rivals.values()), 1
        if len(groups) == len(self._numbers) > PATH:
            groups, fewest = [list(range(len(groups)))], PATH
        remaining: list[int] = []
        for places in groups:
            n_kept = max((len(places) + 1) // 2, fewest)
            remaining += sorted(places, key=lambda place: values[place])[:n_kept]
        remaining.sort()
        dropped = [number for place, number in enumerate(self._numbers) if place not in remaining]
        for number in dropped:
            self._table[number]["dropped"] = True
        if dropped:
            self._run.messages(
                f"{len(remaining)} of {len(self._numbers)} settings left after "
                f"{coordinator.metrics.rows:,} rows"
            )
        self._numbers = [self._numbers[place] for place in remaining]
        return self._select(coordinator, remaining)

    def _select(self, coordinator: Coordinator, settings: Sequence[int]) -> Start:
        """Give the run the settings at `settings` alone; the start of what follows."""
        problem, state, place = coordinator.problem, coordinator.state, coordinator.place
        if len(settings) < problem.n_settings:
            assert isinstance(state, State), "several settings are compiled"
            state = state.of_settings(problem, settings)
            passes = tuple(metrics.of_settings(settings) for metrics in place.passes)
            place = replace(place, passes=passes)
            configs = [problem.settings[number].config for number in settings]
            self._run.problem = problem.with_configs(configs)
        return Start(state, place, curve=self._curve)

    def _finish(
        self, coordinator: Coordinator, values: NDArray[np.float64], complete: bool
    ) -> SweepResult:
        """Measure what is left, and make the result of the best."""
        run, problem = self._run, coordinator.problem
        holdouts: dict[int, dict[str, Any]] = {}
        counts = np.zeros(0, np.int64)
        if complete and run.holdout is None:
            counts = count_nonzeros(problem, coordinator.state)
        for place in np.flatnonzero(np.isfinite(values)).tolist() if complete else ():
            entry = self._table[self._numbers[place]]
            if run.holdout is None:
                entry["nonzeros"] = int(counts[place])
            else:
                model = model_of_setting(coordinator, run.readable, place)
                entry["nonzeros"] = int(np.count_nonzero(model.weights))
                measured = run.holdout.measure(model, problem.settings[place].loss, curves=True)
                holdouts[place] = measured
                entry["holdout"] = {name: measured[name] for name in measured if name != "curves"}
                values[place] = measured["error" if self._compares_errors else "loss"]
        best_place = int(np.argmin(values))
        start = self._select(coordinator, [best_place])
        if best_place != best_setting(coordinator.place.passes):  # whose curve was recorded
            start = replace(start, curve=LearningCurve())
        facts: dict[str, Any] = {
            "sweep": [_summary(entry) for entry in self._table],
            "bytes_per_step": self._engine.bytes_per_step(coordinator.place.steps),
        }
        if best_place in holdouts:
            facts["holdout"] = holdouts[best_place]
        coordinator = run.coordinator(start)
        best = run.result(coordinator, complete, self.watcher, None, start, **facts)
        return SweepResult(best, self._table, complete)


def _describe(setting: Problem) -> dict[str, Any]:
    config = setting.config
    step_size = setting.step_size if config.update.has_step_size else None
    described = {"loss": describe(config.loss), "step_size": step_size}
    return described | {"l1": config.l1, "l2": config.l2, "dropped": False, "holdout": None}


def _summary(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry of a setting with the numbers of its holdout alone, as a model keeps it."""
    if entry["holdout"] is None:
        return entry
    return entry | {"holdout": {name: entry["holdout"][name] for name in ("loss", "error", "auc")}}


def _stops(run: Run) -> Iterator[Cursor]:
    """The places in the first pass after `PLACES` of its rows."""
    shares = [share * run.data.n_rows for share in PLACES]
    rows = 0
    for each in run.schedule.rounds(Cursor(), Cursor(1)):
        rows += sum(slice_.n_rows for slice_ in each.slices)
        if shares and rows >= shares[0] and each.after.pass_number == 0:
            shares = [share for share in shares if share > rows]
            yield each.after
