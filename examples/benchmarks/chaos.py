"""Chaos: training on a cluster of separate processes that are killed, stopped or called away.

First the run that nobody disturbs, on threads and on the cluster: its bits are those of the model
and of the whole state at the end. Then `--trials` runs, each with a fault of a random kind at a
random moment between the start of `dadagrad train` and its end, drawn from `--seed`. Workers that
are lost are replaced; where the scheduler or the coordinator is lost, the run goes on with
`dadagrad resume`. The exit code is 1 if any run has other bits, or does not end in time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import reporting

from dadagrad.data.synthetic import Corpus
from dadagrad.training.checkpoints.writer import CheckpointReader

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from helpers.cluster_processes import Cluster, Nursery, Process
from helpers.processes import wait_until
from helpers.zarr_cases import write_zarr

WORKERS = 2
END_SECONDS = 240.0
SETTINGS = ("--step-size", "0.2", "--l1", "1e-6", "--batch-size", "2000", "--checkpoint-every", "5")
ENVIRONMENT = {
    "DASK_DADAGRAD__TASK_WORK": "30000",  # small steps, yet shared by the workers
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "10s",
}


@dataclass(frozen=True)
class Trial:
    """What became of a run; `bits` is None where it did not end in time."""

    kind: str
    moment: float
    seconds: float
    workers: int
    bits: str | None


class Faults:
    """What can happen to a cluster, or to the process that coordinates the run."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng

    @staticmethod
    def kinds() -> list[str]:
        names = [name for name in vars(Faults) if not name.startswith("_") and name != "kinds"]
        return [name.replace("_", "-") for name in names]

    def kill_worker(self, run: Process) -> None:
        """SIGKILL, at any moment of whatever it does."""
        self._rng.choice(self._cluster.living).kill()

    def kill_all_workers(self, run: Process) -> None:
        for worker in self._cluster.living:
            worker.send(signal.SIGKILL)

    def kill_nanny(self, run: Process) -> None:
        """SIGKILL of the process that watches over a worker."""
        nanny = self._cluster.add_worker(nanny=True)
        time.sleep(self._rng.uniform(0.0, 4.0))
        nanny.kill()

    def kill_worker_of_nanny(self, run: Process) -> None:
        """SIGKILL of a worker that its nanny starts again."""
        nanny = self._cluster.add_worker(nanny=True)
        time.sleep(self._rng.uniform(2.0, 4.0))
        for child in nanny.children():
            child.kill()

    def freeze_worker(self, run: Process) -> None:
        """SIGSTOP, for shorter or for longer than the scheduler waits for a sign of life."""
        worker = self._rng.choice(self._cluster.living)
        worker.send(signal.SIGSTOP)
        time.sleep(self._rng.uniform(1.0, 20.0))
        worker.send(signal.SIGCONT)

    def preempt_worker(self, run: Process) -> None:
        """SIGTERM."""
        self._rng.choice(self._cluster.living).send(signal.SIGTERM)

    def retire_worker(self, run: Process) -> None:
        """As a cluster that shrinks: its data is moved away first."""
        with self._cluster.client() as client:
            workers = sorted(client.nthreads())
            if workers:
                client.retire_workers([self._rng.choice(workers)], close_workers=True)

    def add_worker(self, run: Process) -> None:
        self._cluster.add_worker()

    def restart_scheduler(self, run: Process) -> None:
        """SIGKILL; the run has to end by itself before a new scheduler is there."""
        self._cluster.scheduler.kill()
        run.wait(END_SECONDS)
        self._cluster.restart(WORKERS)

    def kill_coordinator(self, run: Process) -> None:
        """SIGKILL of the process that has the state."""
        run.kill()


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        data = prepare(options.folder / "chaos", options.rows)
        with Nursery(folder, ENVIRONMENT) as nursery:
            return measure(options, nursery, folder, data)


def parse() -> argparse.Namespace:
    parser = reporting.parser(__doc__)
    kinds = Faults.kinds()
    parser.add_argument("--trials", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument(
        "--kinds", nargs="+", choices=kinds, default=kinds, metavar="KIND",
        help=f"of {', '.join(kinds)} (default: all)",
    )  # fmt: skip
    parser.add_argument("--rows", type=int, default=24_000, help="default: %(default)s")
    parser.add_argument("--passes", type=int, default=6, help="default: %(default)s")
    options: argparse.Namespace = parser.parse_args()
    return options


def measure(options: argparse.Namespace, nursery: Nursery, folder: Path, data: str) -> int:
    """The undisturbed runs, the trials and the tables; the exit code."""
    command = ("train", data, *SETTINGS, "--passes", str(options.passes))
    on_threads = Run(nursery, folder / "threads", command, ())
    on_threads.start().wait(END_SECONDS)
    with Cluster(nursery, WORKERS) as cluster:
        where = ("--scheduler", cluster.address)
        seconds = []
        for number in range(3):
            run = Run(nursery, folder / f"undisturbed-{number}", command, where)
            begun = time.monotonic()
            run.start().wait(END_SECONDS)
            seconds.append(time.monotonic() - begun)
            if run.bits() != on_threads.bits():
                raise RuntimeError("the run has other bits on the cluster than on threads")
        usual = statistics.median(seconds)
        expected = on_threads.bits()
        print(f"undisturbed: {usual:.1f} s, bits {expected[:12]}", flush=True)
        trials = []
        for number in range(options.trials):
            rng = random.Random(f"{options.seed}-{number}")
            run = Run(nursery, folder / f"trial-{number}", command, where)
            trials.append(try_once(rng, rng.choice(options.kinds), cluster, run, usual))
            print(" | ".join(line_of(number, trials[-1], expected)), flush=True)
    report(options, trials, expected, usual)
    return int(any(trial.bits != expected for trial in trials))


class Run:
    """A run of `dadagrad train` in a folder of its own, resumed where it was cut off."""

    def __init__(
        self, nursery: Nursery, folder: Path, command: tuple[str, ...], where: tuple[str, ...]
    ) -> None:
        self._nursery, self._folder = nursery, folder
        self._command, self._where = command, where
        self._checkpoints = str(folder / "checkpoints")

    def start(self) -> Process:
        """Begin it, or go on where its last checkpoint is."""
        if CheckpointReader(self._checkpoints).list():
            options = ("resume", self._checkpoints)
        else:
            places = ("--checkpoints", self._checkpoints, "--model", str(self._folder / "model"))
            options = (*self._command, *places)
        return self._nursery.start("dadagrad", *options, *self._where, "--json", "--quiet")

    def bits(self) -> str:
        """sha256 of the state at the end, and of the digest of the model."""
        snapshot = CheckpointReader(self._checkpoints).load()
        found = hashlib.sha256()
        for name in sorted(snapshot.arrays):
            found.update(name.encode())
            found.update(np.ascontiguousarray(snapshot.arrays[name]).tobytes())
        kept = {name: snapshot.meta[name] for name in ("cursor", "steps", "passes", "t")}
        found.update(json.dumps(kept, sort_keys=True).encode())
        from dadagrad import Model

        found.update(Model.load(str(self._folder / "model")).digest.encode())
        return found.hexdigest()


def try_once(rng: random.Random, kind: str, cluster: Cluster, run: Run, usual: float) -> Trial:
    """One run, with one fault."""
    cluster.have_workers(WORKERS)
    fault: Callable[[Process], None] = getattr(Faults(cluster, rng), kind.replace("-", "_"))
    moment = rng.uniform(0.0, usual)
    begun = time.monotonic()
    process = run.start()
    try:
        wait_until(lambda: not process.alive or time.monotonic() > begun + moment, END_SECONDS, "")
        fault(process)
        while time.monotonic() < begun + END_SECONDS:
            for _ in range(WORKERS - len(cluster.living)):
                cluster.add_worker()
            if not process.alive:
                if process.wait(1) == 0:
                    break
                process = run.start()
            time.sleep(0.05)
        else:
            raise TimeoutError("the run does not end")
        bits = run.bits()
    except TimeoutError:
        process.kill()
        bits = None
    return Trial(kind, moment, time.monotonic() - begun, len(cluster.living), bits)


def line_of(number: int, trial: Trial, expected: str) -> list[str]:
    same = "does not end" if trial.bits is None else "yes" if trial.bits == expected else "NO"
    return [
        f"{number}", trial.kind, f"{trial.moment:.2f}", f"{trial.seconds:.1f}",
        f"{trial.workers}", same,
    ]  # fmt: skip


def report(options: argparse.Namespace, trials: list[Trial], expected: str, usual: float) -> None:
    """All trials on standard output; what came of each kind also in the README."""
    header = ["trial", "fault", "moment, s", "s", "workers at the end", "same bits"]
    lines = [line_of(number, trial, expected) for number, trial in enumerate(trials)]
    print("\n" + reporting.table(header, lines) + "\n")
    by_kind = []
    for kind in sorted({trial.kind for trial in trials}):
        of_kind = [trial for trial in trials if trial.kind == kind]
        same = sum(trial.bits == expected for trial in of_kind)
        lost = statistics.median(trial.seconds for trial in of_kind) - usual
        by_kind.append([kind, f"{len(of_kind)}", f"{same}", f"{lost:.1f}"])
    same = sum(trial.bits == expected for trial in trials)
    text = (
        f"{options.rows:,} rows, {options.passes} passes, {WORKERS} workers; undisturbed "
        f"{usual:.1f} s. Seed {options.seed}: {same} of {len(trials)} runs with a fault ended with "
        "the same bits.\n\n"
    )
    header = ["fault", "trials", "same bits", "s lost (median)"]
    reporting.publish("chaos", text + reporting.table(header, by_kind), options.markdown)


def prepare(folder: Path, n_rows: int) -> str:
    """The data, in partitions of 1000 rows; its URL."""
    url = str(folder / f"rows-{n_rows}")
    if Path(url, "zarr.json").exists():
        return url
    return write_zarr(Corpus(n_rows, 50_000, 66.0).dataset(rows_per_partition=1000), url)


if __name__ == "__main__":
    sys.exit(main())
