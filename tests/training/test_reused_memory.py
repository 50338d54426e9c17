"""Memory that is used again must not be used too early: here it turns to garbage at once."""

from dataclasses import replace

import pytest
from helpers.training_cases import as_dataset, bits, make_data
from helpers.zarr_cases import write_zarr

from dadagrad.config import TrainConfig
from dadagrad.data.buffers import Arena
from dadagrad.data.zarr.dataset import ZarrDataset
from dadagrad.training import execution
from dadagrad.training.engines import threads as engine_module
from dadagrad.training.run import train
from dadagrad.training.worker.partition_reader import Loader


def poison(arenas, byte=0xFF):
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

    def read_into(self, partition, arena, scratch):
        poison([arena], 0)
        rows = super().read_into(partition, arena, scratch)
        poison([scratch])
        return rows


class PoisoningLoader(Loader):
    """A loader that overwrites the partitions which it drops."""

    poisoned = 0

    def release(self, loaded):
        PoisoningLoader.poisoned += poison([loaded.arena], 0)
        super().release(loaded)


@pytest.fixture(scope="module")
def in_memory():
    """Partitions of many sizes; some have no values, and all have weights."""
    made = make_data((30, 17, 41, 8, 60, 25, 33, 1, 50), weighted=True)
    parts = [made.read(number) for number in range(len(made.partitions))]
    parts[2], parts[5] = (replace(parts[number], values=None) for number in (2, 5))
    return as_dataset(parts)


@pytest.fixture(scope="module")
def url(in_memory, tmp_path_factory):
    return write_zarr(in_memory, tmp_path_factory.mktemp("reused") / "data")


@pytest.mark.parametrize(
    "settings",
    [
        {"batch_size": 1},
        {"batch_size": 1, "step_size": "auto"},
        {"streams": 3, "rounds": 4},
        {"batch_size": 9, "partitions_per_batch": 1},
        {"batch_size": 64, "partitions_per_batch": 4, "step_size": "auto"},
    ],
    ids=str,
)
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_are_not_overwritten_while_they_are_needed(
    in_memory, url, settings, threads, monkeypatch
):
    monkeypatch.setattr(execution, "CHUNK_ROWS", 7)
    monkeypatch.setattr(engine_module, "Loader", PoisoningLoader)
    monkeypatch.setattr(PoisoningLoader, "poisoned", 0)
    config = TrainConfig(**{"step_size": 0.3, "l1": 1e-3, "passes": 3} | settings)
    result = train(PoisoningData(url), config, threads=threads)
    assert PoisoningLoader.poisoned > 3 * len(in_memory.partitions)
    assert bits(result) == bits(train(in_memory, config, threads=threads))


def test_a_run_takes_the_memory_of_a_few_partitions(url):
    arenas: list[Arena] = []

    class Noting(ZarrDataset):
        def read_into(self, partition, arena, scratch):
            arenas.append(arena)
            return super().read_into(partition, arena, scratch)

    train(Noting(url), TrainConfig(step_size=0.3, batch_size=1, passes=3), threads=2)
    assert len(arenas) == 3 * 9
    assert len(set(map(id, arenas))) == 3  # one in use, two read ahead
