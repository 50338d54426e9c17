"""Example scripts: each can be imported, and benchmarks and examples run at small sizes."""

import contextlib
import gzip
import importlib
import runpy
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import sklearn.datasets
from helpers.processes import run_python
from sklearn.utils import Bunch

from dadagrad.data.synthetic import Corpus

EXAMPLES = Path(__file__).parents[2] / "examples"
BENCHMARKS = EXAMPLES / "benchmarks"
SMALL = {
    "outputs": "--rows 500 --features 2000 --rounds 1",
    "parts": "--rows 500 --features 2000 --repeats 1",
    "projections": "--features 2000 --changed 20 --steps 20 --slow-steps 5",
    "reading": "--rows 500 --repeats 1",
    "replay": "--rows 500 --features 2000 --nnz 20 --streams 2",
    "sketch": "--rows 12 --features 100 --rounds 1",
    "vowpal_wabbit": "--rows 500 --features 2000 --rounds 1",
}


def test_every_script_can_be_imported(monkeypatch):
    for script in EXAMPLES.rglob("*.py"):
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(script.parent))
            runpy.run_path(str(script), run_name="imported")


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch):
    """The scripts of benchmarks can be imported by their names."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_makes_its_table(name, tmp_path, monkeypatch, capsys):
    if name == "vowpal_wabbit":
        pytest.importorskip("vowpalwabbit")
    monkeypatch.setattr(sys, "argv", [name, "--folder", str(tmp_path), *SMALL[name].split()])
    with contextlib.suppress(SystemExit):  # a goal is missed at this size
        runpy.run_path(str(BENCHMARKS / f"{name}.py"), run_name="__main__")
    assert "| ---: |" in capsys.readouterr().out


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
def test_a_published_file_of_criteo_gives_the_rows_that_were_written(name, tmp_path):
    criteo_rows = importlib.import_module("criteo_rows")
    (rows,) = criteo_rows.StandIn(300).blocks()
    text = published(rows)
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    for n_rows in (None, 200):
        (found,) = criteo_rows.read_tsv(tmp_path / name, n_rows)
        np.testing.assert_array_equal(found.clicked, rows.clicked[:n_rows])
        np.testing.assert_array_equal(found.numbers, rows.numbers[:n_rows])
        np.testing.assert_array_equal(found.categories, rows.categories[:n_rows])


def test_numbers_of_criteo_share_logarithmic_buckets():
    criteo_rows = importlib.import_module("criteo_rows")
    numbers = np.zeros((6, criteo_rows.NUMBERS))
    numbers[:, 0] = [2, 1, 1000, 1001, 2000, np.nan]
    categories = np.zeros((6, criteo_rows.CATEGORIES), np.int64)
    ids = criteo_rows.features(criteo_rows.RawRows(numbers[:, 0] > 0, numbers, categories), 30)
    same = [np.array_equal(ids[first], ids[second]) for first, second in ((0, 1), (2, 3), (3, 4))]
    assert same == [False, True, False]
    assert len(np.unique(ids, axis=0)) == 5


def test_criteo_runs_on_a_stand_in_and_on_a_file(tmp_path, capsys):
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


def test_chaos_tells_runs_with_other_bits_apart(capsys):
    chaos = importlib.import_module("chaos")
    way = chaos.Way("batches", "threads", "disk")
    same, other = (
        chaos.Trial(seed, way, ("kill",), 1.0, failure)
        for seed, failure in ((4, ""), (5, "ended with other bits"))
    )
    assert chaos.line_of(same).endswith("kill | 1.0 s | same bits")
    assert chaos.line_of(other).startswith("seed 5 | batches, threads, disk | ")
    chaos.report(Namespace(seed=4, markdown=None), [same, other])
    assert "1 of 2 runs ended with the bits" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_twelve_trials_of_chaos_for_real(tmp_path):
    report = tmp_path / "report.md"
    options = ("--trials", 12, "--jobs", 2, "--markdown", report)
    run_python(BENCHMARKS / "chaos.py", *options, timeout=980)
    assert "12 of 12 runs ended with the bits of an undisturbed run" in report.read_text()


def fetch(*, subset):
    """A small substitute for ``fetch_rcv1``."""
    sizes = {"train": 3000, "test": 1000}
    corpus = Corpus(sizes[subset], 2000, 30.0, part=int(subset == "test"))
    (block,) = corpus.blocks()
    positive = np.asarray(block.labels)[:, 0] > 0
    target = np.stack([~positive, positive], axis=1).astype(np.uint8)
    return Bunch(
        data=scipy.sparse.csr_matrix(
            (block.values, block.ids, block.indptr), (block.n_rows, 2000), dtype=np.float64
        ),
        target=scipy.sparse.csr_matrix(target),
        target_names=np.array(["C11", "CCAT"], dtype=object),
    )


def test_rcv1(tmp_path, monkeypatch, capsys):
    main = runpy.run_path(str(EXAMPLES / "rcv1.py"))["main"]
    monkeypatch.setattr(sklearn.datasets, "fetch_rcv1", fetch)
    main([str(tmp_path)])
    shown = capsys.readouterr().out
    assert "train: 3,000 rows" in shown
    assert "on 1,000 other rows: error 0." in shown
    main([str(tmp_path), "--train-on-large", "--passes", "2"])
    assert "trained on 2,000 rows" in capsys.readouterr().out
