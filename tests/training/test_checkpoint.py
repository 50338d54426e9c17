"""Checkpoints come back bit for bit; damaged ones are skipped, and lies are refused."""

import logging
import threading
import tracemalloc
from concurrent.futures import wait
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from helpers.checkpoint_stores import Fails, json_values, memory_url, orphans, same, snapshot
from helpers.hostile_cases import changed, sealed
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dadagrad.errors import CorruptionError, InputError, StorageError
from dadagrad.storage import arrays as parts
from dadagrad.storage.documents import unseal
from dadagrad.storage.store import Storage
from dadagrad.training.checkpoints.manifest import Snapshot, manifest_key
from dadagrad.training.checkpoints.reader import CheckpointReader
from dadagrad.training.checkpoints.writer import CheckpointWriter

FIRST = "manifest-000000000001.json"
dtypes = (
    hnp.boolean_dtypes()
    | hnp.integer_dtypes()
    | hnp.floating_dtypes()
    | hnp.complex_number_dtypes()
)


@given(hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, min_side=0, max_side=5)), st.booleans())
def test_arrays_of_any_dtype_shape_and_order_come_back_bit_for_bit(array, transposed):
    stored = Snapshot(1, {"array": array.T if transposed else array}, {})
    url = memory_url()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "MAX_PART_BYTES", 64)  # most arrays have several parts
        CheckpointWriter(url).save(stored)
    assert same(CheckpointReader(url).load(), stored)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_meta_comes_back_exactly(meta):
    url = memory_url()
    CheckpointWriter(url).save(Snapshot(0, {}, meta))
    # repr tells 1 from 1.0 from True, shows every bit of a float, and NaN equals NaN.
    assert repr(CheckpointReader(url).load().meta) == repr(meta)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Snapshot(1, {"x": np.array([None])}, {}), "'x' is object"),
        (Snapshot(1, {"x": [1]}, {}), "'x' is list"),
        (Snapshot(1, {}, {"a": {"b": [object()]}}), r"meta\.a\.b\[0\] is a object"),
        (Snapshot(1, {}, {"a": {1: 2}}), r"meta\.a has the key 1"),
    ],
)
def test_content_that_cannot_be_stored_is_refused(bad, message):
    writer = CheckpointWriter(memory_url())
    for save in (writer.save, writer.submit):
        with pytest.raises(InputError, match=message):
            save(bad)


def test_only_the_newest_checkpoints_are_kept(tmp_path):
    url = str(tmp_path / "run")
    with CheckpointWriter(url, keep=2) as writer:
        for step in range(1, 6):
            writer.save(snapshot(step))
    infos = CheckpointReader(url).list(verify=True)
    assert [(info.step, info.valid, info.epoch) for info in infos] == [(5, True, 1), (4, True, 1)]
    assert infos[0].meta["cursor"] == [0, 5]
    assert not orphans(url)
    assert len(list(Path(url).iterdir())) == 2 + 2 + 1  # manifests, folders of parts, and the claim
    with pytest.raises(InputError, match="keep must be a whole number of at least 1, not 0"):
        CheckpointWriter(url, keep=0)


def test_a_folder_without_a_sound_checkpoint_is_named_for_what_it_is(tmp_path):
    with pytest.raises(InputError, match="the folder has no run"):
        CheckpointReader(str(tmp_path / "absent")).load()
    (tmp_path / "zarr.json").write_text("{}")
    with pytest.raises(InputError, match="it is a dataset"):
        CheckpointReader(str(tmp_path)).load()
    assert CheckpointReader(str(tmp_path)).list() == []
    (tmp_path / FIRST).write_text("torn")
    message = f"no checkpoint at {tmp_path} can be read: all 1 are damaged"
    with pytest.raises(InputError, match=message):
        CheckpointReader(str(tmp_path)).load()


class Gated(Storage):
    """A store in which writes of parts wait for a gate."""

    def __init__(self, url):
        super().__init__(url)
        self.gate, self.reached = threading.Event(), threading.Event()

    def put(self, key, data, *, create=False):
        if key.endswith(".zst"):
            self.reached.set()
            assert self.gate.wait(30)
        super().put(key, data, create=create)


def test_submit_never_waits_for_the_store_and_a_newer_snapshot_replaces_a_waiting_one():
    url = memory_url()
    storage = Gated(url)
    array = np.zeros(2**17)
    with CheckpointWriter(storage, keep=9) as writer:
        tracemalloc.start()
        for step in range(1, 11):
            array[:] = step
            writer.submit(Snapshot(step, {"array": array}, {}))
            assert storage.reached.wait(30)  # the first is being written from now on
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert held < 5 * array.nbytes
        array[:] = -1.0
        assert CheckpointReader(url).list() == []
        storage.gate.set()
        writer.wait()
        assert [info.step for info in CheckpointReader(url).list()] == [10, 1]
        for step in (10, 1):
            assert (CheckpointReader(url).load().arrays["array"] == step).all()
            storage.delete(manifest_key(step))


@pytest.fixture
def failed_writer():
    """A writer whose last write in the background has failed."""
    storage = Fails(memory_url(), at=0, how="raises")
    writer = CheckpointWriter(storage)
    storage.at = storage.writes + 1
    writer.submit(snapshot(1))
    wait(writer._futures)
    return writer


@pytest.mark.parametrize("call", ["check", "wait", "close", "submit"])
def test_an_error_in_the_background_is_raised_once(call, failed_writer):
    arguments = [snapshot(9)] if call == "submit" else []
    with pytest.raises(StorageError, match="the store is full"):
        getattr(failed_writer, call)(*arguments)
    failed_writer.close()


def test_an_error_of_the_block_goes_before_that_of_the_background(caplog, failed_writer):
    with pytest.raises(KeyError, match="mine"), failed_writer:
        raise KeyError("mine")
    assert "the last checkpoint was not written" in caplog.text


def test_close_commits_all_that_was_submitted():
    url = memory_url()
    writer = CheckpointWriter(url)
    writer.submit(snapshot(1))
    writer.submit(snapshot(2))
    writer.close()
    writer.close()
    assert CheckpointReader(url).load().step == 2
    assert not [thread for thread in threading.enumerate() if "checkpoint" in thread.name]


DAMAGES = {
    "truncated": lambda data: data[: len(data) // 2],
    "flipped": lambda data: data[:9] + bytes([data[9] ^ 1]) + data[10:],
}


@pytest.mark.parametrize("how", [*DAMAGES, "missing"])
@pytest.mark.parametrize("kind", ["part", "manifest"])
def test_a_damaged_checkpoint_is_skipped_with_a_warning(kind, how, caplog):
    url = memory_url()
    with CheckpointWriter(url) as writer:
        writer.save(snapshot(1))
        writer.save(snapshot(2))
    storage = Storage(url)
    prefix = f"{2:012d}-" if kind == "part" else f"manifest-{2:012d}"
    for key in [key for key in storage.list() if key.startswith(prefix)]:
        data = storage.get(key)
        if how == "missing":
            storage.delete(key)
        else:
            storage.put(key, DAMAGES[how](data))
        assert same(CheckpointReader(url).load(), snapshot(1))
        warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert bool(warnings) == ((kind, how) != ("manifest", "missing"))
        assert all("manifest-000000000002.json" in warning for warning in warnings)
        infos = CheckpointReader(url).list(verify=True)
        assert [info.step for info in infos if info.valid] == [1]
        storage.put(key, data)
        caplog.clear()
    assert same(CheckpointReader(url).load(), snapshot(2))


def test_every_flipped_bit_of_a_manifest_is_noticed():
    url = memory_url()
    CheckpointWriter(url).save(Snapshot(1, {"x": np.arange(3)}, {"rate": 0.1}))
    document = Storage(url).get(FIRST)
    body = unseal(document, "test")
    for position, byte in enumerate(document):
        for bit in range(8):
            flipped = bytes([byte ^ 1 << bit])
            with suppress(CorruptionError):  # white space after the end may change
                assert unseal(document[:position] + flipped + document[position + 1 :], "") == body


def test_a_store_that_cannot_be_read_is_not_taken_for_damage():
    class Unreachable(Storage):
        def get(self, key, *, max_bytes=None):
            if key.endswith(".zst"):
                raise StorageError("injected: cannot be reached")
            return super().get(key, max_bytes=max_bytes)

    url = memory_url()
    CheckpointWriter(url).save(snapshot(1))
    with pytest.raises(StorageError, match="cannot be reached"):
        CheckpointReader(Unreachable(url)).load()


def rewrite(url, path, value):
    """Change the body of the manifest of step 1 at `path`, and seal it again."""
    body = unseal(Storage(url).get(FIRST), FIRST)
    Storage(url).put(FIRST, sealed(changed(body, path, value)))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("arrays 1 name", "sums", "named twice"),
        ("step", 7, "manifest of step 7"),
        ("format", "other", "not the description of a checkpoint"),
        ("epoch", None, "epoch is missing"),
    ],
)
def test_a_manifest_that_lies_is_refused(path, value, message):
    url = memory_url()
    CheckpointWriter(url).save(snapshot(1))
    rewrite(url, path, value)
    with pytest.raises(InputError, match=message):
        CheckpointReader(url).load()


@pytest.mark.parametrize("version", [1, 99])
def test_another_version_is_refused_and_its_parts_stay(version):
    url = memory_url()
    with CheckpointWriter(url) as writer:
        writer.save(snapshot(1))
        rewrite(url, "version", version)
        writer.save(snapshot(2))
    with pytest.raises(InputError, match=rf"format version {version}.*reads version"):
        CheckpointReader(url).load()
    infos = CheckpointReader(url).list()
    assert [(info.step, info.valid) for info in infos] == [(2, True), (1, False)]
    assert len([key for key in Storage(url).list() if key.endswith(".zst")]) == 6
