"""Delayed steps: gradients of earlier weights, by number, whatever arrives first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import local_cluster
from test_local import plain_step
from training_cases import (
    N_FEATURES,
    UPDATES,
    ByHand,
    gone_on_from,
    make_data,
    make_plan,
    method_of,
    new_coordinator,
    tally_bytes,
)
from zarr_cases import write_zarr

from dadagrad.algorithm import ROW_LEARNERS
from dadagrad.config import TrainConfig
from dadagrad.data.dataset import Dataset, MemoryDataset
from dadagrad.errors import CorruptionError, InputError
from dadagrad.estimators import AdaGradClassifier
from dadagrad.losses import make_loss
from dadagrad.metrics import Diagonal
from dadagrad.regularizers import ElasticBox
from dadagrad.training import checkpoint
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.gradient_sums import GradientSum
from dadagrad.training.local import LocalEngine
from dadagrad.training.plan import Cursor, n_turns
from dadagrad.training.protocol import (
    Close,
    Compute,
    Finish,
    Gradient,
    Open,
    Report,
    Save,
    SaveRequested,
    StopRequested,
    Weights,
)
from dadagrad.training.run import TrainResult, Where, resume, train
from dadagrad.training.saver import restore
from dadagrad.training.states import TrainingState, zero_state
from dadagrad.training.tally import Tally
from dadagrad.training.watch import Watcher
from dadagrad.training.worker import compute
from dadagrad.updates import make_update

DATA = make_data((30, 17, 41, 8), weighted=True)
CONFIG = TrainConfig(step_size=0.3, batch_size=9, l1=1e-3, l2=1e-3, delay=2)
PLAIN = {
    "metric": {"metric": "full"},
    "sketch": {"metric": "corrected-sketch", "rank": 4, "update": "ftrl"},
    "norm": {"regularizer": "l2-norm", "strength": 1e-3, "update": "mirror-descent"},
    "domain": {"domain": "l1-ball", "radius": 2.0, "l1": 0.0, "l2": 0.0},
    "average": {"average": True},
}
each_update = pytest.mark.parametrize("update", UPDATES)
COMPILED = [{"update": update} for update in UPDATES]
each_algorithm = pytest.mark.parametrize("settings", [*COMPILED, *PLAIN.values()], ids=str)
each_kind = pytest.mark.parametrize("settings", [*COMPILED, PLAIN["metric"]], ids=str)
configs = st.builds(
    replace,
    st.just(CONFIG),
    loss=st.sampled_from(["hinge", "logistic"]),
    update=st.sampled_from(UPDATES),
    batch_size=st.sampled_from([5, 9, 40]),
    passes=st.integers(1, 2),
    lanes=st.integers(1, 3),
    squares=st.sampled_from(["batch", "example"]),
    delay=st.integers(0, 5),
    seed=st.integers(0, 3),
)


def bits(state: TrainingState) -> bytes:
    arrays = [state.arrays[name].tobytes() for name in sorted(state.arrays)]
    return b"".join([*arrays, np.float64(state.t).tobytes()])


def reference(data: Dataset, config: TrainConfig) -> tuple[bytes, tuple[object, ...]]:
    """The bits of state and tally by a plain loop that keeps a copy of every state."""
    method = method_of(data, config)
    state, tally, steps, cursor = zero_state(method), Tally.zero(method), 0, Cursor()
    states = [state.copy()]
    steps_made: list[np.ndarray] = []  # mean gradients, the intercept's last
    for number, round_ in enumerate(make_plan(data, config).rounds(Cursor())):
        before = states[max(0, number - config.delay)]
        gradient, squares = np.zeros((2, data.schema.n_features, method.n_outputs))
        intercept = np.zeros((2, method.n_outputs))
        importance = 0.0
        for piece in round_.pieces:
            rows = data.read(piece.partition)
            weights = before.weights_at(method, rows.vocabulary)
            given = Weights(weights, before.intercepts_now(method))
            result = compute(method, rows, piece, given, "")
            assert isinstance(result, Gradient)
            ids = rows.vocabulary[result.positions]
            gradient[ids] += result.gradient
            if config.squares == "example":
                squares[ids] += result.squares
            intercept += result.intercept
            tally += result.tally
            importance += result.tally.weight
        ids = np.flatnonzero(gradient.any(axis=1) | squares.any(axis=1))
        steps_made.append(np.zeros((len(gradient) + 1, method.n_outputs)))
        if importance > 0:
            mean = np.vstack([gradient, intercept[:1]]) / importance
            square = np.square(mean)
            if config.squares == "example":
                square = np.vstack([squares, intercept[1:]]) / importance
            unseen = sum(steps_made[-1 - config.delay : -1], np.zeros_like(mean))
            square = importance * (square + np.maximum(mean * unseen, 0.0))
            if not method.compiled or (config.delay == 0 and config.squares == "batch"):
                square = np.zeros((0, 0))
            elif config.delay == 0:
                square = np.vstack([squares, intercept[1:]])
            total = GradientSum(
                ids,
                gradient[ids],
                square[ids] if len(square) else square,
                intercept[:1],
                square[-1:] if len(square) else square,
            )
            state.step(method, total, importance)
            steps_made[-1] = mean
            steps += 1
        cursor = round_.after
        states.append(state.copy())
    counts = (tally.examples, tally.entries, tally.weight)
    return bits(state), (
        *counts,
        tally.loss.tobytes(),
        tally.mistakes.tobytes(),
        steps,
        cursor,
    )


def outcome(coordinator: Coordinator) -> tuple[bytes, tuple[object, ...]]:
    return bits(coordinator.state), tally_bytes(coordinator)


class Backwards(ByHand):
    """What was asked for last is done first, and partitions open when nothing else is left."""

    def run(self, requests=None):
        super().run(requests)
        return self

    def _go_on_after(self, instructions):
        super()._go_on_after(instructions)
        self.waiting.reverse()


@given(
    configs,
    st.sampled_from([ByHand, Backwards]),
    st.one_of(st.none(), st.integers(0, 100)),
    st.integers(0, 4),
)
def test_bits_are_those_of_the_plain_loop_in_any_order_of_arrival(config, engine, seed, prefetch):
    driven = engine(DATA, new_coordinator(DATA, config, prefetch=prefetch), seed).run()
    assert driven.complete
    assert outcome(driven.coordinator) == reference(DATA, config)


@each_algorithm
def test_threads_make_the_bits_of_the_plain_loop(settings):
    config = replace(CONFIG, **settings, passes=2)
    expected = reference(DATA, config)
    for threads in (1, 2, 4):
        coordinator = new_coordinator(DATA, config)
        assert LocalEngine(DATA, threads).run(coordinator, Watcher())
        assert outcome(coordinator) == expected


@pytest.mark.parametrize("loss", ["softmax", "multiclass-hinge", "logistic"])
def test_several_outputs(loss):
    data = make_data((30, 17, 41), labels="multiclass")
    config = replace(CONFIG, loss=loss)
    driven = ByHand(data, new_coordinator(data, config), 7).run()
    assert outcome(driven.coordinator) == reference(data, config)


def test_pairs_of_a_ranking():
    made = make_data((30, 24), labels="real")
    parts = [replace(rows, queries=np.arange(rows.n_rows) // 3) for rows in map(made.read, (0, 1))]
    data = MemoryDataset(parts, replace(made.schema, queried=True))
    config = replace(CONFIG, loss="ranking", fit_intercept=False)
    driven = ByHand(data, new_coordinator(data, config), 7).run()
    assert driven.coordinator.steps > 3
    assert outcome(driven.coordinator) == reference(data, config)


@each_update
@pytest.mark.parametrize("loss", ["hinge", "logistic", "squared", "quantile"])
@pytest.mark.parametrize("delay", [1, 4])
def test_weights_are_those_of_the_formulas_with_past_weights(update, loss, delay):
    """No kernel, no engine, no state: NumPy, and a list of the weights there have been."""
    labels = "binary" if loss in ("hinge", "logistic") else "real"
    data = make_data((30, 17, 41), labels=labels)
    config = replace(CONFIG, update=update, loss=loss, delay=delay)
    method, value = method_of(data, config), make_loss(loss)
    penalty = ElasticBox(config.l1, config.l2)
    step = make_update(update, config.step_size, Diagonal(config.delta), penalty)
    free = make_update(update, config.step_size, Diagonal(config.delta), ElasticBox())
    state, constant = step.init(N_FEATURES), free.init(1)
    steps_made: list[np.ndarray] = []
    past = [(step.weights(state), free.weights(constant)[0])]
    for round_ in make_plan(data, config).rounds(Cursor()):
        weights, bias = past[max(0, len(past) - 1 - delay)]
        gradient, slope_sum, n_rows = np.zeros(N_FEATURES), 0.0, 0
        for piece in round_.pieces:
            rows = data.read(piece.partition).slice(piece.start, piece.stop)
            targets = method.targets(rows.labels)[:, 0]
            for row in range(rows.n_rows):
                entries = slice(rows.indptr[row], rows.indptr[row + 1])
                ids = rows.vocabulary[rows.indices[entries]]
                values = rows.values[entries].astype(float)
                margin = np.array([values @ weights[ids] + bias])
                slope = value.slope(margin, targets[row : row + 1])[0]
                gradient[ids] += slope * values
                slope_sum += slope
                n_rows += 1
        mean = np.append(gradient, slope_sum) / n_rows
        unseen = sum(steps_made[-delay:], np.zeros_like(mean))
        steps_made.append(mean)
        square = np.square(mean) + np.maximum(mean * unseen, 0.0)
        state = plain_step(step, state, mean[:-1], square[:-1])
        constant = plain_step(free, constant, mean[-1:], square[-1:])
        past.append((step.weights(state), free.weights(constant)[0]))
    driven = ByHand(data, new_coordinator(data, config), 1).run()
    end = driven.coordinator.state
    largest = np.abs(past[-1][0]).max()
    assert largest > 1e-3
    found = end.weights(method)[:, 0]
    np.testing.assert_allclose(found, past[-1][0], rtol=0, atol=3e-6 * largest)
    np.testing.assert_allclose(end.intercepts(method), past[-1][1], rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_a_round_is_issued_when_the_one_before_all_under_way_has_made_its_step(delay):
    config = replace(CONFIG, delay=delay, passes=2)
    driven = ByHand(DATA, new_coordinator(DATA, config), 5).run()
    n_done = n_issued = 0
    of_round = [len(round_.pieces) for round_ in make_plan(DATA, config).rounds(Cursor())]
    pieces_left = 0
    for entry in driven.log:
        if isinstance(entry, Report):
            # All that may take the weights of this moment have; the next is allowed to now.
            assert n_issued == min(n_done + delay + 1, len(of_round))
            n_done += 1
        if isinstance(entry, Compute):
            if not pieces_left:
                pieces_left = of_round[n_issued]
                n_issued += 1
                assert n_issued <= n_done + delay + 1
            pieces_left -= 1
    assert n_done == n_issued == len(of_round)


def test_what_is_ahead_is_announced_in_time():
    """The piece whose weights are wanted next, when the last result before it comes in."""
    data = make_data((40, 33, 41, 28))
    for delay, lanes in ((0, 2), (1, 2), (2, 2), (2, 4), (3, 2), (3, 4), (5, 3)):
        config = replace(CONFIG, delay=delay, lanes=lanes, batch_size=10)
        announced, known, n_wanted = set(), 0, 0
        waiting: dict[int, object] = {}
        for entry in ByHand(data, new_coordinator(data, config)).run().log:
            if isinstance(entry, Open):
                announced.update(entry.ahead)
            if isinstance(entry, Compute):
                known += entry.piece in announced
                n_wanted += 1
                waiting[entry.task] = entry.ahead
                if entry.ahead is not None:
                    assert entry.ahead.visit == entry.piece.visit
                    assert entry.ahead not in announced
                    announced.add(entry.ahead)
        assert known == n_wanted


@given(configs, st.integers(0, 3))
def test_no_more_partitions_are_open_than_needed_and_all_are_closed(config, prefetch):
    data = make_data((20,) * 12)
    driven = ByHand(data, new_coordinator(data, config, prefetch=prefetch), seed=3).run()
    begun_in_a_batch = -(-config.batch_size // 20)
    under_way = config.lanes + begun_in_a_batch * (config.delay + 1)
    ahead = prefetch * n_turns(config.lanes, config.delay)
    assert driven.most_open <= under_way + config.lanes + begun_in_a_batch + ahead
    assert not driven.open
    n_opened, n_closed = (
        sum(isinstance(entry, kind) for entry in driven.log) for kind in (Open, Close)
    )
    assert n_opened == n_closed == 12 * config.passes


def n_under_way(save: Save) -> int:
    return sum(not done.stepped for done in save.pending)


@each_kind
def test_a_save_at_any_moment_holds_everything(settings):
    config = replace(CONFIG, **settings)
    expected = reference(DATA, config)
    n_events = sum(isinstance(e, Compute | Open) for e in finished(config).log)
    n_pending = set()
    for moment in range(n_events):
        driven = ByHand(DATA, new_coordinator(DATA, config), moment).run({moment: SaveRequested()})
        assert outcome(driven.coordinator) == expected
        saves = driven.saves()
        assert len(saves) in (1, 2)
        n_pending.add(n_under_way(saves[0]))
        assert outcome(gone_on_from(saves[0], DATA, config, moment).coordinator) == expected
    assert n_pending == {0, 1, 2}


@each_kind
def test_a_stop_at_any_moment_can_be_gone_on_from(settings):
    config = replace(CONFIG, **settings)
    expected = reference(DATA, config)
    n_events = sum(isinstance(e, Compute | Open) for e in finished(config).log)
    n_pending = set()
    for moment in range(n_events):
        stopped = ByHand(DATA, new_coordinator(DATA, config), moment).run({moment: StopRequested()})
        *_, save, finish = stopped.log
        assert isinstance(save, Save)
        assert finish == Finish(save.cursor == Cursor(1))
        assert bits(stopped.coordinator.state) == bits(save.state)
        n_pending.add(n_under_way(save))
        assert outcome(gone_on_from(save, DATA, config, moment).coordinator) == expected
    assert {0, 2} <= n_pending


def finished(config: TrainConfig, **options: object) -> ByHand:
    return ByHand(DATA, new_coordinator(DATA, config, **options)).run()


@pytest.mark.parametrize("save_every", [1, 2, 3])
def test_saves_come_every_so_many_steps(save_every):
    driven = finished(CONFIG, save_every=save_every)
    n_steps = driven.coordinator.steps
    expected = [*range(save_every, n_steps, save_every), n_steps]
    assert [save.steps for save in driven.saves()] == expected
    assert outcome(driven.coordinator) == reference(DATA, CONFIG)


def test_saves_again_and_again_while_going_on():
    """A checkpoint of a run that was gone on with is as good as the first."""
    save = finished(CONFIG, save_every=2).saves()[0]
    expected = reference(DATA, CONFIG)
    for _ in range(3):
        driven = gone_on_from(save, DATA, CONFIG, 3, save_every=1)
        assert outcome(driven.coordinator) == expected
        save = driven.saves()[0]


def test_rows_without_weight_make_no_step():
    data = make_data((10, 10), weighted=True)
    data.read(0).weights[:] = 0.0
    config = replace(CONFIG, batch_size=5, lanes=1, shuffle=False)
    driven = ByHand(data, new_coordinator(data, config), 1).run()
    assert driven.coordinator.steps == 2
    assert outcome(driven.coordinator) == reference(data, config)


# Whole runs.


def everything(result: TrainResult) -> tuple[object, ...]:
    return (*outcome(result.coordinator), result.model.digest, result.report["examples"])


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> str:
    made = make_data((90, 0, 70, 110, 40, 60), weighted=True)
    return write_zarr(made, tmp_path_factory.mktemp("data") / "train")


@each_kind
def test_from_every_checkpoint_the_same_bits_follow(settings, tmp_path, monkeypatch):
    # Write each of them, not only the newest when there is time.
    monkeypatch.setattr(
        checkpoint.CheckpointWriter, "submit", lambda self, snapshot: self.save(snapshot.copy())
    )
    config = replace(CONFIG, **settings)
    expected = everything(train(DATA, config))
    saved = train(DATA, config, checkpoints=str(tmp_path / "run"), save_every=1, keep=1000)
    assert everything(saved) == expected
    keys = sorted((tmp_path / "run").glob("manifest-*.json"), reverse=True)
    assert len(keys) == saved.report["steps"] + 1
    for key in keys:
        again = resume(str(tmp_path / "run"), data=DATA, save_seconds=None, keep=1000)
        assert everything(again) == expected
        for newer in (tmp_path / "run").glob("manifest-*.json"):
            if newer.name >= key.name:
                newer.unlink()


@contextmanager
def cluster(n_workers: int) -> Iterator[Where]:
    """Workers in threads of this process: as slow to answer as others, and sooner there."""
    with local_cluster(n_workers, processes=False) as started:
        yield Where(scheduler=started.scheduler_address)


def test_workers_make_the_bits_of_threads(url):
    config = replace(CONFIG, batch_size=60, passes=2, delay=3)
    expected = everything(train(url, config))
    with cluster(1) as where:
        assert everything(train(url, config, where=where)) == expected
    assert everything(train(url, config, where=Where(workers=3))) == expected


def test_bytes_of_a_step_are_what_weights_and_gradients_take(url, monkeypatch):
    """On a cluster; threads move none."""
    from dadagrad.training import dask_drive

    moved: list[int] = []
    count = dask_drive.n_bytes

    def spy(message):
        moved.append(count(message))
        arrays = [getattr(message, name) for name in message.__slots__]
        assert moved[-1] == sum(a.nbytes for a in arrays if isinstance(a, np.ndarray))
        return moved[-1]

    monkeypatch.setattr(dask_drive, "n_bytes", spy)
    config = replace(CONFIG, batch_size=60)
    with cluster(2) as where:
        report = train(url, config, where=where).report
    # Besides, it is told which features are touched.
    assert 0 < sum(moved) <= report["bytes_per_step"] * report["steps"] < 1.5 * sum(moved)
    assert train(url, config).report["bytes_per_step"] is None


def test_stopped_on_a_cluster_and_resumed_on_threads_and_back(url, tmp_path):
    folder = str(tmp_path / "run")
    config = replace(CONFIG, batch_size=20, passes=2)
    seen: list[Report] = []

    def stop(report: Report) -> None:
        seen.append(report)
        if len(seen) in (4, 12):
            signal.raise_signal(signal.SIGINT)

    with cluster(2) as where:
        assert not train(url, config, where=where, checkpoints=folder, progress=stop).complete
        n_pending = [len(meta["pending"]) for meta in metas(folder) if "pending" in meta]
        assert n_pending == [2 * config.delay]
        assert not resume(folder, progress=stop).complete
        result = resume(folder, where=where)
    assert everything(result) == everything(train(url, config))


def metas(folder: str) -> list[dict]:
    return [info.meta for info in checkpoint.CheckpointReader(folder).list(verify=True)]


# Damage.


@pytest.fixture
def snapshot(tmp_path):
    seen: list[Report] = []

    def stop(report: Report) -> None:
        seen.append(report)
        if len(seen) == 4:
            signal.raise_signal(signal.SIGINT)

    config = replace(CONFIG, squares="example")
    train(DATA, config, checkpoints=str(tmp_path / "run"), progress=stop)
    return checkpoint.CheckpointReader(str(tmp_path / "run")).load()


def drop(name):
    def change(arrays, meta):
        del arrays[name]

    return change


def put(name, of):
    def change(arrays, meta):
        arrays[name] = of(arrays[name])

    return change


def tell(name, of):
    def change(arrays, meta):
        meta[name] = of(meta[name])

    return change


def without_loss(rounds):
    return [
        of_round | {"tallies": [tally | {"loss": []} for tally in of_round["tallies"]]}
        for of_round in rounds
    ]


DAMAGE = {
    "an array is missing": (drop("pending.1.ids"), "where .* were expected"),
    "a round is missing": (tell("pending", lambda rounds: rounds[:1]), "were expected"),
    "a round too many": (
        tell("pending", lambda rounds: [*rounds, rounds[-1]]),
        "3 rounds were under way and 2 before them kept, where delay=2 allows fewer",
    ),
    "out of order": (tell("pending", lambda rounds: rounds[::-1]), "out of order"),
    "no truth": (
        tell("pending", lambda rounds: [one | {"stepped": "yes"} for one in rounds]),
        "out of order",
    ),
    "at the end": (
        tell("cursor", lambda cursor: {"pass_number": 0, "round": 10}),
        "2 rounds were under way, which is more than are left",
    ),
    "other numbers": (
        put("pending.0.ids", lambda ids: ids.astype(np.float64)),
        "ids of pending round 0 is float64",
    ),
    "other shape": (
        put("pending.0.gradient", lambda gradient: gradient[:-1]),
        "gradient of pending round 0 is float64, shape",
    ),
    "not finite": (
        put("pending.0.squares", lambda squares: squares * np.nan),
        "squares of pending round 0 is not finite",
    ),
    "unknown features": (
        put("pending.1.ids", lambda ids: ids + N_FEATURES),
        "ids of pending round 1 are not all from 0 to 59",
    ),
    "negative features": (put("pending.1.ids", lambda ids: ids - 50), "not all from 0 to 59"),
    "a feature twice": (put("pending.1.ids", lambda ids: 0 * ids), "are not increasing"),
    "features out of order": (put("pending.1.ids", lambda ids: ids[::-1]), "are not increasing"),
    "no scalar": (put("pending.1.ids", lambda ids: ids[0]), "has no len"),
    "other tallies": (tell("pending", without_loss), "is not of 1 setting"),
    "no tallies": (tell("pending", lambda rounds: 7), "TypeError"),
    "text": (tell("pending", lambda rounds: ["ab", "cd"]), "TypeError"),
}


@pytest.mark.parametrize("kind", list(DAMAGE))
def test_what_was_under_way_is_checked(snapshot, kind):
    change, message = DAMAGE[kind]
    config = replace(CONFIG, squares="example")
    method, plan = method_of(DATA, config), make_plan(DATA, config)
    arrays, meta = dict(snapshot.arrays), dict(snapshot.meta)
    assert len(restore(replace(snapshot, arrays=arrays), method, plan, "here").pending) == 4
    change(arrays, meta)
    damaged = replace(snapshot, arrays=arrays, meta=meta)
    with pytest.raises(CorruptionError, match=message):
        restore(damaged, method, plan, "here")


def test_a_checkpoint_of_before_there_was_a_delay(tmp_path):
    config = replace(CONFIG, delay=0)
    train(DATA, config, checkpoints=str(tmp_path), save_every=4, keep=99)
    found = checkpoint.CheckpointReader(str(tmp_path)).load()
    meta = {name: value for name, value in found.meta.items() if name != "pending"}
    del meta["config"]["delay"]
    assert TrainConfig.from_json(meta["config"]) == config
    old = replace(found, meta=meta)
    assert restore(old, method_of(DATA, config), make_plan(DATA, config), "here").pending == ()


# Refusals.


@pytest.mark.parametrize("delay", [-1, 1.5, "2", True, None])
def test_a_delay_is_a_whole_number(delay):
    with pytest.raises(
        InputError, match="delay must be a whole number of at least 0 or 'auto', not"
    ):
        TrainConfig(delay=delay)


def test_one_row_a_step_cannot_be_delayed():
    with pytest.raises(InputError, match="delay=2 needs a batch_size above 1: with one row a step"):
        TrainConfig(delay=2, batch_size=1)


@pytest.mark.parametrize("learner", [*ROW_LEARNERS, "free"])
@pytest.mark.parametrize("batch_size", ["auto", 1])
def test_learners_go_row_by_row(learner, batch_size):
    settings = {"step_size": "free"} if learner == "free" else {"update": learner}
    with pytest.raises(InputError, match=r"learns row by row, .* so delay=1 is not possible"):
        TrainConfig(**settings, delay=1, batch_size=batch_size)


def test_auto_is_one_row_a_step_here():
    config = TrainConfig(delay=1)
    with pytest.raises(InputError, match="'auto' is 1 on this machine: one row a step"):
        train(DATA, config)
    x, y = np.eye(4), np.array([0, 1, 0, 1])
    for fit in (AdaGradClassifier(delay=1).fit, AdaGradClassifier(delay=1).partial_fit):
        options = {"classes": [0, 1]} if fit.__name__ == "partial_fit" else {}
        with pytest.raises(InputError, match="delay=1 needs a batch_size above 1, and 'auto' is 1"):
            fit(x, y, **options)


def test_an_estimator_takes_it():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5))
    y = x @ rng.normal(size=5) > 0
    models = [
        AdaGradClassifier(step_size=0.1, batch_size=10, passes=1, delay=delay).fit(x, y)
        for delay in (0, 1, 2)
    ]
    assert all(model.score(x, y) > 0.9 for model in models)
    assert all((a.coef_ != b.coef_).any() for a, b in pairwise(models))
