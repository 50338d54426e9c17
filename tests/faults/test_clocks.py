"""Clocks that jump, as after a suspended machine or a correction, in all processes at once."""

import struct
import threading
import time

import pytest
from helpers.cluster_processes import Cluster, Nursery
from helpers.faulty_proxy import Proxy, once_at
from helpers.processes import wait_until
from helpers.runs import digest
from helpers.servers import BUCKET, rclone_server

from dadagrad import InputError, ingest, train
from dadagrad.data.ingest import output
from dadagrad.storage import retries
from dadagrad.storage.store import Storage
from dadagrad.training.checkpoints.reader import CheckpointReader
from dadagrad.training.schedule import streams

HOUR, DAY = 3600.0, 86400.0

# Runs before anything else is imported: a process reads both offsets from a file at each call.
CLOCKS = """
import mmap, struct, time

with open({path!r}, "rb") as file:
    offsets = mmap.mmap(file.fileno(), 16, prot=mmap.PROT_READ)
real_time, real_monotonic = time.time, time.monotonic
time.time = lambda: real_time() + struct.unpack_from("d", offsets, 0)[0]
time.monotonic = lambda: real_monotonic() + struct.unpack_from("d", offsets, 8)[0]
"""
SETTINGS = {"step_size": 0.3, "l1": 1e-4, "passes": 20}


class Clocks:
    """The offsets of the wall clock and of the monotonic clock of all processes of a nursery."""

    def __init__(self, path):
        self._path = path
        self._path.write_bytes(bytes(16))

    def jump(self, wall, monotonic):
        with self._path.open("r+b") as file:
            file.write(struct.pack("dd", wall, monotonic))


@pytest.fixture(scope="module")
def clocks(tmp_path_factory):
    return Clocks(tmp_path_factory.mktemp("clocks") / "offsets")


@pytest.fixture(scope="module")
def nursery(tmp_path_factory, clocks):
    environment = {"DASK_DADAGRAD__TASK_WORK": "1"}
    prelude = CLOCKS.format(path=str(clocks._path))
    with Nursery(tmp_path_factory.mktemp("nursery"), environment, prelude) as made:
        yield made


JUMPS = {"a day on": (DAY, 0.0), "back": (-DAY, 0.0), "suspended": (HOUR, HOUR)}
SECONDS_BACK = 5.0
"""A message of Dask waits for as long as the wall clock was set back."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("place", "rows"),
    [
        pytest.param("threads", {"batch_size": 60}),
        pytest.param("threads", {"streams": 4}, marks=pytest.mark.slow),
        pytest.param("cluster", {"batch_size": 60}, marks=pytest.mark.slow),
        pytest.param("cluster", {"streams": 4}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_run_has_the_same_bits(
    place, rows, nursery, clocks, data, tmp_path, request, monkeypatch
):
    """A scheduler that was suspended takes its workers for dead; their nannies start others."""
    options = {"threads": ("--threads", "2")}
    if place == "cluster":
        cluster = Cluster(nursery)
        request.addfinalizer(cluster.end)
        for _ in range(2):
            cluster.add_worker(nanny=True)
        cluster.wait_for_workers(2)
        options["cluster"] = ("--scheduler", cluster.address)
    settings = (f"--{name.replace('_', '-')}={n}" for name, n in (SETTINGS | rows).items())
    common = ("dadagrad", "train", data, *settings, "--json")
    monkeypatch.setattr(streams, "MIN_ROWS_ALONE", 8_192)  # as in the process that trains
    expected = train(data, **SETTINGS, **rows).model.digest
    for name, jump in JUMPS.items():
        run = str(tmp_path / name / "run")
        places = ("--model", str(tmp_path / name / "model"), "--checkpoints", run)
        process = nursery.start(*common, *places, "--checkpoint-every", "10", *options[place])
        wait_until(lambda run=run: len(CheckpointReader(run).list()) > 1, 60, "a checkpoint")
        on_dask = name == "back" and place != "threads"
        clocks.jump(*((-SECONDS_BACK, 0.0) if on_dask else jump))
        assert digest(process, 100) == expected
        clocks.jump(0.0, 0.0)


class JumpingTime:
    """The module `time`, whose monotonic clock jumps by an hour in each sleep."""

    def __init__(self):
        self.offset = 0.0

    def sleep(self, seconds):
        self.offset += HOUR
        time.sleep(seconds)

    def monotonic(self):
        return time.monotonic() + self.offset


def test_an_ingest_that_lives_is_not_taken_for_dead(tmp_path, monkeypatch):
    """A second one looks again and again, whatever the clock says meanwhile."""
    monkeypatch.setattr(output, "_BEAT_SECONDS", 0.1)
    storage = Storage(tmp_path / "out")
    (tmp_path / "a.svm").write_text("1 1:1\n")
    with output.claimed(storage, overwrite=False):
        monkeypatch.setattr(output, "time", JumpingTime())
        with pytest.raises(InputError, match="another ingest is writing"):
            ingest(tmp_path / "a.svm", str(tmp_path / "out"))


def test_a_store_is_asked_again_after_a_process_was_suspended(tmp_path, monkeypatch):
    """Requests that were under way have failed meanwhile: the store is asked again."""
    with rclone_server(tmp_path) as server, Proxy(server) as proxy:
        proxy.server.set_environment(monkeypatch)
        storage = Storage(f"s3://{BUCKET}/run")
        storage.put("manifest-1", b"")
        storage.put("manifest-2", b"")
        clock = JumpingTime()
        monkeypatch.setattr(retries, "time", clock)
        proxy.act = once_at(proxy, "part", "hold")
        writing = threading.Thread(target=storage.put, args=("a.zst", b"part"))
        writing.start()
        assert proxy.held.wait(10)
        clock.offset += HOUR
        proxy.act = lambda request: "pass"
        for client in list(proxy.clients):
            client.shutdown(2)
        writing.join(20)
        assert storage.get("a.zst") == b"part"
