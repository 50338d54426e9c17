"""Clusters that grow and shrink by themselves, and workers that reach their memory limit."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Adaptive
from helpers.cluster_processes import Cluster
from helpers.fault_cases import CONFIG, STREAMS
from helpers.processes import local_cluster
from helpers.training_cases import bits

from dadagrad.data.rows import Rows
from dadagrad.data.zarr.dataset import ZarrDataset
from dadagrad.errors import TrainingError
from dadagrad.training.engines.dask import monitor
from dadagrad.training.engines.dask.streams import MAX_FAILURES
from dadagrad.training.run import train

LIMIT_BYTES = 600 << 20


class Swinging(Adaptive):
    """Dask's adaptive scaling, which wants another number of workers at each look.

    It takes one away at a time: the state of streams is on two workers.
    """

    async def target(self) -> int:
        self.looks = getattr(self, "looks", 0) + 1
        return (5, 4, 3, 2, 1)[self.looks % 5]


@pytest.mark.parametrize("config", [CONFIG, STREAMS], ids=["batches", "streams"])
def test_one_to_five_workers_by_adaptive_scaling(config, data, monkeypatch):
    """Their number changes every second."""
    monkeypatch.setattr(monitor, "LOOK_SECONDS", 0.05)
    seen: set[int] = set()

    def progress(report: Any) -> None:
        seen.add(len(cluster.scheduler.workers))
        time.sleep(0.1)

    with local_cluster(1, processes=False) as cluster:
        cluster.adapt(minimum=1, maximum=5, Adaptive=Swinging, interval="500ms", wait_count=1)
        result = train(data, config, client=cluster.scheduler_address, callbacks=[progress])
    assert bits(result) == bits(train(data, config))
    assert {1, 5} < seen


class HungryDataset(ZarrDataset):
    """A dataset whose partition 3 takes more memory than a worker has, the first `times`."""

    def __init__(self, url: str, folder: str, times: int) -> None:
        super().__init__(url)
        self.folder, self.times = folder, times

    def read(self, partition: int) -> Rows:
        if partition == 3 and len(os.listdir(self.folder)) < self.times:
            Path(self.folder, str(os.getpid())).touch()
            held = np.ones(LIMIT_BYTES // 8)
            time.sleep(30)
            assert held.size
        return super().read(partition)

    def __reduce__(self) -> tuple[Any, ...]:
        return HungryDataset, (self.url, self.folder, self.times)


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
            with pytest.raises(TrainingError, match=r"run out of memory[:,] give them more"):
                train(hungry, config, client=cluster.address)
        log = "".join(worker.text() for worker in cluster.workers)
    n_killed = min(times, 2 if config is CONFIG else MAX_FAILURES)
    assert log.count("exceeded 95% memory budget. Restarting") >= min(times, 2)
    assert len(os.listdir(tmp_path / "killed")) == n_killed
