"""Scaling: what a cluster of 1 and 2 workers does here, and what larger ones would do.

Measured: one pass over a corpus of RCV1's size, by the local engine and through Dask with 1 and 2
workers in processes of their own, as it is by default, without a delay, and in larger batches; and
what the messages of such a pass take if nothing is computed.
Modelled: the same pass with more workers, from service times that are measured one by one (the work
on a piece, its bytes, what the coordinator does for a step, what a message costs the coordinator,
the scheduler and a worker, how long it waits on its way) and a network that is assumed. The model
(`cluster_model.py`) is held to the measured runs first, with the processors that all share here,
and that slow each other down; then each machine has its own. The tables say where the coordinator
is saturated, and which settings move that point.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

import numpy as np
import psutil
import reporting
from cluster_model import Forecast, Network, Services, forecast
from dask_processes import dask_cluster
from memory import prepare
from numpy.typing import NDArray

from dadagrad import Dataset, TrainConfig, TrainResult, Where, open_dataset, train
from dadagrad.method import Method, make_method
from dadagrad.synthetic import Corpus
from dadagrad.training.dask_drive import SPENT_TASKS
from dadagrad.training.gradient_sums import GradientSums, RoundSum
from dadagrad.training.placement import worthwhile_tasks
from dadagrad.training.plan import Piece, n_turns
from dadagrad.training.protocol import Gradient, Report, WeightsInState
from dadagrad.training.run import with_batch_size
from dadagrad.training.states import zero_state
from dadagrad.training.touched import pack, unpack
from dadagrad.training.warm_up import warm_up
from dadagrad.training.worker import compute, touched

CLUSTERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FACTORS = (1, 2, 4, 16)
"""Times the batch that is chosen for a cluster."""
CLUSTER_RUNS = ("1 worker", "2 workers")
MESSAGES_ALONE = "2 workers, messages alone"
LOOPBACK = 4e9
"""Bytes a second from one process to another on this machine."""
GOAL = 2.0
STEP_SIZE = 0.2


def main() -> None:
    options = arguments()
    corpus = Corpus(options.rows, options.features, options.nnz)
    data = open_dataset(str(prepare(options.folder, corpus)))
    config = with_batch_size(TrainConfig(step_size=STEP_SIZE), data, on_dask=True)
    batch_size = config.batch_size
    assert isinstance(batch_size, int)
    network = Network(options.latency / 1e3, options.bandwidth * 1e9 / 8)
    here = measure(data, config, options.rounds)
    with dask_cluster(1) as address:
        overhead = message_overhead(address)
    slower = contention(data, config)
    piece = PieceCosts(data, config)
    waiting = time_on_the_way(data, config, here, piece, overhead)
    network = replace(network, latency=network.latency + waiting)
    sections = [
        f"{data.n_rows:,} rows, {data.nnz:,} non-zeros, {data.schema.n_features:,} features; one "
        f"pass in batches of {batch_size:,} rows ({-(-data.n_rows // batch_size)} steps), delay "
        f"{config.delay}, unless it says otherwise:",
        measured_table(data, config, here, piece, overhead, slower, waiting),
        f"In the model of this machine work takes {slower:.2f} times as long as alone, as that on "
        "a piece does while the other processors are at the same. At each of the four hops "
        f"a message waits {1e3 * waiting:.1f} ms inside Dask, whose streams gather what they send "
        "and whose threads take turns: so much that messages alone take no less than measured.",
        f"Modelled: {options.latency:g} ms more from one machine to another, links of "
        f"{options.bandwidth:g} Gbit/s, as many lanes as workers:",
        modelled_table(data, config, piece, overhead, network),
        "Where more workers no longer help (90 % of the best rate is reached), by settings:",
        saturation_table(data, config, piece, overhead, network),
    ]
    reporting.publish("scaling", "\n\n".join(sections), options.markdown)


def arguments() -> argparse.Namespace:
    parser = reporting.parser(__doc__)
    parser.add_argument("--rows", type=int, default=804_414, help="default: %(default)s")
    parser.add_argument("--features", type=int, default=1_950_000, help="default: %(default)s")
    parser.add_argument("--nnz", type=float, default=200.0, help="a row (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--latency", type=float, default=0.25, help="ms, one way")
    parser.add_argument("--bandwidth", type=float, default=10.0, help="Gbit/s of each link")
    return parser.parse_args()


# What runs here.


@dataclass(frozen=True)
class Measured:
    """A pass: median seconds, those of the local engine for the same bits, and the error.

    What has no error has no model either: the messages of a pass, with nothing computed.
    """

    seconds: float
    local: float
    error: float | None


def measure(data: Dataset, config: TrainConfig, rounds: int) -> dict[str, Measured]:
    """Passes by engine, exchange and batch; the rounds take turns."""
    assert isinstance(config.batch_size, int)
    streams = TrainConfig(step_size=STEP_SIZE, exchange="local-steps", streams=2)
    online = replace(config, batch_size=1, delay=0)
    errors: dict[str, float | None] = {}
    taken: dict[str, list[float]] = {}
    with dask_cluster(1) as one, dask_cluster(2) as two:
        local, alone, both = Where(threads=2), Where(scheduler=one), Where(scheduler=two)
        runs = {
            "local, one row a step": (online, local, "local, one row a step"),
            "local": (config, local, "local"),
            "1 worker": (config, alone, "local"),
            "2 workers": (config, both, "local"),
        }
        larger = [replace(config, batch_size=factor * config.batch_size) for factor in FACTORS[1:]]
        others = {", no delay": replace(config, delay=0)} | {of_batches(one): one for one in larger}
        for what, other in others.items():
            for name, where in (("local", local), ("2 workers", both)):
                runs[f"{name}{what}"] = (other, where, f"local{what}")
        runs |= {
            "local, 2 streams": (streams, local, "local, 2 streams"),
            "2 workers, 2 streams": (streams, both, "local, 2 streams"),
        }
        compared = {name: of for name, (_, _, of) in runs.items()} | {MESSAGES_ALONE: "local"}
        for _ in range(rounds + 1):
            for name, (settings, where, _) in runs.items():
                report = train(data.url, settings, where=where).report
                taken.setdefault(name, []).append(report["seconds"])
                errors[name] = report["progressive_error"]
                if name == "2 workers":
                    steps, n_bytes = report["steps"], report["bytes_per_step"]
                    messages = messages_of(data, config, workers=2)
                    at_once = messages * (int(config.delay) + 1)
                    alone_too = messages_alone(two, steps * messages, at_once, n_bytes / messages)
                    taken.setdefault(MESSAGES_ALONE, []).append(alone_too)
    errors[MESSAGES_ALONE] = None
    median = {name: statistics.median(seconds[1:]) for name, seconds in taken.items()}
    return {
        name: Measured(seconds, median[compared[name]], errors[name])
        for name, seconds in median.items()
    }


def of_batches(config: TrainConfig) -> str:
    """What tells runs in larger batches from those that are otherwise alike."""
    return f", batches of {config.batch_size:,}"


def messages_of(data: Dataset, config: TrainConfig, workers: int) -> int:
    """How many messages a step of `config` takes on so many workers."""
    assert isinstance(config.batch_size, int)
    turns = turns_of(config)
    entries = config.batch_size * data.nnz / data.n_rows
    return min(max(workers // turns, 1), config.lanes // turns, worthwhile_tasks(entries))


def turns_of(config: TrainConfig) -> int:
    """In how many turns the lanes give rows to batches."""
    assert isinstance(config.delay, int)
    return n_turns(config.lanes, config.delay)


def messages_alone(address: str, messages: int, at_once: int, n_bytes: float) -> float:
    """Seconds that so many messages take, some under way at a time, and nothing else.

    `n_bytes` are those of a message, half of them on the way there.
    """
    from distributed import Client, as_completed

    payload = np.zeros(int(n_bytes / 2 / 4), np.float32)
    with Client(address, set_as_default=False) as client:
        client.scheduler_comm.interval = 0.0  # as for a run
        workers = list(client.nthreads())
        arriving = as_completed(with_results=True, loop=client.loop)
        spent: list[Any] = []
        begun = time.perf_counter()
        for number in range(messages + at_once):
            if number >= at_once:
                spent.append(next(arriving))
            if number < messages:
                worker = workers[number % len(workers)]
                arriving.add(client.submit(echo, payload, pure=False, workers=[worker]))
            if len(spent) > SPENT_TASKS:
                spent.clear()
        return time.perf_counter() - begun


# What a message costs, whatever it is about.


@dataclass(frozen=True)
class Line:
    """Seconds of processor time of a message: some for each, and some for each byte."""

    fixed: float
    per_byte: float

    def at(self, n_bytes: float) -> float:
        return max(self.fixed + self.per_byte * n_bytes, 0.0)


@dataclass(frozen=True)
class Overhead:
    """Of one message and its result, beside the work: bytes are those of both."""

    client: Line
    scheduler: Line
    worker: Line

    def of(self, down: float, up: float) -> Services:
        """What a message of so many bytes takes that brings as many back, and nothing else."""
        handling, n_bytes = self.client.at(down + up) / 2, down + up
        schedule, work = self.scheduler.at(n_bytes), self.worker.at(n_bytes)
        return Services(handling, handling, schedule, work, 0.0, down, up)


def echo(payload: NDArray[np.float32]) -> NDArray[np.float32]:
    """A task without work: what came goes back."""
    return payload


def message_overhead(address: str, messages: int = 300) -> Overhead:
    """From messages that go back and forth one by one, of two sizes."""
    from distributed import Client

    sizes = (1_000, 500_000)  # numbers of 4 bytes
    costs: list[tuple[float, float, float]] = []
    with Client(address, set_as_default=False) as client:
        pids = [client.run_on_scheduler(os.getpid), *client.run(os.getpid).values()]
        for size in sizes:
            payload = np.zeros(size, np.float32)
            for _ in range(20):
                client.submit(echo, payload, pure=False).result()
            before = times(pids)
            for _ in range(messages):
                client.submit(echo, payload, pure=False).result()
            spent = [(now - then) / messages for now, then in zip(times(pids), before, strict=True)]
            costs.append((spent[0], spent[1], spent[2]))
    small, large = costs
    lines = [
        Line(first, max(second - first, 0.0) / (8 * (sizes[1] - sizes[0])))
        for first, second in zip(small, large, strict=True)
    ]
    return Overhead(*lines)


def times(pids: list[int]) -> list[float]:
    """Processor seconds so far: of this process, and of others."""
    spent = [psutil.Process(pid).cpu_times() for pid in pids]
    return [time.process_time(), *(each.user + each.system for each in spent)]


# What processors do to each other that share a core, a cache, and the way to memory.


def contention(data: Dataset, config: TrainConfig) -> float:
    """How many times as long work takes while every other processor is at the same."""
    count = os.cpu_count() or 1
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        for task in [pool.submit(seconds_of_a_piece, data.url, config) for _ in range(count)]:
            task.result()  # all have loaded what they need
        alone = pool.submit(seconds_of_a_piece, data.url, config).result()
        together = [pool.submit(seconds_of_a_piece, data.url, config) for _ in range(count)]
        return statistics.mean(task.result() for task in together) / alone


def seconds_of_a_piece(url: str, config: TrainConfig, seconds: float = 3.0) -> float:
    """Processor seconds of a step's share of rows, done over and over for some `seconds`."""
    assert isinstance(config.batch_size, int)
    data = open_dataset(url)
    method = make_method(config, data.schema, config.batch_size)
    warm_up(method, lambda line: None)
    state, rows = zero_state(method), data.read(0)
    n_rows = config.batch_size * turns_of(config) // config.lanes
    piece = Piece(0, 0, 0, min(n_rows, rows.n_rows), True)
    given = WeightsInState(method, state, rows.vocabulary, state.intercepts_now(method))
    count, spent, end = 0, time.thread_time(), time.perf_counter() + seconds
    while time.perf_counter() < end:
        compute(method, rows, piece, given, url)
        count += 1
    return (time.thread_time() - spent) / count


def time_on_the_way(
    data: Dataset,
    config: TrainConfig,
    here: dict[str, Measured],
    piece: PieceCosts,
    overhead: Overhead,
) -> float:
    """Seconds at each hop with which, in the model, messages alone take what they took."""
    services, messages = piece.services(config, 2, overhead)
    alone = overhead.of(services.down, services.up)
    steps = -(-data.n_rows // int(config.batch_size))
    least, most = 0.0, here[MESSAGES_ALONE].seconds / steps
    for _ in range(30):
        middle = (least + most) / 2
        if seconds_here(alone, config, 2, messages, steps, middle) < here[MESSAGES_ALONE].seconds:
            least = middle
        else:
            most = middle
    return least


def seconds_here(
    services: Services,
    config: TrainConfig,
    workers: int,
    messages: int,
    steps: int,
    waiting: float,
) -> float:
    """Of a pass on this machine, in the model."""
    made = forecast(
        services, Network(waiting, LOOPBACK), workers, messages, int(config.delay),
        turns_of(config), cores=os.cpu_count(), steps=steps,
    )  # fmt: skip
    return made.seconds * steps


# What the work costs, and what the coordinator does for a step.


def begun_run(data: Dataset, config: TrainConfig) -> TrainResult:
    """What an eighth of a pass comes to."""
    stops = iter([signal.SIGINT])  # a second one would be an interrupt

    def stop(report: Report) -> None:
        if report.tally.examples >= data.n_rows // 8:
            for stop in stops:
                signal.raise_signal(stop)

    return train(data, config, where=Where(threads=2), progress=stop)


class PieceCosts:
    """Measures pieces and steps one by one, in this process, on the state of a run.

    It is that of an eighth of a pass: about as many rows have a gradient there as in the mean of
    the pass. Of a trained model few have.
    """

    SAMPLE = 8
    """Partitions that pieces are cut from."""

    def __init__(self, data: Dataset, config: TrainConfig) -> None:
        self._data = data
        self._state = begun_run(data, config).coordinator.state
        begun = time.thread_time()
        self._rows = [data.read(n) for n in range(min(self.SAMPLE, len(data.partitions)))]
        vocabularies = [pack(rows.vocabulary) for rows in self._rows]
        read = sum(rows.nnz for rows in self._rows)
        self._seconds_to_read = (time.thread_time() - begun) / read
        begun = time.thread_time()
        for packed in vocabularies:
            unpack(packed, np.int64)
        self._seconds_to_unpack = (time.thread_time() - begun) / len(self._rows)
        self._bytes_of_vocabulary = statistics.mean(packed.nbytes for packed in vocabularies)
        self._known: dict[tuple[int, int, int], Services] = {}

    def least_lanes(self, config: TrainConfig) -> int:
        """So many that no piece has more rows than a partition."""
        assert isinstance(config.batch_size, int)
        for_a_turn = -(-config.batch_size // min(rows.n_rows for rows in self._rows))
        return for_a_turn * turns_of(config)

    def services(
        self, config: TrainConfig, workers: int, overhead: Overhead
    ) -> tuple[Services, int]:
        """Of a step of `config` on `workers` workers, and how many messages it takes."""
        assert isinstance(config.batch_size, int)
        messages = messages_of(self._data, config, workers)
        key = (config.batch_size, config.lanes, int(config.delay))
        if key not in self._known:
            self._known[key] = self._measure(config)
        own = self._known[key]
        lanes = config.lanes // turns_of(config)
        share = lanes / messages  # pieces of a message
        sent = overhead.of(share * own.down, share * own.up)
        # Some of the messages that open partitions come with each: those of the lanes of a turn
        # are needed together, and each worker reads its own in one go.
        opens = len(self._data.partitions) * config.batch_size / self._data.n_rows / lanes
        opening = overhead.of(0.0, share * self._bytes_of_vocabulary)
        return Services(
            send=sent.send + share * own.send + opens * opening.send,
            receive=sent.receive
            + share * own.receive
            + opens * (opening.receive + share * self._seconds_to_unpack),
            schedule=sent.schedule + opens * opening.schedule,
            work=sent.work + share * own.work + opens * opening.work,
            step=own.step,
            down=sent.down,
            up=sent.up + opens * opening.up,
        ), messages

    def _measure(self, config: TrainConfig, steps: int = 3) -> Services:
        """Of one piece of a step, without what messages cost."""
        assert isinstance(config.batch_size, int)
        method = make_method(config, self._data.schema, config.batch_size)
        warm_up(method, lambda line: None)
        state = self._state.copy() if config.update == "dual-averaging" else zero_state(method)
        sums, done = GradientSums(method), deque[RoundSum](maxlen=method.delay)
        steps += 1 + method.delay
        measured = [self._step(method, state, sums, done, step) for step in range(steps)]
        return Services(*np.median(np.array(measured[1 + method.delay :]), axis=0))

    def _step(
        self, method: Method, state: Any, sums: GradientSums, done: deque[RoundSum], step: int
    ) -> list[float]:
        """A piece's costs and a step's; `done` are the rounds that it has not seen."""
        config = method.config
        assert isinstance(config.batch_size, int)
        lanes = config.lanes // turns_of(config)
        n_rows = max(config.batch_size // lanes, 1)
        intercept = state.intercepts_now(method)
        send = receive = work = down = up = 0.0
        vocabularies, gradients = [], []
        for lane in range(lanes):
            rows = self._rows[lane % len(self._rows)]
            start = (step * lanes + lane) * n_rows % max(rows.n_rows - n_rows, 1)
            piece = Piece(lane, 0, start, start + n_rows, False)
            part = rows.slice(start, start + n_rows)
            positions = touched(rows, piece)
            given = WeightsInState(method, state, rows.vocabulary, intercept)
            begun = time.thread_time()
            weights = given.at(positions)
            taken = time.thread_time()
            result = compute(method, rows, piece, weights, "here")
            assert isinstance(result, Gradient)
            # The next piece's features are announced with the result.
            announced = touched(rows, piece)
            packed = [pack(some) for some in (result.positions, announced) if some is not None]
            worked = time.thread_time()
            for each in packed:
                unpack(each, np.int32)
            receive += time.thread_time() - worked
            work += worked - taken + part.nnz * self._seconds_to_read
            send += taken - begun
            down += weights.weights.nbytes
            up += result.gradient.nbytes + sum(each.nbytes for each in packed)
            vocabularies.append(rows.vocabulary)
            gradients.append(result)
        begun = time.thread_time()
        total = sums.total(vocabularies, gradients)
        made = RoundSum(total, tuple(gradient.tally for gradient in gradients))
        state.step(method, sums.delayed(made, done) if method.delay else total, made.importance)
        stepped = time.thread_time() - begun
        done.append(made)
        each = np.array([send, receive, 0.0, work, 0.0, down, up]) / lanes
        return [*each[:4], stepped, *each[5:]]


# Tables.


def measured_table(
    data: Dataset,
    config: TrainConfig,
    here: dict[str, Measured],
    piece: PieceCosts,
    overhead: Overhead,
    slower: float,
    waiting: float,
) -> str:
    """The runs of this machine, and what the model makes of those on workers."""
    assert isinstance(config.batch_size, int)
    steps = -(-data.n_rows // config.batch_size)
    lines, held = [], []
    for name, found in here.items():
        modelled = ""
        if name in (*CLUSTER_RUNS, MESSAGES_ALONE):
            workers = int(name.split()[0])
            services, messages = piece.services(config, workers, overhead)
            if name == MESSAGES_ALONE:
                services = overhead.of(services.down, services.up)
            else:
                services = services.slowed(slower)
            seconds = seconds_here(services, config, workers, messages, steps, waiting)
            modelled = f"{seconds:.2f}"
            if name in CLUSTER_RUNS:
                held.append(f"{seconds / found.seconds:.2f} with {name}")
        rate = "" if found.error is None else f"{data.nnz / found.seconds / 1e6:.0f}"
        ratio = f"{found.seconds / found.local:.2f}"
        error = "" if found.error is None else f"{found.error:.4f}"
        lines.append([name, f"{found.seconds:.2f}", rate, ratio, error, modelled])
    header = ["", "s", "M nnz/s", "x local, same bits", "progressive error", "modelled, s"]
    reached = {
        name: found.seconds <= GOAL * found.local
        for name, found in here.items()
        if name.startswith("2 workers") and found.error is not None
    }
    goal = f"Goal: 2 workers in at most {GOAL:g} times the local engine's time for the same bits: "
    goal += "; ".join(
        f"{what} by {' and '.join(names)}"
        for what, names in (
            ("reached", [name for name in reached if reached[name]]),
            ("not reached", [name for name in reached if not reached[name]]),
        )
        if names
    )
    goal += f". {MESSAGES_ALONE}: tasks that hand back what they get, as much as a step moves."
    shares = f"Modelled over measured time: {' and '.join(held)}."
    return f"{reporting.table(header, lines)}\n\n{goal}\n\n{shares}"


def modelled_table(
    data: Dataset, config: TrainConfig, piece: PieceCosts, overhead: Overhead, network: Network
) -> str:
    """The same pass with more workers."""
    lines = []
    for workers in CLUSTERS:
        made, services, messages = one(data, config, piece, overhead, network, workers)
        steps = -(-data.n_rows // int(config.batch_size))
        lines.append(
            [
                f"{workers}",
                f"{messages}",
                f"{1e3 * made.seconds:.1f}",
                f"{made.seconds * steps:.2f}",
                f"{messages * (services.down + services.up) / 1e6:.1f}",
                f"{1e3 * (services.step + messages * (services.send + services.receive)):.1f}",
                f"{made.coordinator:.0%}",
                f"{made.workers:.0%}",
                made.bottleneck,
            ]
        )
    header = ["workers", "messages a step", "ms a step", "s a pass", "MB a step"]
    header += ["coordinator, ms a step", "coordinator busy", "workers busy", "bottleneck"]
    return reporting.table(header, lines)


def one(
    data: Dataset,
    config: TrainConfig,
    piece: PieceCosts,
    overhead: Overhead,
    network: Network,
    workers: int,
) -> tuple[Forecast, Services, int]:
    """The forecast for a number of workers, each of which gets a lane."""
    config = replace(config, lanes=max(config.lanes, workers, piece.least_lanes(config)))
    services, messages = piece.services(config, workers, overhead)
    delay, turns = int(config.delay), turns_of(config)
    return forecast(services, network, workers, messages, delay, turns), services, messages


def saturation_table(
    data: Dataset, config: TrainConfig, piece: PieceCosts, overhead: Overhead, network: Network
) -> str:
    """For each setting the workers beyond which the rate hardly grows."""
    assert isinstance(config.batch_size, int)
    settings: list[tuple[str, TrainConfig]] = []
    for factor in FACTORS:
        for delay in (0, 1, 3):
            batched = replace(config, batch_size=factor * config.batch_size, delay=delay)
            settings.append((f"{of_batches(batched)[2:]}, delay {delay}", batched))
    lines = []
    for name, batched in settings:
        forecasts = [
            one(data, batched, piece, overhead, network, workers)[0] for workers in CLUSTERS
        ]
        best = min(made.seconds for made in forecasts)
        enough, made = next(
            (workers, made)
            for workers, made in zip(CLUSTERS, forecasts, strict=True)
            if 0.9 * made.seconds <= best
        )
        entries = int(batched.batch_size) * data.nnz / data.n_rows
        rate = entries / made.seconds / 1e6
        lines.append([name, f"{enough}", f"{rate:.0f}", f"{made.coordinator:.0%}", made.bottleneck])
    header = ["", "workers", "M nnz/s there", "coordinator busy", "bottleneck"]
    return reporting.table(header, lines)


if __name__ == "__main__":
    main()
