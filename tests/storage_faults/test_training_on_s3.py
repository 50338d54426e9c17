"""Training with data, checkpoints and model on S3: killed, hindered, cut off, and the same bits."""

import time
from contextlib import ExitStack, contextmanager

import pytest
from helpers.cluster_processes import Cluster
from helpers.faulty_proxy import Proxy, always, mishaps
from helpers.processes import free_port, wait_until
from helpers.runs import Program, refusal, saved, write_data
from helpers.servers import BUCKET, rclone_server

from dadagrad.storage.store import Storage

MISHAPS = {"503": 0.05, "reset": 0.02, "lose": 0.03, "cut": 0.02, "stall": 0.01}
NOISY = {"RUST_LOG": "trace", "DASK_LOGGING__DISTRIBUTED": "debug"}


def remote(server, monkeypatch, name):
    """A folder of the server that holds the data, in ``data``; the environment leads there."""
    server.set_environment(monkeypatch)
    write_data(f"s3://{BUCKET}/{name}/data")
    return f"s3://{BUCKET}/{name}"


@pytest.mark.parametrize(
    ("store", "order"), [("moto", "cluster first"), ("rclone", "cluster last")]
)
def test_killed_and_resumed(store, order, servers, nursery, monkeypatch):
    """By workers that have the address and the credentials from their environment, or by none."""
    server = servers[store]
    folder = remote(server, monkeypatch, f"killed-{store}-{order[8:]}")
    environment = server.environment | NOISY
    before = set(nursery.folder.iterdir())
    with Cluster(nursery, 2, environment) as cluster:
        program = Program(nursery, folder, f"{folder}/data", passes=4, environment=environment)
        on_cluster = ("--scheduler", cluster.address)
        program.options = on_cluster if order == "cluster first" else ()
        with saved(program, 10) as process:
            process.kill()
        program.options = () if order == "cluster first" else on_cluster
        program.assert_undisturbed(program.resume())
    # Neither what they wrote to the store nor what they said shows a credential.
    storage = Storage(folder)
    texts = {key: storage.get(key) for key in storage.list()}
    said = [path for path in set(nursery.folder.iterdir()) - before if path.is_file()]
    texts |= {path.name: path.read_bytes() for path in said}
    assert any(name.endswith("dask-worker.log") and text for name, text in texts.items())
    assert any("manifest" in name for name in texts)
    secrets = server.secret.encode(), server.key.encode()
    assert not [name for name, text in texts.items() if any(one in text for one in secrets)]


@pytest.fixture
def hindered(servers, monkeypatch):
    """Before a store that has the data, in ``hindered/data``."""
    remote(servers["moto"], monkeypatch, "hindered")
    with Proxy(servers["moto"]) as proxy:
        yield proxy


@contextmanager
def hindered_program(proxy, engine, nursery, name, more=None, **options):
    """A program on the store behind `proxy`, on "threads" or a "cluster", with `more` variables."""
    environment = proxy.server.environment | {"DADAGRAD_STORAGE_TIMEOUT": "1"} | (more or {})
    folder = f"s3://{BUCKET}/hindered"
    options |= {"data": f"{folder}/data", "environment": environment}
    with ExitStack() as stack:
        if engine == "cluster":
            cluster = stack.enter_context(Cluster(nursery, 2, environment))
            options["options"] = ("--scheduler", cluster.address)
        yield Program(nursery, f"{folder}/{name}", **options)


@pytest.mark.parametrize(
    ("engine", "seed"), [pytest.param("threads", 0, marks=pytest.mark.slow), ("cluster", 1)]
)
def test_a_store_with_mishaps(engine, seed, hindered, nursery):
    """One request in eight goes wrong, in every way there is; of data and of checkpoints."""
    hindered.act = mishaps(seed, MISHAPS)
    with hindered_program(hindered, engine, nursery, f"{engine}-{seed}") as program:
        program.assert_undisturbed(program.train())
    assert hindered.n_failed > 4


def test_a_server_that_dies_and_comes_back(nursery, tmp_path, monkeypatch):
    port = free_port()
    with ExitStack() as stack:
        with rclone_server(tmp_path, port) as server:
            folder = remote(server, monkeypatch, "dies")
            program = Program(nursery, folder, f"{folder}/data", passes=8)
            program.environment = server.environment
            process = stack.enter_context(saved(program, 20))
        asked = "; trying again for up to 120 seconds"
        wait_until(lambda: asked in process.log.read_text() or not process.alive, 60, "a retry")
        assert process.alive, process.text()
        with rclone_server(tmp_path, port):
            program.assert_undisturbed(process)
    assert asked in process.log.read_text()
    assert f"s3://{BUCKET} answers again" in process.log.read_text()


def test_a_store_that_is_gone_for_good(hindered, nursery):
    """The run ends in bounded time, says what it was asking for, and can be resumed later."""
    patience = {"DADAGRAD_STORAGE_PATIENCE": "0.7"}
    with hindered_program(hindered, "threads", nursery, "gone", patience, passes=8) as program:
        with saved(program, 10) as process:
            hindered.act = always("reset")
        begun = time.monotonic()
        message = refusal(process)
        assert time.monotonic() - begun < 40
    assert message.startswith("cannot ")
    assert f" in s3://{BUCKET}/hindered/" in message
    assert ": the endpoint cannot be reached (tried for " in message
    assert "check the network, the host name and AWS_ENDPOINT_URL" in message
    hindered.act = always("pass")
    program.assert_undisturbed(program.resume())
