"""Streams: one is the online pass, several learn about as well, and bits depend on no machine."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.training_cases import (
    UPDATES,
    ByHand,
    make_data,
    make_schedule_of,
    new_coordinator,
    problem_of,
    state_bytes,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import dadagrad.training.coordinator.merge as merging
from dadagrad import TrainConfig, TrainingError, train
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.schedule.base import Slice
from dadagrad.training.state import zero_state
from dadagrad.training.state.compiled import State
from dadagrad.training.state.slices import SentFeatures, Weights
from dadagrad.training.worker.compute import compute, touched

STREAMS = TrainConfig(step_size=0.3, batch_size=1, l1=1e-3, streams=3, rounds=8, passes=2)


LOSSES = {"multiclass": "multiclass-hinge", "regression": "squared"}


@settings(max_examples=12)
@given(
    st.sampled_from(UPDATES),
    st.sampled_from(["binary", "multiclass", "four labels", "regression"]),
    st.sampled_from([0.0, 1e-3]),
)
def test_one_stream_is_the_online_pass_bit_for_bit(update, labels, penalty):
    data = make_data((30, 17, 41, 8), labels=labels, weighted=True)
    loss = LOSSES.get(labels, "hinge")
    config = replace(STREAMS, update=update, loss=loss, l1=penalty, l2=penalty)
    online = ByHand(data, new_coordinator(data, replace(config, streams=1, rounds="auto"))).run()
    online = online.coordinator
    problem, schedule = online.problem, make_schedule_of(data, config)
    one_stream = Coordinator(problem, replace(schedule, streams=1), zero_state(problem))
    ByHand(data, one_stream).run()
    assert state_bytes(one_stream.state) == state_bytes(online.state)
    assert one_stream.place.steps == online.place.steps
    assert one_stream.metrics.loss == pytest.approx(online.metrics.loss)
    assert one_stream.metrics.mistakes == pytest.approx(online.metrics.mistakes)


@pytest.mark.parametrize(("update", "streams"), [("dual-averaging", 64), ("mirror-descent", 16)])
def test_steps_three_times_too_long_or_too_short_learn_as_the_online_pass_does(update, streams):
    data = make_data((800, 800), seed=7, n_features=400, entries=20)
    online = TrainConfig(update=update, batch_size=1)
    grid = (0.1, 0.2, 0.4, 0.8)

    def error(config):
        return train(data, config).report["progressive_error"]

    best = min(grid, key=lambda eta: error(replace(online, step_size=eta)))
    for factor in (1 / 3, 1.0, 3.0):
        config = replace(online, step_size=factor * best)
        local = replace(config, streams=streams)
        # In the first rounds streams know nothing of each other: that is the difference.
        assert error(local) <= error(config) + 0.08


@pytest.mark.parametrize("partial", [False, True])
def test_a_slice_that_was_sent_can_be_learned_from_again(partial):
    """It is so after the loss of a worker; arrays from a network may be read-only."""
    rows, slice_ = make_data((30, 17)).read(0), Slice(0, 0, 5, 9, False)
    problem = problem_of(make_data((30, 17)), STREAMS)
    ids = rows.vocabulary[touched(rows, slice_)] if partial else rows.vocabulary
    sent = SentFeatures(State.zero(problem).pull(ids), partial)
    sent.content.accumulators.flags.writeable = False
    first, second = (compute(problem, rows, slice_, sent, "here") for _ in range(2))
    learned, again = first.change.content.accumulators, second.change.content.accumulators
    assert learned.any()
    np.testing.assert_array_equal(first.change.ids, second.change.ids)
    np.testing.assert_array_equal(learned, again)


@pytest.mark.parametrize("config", [STREAMS, TrainConfig(step_size=0.3, batch_size=8)])
def test_features_that_were_sent_for_other_rows_are_refused(config):
    rows, slice_ = make_data((30, 17)).read(0), Slice(0, 0, 5, 9, False)
    problem, n_touched = problem_of(make_data((30, 17)), config), len(touched(rows, slice_))
    for n_sent in (n_touched - 1, n_touched + 1):
        content = Weights(np.zeros((n_sent, 1), np.float32), np.zeros(1))
        if config is STREAMS:
            content = State.zero(problem).pull(np.arange(n_sent))
        with pytest.raises(TrainingError, match=f"for {n_sent} features .* touch {n_touched}"):
            compute(problem, rows, slice_, SentFeatures(content, True), "here")


@pytest.mark.parametrize("update", UPDATES)
def test_the_bits_do_not_depend_on_the_shards_of_a_merge(update, monkeypatch):
    data = make_data(labels="four labels")
    config = replace(STREAMS, update=update, l1=1e-4)
    whole = train(data, config).model.digest
    monkeypatch.setattr(merging, "SHARD_ENTRIES", 5)
    assert train(data, config, threads=3).model.digest == whole
