"""Results travel without copies of their arrays, from workers that keep their memory."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from distributed.protocol.serialize import deserialize, serialize
from helpers.training_cases import make_data
from helpers.zarr_cases import write_zarr

from dadagrad.data import open_dataset
from dadagrad.kernels.packed_ids import pack, unpack
from dadagrad.training.engines.dask.engine import open_engine
from dadagrad.training.engines.dask.messages import Reply
from dadagrad.training.messages import Result
from dadagrad.training.state.slices import Gradient
from dadagrad.training.worker.progressive import ProgressiveMetrics

THROUGH_THE_SCHEDULER = {"pickle-protocol": 4}


def a_gradient(n_touched: int) -> Result:
    gradient = np.random.default_rng(5).normal(size=(n_touched, 2)).astype(np.float32)
    return Result(
        ProgressiveMetrics(3, 9, 3.0, np.ones(2), np.zeros(2)),
        np.arange(0, 3 * n_touched, 3, dtype=np.int32),
        Gradient(gradient, np.zeros((0, 0), np.float32), np.ones((2, 2))),
    )


@pytest.mark.parametrize("n_touched", [0, 1, 5_000])
def test_the_arrays_of_a_gradient_are_sent_as_they_are(n_touched):
    gradient = a_gradient(n_touched)
    gradient = replace(gradient, positions=pack(gradient.positions))
    message = Reply("tcp://here:1", {"part-00001": "torn"}, (gradient,), (None,))
    header, frames = serialize(message, context=THROUGH_THE_SCHEDULER)
    if n_touched:
        assert any(
            np.shares_memory(np.asarray(frame), gradient.change.gradient) for frame in frames[1:]
        )
    back = deserialize(header, [bytes(frame) for frame in frames])  # read-only, as from a network
    assert (back.worker, back.touched, back.skipped) == (
        message.worker,
        message.touched,
        message.skipped,
    )
    result, sent = back.results[0], a_gradient(n_touched)
    arrived = {"positions": unpack(result.positions, np.int32), **result.change.arrays}
    for name, array in {"positions": sent.positions, **sent.change.arrays}.items():
        np.testing.assert_array_equal(arrived[name], array)
        assert arrived[name].dtype == array.dtype
    assert result.metrics.weight == 3.0
    np.testing.assert_array_equal(result.metrics.loss, [1.0, 1.0])


def test_a_vocabulary_is_sent_as_bits():
    ids = np.flatnonzero(np.random.default_rng(3).random(80_000) < 0.3)
    header, frames = serialize(
        Reply("", {}, (pack(ids),), ((None,),)), context=THROUGH_THE_SCHEDULER
    )
    assert sum(memoryview(frame).nbytes for frame in frames) < 80_000 / 8 + 500 < ids.nbytes
    (arrived,) = deserialize(header, frames).results
    np.testing.assert_array_equal(unpack(arrived, np.int64), ids)


def test_a_cluster_that_is_started_has_the_settings_for_clusters(tmp_path, monkeypatch):
    names = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
    # A cluster started earlier in this process leaves its setting in the environment.
    monkeypatch.delenv(names[0], raising=False)
    monkeypatch.setenv(names[1], "1000000")  # what is set here counts
    data = open_dataset(write_zarr(make_data((9,)), tmp_path / "data"))

    def seen() -> list[object]:
        import dask.config

        return [
            *(os.environ[name] for name in names),
            dask.config.get("distributed.worker.profile.enabled"),
            dask.config.get("distributed.admin.low-level-log-length"),
        ]

    def kept_messages(dask_scheduler: Any) -> set[int]:
        return {stream.recent_message_log.maxlen for stream in dask_scheduler.stream_comms.values()}

    with open_engine(data, 1, None) as engine:
        client = engine.client
        assert client.direct_to_workers
        (found,) = client.run(seen).values()
        assert client.run_on_scheduler(kept_messages) == {10}
    assert found == [str(128 << 20), "1000000", False, 10]
