"""Small data, a run on it, and faults at its moments."""

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from dadagrad import TrainConfig, train

CONFIG = TrainConfig(step_size=0.3, batch_size=60, l1=1e-4, passes=4)
"""48 steps on rows of `DATA_SIZES`: about a second on two workers."""

STREAMS = replace(CONFIG, streams=4, batch_size=1, rounds=15)
"""30 rounds of streams, whose state is on the workers."""

DATA_SIZES = (150, 90, 130, 110, 140, 100)


class At:
    """The progress of a run, with a fault once `round_number` rounds are done.

    The fault runs beside the run, on a thread of its own. Each round takes `pause` seconds more
    while the fault happens.
    """

    def __init__(self, round_number, fault, *, pause=0.0):
        self.seen = []
        self.begun = None
        self._round, self._fault, self._pause = round_number, fault, pause
        self._future = None

    def __call__(self, event):
        self.seen.append(time.monotonic())
        if len(self.seen) == self._round:
            self.begun = time.monotonic()
            pool = ThreadPoolExecutor(1, "fault")
            self._future = pool.submit(self._fault)
            pool.shutdown(wait=False)
        if self.is_running:
            time.sleep(self._pause)

    @property
    def is_running(self):
        return self._future is not None and not self._future.done()

    @property
    def longest_gap(self):
        """Seconds for which nothing happened."""
        return max(after - before for before, after in itertools.pairwise(self.seen))

    @property
    def since(self):
        """Seconds since the fault began."""
        assert self.begun is not None, "the run was over before the fault"
        return time.monotonic() - self.begun

    def train(self, cluster, data, config=CONFIG, *, callbacks=(), **options):
        callbacks = [self, *callbacks]
        result = train(data, config, client=cluster.address, callbacks=callbacks, **options)
        self.join()
        return result

    def join(self, seconds=60.0):
        """Wait for the end of the fault, and raise what it raised."""
        assert self._future is not None, "the run was over before the fault"
        self._future.result(seconds)
