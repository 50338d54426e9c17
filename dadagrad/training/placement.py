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
    turns : int
        As the plan has it: a power of two. The workers are shared out among the turns, so that each
        step takes few tasks, and steps that are under way together are worked on side by side.
    """

    def __init__(self, threads: Mapping[str, int], tasks: int, turns: int = 1) -> None:
        self._threads = dict(threads)
        self._tasks = tasks
        self._turns = turns
        # That of each open visit.
        self._turn: dict[int, int] = {}
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
        moving = bool(used)
        while moving:
            moving = False
            for visit, home in sorted(self._home.items(), reverse=True):
                serving = self._serving(visit, used)
                best = min(serving, key=lambda worker: self._load(n_open, worker))
                load = n_open[home] / self._threads[home]
                if home not in serving or self._load(n_open, best) < load:
                    self._home[visit] = best
                    n_open[home] -= 1
                    n_open[best] += 1
                    moving = True

    def open(self, visit: int, partition: int, round_number: int = 0) -> str | None:
        """The worker that should read `partition`; None where no worker is known.

        Of those that steps are worth cutting for, and that serve the turn of the first round which
        takes its rows, it is the one with the fewest open partitions for its threads. A step takes
        as long as the worker that has most to do, and reading a partition again hides behind other
        work.
        """
        self._turn[visit] = round_number % self._turns
        if not self._threads:
            return None
        n_open = self._n_open()
        reader = self._reader.get(partition)
        self._home[visit] = min(
            self._serving(visit, self._used(n_open)),
            key=lambda worker: (self._load(n_open, worker), worker != reader),
        )
        return self._home[visit]

    def _load(self, n_open: Mapping[str, int], worker: str) -> float:
        """Open partitions for each thread of `worker`, if it gets one more."""
        return (n_open[worker] + 1) / self._threads[worker]

    def _n_open(self) -> dict[str, int]:
        """How many of the open partitions each worker has."""
        n_open = dict.fromkeys(self._threads, 0)
        for home in self._home.values():
            if home in n_open:
                n_open[home] += 1
        return n_open

    def _serving(self, visit: int, used: list[str]) -> list[str]:
        """Of the workers that are used, those that serve the turn of a visit."""
        sides = 1 << (min(self._turns, len(used)).bit_length() - 1)
        side = self._turn.get(visit, 0) % sides
        # Where they are not a multiple, the last ones serve all turns.
        dealt = len(used) // sides * sides
        return [w for number, w in enumerate(used) if number >= dealt or number % sides == side]

    def _used(self, n_open: Mapping[str, int]) -> list[str]:
        """As many workers as have the threads for all tasks of the steps that are under way."""
        used: set[str] = set()
        missing = self._tasks * self._turns
        for worker in sorted(self._threads, key=lambda worker: -n_open[worker]):
            if missing <= 0:
                break
            used.add(worker)
            missing -= self._threads[worker]
        return [worker for worker in self._threads if worker in used]

    def found(self, visit: int, partition: int, worker: str) -> None:
        """Take note that `worker` has the rows: perhaps not the one that was asked."""
        self._home[visit] = self._reader[partition] = worker

    def close(self, visit: int) -> None:
        """The partition will not be needed again in this visit."""
        self._home.pop(visit, None)
        self._turn.pop(visit, None)

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
            share = -(-self._tasks * len(positions) // n_visits)
            groups += [(worker, group) for group in self._side_by_side(worker, positions, share)]
        return groups

    def readings(self, moments: Mapping[int, int]) -> list[tuple[str | None, list[int]]]:
        """What should be read one after the other: workers, and open visits for each.

        `moments` says of visits when they are needed: what is needed earlier is not to wait for
        what is needed later.
        """
        at: dict[tuple[str | None, int], list[int]] = {}
        for visit, moment in moments.items():
            at.setdefault((self._home.get(visit), moment), []).append(visit)
        return [
            (worker, group)
            for (worker, _), visits in at.items()
            for group in self._side_by_side(worker, visits, len(visits))
        ]

    def _side_by_side(self, worker: str | None, some: list[int], most: int) -> list[list[int]]:
        """`some` in at most so many groups, and no more than `worker` has threads."""
        n_threads = len(some) if worker is None else self._threads.get(worker, 1)
        n_groups = min(most, n_threads, len(some))
        return [some[first::n_groups] for first in range(n_groups)]
