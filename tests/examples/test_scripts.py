"""Every example script can be imported, so it uses only names that exist."""

from __future__ import annotations

import runpy

import pytest
from helpers.scripts import EXAMPLES

SCRIPTS = sorted(EXAMPLES.rglob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_it_can_be_imported(script, monkeypatch):
    monkeypatch.syspath_prepend(str(script.parent))
    runpy.run_path(str(script), run_name="imported")
