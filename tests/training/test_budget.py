"""What is predicted of a run: exactly where it can be, and near the truth elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import local_cluster
from training_cases import make_data
from wide_cases import hashed_rows, write_wide

import dadagrad
from dadagrad.config import TrainConfig
from dadagrad.data.dataset import LabelColumn, Partition, Schema
from dadagrad.errors import InputError
from dadagrad.method import Method, make_method
from dadagrad.training import room
from dadagrad.training.budget import make_budget, n_steps
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.plan import Plan
from dadagrad.training.room import free_memory
from dadagrad.training.run import Where, train
from dadagrad.training.states import feature_bytes, state_bytes, zero_state
from dadagrad.training.traffic import decoded_bytes, distinct, follow, touched

ALGORITHMS = (
    *({"update": update} for update in ("dual-averaging", "mirror-descent", "ftrl")),
    *(
        {"metric": metric}
        for metric in (
            "identity", "normalized", "full", "sketch", "corrected-sketch", "radagrad", "ada-lr",
            "fd-son",
        )
    ),
    {"metric": "block", "blocks": 3},
    {"metric": "block", "blocks": 1},
    {"metric": "normalized", "update": "mirror-descent"},
    {"metric": "sketch", "rank": 3},
    {"regularizer": "mixed-l2", "strength": 0.1},
    {"domain": "l1-ball", "radius": 1.0},
    {"average": True},
    *(
        {"update": update}
        for update in (
            "pa", "pa-1", "pa-2", "arow", "arow-full", "eg", "eg-signed", "strongly-convex",
            "strongly-convex-simplex",
        )
    ),
    {"update": "arow", "fit_intercept": False, "average": True},
    {"step_size": "free"},
)  # fmt: skip


def method_of(settings: dict[str, object], n_features: int, n_classes: int) -> Method:
    column = LabelColumn("label", tuple(map(float, range(n_classes))), (1,) * n_classes)
    batch_size = 1
    config = TrainConfig(**{"step_size": 0.1, **settings})
    return make_method(config, Schema(n_features, (column,)), batch_size)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
@settings(max_examples=8)
@given(n_features=st.integers(1, 70), n_classes=st.integers(2, 4))
def test_the_bytes_of_a_state_are_known_before_it_is_made(algorithm, n_features, n_classes):
    method = method_of(algorithm, n_features, n_classes)
    arrays = zero_state(method).arrays
    assert state_bytes(method) == sum(array.nbytes for array in arrays.values())
    assert {name: array.shape for name, array in arrays.items()} == {
        name: shape for name, (shape, _) in type(zero_state(method)).shapes(method).items()
    }


@pytest.mark.parametrize("update", ["dual-averaging", "mirror-descent"])
@pytest.mark.parametrize("n_classes", [3, 4])
def test_outputs_that_the_loss_couples(update, n_classes):
    method = method_of({"update": update, "loss": "softmax"}, 50, n_classes)
    assert method.bundle_width == n_classes
    arrays = zero_state(method).arrays
    assert state_bytes(method) == sum(array.nbytes for array in arrays.values())
    of_features = 50 * feature_bytes(method)
    assert state_bytes(method) == of_features + arrays["intercept"].nbytes


def test_blocks_of_several_sizes():
    method = method_of({"metric": "block", "blocks": (3, 1, 3, 4)}, 11, 3)
    arrays = zero_state(method).arrays
    assert state_bytes(method) == sum(array.nbytes for array in arrays.values())


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_the_bytes_of_a_huge_state_are_found_without_memory(algorithm):
    """Of 2^44 features no array of any kind can be made."""
    assert state_bytes(method_of(algorithm, 1 << 44, 2)) >= 8 << 44


@given(
    nnz=st.integers(1, 10**7),
    local=st.floats(0.0, 1.0),
    share=st.floats(0.0, 1.0),
)
def test_touched_features_are_within_their_bounds(nnz, local, share):
    n_local = max(1, round(local * nnz))
    partition = Partition("part", 10, nnz, n_local, "")
    some = max(1.0, share * nnz)
    found = touched(some, partition)
    assert 0 < found <= min(some, n_local) * (1 + 1e-9)
    assert touched(nnz, partition) == n_local
    assert found <= touched(min(nnz, some + 1), partition) * (1 + 1e-9)


@pytest.mark.parametrize("n_rows", [1, 10, 100, 1000])
def test_touched_features_of_hashed_words(n_rows):
    rows = hashed_rows(0, 4000, 50, 20)
    partition = Partition("part", rows.n_rows, rows.nnz, rows.n_local, "")
    part = rows.slice(0, n_rows)
    true = len(np.unique(part.indices))
    assert touched(part.nnz, partition) == pytest.approx(true, rel=0.3)


def test_distinct_features_of_independent_partitions():
    random, n_features = np.random.default_rng(0), 10_000
    draws = [random.choice(n_features, size, replace=False) for size in (10, 3000, 4000, 9000)]
    partitions = [Partition("part", 1, len(ids), len(ids), "") for ids in draws]
    for n in range(len(draws) + 1):
        true = len(np.unique(np.concatenate([*draws[:n], []])))
        assert distinct(n_features, partitions[:n]) == pytest.approx(true, rel=0.02)
    assert distinct(100, [Partition("part", 1, 500, 100, "")]) == 100


def test_decoded_bytes_are_those_of_the_rows(tmp_path):
    data = dadagrad.open_dataset(write_wide(tmp_path / "data", 12, 2, 300))
    for number, partition in enumerate(data.partitions):
        rows = data.read(number)
        assert decoded_bytes(data, partition) == pytest.approx(rows.nbytes, rel=0.05)


class TestFollowing:
    """The walk through a plan without data is that of the coordinator."""

    @pytest.mark.parametrize("delay", [0, 2])
    @pytest.mark.parametrize("batch_size", [1, 30])
    def test_steps_and_open_partitions(self, batch_size, delay, tmp_path):
        from training_cases import ByHand

        if delay and batch_size == 1:
            pytest.skip("a delay needs batches")
        data = dadagrad.open_dataset(write_wide(tmp_path / "data", 10, 9, 40, 8))
        config = TrainConfig(step_size=0.1, batch_size=batch_size, delay=delay, passes=2)
        method = make_method(config, data.schema, batch_size)
        plan = Plan((40,) * 9, batch_size, config.lanes, 2, True, 0, chunk_rows=7)
        coordinator = Coordinator(method, plan, zero_state(method))
        by_hand = ByHand(data, coordinator).run()
        largest = max(decoded_bytes(data, partition) for partition in data.partitions)
        found = follow(data, method, plan)
        assert by_hand.most_open - 1 < found.open_bytes / largest <= by_hand.most_open
        assert n_steps(plan) == coordinator.steps == 2 * 360 // batch_size


MEASURE = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from wide_cases import peak_memory
from dadagrad import TrainConfig, dry_run, train
url, settings, checkpoints = json.loads(sys.argv[2])
config = TrainConfig(**settings)
predicted = dry_run(url, config, checkpoints=checkpoints).coordinator
train(url, config, checkpoints=checkpoints, save_seconds=1e6)
print(json.dumps({**predicted, "peak": peak_memory()}))
"""


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> str:
    return write_wide(tmp_path_factory.mktemp("wide") / "data", 22, 8, 10_000)


@pytest.mark.parametrize(
    ("settings", "checkpoints"),
    [
        ({"step_size": 0.3}, False),
        ({"update": "mirror-descent"}, False),
        ({"step_size": 0.3, "batch_size": 800}, True),
        ({"step_size": 0.3, "batch_size": 8000, "delay": 3, "squares": "example"}, False),
    ],
    ids=str,
)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks are read from /proc")
def test_the_peak_of_a_run_is_what_was_predicted(wide, tmp_path, settings, checkpoints):
    given = [wide, settings, str(tmp_path / "run") if checkpoints else None]
    paths = json.dumps([str(folder) for folder in Path(__file__).parents[:2]])
    command = [sys.executable, "-c", MEASURE, paths, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    measured = json.loads(done.stdout)
    assert measured["state"] >= 8 << 22
    assert measured["peak"] == pytest.approx(measured["total"], rel=0.1)
    # It is no wonder if all of it is the libraries, or what compiling them took.
    assert measured["total"] - measured["process"] > 8 << 22


class TestRefusals:
    def wide_data(self, n_features: int):
        data = make_data()
        data.schema = replace(data.schema, n_features=n_features)
        return data

    @pytest.mark.parametrize(
        ("settings", "advice"),
        [
            ({}, "hash to fewer features (ingest with --hash-bits 3"),
            ({"update": "mirror-descent"}, "hash to fewer features"),
            ({"metric": "full"}, "choose the diagonal metric"),
            ({"metric": "block", "blocks": 1 << 20}, "choose the diagonal metric"),
            ({"metric": "sketch"}, "choose the diagonal metric"),
            ({"update": "arow-full"}, "choose update 'arow'"),
            ({"update": "pa"}, "hash to fewer features"),
            ({"average": True}, "hash to fewer features"),
        ],
        ids=str,
    )
    def test_what_cannot_fit_is_refused_before_anything_is_made(self, settings, advice, tmp_path):
        data = self.wide_data(1 << 40)
        config = TrainConfig(**{"step_size": 0.1, **settings})
        announced: list[str] = []
        with pytest.raises(InputError) as caught:
            train(data, config, checkpoints=str(tmp_path / "run"), announce=announced.append)
        message = str(caught.value)
        assert "1,099,511,627,776 features, 1 output(s)" in message
        assert advice in message
        assert "are free" in message
        assert "\n" not in message
        assert not announced
        assert not (tmp_path / "run").exists()
        assert dadagrad.dry_run(data, config, checkpoints="run").problem == message

    def test_estimators_refuse_it_too(self):
        data = self.wide_data(1 << 40)
        with pytest.raises(InputError, match="training takes up to"):
            dadagrad.AdaGradClassifier(step_size=0.1).fit(data)
        with pytest.raises(InputError, match="training takes up to"):
            dadagrad.AdaGradClassifier(step_size=0.1).partial_fit(data)

    def test_what_was_allowed_is_not_exceeded(self):
        data, config = self.wide_data(1 << 16), TrainConfig(step_size=0.1)
        needed = dadagrad.dry_run(data, config).coordinator
        exactly = needed["total"] - needed["process"]
        train(data, config, where=Where(memory=exactly))
        with pytest.raises(InputError, match=r"and memory=.* allows less: "):
            train(data, config, where=Where(memory=exactly - 1))

    def test_more_may_be_allowed_than_is_free(self, monkeypatch):
        monkeypatch.setattr(room, "_group_rests", lambda: [1 << 10])
        data, config = self.wide_data(1 << 22), TrainConfig(step_size=0.1)
        with pytest.raises(InputError, match=r"and 1.02 kB are free"):
            train(data, config)
        train(data, config, where=Where(memory=1 << 30))

    def test_the_trial_of_step_sizes_counts(self, tmp_path):
        url = write_wide(tmp_path / "data", 16, 2, 2000)
        train(url, TrainConfig(step_size=0.1), where=Where(memory=5 << 20))
        with pytest.raises(InputError, match="give a step size instead of 'auto'"):
            train(url, TrainConfig(), where=Where(memory=5 << 20))

    def test_a_worker_that_is_too_small(self, tmp_path):
        url = write_wide(tmp_path / "data", 10, 2, 50)
        with (
            local_cluster(1, memory_limit="250MB", processes=False) as cluster,
            pytest.raises(InputError, match=r"a worker needs .*, 250 MB, Dask lets it have 80 %: "),
        ):
            train(url, TrainConfig(step_size=0.1), where=Where(scheduler=cluster.scheduler_address))

    @pytest.mark.parametrize("memory", [0, -1, 1.5, "1GB", True])
    def test_memory_is_a_number_of_bytes(self, memory):
        with pytest.raises(InputError, match="memory must be a whole number of at least 1"):
            Where(memory=memory)


class TestRoom:
    def write(self, folder: Path, **files: object) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name.replace("__", ".")).write_text(f"{content}\n")
        return folder

    def test_control_groups_count_and_those_above_them(self, tmp_path):
        root, own = tmp_path / "cgroup", tmp_path / "own"
        own.write_text("0::/slice/job\n")
        self.write(root / "slice", memory__max=1000, memory__current=400)
        self.write(
            root / "slice" / "job", memory__max=800, memory__current=500,
            memory__stat="anon 300\ninactive_file 150\nslab 10",
        )  # fmt: skip
        self.write(root / "slice" / "other", memory__max=1, memory__current=1)
        assert sorted(room._group_rests(root, own)) == [450, 600]

    def test_control_groups_of_the_first_version(self, tmp_path):
        root, own = tmp_path / "cgroup", tmp_path / "own"
        own.write_text("5:cpu:/x\n4:cpuset,memory:/job\n0::/\n")
        self.write(root / "memory" / "job", memory__limit_in_bytes=900, memory__usage_in_bytes=100)
        self.write(root / "memory", memory__limit_in_bytes=2**63 - 4096, memory__usage_in_bytes=1)
        assert list(room._group_rests(root, own)) == [800]

    def test_no_limit_and_no_groups(self, tmp_path):
        own = tmp_path / "own"
        own.write_text("0::/job\n")
        self.write(tmp_path / "job", memory__max="max", memory__current=5)
        assert list(room._group_rests(tmp_path, own)) == []
        assert list(room._group_rests(tmp_path, tmp_path / "absent")) == []

    def test_a_limit_of_addresses(self):
        pytest.importorskip("resource")
        script = (
            "import resource, psutil; from dadagrad.training.room import free_memory\n"
            "most = psutil.Process().memory_info().vms + (100 << 20)\n"
            "resource.setrlimit(resource.RLIMIT_AS, (most, most))\n"
            "assert 50 << 20 < free_memory() <= 100 << 20, free_memory()\n"
        )
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)

    def test_the_free_memory_of_this_machine(self):
        assert 0 < free_memory() < 1 << 60
        assert 1 << 20 < room.resident() < 1 << 40


@pytest.mark.parametrize(("n_outputs", "at_once", "width"), [(1, 1, 1), (3, 2, 1), (4, 2, 2)])
def test_each_thread_walks_on_a_share_of_one_bundle(n_outputs, at_once, width):
    columns = tuple(LabelColumn(f"label{k}", (0.0, 1.0), (1, 1)) for k in range(n_outputs))
    data = make_data((40,), n_features=1 << 16)
    data.schema = Schema(1 << 16, columns)
    config = TrainConfig(step_size=0.1)
    method = make_method(config, data.schema, 1)
    plan = Plan((40,), 1, 4, 1, True, 0)
    steps = [
        make_budget(data, method, plan, on_dask=False, threads=threads).coordinator.step
        for threads in (1, 2)
    ]
    (partition,) = data.partitions
    share = 9 * width * partition.n_local
    assert steps[1] - steps[0] == (at_once - 1) * share
    assert steps[0] > share


class Weighing(Coordinator):
    """Weighs the sums that there are when a step is made."""

    most = 0

    def _step(self, done):
        under_way = [one.sum for one in self._under_way if one.sum is not None]
        totals = [one.total for one in (done, *under_way, *self._unseen)]
        arrays = [getattr(total, field.name) for total in totals for field in fields(total)]
        self.most = max(self.most, sum(array.nbytes for array in arrays))
        super()._step(done)


class Newest:
    """Has the newest of what is outstanding done first."""

    def integers(self, n: int) -> int:
        return n - 1

    def random(self) -> float:
        return 1.0


@pytest.mark.parametrize("squares", ["batch", "example"])
@pytest.mark.parametrize("delay", [0, 1, 4])
def test_a_delay_keeps_sums_of_rounds_before_and_under_way(delay, squares, tmp_path):
    from training_cases import ByHand

    data = dadagrad.open_dataset(write_wide(tmp_path / "data", 14, 4, 200))
    config = TrainConfig(step_size=0.1, batch_size=20, lanes=1, delay=delay, squares=squares)
    method = make_method(config, data.schema, 20)
    plan = Plan((200,) * 4, 20, 1, 1, True, 0)
    coordinator = Weighing(method, plan, zero_state(method))
    by_hand = ByHand(data, coordinator)
    by_hand.rng = Newest()
    by_hand.run()
    step = make_budget(data, method, plan, on_dask=True).coordinator.step
    without = replace(method, config=replace(config, delay=0))
    of_none = make_budget(data, without, plan, on_dask=True).coordinator.step
    walk = follow(data, method, plan)
    of_sum = walk.step_touched * (16 + 8 * (squares == "example"))
    # How many features rows touch is an estimate.
    assert coordinator.most == pytest.approx((1 + 2 * delay) * of_sum, rel=0.3)
    on_their_way = 3 * delay * walk.step_bytes
    squares_seen = 16 * walk.step_touched * (delay > 0)
    assert step - of_none == 2 * delay * of_sum + squares_seen + on_their_way
    if not delay:
        assert step > of_sum


@dataclass(frozen=True)
class FewRounds(Plan):
    """A plan of which nobody may look at more rounds than would be bearable."""

    def rounds(self, start):
        for number, planned in enumerate(super().rounds(start)):
            assert number < 10_000
            yield planned


@pytest.mark.parametrize("delay", [0, 2])
@pytest.mark.parametrize("n_partitions", [1, 3])
def test_rows_that_metadata_only_declares_are_not_planned_for(n_partitions, delay):
    """Not even to find the partitions that are opened ahead: here one gives rows to all rounds."""
    declared = 2**31 - 1
    data = make_data((40,) * n_partitions)
    data.partitions = tuple(replace(one, n_rows=declared) for one in data.partitions)
    config = TrainConfig(step_size=0.1, batch_size=64, lanes=1, delay=delay)
    method = make_method(config, data.schema, 64)
    plan = FewRounds((declared,) * n_partitions, 64, 1, 1, True, 0)
    budget = make_budget(data, method, plan, on_dask=True)
    assert budget.steps == -(-declared * n_partitions // 64)
    coordinator = Coordinator(method, plan, zero_state(method))
    assert coordinator.start()
