"""Whole runs held to the plain formulas: steps on batches, on rows, and on merged streams."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import objects
from helpers.training_cases import (
    N_FEATURES,
    UPDATES,
    as_dataset,
    dense_rows,
    dense_weights,
    make_data,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dadagrad import TrainConfig, train
from dadagrad.data.rows import Rows
from dadagrad.kernels.training import KINK
from dadagrad.optim.losses import LOSSES
from dadagrad.optim.preconditioners import Diagonal
from dadagrad.optim.regularizers import ElasticBox
from dadagrad.optim.updates import State, average_count
from dadagrad.problem import make_problem
from dadagrad.training.schedule import make_schedule
from dadagrad.training.schedule.base import Cursor
from dadagrad.training.worker.pairs import pair_rows

MODES = {
    "rows": {"batch_size": 1},
    "batches": {"batch_size": 7, "partitions_per_batch": 3},
    "streams": {"batch_size": 1, "streams": 3, "rounds": 4},
}


def step(update, state, gradient, square, importance=1.0):
    """A step of `update` whose squares are given: the update's own where they are gradient^2."""
    gradient, square = importance * gradient, importance**2 * square
    if np.array_equal(square, np.square(gradient)):
        return update.step(state, gradient / importance, importance)
    preconditioner, before = update.preconditioner, state.preconditioner
    after = {"squares": before["squares"] + square}
    primary = state.primary + gradient
    if update.shrinks_lazily:
        center = state.primary - update.step_size * preconditioner.solve(after, gradient)
        scale = update.step_size * importance
        primary = preconditioner.prox(after, update.regularizer, center, scale)
    elif update.is_proximal:
        growth = preconditioner.curvature(after) - preconditioner.curvature(before)
        primary = primary - growth * update.weights(state) / update.step_size
    return State(state.t + importance, primary, after)


def shrink(update, weights, squares, time):
    """Mirror descent's weights after a time without gradients: whole steps, and parts of one."""
    phi = update.regularizer
    rate = update.step_size / update.preconditioner.curvature({"squares": squares})
    kept = (1 + rate * phi.l2) ** -time
    taken = (1 - kept) * phi.l1 / phi.l2 if phi.l2 else time * rate * phi.l1
    return np.sign(weights) * np.maximum(kept * np.abs(weights) - taken, 0.0)


def participation(base, ends):
    squares = base.preconditioner["squares"]
    growth = np.array([end.preconditioner["squares"] - squares for end in ends])
    total, squared = growth.sum(axis=0), (growth**2).sum(axis=0)
    return np.where(squared > 0, total**2 / np.where(squared > 0, squared, 1.0), 1.0)


def merged(update, base, ends, momentum):
    """The merge of streams, by the formulas of `dadagrad.training.coordinator.merge`.

    `momentum` is changed in place; None is none.
    """
    squares = base.preconditioner["squares"]
    growth = np.array([end.preconditioner["squares"] - squares for end in ends])
    change = np.array([end.primary - base.primary for end in ends])
    times = np.array([end.t - base.t for end in ends])[:, None, None]
    total, c = growth.sum(axis=0), participation(base, ends)
    squares = squares + total / c
    t, own = base.t + times.sum(), base.t + times.sum() / c
    phi = update.regularizer
    changed = growth != 0
    mean = np.where(changed, change, 0.0).sum(0) / c if update.shrinks_lazily else change.sum(0) / c
    primary = base.primary + mean
    if momentum is not None:
        kept, moved = 1 - 1 / np.sqrt(c), changed.any(axis=0)
        kept = kept * np.where(momentum * mean < 0, 0.7, 1.0)
        momentum[moved] = (kept * momentum + mean)[moved]
        primary += np.where(moved, kept * momentum, 0.0)
    if update.shrinks_lazily:
        missing = (times.sum() - np.where(changed, times, 0.0).sum(0)) / c
        return State(t, shrink(update, primary, squares, missing), {"squares": squares})
    over = np.abs(primary) - own * phi.l1
    curvature = update.preconditioner.curvature({"squares": squares}) / update.step_size
    with np.errstate(invalid="ignore"):  # 0 / 0 of a feature that nothing was seen of
        beyond = over * (curvature + t * phi.l2) / (curvature + own * phi.l2) + t * phi.l1
    size = np.where(over > 0, beyond, np.abs(primary) * t / own)
    return State(t, np.sign(primary) * size, {"squares": squares})


class PlainRun:
    """A run by the formulas alone, in float64, with the intercept as an update of its own."""

    def __init__(self, data, config):
        self.data, self.config = data, config
        self.problem = make_problem(config, data.schema, config.batch_size)
        kind, given = type(config.update), (config.step_size, config.preconditioner)
        box = ElasticBox(config.l1, config.l2, config.low, config.high)
        self.updates = kind(*given, box), kind(*given, ElasticBox())
        sizes = (N_FEATURES, 1)
        states = [
            update.init(size, self.problem.n_outputs)
            for update, size in zip(self.updates, sizes, strict=True)
        ]
        self.loss = self.weight = 0.0
        self.average = [0.0, 0.0]
        moves = not (config.l1 or config.l2)
        momentum = np.zeros((N_FEATURES, self.problem.n_outputs)) if moves else None
        n_rows = [partition.n_rows for partition in data.partitions]
        for round_ in make_schedule(config, n_rows).rounds(Cursor()):
            if not self.problem.online:
                states = self.batch(states, *self.rows(round_.slices))
                continue
            ends, averages, average = [], [], self.average
            for slices in round_.stretches:
                self.average = [mean + 0.0 for mean in average]
                ends.append(self.stream(states, *self.rows(slices)))
                averages.append(self.average)
            if len(ends) == 1:
                (states,) = ends
                continue
            before, streams = states, [list(these) for these in zip(*ends, strict=True)]
            states = [
                merged(update, base, these, moving)
                for update, base, these, moving in zip(
                    self.updates, before, streams, (momentum, None), strict=True
                )
            ]
            self.average = [
                (before[0].t ** 2 * mean + (states[0].t ** 2 - before[0].t ** 2) * of_round)
                / states[0].t ** 2
                for mean, of_round in zip(
                    average,
                    self.round_means(before, streams, states, average, averages),
                    strict=True,
                )
            ]
        self.weights, intercept = (
            self.average if config.average is True else self.weights_of(states)
        )
        self.intercept = intercept[0]
        self.mean_loss = self.loss / self.weight
        if not config.loss.couples:
            self.mean_loss /= self.problem.n_targets

    def rows(self, slices):
        """Dense rows, the targets of all outputs, and the importance of each row."""
        parts = [self.part(self.data.read(each.partition), each) for each in slices]
        ones = [np.ones(part.n_rows) if part.weights is None else part.weights for part in parts]
        labels = np.concatenate([part.labels for part in parts])
        return (
            np.concatenate([dense_rows(part) for part in parts]),
            self.problem.targets(labels),
            np.concatenate(ones).astype(float),
        )

    def part(self, rows, slice_):
        if self.config.loss.ranks:
            return pair_rows(rows, slice_, self.config.seed, "")
        return rows.slice(slice_.start, slice_.stop)

    def weights_of(self, states):
        weights, intercept = (
            update.weights(state) for update, state in zip(self.updates, states, strict=True)
        )
        return [weights, intercept * self.config.fit_intercept]

    def count(self, states, part):
        """Add the weights after a step to their average."""
        share = average_count(states[0].t - part, part) / states[0].t ** 2
        for number, weights in enumerate(self.weights_of(states)):
            self.average[number] += share * (weights - self.average[number])

    def round_means(self, before, streams, states, average, averages):
        """The mean weights over a round: behind the merged ones as the streams say."""
        means = self.weights_of(states)
        ends = [self.weights_of(list(these)) for these in zip(*streams, strict=True)]
        for k, end in enumerate(ends):
            t, begun = streams[0][k].t, before[0].t
            if t == begun:
                continue
            for number, weights in enumerate(end):
                mean = t**2 * averages[k][number] - begun**2 * average[number]
                mean = mean / (t**2 - begun**2)
                c = participation(before[number], streams[number])
                means[number] = means[number] - (weights - mean) / c
        return means

    def slopes(self, states, x, targets, importance):
        """The slopes of some rows, whose loss is counted."""
        weights, intercept = self.weights_of(states)
        scores = x @ weights + intercept
        losses = self.config.loss.value(scores, targets)
        self.loss += (importance * losses.reshape(len(x), -1).sum(axis=1)).sum()
        self.weight += importance.sum()
        return self.config.loss.slope(scores, targets)

    def batch(self, states, x, targets, importance):
        """A step with the mean gradient."""
        slopes, share = self.slopes(states, x, targets, importance), importance / importance.sum()
        after = []
        for update, state, features in zip(
            self.updates, states, (x, 1 + 0 * x[:, :1]), strict=True
        ):
            mean = features.T @ (share[:, None] * slopes)
            square = np.square(mean)
            if self.config.accumulate == "row":
                square = np.square(features).T @ (share[:, None] * np.square(slopes))
            after.append(step(update, state, mean, square))
        self.count(after, 1.0)
        return after

    def stream(self, states, x, targets, importance):
        """A step for each row; a row of importance 2.5 is two rows, and half of one."""
        states = [replace(state, primary=state.primary.copy()) for state in states]
        for row, c in enumerate(importance):
            one = slice(row, row + 1)
            counted, done = np.array([c]), 0.0
            while done < c:
                slopes = self.slopes(states, x[one], targets[one], counted)
                slopes = np.where(self.at_kink(states, x[one], targets[one]), 0.0, slopes)
                counted, part = np.zeros(1), min(c - done, 1.0)
                moves = self.moves(states, x[one], targets[one], slopes, part)
                states = [
                    step(update, state, features.T * moves, np.square(features.T * slopes), part)
                    for update, state, features in zip(
                        self.updates, states, (x[one], np.ones((1, 1))), strict=True
                    )
                ]
                self.count(states, part)
                done += 1.0
        return states

    def at_kink(self, states, x, targets):
        """True where an aware step has brought the score to a kink, and rounding decides."""
        weights, intercept = self.weights_of(states)
        scores, loss = x @ weights + intercept, self.config.loss
        if not self.config.importance_aware or not loss.has_kink:
            return np.zeros_like(scores, np.bool_)
        if loss.task != "regression":
            return np.abs(1.0 - targets * scores) <= KINK
        return np.abs(scores - targets) <= KINK * np.abs(targets)

    def moves(self, states, x, targets, slopes, part):
        """The mean slope along the step of importance `part` from one row."""
        if not self.config.importance_aware or self.config.loss.couples:
            return slopes
        pace, score = np.zeros_like(slopes), np.zeros_like(slopes)
        n_parts = 1 + self.config.fit_intercept
        for update, state, features in list(
            zip(self.updates, states, (x, np.ones((1, 1))), strict=True)
        )[:n_parts]:
            squares = state.preconditioner["squares"] + np.square(part * features.T * slopes)
            grown = replace(state, preconditioner={"squares": squares})
            curvature = update.preconditioner.curvature(grown.preconditioner)
            if not update.shrinks_lazily:
                curvature = curvature + update.step_size * state.t * update.regularizer.l2
            with np.errstate(divide="ignore", invalid="ignore"):
                pace += update.step_size * np.nansum(np.square(features.T) / curvature, axis=0)
            begin = state if update.shrinks_lazily or update.is_proximal else grown
            score += features @ update.weights(begin)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = self.config.loss.mean_slope(score, targets, part * pace)
        return np.where((slopes == 0.0) | (pace == 0.0), slopes, mean)


def make_labelled(loss, labels, weights):
    """Rows for a loss, with weights that are "none", "whole" numbers or "fractions"."""
    if loss.couples or loss.ranks:
        labels = "multiclass" if loss.couples else "relevance"
    elif not loss.classifies:
        labels = "real"
    made = make_data((8, 5, 10, 3), labels=labels, weighted=weights != "none", entries=20)
    parts = [made.read(number) for number in range(len(made.partitions))]
    if loss.link == "log":
        parts = [replace(rows, labels=np.abs(np.round(rows.labels))) for rows in parts]
    if weights == "whole":
        parts = [replace(rows, weights=np.round(rows.weights)) for rows in parts]
    return as_dataset(parts)


@given(
    mode=st.sampled_from(list(MODES)),
    update=st.sampled_from(UPDATES),
    loss=st.sampled_from(list(LOSSES)),
    labels=st.sampled_from(["binary", "multiclass", "multilabel", "four labels"]),
    weights=st.sampled_from(["none", "whole", "fractions"]),
    penalties=st.sampled_from([{}, {"l1": 2e-3, "l2": 1e-2}, {"low": -0.1, "high": 0.25}]),
    delta=st.sampled_from([0.0, 0.1, 1.0]),
    accumulate=st.sampled_from(["batch", "row"]),
    fit_intercept=st.booleans(),
    average=st.booleans(),
    aware=st.booleans(),
)
@settings(max_examples=180)
def test_training_is_the_plain_update(
    mode, update, loss, labels, weights, penalties, delta, accumulate, fit_intercept, average, aware
):
    kind = objects.example(LOSSES, loss)
    if mode == "streams" and "low" in penalties:  # a mean of streams need not lie in a box
        penalties = {}
    if "l1" in penalties:  # averages of these are not compiled
        average = False
    if mode != "batches":
        accumulate = "batch"
    elif loss == "multiclass-hinge":  # rounding chooses among classes of the same score
        fit_intercept = False
    fit_intercept = fit_intercept and not kind.ranks
    if mode != "rows" or not kind.classifies:  # sums that are 0 may round to another sign
        delta = max(delta, 0.1)
    if update == "mirror-descent" and "l2" in penalties:
        weights = weights.replace("fractions", "whole")  # lazily, it shrinks by whole steps
    config = TrainConfig(
        loss=kind, update=update, step_size=0.2, preconditioner=Diagonal(delta), passes=2,
        accumulate=accumulate, fit_intercept=fit_intercept, average=average, importance_aware=aware,
        **penalties, **MODES[mode],
    )  # fmt: skip
    data = make_labelled(kind, labels, weights)
    expected, result = PlainRun(data, config), train(data, config)
    size = np.abs(expected.weights).max()
    assert size > 1e-3
    # The state is kept in 32 bits: a few times 6e-8 of the largest weight. The participation of
    # streams is a quotient of differences, and less exact.
    error = 1e-3 if mode == "streams" else 2e-6
    got = dense_weights(result.model)
    np.testing.assert_allclose(got, expected.weights, rtol=0, atol=error * size)
    np.testing.assert_allclose(result.model.intercept, expected.intercept, rtol=error, atol=error)
    mean_loss = result.coordinator.metrics.mean_loss()[0]
    assert mean_loss == pytest.approx(expected.mean_loss, rel=error)


@pytest.mark.parametrize("update", ["dual-averaging", "mirror-descent"])
def test_streams_count_in_full_where_squares_no_longer_grow(monkeypatch, update):
    """The first row of each has such squares that the others add 1e-5 each, as in one stream.

    Of the first rows together the weight moves by 1, and by the momentum of three streams.
    """
    monkeypatch.setattr("dadagrad.training.schedule.streams.MAX_ROWS_ALONE", 0)
    values, labels = np.ones(300, np.float32), np.full((300, 1), 1e9)
    values[::100] = 1e5
    data = as_dataset([Rows.from_csr(np.arange(301), np.zeros(300, int), values, labels)])
    plain = {"average": False, "fit_intercept": False, "scale_columns": False}
    run = train(data, loss="absolute", update=update, step_size=1.0, streams=3, **plain)
    np.testing.assert_allclose(run.model.weights, 1.0 + (1.0 - 3**-0.5) + 297e-5, atol=3e-4)


@given(
    update=st.sampled_from(UPDATES),
    l1=st.sampled_from([0.0, 1e-3]),
    batch_size=st.sampled_from([1, 9]),
    labels=st.sampled_from(["multiclass", "multilabel", "four labels"]),
)
@example(update="mirror-descent", l1=1e-3, batch_size=1, labels="four labels")
def test_outputs_have_the_bits_of_models_of_their_own(update, l1, batch_size, labels):
    # At fixed weights, entries are summed in eight lanes where there is one output, and one after
    # the other where there are several: for rows of at most three entries this is the same.
    data = make_data(labels=labels, entries=20 if batch_size == 1 else 3, weighted=True)
    config = TrainConfig(update=update, step_size=0.3, l1=l1, batch_size=batch_size)
    together = train(data, config)
    targets = together.coordinator.problem.targets
    losses = []
    for output in range(together.model.weights.shape[1]):
        parts = map(data.read, range(len(data.partitions)))
        parts = [replace(part, labels=targets(part.labels)[:, [output]]) for part in parts]
        alone = train(as_dataset(parts), config)
        weights = dense_weights(together.model)[:, [output]]
        np.testing.assert_array_equal(weights, dense_weights(alone.model))
        assert together.model.intercept[output] == alone.model.intercept[0]
        losses.append(alone.report["progressive_loss"])
    assert together.report["progressive_loss"] == pytest.approx(np.mean(losses), rel=1e-12)


@pytest.mark.parametrize("scale_columns", [False, True])
def test_all_ones_and_row_scales_are_values(scale_columns):
    implicit, explicit = [], []
    for rows in map(make_data((30, 20)).read, range(2)):
        scale = np.random.default_rng(3).uniform(0.5, 20.0, rows.n_rows).astype(np.float32)
        implicit.append(replace(rows, values=None, row_scale=scale))
        explicit.append(replace(rows, values=np.repeat(scale, np.diff(rows.indptr))))
    config = TrainConfig(step_size=0.3, batch_size=7, scale_columns=scale_columns)
    found, expected = (
        dense_weights(train(as_dataset(parts), config).model) for parts in (implicit, explicit)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
