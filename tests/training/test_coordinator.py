"""The coordinator as a pure machine: events in any order, the same bits out."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.training_cases import (
    UPDATES,
    ByHand,
    gone_on_from,
    make_data,
    metrics_bytes,
    new_coordinator,
    state_bytes,
)
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.config import TrainConfig
from dadagrad.training.messages import (
    Close,
    Compute,
    Finish,
    Open,
    Report,
    Save,
    SaveRequested,
    StopRequested,
)
from dadagrad.training.schedule.base import Cursor

DATA = make_data()
configs = st.builds(
    TrainConfig,
    loss=st.sampled_from(["hinge", "logistic"]),
    update=st.sampled_from(UPDATES),
    l1=st.sampled_from([0.0, 1e-3]),
    l2=st.sampled_from([0.0, 1e-3]),
    step_size=st.just(0.3),
    batch_size=st.sampled_from([1, 9, 40]),
    passes=st.integers(1, 2),
    partitions_per_batch=st.integers(1, 3),
    accumulate=st.sampled_from(["batch", "row"]),
)
each_update = pytest.mark.parametrize("update", UPDATES)
each_batch = pytest.mark.parametrize("batch_size", [1, 9])


def finished(config: TrainConfig, seed: int | None = None, **options) -> ByHand:
    return ByHand(DATA, new_coordinator(DATA, config, **options), seed).run()


@given(configs, st.integers(0, 100), st.integers(0, 4))
def test_bits_do_not_depend_on_the_order_of_arrival(config, seed, prefetch):
    in_order, shuffled = finished(config), finished(config, seed, prefetch=prefetch)
    assert state_bytes(in_order.coordinator.state) == state_bytes(shuffled.coordinator.state)
    assert metrics_bytes(in_order.coordinator) == metrics_bytes(shuffled.coordinator)
    assert in_order.complete
    assert in_order.coordinator.metrics.rows == DATA.n_rows * config.passes


@given(configs, st.integers(0, 3))
def test_no_more_partitions_are_open_than_needed_and_all_are_closed(config, prefetch):
    data = make_data((20,) * 12)
    coordinator = new_coordinator(data, config, prefetch=prefetch)
    driven = ByHand(data, coordinator, seed=3).run()
    at_once = 1 if config.batch_size == 1 else config.partitions_per_batch
    # A batch may finish partitions and begin others: those it has rows of are open at a time.
    begun_in_a_batch = 1 if config.batch_size == 1 else -(-config.batch_size // 20)
    # The last look ahead may come upon a batch that needs as many at once.
    assert driven.most_open <= 2 * (at_once + begun_in_a_batch) + prefetch
    if config.batch_size == 1:
        assert driven.most_open <= 1 + max(prefetch, 1)
    assert not driven.open
    opened = [entry for entry in driven.log if isinstance(entry, Open)]
    closed = [entry for entry in driven.log if isinstance(entry, Close)]
    assert len(opened) == len(closed) == 12 * config.passes


@each_update
@each_batch
def test_a_save_at_any_moment_holds_everything(update, batch_size):
    config = TrainConfig(
        update=update, step_size=0.3, batch_size=batch_size, passes=2, l1=1e-3, l2=1e-3
    )
    whole = finished(config)
    n_events = sum(isinstance(entry, Compute | Open) for entry in whole.log)
    cursors = set()
    for n_events_before in range(n_events):
        driven = ByHand(DATA, new_coordinator(DATA, config)).run({n_events_before: SaveRequested()})
        # Asking does not change a bit, and is answered once; the end is kept as well.
        assert state_bytes(driven.coordinator.state) == state_bytes(whole.coordinator.state)
        saves = driven.saves()
        assert len(saves) in (1, 2)
        cursors.add(saves[0].cursor)
        rest = gone_on_from(saves[0], DATA, config)
        assert state_bytes(rest.coordinator.state) == state_bytes(whole.coordinator.state)
        assert metrics_bytes(rest.coordinator) == metrics_bytes(whole.coordinator)
    rounds = [entry.cursor for entry in whole.log if isinstance(entry, Report)]
    assert cursors == set(rounds)


@each_update
@each_batch
def test_a_stop_at_any_moment_can_be_gone_on_from(update, batch_size):
    config = TrainConfig(update=update, step_size=0.3, batch_size=batch_size, l1=1e-3)
    whole = finished(config)
    for n_events_before in range(sum(isinstance(entry, Compute | Open) for entry in whole.log)):
        stopped = ByHand(DATA, new_coordinator(DATA, config)).run(
            {n_events_before: StopRequested()}
        )
        *_, save, finish = stopped.log
        assert isinstance(save, Save)
        assert finish == Finish(save.cursor == Cursor(1))
        # The coordinator itself is left with everything too: a model can be made of it.
        assert state_bytes(stopped.coordinator.state) == state_bytes(save.state)
        rest = gone_on_from(save, DATA, config, n_events_before)
        assert state_bytes(rest.coordinator.state) == state_bytes(whole.coordinator.state)
        assert metrics_bytes(rest.coordinator) == metrics_bytes(whole.coordinator)


def test_a_stop_before_anything_is_open_ends_at_once():
    coordinator = new_coordinator(DATA, TrainConfig(step_size=0.3, batch_size=9))
    coordinator.start()
    save, finish = coordinator.handle(StopRequested())
    assert (save.cursor, save.steps, finish) == (Cursor(), 0, Finish(False))
    assert coordinator.handle(SaveRequested()) == []


@each_batch
@pytest.mark.parametrize("save_every", [1, 5, 20, 10_000])
def test_saves_come_every_so_many_steps(batch_size, save_every):
    config = TrainConfig(step_size=0.3, batch_size=batch_size)
    driven = finished(config, save_every=save_every)
    due, expected = save_every, []
    for entry in driven.log:
        if isinstance(entry, Report) and entry.steps >= due:
            expected.append(entry.steps)
            due = (entry.steps // save_every + 1) * save_every
    if not expected or expected[-1] != driven.coordinator.steps:
        expected.append(driven.coordinator.steps)
    assert [save.steps for save in driven.saves()] == expected


@pytest.mark.parametrize("stop_at", [None, 3])
def test_no_state_is_saved_twice(stop_at):
    config = TrainConfig(step_size=0.3, batch_size=9)
    requests = {} if stop_at is None else {stop_at: StopRequested()}
    driven = ByHand(DATA, new_coordinator(DATA, config, save_every=1)).run(requests)
    cursors = [save.cursor for save in driven.saves()]
    assert len(set(cursors)) == len(cursors)


def test_rows_without_weight_make_no_step():
    data = make_data((10, 10), weighted=True)
    parts = [data.read(0), data.read(1)]
    for rows in parts:
        rows.weights[:] = 0.0
    config = TrainConfig(step_size=0.3, batch_size=5)
    driven = ByHand(data, new_coordinator(data, config)).run()
    assert driven.complete
    assert driven.coordinator.steps == driven.coordinator.metrics.rows == 0
    assert driven.coordinator.state.t == 0.0
    assert not np.any(driven.coordinator.state.accumulators)


def test_a_batch_makes_its_step_when_all_of_its_partitions_have_been_worked_on():
    config = TrainConfig(step_size=0.3, batch_size=12, partitions_per_batch=3, shuffle=False)
    driven = ByHand(DATA, new_coordinator(DATA, config, prefetch=0))
    driven._go_on_after(driven.coordinator.start())
    for done in range(5):  # three partitions are opened, and two of their slices worked on
        assert driven.coordinator.steps == 0, done
        driven._go_on_after(driven.coordinator.handle(driven.waiting.pop(0)()))
    assert driven.coordinator.steps == 0
    driven._go_on_after(driven.coordinator.handle(driven.waiting.pop(0)()))
    assert driven.coordinator.steps == 1
