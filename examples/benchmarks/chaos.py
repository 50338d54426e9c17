"""Chaos: runs of `dadagrad train` that are killed, stopped, starved, and cut off from stores.

A trial is a run of one algorithm, in one place, with one kind of store, and one to three faults at
random moments. A run that ends early goes on with `dadagrad resume`, until it is complete.
The model, and the whole state at the end, must have the bits of a run that nobody disturbed, each
end must be one that the documentation names, and no trial may take longer than `END_SECONDS`.
Requests to S3 pass a proxy that makes some of them fail throughout.

The seed of trial N is `--seed` + N, and decides all that is drawn: a trial that fails prints its
seed, and `--seed SEED --trials 1` repeats it. `--jobs` processes make the trials, each with
servers, a cluster and data of its own. Ctrl-C ends the trials with the tables of those that are
done. The exit code is 1 if a trial has failed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import multiprocessing
import os
import random
import resource
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import psutil
import reporting

from dadagrad import Model
from dadagrad.data.synthetic import Corpus
from dadagrad.errors import DadagradError
from dadagrad.storage.store import Storage
from dadagrad.training.checkpoints.reader import CheckpointReader

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from helpers.cluster_processes import WARM, Cluster, Nursery, Process
from helpers.faulty_proxy import Proxy, always, mishaps
from helpers.servers import BUCKET, moto_server, rclone_server
from helpers.zarr_cases import write_zarr

WORKERS = 2
END_SECONDS = 240.0
ALGORITHMS = {
    "batches": ("--batch-size", "50", "--l1", "1e-4"),
    "rows": ("--batch-size", "1", "--l1", "1e-6", "--checkpoint-every", "400"),
    "streams": ("--streams", "4", "--l1", "1e-6"),
    "sketch": ("--batch-size", "50", "--preconditioner", "sketch:rank=5"),
}
SETTINGS = ("--step-size", "0.2", "--passes", "3", "--checkpoint-every", "5")
PLACES = {"threads": 20, "cluster": 4, "workers": 1}
STORES = {"files": 6, "moto": 2, "rclone": 2}
"""Places and stores, and how often each is drawn."""

REFUSED = {"503": 0.04, "429": 0.02, "reset": 0.03, "lose": 0.03, "cut": 0.02, "stall": 0.002}
"""Shares of requests to S3 that fail, by what becomes of them."""

ENDS = {None, 2, 128 + signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGHUP}
"""Exit codes of a run that a fault has ended; None where it was killed."""

ENVIRONMENT = {
    "DASK_DADAGRAD__TASK_WORK": "1",  # small steps, yet shared by the workers
    "DASK_DADAGRAD__CONNECT_TIMEOUT": "3s",
    "DASK_DADAGRAD__WORKER_TTL": "4s",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "4s",
    "DADAGRAD_STORAGE_TIMEOUT": "3",
    "DADAGRAD_STORAGE_PATIENCE": "120",  # a busy machine may be slower than any fault
    "AWS_ALLOW_HTTP": "true",
    "AWS_REGION": "us-east-1",
}


@dataclass(frozen=True)
class Way:
    """An algorithm, the place where it runs and the store of its data and checkpoints."""

    algorithm: str
    place: str
    store: str

    def __str__(self) -> str:
        return f"{self.algorithm}, {self.place}, {self.store}"

    @classmethod
    def draw(cls, rng: random.Random, places: Sequence[str], stores: Sequence[str]) -> Way:
        (place,) = rng.choices(places, [PLACES[name] for name in places])
        (store,) = rng.choices(stores, [STORES[name] for name in stores])
        # One row after the other is learned in one place alone.
        algorithms = [name for name in ALGORITHMS if place == "threads" or name != "rows"]
        return cls(rng.choice(algorithms), place, store)


@dataclass(frozen=True)
class Trial:
    """What became of a run; `failure` is empty where it has the bits of an undisturbed run."""

    seed: int
    way: Way
    faults: tuple[str, ...]
    seconds: float
    failure: str


class Run:
    """A run in a folder of its own, which goes on where it was cut off."""

    def __init__(self, site: Site, way: Way, name: str) -> None:
        self._site = site
        self.folder = f"{site.urls[way.store]}/{name}"
        self._checkpoints, self._model = f"{self.folder}/run", f"{self.folder}/model"
        options = ALGORITHMS[way.algorithm]
        places = ("--checkpoints", self._checkpoints, "--model", self._model)
        self._command = ("train", f"{site.urls[way.store]}/rows", *SETTINGS, *options, *places)
        self._place = site.options(way.place)
        self.on_cluster = way.place == "cluster"

    def start(self) -> Process:
        """Begin the run, or continue it from its last checkpoint."""
        command = ("resume", self._checkpoints) if self.has_begun else self._command
        return self._site.nursery.start("dadagrad", *command, *self._place, "--json", "--quiet")

    @property
    def has_begun(self) -> bool:
        """True if there is a checkpoint."""
        with self._site.calm():
            return bool(CheckpointReader(self._checkpoints).list())

    def bits(self) -> str:
        """sha256 of the state at the end, and of the digest of the model."""
        with self._site.calm():
            snapshot = CheckpointReader(self._checkpoints).load()
            digest = Model.load(self._model).digest
        total = hashlib.sha256(digest.encode())
        for name in sorted(snapshot.arrays):
            total.update(name.encode())
            total.update(np.ascontiguousarray(snapshot.arrays[name]).tobytes())
        place = {name: snapshot.meta[name] for name in ("cursor", "steps", "passes", "t")}
        total.update(json.dumps(place, sort_keys=True).encode())
        return total.hexdigest()

    def remove(self) -> None:
        with self._site.calm():
            Storage(self.folder).delete_prefix()


class Site:
    """All that outlives a trial: a cluster, S3 servers behind a proxy, and data."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path) -> None:
        servers = {
            "moto": stack.enter_context(moto_server(folder)),
            "rclone": stack.enter_context(rclone_server(folder)),
        }
        self._behind = {name: urlsplit(each.endpoint).netloc for name, each in servers.items()}
        # moto takes any credentials, so that all processes may use those of rclone.
        self.proxy = stack.enter_context(Proxy(servers["rclone"]))
        environment = ENVIRONMENT | self.proxy.server.environment
        os.environ.update(environment)
        self.nursery = stack.enter_context(Nursery(folder, environment, WARM))
        self.folder = folder
        self._stack = stack
        self._cluster: Cluster | None = None
        self.urls = {"files": str(folder), "moto": f"s3://{BUCKET}", "rclone": f"s3://{BUCKET}"}
        data = Corpus(2000, 3000, 20.0).dataset()
        for store, url in self.urls.items():
            self.use(store)
            write_zarr(data, f"{url}/rows")

    def use(self, store: str) -> None:
        """Have the proxy pass requests on to a store."""
        self.proxy.behind = self._behind.get(store, self.proxy.behind)

    @contextlib.contextmanager
    def calm(self) -> Iterator[None]:
        """No request of this process fails in the block, nor of any other."""
        before, self.proxy.act = self.proxy.act, always("pass")
        try:
            yield
        finally:
            self.proxy.act = before

    @property
    def cluster(self) -> Cluster:
        """The cluster, started at its first use."""
        if self._cluster is None:
            self._cluster = self._stack.enter_context(Cluster(self.nursery, WORKERS))
        return self._cluster

    def options(self, place: str) -> tuple[str, ...]:
        """The options with which a command uses a place."""
        if place == "cluster":
            return ("--scheduler", self.cluster.address)
        return ("--workers", str(WORKERS)) if place == "workers" else ("--threads", "2")


Fault = Callable[["Disturbed"], None]


class Disturbed:
    """A run, its process, and the faults that can happen to it."""

    def __init__(self, site: Site, run: Run, rng: random.Random) -> None:
        self._site, self._run, self._rng = site, run, rng
        self.process = run.start()
        self.others: list[Process] = []

    @property
    def processes(self) -> list[Process]:
        return [self.process, *self.others]

    def kill(self) -> None:
        """SIGKILL of the coordinator."""
        self.process.kill()

    def interrupt(self) -> None:
        """A signal that ends it with a checkpoint."""
        self.process.send(self._rng.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)))

    def pause(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            command = self._command()
            command.suspend()
            time.sleep(self._rng.uniform(0.1, 2.0))
            command.resume()

    def take_over(self) -> None:
        """Another `resume` of the same run, while it still goes on."""
        if self._run.has_begun:
            self.others.append(self.process)
            self.process = self._run.start()

    def fill_disk(self) -> None:
        """No file of the process can grow any more."""
        self._limit(resource.RLIMIT_FSIZE, self._rng.choice((0, 500, 1500, 5000)))

    def use_up_memory(self) -> None:
        """The limit of addresses, which all processes have, falls to what the process uses."""
        with contextlib.suppress(psutil.NoSuchProcess):
            size = self._command().memory_info().vms
            self._limit(resource.RLIMIT_AS, size + self._rng.choice((0, 1 << 16, 1 << 20, 1 << 24)))

    def _limit(self, kind: int, size: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            number = self._command().pid
            hard = resource.prlimit(number, kind)[1]
            resource.prlimit(number, kind, (size, hard))

    def _command(self) -> psutil.Process:
        """The process that runs the command, where its memory is limited a child of the first."""
        first = psutil.Process(self.process.pid)
        line = first.cmdline()
        return next((child for child in first.children() if child.cmdline() == line), first)

    def close_store(self) -> None:
        """For some seconds the store refuses everything, or says nothing."""
        act, self._site.proxy.act = self._site.proxy.act, always(self._rng.choice(("503", "reset")))
        time.sleep(self._rng.uniform(0.2, 4.0))
        self._site.proxy.act = act

    def kill_worker(self) -> None:
        if workers := self._workers():
            self._rng.choice(workers).kill()

    def kill_all_workers(self) -> None:
        for worker in self._workers():
            worker.kill()

    def _workers(self) -> list[psutil.Process] | list[Process]:
        """Workers of the cluster, or those that the process has started."""
        if "--workers" in self._run._place:
            children = self.process.children()
            return [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        return self._site.cluster.living

    def freeze_worker(self) -> None:
        """SIGSTOP, for shorter or for longer than the scheduler waits for a sign of life."""
        if not self._site.cluster.living:
            return
        worker = self._rng.choice(self._site.cluster.living)
        worker.send(signal.SIGSTOP)
        time.sleep(self._rng.choice((0.5, 1.0, 2.0, 7.0)))
        worker.send(signal.SIGCONT)

    def preempt_worker(self) -> None:
        if workers := self._site.cluster.living:
            self._rng.choice(workers).send(signal.SIGTERM)

    def retire_worker(self) -> None:
        """As a cluster that shrinks: its data is moved away first."""
        with self._site.cluster.client() as client:
            if workers := sorted(client.nthreads()):
                client.retire_workers([self._rng.choice(workers)], close_workers=True)

    def add_worker(self) -> None:
        self._site.cluster.add_worker()

    def restart_scheduler(self) -> None:
        """SIGKILL, and another scheduler at once or later."""
        self._site.cluster.scheduler.kill()
        time.sleep(self._rng.choice((0.0, 0.5, 3.0)))
        self._site.cluster.restart(WORKERS)


ANYWHERE: list[Fault] = [
    Disturbed.kill,
    Disturbed.interrupt,
    Disturbed.pause,
    Disturbed.take_over,
    Disturbed.use_up_memory,
]
FAULTS: dict[str, list[Fault]] = {
    "files": [Disturbed.fill_disk],
    "moto": [Disturbed.close_store],
    "rclone": [Disturbed.close_store],
    "threads": [],
    "workers": [Disturbed.kill_worker, Disturbed.kill_all_workers],
    "cluster": [
        Disturbed.kill_worker,
        Disturbed.kill_all_workers,
        Disturbed.freeze_worker,
        Disturbed.preempt_worker,
        Disturbed.retire_worker,
        Disturbed.add_worker,
        Disturbed.restart_scheduler,
    ],
}


class Chaos:
    """Trials on one site, compared with undisturbed runs."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._seconds: dict[Way, float] = {}
        self._expected: dict[str, str] = {}

    def expected(self, algorithm: str) -> str:
        """Bits of the undisturbed run on threads and files."""
        self.seconds(Way(algorithm, "threads", "files"))
        return self._expected[algorithm]

    def seconds(self, way: Way) -> float:
        """Duration of the undisturbed run, which is checked for its bits."""
        if way not in self._seconds:
            base = way.place == "threads" and way.store == "files"
            expected = "" if base else self.expected(way.algorithm)
            self._site.use(way.store)
            run, begun = Run(self._site, way, "undisturbed"), time.monotonic()
            process = run.start()
            if process.wait(END_SECONDS) != 0:
                raise RuntimeError(f"{way}: {process.text()}")
            self._seconds[way] = time.monotonic() - begun
            if base:
                self._expected[way.algorithm] = run.bits()
            elif run.bits() != expected:
                raise RuntimeError(f"{way} has other bits than on threads")
            run.remove()
        return self._seconds[way]

    def attempt(self, seed: int, places: Sequence[str], stores: Sequence[str]) -> Trial:
        """One run with its faults."""
        rng = random.Random(seed)
        way = Way.draw(rng, places, stores)
        try:
            usual, expected = self.seconds(way), self.expected(way.algorithm)
        except (RuntimeError, TimeoutError, DadagradError) as error:
            return Trial(seed, way, (), 0.0, f"undisturbed: {error}")
        possible = [*ANYWHERE, *FAULTS[way.place], *FAULTS[way.store]]
        faults = [rng.choice(possible) for _ in range(rng.choice((1, 1, 2, 3)))]
        moments = sorted(rng.uniform(0.0, usual) for _ in faults)
        if way.place == "cluster":
            self._site.cluster.have_workers(WORKERS)
        self._site.use(way.store)
        self._site.proxy.act = mishaps(seed, REFUSED)
        run, begun, failure = Run(self._site, way, f"trial-{seed}"), time.monotonic(), ""
        disturbed = Disturbed(self._site, run, rng)
        try:
            for moment, fault in zip(moments, faults, strict=True):
                self._go_on(disturbed, run, begun + moment)
                fault(disturbed)
            self._go_on(disturbed, run, begun + END_SECONDS, complete=True)
            if run.bits() != expected:
                failure = "other bits"
        except (RuntimeError, TimeoutError, DadagradError) as error:
            failure = str(error)
        for process in disturbed.processes:
            process.send(signal.SIGCONT)
            process.end()
        self._site.proxy.act = always("pass")
        if not failure:
            run.remove()
        names = tuple(fault.__name__.replace("_", "-") for fault in faults)
        return Trial(seed, way, names, time.monotonic() - begun, failure)

    def _go_on(
        self, disturbed: Disturbed, run: Run, until: float, *, complete: bool = False
    ) -> None:
        """Keep a run and its cluster going until a moment, or until it is complete."""
        while time.monotonic() < until:
            if run.on_cluster:
                for _ in range(WORKERS - len(self._site.cluster.living)):
                    self._site.cluster.add_worker()
            for process in disturbed.processes:
                if not process.alive:
                    check_end(process)
            disturbed.others = [process for process in disturbed.others if process.alive]
            if not disturbed.process.alive:
                if disturbed.process.wait(1) == 0:
                    return
                disturbed.process = run.start()
            time.sleep(0.02)
        if complete:
            raise TimeoutError(f"no end within {END_SECONDS:g} seconds")


def check_end(process: Process) -> None:
    """Raise `RuntimeError` unless a process ended well, was killed, or says why in one line."""
    code, text = process.wait(1), process.text()
    errors = [line for line in text.splitlines() if line.startswith("dadagrad: error: ")]
    if code != 0 and (code not in ENDS or "Traceback" in text or len(errors) > 1):
        raise RuntimeError(f"exit code {code}: {text[-600:]}")


def work(seeds: Any, options: argparse.Namespace, done: Connection) -> None:
    """Attempt the next of the seeds that are left, until none is."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    random.seed()  # a forked process would draw the ports of the others
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        chaos = Chaos(Site(stack, Path(scratch)))
        while True:
            with seeds.get_lock():
                seed, seeds.value = seeds.value, seeds.value + 1
            if seed >= options.seed + options.trials:
                return
            done.send(chaos.attempt(seed, options.places, options.stores))


def main() -> int:
    options = parse()
    resource.setrlimit(resource.RLIMIT_AS, (1 << 44, resource.getrlimit(resource.RLIMIT_AS)[1]))
    seeds, trials, jobs = multiprocessing.Value("l", options.seed), list[Trial](), []
    readers: list[Connection] = []
    for _ in range(min(options.jobs, options.trials)):
        reader, done = multiprocessing.Pipe(duplex=False)
        jobs.append(multiprocessing.Process(target=work, args=(seeds, options, done)))
        jobs[-1].start()
        done.close()
        readers.append(reader)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the jobs end their trials
    while readers:
        for reader in wait(readers):
            assert isinstance(reader, Connection)
            try:
                trials.append(reader.recv())
            except EOFError:
                readers.remove(reader)
            else:
                print(line_of(trials[-1]), flush=True)
    for job in jobs:
        job.join()
    if trials:
        report(options, sorted(trials, key=lambda trial: trial.seed))
    return int(any(trial.failure for trial in trials) or any(job.exitcode for job in jobs))


def parse() -> argparse.Namespace:
    parser = reporting.parser(__doc__)
    parser.add_argument("--trials", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument(
        "--jobs", type=int, default=1, help="trials at the same time (default: %(default)s)"
    )
    for name, choices in (("places", sorted(PLACES)), ("stores", sorted(STORES))):
        parser.add_argument(
            f"--{name}", nargs="+", choices=choices, default=choices, help="default: all"
        )
    options: argparse.Namespace = parser.parse_args()
    return options


def line_of(trial: Trial) -> str:
    faults, became = ", ".join(trial.faults), trial.failure or "same bits"
    return f"seed {trial.seed} | {trial.way} | {faults} | {trial.seconds:.1f} s | {became}"


def report(options: argparse.Namespace, trials: Sequence[Trial]) -> None:
    """Tables by place, store and fault, on standard output and in the README."""
    same = sum(not trial.failure for trial in trials)
    seconds = [trial.seconds for trial in trials]
    text = (
        f"Seeds {options.seed} to {options.seed + len(trials) - 1}: {same:,} of {len(trials):,} "
        f"runs ended with the bits of an undisturbed run, half of them within "
        f"{statistics.median(seconds):.1f} s, all within {max(seconds):.0f} s.\n\n"
    )
    n_trials = Counter(trial.way for trial in trials)
    n_same = Counter(trial.way for trial in trials if not trial.failure)
    rows = []
    for place, store in itertools.product(PLACES, STORES):
        ways = [Way(algorithm, place, store) for algorithm in ALGORITHMS]
        cells = [f"{n_same[way]} of {n_trials[way]}" if n_trials[way] else "" for way in ways]
        rows.append([f"{place}, {store}", *cells])
    text += reporting.table(["place, store", *ALGORITHMS], rows) + "\n\n"
    struck = Counter(fault for trial in trials for fault in trial.faults)
    survived = Counter(fault for trial in trials if not trial.failure for fault in trial.faults)
    rows = [[fault, f"{struck[fault]}", f"{survived[fault]}"] for fault in sorted(struck)]
    text += reporting.table(["fault", "times", "same bits"], rows)
    reporting.publish("chaos", text, options.markdown)


if __name__ == "__main__":
    sys.exit(main())
