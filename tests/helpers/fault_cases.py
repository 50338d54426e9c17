"""Small data, a run on it, and faults at its moments."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from dadagrad.config import TrainConfig
from dadagrad.training.callbacks import RoundEvent
from dadagrad.training.run import TrainResult, train
from helpers.cluster_processes import Cluster
from helpers.training_cases import make_data
from helpers.zarr_cases import write_zarr

CONFIG = TrainConfig(step_size=0.3, batch_size=60, l1=1e-4, passes=4)
"""48 steps on the data of `make_dataset`: about a second on two workers."""

STREAMS = replace(CONFIG, streams=4, batch_size=1, rounds=15)
"""30 rounds of streams, whose state is on the workers."""

DATA_SIZES = (150, 90, 130, 110, 140, 100)


def make_dataset(path: Path, sizes: tuple[int, ...]) -> str:
    """A Zarr dataset with a partition for each of `sizes`; its URL."""
    return write_zarr(make_data(sizes), path)


class At:
    """The progress of a run, with a fault once `round_number` rounds are done.

    The fault runs beside the run, on a thread of its own. Each round takes `pause` seconds more.
    """

    def __init__(self, round_number: int, fault: Callable[[], Any], *, pause: float = 0.0) -> None:
        self.seen: list[float] = []
        self.begun: float | None = None
        self._round, self._fault, self._pause = round_number, fault, pause
        self._future: Future[Any] | None = None

    def __call__(self, event: RoundEvent) -> None:
        self.seen.append(time.monotonic())
        if len(self.seen) == self._round:
            self.begun = time.monotonic()
            pool = ThreadPoolExecutor(1, "fault")
            self._future = pool.submit(self._fault)
            pool.shutdown(wait=False)
        time.sleep(self._pause)

    @property
    def is_running(self) -> bool:
        """True while the fault happens."""
        return self._future is not None and not self._future.done()

    @property
    def longest_gap(self) -> float:
        """Seconds for which nothing happened."""
        return max(after - before for before, after in itertools.pairwise(self.seen))

    @property
    def since(self) -> float:
        """Seconds since the fault began."""
        assert self.begun is not None, "the run was over before the fault"
        return time.monotonic() - self.begun

    def train(
        self, cluster: Cluster, data: str, config: TrainConfig = CONFIG, **options: Any
    ) -> TrainResult:
        """Train on `cluster` while the fault happens."""
        result = train(data, config, client=cluster.address, callbacks=[self], **options)
        self.join()
        return result

    def join(self, seconds: float = 60.0) -> None:
        """Wait for the end of the fault, and raise what it raised."""
        assert self._future is not None, "the run was over before the fault"
        self._future.result(seconds)
