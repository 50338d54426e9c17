"""Clusters for the tests of training."""

import pytest
from helpers.cluster_processes import Cluster, Nursery
from helpers.processes import local_cluster


@pytest.fixture(scope="package")
def nursery(tmp_path_factory):
    with Nursery(tmp_path_factory.mktemp("nursery")) as made:
        yield made


@pytest.fixture(scope="module")
def scheduler(nursery):
    """The address of a scheduler of its own process, with two workers of theirs."""
    with Cluster(nursery, 2) as cluster:
        yield cluster.address


@pytest.fixture
def scheduler_here():
    """The address of a scheduler with one worker, both in this process, which can be patched."""
    with local_cluster(1, processes=False) as cluster:
        yield cluster.scheduler_address
