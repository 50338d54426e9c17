"""Small data, a run on it, and faults at its moments."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from dadagrad.config import TrainConfig
from dadagrad.data.rows import Rows
from dadagrad.data.zarr.dataset import ZarrDataset
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.messages import Report
from dadagrad.training.run import TrainResult, train
from helpers.cluster_processes import Cluster
from helpers.training_cases import make_data
from helpers.zarr_cases import write_zarr

CONFIG = TrainConfig(step_size=0.3, batch_size=60, l1=1e-4, passes=5)
"""60 steps on the data of `make_dataset`: about a second on two workers."""

DATA_SIZES = (150, 90, 130, 110, 140, 100)


def make_dataset(path: Path, sizes: tuple[int, ...], scale: float = 1.0) -> str:
    """A Zarr dataset with a partition for each of `sizes`; its URL."""
    return write_zarr(make_data(sizes, scale=scale), path)


class KillingDataset(ZarrDataset):
    """A dataset that ends the process which reads one of its partitions."""

    def __init__(self, url: str, partition: int) -> None:
        super().__init__(url)
        self._killing = partition

    def read(self, partition: int) -> Rows:
        if partition == self._killing:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(partition)

    def __reduce__(self) -> tuple[Any, ...]:
        return KillingDataset, (self.url, self._killing)


def bits(result: TrainResult) -> tuple[object, ...]:
    """Every bit of what a run made."""
    return of_coordinator(result.coordinator), result.model.digest


def of_coordinator(coordinator: Coordinator) -> tuple[object, ...]:
    state, metrics = coordinator.state, coordinator.metrics
    arrays = {name: np.asarray(array).tobytes() for name, array in state.arrays.items()}
    counts = (metrics.rows, metrics.entries, metrics.weight)
    sums = (metrics.loss.tobytes(), metrics.mistakes.tobytes())
    return arrays, float(state.t), counts, sums, coordinator.steps, coordinator.cursor


class At:
    """The progress of a run, with a fault once `round_number` rounds are done.

    The fault runs beside the run, on a thread of its own. `join` waits for its end, and raises
    what it raised.
    """

    def __init__(self, round_number: int, fault: Callable[[], Any], *, pause: float = 0.0) -> None:
        self.seen: list[float] = []
        self.begun: float | None = None
        self._round = round_number
        self._fault = fault
        self._pause = pause
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="fault")

    def __call__(self, report: Report) -> None:
        self.seen.append(time.monotonic())
        if len(self.seen) == self._round:
            self.begun = time.monotonic()
            self._thread.start()
        if self._pause:
            time.sleep(self._pause)

    def gaps_above(self, seconds: float) -> list[float]:
        """How long nothing happened, each time that it was for more than `seconds`."""
        gaps = [after - before for before, after in itertools.pairwise(self.seen)]
        return [gap for gap in gaps if gap > seconds]

    def _run(self) -> None:
        try:
            self._fault()
        except BaseException as error:
            self._error = error

    def join(self, seconds: float = 60.0) -> None:
        assert self.begun is not None, "the run was over before the fault"
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the fault does not end"
        if self._error is not None:
            raise self._error


def everything_known(dask_scheduler: Any) -> bytes:
    """Whatever a scheduler has of tasks, what they are given, messages and events."""
    tasks = {key: task.run_spec for key, task in dask_scheduler.tasks.items()}
    told = (tasks, dask_scheduler.get_events(), list(dask_scheduler.transition_log))
    return b"".join([repr(told).encode(), *(cloudpickle.dumps(given) for given in tasks.values())])


def train_with(at: At, cluster: Cluster, data: str, config: TrainConfig = CONFIG) -> TrainResult:
    """Train on `cluster` while the fault of `at` happens."""
    result = train(data, config, client=cluster.address, progress=at)
    at.join()
    return result
