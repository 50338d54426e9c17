"""Parquet without checksums that changes while a run uses it."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.processes import local_cluster

import dadagrad
from dadagrad.errors import CorruptionError

N_ROWS, GROUP = 400, 100
CONFIG = dadagrad.TrainConfig(step_size=0.1, batch_size=50, passes=3)


@pytest.fixture
def source(tmp_path):
    random = np.random.default_rng(0)
    ids = [np.sort(random.choice(50, 4, replace=False)) for _ in range(N_ROWS)]
    values = random.random((N_ROWS, 4)).astype(np.float32)
    columns = {
        "indices": pa.array(ids, pa.list_(pa.int32())),
        "values": pa.array(list(values), pa.list_(pa.float32())),
        "label": pa.array(np.arange(N_ROWS) % 2),
    }
    options = {"compression": "none", "use_dictionary": False, "row_group_size": GROUP}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", **options)
    return tmp_path / "a.parquet"


def flip_a_value(path):
    """Change one bit of a value in the last row group: it decodes, to another number."""
    last = pq.ParquetFile(path).read_row_group(3)["values"][7].as_py()
    data, value = path.read_bytes(), np.array(last, np.float32).tobytes()
    assert data.count(value) == 1
    at = data.index(value)
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def test_a_later_reading_is_compared_with_the_first(source):
    data = dadagrad.open_dataset(str(source))
    data.read(3)
    data.read(3)
    flip_a_value(source)
    with pytest.raises(CorruptionError, match=r"partition file:3 is not what it was"):
        data.read(3)


def test_a_resumed_run_compares_with_the_first_reading(source, tmp_path):
    config, run = {"checkpoints": str(tmp_path / "run"), "save_every": 10}, tmp_path / "run"
    dadagrad.train(str(source), CONFIG, **config)
    for manifest in sorted(run.glob("manifest-*"))[2:]:
        manifest.unlink()
    flip_a_value(source)
    with pytest.raises(CorruptionError, match=r"partition file:3 is not what it was"):
        dadagrad.resume(str(run))


def test_workers_compare_with_each_other(source):
    data = dadagrad.open_dataset(str(source))
    data.read(3)  # the data that this process has read
    flip_a_value(source)
    with (
        local_cluster(1, threads_per_worker=1, processes=False) as cluster,
        pytest.raises(CorruptionError, match=r"partition file:3 is not what it was"),
    ):
        dadagrad.train(data, CONFIG, client=cluster.scheduler_address)
