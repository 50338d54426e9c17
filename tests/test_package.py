"""Names of the package, and the time of its import."""

from __future__ import annotations

import re
import subprocess
import sys

import dadagrad


def test_every_public_name_exists():
    assert set(dadagrad.__all__) == {name for name in dadagrad.__all__ if getattr(dadagrad, name)}
    assert set(dadagrad.__all__) <= set(dir(dadagrad))


def test_the_import_takes_less_than_50_ms():
    """The least of five measurements: other programs can delay an import."""
    command = [sys.executable, "-X", "importtime", "-c", "import dadagrad"]
    microseconds = []
    for _ in range(5):
        measured = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        line = re.search(r"\|\s+(\d+) \| dadagrad$", measured, re.MULTILINE)
        assert line is not None
        microseconds.append(int(line[1]))
    assert min(microseconds) < 50_000
