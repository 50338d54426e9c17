"""The tables of ``examples/papers`` at small sizes."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.scripts import load_example
from helpers.zarr_cases import write_zarr

from dadagrad.data.synthetic import Corpus


def table(shown: str) -> list[list[str]]:
    """Cells of a Markdown table, without its header."""
    lines = [line for line in shown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_motivating_example(capsys):
    load_example("papers/motivating_example").main(["--features", "4", "--eps", "0.2", "0.1"])
    rows = table(capsys.readouterr().out)
    assert len(rows) == 2 * 2 * 3
    for _, _, _, _, adagrad, descent, least in rows:
        assert float(adagrad) == 4.0
        assert float(descent) >= float(least)


def test_ada_fd(capsys):
    load_example("papers/ada_fd").main(
        ["--features", "12", "--rows", "60", "--tuning", "10", "--rank", "3"]
    )
    rows = table(capsys.readouterr().out)
    assert [row[0] for row in rows] == [
        "ADA-FULL", "ADA-FD", "corrected sketch", "ADA-DIAG",
        "ADA-FULL", "ADA-FD", "corrected sketch", "ADA-DIAG", "RADAGRAD", "ADA-LR", "FD-SON",
    ]  # fmt: skip
    assert all(0.0 < float(row[4].replace(",", "")) < 1e4 for row in rows)


def test_l1_projections(capsys):
    load_example("papers/l1_projections").main(
        ["--features", "2000", "3000", "--steps", "20", "--radius", "3"]
    )
    rows = table(capsys.readouterr().out)
    assert [row[0] for row in rows] == ["2,000", "3,000"]
    assert all(np.isfinite(float(cell)) for row in rows for cell in row[3:])


def test_l1_projections_of_a_dataset(capsys, tmp_path):
    url = write_zarr(Corpus(30, 1000, 20.0).dataset(), tmp_path)
    load_example("papers/l1_projections").main(["--data", url, "--steps", "20", "--radius", "3"])
    (row,) = table(capsys.readouterr().out)
    assert row[0] == "1,000"


def test_projections_that_do_not_agree_are_refused(monkeypatch):
    script = load_example("papers/l1_projections")
    heap = script.BALLS["heap"]
    monkeypatch.setitem(script.BALLS, "pivots", lambda n, radius: heap(n, 2 * radius))
    with pytest.raises(SystemExit, match="do not agree"):
        script.main(["--features", "2000", "--steps", "20", "--radius", "0.5"])
