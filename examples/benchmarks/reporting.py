"""Markdown tables of the benchmarks, the machine in words, and their place in the README.

Each script rewrites its own section between the markers ``<!-- NAME -->`` and ``<!-- /NAME -->``.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import dadagrad

PEERS = ("vowpalwabbit", "numpy", "numba", "zarr", "dask")


def parser(description: str | None, data: str | None = None) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks have; `description` is the script's.

    It requires a folder of real data sets where `data` says which those are.
    """
    argument_parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    argument_parser.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()) / "dadagrad-benchmarks",
        help="where data is made, and found again by the next run (default: %(default)s)",
    )
    argument_parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="rewrite this script's section of FILE"
    )
    if data is not None:
        folder = os.environ.get("DADAGRAD_DATA")
        argument_parser.add_argument(
            "--data",
            type=Path,
            default=folder,
            required=folder is None,
            help=f"folder that holds {data} (default: $DADAGRAD_DATA)",
        )
    return argument_parser


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: the first column to the left, the others to the right."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def setting() -> str:
    """One line: when, on what machine, with which versions."""
    load = os.getloadavg()[0]
    versions = ", ".join(f"{name} {version(name)}" for name in PEERS if find_spec(name))
    return (
        f"{datetime.date.today()}, {os.cpu_count()} cores ({_processor()}), load {load:.1f}, "
        f"Python {platform.python_version()}, dadagrad {dadagrad.__version__}, {versions}."
    )


def publish(name: str, text: str, file: Path | None) -> None:
    """Print `text`, and put it between the markers called `name` in `file`."""
    text = f"{text}\n\n{setting()}"
    print(text)
    if file is None:
        return
    before = file.read_text() if file.exists() else ""
    section = f"<!-- {name} -->\n{text}\n<!-- /{name} -->"
    pattern = re.compile(rf"<!-- {name} -->.*<!-- /{name} -->", re.DOTALL)
    if pattern.search(before):
        file.write_text(pattern.sub(lambda _: section, before))
    else:
        file.write_text(f"{before.rstrip()}\n\n{section}\n".lstrip())


def _processor() -> str:
    """The processor in words, without frequencies and trade marks."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        match = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text())
        if match:
            return re.sub(r"\((R|TM)\)| CPU| @.*| Processor", "", match[1]).strip()
    return platform.machine()
