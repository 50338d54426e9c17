"""Local steps: the same bits for any order, threads, workers and stops; and they learn."""

from __future__ import annotations

from dataclasses import replace

import dask.config
import numpy as np
import pytest
from helpers.training_cases import (
    UPDATES,
    ByHand,
    make_data,
    make_schedule_of,
    method_of,
    metrics_bytes,
    new_coordinator,
    state_bytes,
)
from helpers.zarr_cases import write_zarr
from hypothesis import given
from hypothesis import strategies as st

from dadagrad import clusters  # noqa: F401 (adds its defaults to the configuration)
from dadagrad.config import TrainConfig
from dadagrad.data.dataset import Dataset, MemoryDataset
from dadagrad.errors import InputError, TrainingError
from dadagrad.estimators import AdaGradClassifier
from dadagrad.training import run as run_module
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.engines.dask.messages import validate
from dadagrad.training.memory.dry_run import dry_run
from dadagrad.training.memory.estimate import estimate_run
from dadagrad.training.messages import (
    Close,
    Compute,
    Open,
    Opened,
    Result,
    StopRequested,
)
from dadagrad.training.run import TrainResult, resume, train
from dadagrad.training.schedule.streams import StreamSchedule
from dadagrad.training.state.compiled import State
from dadagrad.training.worker.compute import compute

DATA = make_data((30, 17, 0, 41, 8))
LOCAL = TrainConfig(step_size=0.3, batch_size=1, l1=1e-3, streams=3, rounds=8, passes=2)
each_update = pytest.mark.parametrize("update", UPDATES)
configs = st.builds(
    TrainConfig,
    loss=st.sampled_from(["hinge", "logistic"]),
    update=st.sampled_from(UPDATES),
    l1=st.sampled_from([0.0, 1e-3]),
    l2=st.sampled_from([0.0, 1e-3]),
    step_size=st.just(0.3),
    batch_size=st.just(1),
    passes=st.integers(1, 2),
    streams=st.integers(2, 7),
    rounds=st.integers(1, 12),
)


def plan_of(
    data: Dataset, config: TrainConfig, chunk_rows: int = 7, n_streams: int | None = None
) -> StreamSchedule:
    schedule = make_schedule_of(data, config, chunk_rows)
    assert isinstance(schedule, StreamSchedule)
    return replace(schedule, streams=n_streams or config.streams)


def coordinator_of(
    data: Dataset, config: TrainConfig, chunk_rows: int = 7, n_streams: int | None = None, **options
) -> Coordinator:
    problem, schedule = method_of(data, config), plan_of(data, config, chunk_rows, n_streams)
    return Coordinator(problem, schedule, options.pop("state", State.zero(problem)), **options)


def finished(config: TrainConfig, seed: int | None = None, data=DATA, **options) -> ByHand:
    return ByHand(data, coordinator_of(data, config, **options), seed).run()


def everything(end: Coordinator) -> tuple[object, ...]:
    return state_bytes(end.state), metrics_bytes(end)


def bits(result: TrainResult) -> tuple[object, ...]:
    return (*everything(result.coordinator), result.model.digest)


@each_update
@pytest.mark.parametrize(
    ("labels", "loss"),
    [
        ("binary", "hinge"),
        ("multiclass", "hinge"),
        ("multiclass", "multiclass-hinge"),
        ("multilabel", "hinge"),
        ("four labels", "hinge"),
        ("regression", "squared"),
    ],
)
@pytest.mark.parametrize("penalty", [0.0, 1e-3])
def test_one_stream_is_the_online_pass_bit_for_bit(update, labels, loss, penalty):
    data = make_data((30, 17, 41, 8), labels=labels, weighted=True)
    config = replace(LOCAL, update=update, loss=loss, l1=penalty, l2=penalty)
    walked = ByHand(data, new_coordinator(data, replace(config, streams=1, rounds=40))).run()
    walked, merged = walked.coordinator, finished(config, n_streams=1, data=data).coordinator
    assert state_bytes(merged.state) == state_bytes(walked.state)
    assert merged.steps == walked.steps
    assert merged.metrics.loss == pytest.approx(walked.metrics.loss)
    assert merged.metrics.mistakes == pytest.approx(walked.metrics.mistakes)


@given(configs, st.integers(0, 100), st.integers(0, 4), st.sampled_from([1, 5, 100]))
def test_bits_do_not_depend_on_arrival_prefetch_or_the_length_of_slices(
    config, seed, prefetch, chunk_rows
):
    in_order = finished(config)
    shuffled = finished(config, seed, prefetch=prefetch, chunk_rows=chunk_rows)
    assert state_bytes(in_order.coordinator.state) == state_bytes(shuffled.coordinator.state)
    assert in_order.coordinator.steps == shuffled.coordinator.steps == 96 * config.passes
    assert in_order.coordinator.metrics.loss == pytest.approx(shuffled.coordinator.metrics.loss)
    assert shuffled.complete
    assert not shuffled.open


def test_other_streams_make_another_model():
    found = {state_bytes(finished(replace(LOCAL, streams=k)).coordinator.state) for k in (2, 3, 4)}
    rounds = {state_bytes(finished(replace(LOCAL, rounds=r)).coordinator.state) for r in (2, 8)}
    assert len(found) == 3
    assert len(rounds) == 2


@each_update
def test_a_run_goes_on_from_every_round_to_the_same_bits(update):
    config = replace(LOCAL, update=update)
    whole = finished(config, save_every=1)
    saves = whole.saves()
    assert len(saves) == 12  # 8 rounds, and 4 in the second pass
    for save in saves:
        again = finished(
            config,
            state=save.state.copy(),
            cursor=save.cursor,
            steps=save.steps,
            metrics=save.metrics,
        )
        assert everything(again.coordinator) == everything(whole.coordinator)


@given(st.integers(0, 80))
def test_a_stop_is_at_the_end_of_a_round_and_can_be_gone_on_from(when):
    whole = finished(LOCAL)
    stopped = ByHand(DATA, coordinator_of(DATA, LOCAL)).run({when: StopRequested()})
    if stopped.complete:
        return
    (save,) = stopped.saves()
    assert save.cursor.pass_number < LOCAL.passes
    rest = finished(
        LOCAL, state=save.state.copy(), cursor=save.cursor, steps=save.steps, metrics=save.metrics
    )
    assert everything(rest.coordinator) == everything(whole.coordinator)


def test_partitions_are_open_while_streams_are_there_and_no_longer():
    data = make_data((9,) * 30)
    config = replace(LOCAL, streams=3, rounds=5, passes=2)
    run = finished(config, data=data, prefetch=1)
    opened = sum(isinstance(entry, Open) for entry in run.log)
    closed = sum(isinstance(entry, Close) for entry in run.log)
    assert opened == closed == 60  # blocks end where partitions do: none is read twice
    # Also in a round in which each stream goes through four of them: one for each, and one ahead.
    assert run.most_open <= 5
    assert finished(replace(config, rounds=40), data=data, prefetch=1).most_open <= 5


@pytest.mark.parametrize("sizes", [(9,) * 30, (90, 70, 40), (400,)])
def test_what_is_open_at_a_time_is_predicted(sizes):
    data = make_data(sizes)
    config = replace(LOCAL, streams=5, passes=1)
    run = finished(config, data=data)
    schedule = plan_of(data, config)
    estimate = estimate_run(data, run.coordinator.problem, schedule, on_cluster=True)
    predicted = estimate.process["rows"]  # the vocabularies
    is_open: dict[int, int] = {}
    most = 0
    for entry in run.log:
        if isinstance(entry, Open):
            is_open[entry.reading] = 8 * data.partitions[entry.partition].n_local
        elif isinstance(entry, Close):
            del is_open[entry.reading]
        most = max(most, sum(is_open.values()))
    assert most <= predicted <= 2 * most


def test_what_comes_next_is_announced():
    """All slices but those of streams that come later to an open partition."""
    known: set[tuple[int, int]] = set()
    missed = 0
    for entry in finished(replace(LOCAL, passes=1)).log:
        match entry:
            case Open(_, _, ahead):
                known |= {(slice_.reading, slice_.start) for slice_ in ahead}
            case Compute(_, slice_, _, ahead):
                missed += (slice_.reading, slice_.start) not in known
                if ahead is not None:
                    assert (ahead.reading, ahead.start) == (slice_.reading, slice_.stop)
                    known.add((ahead.reading, ahead.start))
    assert missed <= 3


@each_update
@pytest.mark.parametrize("labels", ["binary", "multiclass", "four labels"])
def test_threads_make_the_same_bits(update, labels, monkeypatch):
    monkeypatch.setattr(run_module, "CHUNK_ROWS", 7)
    data = make_data((30, 17, 0, 41, 8), labels=labels)
    config = replace(LOCAL, update=update, streams=5)
    one, two = (train(data, config, threads=threads) for threads in (1, 2))
    assert bits(one) == bits(two)
    by_hand = finished(config, data=data).coordinator
    assert state_bytes(one.coordinator.state) == state_bytes(by_hand.state)
    assert one.report["steps"] == one.report["rows"] == 192


@pytest.mark.timeout(300)
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_workers_make_the_same_bits(workers, tmp_path, monkeypatch):
    monkeypatch.setitem(dask.config.config["dadagrad"], "task-work", 1)
    data = make_data((90, 70, 110, 40), labels="four labels", weighted=True, n_features=300)
    url = write_zarr(data, tmp_path / "data")
    config = replace(LOCAL, streams=6)
    here = train(url, config)
    there = train(url, config, workers=workers)
    assert bits(here) == bits(there)
    predicted = dry_run(url, config, workers=workers).bytes_per_step
    assert there.report["bytes_per_step"] == pytest.approx(sum(predicted.values()), rel=0.4)
    assert here.report["bytes_per_step"] is None


@each_update
def test_a_run_stopped_by_hand_goes_on_from_its_checkpoints(tmp_path, update):
    config = replace(LOCAL, update=update)
    whole = train(DATA, config)
    folder = str(tmp_path / "run")
    seen = []

    def give_up(report):
        seen.append(report)
        if len(seen) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(DATA, config, checkpoints=folder, save_every=20, progress=give_up)
    assert bits(resume(folder, data=DATA)) == bits(whole)


def learnable(n_rows: int, seed: int) -> MemoryDataset:
    return make_data((n_rows // 2, n_rows // 2), seed=seed, n_features=400, entries=20)


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
    data = learnable(2_000, 7)
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


def test_a_value_that_is_too_large_is_named():
    rows = DATA.read(0)
    values = rows.values.copy()
    values[:] = 1e30
    broken = MemoryDataset([replace(rows, values=values)], DATA.schema)
    with pytest.raises(TrainingError, match=r"partition .* the score of row \d+ is not finite"):
        train(broken, replace(LOCAL, loss="squared-hinge"))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"batch_size": 8}, "each row is a step of its stream, so batch_size 8"),
        ({"update": "pa", "l1": 0.0}, "merges the sums of each coordinate, which needs one"),
        ({"update": "coin-betting", "l1": 0.0}, "merges the sums of each coordinate"),
        ({"preconditioner": "full"}, "in the preconditioner 'diagonal' with l1"),
        ({"regularizer": "l2-norm:strength=1.0"}, "in the preconditioner 'diagonal' with l1"),
        ({"average": True}, "without averaging"),
        ({"streams": 0}, "streams must be a whole number of at least 1, not 0"),
        ({"rounds": 0}, "rounds must be a whole number of at least 1, not 0"),
        ({"streams": 1}, "rounds=8 is the number of merges of several streams"),
    ],
)
def test_what_cannot_be_combined_is_refused_with_the_reason(settings, reason):
    with pytest.raises(InputError, match=reason):
        replace(LOCAL, **settings)


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


def sent_walk(update: str, labels: str) -> tuple[Result, tuple[object, ...]]:
    """What a worker would send of the first slice, and what it is held against."""
    data = make_data(labels=labels)
    coordinator = coordinator_of(data, replace(LOCAL, update=update))
    (opened, *_) = (one for one in coordinator.start() if isinstance(one, Open))
    rows = data.read(opened.partition)
    (asked, *_) = (
        one
        for one in coordinator.handle(Opened(opened.reading, rows.vocabulary))
        if isinstance(one, Compute)
    )
    result = compute(coordinator.problem, rows, asked.slice_, asked.given.at(None), "here")
    return result, (coordinator.problem, asked.slice_, rows.vocabulary)


@each_update
@pytest.mark.parametrize("labels", ["binary", "multiclass", "four labels"])
def test_a_walk_that_cannot_be_right_is_doubted(update, labels):
    sound, against = sent_walk(update, labels)
    assert validate(sound, *against) is None
    state = sound.change
    nan = np.full_like(state.accumulators, np.nan)
    broken = {
        "its state is not finite": replace(sound, change=replace(state, accumulators=nan)),
        "its intercept is not finite": replace(
            sound, change=replace(state, intercept=state.intercept * np.nan)
        ),
        "its time is not finite": replace(sound, change=replace(state, t=np.inf)),
        "its state has the shape": replace(
            sound, change=replace(state, accumulators=state.accumulators[:, :-1])
        ),
        "its last update has the shape": replace(
            sound, change=replace(state, last_update=np.zeros((len(state.last_update), 99)))
        ),
        "its positions are not increasing": replace(sound, positions=sound.positions[::-1]),
    }
    for reason, walk in broken.items():
        assert reason in str(validate(walk, *against))
