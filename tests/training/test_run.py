"""`train` as a whole: what it reports, what it refuses, and what it holds in memory."""

import json
import math
import os
from dataclasses import replace

import numpy as np
import pytest
from helpers.processes import run_python
from helpers.training_cases import as_dataset, make_data
from helpers.wide_cases import write_wide
from helpers.zarr_cases import write_zarr

from dadagrad import DadagradError, InputError, TrainConfig, TrainingError, train
from dadagrad.data.dataset import MemoryDataset, Partition
from dadagrad.data.rows import Rows
from dadagrad.training.schedule import auto_batch_size, resolve_config

CONFIG = TrainConfig(step_size=0.3)


def test_the_report_says_what_was_done():
    data = make_data(weighted=True)
    result = train(data, replace(CONFIG, batch_size=11, passes=2))
    report = result.report
    assert json.loads(json.dumps(report)) == report
    assert report["rows"] == 2 * data.n_rows
    assert report["steps"] == 2 * -(-data.n_rows // 11)
    assert (report["passes"], report["batch_size"], report["step_size"]) == (2, 11, 0.3)
    assert report["features"] == data.schema.n_features
    assert report["nonzeros"] == np.count_nonzero(result.model.weights)
    assert 0 < report["progressive_error"] < 0.5
    assert report["complete"]
    assert result.complete
    assert report["rows_per_second"] == pytest.approx(report["rows"] / report["seconds"])
    assert report["checkpoints"] is None


def test_the_reported_error_is_that_of_rows_not_seen_before():
    data = make_data()
    once, thrice = (train(data, replace(CONFIG, passes=passes)).report for passes in (1, 3))
    for name in ("progressive_loss", "progressive_error"):
        assert thrice[name] == once[name] == thrice["settings"][0][name]
    first, second, third = thrice["by_pass"]
    assert first == once["by_pass"][0]
    assert first["loss"] == once["progressive_loss"]
    assert first["rows"] == third["rows"] == data.n_rows
    assert third["loss"] < second["loss"] < first["loss"]


class TestRefused:
    @pytest.mark.parametrize(
        ("place", "message"),
        [
            ("data", "holds a dataset; save the model to a folder of its own"),
            ("run", "save_to and checkpoints name the same folder"),
            ("data/../run/", "save_to and checkpoints name the same folder"),
            ("file", "is a file; save the model to a folder of its own"),
            ("file/model", r"cannot write model\.part in .*; write elsewhere"),
        ],
    )
    def test_a_model_that_cannot_be_saved_before_anything_is_made(self, tmp_path, place, message):
        data, run = write_zarr(make_data(), tmp_path / "data"), tmp_path / "run"
        (tmp_path / "file").touch()
        with pytest.raises(DadagradError, match=message):
            train(data, CONFIG, checkpoints=str(run), save_to=f"{tmp_path}/{place}")
        assert not run.exists()

    @pytest.mark.parametrize("n_partitions", [0, 3])
    def test_no_rows(self, n_partitions):
        data = make_data()
        data = MemoryDataset([data.read(0).slice(0, 0)] * n_partitions, data.schema)
        with pytest.raises(InputError, match="the data at memory has no rows"):
            train(data, CONFIG)

    def test_too_many_classes(self):
        n = 1100
        rows = Rows.from_csr(np.arange(n + 1), np.zeros(n, np.int64), None, np.arange(n)[:, None])
        data = as_dataset([replace(rows, labels=rows.labels.astype(float))])
        with pytest.raises(InputError, match=r"more than 1000 distinct values.*loss=squared"):
            train(data, CONFIG)
        assert train(data, replace(CONFIG, loss="absolute")).complete

    @pytest.mark.parametrize(("batch_size", "class_weight"), [(1, "balanced"), (7, None)])
    def test_a_label_outside_the_declared_classes(self, batch_size, class_weight):
        data = make_data((20, 20))
        data.read(1).labels[13] = 5.0
        config = replace(CONFIG, batch_size=batch_size, class_weight=class_weight)
        with pytest.raises(
            InputError, match=r"memory, partition part-00001: row 13 has label 5 .*\(-1, 1\)"
        ):
            train(data, config)

    @pytest.mark.parametrize(
        ("mode", "culprit"),
        [
            ({"batch_size": 1}, "score"),
            ({"batch_size": 7}, "(score|gradient)"),
            ({"streams": 2}, "sums of feature"),
        ],
    )
    def test_a_margin_that_is_not_finite(self, mode, culprit):
        data = make_data((20, 20), labels="real")
        rows = data.read(1)
        first = rows.indptr[11]
        rows.values[first : rows.indptr[12]] = 3e38
        plain = {"shuffle": False, "partitions_per_batch": 1, "scale_columns": False}
        with pytest.raises(TrainingError, match=f"partition part-00001: the {culprit}"):
            train(data, CONFIG, loss="squared", **plain, **mode)

    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("workers", [0]),
            ("threads", [True]),
            ("memory", [-1, 1.5, "1GB"]),
            ("save_every", [0]),
            ("keep", ["x"]),
            ("save_seconds", [-1, math.nan]),
        ],
    )
    def test_what_is_no_number_of_its_kind(self, tmp_path, name, values):
        needed = "number" if name == "save_seconds" else "whole number of at least 1"
        for value in values:
            with pytest.raises(InputError, match=f"{name} must be a .*{needed}"):
                train(make_data(), CONFIG, checkpoints=str(tmp_path / "run"), **{name: value})
        assert not (tmp_path / "run").exists()

    def test_numbers_of_numpy_are_numbers(self):
        numbers = {"memory": np.int32(10**9), "save_seconds": np.float32(2)}
        assert train(make_data(), CONFIG, threads=np.int64(2), **numbers).complete

    @pytest.mark.parametrize(
        "settings", [{"workers": 1, "client": "tcp://x:1"}, {"workers": 1, "threads": 2}]
    )
    def test_two_places_at_once(self, settings):
        with pytest.raises(InputError, match="give"):
            train(make_data(), CONFIG, **settings)


@pytest.mark.parametrize(
    ("n_rows", "nnz", "expected"),
    [(10, 100, 16), (25_000, 5_000_000, 97), (10**9, 10**11, 200_000), (6400, 0, 25)],
)
def test_automatic_batches_are_a_256th_of_a_pass_within_bounds(n_rows, nnz, expected):
    data = make_data()
    data.partitions = (Partition("part-00000", n_rows, nnz, 10, ""),)
    assert auto_batch_size(data) == expected
    assert resolve_config(data, CONFIG, on_cluster=False).batch_size == 1


@pytest.mark.parametrize(
    ("settings", "streams"),
    [({}, 16), ({"average": True}, 16), ({"preconditioner": "full"}, 1), ({"batch_size": 50}, 1)],
)
def test_streams_are_the_default_on_a_cluster_where_they_can_be_merged(settings, streams):
    config = replace(CONFIG, **settings)
    assert resolve_config(make_data(), config, on_cluster=True).streams == streams
    assert resolve_config(make_data(), config, on_cluster=False).streams == 1


PEAK = """
import re, sys
from dadagrad import TrainConfig, train
for batch_size in (1, 2000):
    open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
    config = TrainConfig(step_size=0.3, batch_size=batch_size, partitions_per_batch=2)
    for url in sys.argv[1:]:
        result = train(url, config, threads=2)
        # Not getrusage: its maximum begins with that of the process that started this one.
        peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())
        print(result.report["rows"], peak[1])
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux to measure")
def test_ten_times_the_data_takes_no_more_memory(tmp_path):
    """Partitions take 3 MB each when they are read."""
    large = [write_wide(tmp_path / str(count), 16, count, 3000, 100) for count in (3, 30)]
    numbers = run_python("-c", PEAK, *large).stdout.split()
    for few_rows, few, many_rows, many in np.array(numbers, int).reshape(2, 4):
        assert many_rows == 10 * few_rows
        # Kept, the other 27 partitions would be 80 MB.
        assert many < 1.1 * few < 500_000


@pytest.mark.parametrize("batch_size", [1, 16])
def test_rows_that_all_weigh_nothing_make_no_model(batch_size):
    rows = make_data((40,)).read(0)
    data = as_dataset([replace(rows, weights=np.zeros(rows.n_rows, np.float32))])
    with pytest.raises(InputError, match=r"all rows of .* have weight 0"):
        train(data, replace(CONFIG, batch_size=batch_size))
