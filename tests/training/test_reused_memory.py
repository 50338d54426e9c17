"""Memory that is used again must not be used too early: here it turns to garbage at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

import numpy as np
import pytest
from helpers.training_cases import (
    as_dataset,
    make_data,
    make_schedule_of,
    method_of,
    metrics_bytes,
    state_bytes,
)
from helpers.zarr_cases import write_zarr
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.config import TrainConfig
from dadagrad.data.buffers import Arena
from dadagrad.data.dataset import Dataset
from dadagrad.data.rows import Rows
from dadagrad.data.zarr.dataset import ZarrDataset
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.engines.threads import LocalEngine
from dadagrad.training.engines.watcher import Watcher
from dadagrad.training.messages import Event
from dadagrad.training.state.compiled import State
from dadagrad.training.step_size import choose_step_size
from dadagrad.training.worker.partition_reader import Loaded, Loader


def poison(arenas: Iterable[Arena], byte: int = 0xFF) -> int:
    """Fill `arenas` with `byte`; the number of their buffers.

    0xFF is neither a number nor an index. Rows of zeros are wrong as well, but a kernel that works
    on them stays inside its arrays: a test that fails, not a process that dies.
    """
    buffers = [buffer for arena in arenas for buffer in arena._buffers.values()]
    for buffer in buffers:
        buffer.fill(byte)
    return len(buffers)


class PoisoningData(ZarrDataset):
    """Its scratch is garbage once it has been used."""

    def read_into(self, partition: int, arena: Arena, scratch: Arena) -> Rows:
        poison([arena], 0)
        rows = super().read_into(partition, arena, scratch)
        poison([scratch])
        return rows


class PoisoningLoader(Loader):
    """What is let go is garbage from that moment on."""

    poisoned = 0

    def release(self, loaded: Loaded) -> None:
        self.poisoned += poison([loaded.arena], 0)
        super().release(loaded)


class WithoutArenas(LocalEngine):
    """Each partition has memory of its own."""

    def _open(self, reading: int, partition: int) -> Event:
        self.loader = Loader(self._data)
        return super()._open(reading, partition)


def run(engine: LocalEngine, data: Dataset, config: TrainConfig) -> Coordinator:
    problem = method_of(data, config)
    coordinator = Coordinator(problem, make_schedule_of(data, config), State.zero(problem))
    assert engine.run(coordinator, Watcher())
    return coordinator


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ZarrDataset:
    """Partitions of many sizes; some have no values, and all have weights."""
    made = make_data((30, 17, 41, 8, 60, 25, 33, 1, 50), weighted=True)
    parts = [made.read(number) for number in range(len(made.partitions))]
    parts[2], parts[5] = (replace(parts[number], values=None) for number in (2, 5))
    folder = tmp_path_factory.mktemp("reused")
    return ZarrDataset(write_zarr(as_dataset(parts), folder / "data"))


@pytest.mark.parametrize(
    "settings",
    [
        {"batch_size": 1},
        {"streams": 3, "rounds": 4},
        {"batch_size": 9, "partitions_per_batch": 1},
        {"batch_size": 64, "partitions_per_batch": 4},
    ],
    ids=str,
)
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_are_not_overwritten_while_they_are_needed(data, settings, threads):
    config = TrainConfig(**{"step_size": 0.3, "l1": 1e-3, "batch_size": 1, "passes": 3} | settings)
    poisoning = PoisoningData(data.url)
    engine = LocalEngine(poisoning, threads)
    engine.loader = loader = PoisoningLoader(poisoning)
    got = run(engine, data, config)
    assert loader.poisoned > 3 * len(data.partitions)
    expected = run(WithoutArenas(data, threads), data, config)
    assert state_bytes(got.state) == state_bytes(expected.state)
    assert metrics_bytes(got) == metrics_bytes(expected)


def test_a_run_takes_the_memory_of_a_few_partitions(data: ZarrDataset) -> None:
    arenas: set[int] = set()
    kept: list[Arena] = []
    read_into = data.read_into

    class Noting(ZarrDataset):
        def read_into(self, partition: int, arena: Arena, scratch: Arena) -> Rows:
            arenas.add(id(arena))
            kept.append(arena)
            return read_into(partition, arena, scratch)

    engine = LocalEngine(Noting(data.url), 2)
    run(engine, data, TrainConfig(step_size=0.3, batch_size=1, passes=3))
    assert len(kept) == 3 * len(data.partitions)
    assert len(arenas) == 3  # one in use, two read ahead
    loader = engine.loader
    assert not [*loader._arenas, *loader._scratch, *loader._kept, *engine._loaded]


def test_the_trial_of_step_sizes_reads_into_the_same_memory(data: ZarrDataset) -> None:
    config = TrainConfig(batch_size=1)
    problem = method_of(data, replace(config, step_size=1.0))
    schedule = make_schedule_of(data, config)
    reading = PoisoningData(data.url)
    loader = PoisoningLoader(reading)
    chosen = choose_step_size(reading, problem, schedule, 3, loader)
    assert chosen == choose_step_size(data, problem, schedule)
    # What it has read need not be read again.
    for partition in schedule.order(0)[:2]:
        assert partition in loader._kept
        assert_same(loader.load(partition).rows, data.read(partition))
    assert not loader._kept


def assert_same(rows: Rows, expected: Rows) -> None:
    for field in fields(rows):
        found = getattr(rows, field.name)
        np.testing.assert_array_equal(found, getattr(expected, field.name), err_msg=field.name)


@given(order=st.lists(st.integers(0, 8), min_size=1, max_size=12))
def test_rows_are_the_same_whatever_the_memory_held_before(
    data: ZarrDataset, order: list[int]
) -> None:
    arena, scratch = Arena(), Arena()
    for partition in order:
        rows = data.read_into(partition, arena, scratch)
        poison([scratch])
        assert_same(rows, data.read(partition))
        poison([arena])
