"""Preferred worker of each task: the worker that has read the rows.

No bit of a model depends on it. Open partitions are spread evenly over the workers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from dadagrad.training.messages import Compute, Open
from dadagrad.training.schedule.base import Slice

T = TypeVar("T")


class Placement:
    """Workers that have the open partitions.

    `threads` are the addresses of the workers and their threads, `tasks` is the greatest number of
    tasks that a step is cut into.
    """

    def __init__(self, threads: Mapping[str, int], tasks: int) -> None:
        self._threads = dict(threads)
        self._tasks = tasks
        self._home: dict[int, str] = {}  # worker of each open reading
        # Worker that read a partition last: it may still have it in the next pass.
        self._reader: dict[int, str] = {}

    def update(self, threads: Mapping[str, int]) -> None:
        """Set the workers that there are now, and spread open partitions over them.

        A partition that moves is read again, which hides behind other work.
        """
        if self._threads == threads:
            return
        self._threads = dict(threads)
        self._home = {reading: home for reading, home in self._home.items() if home in threads}
        used = self._used_workers()
        homes, self._home = self._home, {}
        for reading, home in sorted(homes.items()):
            self._home[reading] = self._least_loaded(used, home)

    def open(self, reading: int, partition: int) -> str | None:
        """Choose the worker that reads `partition`; None if there are no workers.

        It is the used worker with the fewest open partitions for each thread: a step takes as long
        as its busiest worker.
        """
        if not self._threads:
            return None
        reader = self._reader.get(partition)
        self._home[reading] = self._least_loaded(self._used_workers(), reader)
        return self._home[reading]

    def keep_together(self, slices: Sequence[Slice]) -> None:
        """Choose one worker for all slices: the one that has the rows of the first."""
        first = slices[0]
        home = self._home.get(first.reading) or self.open(first.reading, first.partition)
        if home is not None:
            self._home |= {slice_.reading: home for slice_ in slices}

    def _least_loaded(self, workers: Iterable[str], preferred: str | None) -> str:
        """Return the worker with the fewest open partitions a thread, if it gets one more."""
        n_open = Counter(self._home.values())
        loads = {worker: (n_open[worker] + 1) / self._threads[worker] for worker in workers}
        return min(loads, key=lambda worker: (loads[worker], worker != preferred))

    def _used_workers(self) -> list[str]:
        """Return as many workers as have threads for all tasks of a step."""
        n_open = Counter(self._home.values())
        used: list[str] = []
        missing = self._tasks
        for worker in sorted(self._threads, key=lambda worker: -n_open[worker]):
            if missing > 0:
                used.append(worker)
                missing -= self._threads[worker]
        return used

    def read_by(self, reading: int, partition: int, worker: str) -> None:
        """Record that `worker` has the rows, which may not be the preferred one."""
        self._home[reading] = self._reader[partition] = worker

    def close(self, reading: int) -> None:
        """Forget a reading that is over."""
        self._home.pop(reading, None)

    def close_all(self) -> None:
        """Forget all readings."""
        self._home.clear()

    def another(self, worker: str) -> str | None:
        """Return a worker other than `worker`, with few open partitions; None if there is none."""
        n_open = Counter(self._home.values())
        others = sorted(self._threads.keys() - {worker})
        return min(others, key=lambda name: n_open[name] / self._threads[name], default=None)

    def tasks_of(self, computes: Sequence[Compute]) -> list[tuple[str | None, list[Compute]]]:
        """Group the slices of a step into tasks, each with its worker.

        A worker gets a number of tasks in proportion to its slices, at most one for each thread.
        """
        by_worker: dict[str | None, list[Compute]] = defaultdict(list)
        for each in computes:
            by_worker[self._home.get(each.slices[0].reading)].append(each)
        return [
            (worker, task)
            for worker, group in by_worker.items()
            for task in self._split(worker, group, -(-self._tasks * len(group) // len(computes)))
        ]

    def reading_groups(self, opens: Iterable[Open]) -> list[tuple[str | None, list[Open]]]:
        """Group open readings into tasks that read them one after the other, each with its worker.

        A reading must not wait for one that is needed later.
        """
        by_need: dict[tuple[str | None, int], list[Open]] = defaultdict(list)
        for each in opens:
            by_need[self._home.get(each.reading), each.needed_at].append(each)
        return [
            (worker, task)
            for (worker, _), group in by_need.items()
            for task in self._split(worker, group, len(group))
        ]

    def _split(self, worker: str | None, items: list[T], n_max: int) -> list[list[T]]:
        """Split `items` into at most `n_max` groups, at most one for each thread of `worker`."""
        n_threads = len(items) if worker is None else self._threads.get(worker, 1)
        n_groups = min(n_max, n_threads, len(items))
        return [items[first::n_groups] for first in range(n_groups)]
