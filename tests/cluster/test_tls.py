"""TLS between client, scheduler and workers: real processes, certificates made here."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import dask.config
import distributed  # noqa: F401 (adds its defaults to the configuration)
import pytest
import trustme
from click.testing import CliRunner
from helpers.processes import dask_command, free_port, running, wait_for_port
from tornado.ioloop import IOLoop

from dadagrad import TrainConfig, ingest, train
from dadagrad.cli import dadagrad
from dadagrad.data.synthetic import Corpus

TRAIN = ("--batch-size", "100", "--step-size", "0.3", "--model", "model", "--json", "--quiet")


def write_certificates(folder: Path) -> dict[str, str]:
    """An authority and a certificate that it signed; the variables that have Dask use them."""
    folder.mkdir()
    authority = trustme.CA()
    # Host names are not checked: this one is nobody's.
    issued = authority.issue_cert("nobody.example")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "certificate.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    roles = {"SCHEDULER", "WORKER", "CLIENT"}
    return (
        {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true"}
        | {"DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(folder / "authority.pem")}
        | {f"DASK_DISTRIBUTED__COMM__TLS__{x}__CERT": f"{folder}/certificate.pem" for x in roles}
        | {f"DASK_DISTRIBUTED__COMM__TLS__{x}__KEY": f"{folder}/key.pem" for x in roles}
    )


def running_dask(
    log: Path, variables: dict[str, str], *arguments: str
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A `dask` command that is there until the end of the block."""
    environment = os.environ | {"DASK_DISTRIBUTED__WORKER__DAEMON": "False"} | variables
    return running(dask_command(*arguments), environment=environment, log=log)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def certificates(folder) -> dict[str, str]:
    return write_certificates(folder / "ours")


@pytest.fixture(scope="module")
def data(folder) -> Path:
    Corpus(600, 100, 10.0, seed=1).write_text(folder / "train.svmlight")
    ingest(folder / "train.svmlight", str(folder / "train"), partition_nnz=2000)
    return folder / "train"


def at(port: int) -> tuple[str, ...]:
    """The options of a scheduler that listens there."""
    host = ("--host", "127.0.0.1", "--port", str(port))
    return (*host, "--dashboard-address", "127.0.0.1:0")


@pytest.fixture(scope="module")
def scheduler(folder, certificates) -> Iterator[str]:
    """The host and port of a scheduler that requires TLS, and has a worker."""
    port = free_port()
    host = f"127.0.0.1:{port}"
    worker = ("--nthreads", "1", "--no-nanny", "--dashboard-address", "127.0.0.1:0")
    with (
        running_dask(folder / "scheduler.log", certificates, "scheduler", *at(port)),
        running_dask(folder / "worker.log", certificates, "worker", f"tls://{host}", *worker),
    ):
        wait_for_port(port)
        yield host


@pytest.fixture(scope="module")
def open_scheduler(folder) -> Iterator[str]:
    """The host and port of a scheduler without TLS."""
    port = free_port()
    with running_dask(folder / "open.log", {}, "scheduler", *at(port)):
        wait_for_port(port)
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def configured(variables: dict[str, str]) -> Iterator[None]:
    """Dask configured as a process is that starts with these variables."""
    with dask.config.set(dask.config.merge(dask.config.config, dask.config.collect_env(variables))):
        yield


def test_a_run_over_tls_has_the_bits_of_one_here(scheduler, certificates, data, tmp_path):
    """By the command, and what is documented: nothing but Dask's own configuration."""
    command = [sys.executable, "-m", "dadagrad", "train", str(data), *TRAIN]
    answer = subprocess.run(
        [*command, "--scheduler", f"tls://{scheduler}"],
        env=os.environ | certificates | {"DASK_DADAGRAD__WORKERS_TIMEOUT": "90s"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert answer.returncode == 0, answer.stderr
    secret = json.loads(answer.stdout)
    assert secret["rows"] == 600
    config = TrainConfig(batch_size=100, step_size=0.3)
    assert secret["digest"] == train(str(data), config).model.digest


def test_all_connections_are_encrypted(scheduler, certificates):
    from distributed import Client

    with configured(certificates), Client(f"tls://{scheduler}", set_as_default=False) as client:
        client.wait_for_workers(1, timeout=60)
        (worker,) = client.scheduler_info()["workers"]
        assert worker.startswith("tls://")
        for address in (scheduler, worker.removeprefix("tls://")):
            with (
                configured({"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "false"}),
                pytest.raises(OSError),  # noqa: PT011 (Dask's own, and the reset of a connection)
            ):
                Client(f"tcp://{address}", timeout=1, set_as_default=False)


def test_ingest_over_tls(scheduler, certificates, data, tmp_path):
    source = data.with_name("train.svmlight")
    given = ["ingest", str(source), "--out", str(tmp_path / "out"), "--partition-nnz", "2000"]
    with configured(certificates):
        result = CliRunner().invoke(dadagrad, [*given, "--scheduler", f"tls://{scheduler}"])
    assert result.exit_code == 0, result.output
    from dadagrad.data import open_dataset

    assert open_dataset(str(tmp_path / "out")).digest == open_dataset(str(data)).digest


CASES = {
    "tcp address of a TLS scheduler": ("tcp", {}, "tls:// if it uses TLS"),
    "tcp address where encryption is required": ("tcp", "ours", "encryption required"),
    "no certificates": ("tls", {}, "TLS expects a `ssl_context`"),
    "another authority's certificates": ("tls", "other", "CERTIFICATE_VERIFY_FAILED"),
    "a file that does not exist": ("tls", "missing key", "No such file or directory"),
    "a key of another certificate": ("tls", "other key", "KEY_VALUES_MISMATCH"),
}


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("case", CASES)
def test_a_refusal_says_what_the_library_says(case, scheduler, certificates, data, tmp_path):
    scheme, files, expected = CASES[case]
    other = write_certificates(tmp_path / "other")
    key = "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY"
    variables = {
        "ours": certificates,
        "other": other,
        "missing key": certificates | {key: f"{tmp_path}/none.pem"},
        "other key": certificates | {key: other[key]},
    }
    with configured(variables[files] if files else {}):
        error = refused(data, f"{scheme}://{scheduler}", tmp_path)
    assert expected in error
    assert ("distributed.comm.tls.ca-file" in error) == (scheme == "tls")
    assert "PRIVATE KEY" not in error


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_tls_address_of_a_scheduler_without_tls(open_scheduler, certificates, data, tmp_path):
    with configured(certificates):
        error = refused(data, f"tls://{open_scheduler}", tmp_path)
    assert "SSL" in error
    assert "check that `dask scheduler` runs there" in error


def refused(data: Path, address: str, folder: Path) -> str:
    """The single line with which `dadagrad train` ends: promptly, and with exit code 2."""
    begun = time.monotonic()
    arguments = ["train", str(data), *TRAIN, "--model", str(folder / "model")]
    result = CliRunner().invoke(dadagrad, [*arguments, "--scheduler", address])
    assert time.monotonic() - begun < 8
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"dadagrad: error: no Dask scheduler answers at {address} (")
    release_sockets()
    return line


def release_sockets() -> None:
    """Make Tornado close the socket of a failed handshake, which it keeps until another loop."""

    async def use_another_loop() -> None:
        IOLoop.current()

    asyncio.run(use_another_loop())
    gc.collect()
