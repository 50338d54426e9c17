"""Which worker of a cluster is asked to do what: a preference, never a need.

No bit of a model depends on it. It makes work travel to the worker that has read the rows, keeps
the partitions of a step spread evenly, and does not cut steps finer than pays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dadagrad.dask_config import count


def worthwhile_tasks(work: float) -> int:
    """Into how many tasks a step of so many non-zeros, times outputs, should be cut at most.

    A task costs 2 to 3 ms of the machines' time beside its work, in which as many can be worked on
    as ``dadagrad.task-work`` says.
    """
    return max(1, round(work / count("task-work", 1)))


class Placement:
    """Remembers where the partitions are, and finds places for more.

    Parameters
    ----------
    threads : mapping of str to int
        The addresses of the workers, and how many threads each has.
    tasks : int
        Into how many tasks a step should be cut at most.
    """

    def __init__(self, threads: Mapping[str, int], tasks: int) -> None:
        self._threads = dict(threads)
        self._tasks = tasks
        # Where the partition of each open visit is, or is to be read.
        self._home: dict[int, str] = {}
        # Where a partition was read last: that worker may still have it, in the next pass too.
        self._reader: dict[int, str] = {}

    def update(self, threads: Mapping[str, int]) -> None:
        """Take note of the workers that there are now: those that joined get their share."""
        if self._threads == threads:
            return
        self._threads = dict(threads)
        for visit, home in list(self._home.items()):
            if home not in self._threads:
                del self._home[visit]
        self._level()

    def _level(self) -> None:
        """Move open partitions until no worker has more than its share; each is read again."""
        n_open = self._n_open()
        used = self._used(n_open)
        while used:
            most = max(used, key=lambda worker: n_open[worker] / self._threads[worker])
            least = min(used, key=lambda worker: (n_open[worker] + 1) / self._threads[worker])
            before = n_open[most] / self._threads[most]
            if (n_open[least] + 1) / self._threads[least] >= before:
                return
            visit = max(visit for visit, home in self._home.items() if home == most)
            self._home[visit] = least
            n_open[most] -= 1
            n_open[least] += 1

    def open(self, visit: int, partition: int) -> str | None:
        """The worker that should read `partition`; None where no worker is known.

        Of those that steps are worth cutting for it is the one with the fewest open partitions
        for its threads. A step takes as long as the worker that has most to do, and reading a
        partition again hides behind other work.
        """
        if not self._threads:
            return None
        n_open = self._n_open()
        reader = self._reader.get(partition)
        self._home[visit] = min(
            self._used(n_open),
            key=lambda worker: ((n_open[worker] + 1) / self._threads[worker], worker != reader),
        )
        return self._home[visit]

    def _n_open(self) -> dict[str, int]:
        """How many of the open partitions each worker has."""
        n_open = dict.fromkeys(self._threads, 0)
        for home in self._home.values():
            if home in n_open:
                n_open[home] += 1
        return n_open

    def _used(self, n_open: Mapping[str, int]) -> list[str]:
        """As many workers as it takes to have the threads for all tasks of a step."""
        used: list[str] = []
        missing = self._tasks
        for worker in sorted(self._threads, key=lambda worker: -n_open[worker]):
            if missing <= 0:
                break
            used.append(worker)
            missing -= self._threads[worker]
        return used

    def found(self, visit: int, partition: int, worker: str) -> None:
        """Take note that `worker` has the rows: perhaps not the one that was asked."""
        self._home[visit] = self._reader[partition] = worker

    def close(self, visit: int) -> None:
        """The partition will not be needed again in this visit."""
        self._home.pop(visit, None)

    def other(self, worker: str) -> str | None:
        """A worker that is not `worker`; None where there is no other."""
        others = self._threads.keys() - {worker}
        n_open = self._n_open()
        return min(sorted(others), key=lambda one: n_open[one] / self._threads[one], default=None)

    def groups(self, visits: Iterable[int]) -> list[tuple[str | None, list[int]]]:
        """What should travel together: workers, and positions in `visits` for each.

        A worker gets its share of the tasks, but no more than it has threads to work on them side
        by side.
        """
        at: dict[str | None, list[int]] = {}
        for position, visit in enumerate(visits):
            at.setdefault(self._home.get(visit), []).append(position)
        n_visits = sum(map(len, at.values()))
        groups = []
        for worker, positions in at.items():
            n_threads = len(positions) if worker is None else self._threads.get(worker, 1)
            share = -(-self._tasks * len(positions) // n_visits)
            n_groups = min(share, n_threads, len(positions))
            groups += [(worker, positions[first::n_groups]) for first in range(n_groups)]
        return groups
