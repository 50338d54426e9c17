"""Rounds of streams: how often to merge, from when on, how far, and on how many levels.

Real sets and a stand-in of the shape of Criteo's, one pass each in a random order. Step size and
average are those that one stream chooses ("auto"). *Ways* compares ways to cut a pass into rounds,
by the ratio of the test error to that of one stream; the mean over the orders. *Rounds* is the test
error against the number of rounds, for 16 to 1,024 streams. *Many rows* is the same on 4.1 million
rows of the stand-in, with the log loss and the processor time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import criteo as clicks
import numpy as np
import reporting
from merge_rules import Array, Changes, Rule, divided, stretch, walk
from quality_sets import RealSet, a9a, census, criteo, imdb, w8a

from dadagrad import Dataset, TrainConfig, evaluate, train
from dadagrad.data.rows import Rows
from dadagrad.problem import Problem, make_problem
from dadagrad.training.coordinator.merge import merge_common, merge_shard, shards
from dadagrad.training.result import make_model
from dadagrad.training.schedule import make_schedule
from dadagrad.training.schedule.base import Cursor
from dadagrad.training.schedule.streams import StreamSchedule
from dadagrad.training.state.compiled import State
from dadagrad.training.state.slices import FeatureSlice

ORDERS = 2
STREAMS, MANY_STREAMS = (16, 64), (16, 64, 256, 1024)
ROUNDS, FEW_ROUNDS = (10, 20, 40, 80, 160), (10, 20, 40, 80)
GROUP, INNER = 8, 10
"""Streams of a group, and how often they merge between two merges of all groups."""


SETS: dict[str, Callable[[Path], RealSet]] = {
    "a9a": a9a,
    "w8a": w8a,
    "census": census,
    "criteo's shape": criteo,
    "IMDB": imdb,
}


class AllAtOnce(StreamSchedule):
    """All streams begin with the first row."""

    def _rows_alone(self, n_rows: int) -> int:
        return 0


class SomeAlone(StreamSchedule):
    """One stream learns from 2 % first, and from no more where these are few."""

    def _rows_alone(self, n_rows: int) -> int:
        return n_rows // 50


class Geometric(StreamSchedule):
    """Rounds that are a fixed share of all that was seen before."""

    def _shares(self, pass_number: int, n_rows: int, alone: int) -> Iterator[Fraction]:
        whole, before = 10**9, alone / n_rows
        for number in range(self.first_rounds):
            share = max(before, 0.02) ** (1.0 - (number + 1) / self.first_rounds)
            yield Fraction(round(whole * (share - before) / (1.0 - before)), whole)


class GeometricAtOnce(Geometric, AllAtOnce):
    """The same from the first row on: the first round is of 2 %."""


@dataclass(frozen=True)
class Way:
    """A way to cut a pass into rounds, and to merge.

    `factor` is the outer step: that many times what the streams say, but no more than their sum; it
    has no momentum.
    """

    schedule: type[StreamSchedule] = StreamSchedule
    rounds: int = 40
    factor: float | None = None
    two_levels: bool = False
    momentum: bool = True


def multiplied(factor: float) -> Rule:
    """Divide by participation, and go `factor` times as far, but not beyond the sum."""

    def rule(changes: Changes) -> tuple[Array, Array]:
        return divided(np.maximum(changes.participation / factor, 1.0), changes)

    return rule


WAYS = {
    "as the root of what was seen, all streams at once": Way(AllAtOnce),
    "as the root, after 2 % on one stream": Way(SomeAlone),
    "as the root, after 2 % or 8,192 rows on one stream (dadagrad)": Way(),
    "a fixed share of what was seen, all at once": Way(GeometricAtOnce),
    "a fixed share, after 2 % or 8,192 rows on one stream": Way(Geometric),
    "80 rounds instead of 40": Way(rounds=80),
    "40 rounds without momentum": Way(momentum=False),
    "80 rounds without momentum": Way(rounds=80, momentum=False),
    "groups of 8 that merge ten times as often": Way(two_levels=True),
}
OUTER = {f"outer step {factor:g}, last weights": Way(factor=factor) for factor in (1.0, 1.25, 1.5)}


@dataclass(frozen=True)
class Task:
    """Rows in one order, and what one stream makes of them by the defaults."""

    rows: Dataset
    test: Dataset
    config: TrainConfig
    error: float

    @classmethod
    def of(cls, data: RealSet, seed: int) -> Task:
        rows, test = data.ordered(seed).datasets()
        model = train(rows, threads=1).model
        config = TrainConfig.from_json(model.report["config"])
        return cls(rows, test, config, evaluate(model, test)["error"])

    def ratio(self, streams: int, way: Way) -> float:
        """The error of streams, over that of one stream."""
        return self.error_of(streams, way) / self.error

    def error_of(self, streams: int, way: Way) -> float:
        rounds = way.rounds * (INNER if way.two_levels else 1)
        average = self.config.average is True and way.factor is None
        config = replace(self.config, streams=streams, rounds=rounds, average=average)
        sizes = [partition.n_rows for partition in self.rows.partitions]
        schedule = way.schedule(**vars(make_schedule(config, sizes)))
        problem = make_problem(config, self.rows.schema, 1)
        vars(problem)["has_momentum"] = way.momentum and problem.has_momentum
        partitions = [self.rows.read(number) for number in range(len(sizes))]
        if way.factor is not None:  # it has no averages
            state = walk(problem, partitions, schedule, multiplied(way.factor))
        else:
            state = learn(problem, partitions, schedule, way.two_levels)
        return float(evaluate(make_model(problem, state, self.rows, {}), self.test)["error"])


def learn(
    problem: Problem, partitions: Sequence[Rows], schedule: StreamSchedule, two_levels: bool
) -> State:
    """The state after all rounds, where groups of streams may merge more often than all of them."""
    state = State.zero(problem)
    groups: list[State] = []
    for number, round_ in enumerate(schedule.rounds(Cursor())):
        stretches, size = round_.stretches, GROUP if two_levels else len(round_.stretches)
        parts = [stretches[first : first + size] for first in range(0, len(stretches), size)]
        if len(parts) == 1:
            merge(
                problem, state, [stretch(problem, partitions, state, slices) for slices in parts[0]]
            )
            continue
        groups = groups or [state.copy() for _ in parts]
        for group, part in zip(groups, parts, strict=False):
            merge(problem, group, [stretch(problem, partitions, group, slices) for slices in part])
        if number % INNER == INNER - 1:
            join(problem, state, groups)
            groups = []
    if groups:
        join(problem, state, groups)
    return state


def join(problem: Problem, state: State, groups: Sequence[State]) -> None:
    """Merge what groups made of a state."""
    changed = [group.changed(state) for group in groups]
    merge(
        problem,
        state,
        [FeatureSlice(ids, group.pull(ids)) for ids, group in zip(changed, groups, strict=True)],
    )


def merge(problem: Problem, state: State, learned: list[FeatureSlice[State]]) -> None:
    for shard in shards(learned):
        merge_shard(problem, state, learned, shard)
    merge_common(problem, state, [each.content for each in learned])


def main() -> None:
    parser = reporting.parser(__doc__, data="imdb, adult_a9a, w8a and kdd_census_income")
    parser.add_argument("--orders", type=int, default=ORDERS, help="orders (default: %(default)s)")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--tables", nargs="+", default=["ways", "rounds", "many rows"])
    options = parser.parse_args()
    tasks = {
        name: [Task.of(load(options.data), seed) for seed in range(options.orders)]
        for name, load in SETS.items()
        if name in options.sets and options.tables != ["many rows"]
    }
    tables = {"ways": ways, "rounds": rounds, "many rows": lambda _: many_rows(options.folder)}
    parts = [f"*{name.capitalize()}.* {tables[name](tasks)}" for name in options.tables]
    reporting.publish("rounds", "\n\n".join(parts), options.markdown)


def ways(tasks: dict[str, list[Task]]) -> str:
    lines = []
    for name, way in (WAYS | OUTER).items():
        ratios = [
            float(np.mean([task.ratio(streams, way) for task in orders]))
            for orders in tasks.values()
            for streams in STREAMS
        ]
        lines.append([name, *(f"{ratio:.3f}" for ratio in [*ratios, np.mean(ratios)])])
        print(lines[-1], flush=True)
    header = ["rounds grow", *(f"{name}, {k}" for name in tasks for k in STREAMS), "mean"]
    return f"Test error over that of one stream:\n\n{reporting.table(header, lines)}"


def rounds(tasks: dict[str, list[Task]]) -> str:
    lines = []
    for name, orders in tasks.items():
        for streams in MANY_STREAMS:
            errors = [orders[0].error_of(streams, Way(rounds=number)) for number in ROUNDS]
            cells = [f"{error:.4f}" for error in [orders[0].error, *errors]]
            lines.append([f"{name}, {streams}", *cells])
            print(lines[-1], flush=True)
    header = ["", "one stream", *(f"{number} rounds" for number in ROUNDS)]
    return f"Test error of one order:\n\n{reporting.table(header, lines)}"


def many_rows(folder: Path) -> str:
    data, test = (str(clicks.prepare(folder, clicks.ROWS, 22) / part) for part in clicks.PARTS)
    config = TrainConfig.from_json(train(data, loss="logistic").model.report["config"])
    lines = []
    for streams in STREAMS:
        cells = []
        for changed in ({}, *({"streams": streams, "rounds": number} for number in FEW_ROUNDS)):
            begun = time.process_time()
            model = train(data, replace(config, **changed), threads=1).model
            seconds, measured = time.process_time() - begun, evaluate(model, test)
            cells.append(f"{measured['error']:.4f}, {measured['log_loss']:.4f}, {seconds:.1f}")
        lines.append([f"criteo's shape, {streams}", *cells])
        print(lines[-1], flush=True)
    header = ["", "one stream", *(f"{number} rounds" for number in FEW_ROUNDS)]
    return f"Test error, log loss and CPU s:\n\n{reporting.table(header, lines)}"


if __name__ == "__main__":
    main()
