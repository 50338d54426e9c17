"""Checkpoints come back bit for bit, and are written in the background."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_stores import Failing, json_values, memory_url, orphans, same, snapshot
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dadagrad import parts
from dadagrad.errors import AlreadyExists, InputError, StorageError
from dadagrad.storage import Storage
from dadagrad.training.background import LatestOnly
from dadagrad.training.checkpoint import CheckpointReader, CheckpointWriter, Snapshot


@pytest.mark.parametrize(
    "dtype",
    ["?", "i1", "u2", "<i4", ">i4", "u8", "f2", "<f4", ">f8", "f8", "g", "c8", "c16"],
)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (4, 3, 2)])
def test_every_dtype_and_shape(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    array = rng.integers(0, 2, shape).astype(dtype)
    url = memory_url()
    stored = Snapshot(1, {"array": array}, {})
    CheckpointWriter(url).save(stored)
    assert same(CheckpointReader(url).load(), stored)


def test_bits_of_nan_and_order_of_memory() -> None:
    odd = np.array([0x7FC00001, 0xFFC12345, 0x7F800001, 0x80000000], np.uint32).view(np.float32)
    fortran = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    stored = Snapshot(1, {"odd": odd, "fortran": fortran, "strided": np.arange(20)[::3]}, {})
    url = memory_url()
    CheckpointWriter(url).save(stored)
    assert same(CheckpointReader(url).load(), stored)


@given(hnp.arrays(st.sampled_from([np.float32, np.int64, np.uint8]), hnp.array_shapes(min_side=0)))
def test_arrays_in_many_parts(array: np.ndarray) -> None:
    url = memory_url()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "MAX_PART_BYTES", 16)
        CheckpointWriter(url).save(Snapshot(1, {"array": array}, {}))
        assert CheckpointReader(url).load().arrays["array"].tobytes() == array.tobytes()
    expected = -(-array.nbytes // 16)
    assert len([key for key in Storage(url).list() if key.endswith(".zst")]) == expected


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_meta_comes_back_exactly(meta: dict[str, Any]) -> None:
    url = memory_url()
    CheckpointWriter(url).save(Snapshot(0, {}, meta))
    # repr tells 1 from 1.0 from True, shows every bit of a float, and NaN equals NaN.
    assert repr(CheckpointReader(url).load().meta) == repr(meta)


def test_state_of_random_generators() -> None:
    state = np.random.default_rng(7).bit_generator.state
    url = memory_url()
    CheckpointWriter(url).save(Snapshot(0, {}, {"rng": state, "scalar": np.float32(0.1)}))
    meta = CheckpointReader(url).load().meta
    assert meta["rng"] == state
    assert meta["scalar"] == float(np.float32(0.1))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Snapshot(-1, {}, {}), "step of a checkpoint is -1"),
        (Snapshot(1, {"x": np.array([None])}, {}), "'x' is object"),
        (Snapshot(1, {"x": [1]}, {}), "'x' is list"),  # type: ignore[dict-item]
        (Snapshot(1, {}, {"a": {"b": [object()]}}), r"meta\.a\.b\[0\] is a object"),
        (Snapshot(1, {}, {"a": {1: 2}}), r"meta\.a has the key 1"),
    ],
)
def test_what_cannot_be_stored_is_refused(bad: Snapshot, message: str) -> None:
    writer = CheckpointWriter(memory_url())
    for save in (writer.save, writer.submit):
        with pytest.raises(InputError, match=message):
            save(bad)


def test_local_folder_and_keep(tmp_path: Path) -> None:
    url = str(tmp_path / "run")
    with CheckpointWriter(url, keep=2) as writer:
        for step in range(1, 6):
            writer.save(snapshot(step))
    infos = CheckpointReader(url).list(verify=True)
    assert [(info.step, info.valid, info.epoch) for info in infos] == [(5, True, 1), (4, True, 1)]
    assert infos[0].bytes > 0
    assert infos[0].meta["cursor"] == [0, 5]
    assert not orphans(url)
    # Nothing else is left behind, empty folders neither.
    assert len(os.listdir(url)) == 2 + 2 + 1
    with pytest.raises(InputError, match=r"no checkpoint of step 1 at .*steps \[4, 5\]"):
        CheckpointReader(url).load(1)
    with pytest.raises(InputError, match="keep=0"):
        CheckpointWriter(url, keep=0)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing of a run is there"):
        CheckpointReader(str(tmp_path / "absent")).load()
    (tmp_path / "zarr.json").write_text("{}")
    with pytest.raises(InputError, match="it is a dataset"):
        CheckpointReader(str(tmp_path)).load()
    assert CheckpointReader(str(tmp_path)).list() == []


class Gated(Storage):
    """Writes of parts wait for a gate."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.gate, self.reached = threading.Event(), threading.Event()

    def put(self, key: str, data: Any, *, create: bool = False) -> None:
        if key.endswith(".zst"):
            self.reached.set()
            assert self.gate.wait(30)
        super().put(key, data, create=create)


def test_submit_never_waits_and_the_newest_wins() -> None:
    url = memory_url()
    storage = Gated(url)
    with CheckpointWriter(storage, keep=9) as writer:
        array = np.zeros(10)
        begun = time.perf_counter()
        for step in range(1, 6):
            array[:] = step
            writer.submit(Snapshot(step, {"array": array}, {"step": step}))
            assert storage.reached.wait(30)  # the first is being written from now on
        array[:] = -1.0
        assert time.perf_counter() - begun < 5
        assert CheckpointReader(url).list() == []
        storage.gate.set()
        writer.wait()
        assert [info.step for info in CheckpointReader(url).list()] == [5, 1]
        for step in (1, 5):
            assert (CheckpointReader(url).load(step).arrays["array"] == step).all()


@pytest.mark.parametrize("call", ["check", "wait", "close", "submit"])
def test_an_error_in_the_background_is_raised_once(call: str) -> None:
    storage = Failing(memory_url(), at=0, how="raises")
    writer = CheckpointWriter(storage)
    storage.at = storage.writes + 1
    writer.submit(snapshot(1))
    deadline = time.monotonic() + 30
    while writer._background._error is None and time.monotonic() < deadline:
        time.sleep(0.001)
    arguments = [snapshot(9)] if call == "submit" else []
    with pytest.raises(StorageError, match="the store is full"):
        getattr(writer, call)(*arguments)
    writer.close()


def test_leaving_with_an_error_keeps_that_error(caplog: pytest.LogCaptureFixture) -> None:
    storage = Failing(memory_url(), at=0, how="raises")

    def fails() -> None:
        with CheckpointWriter(storage) as writer:
            storage.at = storage.writes + 1
            writer.submit(snapshot(1))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fails()
    assert "the last checkpoint was not written" in caplog.text


def test_close_commits_what_waits_and_is_final() -> None:
    url = memory_url()
    writer = CheckpointWriter(url)
    writer.submit(snapshot(1), copy=False)
    writer.submit(snapshot(2), copy=False)
    writer.close()
    writer.close()
    assert CheckpointReader(url).load().step == 2
    assert not [thread for thread in threading.enumerate() if "checkpoint" in thread.name]
    with pytest.raises(RuntimeError, match="is closed"):
        writer.submit(snapshot(3))


def test_latest_only_holds_two_items_at_most() -> None:
    class Item:
        alive = 0

        def __init__(self) -> None:
            Item.alive += 1

        def __del__(self) -> None:
            Item.alive -= 1

    gate = threading.Event()
    background: LatestOnly[Item] = LatestOnly(lambda item: gate.wait(30), "test")
    for _ in range(10):
        background.put(Item())
        assert Item.alive <= 3  # at work, waiting, and the one being handed over
    gate.set()
    background.wait()
    assert Item.alive == 0
    background.close()


def test_already_exists_is_a_storage_error() -> None:
    storage = Storage(memory_url())
    storage.put("key", b"", create=True)
    with pytest.raises(AlreadyExists):
        storage.put("key", b"", create=True)
