"""Latency: what ``delay`` hides of it, and what that costs in quality.

First, steps a second on a Dask cluster of two worker processes that are 20 ms away: everything that
they and the scheduler or the client send to each other passes a relay that holds it for 20 ms,
each way, and lets what comes after it follow at the same distance. A step's task goes there
(20 ms), the news that it is done comes back (20 ms), its result is asked for and comes (40 ms).
Without latency the relay passes everything on at once. Steps are those of ``"auto"``, and larger
ones. Configurations take turns, and the fastest of the rounds counts: what else the machine does
only ever makes one slower.

Second, test errors on IMDB after one pass with the batches that ``"auto"`` finds for a cluster,
over seeds 0 to 4 of the order of rows. The bits of a run do not depend on where it runs, so that
this takes threads; one run is made on a cluster of two processes as well, and must give the same.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import reporting
from dask_processes import (
    ENVIRONMENT,
    START_SECONDS,
    dask_command,
    dask_scheduler,
    free_port,
    running,
)
from memory import prepare
from quality import SEEDS, prepare_reviews, score

from dadagrad import TrainConfig, Where, open_dataset, train
from dadagrad.synthetic import Corpus
from dadagrad.training.run import auto_batch_size

SECONDS = 0.02
DELAYS = (0, 1, 2, 3)
QUALITY_DELAYS = (0, 1, 2, 4, 8)
GOAL = 0.8
CHUNK = 1 << 20


def main() -> None:
    parser = reporting.parser(__doc__, data="imdb")
    parser.add_argument("--rows", type=int, default=400_000, help="default: %(default)s")
    parser.add_argument("--features", type=int, default=2_000_000)
    parser.add_argument("--large-batch", type=int, default=40_000, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    options = parser.parse_args()
    text = "\n\n".join(section(options) for section in (rates, errors))
    reporting.publish("latency", text, options.markdown)


# Step rates


def rates(options: argparse.Namespace) -> str:
    """Steps a second with each delay, near and far."""
    data = str(prepare(options.folder, Corpus(options.rows, options.features, 66.0)))
    dataset = open_dataset(data)
    auto = auto_batch_size(dataset, on_dask=True)
    found: dict[tuple[int, float, int], list[float]] = {}
    moved: dict[int, float] = {}
    for seconds in (0.0, SECONDS):
        with far_cluster(seconds) as where:
            for batch_size in (auto, options.large_batch):
                passes = max(1, round(60 * batch_size / options.rows))
                for _ in range(options.rounds):
                    for delay in DELAYS:
                        config = TrainConfig(
                            step_size=0.2, batch_size=batch_size, passes=passes, delay=delay
                        )
                        rate, moved[batch_size] = measure(data, config, where)
                        found.setdefault((batch_size, seconds, delay), []).append(rate)
    best = {key: max(rounds) for key, rounds in found.items()}
    return "\n\n".join(
        rate_table(batch_size, dataset.nnz / dataset.n_rows, moved[batch_size], best)
        for batch_size in (auto, options.large_batch)
    )


def measure(data: str, config: TrainConfig, where: Where) -> tuple[float, float]:
    """Steps a second, from the first to the last, and bytes of weights and gradients a step."""
    times: list[float] = []
    report = train(
        data, config, where=where, progress=lambda report: times.append(time.perf_counter())
    ).report
    return (len(times) - 1) / (times[-1] - times[0]), report["bytes_per_step"]


def rate_table(
    batch_size: int, nnz_per_row: float, moved: float, best: dict[tuple[int, float, int], float]
) -> str:
    def near(delay: int) -> float:
        return best[batch_size, 0.0, delay]

    def far(delay: int) -> float:
        return best[batch_size, SECONDS, delay]

    lines = [
        [
            f"{delay}",
            f"{near(delay):.1f}",
            f"{far(delay):.1f}",
            f"{far(delay) / near(delay):.2f}",
            f"{far(delay) / near(0):.2f}",
        ]
        for delay in DELAYS
    ]
    header = ["delay", "steps/s, near", "steps/s, far", "far / near", "far / near without delay"]
    shares = far(2) / near(2), far(2) / near(0)
    reached = " and ".join(
        f"{share:.2f} of {what}: {'reached' if share >= GOAL else 'not reached'}"
        for share, what in zip(shares, ("delay 2 near", "delay 0 near"), strict=True)
    )
    return (
        f"{batch_size:,} rows a step ({batch_size * nnz_per_row / 1e6:.2f} M non-zeros, "
        f"{moved / 1e6:.2f} MB of weights and gradients a step), messages {1e3 * SECONDS:g} ms "
        f"under way:\n\n{reporting.table(header, lines)}\n\n"
        f"Goal: with delay 2, far at least {GOAL:g} of near. {reached}."
    )


@contextmanager
def far_cluster(seconds: float) -> Iterator[Where]:
    """A scheduler here, and two workers that are `seconds` away, each a process of its own."""
    from distributed import Client

    with ExitStack() as stack:
        scheduler = stack.enter_context(dask_scheduler(ENVIRONMENT))
        client = stack.enter_context(Client(scheduler, set_as_default=False, timeout=START_SECONDS))
        ports: set[int] = set()
        while len(ports) < 5:
            ports.add(free_port())
        far_scheduler, *rest = ports
        workers, far_workers = rest[:2], rest[2:]
        targets = dict(zip(far_workers, workers, strict=True))
        targets[far_scheduler] = int(scheduler.rpartition(":")[2])
        relay = multiprocessing.get_context("spawn").Process(
            target=run_relay, args=(targets, seconds)
        )
        relay.start()
        stack.callback(relay.join)
        stack.callback(relay.terminate)
        for own, seen in zip(workers, far_workers, strict=True):
            addresses = ("--listen-address", address(own), "--contact-address", address(seen))
            options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", *addresses)
            command = dask_command("worker", address(far_scheduler), *options)
            stack.enter_context(running(command, environment=ENVIRONMENT))
        client.wait_for_workers(len(workers), timeout=START_SECONDS)
        yield Where(scheduler=scheduler)


def address(port: int) -> str:
    return f"tcp://127.0.0.1:{port}"


def run_relay(targets: dict[int, int], seconds: float) -> None:
    """Pass on what arrives at each port to its target, and back, `seconds` later."""

    async def serve() -> None:
        for port, target in targets.items():
            await asyncio.start_server(connector(target), "127.0.0.1", port)
        await asyncio.Event().wait()

    def connector(target: int):  # type: ignore[no-untyped-def]
        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                there = await asyncio.open_connection("127.0.0.1", target, limit=CHUNK)
            except OSError:  # nobody is there any more; whoever asks is to see that
                writer.close()
                return
            ways = ((reader, there[1]), (there[0], writer))
            await asyncio.gather(*(pass_on(*way, seconds) for way in ways))

        return connect

    asyncio.run(serve())


async def pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float
) -> None:
    """What is read is written so much later, however much is read meanwhile."""
    loop = asyncio.get_running_loop()
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def receive() -> None:
        chunk = b"more"
        while chunk:
            try:
                chunk = await reader.read(CHUNK)
            except ConnectionError:
                chunk = b""
            under_way.put_nowait((loop.time() + seconds, chunk))

    receiving = asyncio.create_task(receive())
    try:
        while True:
            due, chunk = await under_way.get()
            if (wait := due - loop.time()) > 0.0:
                await asyncio.sleep(wait)
            if not chunk:
                break
            writer.write(chunk)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        receiving.cancel()
        writer.close()


# Quality


def errors(options: argparse.Namespace) -> str:
    """Test errors on IMDB with each delay."""
    folder = options.folder / "imdb"
    prepare_reviews(options.data, folder)
    test = folder / "test"
    batch = auto_batch_size(open_dataset(str(folder / "train-0")), on_dask=True)
    lines, digests = [], {}
    for step_size in ("auto", 0.3):
        for delay in QUALITY_DELAYS:
            config = TrainConfig(step_size=step_size, batch_size=batch, delay=delay)
            scores = [score(folder / f"train-{seed}", test, config) for seed in SEEDS]
            digests[step_size, delay] = scores[0].digest
            lines.append(
                error_cells(f"step size {step_size}, delay {delay}", [s.error for s in scores])
            )
    far = TrainConfig(step_size=0.3, delay=2)
    found = score(folder / "train-0", test, far, Where(workers=2))
    outcome = "the same bits as" if found.digest == digests[0.3, 2] else "OTHER BITS THAN"
    header = [f"IMDB, {batch} rows a step", "test error, seed 0", "mean", "least to most"]
    return (
        f"{reporting.table(header, lines)}\n\n"
        f"Two Dask workers with delay 2 and step size 0.3 give {outcome} the local run (seed 0)."
    )


def error_cells(name: str, found: Sequence[float]) -> list[str]:
    return [
        name,
        f"{found[0]:.4f}",
        f"{statistics.mean(found):.4f}",
        f"{min(found):.4f} to {max(found):.4f}",
    ]


if __name__ == "__main__":
    main()
