"""Trace of a run: begin, end, thread and bytes of each task, as a browser shows them.

The file is JSON in the trace-event format (https://perfetto.dev/docs), which ui.perfetto.dev and
chrome://tracing draw: a lane for each thread of each process. `examples/benchmarks/replay.py`
computes from it how long the run would take with other threads.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from dadagrad.errors import InputError
from dadagrad.storage.output import is_text_stream
from dadagrad.storage.store import Storage

COORDINATOR = "coordinator"
"""Name of the process of the coordinator."""


class Task(NamedTuple):
    """A measured task: its `begun` is in seconds since the epoch, `thread` a number."""

    name: str
    begun: float
    seconds: float
    process: str
    thread: int
    details: dict[str, Any]


class Measured:
    """Tasks of one process, measured.

    Attributes
    ----------
    tasks : list of Task
        Empty unless they are to be kept.
    """

    def __init__(self, process: str, *, keep: bool = True) -> None:
        self.process = process
        self._keep = keep
        self._lock = threading.Lock()
        self.tasks: list[Task] = []
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @property
    def seconds(self) -> dict[str, float]:
        """Time of all tasks by name, summed over threads and workers."""
        return dict(self._seconds)

    @contextmanager
    def __call__(self, name: str, **details: Any) -> Iterator[None]:
        """Measure the block as a task; threads may do so at the same time."""
        begun, clock = time.time(), time.perf_counter()
        yield
        seconds = time.perf_counter() - clock
        self.extend([Task(name, begun, seconds, self.process, threading.get_ident(), details)])

    def extend(self, tasks: Sequence[Task]) -> None:
        """Add measured tasks, also of another process."""
        with self._lock:
            for task in tasks:
                self._seconds[task.name] += task.seconds
            if self._keep:
                self.tasks += tasks

    def take(self) -> list[Task]:
        """The tasks since the last call."""
        with self._lock:
            tasks, self.tasks = self.tasks, []
        return tasks


class Trace(Measured):
    """Tasks of a run, for a JSON file at `url`; without a URL, their times are summed alone.

    The file is written at once, empty: a run should not end with a trace that cannot be written.
    """

    def __init__(self, url: str | None = None) -> None:
        super().__init__(COORDINATOR, keep=url is not None)
        if url is not None and is_text_stream(url):
            raise InputError(f"--trace {url} is a pipe or a device; give the name of a file")
        self._url = url
        self.save()

    measured = Measured.__call__

    def save(self) -> None:
        """Write the tasks so far."""
        if self._url is not None:
            Storage(self._url).put("", json.dumps(self.to_json()).encode())

    def to_json(self) -> dict[str, Any]:
        """The trace in the trace-event format; times are in microseconds from the first task."""
        processes: dict[str, int] = {}
        threads: dict[tuple[str, int], int] = {}
        start = min((task.begun for task in self.tasks), default=0.0)
        events = []
        for task in sorted(self.tasks, key=lambda task: task.begun):
            events.append(
                {
                    "name": task.name,
                    "ph": "X",
                    "ts": round(1e6 * (task.begun - start), 1),
                    "dur": round(1e6 * task.seconds, 1),
                    "pid": processes.setdefault(task.process, len(processes) + 1),
                    "tid": threads.setdefault((task.process, task.thread), len(threads) + 1),
                    "args": task.details,
                }
            )
        names = [
            {"name": "process_name", "ph": "M", "pid": number, "args": {"name": process}}
            for process, number in processes.items()
        ]
        return {"traceEvents": [*names, *events], "displayTimeUnit": "ms"}
