"""``examples/benchmarks/chaos.py``: what it says of runs, and a few of them for real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "benchmarks" / "chaos.py"


@pytest.fixture
def chaos(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import chaos

    return chaos


def test_other_bits_and_runs_without_an_end_are_told_apart(chaos):
    def said(bits: str | None) -> str:
        return chaos.line_of(0, chaos.Trial("kill-worker", 1.0, 2.0, 2, bits), "abc")[-1]

    assert [said(bits) for bits in ("abc", "abd", None)] == ["yes", "NO", "does not end"]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_three_trials_for_real(tmp_path):
    options = ["--trials", "3", "--rows", "6000", "--passes", "3", "--folder", str(tmp_path)]
    report = tmp_path / "report.md"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options, "--seed", "5", "--markdown", str(report)],
        capture_output=True,
        text=True,
        check=False,
        timeout=380,
    )
    assert done.returncode == 0, done.stderr
    assert "3 of 3 runs with a fault ended with the same bits" in report.read_text()
