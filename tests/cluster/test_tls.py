"""TLS between client, scheduler and workers: real processes, certificates made here."""

import asyncio
import contextlib
import gc
import json
import os
import sys
import time
import warnings

import dask.config
import distributed  # noqa: F401 (adds its defaults to the configuration)
import pytest
import trustme
from click.testing import CliRunner
from helpers.processes import free_port, running, wait_for_port
from tornado.ioloop import IOLoop

from dadagrad import TrainConfig, ingest, open_dataset, train
from dadagrad.cli import dadagrad
from dadagrad.data.synthetic import Corpus

TRAIN = ("--batch-size", "100", "--step-size", "0.3", "--json", "--quiet")


def write_certificates(folder):
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


@pytest.fixture(scope="module", autouse=True)
def no_sockets_left():
    """A handshake that failed in another thread may leave its socket until the end of the tests."""
    yield
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        release_sockets()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def certificates(folder):
    return write_certificates(folder / "ours")


@pytest.fixture(scope="module")
def data(folder):
    Corpus(600, 100, 10.0, seed=1).write_text(folder / "train.svmlight")
    ingest(folder / "train.svmlight", str(folder / "train"), partition_nnz=2000)
    return folder / "train"


@pytest.fixture(scope="module")
def scheduler(certificates):
    """The host and port of a scheduler that requires TLS, and has a worker."""
    variables, port = os.environ | certificates, free_port()
    dask, worker = (sys.executable, "-m", "dask"), ("--nthreads", "1", "--no-nanny")
    address = ("--host", "127.0.0.1", "--port", str(port))
    with running([*dask, "scheduler", *address, "--no-dashboard"], environment=variables):
        wait_for_port(port)
        command = [*dask, "worker", f"tls://127.0.0.1:{port}", *worker, "--no-dashboard"]
        with running(command, environment=variables):
            yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def configured(variables):
    """Dask configured as a process is that starts with these variables."""
    with dask.config.set(dask.config.merge(dask.config.config, dask.config.collect_env(variables))):
        yield


def test_ingest_and_a_run_over_tls_have_the_bits_of_those_here(
    scheduler, certificates, data, tmp_path
):
    """By what is documented: nothing but Dask's own configuration."""
    source, copy = str(data.with_name("train.svmlight")), str(tmp_path / "copy")
    config = TrainConfig(batch_size=100, step_size=0.3)
    with configured(certificates):
        for command in (
            ("ingest", source, "--out", copy, "--partition-nnz", "2000"),
            ("train", copy, *TRAIN, "--model", str(tmp_path / "model")),
        ):
            result = CliRunner().invoke(dadagrad, [*command, "--scheduler", f"tls://{scheduler}"])
            assert result.exit_code == 0, result.output
    assert open_dataset(copy).digest == open_dataset(str(data)).digest
    assert json.loads(result.stdout)["digest"] == train(str(data), config).model.digest


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


CASES = {
    "tcp address of a TLS scheduler": ("tcp", {}, "tls:// if it uses TLS"),
    "no certificates": ("tls", {}, "TLS expects a `ssl_context`"),
    "another authority's certificates": ("tls", "other", "CERTIFICATE_VERIFY_FAILED"),
    "a certificate by another authority": ("tls", "other client", "that the scheduler trusts"),
}


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("case", CASES)
def test_a_refusal_says_what_the_library_says(case, scheduler, certificates, data, tmp_path):
    scheme, files, expected = CASES[case]
    other = write_certificates(tmp_path / "other")
    client = {name for name in certificates if "CLIENT" in name}
    variables = {
        "other": other,
        "other client": certificates | {name: other[name] for name in client},
    }
    with configured(variables[files] if files else {}):
        error = refused(data, f"{scheme}://{scheduler}", tmp_path)
    assert expected in error
    assert ("distributed.comm.tls.ca-file" in error) == (scheme == "tls")
    assert "PRIVATE KEY" not in error


def refused(data, address, folder):
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


def release_sockets():
    """Make Tornado close the socket of a failed handshake, which it keeps until another loop."""

    async def use_another_loop():
        IOLoop.current()

    asyncio.run(use_another_loop())
    gc.collect()
