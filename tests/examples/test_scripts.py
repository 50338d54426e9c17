"""Every example script can be imported, and the benchmarks of one process run at small sizes."""

import contextlib
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.rglob("*.py"))
SMALL = {
    "outputs": "--rows 500 --features 2000 --rounds 1",
    "parts": "--rows 500 --features 2000 --repeats 1",
    "projections": "--features 2000 --changed 20 --steps 20 --slow-steps 5",
    "reading": "--rows 500 --repeats 1",
    "replay": "--rows 500 --features 2000 --nnz 20 --streams 2",
    "sketch": "--rows 12 --features 100 --rounds 1",
    "vowpal_wabbit": "--rows 500 --features 2000 --rounds 1",
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_it_can_be_imported(script, monkeypatch):
    monkeypatch.syspath_prepend(str(script.parent))
    runpy.run_path(str(script), run_name="imported")


@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_makes_its_table(name, tmp_path, monkeypatch, capsys):
    if name == "vowpal_wabbit":
        pytest.importorskip("vowpalwabbit")
    script = EXAMPLES / "benchmarks" / f"{name}.py"
    monkeypatch.syspath_prepend(str(script.parent))
    monkeypatch.setattr(sys, "argv", [name, "--folder", str(tmp_path), *SMALL[name].split()])
    with contextlib.suppress(SystemExit):  # a goal is missed at this size
        runpy.run_path(str(script), run_name="__main__")
    assert "| ---: |" in capsys.readouterr().out
