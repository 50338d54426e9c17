"""``step_size="auto"``: many step sizes on the first rows of the stream, in one pass.

Each step size is an output of its own, so reading and decoding are paid once. The trial keeps
state for the features of its own few partitions only, not for all of them.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.arena import Arena
from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows
from dadagrad.data.vocabulary import find_vocabulary
from dadagrad.errors import TrainingError
from dadagrad.method import Method
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.local import LocalEngine
from dadagrad.training.plan import Plan
from dadagrad.training.state import State
from dadagrad.training.tally import Tally
from dadagrad.training.watch import Watcher

logger = logging.getLogger(__name__)

GRID = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Step sizes tried. AdaGrad's step does not depend on the scale of gradients: a few octaves do."""

SHARE = 0.03
LEAST_ROWS = 16_384
MOST_ROWS = 262_144
LOOKS = 16
"""Stretches into which the trial is cut, to tell its second half from its first."""


def choose_step_size(data: Dataset, method: Method, plan: Plan, threads: int = 1) -> float:
    """The step size of `GRID`, times the scale of the targets, that does best on the first rows.

    The rows are the first 3 % in the order of the plan's first pass, but at least 16,384 (or all
    there are) and at most 262,144. They are walked online whatever the batch size of the run. The
    choice depends on data, configuration and seed alone; with more `threads` it is made sooner.
    """
    n_rows = min(max(LEAST_ROWS, int(SHARE * data.n_rows)), MOST_ROWS)
    trial_data = _FirstRows(data, plan, n_rows)
    scale = _target_scale(trial_data, method)
    grid = tuple(step_size * scale for step_size in GRID)
    # Every part has several step sizes, so that all are walked by the same code.
    n_parts = min(threads, len(grid) // 2)
    parts = [grid[number::n_parts] for number in range(n_parts)]
    with ThreadPoolExecutor(n_parts, thread_name_prefix="dadagrad-trial") as pool:
        trials = list(pool.map(partial(_try, trial_data, method), parts))
    losses, errors = np.empty(len(grid)), np.empty(len(grid))
    for number, (trial, tally) in enumerate(trials):
        error = tally.error(trial)
        losses[number::n_parts] = tally.mean_loss(trial)
        errors[number::n_parts] = 0.0 if error is None else error
    examples = trials[0][1].examples
    if not examples:
        raise TrainingError(
            "step_size='auto' found no row of positive weight in the first rows; give a number"
        )
    best = _best(losses, errors, examples)
    logger.info("step size %g of %s chosen on %d rows", grid[best], grid, n_rows)
    return grid[best]


def _try(data: _FirstRows, method: Method, step_sizes: tuple[float, ...]) -> tuple[Method, Tally]:
    """Walk the rows with all of `step_sizes`; the method of the trial, and its second half."""
    trial = replace(
        method.with_step_sizes(step_sizes),
        config=replace(method.config, batch_size=1),
        n_features=data.n_features,
    )
    rows = tuple(partition.n_rows for partition in data.partitions)
    plan = Plan(rows, 1, 1, 1, False, 0, chunk_rows=max(1, sum(rows) // LOOKS))
    coordinator = Coordinator(trial, plan, State.zero(trial))
    reports: list[Tally] = []
    watcher = Watcher(progress=lambda report: reports.append(report.tally))
    LocalEngine(data, threads=1).run(coordinator, watcher)
    first_half = next(tally for tally in reports if 2 * tally.examples >= reports[-1].examples)
    return trial, reports[-1] - first_half if len(reports) > 1 else reports[-1]


def _target_scale(data: Dataset, method: Method) -> float:
    """The root mean square of a regression's targets, else 1.

    A step moves a weight by the step size, whatever the gradients: margins that have to reach a
    thousand need steps a thousand times as large as those that have to reach one.
    """
    if method.task != "regression":
        return 1.0
    labels = [data.read(partition).labels for partition in range(len(data.partitions))]
    return float(np.sqrt(np.mean(np.square(np.concatenate(labels))))) or 1.0


def _best(losses: NDArray[np.float64], errors: NDArray[np.float64], examples: int) -> int:
    """The least error (all 0 in a regression), and the least loss among near ties.

    Both are those of the second half of the trial, when most weights have been seen to.

    Early in a stream the loss falls fastest with steps that are too large for the rest of it
    (margins still have to grow); the error does not depend on the scale of margins. It is coarse,
    so that step sizes within half its standard error of the best count as ties.
    """
    least = errors.min()
    tie = 0.5 * np.sqrt(least * (1.0 - least) / examples)
    return int(np.argmin(np.where(errors <= least + tie, losses, np.inf)))


class _FirstRows(Dataset):
    """The first rows of a dataset, over the union of their partitions' vocabularies."""

    def __init__(self, data: Dataset, plan: Plan, n_rows: int) -> None:
        self.url = data.url
        self._data = data
        self._chosen: list[tuple[int, int]] = []
        for partition in plan.order(0):
            if n_rows > 0:
                taken = min(n_rows, data.partitions[partition].n_rows)
                self._chosen.append((partition, taken))
                n_rows -= taken
        self.partitions = tuple(
            replace(data.partitions[partition], n_rows=taken) for partition, taken in self._chosen
        )
        vocabularies = [data.read_vocabulary(partition) for partition, _ in self._chosen]
        self._union = vocabularies[0]
        if len(vocabularies) > 1:
            self._union, _ = find_vocabulary(np.concatenate(vocabularies))
        self.schema = data.schema
        self.n_features = len(self._union)

    def read(self, partition: int) -> Rows:
        return self.read_into(partition, Arena(), Arena())

    def read_into(self, partition: int, arena: Arena, scratch: Arena) -> Rows:
        number, taken = self._chosen[partition]
        rows = self._data.read_into(number, arena, scratch)
        local = np.searchsorted(self._union, rows.vocabulary)
        return replace(rows, vocabulary=local).slice(0, taken)
