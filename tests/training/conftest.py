"""A cluster for the tests of training."""

import pytest
from helpers.cluster_processes import Cluster, Nursery


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    """The address of a scheduler of its own process, with two workers of theirs."""
    with Nursery(tmp_path_factory.mktemp("nursery")) as nursery, Cluster(nursery, 2) as cluster:
        yield cluster.address
