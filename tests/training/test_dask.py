"""On a cluster of real processes: the bits of a run on threads."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import dask.config
import numpy as np
import psutil
import pytest
from distributed import Client
from helpers.processes import dask_command, dask_scheduler, local_cluster, running, wait_for_port
from helpers.training_cases import UPDATES, as_dataset, make_data, metrics_bytes, state_bytes
from helpers.zarr_cases import write_zarr

from dadagrad import clusters  # noqa: F401 (adds its defaults to the configuration)
from dadagrad.config import TrainConfig
from dadagrad.data import open_dataset
from dadagrad.data.rows import Rows
from dadagrad.errors import CorruptionError, InputError, TrainingError
from dadagrad.training.engines.dask import driver as dask_driver
from dadagrad.training.messages import Report
from dadagrad.training.run import TrainResult, resume, train
from dadagrad.training.state.slices import LazyFeatureSlice

CONFIG = TrainConfig(step_size=0.3, batch_size=60, l1=1e-4, passes=2)
each_update = pytest.mark.parametrize("update", UPDATES)


@pytest.fixture(autouse=True)
def every_row_is_worth_a_task(monkeypatch):
    """Else the steps of these little data would be left to one worker."""
    monkeypatch.setitem(dask.config.config["dadagrad"], "task-work", 1)


def bits(result: TrainResult) -> tuple[object, ...]:
    end = result.coordinator
    return state_bytes(end.state), metrics_bytes(end), result.model.digest


def worker_of(
    address: str, name: str, threads: int = 1
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    options = ("--nthreads", str(threads), "--no-nanny", "--no-dashboard")
    return running(dask_command("worker", address, "--name", name, *options))


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """The address of a scheduler of its own process, with two workers of theirs."""
    with dask_scheduler() as address, worker_of(address, "one"), worker_of(address, "two"):
        wait_for_port(int(address.rpartition(":")[2]))
        yield address


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    made = make_data((90, 0, 70, 110, 40, 60), weighted=True)
    return write_zarr(made, tmp_path_factory.mktemp("data") / "train")


@each_update
@pytest.mark.parametrize("accumulate", ["batch", "row"])
def test_a_running_cluster_makes_the_bits_of_threads(scheduler, data, update, accumulate):
    config = replace(CONFIG, update=update, accumulate=accumulate)
    assert bits(train(data, config, client=scheduler)) == bits(train(data, config))


def test_only_the_weights_that_the_rows_touch_are_sent(scheduler, data, monkeypatch):
    """Of a wide vocabulary a few rows touch little; a slice larger than announced gets it all."""
    sent = []
    whole = LazyFeatureSlice.at

    def spy(self, positions):
        weights = whole(self, positions)
        sent.append((weights.content.n_features, len(self.vocabulary)))
        return weights

    monkeypatch.setattr(LazyFeatureSlice, "at", spy)
    config = replace(CONFIG, batch_size=4, passes=1)
    result = train(data, config, client=scheduler)
    assert bits(result) == bits(train(data, config))
    assert sum(taken for taken, _ in sent) < 0.7 * sum(all_of_them for _, all_of_them in sent)


def test_several_outputs_and_class_weights_too(scheduler, tmp_path):
    url = write_zarr(make_data((100, 80, 120), labels="multiclass"), tmp_path / "data")
    config = replace(CONFIG, class_weight="balanced", loss="logistic", update="ftrl")
    assert bits(train(url, config, client=scheduler)) == bits(train(url, config))


@pytest.mark.parametrize("workers", [1, 3])
def test_a_cluster_of_its_own_makes_the_bits_of_threads_and_is_gone_after(data, workers):
    before = set(psutil.Process().children(recursive=True))
    assert bits(train(data, CONFIG, workers=workers)) == bits(train(data, CONFIG))
    started = set(psutil.Process().children(recursive=True)) - before
    _, alive = psutil.wait_procs(started, timeout=10)
    for process in alive:  # Python's own resource tracker stays, once for the whole process
        assert "resource_tracker" in " ".join(process.cmdline())
    assert not [thread for thread in threading.enumerate() if "dadagrad" in thread.name]


def test_a_worker_that_is_killed_changes_no_bit(scheduler, data):
    expected = bits(train(data, replace(CONFIG, passes=8)))
    seen: list[Report] = []
    with worker_of(scheduler, "doomed") as doomed:
        with Client(scheduler, set_as_default=False) as client:
            client.wait_for_workers(3, timeout=30)

        def kill(report: Report) -> None:
            seen.append(report)
            if len(seen) == 10:
                os.kill(doomed.pid, signal.SIGKILL)

        result = train(data, replace(CONFIG, passes=8), client=scheduler, progress=kill)
        assert doomed.wait(5) == -signal.SIGKILL
    assert len(seen) > 20
    assert bits(result) == expected


def test_stopped_on_a_cluster_and_resumed_on_threads_and_back(scheduler, data, tmp_path):
    folder = str(tmp_path / "run")
    seen: list[Report] = []

    def stop(report: Report) -> None:
        seen.append(report)
        if len(seen) in (4, 8):
            signal.raise_signal(signal.SIGINT)

    assert not train(data, CONFIG, client=scheduler, checkpoints=folder, progress=stop).complete
    assert not resume(folder, progress=stop).complete
    assert bits(resume(folder, client=scheduler)) == bits(train(data, CONFIG))


def test_nothing_of_a_run_is_left_on_the_workers(scheduler, data):
    def n_cached() -> int:
        from dadagrad.training.engines.dask import tasks as dask_tasks

        return len(dask_tasks._cache or ())

    train(data, CONFIG, client=scheduler)
    with Client(scheduler, set_as_default=False) as client:
        deadline = time.monotonic() + 10
        while any(client.has_what().values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(client.has_what().values())
        assert set(client.run(n_cached).values()) == {0}


def test_the_weights_of_a_large_vocabulary_are_sent_without_a_warning(scheduler, tmp_path):
    # 1.5 million features in a partition, 3 classes: 18 MB of weights for each slice.
    n = 1_500_000
    labels = np.arange(300, dtype=float)[:, None] % 3
    rows = Rows.from_csr(np.arange(301) * (n // 300), np.arange(n), None, labels)
    url = write_zarr(as_dataset([rows], n), tmp_path / "data")
    config = TrainConfig(step_size=0.3, batch_size=100)
    assert bits(train(url, config, client=scheduler)) == bits(train(url, config))


def n_slices_of_tasks(monkeypatch) -> list[int]:
    """How many slices each task has that is submitted from here on."""
    counts: list[int] = []
    send = dask_driver.DaskDriver._send

    def spy(self, worker, computes):
        counts.append(len(computes))
        send(self, worker, computes)

    monkeypatch.setattr(dask_driver.DaskDriver, "_send", spy)
    return counts


@pytest.mark.parametrize("workers", [1, 2])
def test_the_pieces_of_a_step_travel_in_one_task_for_each_worker(data, workers, monkeypatch):
    """A step has another task if one of its partitions is still being read when it begins."""
    counts = n_slices_of_tasks(monkeypatch)
    result = train(data, CONFIG, workers=workers)
    assert bits(result) == bits(train(data, CONFIG))
    steps = result.report["steps"]
    assert sum(counts) > 3 * steps
    assert len(counts) <= 1.5 * workers * steps


def test_partitions_needed_together_are_read_in_one_task(scheduler, data, monkeypatch):
    opened: list[int] = []
    open_some = dask_driver.DaskDriver._open

    def spy(self, worker, opens):
        opened.append(len(opens))
        open_some(self, worker, opens)

    monkeypatch.setattr(dask_driver.DaskDriver, "_open", spy)
    assert bits(train(data, CONFIG, client=scheduler)) == bits(train(data, CONFIG))
    assert max(opened) > 1


def test_a_step_that_is_not_worth_cutting_is_one_task(scheduler, data, monkeypatch):
    monkeypatch.setitem(dask.config.config["dadagrad"], "task-work", 150_000)
    counts = n_slices_of_tasks(monkeypatch)
    result = train(data, CONFIG, client=scheduler)
    assert bits(result) == bits(train(data, CONFIG))
    assert len(counts) <= 1.5 * result.report["steps"]


def test_a_worker_with_several_threads_gets_as_many_tasks(data, monkeypatch):
    counts = n_slices_of_tasks(monkeypatch)
    with local_cluster(1, threads_per_worker=3) as cluster:
        result = train(data, CONFIG, client=cluster.scheduler_address)
    assert bits(result) == bits(train(data, CONFIG))
    assert [2, 1, 1] in [counts[first : first + 3] for first in range(len(counts))]


def test_a_worker_that_does_not_know_the_run_is_told(scheduler, data):
    """As one that joins later, and is given slices before it has read a partition."""

    def forget_all(digest: str) -> None:
        from dadagrad.training.engines.dask import tasks as dask_tasks

        for run in list(dask_tasks._jobs):
            dask_tasks.forget(run, digest)

    digest = open_dataset(data).digest
    with Client(scheduler, set_as_default=False) as client:

        def interfere(report: Report) -> None:
            client.run(forget_all, digest)

        result = train(data, CONFIG, client=scheduler, progress=interfere)
    assert bits(result) == bits(train(data, CONFIG))


def test_results_are_left_on_the_workers_within_bounds(scheduler, data, monkeypatch):
    monkeypatch.setattr(dask_driver, "MAX_SPENT_TASKS", 5)
    monkeypatch.setattr(dask_driver, "MAX_SPENT_BYTES", 1 << 30)
    most = []
    config = replace(CONFIG, batch_size=10)
    with Client(scheduler, set_as_default=False) as client:

        def look(report: Report) -> None:
            most.append(sum(map(len, client.has_what().values())))

        train(data, config, client=scheduler, progress=look)
    # Those of five tasks, of the step that is under way, of partitions read, and the job.
    assert 5 <= max(most) <= 5 + 4 + 3 + 2


def refusal(data: str, address: str, folder: str | None = None) -> str:
    """The error of a run without a scheduler, which comes in bounded time and before any work."""
    announced: list[str] = []
    begun = time.monotonic()
    config = replace(CONFIG, step_size="auto")
    with (
        dask.config.set({"dadagrad.connect-timeout": 1}),
        pytest.raises(InputError, match="no Dask scheduler answers at") as caught,
    ):
        train(data, config, client=address, checkpoints=folder, announce=announced.append)
    assert time.monotonic() - begun < 8
    assert not announced
    return str(caught.value)


def test_an_address_without_a_server_is_refused(data, tmp_path):
    error = refusal(data, "tcp://127.0.0.1:1", str(tmp_path / "run"))
    assert "at tcp://127.0.0.1:1 (Timed out trying to connect" in error
    assert "; check that `dask scheduler` runs there" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("address", ["nonsense://x", "tcp://", "tls://127.0.0.1:1"])
def test_an_address_that_is_invalid_is_refused(data, address):
    refusal(data, address)


def test_a_silent_server_is_refused(data):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        error = refusal(data, f"tcp://127.0.0.1:{silent.getsockname()[1]}")
    assert "(no answer within 1 seconds)" in error


def test_the_address_of_a_worker_is_refused(data, scheduler):
    with Client(scheduler, set_as_default=False) as client:
        client.wait_for_workers(1, timeout=30)
        (address, *_) = client.nthreads()
    assert "a Dask worker answers" in refusal(data, address)


def test_a_run_may_start_in_an_event_loop(data, scheduler):
    async def notebook() -> TrainResult:
        return train(data, CONFIG, client=scheduler)

    assert bits(asyncio.run(notebook())) == bits(train(data, CONFIG))


def test_a_cluster_without_workers_is_refused_after_a_while(data):
    with (
        dask.config.set({"dadagrad.workers-timeout": 1}),
        local_cluster(0) as cluster,
        pytest.raises(InputError, match="has had no worker for 1 seconds; start some"),
    ):
        train(data, CONFIG, client=cluster.scheduler_address)


def test_data_in_memory_are_refused():
    with pytest.raises(InputError, match="data in memory cannot be read by the workers"):
        train(make_data(), CONFIG, workers=1)


def test_batches_of_one_row_are_refused(data):
    with pytest.raises(InputError, match="batch_size 1 takes one row after the other"):
        train(data, replace(CONFIG, batch_size=1), workers=1)


def test_a_damaged_partition_is_named(scheduler, tmp_path):
    url = write_zarr(make_data((50, 50)), tmp_path / "data")
    (chunk,) = (tmp_path / "data/part-00001/X/indices/c").iterdir()
    content = bytearray(chunk.read_bytes())
    content[-1] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(CorruptionError, match="partition part-00001, X/indices"):
        train(url, CONFIG, client=scheduler)


def test_a_wrong_label_is_named(scheduler, tmp_path):
    made = make_data((50, 50))
    made.read(1).labels[13] = 5.0
    url = write_zarr(made, tmp_path / "data")
    with pytest.raises(InputError, match="partition part-00001: row 13 has label 5"):
        train(url, CONFIG, client=scheduler)


def test_values_that_overflow_are_named(scheduler, tmp_path):
    made = make_data((50, 50), labels="real")
    made.read(1).values[100:200] = 3e38
    url = write_zarr(made, tmp_path / "data")
    with pytest.raises(TrainingError, match="partition part-00001: the "):
        train(url, replace(CONFIG, loss="squared"), client=scheduler)


def test_a_worker_gives_signs_of_life_while_it_compiles(data, monkeypatch):
    """Which takes long on a slow machine; else it would be given up as one that is frozen."""
    from dadagrad.training import warm_up

    in_loop: list[bool] = []

    def look(problem, announce) -> float:
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            in_loop.append(True)
            return 0.0
        in_loop.append(False)
        return 0.0

    monkeypatch.setattr(warm_up, "warm_up", look)
    with local_cluster(1, processes=False) as cluster:
        train(data, CONFIG, client=cluster.scheduler_address)
    assert in_loop
    assert not any(in_loop)


class Freezing:
    """Has a worker of the cluster that this process started stopped, after some steps."""

    def __init__(self, after: int) -> None:
        self.seen: list[float] = []
        self._after = after

    def __call__(self, report: Report) -> None:
        self.seen.append(time.monotonic())
        if len(self.seen) == self._after:
            workers = [
                process
                for process in psutil.Process().children(recursive=True)
                if "spawn_main" in " ".join(process.cmdline())
            ]
            workers[0].send_signal(signal.SIGSTOP)

    @property
    def waited(self) -> float:
        """How long nothing happened then; seconds."""
        return max(later - earlier for earlier, later in itertools.pairwise(self.seen))


@pytest.mark.parametrize(
    ("given", "most"), [("1s", 30.0), pytest.param(None, 80.0, marks=pytest.mark.slow)]
)
def test_a_frozen_worker_is_given_up(data, monkeypatch, given, most):
    """It is not gone: its connections stay, and Dask alone would wait for it for five minutes."""
    if given is not None:
        monkeypatch.setitem(dask.config.config["dadagrad"], "worker-ttl", given)
    freezing = Freezing(5)
    result = train(data, CONFIG, workers=2, progress=freezing)
    assert bits(result) == bits(train(data, CONFIG))
    # Dask never gives up before ten signs of life are missing, half a second apart.
    assert 3.0 < freezing.waited < most


def test_batches_chosen_for_a_cluster_are_recorded(scheduler, data):
    config = replace(CONFIG, batch_size="auto")
    result = train(data, config, client=scheduler)
    assert result.report["batch_size"] == 16
    again = train(data, replace(config, batch_size=16))
    assert bits(result) == bits(again)


def test_a_client_may_be_given_or_the_current_one_and_stays_open(data, scheduler):
    expected = bits(train(data, CONFIG))
    with Client(scheduler, set_as_default=True) as client:
        interval = client.scheduler_comm.interval
        assert bits(train(data, CONFIG, client=client)) == expected
        assert bits(train(data, CONFIG, client="current")) == expected
        assert client.status == "running"
        assert client.scheduler_comm.interval == interval
    with pytest.raises(InputError, match="needs an active distributed"):
        train(data, CONFIG, client="current")
