"""Clusters of real processes and data for them, shared by the tests of faults."""

import dask.config
import pytest
from helpers.cluster_processes import Cluster, Nursery
from helpers.fault_cases import CONFIG, DATA_SIZES
from helpers.training_cases import bits, make_data
from helpers.zarr_cases import write_zarr

import dadagrad.clusters  # noqa: F401 (adds its defaults to the configuration)
from dadagrad import train
from dadagrad.clusters import monitor


@pytest.fixture(scope="session")
def nursery(tmp_path_factory):
    environment = {
        # Else the steps of small data would be left to one worker.
        "DASK_DADAGRAD__TASK_WORK": "1",
        "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "false",
    }
    with Nursery(tmp_path_factory.mktemp("nursery"), environment) as made:
        yield made


@pytest.fixture(scope="session")
def shared_cluster(nursery):
    with Cluster(nursery, 2) as made:
        yield made


@pytest.fixture
def cluster(shared_cluster):
    """A cluster of two workers; what an earlier test has killed is there again."""
    if shared_cluster.scheduler.alive:
        shared_cluster.have_workers(2)
    else:
        shared_cluster.restart(2)
    return shared_cluster


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Six partitions, of 720 rows in all."""
    return write_zarr(make_data(DATA_SIZES), tmp_path_factory.mktemp("data") / "train")


@pytest.fixture(scope="session")
def expected(data):
    """The bits of the run of `CONFIG` that nobody disturbed, on threads."""
    return bits(train(data, CONFIG))


@pytest.fixture(autouse=True)
def as_in_a_long_run(monkeypatch):
    """Every row is worth a task, and the short runs see workers come and go."""
    monkeypatch.setitem(dask.config.config["dadagrad"], "task-work", 1)
    monkeypatch.setattr(monitor, "LOOK_SECONDS", 0.1)
