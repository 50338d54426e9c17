"""Workers that join, leave and pause during a run: work follows them, bits do not."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace

import dask.config
import pytest
from helpers.cluster_processes import Cluster
from helpers.fault_cases import CONFIG, At, bits, train_with
from helpers.processes import local_cluster, wait_until

from dadagrad.errors import TrainingError
from dadagrad.training.engines.dask import driver as dask_driver
from dadagrad.training.engines.dask import monitor as dask_watch
from dadagrad.training.run import train

LONGER = replace(CONFIG, passes=10)


@pytest.fixture(scope="module")
def expected(data) -> tuple[object, ...]:
    return bits(train(data, CONFIG))


@pytest.fixture(scope="module")
def expected_longer(data) -> tuple[object, ...]:
    return bits(train(data, LONGER))


@pytest.fixture
def worked(monkeypatch) -> list[str]:
    """The addresses of the workers that worked on something, in the order of its arrival."""
    addresses: list[str] = []
    doubt = dask_driver.DaskDriver._validate

    def spy(self, computes, results, worker):
        addresses.append(worker)
        return doubt(self, computes, results, worker)

    monkeypatch.setattr(dask_driver.DaskDriver, "_validate", spy)
    return addresses


@pytest.fixture
def often(monkeypatch) -> None:
    """Look for workers so often that a short run sees them come and go."""
    monkeypatch.setattr(dask_watch, "LOOK_SECONDS", 0.1)


def test_a_worker_that_joins_gets_work_at_once(cluster, data, expected_longer, worked, often):
    """Also that of partitions which another has open."""
    cluster.have_workers(1)
    (first,) = cluster.names().values()

    def join() -> None:
        cluster.add_worker()
        cluster.wait_for_workers(2)

    at = At(10, join, pause=0.02)
    result = train_with(at, cluster, data, LONGER)
    assert bits(result) == expected_longer
    others = set(cluster.names().values()) - {first}
    (second,) = others
    # From when it first worked: about every second task.
    later = Counter(worked[worked.index(second) :])
    assert later[second] > 0.35 * later.total()
    assert later.total() > 20


@pytest.mark.slow
def test_a_retired_worker_gets_no_more_work(cluster, data, expected, worked, often):
    def retire() -> None:
        with cluster.client() as client:
            (address, *_) = client.nthreads()
            gone.append(address)
            client.retire_workers([address])
        before.append(len(worked))

    gone: list[str] = []
    before: list[int] = []
    at = At(20, retire, pause=0.02)
    result = train_with(at, cluster, data, CONFIG)
    assert bits(result) == expected
    assert gone[0] in worked[: before[0]]
    assert gone[0] not in worked[before[0] + 4 :]


@pytest.mark.slow
def test_a_cluster_that_adapts(data, expected, worked):
    """Dask's own means starts workers for the run, and ends them after it."""
    with local_cluster(1) as made:
        made.adapt(minimum=1, maximum=3, interval="200ms", wait_count=2, target_duration="50ms")
        for _ in range(3):
            slow = At(10**9, lambda: None, pause=0.02)
            assert (
                bits(train(data, CONFIG, client=made.scheduler_address, progress=slow)) == expected
            )
    assert worked


@pytest.mark.slow
def test_workers_come_and_go_all_the_time(cluster, data, expected_longer, often):
    over = threading.Event()

    def churn() -> None:
        while not over.wait(0.3):
            cluster.add_worker()
            with cluster.client() as client:
                client.retire_workers([next(iter(client.nthreads()))])

    at = At(5, churn, pause=0.05)
    result = train(data, LONGER, client=cluster.address, progress=at)
    over.set()
    at.join()
    assert bits(result) == expected_longer


def fill_memory(n_bytes: int, dask_worker) -> None:
    """Take memory until this worker pauses; 0 gives it back."""
    import numpy as np

    dask_worker.of_a_test = np.ones(n_bytes, np.uint8)


class TestPaused:
    """Workers whose memory is full take no tasks, by Dask's own limits."""

    LIMIT = 600 << 20

    @pytest.fixture
    def cluster(self, nursery):
        environment = {
            "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "0.7",
            "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "false",
            "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "false",
            "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "20ms",
        }
        with Cluster(nursery, environment=environment) as made:
            for _ in range(2):
                made.add_worker("--memory-limit", str(self.LIMIT))
            made.wait_for_workers(2)
            yield made

    def pause(self, cluster: Cluster, workers: list[str]) -> None:
        with cluster.client() as client:
            client.run(fill_memory, self.LIMIT, workers=workers)

            def paused() -> bool:
                known = client.scheduler_info(n_workers=-1)["workers"]
                return all(known[worker]["status"] == "paused" for worker in workers)

            wait_until(paused, 30, "the workers to pause")

    @pytest.mark.slow
    def test_the_others_do_all_the_work_meanwhile(self, cluster, data, expected, worked, often):
        (first, second) = cluster.names().values()
        before: list[int] = []

        def pause() -> None:
            self.pause(cluster, [first])
            before.append(len(worked))

        at = At(10, pause, pause=0.02)
        result = train_with(at, cluster, data, CONFIG)
        assert bits(result) == expected
        assert set(worked[before[0] + 4 :]) == {second}

    @pytest.mark.slow
    def test_all_workers_pause_for_a_while(self, cluster, data, expected, often):
        """And first another one goes on than that which was asked."""
        (first, second) = cluster.names().values()

        def pause() -> None:
            self.pause(cluster, [first, second])
            time.sleep(2)
            with cluster.client() as client:
                client.run(fill_memory, 0, workers=[second])
            time.sleep(2)

        at = At(10, pause, pause=0.02)
        result = train_with(at, cluster, data, CONFIG)
        assert bits(result) == expected

    @pytest.mark.slow
    def test_a_run_ends_if_all_workers_pause_for_too_long(self, cluster, data, often, monkeypatch):
        monkeypatch.setitem(dask.config.config["dadagrad"], "no-workers-timeout", "2s")
        workers = list(cluster.names().values())
        at = At(10, lambda: self.pause(cluster, workers))
        with pytest.raises(TrainingError, match=r"all workers of the cluster \(2\) have paused, b"):
            train(data, LONGER, client=cluster.address, progress=at)
        at.join()
