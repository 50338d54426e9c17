"""What the tests of cluster/ share: its files, and the commands in them as plain processes."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

CLUSTER = Path(__file__).parents[2] / "cluster"


def blocks(heading: str) -> list[str]:
    """The shell commands of one section of cluster/README.md, block by block."""
    text = (CLUSTER / "README.md").read_text()
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return re.findall(r"^```sh\n(.*?)^```", section, re.M | re.S)


def replaced(text: str, places: Mapping[str, str]) -> str:
    """`text` with the names of hosts, ports and folders of a cluster as they are in a test."""
    for name, place in places.items():
        assert name in text or len(places) > 1, (name, text)
        text = text.replace(name, place)
    return text


def environment(folder: Path, **variables: str) -> dict[str, str]:
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


@contextlib.contextmanager
def started(
    command: list[str], log: Path, variables: Mapping[str, str], folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is there until the end of the block, told to end and then made to."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=dict(variables), cwd=folder
        )
        try:
            yield process
        except BaseException as error:
            error.add_note(f"{command} wrote:\n{log.read_text(errors='replace')}")
            raise
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for_port(port: int) -> None:
    """Until something listens there on the loopback interface."""
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_for_file(pattern: str, folder: Path) -> None:
    """Until a file of that pattern is in the folder."""
    deadline = time.monotonic() + 60
    while not any(folder.glob(pattern)):
        assert time.monotonic() < deadline, sorted(folder.rglob("*"))
        time.sleep(0.02)
