"""A cluster that is started for a run can be reached from this machine alone."""

from __future__ import annotations

import ipaddress

import psutil
from helpers.training_cases import make_data
from helpers.zarr_cases import write_zarr

from dadagrad.data import open_dataset
from dadagrad.training.engines.dask.engine import DaskEngine


def test_all_its_processes_listen_on_the_loopback_interface(tmp_path):
    data = open_dataset(write_zarr(make_data((9,)), tmp_path / "data"))
    with DaskEngine(data, workers=1, client=None):
        process = psutil.Process()
        listening = [
            connection.laddr.ip
            for each in (process, *process.children(recursive=True))
            for connection in each.net_connections(kind="inet")
            if connection.status == psutil.CONN_LISTEN
        ]
    assert len(listening) >= 4
    assert all(ipaddress.ip_address(address).is_loopback for address in listening)
