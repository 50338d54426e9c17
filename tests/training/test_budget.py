"""Predictions of the memory and steps of a run: exact or near the truth; refusals before it."""

import json
from dataclasses import replace
from pathlib import Path

import dask.config
import pytest
from helpers.objects import TEXTS
from helpers.processes import local_cluster, run_python
from helpers.training_cases import ByHand, make_data, make_schedule_of, new_coordinator
from helpers.wide_cases import write_wide
from helpers.zarr_cases import write_zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import dadagrad
from dadagrad import InputError, TrainConfig, train
from dadagrad.data.dataset import LabelColumn, Schema
from dadagrad.optim.preconditioners import PRECONDITIONERS
from dadagrad.optim.updates import UPDATES
from dadagrad.problem import make_problem
from dadagrad.storage import memory
from dadagrad.training.memory import check
from dadagrad.training.memory.estimate import estimate_run
from dadagrad.training.memory.partitions import decoded_bytes, reading_bytes
from dadagrad.training.messages import Close, Open
from dadagrad.training.schedule import n_prefetched
from dadagrad.training.state import feature_bytes, state_bytes, zero_state

ALGORITHMS = (
    # Those of a projected gradient are 32-bit numbers in part, which its shapes do not say.
    *({"update": TEXTS.get(name, name)} for name in UPDATES if name != "projected-gradient"),
    *({"preconditioner": TEXTS.get(name, name)} for name in PRECONDITIONERS),
    {"regularizer": "mixed-l2:strength=0.1"},
    {"average": True},
    {"update": "arow", "fit_intercept": False, "average": True},
)


def problem_of(values, n_features, n_classes):
    column = LabelColumn("label", tuple(map(float, range(n_classes))), (1,) * n_classes)
    config = TrainConfig(**{"step_size": 0.1, **values})
    return make_problem(config, Schema(n_features, (column,)), 1)


@given(algorithm=st.sampled_from(ALGORITHMS))
@settings(max_examples=50)
def test_the_bytes_of_a_state_are_known_before_it_is_made(algorithm):
    for n_features, n_classes in ((1, 2), (7, 3), (70, 4)):
        problem = problem_of(algorithm, n_features, n_classes)
        arrays = zero_state(problem).arrays
        assert state_bytes(problem) == sum(array.nbytes for array in arrays.values())
        if problem.compiled:
            of_features = n_features * feature_bytes(problem)
            assert state_bytes(problem) == of_features + arrays["intercept"].nbytes
    huge = problem_of(algorithm, 1 << 44, 2)
    assert state_bytes(huge) >= 8 << 44


STREAMS = {"streams": 5, "rounds": 8}


@pytest.mark.parametrize(
    ("mode", "sizes"),
    [
        ({"batch_size": 1, "passes": 2}, (40,) * 9),
        ({"batch_size": 30, "passes": 2}, (40,) * 9),
        *((STREAMS, sizes) for sizes in ((9,) * 30, (90, 70, 40), (400,))),
    ],
    ids=str,
)
def test_steps_and_open_partitions_are_those_of_the_coordinator(mode, sizes, tmp_path):
    data = dadagrad.open_dataset(write_zarr(make_data(sizes), tmp_path / "data"))
    config = TrainConfig(step_size=0.1, **{"batch_size": 1, **mode})
    for threads in (1, 4):
        check_partitions(data, config, threads)


def check_partitions(data, config, threads):
    """Compare the estimate with a run by hand."""
    ahead = n_prefetched(config.n_streams, threads)
    driven = ByHand(data, new_coordinator(data, config, prefetch=ahead)).run()
    problem, schedule = driven.coordinator.problem, make_schedule_of(data, config)
    estimate = estimate_run(data, problem, schedule, on_cluster=False, threads=threads)
    assert estimate.steps == driven.coordinator.place.steps
    is_open, most = {}, 0
    for entry in driven.log:
        if isinstance(entry, Open):
            is_open[entry.reading] = decoded_bytes(data, data.partitions[entry.partition])
        elif isinstance(entry, Close):
            del is_open[entry.reading]
        most = max(most, sum(is_open.values()))
    reading = max(reading_bytes(data, partition) for partition in data.partitions)
    assert most <= estimate.process["rows"] <= 2 * most + threads * reading
    if (
        config.n_streams == 1
    ):  # workers of a cluster hold the rows, and only their features are here
        here = estimate_run(data, problem, schedule, on_cluster=True).process["rows"]
        largest = 8 * max(partition.n_local for partition in data.partitions)
        assert 0.6 * driven.most_open <= here / largest <= driven.most_open
    if len(data.partitions) == 30:
        assert driven.most_open == config.n_streams + max(threads, 2)
        # Blocks end where partitions do: none is read twice.
        assert sum(isinstance(entry, Open) for entry in driven.log) == 30


def test_each_thread_needs_memory_to_score_rows_that_are_held_out(tmp_path):
    url = write_wide(tmp_path / "data", 16, 20, 500)
    data = dadagrad.open_dataset(url)
    config = TrainConfig(step_size=0.3, holdout=0.5)
    predicted = dadagrad.dry_run(url, config, threads=8).coordinator
    scored = [decoded_bytes(data, each) + 8 * each.nnz for each in data.partitions]
    assert predicted["total"] - predicted["process"] - predicted["state"] > 8 * max(scored)


MEASURE = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from helpers.wide_cases import peak_memory
from dadagrad import TrainConfig, dry_run, train
url, settings, checkpoints = json.loads(sys.argv[2])
config = TrainConfig(**settings)
predicted = dry_run(url, config, checkpoints=checkpoints).coordinator
train(url, config, checkpoints=checkpoints, save_seconds=1e6)
print(json.dumps({**predicted, "peak": peak_memory()}))
"""


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    return write_wide(tmp_path_factory.mktemp("wide") / "data", 22, 5, 10_000)


@pytest.mark.parametrize(
    ("values", "checkpoints"),
    [
        ({"update": "mirror-descent"}, False),
        ({"step_size": 0.3, "batch_size": 8000, "accumulate": "row"}, True),
    ],
    ids=str,
)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks are read from /proc")
def test_the_peak_of_a_run_is_near_the_prediction(wide, tmp_path, values, checkpoints):
    arguments = [wide, values, str(tmp_path / "run") if checkpoints else None]
    paths = json.dumps([str(folder) for folder in Path(__file__).parents[:2]])
    measured = json.loads(run_python("-c", MEASURE, paths, json.dumps(arguments)).stdout)
    assert measured["peak"] == pytest.approx(measured["total"], rel=0.15)
    # Most of it is the run, and not libraries or what compiling them took.
    assert measured["total"] - measured["process"] > measured["state"] >= 8 << 22


def with_features(n_features):
    data = make_data()
    data.schema = replace(data.schema, n_features=n_features)
    return data


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        ({}, "make fewer features (of tables and texts, ingest with hash_bits=3"),
        ({"preconditioner": "full"}, "choose the diagonal preconditioner"),
        ({"update": "arow-full"}, "choose update 'arow'"),
        ({"update": "pa"}, "of ids, number them without gaps"),
    ],
    ids=str,
)
def test_a_run_that_cannot_fit_is_refused_before_anything_is_made(
    values, advice, tmp_path, monkeypatch
):
    monkeypatch.setattr(check, "free_memory", lambda: 64 << 30)  # the same for both
    data = with_features(1 << 40)
    config = TrainConfig(**{"step_size": 0.1, **values})
    announced = []
    with pytest.raises(InputError, match="are free") as caught:
        train(data, config, checkpoints=str(tmp_path / "run"), messages=announced.append)
    message = str(caught.value)
    assert "1,099,511,627,776 features, 1 output(s)" in message
    assert advice in message
    assert "\n" not in message
    assert not announced
    assert not (tmp_path / "run").exists()
    assert dadagrad.dry_run(data, config, checkpoints="run").problem == message


def test_estimators_refuse_it_too():
    with pytest.raises(InputError, match="training takes up to"):
        dadagrad.AdaGradClassifier(step_size=0.1).partial_fit(with_features(1 << 40))


def test_a_run_takes_no_more_than_it_was_allowed():
    data, config = with_features(1 << 16), TrainConfig(step_size=0.1)
    needed = dadagrad.dry_run(data, config).coordinator
    exactly = needed["total"] - needed["process"]
    train(data, config, memory=exactly)
    with pytest.raises(InputError, match=r"and .* are allowed: "):
        train(data, config, memory=exactly - 1)


def test_a_run_may_be_allowed_more_than_is_free(monkeypatch):
    monkeypatch.setattr(memory, "_cgroup_rests", lambda: [1 << 10])
    data, config = with_features(1 << 22), TrainConfig(step_size=0.1)
    with pytest.raises(InputError, match=r"and 1.0 kB are free"):
        train(data, config)
    train(data, config, memory=1 << 30)


def test_the_trial_of_step_sizes_counts(tmp_path):
    url = write_wide(tmp_path / "data", 16, 2, 2000)
    train(url, TrainConfig(step_size=0.1), memory=5 << 20)
    with pytest.raises(InputError, match="give a step size instead of 'auto'"):
        train(url, TrainConfig(), memory=5 << 20)


def test_a_worker_that_is_too_small_is_refused(tmp_path):
    url = write_wide(tmp_path / "data", 10, 2, 50)
    with (
        # The worker is this process, and would pause if it looked at its memory.
        dask.config.set({"distributed.worker.memory.monitor-interval": "1h"}),
        local_cluster(1, memory_limit="250MB", processes=False) as cluster,
        pytest.raises(InputError, match=r"a worker needs .*, 250.0 MB, Dask lets it use 80 %: "),
    ):
        train(url, TrainConfig(step_size=0.1), client=cluster.scheduler_address)


def control_group(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


def test_control_groups_and_their_parents_count(tmp_path):
    root, membership = tmp_path / "cgroup", tmp_path / "membership"
    membership.write_text("0::/slice/job\n")
    control_group(root / "slice", memory__max=1000, memory__current=400)
    control_group(
        root / "slice" / "job", memory__max=800, memory__current=500,
        memory__stat="anon 300\ninactive_file 150\nslab 10",
    )  # fmt: skip
    control_group(root / "slice" / "other", memory__max=1, memory__current=1)
    assert sorted(memory._cgroup_rests(root, membership)) == [450, 600]
    control_group(root / "slice", memory__max="max")
    assert list(memory._cgroup_rests(root, membership)) == [450]
    assert list(memory._cgroup_rests(root, tmp_path / "absent")) == []


def test_control_groups_of_the_first_version_count(tmp_path):
    root, membership = tmp_path / "cgroup", tmp_path / "membership"
    membership.write_text("5:cpu:/x\n4:cpuset,memory:/job\n0::/\n")
    limit, unlimited = "memory__limit_in_bytes", 2**63 - 4096
    control_group(root / "memory" / "job", memory__usage_in_bytes=100, **{limit: 900})
    control_group(root / "memory", memory__usage_in_bytes=1, **{limit: unlimited})
    assert list(memory._cgroup_rests(root, membership)) == [800]


def test_a_limit_of_addresses_counts():
    pytest.importorskip("resource")
    script = (
        "import resource, psutil; from dadagrad.storage.memory import free_memory\n"
        "limit = psutil.Process().memory_info().vms + (100 << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "assert 50 << 20 < free_memory() <= 100 << 20, free_memory()\n"
    )
    run_python("-c", script)
