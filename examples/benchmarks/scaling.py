"""Scaling: a pass on a cluster of 1 and 2 workers beside the same pass on threads.

One pass over a corpus of RCV1's size, by the local engine and through Dask with 1 and 2 workers in
processes of their own: in batches of the size that is chosen for a cluster, in larger batches, and
with streams; and the messages of such a pass alone, with nothing computed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import reporting
from dask_processes import dask_cluster
from memory import prepare
from numpy.typing import NDArray

from dadagrad import Dataset, TrainConfig, open_dataset, train
from dadagrad.data.synthetic import Corpus
from dadagrad.training.engines.dask.driver import MAX_SPENT_TASKS
from dadagrad.training.engines.dask.placement import worthwhile_tasks
from dadagrad.training.schedule import with_batch_size

FACTORS = (2, 4, 16)
"""Times the batch that is chosen for a cluster."""
MESSAGES_ALONE = "2 workers, messages alone"
GOAL = 2.0
STEP_SIZE = 0.2


def main() -> None:
    options = arguments()
    corpus = Corpus(options.rows, options.features, options.nnz)
    data = open_dataset(str(prepare(options.folder, corpus)))
    config = TrainConfig(step_size=STEP_SIZE, streams=1)
    config = with_batch_size(config, data, on_cluster=True)
    batch_size = config.batch_size
    assert isinstance(batch_size, int)
    intro = (
        f"{data.n_rows:,} rows, {data.nnz:,} non-zeros, {data.schema.n_features:,} features; one "
        f"pass in batches of {batch_size:,} rows ({-(-data.n_rows // batch_size)} steps), unless "
        "it says otherwise:"
    )
    measured = measured_table(data, measure(data, config, options.rounds))
    reporting.publish("scaling", f"{intro}\n\n{measured}", options.markdown)


def arguments() -> argparse.Namespace:
    parser = reporting.parser(__doc__)
    parser.add_argument("--rows", type=int, default=804_414, help="default: %(default)s")
    parser.add_argument("--features", type=int, default=1_950_000, help="default: %(default)s")
    parser.add_argument("--nnz", type=float, default=200.0, help="a row (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    return parser.parse_args()


@dataclass(frozen=True)
class Measured:
    """A pass: median seconds, those of the local engine for the same bits, and the error.

    What has no error has no model either: the messages of a pass, with nothing computed.
    """

    seconds: float
    local: float
    error: float | None


def measure(data: Dataset, config: TrainConfig, rounds: int) -> dict[str, Measured]:
    """Passes by engine and batch; the rounds take turns."""
    assert isinstance(config.batch_size, int)
    streams = TrainConfig(step_size=STEP_SIZE, streams=2)
    online = replace(config, batch_size=1)
    errors: dict[str, float | None] = {}
    taken: dict[str, list[float]] = {}
    with dask_cluster(1) as one, dask_cluster(2) as two:
        local, alone, both = {"threads": 2}, {"client": one}, {"client": two}
        runs = {
            "local, one row a step": (online, local, "local, one row a step"),
            "local": (config, local, "local"),
            "1 worker": (config, alone, "local"),
            "2 workers": (config, both, "local"),
        }
        larger = [replace(config, batch_size=factor * config.batch_size) for factor in FACTORS]
        for other in larger:
            what = of_batches(other)
            for name, resources in (("local", local), ("2 workers", both)):
                runs[f"{name}{what}"] = (other, resources, f"local{what}")
        runs |= {
            "local, 2 streams": (streams, local, "local, 2 streams"),
            "2 workers, 2 streams": (streams, both, "local, 2 streams"),
        }
        compared = {name: of for name, (_, _, of) in runs.items()} | {MESSAGES_ALONE: "local"}
        for _ in range(rounds + 1):
            for name, (settings, resources, _) in runs.items():
                report = train(data.url, settings, **resources).report
                taken.setdefault(name, []).append(report["seconds"])
                errors[name] = report["progressive_error"]
                if name == "2 workers":
                    steps, n_bytes = report["steps"], report["bytes_per_step"]
                    messages = messages_of(data, config, workers=2)
                    alone_too = messages_alone(two, steps * messages, messages, n_bytes / messages)
                    taken.setdefault(MESSAGES_ALONE, []).append(alone_too)
    errors[MESSAGES_ALONE] = None
    median = {name: statistics.median(seconds[1:]) for name, seconds in taken.items()}
    return {
        name: Measured(seconds, median[compared[name]], errors[name])
        for name, seconds in median.items()
    }


def of_batches(config: TrainConfig) -> str:
    """Suffix of the name of runs in larger batches."""
    return f", batches of {config.batch_size:,}"


def messages_of(data: Dataset, config: TrainConfig, workers: int) -> int:
    """Number of messages that a step of `config` takes on so many workers."""
    assert isinstance(config.batch_size, int)
    entries = config.batch_size * data.nnz / data.n_rows
    return min(workers, config.partitions_per_batch, worthwhile_tasks(entries))


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
            if len(spent) > MAX_SPENT_TASKS:
                spent.clear()
        return time.perf_counter() - begun


def echo(payload: NDArray[np.float32]) -> NDArray[np.float32]:
    """A task without work: what came goes back."""
    return payload


def measured_table(data: Dataset, here: dict[str, Measured]) -> str:
    """The runs of this machine, and how they compare with the goal."""
    lines = []
    for name, measured in here.items():
        rate = "" if measured.error is None else f"{data.nnz / measured.seconds / 1e6:.0f}"
        ratio = f"{measured.seconds / measured.local:.2f}"
        error = "" if measured.error is None else f"{measured.error:.4f}"
        lines.append([name, f"{measured.seconds:.2f}", rate, ratio, error])
    header = ["", "s", "M nnz/s", "x local, same bits", "progressive error"]
    reached = {
        name: measured.seconds <= GOAL * measured.local
        for name, measured in here.items()
        if name.startswith("2 workers") and measured.error is not None
    }
    outcomes = "; ".join(
        f"{outcome} by {' and '.join(names)}"
        for outcome, names in (
            ("reached", [name for name in reached if reached[name]]),
            ("not reached", [name for name in reached if not reached[name]]),
        )
        if names
    )
    return (
        f"{reporting.table(header, lines)}\n\nGoal: 2 workers in at most {GOAL:g} times the local "
        f"engine's time for the same bits: {outcomes}. {MESSAGES_ALONE}: tasks that hand back what "
        "they get, as much as a step moves."
    )


if __name__ == "__main__":
    main()
