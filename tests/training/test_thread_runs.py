"""Whole runs on threads: held to the plain formulas, and to themselves under other numberings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.training_cases import (
    N_FEATURES,
    UPDATES,
    as_dataset,
    make_data,
    make_schedule_of,
    method_of,
    metrics_bytes,
    state_bytes,
)
from hypothesis import example, given
from hypothesis import strategies as st

from dadagrad.config import TrainConfig
from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows
from dadagrad.optim.regularizers import ElasticBox
from dadagrad.optim.updates import State as PlainState
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.engines.threads import LocalEngine
from dadagrad.training.engines.watcher import Watcher
from dadagrad.training.schedule.base import Cursor
from dadagrad.training.state.compiled import State
from dadagrad.training.worker.compute import row_importance

CLASSIFYING = ("hinge", "squared-hinge", "logistic")
LOSSES = (*CLASSIFYING, "squared", "absolute", "huber")
each_update = pytest.mark.parametrize("update", UPDATES)


def run(data: Dataset, config: TrainConfig, threads: int = 2) -> Coordinator:
    problem = method_of(data, config)
    coordinator = Coordinator(problem, make_schedule_of(data, config), State.zero(problem))
    assert LocalEngine(data, threads).run(coordinator, Watcher())
    return coordinator


def weights(coordinator: Coordinator) -> np.ndarray:
    return coordinator.state.weights(coordinator.problem)


def dense(rows: Rows) -> np.ndarray:
    """(n_rows, N_FEATURES)."""
    matrix = np.zeros((rows.n_rows, N_FEATURES))
    values = np.ones(rows.nnz) if rows.values is None else rows.values
    row_of = np.repeat(np.arange(rows.n_rows), np.diff(rows.indptr))
    matrix[row_of, rows.vocabulary[rows.indices]] = values
    return matrix if rows.row_scale is None else matrix * rows.row_scale[:, None]


def plain_step(update, state: PlainState, gradient, square) -> PlainState:
    """A step of `update` whose squares are given: the update's own where they are gradient^2."""
    if np.array_equal(square, np.square(gradient)):
        return update.step(state, gradient)
    preconditioner, before = update.preconditioner, state.preconditioner
    after = {"squares": before["squares"] + square}
    primary = state.primary + gradient
    if update.__class__.__name__ == "MirrorDescent":
        center = state.primary - update.step_size * preconditioner.solve(after, gradient)
        primary = preconditioner.prox(after, update.regularizer, center, update.step_size)
    elif update.__class__.__name__ == "FollowTheLeader":
        growth = preconditioner.curvature(after) - preconditioner.curvature(before)
        primary = primary - growth * update.weights(state) / update.step_size
    return PlainState(state.t + 1, primary, after)


def plain_run(data: Dataset, config: TrainConfig) -> tuple[np.ndarray, np.ndarray, float]:
    """Weights, intercepts and the sum of all progressive losses, by the formulas alone."""
    problem = method_of(data, config)
    loss = config.loss
    box = ElasticBox(config.l1, config.l2, config.low, config.high)
    preconditioner = problem.preconditioner
    update = type(config.update)(config.step_size, preconditioner, box)
    free = type(config.update)(config.step_size, preconditioner, ElasticBox())
    outputs = range(problem.n_outputs)
    states = [update.init(N_FEATURES) for _ in outputs]
    intercepts = [free.init(1) for _ in outputs]
    total = 0.0
    for round_ in make_schedule_of(data, config).rounds(Cursor()):
        parts = [data.read(p.partition).slice(p.start, p.stop) for p in round_.slices]
        importance = np.concatenate(
            [
                np.ones(part.n_rows) if (c := row_importance(problem, part)) is None else c
                for part in parts
            ]
        )
        x = np.concatenate([dense(part) for part in parts])
        targets = problem.targets(np.concatenate([part.labels for part in parts]))
        steps = [slice(row, row + 1) for row in range(len(x))] if problem.online else [slice(None)]
        for rows in steps:
            c = importance[rows]
            for k in outputs:
                b = free.weights(intercepts[k])[0] if config.fit_intercept else 0.0
                margins = x[rows] @ update.weights(states[k]) + b
                total += c @ loss.value(margins, targets[rows, k])
                slopes = loss.slope(margins, targets[rows, k])
                gradients = slopes[:, None] * x[rows]
                mean = c @ gradients / c.sum()
                mean_b = np.array([c @ slopes / c.sum()])
                square, square_b = np.square(mean), np.square(mean_b)
                if config.accumulate == "row":
                    square = c @ np.square(gradients) / c.sum()
                    square_b = np.array([c @ np.square(slopes) / c.sum()])
                states[k] = plain_step(update, states[k], mean, square)
                intercepts[k] = plain_step(free, intercepts[k], mean_b, square_b)
    b = [free.weights(state)[0] if config.fit_intercept else 0.0 for state in intercepts]
    w = np.stack([update.weights(state) for state in states], axis=1)
    return w, np.array(b), total / problem.n_targets


def assert_close(data: Dataset, config: TrainConfig) -> Coordinator:
    coordinator = run(data, config)
    w, b, total = plain_run(data, config)
    got = weights(coordinator)
    assert np.abs(w).max() > 1e-3
    # The state is kept in 32 bits: a few times 6e-8 of the largest weight.
    np.testing.assert_allclose(got, w, rtol=0, atol=2e-6 * np.abs(w).max())
    intercepts = coordinator.state.intercepts(coordinator.problem)
    np.testing.assert_allclose(intercepts, b, rtol=2e-6, atol=2e-6)
    mean_loss = coordinator.metrics.mean_loss(coordinator.problem)[0]
    assert mean_loss == pytest.approx(total / coordinator.metrics.weight, rel=2e-6)
    return coordinator


@given(
    update=st.sampled_from(UPDATES),
    loss=st.sampled_from(LOSSES),
    accumulate=st.sampled_from(["batch", "row"]),
    batch_size=st.sampled_from([1, 13]),
    penalties=st.sampled_from([{"l1": 2e-3, "l2": 1e-2}, {"low": -0.1, "high": 0.25}]),
    fit_intercept=st.booleans(),
)
def test_training_is_the_plain_update_on_rows_or_on_mean_gradients(
    update, loss, accumulate, batch_size, penalties, fit_intercept
):
    config = TrainConfig(
        loss=loss, update=update, accumulate=accumulate, step_size=0.2, batch_size=batch_size,
        partitions_per_batch=3, passes=2, fit_intercept=fit_intercept, **penalties,
    )  # fmt: skip
    labels = "binary" if loss in CLASSIFYING else "real"
    coordinator = assert_close(make_data(labels=labels, weighted=batch_size > 1), config)
    if "low" in penalties:
        assert weights(coordinator).min() >= np.float32(-0.1)
        assert weights(coordinator).max() <= 0.25
    if not fit_intercept:
        assert not coordinator.state.intercepts(coordinator.problem).any()


@pytest.mark.parametrize("kind", ["balanced", "mapping"])
@pytest.mark.parametrize("labels", ["binary", "multiclass"])
def test_class_weights_multiply_the_weights_of_rows(labels, kind):
    data = make_data(labels=labels, weighted=True)
    (column,) = data.schema.label_columns
    if kind == "balanced":
        per_class = {
            value: data.n_rows / (len(column.values) * count)
            for value, count in zip(column.values, column.counts, strict=True)
        }
    else:
        per_class = {column.values[0]: 2.5}
    class_weight = "balanced" if kind == "balanced" else per_class
    config = TrainConfig(step_size=0.3, batch_size=9, class_weight=class_weight)
    parts = []
    for number in range(len(data.partitions)):
        rows = data.read(number)
        factor = np.array([per_class.get(label, 1.0) for label in rows.labels[:, 0]])
        parts.append(replace(rows, weights=(rows.weights * factor).astype(np.float32)))
    by_rows = replace(config, class_weight=None)
    np.testing.assert_allclose(
        weights(run(data, config)),
        weights(run(as_dataset(parts), by_rows)),
        rtol=1e-5,
        atol=1e-6,
    )
    assert not np.allclose(weights(run(data, config)), weights(run(data, by_rows)), atol=1e-4)


def repeated(data: Dataset, times: np.ndarray) -> Dataset:
    """Each row as many times as `times` says."""
    rows = data.read(0)
    order = np.repeat(np.arange(rows.n_rows), times)
    entries = [np.arange(rows.indptr[r], rows.indptr[r + 1]) for r in order]
    taken = np.concatenate([np.zeros(0, np.int64), *entries])
    lengths = np.diff(rows.indptr)[order]
    return as_dataset(
        [
            Rows.from_csr(
                np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
                rows.vocabulary[rows.indices[taken]],
                rows.values[taken],
                rows.labels[order],
            )
        ]
    )


@each_update
@pytest.mark.parametrize("l1", [0.0, 1e-3])
def test_online_a_weight_of_two_is_the_row_twice_and_of_none_no_row(update, l1):
    data = make_data((60,))
    times = np.random.default_rng(5).integers(0, 4, 60)
    weighted = as_dataset([replace(data.read(0), weights=times.astype(np.float32))])
    config = TrainConfig(update=update, step_size=0.3, batch_size=1, l1=l1, l2=l1)
    once, again = run(weighted, config), run(repeated(data, times), config)
    assert state_bytes(once.state) == state_bytes(again.state)
    assert once.metrics.weight == again.metrics.weight == times.sum()
    assert once.metrics.rows == (times > 0).sum()


def entries(batch_size: int) -> int:
    """The most entries of a row. At fixed weights, those of longer rows are summed in eight lanes
    where there is one output, and one after the other where there are several.
    """
    return 20 if batch_size == 1 else 7


@given(
    update=st.sampled_from(UPDATES),
    l1=st.sampled_from([0.0, 1e-3]),
    batch_size=st.sampled_from([1, 9]),
    labels=st.sampled_from(["multiclass", "multilabel", "four labels"]),
)
@example(update="mirror-descent", l1=1e-3, batch_size=1, labels="four labels")
def test_classes_and_label_columns_are_models_of_their_own(update, l1, batch_size, labels):
    data = make_data(labels=labels, entries=entries(batch_size), weighted=True)
    config = TrainConfig(update=update, step_size=0.3, l1=l1, batch_size=batch_size)
    together = run(data, config)
    width = 2 if labels == "four labels" and update != "mirror-descent" else 1
    assert together.problem.group_width == width
    losses = []
    for output in range(together.problem.n_outputs):
        parts = []
        for number in range(len(data.partitions)):
            rows = data.read(number)
            wanted = together.problem.targets(rows.labels)[:, output : output + 1]
            parts.append(replace(rows, labels=wanted))
        alone = run(as_dataset(parts), config)
        for found, expected in zip(by_output(together), by_output(alone), strict=True):
            assert found[output].tobytes() == expected[0].tobytes()
        losses.append(alone.metrics.loss[0])
    assert together.metrics.loss == pytest.approx([np.mean(losses)], rel=1e-12)


def by_output(coordinator: Coordinator) -> list[np.ndarray]:
    """The arrays of the state, with outputs on the first axis and no groups."""
    state, width = coordinator.state, coordinator.problem.group_width
    accumulators, intercept = (
        np.ascontiguousarray(array.swapaxes(1, 2)).reshape(-1, array.shape[1], 2)
        for array in (state.accumulators, state.intercept)
    )
    return [accumulators, intercept, np.repeat(state.last_update, width, axis=0)]


@given(
    st.sampled_from(UPDATES),
    st.sampled_from([1, 9, 64]),
    st.sampled_from(["binary", "multilabel", "softmax", "multiclass-hinge"]),
)
def test_bits_do_not_depend_on_the_number_of_threads(update, batch_size, outputs):
    couples = outputs in ("softmax", "multiclass-hinge")
    data = make_data((40,) * 9, weighted=True, labels="multiclass" if couples else outputs)
    config = TrainConfig(
        loss=outputs if couples else "hinge", update=update, step_size=0.3, l1=1e-3,
        batch_size=batch_size, passes=2,
    )  # fmt: skip
    one = run(data, config, threads=1)
    for threads in (2, 3):
        other = run(data, config, threads=threads)
        assert state_bytes(other.state) == state_bytes(one.state)
        assert metrics_bytes(other) == metrics_bytes(one)


def test_all_ones_and_row_scales_are_values():
    data = make_data((30, 20))
    implicit, explicit = [], []
    for number in range(2):
        rows = data.read(number)
        scale = np.random.default_rng(number).uniform(0.3, 1.0, rows.n_rows).astype(np.float32)
        implicit.append(replace(rows, values=None, row_scale=scale))
        values = np.repeat(scale, np.diff(rows.indptr))
        explicit.append(replace(rows, values=values))
    config = TrainConfig(step_size=0.3, batch_size=7)
    np.testing.assert_allclose(
        weights(run(as_dataset(implicit), config)),
        weights(run(as_dataset(explicit), config)),
        rtol=1e-4,
        atol=1e-6,
    )
