"""Replies of workers travel without copies, and clusters are started with their settings."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import pytest
from distributed.protocol.serialize import deserialize, serialize
from helpers.training_cases import make_data
from helpers.zarr_cases import write_zarr

from dadagrad.data import open_dataset
from dadagrad.kernels.packed_ids import pack, unpack
from dadagrad.training.engines.dask.engine import open_engine
from dadagrad.training.engines.dask.messages import Reply
from dadagrad.training.messages import Result
from dadagrad.training.state.slices import FeatureSlice, Gradient
from dadagrad.training.worker.progressive import ProgressiveMetrics

THROUGH_THE_SCHEDULER = {"pickle-protocol": 4}


@pytest.mark.parametrize("n_touched", [0, 5_000])
def test_the_arrays_of_a_gradient_are_sent_as_they_are(n_touched):
    gradient = np.random.default_rng(5).normal(size=(n_touched, 2)).astype(np.float32)
    positions = np.arange(0, 3 * n_touched, 3, dtype=np.int32)
    result = Result(
        ProgressiveMetrics(3, 9, 3.0, np.ones(2), np.zeros(2)),
        FeatureSlice(
            pack(positions), Gradient(gradient, np.zeros((0, 0), np.float32), np.ones((2, 2)))
        ),
    )
    reply = Reply("tcp://here:1", {"part-00001": "torn"}, {}, (result,), (None,))
    header, frames = serialize(reply, context=THROUGH_THE_SCHEDULER)
    if n_touched:
        assert any(np.shares_memory(np.asarray(frame), gradient) for frame in frames[1:])
    back = deserialize(header, [bytes(frame) for frame in frames])  # read-only, as from a network
    assert replace(back, results=()) == replace(reply, results=())
    (arrived,) = back.results
    np.testing.assert_array_equal(unpack(arrived.change.ids, np.int32), positions)
    for name, array in result.change.content.arrays.items():
        np.testing.assert_array_equal(arrived.change.content.arrays[name], array)
        assert arrived.change.content.arrays[name].dtype == array.dtype
    assert arrived.metrics.weight == 3.0
    np.testing.assert_array_equal(arrived.metrics.loss, [1.0, 1.0])


def test_a_vocabulary_is_sent_as_bits():
    ids = np.flatnonzero(np.random.default_rng(3).random(80_000) < 0.3)
    reply = Reply("", {}, {}, (pack(ids),), ((None,),))
    header, frames = serialize(reply, context=THROUGH_THE_SCHEDULER)
    assert sum(memoryview(frame).nbytes for frame in frames) < 80_000 / 8 + 500 < ids.nbytes
    (arrived,) = deserialize(header, frames).results
    np.testing.assert_array_equal(unpack(arrived, np.int64), ids)


def listening() -> set[Any]:
    """The addresses at which this process and those that it started listen."""
    this = psutil.Process()
    return {
        connection.laddr
        for process in (this, *this.children(recursive=True))
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }


def test_a_cluster_that_is_started_has_its_settings_and_listens_here_alone(tmp_path, monkeypatch):
    names = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
    # A cluster started earlier in this process leaves its setting in the environment.
    monkeypatch.delenv(names[0], raising=False)
    monkeypatch.setenv(names[1], "1000000")  # what is set here counts
    data = open_dataset(write_zarr(make_data((9,)), tmp_path / "data"))

    def seen() -> list[object]:
        import dask.config

        settings = ("distributed.worker.profile.enabled", "distributed.admin.low-level-log-length")
        return [*(os.environ[name] for name in names), *map(dask.config.get, settings)]

    def kept_messages(dask_scheduler: Any) -> set[int]:
        return {stream.recent_message_log.maxlen for stream in dask_scheduler.stream_comms.values()}

    before = listening()  # clusters of other tests
    with open_engine(data, 1, None) as engine:
        assert engine.client.direct_to_workers
        (found,) = engine.client.run(seen).values()
        assert engine.client.run_on_scheduler(kept_messages) == {10}
        started = listening() - before
    assert found == [str(128 << 20), "1000000", False, 10]
    assert len(started) >= 4
    assert all(ipaddress.ip_address(address.ip).is_loopback for address in started)
