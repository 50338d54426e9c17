"""The Dask engine: workers of a cluster carry out the coordinator's instructions.

The coordinator stays in this process. A task names data and holds at most the weights of one
vocabulary; nothing that matters lives on a worker. When one is lost, Dask runs its tasks again
elsewhere, and the bits are the same.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dadagrad.data.dataset import Dataset, MemoryDataset
from dadagrad.errors import DadagradError, InputError, TrainingError
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.dask_tasks import (
    Job,
    Touched,
    compute_piece,
    forget,
    open_partition,
    prepare,
    same,
)
from dadagrad.training.protocol import (
    Close,
    Compute,
    Computed,
    Event,
    Finish,
    Given,
    Instruction,
    Open,
    Opened,
    Report,
    Save,
    WeightsInState,
)
from dadagrad.training.watch import Watcher

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 15
WORKER_SECONDS = 60
RETRIES = 2


class DaskEngine:
    """Runs a coordinator to its end on a Dask cluster.

    Parameters
    ----------
    data : Dataset
        Must be at a URL that the workers can read.
    workers : int or None
        Processes of a cluster that is started for the run and ends with it.
    scheduler : str or None
        Address of a running scheduler.
    """

    def __init__(self, data: Dataset, *, workers: int | None, scheduler: str | None) -> None:
        if isinstance(data, MemoryDataset) or data.url.startswith("memory://"):
            raise InputError(
                "data in memory cannot be read by the workers of a cluster; write it with "
                "`dadagrad ingest`, or train without workers"
            )
        self._data = data
        self._workers = workers
        self._scheduler = scheduler

    def run(self, coordinator: Coordinator, watcher: Watcher) -> bool:
        """Drive `coordinator` until it finishes; True if the run is complete.

        Raises
        ------
        InputError
            No scheduler answers at the address, or it has no workers.
        TrainingError
            The cluster cannot carry a task out.
        """
        import dask.config
        import distributed  # noqa: F401 (first: it adds its defaults to the configuration)

        # A task may hold the weights of a whole vocabulary. Dask's advice against large graphs is
        # for those that should have been data: these change with every step.
        with (
            dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TiB"}),
            self._client() as client,
        ):
            return _Drive(client, self._data, coordinator, watcher).run()

    @contextmanager
    def _client(self) -> Iterator[Any]:
        """A client of the cluster, with at least one worker there."""
        from distributed import Client, LocalCluster

        if self._scheduler is None:
            with (
                LocalCluster(
                    n_workers=self._workers,
                    threads_per_worker=1,
                    # No dashboard, and any free port: 8787 may be taken, which Dask warns about.
                    dashboard_address=None,
                    scheduler_kwargs={"dashboard_address": ":0"},
                    silence_logs=logging.ERROR,
                    preload=["dadagrad.training.dask_tasks"],
                ) as cluster,
                Client(cluster, set_as_default=False) as client,
            ):
                client.wait_for_workers(self._workers, timeout=WORKER_SECONDS)
                yield client
            return
        try:
            client = Client(self._scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise InputError(
                f"no Dask scheduler answers at {self._scheduler} ({error}); start one with "
                "`dask scheduler`, or give --workers to start a cluster here"
            ) from error
        with client:
            try:
                client.wait_for_workers(1, timeout=WORKER_SECONDS)
            except TimeoutError as error:
                raise InputError(
                    f"the scheduler at {self._scheduler} has had no worker for "
                    f"{WORKER_SECONDS} seconds; start some with `dask worker {self._scheduler}`"
                ) from error
            yield client


class _Drive:
    """One run on one client."""

    def __init__(
        self, client: Any, data: Dataset, coordinator: Coordinator, watcher: Watcher
    ) -> None:
        from distributed import as_completed

        self._client = client
        self._coordinator = coordinator
        self._watcher = watcher
        self._run = uuid.uuid4().hex
        self._count = 0
        self._running: dict[str, Callable[[Any], Event]] = {}
        self._completed = as_completed(with_results=True, raise_errors=False, loop=client.loop)
        # Where a partition was read last: that worker may still have it, in the next pass too.
        self._readers: dict[int, str] = {}
        # What the next rows of an open partition touch: only those weights are sent.
        self._touched: dict[int, Touched | None] = {}
        config = coordinator.method.config
        assert isinstance(config.batch_size, int)
        # A share of a batch, and one row more: shares differ by as much.
        self._rows_ahead = config.batch_size // config.lanes + 2
        self._fingerprint = data.fingerprint
        # Sent once. As the result of a task, it is made again should its worker be lost.
        job = Job(data, self._fingerprint, coordinator.method)
        self._job = client.submit(same, job, key=f"dadagrad-job-{self._run}", pure=False)

    def run(self) -> bool:
        """Drive the coordinator until it finishes; True if the run is complete."""
        try:
            self._prepare()
            self._watcher.begin()
            instructions = self._coordinator.start()
            while True:
                for instruction in instructions:
                    if isinstance(instruction, Finish):
                        return instruction.complete
                    self._carry_out(instruction)
                instructions = self._coordinator.handle(self._next_event())
        finally:
            self._clean_up()

    def _prepare(self) -> None:
        """Have the workers load and compile what they need, before the clock runs."""
        answers = self._client.run(prepare, self._coordinator.method, on_error="return")
        errors = [answer for answer in answers.values() if isinstance(answer, Exception)]
        if errors and len(errors) == len(answers):
            raise InputError(
                f"the workers of the cluster cannot load dadagrad ({errors[0]}); install the "
                "release there that runs here"
            ) from errors[0]

    def _next_event(self) -> Event:
        from distributed import KilledWorker

        request = self._watcher.request()
        if request is not None:
            return request
        future, result = next(self._completed)
        as_event = self._running.pop(future.key)
        if future.status == "error":
            _, error, _ = result
            if isinstance(error, KilledWorker):
                raise TrainingError(
                    f"the workers of the cluster keep dying at the same task ({error}); they "
                    "probably run out of memory: give them more, or make smaller partitions"
                ) from error
            raise error
        if future.status != "finished":
            raise TrainingError(
                f"the cluster gave up a task ({future.status}); its scheduler was probably "
                "restarted. Go on from the last checkpoint with `dadagrad resume`"
            )
        if isinstance(result, DadagradError):
            raise result
        return as_event(result)

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Open(visit, partition):

                def opened(result: Any) -> Event:
                    vocabulary, self._readers[partition], self._touched[visit] = result
                    return Opened(visit, vocabulary)

                self._submit(opened, partition, open_partition, partition, self._rows_ahead)
            case Compute(task, piece, given):

                def computed(result: Any) -> Event:
                    done, self._touched[piece.visit] = result
                    return Computed(task, done)

                if isinstance(given, WeightsInState):
                    touched = self._touched[piece.visit]
                    covered = touched is not None and touched.covers(piece)
                    sent: Given = given.at(touched.positions if touched and covered else None)
                else:
                    sent = given
                self._submit(
                    computed, piece.partition, compute_piece, piece, sent, self._rows_ahead
                )
            case Close(visit):
                # Workers keep what they read last; nothing there has to be let go.
                del self._touched[visit]
            case Report() | Save():
                self._watcher.handle(instruction)

    def _submit(
        self,
        as_event: Callable[[Any], Event],
        partition: int,
        function: Callable[..., Any],
        *arguments: Any,
    ) -> None:
        self._count += 1
        key = f"dadagrad-{function.__name__}-{self._run}-{self._count}"
        self._running[key] = as_event
        reader = self._readers.get(partition)
        future = self._client.submit(
            function,
            self._job,
            *arguments,
            key=key,
            pure=False,
            retries=RETRIES,
            workers=None if reader is None else [reader],
            allow_other_workers=reader is not None,
        )
        self._completed.add(future)

    def _clean_up(self) -> None:
        """Leave nothing on workers that outlive the run; a cluster that is gone has nothing."""
        try:
            self._client.cancel([self._job])
            self._client.run(forget, self._fingerprint, on_error="ignore")
        except (OSError, TimeoutError, RuntimeError) as error:
            logger.debug("could not clean up the workers: %s", error)
