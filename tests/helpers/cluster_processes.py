"""Clusters of real processes, to be killed, stopped and started again by tests.

Most of the start of `dask scheduler`, `dask worker` and `dadagrad` is spent on imports, so a
`Nursery` does these once and forks a process for each command.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from helpers.processes import START_SECONDS, free_port, wait_for_port, wait_until

HERE = Path(__file__).parent

# Reads one command a line, forks, and answers with the number of the process. The parent starts
# no threads and opens no connections, so that forking is sound.
NURSERY = """
import contextlib, ctypes, json, os, resource, signal, sys

import distributed.cli.dask_scheduler, distributed.cli.dask_worker
import dask.__main__, dask.cli
import dadagrad.cli, dadagrad.cli.train, dadagrad.training.run
import dadagrad.training.engines.dask.driver
import dadagrad.training.engines.dask.batches, dadagrad.training.engines.dask.streams.tasks
import dadagrad.training.engines.warm_up
import dadagrad.data.zarr.dataset, dadagrad.training.checkpoints.snapshot
import dadagrad.training.engines.threads


def child(order):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # as the parent ends
    os.setsid()
    for descriptor, path in ((1, order["out"]), (2, order["log"])):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(file, descriptor)
        os.close(file)
    os.environ.update(order["environment"])
    import dask
    dask.config.refresh()
    os.close(0)
    os.open(os.devnull, os.O_RDONLY)
    sys.argv = order["command"]
    if order["tool"] == "dask":
        from distributed.config import initialize_logging
        initialize_logging(dask.config.config)
        from dask.__main__ import main
    else:
        from dadagrad.cli import main
    main()


signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("ready", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    pid = os.fork()
    if pid == 0:
        number, code = os.getpid(), 0
        try:
            child(order)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except KeyboardInterrupt:  # before the command began
            code = 130
        except BaseException:
            import traceback
            traceback.print_exc()
            code = 1
        for stream in sys.stdout, sys.stderr:
            with contextlib.suppress(OSError):  # the disk is full
                stream.flush()
        if os.getpid() == number:  # a command of little memory runs in a child
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))  # its disk may be full
            with open(order["code"], "w") as file:
                file.write(str(code))
        os._exit(code)
    print(pid, flush=True)
"""


# Children find the kernels compiled: each would have to load them.
WARM = """
import obstore.store
from dadagrad.config import TrainConfig
from dadagrad.problem import make_problem
from dadagrad.data.synthetic import Corpus
from dadagrad.training.engines.warm_up import warm_up

schema = Corpus(8, n_features=64, nnz_per_row=4).dataset().schema
warm_up(make_problem(TrainConfig(batch_size=16), schema, 16), lambda line: None)
"""


class Process:
    """A process that was started for a test; what it writes is in the files `out` and `log`."""

    def __init__(self, pid, out, log, code):
        self.pid, self.out, self.log, self._code = pid, out, log, code
        self._process = psutil.Process(pid) if psutil.pid_exists(pid) else None

    @property
    def alive(self):
        with contextlib.suppress(psutil.NoSuchProcess):
            if self._process is not None and self._process.status() != psutil.STATUS_ZOMBIE:
                return True
        self._process = None
        return False

    def send(self, *numbers):
        """Send signals; nothing happens where the process has ended."""
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                if self.alive:
                    os.kill(self.pid, number)

    def kill(self):
        """End it at once and without warning, and wait until it has gone."""
        self.send(signal.SIGKILL)
        self.wait(10)

    def end(self):
        """Ask it to end, insist after a while; its children end with it."""
        children = self.children()
        self.send(signal.SIGCONT, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            self.wait(3)
        self.send(signal.SIGKILL)
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()

    def children(self):
        with contextlib.suppress(psutil.NoSuchProcess):
            return self._process.children(recursive=True) if self._process else []
        return []

    def wait(self, seconds):
        """Until it has ended: its exit code, None where it was killed."""
        wait_until(lambda: not self.alive, seconds, f"process {self.pid} to end")
        return int(self._code.read_text() or 1) if self._code.exists() else None

    def text(self):
        return "".join(path.read_text() for path in (self.out, self.log) if path.exists())


class Nursery:
    """Starts processes in moments, by forking; a context manager that ends them all.

    `folder` takes what the processes write, and their scratch files; `environment` is added to
    that of every process. `prelude` is Python that runs once, before any is forked.
    """

    def __init__(self, folder, environment=None, prelude=""):
        self.folder = folder
        self._prelude = prelude
        self._environment = dict(environment or {})
        self._started = []

    def __enter__(self):
        # Tasks may be of the tests' own making.
        paths = (HERE.parent, HERE.parent / "faults", os.environ.get("PYTHONPATH", ""))
        # Its output is read line by line; all but the answers goes elsewhere.
        self._server = subprocess.Popen(
            [sys.executable, "-c", self._prelude + NURSERY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the tests alone
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))},
        )
        assert self._answer() == "ready"
        return self

    def __exit__(self, *details):
        for process in self._started:
            process.send(signal.SIGCONT, signal.SIGTERM)
        for process in self._started:
            process.end()
        self._server.kill()  # nothing is left for it to do
        self._server.communicate()

    def _answer(self):
        return self._server.stdout.readline().strip()

    def start(self, tool, *arguments, environment=None):
        """Start ``tool ARGUMENTS``; `tool` is "dask" or "dadagrad"."""
        name = f"{len(self._started):03d}-{tool}-{arguments[0]}"
        files = {kind: self.folder / f"{name}.{kind}" for kind in ("out", "log", "code")}
        order = {
            "tool": tool,
            "command": [tool, *arguments],
            "environment": self._environment | dict(environment or {}),
            **{kind: str(path) for kind, path in files.items()},
        }
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        process = Process(int(self._answer()), **files)
        self._started.append(process)
        return process


class Cluster:
    """A scheduler and workers, each a process of its own on the loopback interface.

    The `address` of the scheduler stays the same after it was started again. `workers` are in the
    order in which they were started, also those that have ended.
    """

    def __init__(self, nursery, workers=0, environment=None):
        self._nursery = nursery
        self._environment = dict(environment or {})
        self._port = free_port()
        self.address = f"tcp://127.0.0.1:{self._port}"
        self.workers = []
        self.start_scheduler()
        for _ in range(workers):
            self.add_worker()
        self.wait_for_workers(workers)

    def start_scheduler(self):
        options = ("--host", "127.0.0.1", "--port", str(self._port), "--no-dashboard")
        self.scheduler = self._start("scheduler", *options)
        wait_for_port(self._port)

    def add_worker(self, *options, nanny=False):
        """Start one more worker of one thread; it need not have joined when this returns."""
        scratch = self._nursery.folder / "scratch"
        worker = self._start(
            *("worker", self.address, "--nthreads", "1", "--no-dashboard"),
            *("--host", "127.0.0.1", "--name", f"worker-{len(self.workers)}"),
            *("--nanny" if nanny else "--no-nanny", "--local-directory", str(scratch)),
            *options,
        )
        self.workers.append(worker)
        return worker

    @property
    def living(self):
        return [worker for worker in self.workers if worker.alive]

    def wait_for_workers(self, n_workers, seconds=START_SECONDS):
        """Until the scheduler knows as many running workers, no more and no fewer."""
        with self.client() as client:
            wait_until(lambda: len(client.nthreads()) == n_workers, seconds, f"{n_workers} workers")

    def restart(self, n_workers):
        """Start everything again, at the same address; workers do not outlive a scheduler."""
        for process in (self.scheduler, *self.workers):
            process.kill()
        self.start_scheduler()
        self.have_workers(n_workers)

    def have_workers(self, n_workers):
        """Start or end workers until there are so many; those that stand still go on."""
        for worker in self.living:
            worker.send(signal.SIGCONT)
        for worker in self.living[n_workers:]:
            worker.kill()
        for _ in range(n_workers - len(self.living)):
            self.add_worker()
        try:
            self.wait_for_workers(n_workers, 10)
        except TimeoutError:  # one that was told to end, and has not managed to
            self.restart(n_workers)

    def client(self):
        from distributed import Client

        return Client(self.address, set_as_default=False, timeout=START_SECONDS)

    def names(self):
        """The address of each worker that the scheduler knows, by its name."""
        with self.client() as client:
            workers = client.scheduler_info(n_workers=-1)["workers"]
        return {str(info["name"]): address for address, info in workers.items()}

    def by_address(self, address):
        """The process of the worker at an address."""
        (name,) = (name for name, found in self.names().items() if found == address)
        return self.workers[int(name.removeprefix("worker-"))]

    def end(self):
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.end()

    def __enter__(self):
        return self

    def __exit__(self, *details):
        self.end()

    def _start(self, *arguments):
        return self._nursery.start("dask", *arguments, environment=self._environment)
