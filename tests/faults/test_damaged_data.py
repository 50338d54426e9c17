"""Partitions that disappear or are damaged: named, or left out where that was asked for."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.fault_cases import CONFIG, DATA_SIZES, At
from helpers.training_cases import bits, make_data, train_until
from helpers.zarr_cases import write_zarr
from pyarrow.parquet import ParquetFile

from dadagrad import open_dataset, resume, train
from dadagrad.data.buffers import Pool
from dadagrad.data.dataset import MemoryDataset
from dadagrad.data.skipping import SkippingDataset
from dadagrad.data.views import hold_out
from dadagrad.errors import CorruptionError, InputError, OutOfMemory, StorageError
from dadagrad.problem import make_problem
from dadagrad.storage import store
from dadagrad.storage.store import Storage
from dadagrad.training.schedule.base import Slice
from dadagrad.training.state.slices import SentFeatures, Weights
from dadagrad.training.worker.compute import compute

VICTIM = "part-00003"
DAMAGE = ("vanish", "chunk", "flip", "metadata")


def damage(url, kind, partition=VICTIM):
    folder = Path(url) / partition
    (chunk,) = (folder / "X/indices/c").iterdir()
    if kind == "vanish":
        shutil.rmtree(folder)
    elif kind == "chunk":
        chunk.unlink()
    elif kind == "flip":
        content = bytearray(chunk.read_bytes())
        content[len(content) // 2] ^= 4
        chunk.write_bytes(content)
    else:
        (folder / "zarr.json").write_text("{}")


@pytest.fixture
def url(tmp_path):
    return write_zarr(make_data(DATA_SIZES), tmp_path / "train")


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_partition_is_named_or_skipped_on_request(url, kind, caplog):
    """A skipped partition counts as rows of weight 0."""
    whole = open_dataset(url)
    parts = [whole.read(number) for number in range(len(whole.partitions))]
    parts[3] = replace(parts[3], weights=np.zeros(parts[3].n_rows, np.float32))
    expected = train(MemoryDataset(parts, whole.schema), CONFIG)
    damage(url, kind)
    with pytest.raises(CorruptionError, match=f"partition {VICTIM}"):
        train(url, CONFIG)
    result = train(url, CONFIG, on_error="skip")
    assert bits(result) == bits(expected)
    assert result.report["skipped"] == DATA_SIZES[3]
    assert result.report["skipped_partitions"] == [VICTIM]
    assert result.report["rows"] == CONFIG.passes * (sum(DATA_SIZES) - DATA_SIZES[3])
    (line,) = (record.getMessage() for record in caplog.records if "skip" in record.getMessage())
    assert re.match(rf"partition {VICTIM} is skipped: {url}: partition {VICTIM}, ", line)


def test_names_that_are_damaged_are_left_out_on_request(tmp_path):
    """The rows of their partition can be read."""
    data = make_data(DATA_SIZES)
    names = {number: f"f{number}" for number in range(data.schema.n_features)}
    url = write_zarr(data, tmp_path / "data", names=names)
    (tmp_path / "data/part-00000/var/name/c/0").unlink()
    result = train(url, CONFIG, on_error="skip")
    assert result.report["skipped_partitions"] == []
    assert bits(result) == bits(train(data, CONFIG))
    assert len(result.model.names) > 0
    assert result.model.names.items() <= names.items()


@pytest.mark.parametrize(
    "settings", [{"batch_size": 1}, {"batch_size": 60, "step_size": "auto"}], ids=str
)
def test_every_way_of_training_skips(url, settings):
    damage(url, "flip")
    config = replace(CONFIG, **settings)
    result = train(url, config, on_error="skip", threads=1)
    assert result.report["skipped"] == DATA_SIZES[3]
    assert bits(train(url, config, on_error="skip", threads=2)) == bits(result)


def test_a_damaged_partition_whose_queries_would_be_divided_is_skipped(tmp_path):
    """The rows held out are whole queries of another one."""
    url = write_zarr(make_data((60, 60, 60), labels="relevance"), tmp_path / "queries.zarr")
    settings = {"loss": "ranking", "step_size": 0.3, "holdout": 0.1, "threads": 1}
    _, held_out = hold_out(open_dataset(url), 0.1, seed=0)
    (victim,) = {partition.name.partition(",")[0] for partition in held_out.partitions}
    damage(url, "flip", victim)
    with pytest.raises(CorruptionError, match=f"partition {victim}"):
        train(url, **settings)
    report = train(url, **settings, on_error="skip").report
    assert report["skipped_partitions"] == [victim]
    assert report["holdout"]["rows"] == 18


@pytest.mark.parametrize("streams", [1, 3])
def test_a_cluster_skips_with_the_same_bits(cluster, url, streams):
    damage(url, "chunk")
    several = {"streams": streams, "rounds": 5, "batch_size": 1} if streams > 1 else {}
    config = replace(CONFIG, passes=2, **several)
    on_cluster = train(url, config, on_error="skip", client=cluster.address)
    assert on_cluster.report["skipped_partitions"] == [VICTIM]
    assert bits(on_cluster) == bits(train(url, config, on_error="skip"))


def test_a_partition_is_damaged_during_the_run(cluster, url):
    """Workers that have read it go on with it; those that have to read it again cannot."""

    def strike():
        damage(url, "vanish")
        for worker in cluster.living:
            worker.kill()
        cluster.add_worker()

    result = At(20, strike).train(cluster, url, on_error="skip")
    assert result.complete
    assert result.report["skipped_partitions"] == [VICTIM]
    every, others = CONFIG.passes * sum(DATA_SIZES), CONFIG.passes * (600 - 140)
    assert others < result.report["rows"] < every


def test_a_skipped_partition_stays_skipped_after_a_resume(url, tmp_path):
    backup = shutil.copytree(url, tmp_path / "backup")
    damage(url, "vanish")
    expected = bits(train(url, CONFIG, on_error="skip"))
    folder = str(tmp_path / "run")
    options = {"on_error": "skip", "checkpoints": folder, "save_every": 5}
    train_until(lambda event: event.steps == 20, url, CONFIG, **options)
    shutil.copytree(backup / VICTIM, Path(url) / VICTIM)
    result = resume(folder)
    assert bits(result) == expected
    assert result.report["skipped_partitions"] == [VICTIM]


def test_a_run_that_was_ended_by_it_goes_on_without_it(url, tmp_path):
    folder = str(tmp_path / "run")
    damage(url, "vanish")
    for start in (lambda: train(url, CONFIG, checkpoints=folder), lambda: resume(folder)):
        with pytest.raises(CorruptionError, match=VICTIM):
            start()
    assert bits(resume(folder, on_error="skip")) == bits(train(url, CONFIG, on_error="skip"))


def test_when_all_are_damaged_there_is_nothing_to_go_on_with(cluster, url):
    for path in Path(url).glob("part-*"):
        shutil.rmtree(path)
    message = "no partition can be read; the last one, part-0000"
    for client in (None, cluster.address):
        with pytest.raises(CorruptionError, match=message):
            train(url, CONFIG, on_error="skip", client=client)


def test_the_labels_of_a_skipped_partition_are_not_taken_for_sorted_rows(tmp_path, caplog):
    url = write_zarr(make_data((400, 100)), tmp_path / "train")
    damage(url, "vanish", "part-00000")
    train(url, step_size=0.1, shuffle=False, on_error="skip")
    assert "partition part-00000 is skipped" in caplog.text
    assert "labels come in order" not in caplog.text


def test_on_error_is_raise_or_skip(url):
    with pytest.raises(InputError, match="on_error must be 'raise' or 'skip', not 'ignore'"):
        train(url, CONFIG, on_error="ignore")


def test_a_partition_that_vanishes_after_its_weights_were_sent_has_no_gradient(url):
    """So it is where the worker that opened it was lost, and another takes its task."""
    data = SkippingDataset(open_dataset(url))
    problem, n_sent = make_problem(CONFIG, data.schema, 60), len(data.read(3).vocabulary)
    data.skip({VICTIM: "lost"})
    weights = Weights(np.zeros((n_sent, 1), np.float32), np.zeros(1))
    slice_ = Slice(3, 0, 0, data.partitions[3].n_rows, False)
    result = compute(problem, data.read(3), slice_, SentFeatures(weights), VICTIM)
    assert not len(result.change.ids)


NO_DAMAGE = {
    "memory": (Pool, "empty", MemoryError("none left"), OutOfMemory),
    "disk": (store, "open_regular", OSError(5, "Input/output error"), StorageError),
    "memory, Parquet": (ParquetFile, "read_row_group", MemoryError("none left"), OutOfMemory),
    "threads, Parquet": (
        ParquetFile,
        "read_row_group",
        pa.ArrowException("Unknown error: Failed to launch worker thread: try again"),
        OutOfMemory,
    ),
    "disk, Parquet": (ParquetFile, "read_row_group", OSError(5, "EIO"), StorageError),
}


@pytest.mark.parametrize("case", NO_DAMAGE)
def test_errors_other_than_damage_end_the_run(case, url, tmp_path, monkeypatch):
    """Lack of memory, or a disk that fails, must not cost rows."""
    owner, name, failure, kind = NO_DAMAGE[case]
    data = open_dataset(write_parquet(url, tmp_path) if "Parquet" in case else url)

    def fail(*arguments, **options):
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        with pytest.raises(kind, match=str(failure.args[-1]) if "," in case else "part-0000"):
            train(data, CONFIG, on_error="skip")
    assert train(data, CONFIG, on_error="skip").report["skipped_partitions"] == []


def write_parquet(url, folder):
    data, columns = open_dataset(url), {"indices": [], "values": [], "label": []}
    for number in range(len(data.partitions)):
        rows = data.read(number)
        ids, values = rows.vocabulary[rows.indices], rows.values
        columns["indices"] += np.split(ids, rows.indptr[1:-1])
        columns["values"] += np.split(values, rows.indptr[1:-1])
        columns["label"] += rows.labels[:, 0].tolist()
    path = folder / "rows.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=60)
    return str(path)


def test_a_partition_that_can_be_read_at_the_second_try_is_not_skipped(url, monkeypatch):
    read_many, failed = Storage.read_many, []

    def once_damaged(self, chunks):
        sizes = read_many(self, chunks)
        if not failed:
            failed.append(next(iter(chunks)))
            sizes = [size - 1 for size in sizes]
        return sizes

    expected = bits(train(url, CONFIG))
    monkeypatch.setattr(Storage, "read_many", once_damaged)
    result = train(url, CONFIG, on_error="skip")
    assert failed
    assert result.report["skipped_partitions"] == []
    assert bits(result) == expected
