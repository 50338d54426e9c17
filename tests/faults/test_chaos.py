"""``examples/benchmarks/chaos.py``: what it says of runs, and a few of them for real."""

import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "benchmarks" / "chaos.py"


@pytest.fixture
def chaos(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import chaos

    return chaos


def test_runs_with_other_bits_are_told_apart(chaos, capsys):
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
def test_twelve_trials_for_real(tmp_path):
    report = tmp_path / "report.md"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--trials", "12", "--jobs", "2", "--markdown", str(report)],
        capture_output=True,
        text=True,
        check=False,
        timeout=980,
    )
    assert done.returncode == 0, done.stderr
    assert "12 of 12 runs ended with the bits of an undisturbed run" in report.read_text()
