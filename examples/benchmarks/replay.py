"""Replay: how long a run of streams would take on other threads, from its trace on one.

The tasks of a trace (`dadagrad train --trace`) are given to threads again, as the local engine
does: a thread that is free takes the next task that is ready, and reads for later only where there
is no other work. A slice needs its partition and the merge of the round before; a merge needs all
slices of its round. Threads share the lock of Python: no round is shorter than its tasks hold it
together, which is about as long as tasks with few rows take. What tasks cost each other by sharing
caches and memory is left out.

Without a trace, one is recorded here, on one thread, and the replay is held against the measured
time on as many threads as this machine has.
"""

from __future__ import annotations

import argparse
import heapq
import json
import statistics
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import reporting
from memory import prepare

from dadagrad import ingest, open_dataset, train
from dadagrad.data.synthetic import Corpus
from dadagrad.kernels.parallel import available_cores

THREADS = (1, 2, 4, 8, 16, 32, 64)


@dataclass
class Round:
    """Seconds of the tasks of a round: slices by the reading that they need, and merges."""

    slices: list[tuple[int, float]] = field(default_factory=list)
    merges: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Run:
    """The tasks of a run, and the seconds that the coordinator took between them.

    `locked` are the seconds for which a task of each name holds the lock of Python.
    """

    rounds: list[Round]
    reads: dict[int, float]
    coordination: float
    locked: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Seconds of all tasks together."""
        tasks = [seconds for each in self.rounds for _, seconds in each.slices]
        tasks += [seconds for each in self.rounds for seconds in each.merges]
        return sum(tasks) + sum(self.reads.values()) + self.coordination


def main() -> None:
    options = arguments()
    if options.trace is not None:
        run, measured = load(options.trace), {}
    else:
        run, measured = record(options)
    run = replace(run, locked=locked(options.streams))
    alone = replay(run, 1)
    rows = []
    for threads in THREADS:
        seconds = replay(run, threads)
        beside = f"{measured[threads]:.2f}" if threads in measured else ""
        rows.append([str(threads), f"{seconds:.2f}", f"{alone / seconds:.1f}", beside])
    table = reporting.table(["threads", "seconds", "speed-up", "measured"], rows)
    share = run.coordination / run.seconds
    held = ", ".join(f"{1e6 * seconds:.0f} us to {name}" for name, seconds in run.locked.items())
    intro = (
        f"{len(run.rounds)} rounds; the coordinator takes {share:.1%} of the time of all tasks. "
        f"A task holds the lock of Python for {held}:"
    )
    reporting.publish("replay", f"{intro}\n\n{table}", options.markdown)


def arguments() -> argparse.Namespace:
    parser = reporting.parser(__doc__)
    parser.add_argument("--trace", type=Path, help="trace of a run on one thread")
    parser.add_argument("--rows", type=int, default=804_414, help="default: %(default)s")
    parser.add_argument("--features", type=int, default=1_950_000, help="default: %(default)s")
    parser.add_argument("--nnz", type=float, default=206.0, help="a row (default: %(default)s)")
    parser.add_argument("--streams", type=int, default=16, help="default: %(default)s")
    return parser.parse_args()


def record(options: argparse.Namespace) -> tuple[Run, dict[int, float]]:
    """The tasks of a run on one thread, and the seconds of passes on 1 thread and on all cores."""
    corpus = Corpus(options.rows, options.features, options.nnz)
    data = open_dataset(str(prepare(options.folder, corpus)))
    measured = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        for threads in {1, available_cores()}:
            train(data, step_size=0.2, streams=options.streams, threads=threads)  # warms caches up
            trace = str(path) if threads == 1 else None
            result = train(
                data, step_size=0.2, streams=options.streams, threads=threads, trace=trace
            )
            measured[threads] = result.report["seconds"]
        return load(path), measured


def locked(streams: int) -> dict[str, float]:
    """Median seconds of the tasks of a run on few rows, by their names."""
    with tempfile.TemporaryDirectory() as folder:
        text, data, trace = (Path(folder) / name for name in ("text", "data", "trace"))
        Corpus(20_000, 2_000, 10.0).write_text(text)
        ingest(text, str(data), format="svmlight", partition_nnz=5_000)
        train(str(data), step_size=0.2, streams=streams, threads=1, trace=str(trace))
        tasks = json.loads(trace.read_text())["traceEvents"]
    return {
        name: statistics.median(task["dur"] / 1e6 for task in tasks if task["name"] == name)
        for name in ("read", "learn", "merge")
    }


def load(path: Path) -> Run:
    """The tasks of a trace, in rounds: the slices after a merge begin the next."""
    rounds, reads, coordination = [Round()], {}, 0.0
    for event in json.loads(path.read_text())["traceEvents"]:
        seconds = event.get("dur", 0.0) / 1e6
        match event["name"]:
            case "read":
                reads[event["args"]["reading"]] = seconds
            case "learn":
                if rounds[-1].merges:
                    rounds.append(Round())
                rounds[-1].slices.append((event["args"]["reading"], seconds))
            case "merge":
                rounds[-1].merges.append(seconds)
            case "coordinate":
                coordination += seconds
    return Run(rounds, reads, coordination)


def replay(run: Run, threads: int) -> float:
    """Seconds of the run on so many threads."""
    free = [0.0] * threads  # when each thread has ended its last task
    opened: dict[int, float] = {}  # when each reading is open
    order = list(dict.fromkeys(reading for each in run.rounds for reading, _ in each.slices))
    now = 0.0
    pause = run.coordination / max(1, len(run.rounds))
    for each in run.rounds:
        begun, n_read = now, len(opened)
        needed = dict.fromkeys(reading for reading, _ in each.slices)
        for reading in needed:
            if reading not in opened:
                opened[reading] = _give(free, 0.0, run.reads.get(reading, 0.0))
        ends = [
            _give(free, max(now, opened[reading]), seconds)
            for reading, seconds in sorted(each.slices, key=lambda task: opened[task[0]])
        ]
        now = max(ends, default=now)
        # Threads that wait for the last slices read what is needed next.
        for reading in order:
            if reading not in opened and free[0] + run.reads.get(reading, 0.0) <= now:
                opened[reading] = _give(free, 0.0, run.reads.get(reading, 0.0))
        now = max([now, *(_give(free, now, seconds) for seconds in each.merges)])
        n_tasks = {"read": len(opened) - n_read, "learn": len(each.slices)}
        n_tasks["merge"] = len(each.merges)
        held = sum(n * run.locked.get(name, 0.0) for name, n in n_tasks.items())
        now = max(now, begun + held) + pause
    return now


def _give(free: list[float], ready: float, seconds: float) -> float:
    """Give a task to the thread that is free first; when it ends."""
    end = max(heapq.heappop(free), ready) + seconds
    heapq.heappush(free, end)
    return end


if __name__ == "__main__":
    main()
