"""``examples/benchmarks/criteo.py``: published files, and a run on a small stand-in."""

import gzip
import importlib
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "examples" / "benchmarks"


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def published(rows):
    """Rows as Criteo published them."""
    lines = [
        [
            str(int(clicked)),
            *("" if np.isnan(number) else f"{number:.0f}" for number in numbers),
            *("" if name < 0 else f"{name:08x}" for name in names),
        ]
        for clicked, numbers, names in zip(rows.clicked, rows.numbers, rows.categories, strict=True)
    ]
    return "".join("\t".join(line) + "\n" for line in lines).encode()


@pytest.mark.parametrize("name", ["train.txt", "day_0.gz"])
def test_a_published_file_gives_the_rows_that_were_written(name, tmp_path):
    criteo_rows = importlib.import_module("criteo_rows")
    (rows,) = criteo_rows.StandIn(300).blocks()
    text = published(rows)
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    for n_rows in (None, 200):
        (found,) = criteo_rows.read_tsv(tmp_path / name, n_rows)
        np.testing.assert_array_equal(found.clicked, rows.clicked[:n_rows])
        np.testing.assert_array_equal(found.numbers, rows.numbers[:n_rows])
        np.testing.assert_array_equal(found.categories, rows.categories[:n_rows])


def test_numbers_share_logarithmic_buckets():
    criteo_rows = importlib.import_module("criteo_rows")
    numbers = np.zeros((6, criteo_rows.NUMBERS))
    numbers[:, 0] = [2, 1, 1000, 1001, 2000, np.nan]
    categories = np.zeros((6, criteo_rows.CATEGORIES), np.int64)
    ids = criteo_rows.features(criteo_rows.RawRows(numbers[:, 0] > 0, numbers, categories), 30)
    same = [np.array_equal(ids[first], ids[second]) for first, second in ((0, 1), (2, 3), (3, 4))]
    assert same == [False, True, False]
    assert len(np.unique(ids, axis=0)) == 5


def test_the_benchmark_runs_on_a_stand_in_and_on_a_file(tmp_path, capsys):
    criteo, criteo_rows = map(importlib.import_module, ("criteo", "criteo_rows"))
    page, file = tmp_path / "README.md", tmp_path / "train.txt"
    (rows,) = criteo_rows.StandIn(1000).blocks()
    file.write_bytes(published(rows))
    shared = ["--folder", str(tmp_path), "--rounds", "1", "--bits", "16", "--no-vw"]
    criteo.main([*shared, "--rows", "1000", "--batch", "--markdown", str(page)])
    of_stand_in = capsys.readouterr().out
    assert "900 rows and 35," in of_stand_in
    assert page.read_text() == f"<!-- criteo -->\n{of_stand_in}<!-- /criteo -->\n"
    criteo.main([*shared, "--data", str(file)])
    of_file = capsys.readouterr().out
    line = next(line for line in of_file.splitlines() if line.startswith("| dadagrad"))
    assert " | ".join(line.split(" | ")[-3:]) in of_stand_in
