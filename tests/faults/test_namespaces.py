"""Scheduler, workers and coordinator in network namespaces: addresses of their own, as machines."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from helpers.processes import dask_command, running, wait_until

from dadagrad.model.model import Model

NAMES = ("scheduler", "one", "two", "train")
# Of this process: others may test at the same time. A device's name has at most 15 letters.
PREFIX = f"d{os.getpid()}"
BRIDGE = f"{PREFIX}-bridge"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=10)


def inside(name: str, command: list[str]) -> list[str]:
    return ["ip", "netns", "exec", f"{PREFIX}-{name}", *command]


def address(name: str) -> str:
    return f"10.213.7.{NAMES.index(name) + 10}"


SCHEDULER = f"tcp://{address('scheduler')}:8786"


@pytest.fixture(scope="module")
def network() -> Iterator[None]:
    """A namespace for each of `NAMES`, all on one bridge."""
    with contextlib.ExitStack() as stack:
        try:
            ip("link", "add", BRIDGE, "type", "bridge")
            stack.callback(ip, "link", "del", BRIDGE)
            ip("link", "set", BRIDGE, "up")
            for name in NAMES:
                ip("netns", "add", f"{PREFIX}-{name}")
                stack.callback(ip, "netns", "del", f"{PREFIX}-{name}")
                outer = f"{PREFIX}-{name[:5]}"
                ip("link", "add", outer, "type", "veth", "peer", "name", "eth0",
                   "netns", f"{PREFIX}-{name}")  # fmt: skip
                ip("link", "set", outer, "master", BRIDGE, "up")
                ip("-n", f"{PREFIX}-{name}", "addr", "add", f"{address(name)}/24", "dev", "eth0")
                for device in ("eth0", "lo"):
                    ip("-n", f"{PREFIX}-{name}", "link", "set", device, "up")
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", b"") or str(error).encode()
            pytest.skip(f"no network namespaces can be made here: {said.decode().strip()}")
        yield


@pytest.fixture
def cluster(network, tmp_path) -> Iterator[None]:
    """A scheduler and two workers, each on a machine of its own."""
    with contextlib.ExitStack() as stack:

        def start(name: str, *arguments: str) -> None:
            command, log = inside(name, dask_command(*arguments)), tmp_path / f"{name}.log"
            stack.enter_context(running(command, log=log, patience=3.0))

        options = ("--host", address("scheduler"), "--port", "8786", "--no-dashboard")
        start("scheduler", "scheduler", *options)
        for name in ("one", "two"):
            options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--name", name)
            start(name, "worker", SCHEDULER, *options, "--local-directory", str(tmp_path))
            log = tmp_path / f"{name}.log"
            wait_until(lambda log=log: "Registered to" in log.read_text(), 60, name)
        yield


@pytest.mark.slow
def test_a_worker_whose_cable_is_pulled(cluster, data, expected, tmp_path):
    """No connection is closed: nothing comes any more. The other does its work in the end."""
    command = [
        *(sys.executable, "-m", "dadagrad", "train", data, "--model", str(tmp_path / "model")),
        *("--checkpoints", str(tmp_path / "run"), "--checkpoint-every", "5", "--step-size", "0.3"),
        *("--batch-size", "60", "--l1", "1e-4", "--passes", "5", "--scheduler", SCHEDULER),
    ]
    with running(inside("train", command), log=tmp_path / "log") as run:
        wait_until(lambda: any((tmp_path / "run").glob("manifest-*")), 60, "a checkpoint")
        ip("-n", f"{PREFIX}-two", "link", "set", "eth0", "down")
        try:
            assert run.wait(110) == 0
        finally:
            ip("-n", f"{PREFIX}-two", "link", "set", "eth0", "up")
    assert Model.load(str(tmp_path / "model")).digest == expected[-1]
