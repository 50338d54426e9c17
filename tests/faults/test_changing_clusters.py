"""Clusters that grow and shrink by themselves, and workers that reach their memory limit."""

import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from distributed import Adaptive, Client
from helpers.cluster_processes import Cluster
from helpers.fault_cases import CONFIG, STREAMS
from helpers.processes import local_cluster, wait_until
from helpers.training_cases import bits

from dadagrad import TrainingError, train
from dadagrad.data.zarr.dataset import ZarrDataset
from dadagrad.training.engines.dask.streams import tasks
from dadagrad.training.engines.dask.streams.driver import MAX_FAILURES, StreamDriver

LIMIT_BYTES = 600 << 20


N_WORKERS = [5, 1, 5, 4, 3, 2, 1]
"""Numbers of workers of a run, one after the other; four of five leave at once."""


@pytest.mark.parametrize("config", [CONFIG, STREAMS], ids=["batches", "streams"])
def test_one_to_five_workers_by_adaptive_scaling(config, data, monkeypatch):
    """If both holders of a part of the state leave, the run goes back to its start."""
    wanted = list(N_WORKERS)

    class Swinging(Adaptive):
        async def target(self):
            return wanted[0]

    def progress(report):
        workers = cluster.scheduler.workers
        wait_until(lambda: len(workers) == wanted[0], 60, f"{wanted[0]} workers")
        if len(wanted) > 1 and next(counter) % 4 == 0:
            wanted.pop(0)

    counter = itertools.count(1)
    with local_cluster(1, processes=False) as cluster:
        cluster.adapt(minimum=1, maximum=5, Adaptive=Swinging, interval="50ms", wait_count=1)
        result = train(data, config, client=cluster.scheduler_address, callbacks=[progress])
    assert bits(result) == bits(train(data, config))
    assert wanted == N_WORKERS[-1:]


def test_workers_that_are_retired_are_no_failures_of_a_round(data, monkeypatch):
    """More of them than a round may fail, one after the other."""
    compute, go_back, may_go_on = tasks.compute, StreamDriver._go_back, threading.Event()
    places = []

    def wait_and_compute(*arguments):
        assert may_go_on.wait(30)
        return compute(*arguments)

    def note_and_go_back(driver, place):
        places.append(place)
        return go_back(driver, place)

    def retire_all_but_one():
        for count, worker in enumerate(list(client.nthreads())[1:], 1):
            wait_until(lambda count=count: len(places) == count, 10, "the round to begin")
            client.retire_workers([worker])
        may_go_on.set()

    monkeypatch.setattr(tasks, "compute", wait_and_compute)
    monkeypatch.setattr(StreamDriver, "_go_back", note_and_go_back)
    with local_cluster(MAX_FAILURES + 2, processes=False) as cluster, Client(cluster) as client:
        with ThreadPoolExecutor(1) as pool:
            retiring = pool.submit(retire_all_but_one)
            result = train(data, STREAMS, client=cluster.scheduler_address)
        retiring.result()
    assert bits(result) == bits(train(data, STREAMS))


class HungryDataset(ZarrDataset):
    """A dataset whose partition 3 takes more memory than a worker has, the first `times`."""

    def __init__(self, url, folder, times, client=None):
        super().__init__(url)
        self.folder, self.times, self.client = folder, times, client or os.getpid()

    def read(self, partition):
        hungry = os.getpid() != self.client and len(os.listdir(self.folder)) < self.times
        if partition == 3 and hungry:
            Path(self.folder, str(os.getpid())).touch()
            held = np.ones(LIMIT_BYTES // 8)
            time.sleep(30)
            assert held.size
        return super().read(partition)

    def __reduce__(self):
        return HungryDataset, (self.url, self.folder, self.times, self.client)


@pytest.mark.slow
@pytest.mark.parametrize("config", [CONFIG, STREAMS], ids=["batches", "streams"])
@pytest.mark.parametrize("times", [1, 1000])
def test_a_worker_is_killed_at_its_memory_limit(times, config, nursery, data, tmp_path):
    """Others do its work with the same bits; what kills each of them is given up."""
    environment = {
        "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "0.95",
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
    }
    (tmp_path / "killed").mkdir()
    with Cluster(nursery, environment=environment) as cluster:
        for _ in range(2):
            cluster.add_worker("--memory-limit", str(LIMIT_BYTES), nanny=True)
        cluster.wait_for_workers(2)
        hungry = HungryDataset(data, str(tmp_path / "killed"), times)
        if times == 1:
            result = train(hungry, config, client=cluster.address)
            assert bits(result) == bits(train(data, config))
        else:
            reasons = {
                CONFIG: "keep (dying|pausing) at the same task",
                STREAMS: "dying|a round failed",
            }
            message = f"({reasons[config]}).*run out of memory[:,] give them more"
            with pytest.raises(TrainingError, match=message):
                train(hungry, config, client=cluster.address)
        log = "".join(worker.text() for worker in cluster.workers)
    assert log.count("exceeded 95% memory budget. Restarting") >= min(times, 2)
    # Dask gives up a task, or the run a round, whichever comes first. A round may kill both
    # workers: two streams share the partition.
    n_killed = len(os.listdir(tmp_path / "killed"))
    assert n_killed == 1 if times == 1 else 2 <= n_killed <= 2 * MAX_FAILURES
