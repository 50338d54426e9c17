"""Small data sets and a coordinator driven by hand, for the tests of training."""

import signal
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from dadagrad import train
from dadagrad.data.dataset import MemoryDataset, Schema
from dadagrad.data.labels import LabelCollector
from dadagrad.data.rows import Rows
from dadagrad.problem import make_problem
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.messages import (
    Close,
    Compute,
    Computed,
    Finish,
    Merge,
    Merged,
    Open,
    Opened,
    Save,
)
from dadagrad.training.schedule import make_schedule
from dadagrad.training.state import zero_state
from dadagrad.training.state.slices import SentFeatures, SharedFeatures
from dadagrad.training.worker.compute import compute

UPDATES = ("dual-averaging", "mirror-descent", "ftrl")
N_FEATURES = 60


def make_labels(kind, scores):
    """(n_rows, n_label_columns) labels out of (n_rows, 3) scores."""
    if kind == "binary":
        return np.where(scores[:, :1] > 0, 1.0, -1.0)
    if kind == "multiclass":
        return scores.argmax(axis=1).astype(float)[:, None] + 2.0
    if kind == "multilabel":
        return (scores > 0).astype(float)
    if kind == "relevance":
        return np.clip(np.floor(scores[:, :1] / 2 + 2), 0, 3)
    if kind == "four labels":
        return (np.hstack([scores, scores[:, :1] - scores[:, 1:2]]) > 0).astype(float)
    return scores[:, :1]


def make_data(
    sizes=(30, 17, 41, 8),
    *,
    seed=0,
    labels="binary",
    n_features=N_FEATURES,
    weighted=False,
    entries=8,
):
    """One partition for each of `sizes`; rows of 0 to `entries` features, few of them common.

    Rows with a relevance belong to queries of three rows.
    """
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n_features, 3))
    popularity = 1.0 / np.arange(1, n_features + 1)
    parts = []
    for n_rows in sizes:
        ids, values, counts, scores = [], [], [], np.zeros((n_rows, 3))
        for row in range(n_rows):
            chosen = rng.choice(
                n_features, rng.integers(0, entries + 1), False, popularity / popularity.sum()
            )
            chosen.sort()
            value = rng.normal(size=len(chosen)).astype(np.float32)
            ids.append(chosen)
            values.append(value)
            counts.append(len(chosen))
            scores[row] = value @ truth[chosen] + rng.normal(size=3)
        parts.append(
            Rows.from_csr(
                np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
                np.concatenate([np.zeros(0, np.int64), *ids]),
                np.concatenate([np.zeros(0, np.float32), *values]),
                make_labels(labels, scores),
                rng.uniform(0.2, 3.0, n_rows).astype(np.float32) if weighted else None,
            )
        )
    if labels == "relevance":
        parts = [
            replace(rows, queries=1000 * number + np.arange(rows.n_rows) // 3)
            for number, rows in enumerate(parts)
        ]
    return as_dataset(parts, n_features)


def label_columns(labels, prefix):
    """The columns of (n_rows, n_columns) labels, with their distinct values."""
    collector = LabelCollector()
    collector.encode(labels)
    columns = enumerate(collector.settle().columns)
    return tuple(replace(column, name=f"{prefix}{number}") for number, column in columns)


def as_dataset(parts, n_features=N_FEATURES):
    columns = label_columns(np.concatenate([rows.labels for rows in parts]), "label")
    weighted = any(rows.weights is not None for rows in parts)
    queried = parts[0].queries is not None
    return MemoryDataset(parts, Schema(n_features, columns, weighted, queried=queried))


def train_until(ended, *arguments, callbacks=(), **options):
    def stop(event):
        if ended(event):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(*arguments, callbacks=[*callbacks, stop], **options)


def interrupt_at(rows, number=signal.SIGINT):
    """Progress that has a signal sent once, when so many rows are done."""
    interrupted = []

    def progress(event):
        if event.rows >= rows and not interrupted:
            interrupted.append(True)
            signal.raise_signal(number)

    return progress


def dense_rows(rows, n_features=N_FEATURES):
    """(n_rows, n_features) values, times the scale of each row."""
    matrix = np.zeros((rows.n_rows, n_features))
    values = np.ones(rows.nnz) if rows.values is None else rows.values
    row_of = np.repeat(np.arange(rows.n_rows), np.diff(rows.indptr))
    matrix[row_of, rows.vocabulary[rows.indices]] = values
    return matrix if rows.row_scale is None else matrix * rows.row_scale[:, None]


def dense_weights(model):
    """(n_features, n_outputs) weights of a model."""
    weights = np.zeros((model.n_features, model.weights.shape[1]), np.float32)
    weights[model.ids] = model.weights
    return weights


def make_schedule_of(data, config, chunk_rows=7):
    """A schedule whose online stretches are short, so that there are several in a partition."""
    rows = [partition.n_rows for partition in data.partitions]
    return make_schedule(config, rows, chunk_rows=chunk_rows)


def problem_of(data, config):
    return make_problem(config, data.schema, config.batch_size)


def new_coordinator(data, config, chunk_rows=7, **options):
    problem, schedule = problem_of(data, config), make_schedule_of(data, config, chunk_rows)
    return Coordinator(problem, schedule, zero_state(problem), **options)


def gone_on_from(save, data, config, seed=None, **options):
    problem, schedule = problem_of(data, config), make_schedule_of(data, config)
    again = Coordinator(problem, schedule, save.state, place=save.place, **options)
    driven = ByHand(data, again, seed).run()
    assert driven.complete
    assert not driven.open
    return driven


class ByHand:
    """Drives a coordinator without threads; what is outstanding is done in any order.

    Attributes
    ----------
    log : list
        All instructions, in order; the states of `Save` are copies.
    most_open : int
        The most partitions that were open at a time.
    """

    def __init__(self, data, coordinator, seed=None):
        self.data = data
        self.coordinator = coordinator
        self.rng = None if seed is None else np.random.default_rng(seed)
        self.log = []
        self.open = {}
        self.most_open = 0
        self.waiting = []
        self.complete = None

    def run(self, requests=None):
        """Until it finishes. `requests` are events to put in before the n-th other event."""
        handled = 0
        self._go_on_after(self.coordinator.go_on())
        while self.complete is None:
            if requests and handled in requests:
                self._go_on_after(self.coordinator.handle(requests[handled]))
                if self.complete is not None:
                    break
            assert self.waiting, "nothing outstanding, and not finished"
            pick = 0 if self.rng is None else int(self.rng.integers(len(self.waiting)))
            event = self.waiting.pop(pick)()
            self._go_on_after(self.coordinator.handle(event))
            handled += 1
        return self

    def _go_on_after(self, instructions):
        while instructions:
            self._carry_out(instructions)
            instructions = self.coordinator.go_on()

    def _carry_out(self, instructions):
        for instruction in instructions:
            assert self.complete is None, "an instruction after the last"
            self.log.append(instruction)
            match instruction:
                case Open(reading, partition):
                    assert reading not in self.open
                    self.open[reading] = partition
                    self.most_open = max(self.most_open, len(self.open))
                    self.waiting.append(partial(Opened, reading))
                case Compute(task, (slice_,), given):
                    if isinstance(given, SharedFeatures):
                        at_once = self.rng is not None and self.rng.random() < 0.5
                        vocabulary = self.data.read(slice_.partition).vocabulary
                        if at_once:
                            given = SentFeatures(given.read(vocabulary, None).content)
                    self.waiting.append(partial(self._computed, task, slice_, given))
                case Merge(merge):
                    self.waiting.append(lambda m=merge: m() or Merged())
                case Close(reading):
                    del self.open[reading]
                case Save():
                    self.log[-1] = replace(instruction, state=instruction.state.copy())
                case Finish(complete):
                    self.complete = complete

    def _computed(self, task, slice_, given):
        rows, place = self.data.read(self.open[slice_.reading]), f"partition {slice_.partition}"
        return Computed(task, (compute(self.coordinator.problem, rows, slice_, given, place),))

    def saves(self):
        return [entry for entry in self.log if isinstance(entry, Save)]


def state_bytes(state):
    arrays = (array.tobytes() for array in state.arrays.values())
    return b"".join([*arrays, np.float64(state.t).tobytes()])


def bits(result):
    """Every bit of what a run made."""
    end = result.coordinator
    return state_bytes(end.state), metrics_bytes(end), result.model.digest


def metrics_bytes(coordinator):
    metrics, place = coordinator.metrics, coordinator.place
    arrays = [each.tobytes() for each in (metrics.loss, metrics.mistakes, metrics.histogram)]
    return metrics.rows, metrics.entries, metrics.weight, *arrays, place.steps, place.cursor
