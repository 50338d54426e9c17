"""Servers and processes that all tests of stores that fail share: starting them takes seconds."""

from functools import partial

import pytest
from helpers.cluster_processes import WARM, Nursery
from helpers.faulty_proxy import Proxy
from helpers.runs import Program, write_data
from helpers.servers import BUCKET, moto_server, rclone_server


@pytest.fixture(scope="package")
def servers(tmp_path_factory):
    """One of each kind: "rclone" ignores the condition of create-only writes, "moto" does not."""
    with (
        rclone_server(tmp_path_factory.mktemp("rclone")) as rclone,
        moto_server(tmp_path_factory.mktemp("moto")) as moto,
    ):
        yield {"rclone": rclone, "moto": moto}


@pytest.fixture
def url(request):
    """URL of a folder of its own for each test, on any server."""
    return f"s3://{BUCKET}/{request.node.name.translate(str.maketrans('[]', '--'))}"


@pytest.fixture(params=["files", "moto", "rclone"])
def folder(request, servers, url, tmp_path, monkeypatch):
    """URL of a folder that is not there yet, in each kind of store; the environment says how."""
    if request.param == "files":
        return str(tmp_path / "folder")
    servers[request.param].set_environment(monkeypatch)
    return url


@pytest.fixture
def proxy(servers, monkeypatch):
    """Before the server that honours create-only writes."""
    with Proxy(servers["moto"]) as proxy:
        proxy.server.set_environment(monkeypatch)
        yield proxy


@pytest.fixture(scope="package")
def local_data(tmp_path_factory):
    return write_data(str(tmp_path_factory.mktemp("data") / "data"))


@pytest.fixture
def new_program(nursery, local_data):
    """Makes the program of a run in a folder, on the local data unless others are given."""
    return partial(Program, nursery, data=local_data)


@pytest.fixture(scope="package")
def nursery(tmp_path_factory):
    with Nursery(tmp_path_factory.mktemp("processes"), prelude=WARM) as made:
        yield made
