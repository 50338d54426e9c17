"""Files of cluster/ for its tests, and the commands in them as plain processes."""

import os
import re
import sys
from pathlib import Path

CLUSTER = Path(__file__).parents[2] / "cluster"


def blocks(heading):
    """The shell commands of one section of cluster/README.md, block by block."""
    text = (CLUSTER / "README.md").read_text()
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return re.findall(r"^```sh\n(.*?)^```", section, re.M | re.S)


def replaced(text, places):
    """`text` with the names of hosts, ports and folders of a cluster as they are in a test."""
    for name, place in places.items():
        assert name in text or len(places) > 1, (name, text)
        text = text.replace(name, place)
    return text


def environment(folder, **variables):
    """Variables for a process that finds `dask`, `dadagrad` and `python` as installed ones are."""
    programs = folder / "bin"
    if not programs.exists():  # written once: a shell may have begun one, and not read it yet
        programs.mkdir()
        for name, module in (("dask", "-m dask"), ("dadagrad", "-m dadagrad"), ("python", "")):
            (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n')
            (programs / name).chmod(0o755)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    kept["PATH"] = f"{programs}:{Path(sys.executable).parent}:{kept['PATH']}"
    kept["PYTHONPATH"] = str(CLUSTER.parent)
    usual = {"DASK_LOGGING__DISTRIBUTED": "info", "DASK_DADAGRAD__WORKERS_TIMEOUT": "90s"}
    return kept | usual | variables
