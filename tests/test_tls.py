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
from processes import dask_command, free_port, running, wait_for_port
from tornado.ioloop import IOLoop

from dadagrad import TrainConfig, ingest, train
from dadagrad.cli import dadagrad
from dadagrad.synthetic import Corpus

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


def refused(command: str, *arguments: object, scheduler: str) -> str:
    """The one line that a command ends with, promptly and with exit code 2."""
    begun = time.monotonic()
    given = [command, *map(str, arguments), "--scheduler", scheduler]
    result = CliRunner().invoke(dadagrad, given)
    assert time.monotonic() - begun < 8
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    (line,) = result.stderr.splitlines()
    start = f"dadagrad: error: no Dask scheduler answers at {scheduler} ("
    assert line.startswith(start)
    return line.removeprefix(start)


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
    assert secret["examples"] == 600
    config = TrainConfig(batch_size=100, step_size=0.3)
    assert secret["digest"] == train(str(data), config).model.digest


def test_all_talk_is_encrypted(scheduler, certificates):
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
    from dadagrad.data.dataset import open_dataset

    assert open_dataset(str(tmp_path / "out")).fingerprint == open_dataset(str(data)).fingerprint


@pytest.mark.parametrize("command", ["train", "ingest"])
def test_without_a_certificate(command, scheduler, data, tmp_path):
    given = {
        "train": (data, *TRAIN),
        "ingest": (data.with_name("train.svmlight"), "--out", tmp_path / "out"),
    }
    said = refused(command, *given[command], scheduler=f"tls://{scheduler}")
    assert said == (
        "this process has no certificates: DASK_DISTRIBUTED__COMM__TLS__CA_FILE, "
        "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT not set); set them"
    )
    assert not (tmp_path / "out").exists()


class TestRefused:
    """`dadagrad train` says which certificate or address is wrong, and what would be right."""

    pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

    @pytest.fixture(autouse=True)
    def no_socket_left(self):
        """Tornado keeps that of a failed handshake until there is another loop."""
        yield

        async def look() -> None:
            IOLoop.current()

        asyncio.run(look())
        gc.collect()

    @pytest.fixture(autouse=True)
    def in_a_folder(self, data, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        self.data = data

    def train(self, address: str, variables: dict[str, str]) -> str:
        with configured(variables):
            return refused("train", self.data, *TRAIN, scheduler=address)

    def test_a_tcp_address_of_a_tls_scheduler(self, scheduler):
        said = self.train(f"tcp://{scheduler}", {})
        assert "it ended the connection at once, as one that uses TLS does); if so" in said
        assert f"give its address as tls://{scheduler}, and the certificates by DASK_" in said

    def test_a_tcp_address_where_encryption_is_required(self, scheduler, certificates):
        assert self.train(f"tcp://{scheduler}", certificates) == (
            f"Dask is configured to require encryption); give its address as tls://{scheduler}"
        )

    def test_a_tls_address_of_a_scheduler_without_it(self, open_scheduler, certificates):
        assert self.train(f"tls://{open_scheduler}", certificates) == (
            "it talks, but without TLS); start it with certificates, or give its address as "
            f"tcp://{open_scheduler}"
        )

    def test_a_certificate_of_another_authority(self, scheduler, certificates, tmp_path):
        other = write_certificates(tmp_path / "other")
        said = self.train(f"tls://{scheduler}", other)
        assert "its certificate is not to be trusted: self-signed certificate in" in said
        authority = {name: certificates[name] for name in certificates if "CA_FILE" in name}
        said = self.train(f"tls://{scheduler}", other | authority)
        assert said.startswith("it refuses the certificate of this process: ")

    def test_a_file_that_is_not_there(self, scheduler, certificates, tmp_path):
        name = "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY"
        wrong = certificates | {name: f"{tmp_path}/none.pem"}
        said = self.train(f"tls://{scheduler}", wrong)
        assert said.startswith(f"{name} names {tmp_path}/none.pem: No such file or directory)")

    def test_a_key_of_another_certificate(self, scheduler, certificates, tmp_path):
        name = "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY"
        wrong = certificates | {name: write_certificates(tmp_path / "other")[name]}
        said = self.train(f"tls://{scheduler}", wrong)
        assert f"{tmp_path}/other/key.pem cannot be used: " in said
        assert "PRIVATE KEY" not in said
