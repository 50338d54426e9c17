"""The coordinator as a pure machine: events in any order, the same bits out."""

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
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad import TrainConfig
from dadagrad.training.coordinator import Coordinator
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
from dadagrad.training.schedule import make_schedule
from dadagrad.training.schedule.base import Cursor

DATA = make_data((30, 17, 0, 41, 8))
MODES = (
    {"batch_size": 1},
    {"batch_size": 9},
    {"batch_size": 40, "accumulate": "row"},
    {"batch_size": 1, "streams": 3, "rounds": 8},
    {"batch_size": 1, "streams": 7, "rounds": 2},
)
configs = st.builds(
    lambda mode, **settings: TrainConfig(step_size=0.3, **mode, **settings),
    st.sampled_from(MODES),
    loss=st.sampled_from(["hinge", "logistic"]),
    update=st.sampled_from(UPDATES),
    l1=st.sampled_from([0.0, 1e-3]),
    l2=st.sampled_from([0.0, 1e-3]),
    passes=st.integers(1, 2),
    partitions_per_batch=st.integers(1, 3),
)
modes = st.sampled_from(MODES)


def finished(config, seed=None, **options):
    return ByHand(DATA, new_coordinator(DATA, config, **options), seed).run()


def everything(driven):
    return state_bytes(driven.coordinator.state), metrics_bytes(driven.coordinator)


@given(configs, st.integers(0, 100), st.integers(0, 4))
def test_bits_do_not_depend_on_the_order_of_arrival(config, seed, prefetch):
    in_order, shuffled = finished(config), finished(config, seed, prefetch=prefetch)
    assert everything(in_order) == everything(shuffled)
    assert in_order.complete
    assert in_order.coordinator.metrics.rows == DATA.n_rows * config.passes
    assert not shuffled.open


@given(configs, st.sampled_from([1, 5, 100]))
def test_the_state_does_not_depend_on_the_length_of_slices(config, chunk_rows):
    one, other = (finished(config, chunk_rows=rows) for rows in (7, chunk_rows))
    assert state_bytes(one.coordinator.state) == state_bytes(other.coordinator.state)
    assert one.coordinator.metrics.loss == pytest.approx(other.coordinator.metrics.loss)


@given(configs, st.integers(0, 3))
def test_no_more_partitions_are_open_than_needed_and_all_are_closed(config, prefetch):
    data = make_data((20,) * 12)
    driven = ByHand(data, new_coordinator(data, config, prefetch=prefetch), seed=3).run()
    if config.n_streams > 1:  # each may have one to finish and one to begin
        assert driven.most_open <= 2 * config.n_streams + prefetch
    elif config.batch_size == 1:
        assert driven.most_open <= 1 + max(prefetch, 1)
    else:
        # A batch may finish partitions and begin others: those it has rows of are open at a time.
        at_once = config.partitions_per_batch + -(-config.batch_size // 20)
        # The last look ahead may come upon a batch that needs as many at once.
        assert driven.most_open <= 2 * at_once + prefetch
    assert not driven.open
    opened = sum(isinstance(entry, Open) for entry in driven.log)
    assert opened == sum(isinstance(entry, Close) for entry in driven.log)
    if config.n_streams == 1:
        assert opened == 12 * config.passes


@settings(max_examples=6)
@given(st.integers(2, 40), st.integers(1, 4), st.integers(0, 100))
def test_streams_that_end_partitions_have_few_of_them_open(n_streams, prefetch, seed):
    """In each round a stream learns from several partitions: it ends them before others begin."""
    data = make_data((20,) * 12 * 16)
    config = TrainConfig(step_size=0.3, batch_size=1, streams=n_streams, rounds=2)
    coordinator = new_coordinator(data, config, prefetch=prefetch)
    driven = ByHand(data, coordinator, seed=seed).run()
    # One of each of 16 groups stays open from round to round.
    assert driven.most_open <= 21 + 3 * prefetch


@given(modes, st.sampled_from([1, 3]))
def test_partitions_are_read_ahead_to_the_end(mode, prefetch):
    """Also those that are read sooner than they are needed: reading hides behind learning."""
    data = make_data((20,) * 12)
    config = TrainConfig(step_size=0.3, passes=2, **mode)
    driven = ByHand(data, new_coordinator(data, config, prefetch=prefetch)).run()
    readings = [entry.reading for entry in driven.log if isinstance(entry, Open)]
    opened, learned = 0, set()
    for entry in driven.log:
        opened += isinstance(entry, Open)
        if isinstance(entry, Compute):
            learned.add(entry.slices[0].reading)
        if isinstance(entry, Close):
            assert opened >= min(len(readings), len(learned) + prefetch)


@given(configs, st.integers(0, 100), st.sampled_from([SaveRequested(), StopRequested()]))
def test_a_run_goes_on_from_a_save_at_any_moment(config, when, request):
    whole = finished(config)
    driven = ByHand(DATA, new_coordinator(DATA, config)).run({when: request})
    if request == SaveRequested():
        # Asking does not change a bit, and is answered once; the end is kept as well.
        assert everything(driven) == everything(whole)
        assert len(driven.saves()) in (1, 2)
    else:
        *_, save, finish = driven.log
        assert finish == Finish(save.place.cursor == Cursor(config.passes))
        # The coordinator itself is left with everything too: a model can be made of it.
        assert state_bytes(driven.coordinator.state) == state_bytes(save.state)
    rest = gone_on_from(driven.saves()[0], DATA, config, when)
    assert everything(rest) == everything(whole)


def test_a_stop_before_anything_is_open_ends_at_once():
    coordinator = new_coordinator(DATA, TrainConfig(step_size=0.3, batch_size=9))
    coordinator.go_on()
    save, finish = coordinator.handle(StopRequested())
    assert isinstance(save, Save)
    assert (save.place.cursor, save.place.steps, finish) == (Cursor(), 0, Finish(False))
    assert coordinator.handle(SaveRequested()) == []


@given(modes)
def test_saves_come_every_so_many_steps(mode):
    save_every = 20
    driven = finished(TrainConfig(step_size=0.3, **mode), save_every=save_every)
    due, expected = save_every, []
    for entry in driven.log:
        if isinstance(entry, Report) and entry.place.steps >= due:
            expected.append(entry.place.steps)
            due = (entry.place.steps // save_every + 1) * save_every
    if not expected or expected[-1] != driven.coordinator.place.steps:
        expected.append(driven.coordinator.place.steps)
    assert [save.place.steps for save in driven.saves()] == expected


def test_rounds_that_metadata_only_declares_are_not_planned():
    """A schedule of all rounds would not fit into memory."""
    data = make_data((40,) * 3)
    config = TrainConfig(step_size=0.1, batch_size=64, partitions_per_batch=1)
    problem, state = new_coordinator(data, config).problem, new_coordinator(data, config).state
    schedule = make_schedule(config, (2**31 - 1,) * 3)
    assert Coordinator(problem, schedule, state).go_on()


@given(modes)
def test_slices_are_named_before_their_weights_are_wanted(mode):
    """All slices but those of streams that come later to an open partition."""
    known = set()
    missed = 0
    for entry in finished(TrainConfig(step_size=0.3, **mode)).log:
        match entry:
            case Open(_, _, ahead):
                known |= {(slice_.reading, slice_.start) for slice_ in ahead}
            case Compute(_, (slice_,), _, following):
                missed += (slice_.reading, slice_.start) not in known
                if following is not None:
                    start = slice_.reading, slice_.stop
                    assert (following.reading, following.start) == start
                    known.add(start)
    assert missed <= (mode.get("streams", 1) - 1) * 2
