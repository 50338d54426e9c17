"""Workers that join, leave and pause during a run: work follows them, bits do not.

Those without dadagrad are refused before a run begins.
"""

import contextlib
import sys
import time
from collections import Counter
from dataclasses import replace

import dask.config
import numpy as np
import pytest
from helpers.cluster_processes import Cluster
from helpers.fault_cases import CONFIG, STREAMS, At
from helpers.processes import free_port, running, wait_for_port, wait_until
from helpers.training_cases import bits

from dadagrad import InputError, TrainingError, ingest, train
from dadagrad.training.engines.dask.batches import BatchDriver

MEMORY_LIMIT = 600 << 20


@pytest.fixture
def worked(monkeypatch):
    """The addresses of the workers that worked on slices, in the order of arrival."""
    addresses = []
    validate = BatchDriver._validate

    def spy(self, computes, results, worker):
        addresses.append(worker)
        return validate(self, computes, results, worker)

    monkeypatch.setattr(BatchDriver, "_validate", spy)
    return addresses


def test_a_worker_that_joins_gets_work_at_once(cluster, data, worked):
    """Also that of partitions which another has open."""
    cluster.have_workers(1)
    (first,) = cluster.names().values()

    def join():
        cluster.add_worker()
        cluster.wait_for_workers(2)

    config = replace(CONFIG, passes=10)
    result = At(10, join, pause=0.05).train(cluster, data, config)
    assert bits(result) == bits(train(data, config))
    (second,) = set(cluster.names().values()) - {first}
    # From when it first worked: about every second task.
    later = Counter(worked[worked.index(second) :])
    assert later[second] > 0.35 * later.total()
    assert later.total() > 20


def n_held(dask_worker):
    from dadagrad.training.engines.dask.streams import shard_store

    return sum(len(store._shards) for store in shard_store._stores.values())


def test_workers_that_join_hold_parts_of_the_state_of_streams(cluster, data, caplog):
    """They get them from the only worker that has them, and no round begins again."""
    cluster.have_workers(1)

    def join():
        for _ in range(2):
            cluster.add_worker()
        cluster.wait_for_workers(3)
        with cluster.client() as client:
            wait_until(lambda: all(client.run(n_held).values()), 15, "them to hold shards")

    # A process takes seconds to start, and the run has some 20 rounds.
    result = At(2, join, pause=0.4).train(cluster, data, STREAMS)
    assert bits(result) == bits(train(data, STREAMS))
    assert "begins again" not in caplog.text


def fill_memory(n_bytes, dask_worker):
    """Take memory until this worker pauses; 0 gives it back."""
    dask_worker.of_a_test = np.ones(n_bytes, np.uint8)


def pause(cluster, workers):
    """Fill the memory of workers, which then take no tasks by Dask's own limits."""
    with cluster.client() as client:
        client.run(fill_memory, MEMORY_LIMIT, workers=workers)

        def paused():
            known = client.scheduler_info(n_workers=-1)["workers"]
            return all(known[worker]["status"] == "paused" for worker in workers)

        wait_until(paused, 30, "the workers to pause")


@pytest.fixture
def small_cluster(nursery):
    """Two workers that pause soon."""
    limits = {"PAUSE": "0.7", "TARGET": "false", "SPILL": "false", "MONITOR_INTERVAL": "20ms"}
    environment = {f"DASK_DISTRIBUTED__WORKER__MEMORY__{x}": limits[x] for x in limits}
    with Cluster(nursery, environment=environment) as made:
        for _ in range(2):
            made.add_worker("--memory-limit", str(MEMORY_LIMIT))
        made.wait_for_workers(2)
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("n_paused", [1, 2])
def test_workers_that_pause_get_no_work(small_cluster, data, expected, worked, n_paused):
    """If all do, the run waits for any: first another one goes on than that which was asked."""
    workers = list(small_cluster.names().values())
    before = []

    def strike():
        pause(small_cluster, workers[:n_paused])
        before.append(len(worked))
        if n_paused == 2:
            time.sleep(2)
            with small_cluster.client() as client:
                client.run(fill_memory, 0, workers=workers[1:])

    assert bits(At(10, strike, pause=0.02).train(small_cluster, data)) == expected
    assert set(worked[before[0] + 4 :]) == {workers[1]}


@pytest.mark.slow
def test_a_run_ends_if_all_workers_pause_for_too_long(small_cluster, data, monkeypatch):
    monkeypatch.setitem(dask.config.config["dadagrad"], "no-workers-timeout", "2s")
    workers = list(small_cluster.names().values())
    with pytest.raises(TrainingError, match=r"all workers of the cluster \(2\) have paused, b"):
        At(10, lambda: pause(small_cluster, workers), pause=0.1).train(small_cluster, data)


WITHOUT = """
import importlib.abc, sys
from dask.__main__ import main

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "dadagrad":
            raise ModuleNotFoundError("No module named 'dadagrad'")

sys.meta_path.insert(0, Missing())
main()
"""


@pytest.mark.parametrize("who", ["the worker at tcp", "the scheduler"])
def test_a_cluster_without_dadagrad_is_refused(who, nursery, data, tmp_path):
    """Training and ingest say which process lacks it; the worker outlives both."""
    port, options = str(free_port()), ("--host", "127.0.0.1", "--no-dashboard")
    address = f"tcp://127.0.0.1:{port}"
    commands = {
        "the scheduler": ("scheduler", "--port", port, *options),
        "the worker at tcp": ("worker", address, "--no-nanny", *options),
    }
    without = [sys.executable, "-c", WITHOUT, *commands.pop(who)]
    (other,) = commands.values()
    (tmp_path / "a.svmlight").write_text("1 1:1\n")
    refusal = f"{who}.* does not have dadagrad .*No module named 'dadagrad'.*; install the same rel"
    with running(without), contextlib.ExitStack() as stack:
        stack.callback(nursery.start("dask", *other).end)
        wait_for_port(int(port))
        for _ in range(2):
            with pytest.raises(InputError, match=refusal):
                train(data, CONFIG, client=address)
        with pytest.raises(InputError, match=refusal):
            ingest(tmp_path / "a.svmlight", str(tmp_path / "out"), client=address)
