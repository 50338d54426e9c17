"""Streams: one is the online pass, several learn about as well, and bits depend on no machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.training_cases import (
    UPDATES,
    ByHand,
    make_data,
    make_schedule_of,
    method_of,
    new_coordinator,
    state_bytes,
)
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.config import TrainConfig
from dadagrad.estimators import AdaGradClassifier
from dadagrad.training import run as run_module
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.engines.dask.messages import validate
from dadagrad.training.memory.estimate import estimate_run
from dadagrad.training.messages import Close, Compute, Open, Opened, Result
from dadagrad.training.run import train
from dadagrad.training.schedule.streams import StreamSchedule
from dadagrad.training.state import zero_state
from dadagrad.training.worker.compute import compute

STREAMS = TrainConfig(step_size=0.3, batch_size=1, l1=1e-3, streams=3, rounds=8, passes=2)


@given(
    st.sampled_from(UPDATES),
    st.sampled_from(
        [
            ("binary", "hinge"),
            ("multiclass", "hinge"),
            ("multiclass", "multiclass-hinge"),
            ("multilabel", "hinge"),
            ("four labels", "hinge"),
            ("regression", "squared"),
        ]
    ),
    st.sampled_from([0.0, 1e-3]),
)
def test_one_stream_is_the_online_pass_bit_for_bit(update, labels_and_loss, penalty):
    labels, loss = labels_and_loss
    data = make_data((30, 17, 41, 8), labels=labels, weighted=True)
    config = replace(STREAMS, update=update, loss=loss, l1=penalty, l2=penalty)
    online = ByHand(data, new_coordinator(data, replace(config, streams=1, rounds=40))).run()
    problem, schedule = method_of(data, config), make_schedule_of(data, config)
    assert isinstance(schedule, StreamSchedule)
    one_stream = Coordinator(problem, replace(schedule, streams=1), zero_state(problem))
    ByHand(data, one_stream).run()
    online = online.coordinator
    assert state_bytes(one_stream.state) == state_bytes(online.state)
    assert one_stream.steps == online.steps
    assert one_stream.metrics.loss == pytest.approx(online.metrics.loss)
    assert one_stream.metrics.mistakes == pytest.approx(online.metrics.mistakes)


@pytest.mark.parametrize("labels", ["binary", "multiclass", "four labels"])
def test_models_depend_on_streams_and_rounds_but_not_on_threads(labels, monkeypatch):
    monkeypatch.setattr(run_module, "CHUNK_ROWS", 7)
    data = make_data((30, 17, 0, 41, 8), labels=labels)
    models = set()
    for settings in ({}, {"streams": 2}, {"streams": 4}, {"rounds": 2}):
        config = replace(STREAMS, **settings)
        one, two = (train(data, config, threads=threads) for threads in (1, 2))
        assert state_bytes(one.coordinator.state) == state_bytes(two.coordinator.state)
        assert one.report["steps"] == one.report["rows"] == 192
        models.add(one.model.digest)
    assert len(models) == 4


@pytest.mark.parametrize("sizes", [(9,) * 30, (90, 70, 40), (400,)])
def test_partitions_are_open_as_long_as_predicted(sizes):
    data = make_data(sizes)
    config = replace(STREAMS, streams=5, passes=1)
    driven = ByHand(data, new_coordinator(data, config)).run()
    problem, schedule = driven.coordinator.problem, make_schedule_of(data, config)
    predicted = estimate_run(data, problem, schedule, on_cluster=True).process["rows"]
    is_open: dict[int, int] = {}
    most = 0
    for entry in driven.log:
        if isinstance(entry, Open):
            is_open[entry.reading] = 8 * data.partitions[entry.partition].n_local
        elif isinstance(entry, Close):
            del is_open[entry.reading]
        most = max(most, sum(is_open.values()))
    assert most <= predicted <= 2 * most
    if len(sizes) == 30:  # blocks end where partitions do: none is read twice
        assert sum(isinstance(entry, Open) for entry in driven.log) == 30


@pytest.mark.parametrize(
    ("update", "streams"),
    [
        ("dual-averaging", 16),
        ("dual-averaging", 64),
        ("mirror-descent", 16),
        ("ftrl", 16),
        pytest.param("mirror-descent", 64, marks=pytest.mark.slow),
        pytest.param("ftrl", 64, marks=pytest.mark.slow),
        pytest.param("dual-averaging", 4, marks=pytest.mark.slow),
    ],
)
def test_steps_three_times_too_long_or_too_short_learn_as_the_online_pass_does(update, streams):
    data = make_data((1000, 1000), seed=7, n_features=400, entries=20)
    online = TrainConfig(update=update, batch_size=1)
    grid = (0.1, 0.2, 0.4, 0.8)

    def error(config: TrainConfig) -> float:
        return train(data, config).report["progressive_error"]

    best = min(grid, key=lambda eta: error(replace(online, step_size=eta)))
    for factor in (1 / 3, 1.0, 3.0):
        config = replace(online, step_size=factor * best)
        local = replace(config, streams=streams)
        # In the first rounds streams know nothing of each other: that is the difference.
        assert error(local) <= error(config) + 0.08


def test_an_estimator_takes_streams():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 12))
    y = X @ rng.normal(size=12) > 0
    classifier = AdaGradClassifier(streams=4, passes=1).fit(X, y)
    assert classifier.score(X, y) > 0.9
    before = classifier.coef_.copy()
    classifier.partial_fit(X, y)
    assert classifier.t_ == 1200
    assert (classifier.coef_ != before).any()


def sent_result(update: str, labels: str) -> tuple[Result, tuple[object, ...]]:
    """What a worker would send of the first slice, and what it is held against."""
    data = make_data(labels=labels)
    coordinator = new_coordinator(data, replace(STREAMS, update=update))
    opened = next(each for each in coordinator.start() if isinstance(each, Open))
    rows = data.read(opened.partition)
    instructions = coordinator.handle(Opened(opened.reading, rows.vocabulary))
    asked = next(each for each in instructions if isinstance(each, Compute))
    result = compute(coordinator.problem, rows, asked.slice_, asked.given.at(None), "here")
    return result, (coordinator.problem, asked.slice_, rows.vocabulary)


@pytest.mark.parametrize("update", ["dual-averaging", "mirror-descent"])
@pytest.mark.parametrize("labels", ["binary", "four labels"])
def test_a_result_of_a_stream_that_cannot_be_right_is_doubted(update, labels):
    sound, against = sent_result(update, labels)
    assert validate(sound, *against) is None
    state = sound.change
    nan = np.full_like(state.accumulators, np.nan)
    broken = {
        "its accumulators is not finite": replace(sound, change=replace(state, accumulators=nan)),
        "its intercept is not finite": replace(
            sound, change=replace(state, intercept=state.intercept * np.nan)
        ),
        "its time is not finite": replace(sound, change=replace(state, t=np.inf)),
        "its accumulators has the shape": replace(
            sound, change=replace(state, accumulators=state.accumulators[:, :-1])
        ),
        "its last_update has the shape": replace(
            sound, change=replace(state, last_update=np.zeros((len(state.last_update), 99)))
        ),
        "its positions are not increasing": replace(sound, positions=sound.positions[::-1]),
    }
    for reason, result in broken.items():
        assert reason in str(validate(result, *against))
