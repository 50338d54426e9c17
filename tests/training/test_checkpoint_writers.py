"""Checkpoints are whole or not at all, whatever fails and whichever other run writes."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from helpers.checkpoint_stores import Died, Fails, Lax, Slow, memory_url, orphans, same, snapshot

from dadagrad import InputError, StorageError
from dadagrad.storage.store import Storage
from dadagrad.training.checkpoints import lease
from dadagrad.training.checkpoints.lease import TakenOver
from dadagrad.training.checkpoints.manifest import Snapshot
from dadagrad.training.checkpoints.reader import CheckpointReader
from dadagrad.training.checkpoints.shards import join_shards, write_shard
from dadagrad.training.checkpoints.writer import CheckpointWriter

both_kinds = pytest.mark.parametrize("kind", [Storage, Lax], ids=["create-only", "degraded"])


def steps(url):
    """The steps of all checkpoints, newest first."""
    return [info.step for info in CheckpointReader(url).list()]


@both_kinds
@pytest.mark.parametrize("how", ["raises", "raises torn", "raises after", "dies", "dies torn"])
def test_a_failure_at_any_write_leaves_a_whole_checkpoint(how, kind):
    class FailingKind(Fails, kind):
        def put(self, key, data, *, create=False):
            super().put(key, data, create=create and kind is Storage)

    at, finished = 0, False
    while not finished:
        at += 1
        url = memory_url()
        first, second = snapshot(1), snapshot(2)
        CheckpointWriter(kind(url), keep=1).save(first)
        failing = FailingKind(url, at, how)
        committed = False
        try:
            CheckpointWriter(failing, keep=1).save(second)
            committed = True
        except (Died, StorageError):
            pass
        finished = failing.writes < at
        loaded = CheckpointReader(url).load()
        assert same(loaded, second if loaded.step == 2 else first)
        assert loaded.step == 2 or not committed
        # The next run goes on from there, saves the same step, and removes the remains.
        CheckpointWriter(kind(url), keep=1).save(second)
        assert same(CheckpointReader(url).load(), second)
        assert not orphans(url)
        assert [i.step for i in CheckpointReader(url).list(verify=True) if i.valid] == [2]
    assert at > 5


def test_a_failed_save_leaves_no_parts():
    url = memory_url()
    failing = Fails(url, at=0, how="raises")
    writer = CheckpointWriter(failing)
    failing.at = failing.writes + 3
    with pytest.raises(StorageError, match="the store is full"):
        writer.save(snapshot(1))
    assert not [key for key in Storage(url).list() if key.endswith(".zst")]
    writer.save(snapshot(2))
    assert same(CheckpointReader(url).load(), snapshot(2))


def test_others_write_no_parts_to_another_place(tmp_path):
    def write(url, folder):
        return write_shard(str(tmp_path / "other"), folder, 0, {"x": np.ones(3)})

    with CheckpointWriter(str(tmp_path / "run")) as writer:
        with pytest.raises(StorageError, match=r"other is another folder .*; choose one"):
            writer.submit(replace(snapshot(3), write_shards=write))
        assert not orphans(writer.url)


def test_more_shards_than_four_digits_are_joined_in_their_order():
    numbers = 9_998, 9_999, 10_000, 10_001
    arrays = {f"shard-{n:04d}.averages": np.full((1, 1, 1), n) for n in reversed(numbers)}
    joined = join_shards(arrays | {"intercept": np.zeros(1)})
    assert joined["averages"].ravel().tolist() == list(numbers)


def test_a_manifest_that_does_not_read_back_costs_no_older_checkpoint(caplog):
    class Tears(Storage):
        def put(self, key, data, *, create=False):
            tear = key == f"manifest-{2:012d}.json"
            super().put(key, data[: len(data) // 2] if tear else data, create=create)

    url = memory_url()
    with CheckpointWriter(Tears(url), keep=1) as writer:
        writer.save(snapshot(1))
        writer.save(snapshot(2))
        assert "manifest-000000000002.json" in caplog.text
        assert same(CheckpointReader(url).load(), snapshot(1))
        writer.save(snapshot(3))
        assert steps(url) == [3]


def test_a_damaged_manifest_of_a_later_step_stays_until_the_run_gets_there():
    """A run that takes over could give the same name to a manifest that must stay."""
    url = memory_url()
    with CheckpointWriter(url) as writer:
        writer.save(snapshot(1))
        writer.save(snapshot(3))
    Storage(url).put("manifest-000000000003.json", b"torn")
    with CheckpointWriter(url) as resumed:
        assert CheckpointReader(url).load().step == 1
        resumed.save(snapshot(2))
        assert steps(url) == [2, 1, 3]  # the damaged one is listed last
        resumed.save(snapshot(3))
        assert steps(url) == [3, 2, 1]
    assert same(CheckpointReader(url).load(), snapshot(3))
    assert not orphans(url)


@both_kinds
def test_a_newer_writer_fences_the_older_one(kind):
    url = memory_url()
    older = CheckpointWriter(kind(url))
    older.save(snapshot(1))
    newer = CheckpointWriter(kind(url))
    assert (older.epoch, newer.epoch) == (1, 2)
    before = Storage(url).list()
    with pytest.raises(TakenOver, match="another run took over the checkpoints at"):
        older.save(snapshot(5))
    assert Storage(url).list() == before
    older.submit(snapshot(6))
    with pytest.raises(TakenOver, match="its epoch is 2, this run has 1"):
        older.close()
    newer.save(snapshot(3))
    assert same(CheckpointReader(url).load(), snapshot(3))


@both_kinds
@pytest.mark.parametrize("step", [4, 9])
def test_a_run_that_is_taken_over_as_it_commits_never_wins(kind, step):
    class Overtaken(kind):
        armed = False

        def put(self, key, data, *, create=False):
            if self.armed and key.startswith("manifest-"):
                self.armed = False
                CheckpointWriter(kind(url)).save(snapshot(4))
            super().put(key, data, create=create)

    url = memory_url()
    storage = Overtaken(url)
    older = CheckpointWriter(storage)
    older.save(snapshot(1))
    storage.armed = True
    with pytest.raises(TakenOver, match="another run took over"):
        older.save(Snapshot(step, snapshot(1).arrays, {"older": True}))
    assert same(CheckpointReader(url).load(), snapshot(4))


def at_once(n_threads, action):
    """The results of calls of `action` on so many threads at the same moment."""
    start = threading.Barrier(n_threads)

    def act(_):
        start.wait()
        return action()

    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(act, range(n_threads)))


@both_kinds
def test_runs_that_take_over_at_once_have_different_epochs(kind):
    url = memory_url()
    epochs = at_once(6, lambda: CheckpointWriter(kind(url)).epoch)
    assert len(set(epochs)) == 6
    assert CheckpointWriter(url).epoch > max(epochs)


@both_kinds
def test_of_many_new_runs_in_a_folder_exactly_one_begins(kind):
    url = memory_url()

    def begin():
        try:
            writer = CheckpointWriter(kind(url), new=True)
            writer.save(snapshot(0))
        except InputError as error:
            return str(error)
        return writer.epoch

    outcomes = at_once(8, begin)
    outcomes.remove(1)
    assert all(f"another run has just begun at {url}: this one stops" in text for text in outcomes)
    assert [info.epoch for info in CheckpointReader(url).list()] == [1]


@both_kinds
def test_a_new_run_waits_for_one_that_is_beginning(kind, monkeypatch):
    dead, alive = memory_url(), memory_url()
    CheckpointWriter(kind(dead), new=True)
    monkeypatch.setattr(lease, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(lease, "BEGIN_SECONDS", 0.3)
    begun = time.monotonic()
    assert CheckpointWriter(kind(dead), new=True).epoch == 2
    assert time.monotonic() - begun >= 0.3
    monkeypatch.setattr(lease, "BEGIN_SECONDS", 60.0)
    beginning = CheckpointWriter(kind(alive), new=True)
    timer = threading.Timer(0.1, beginning.save, [snapshot(0)])
    timer.start()
    with pytest.raises(InputError, match="another run has just begun"):
        CheckpointWriter(kind(alive), new=True)
    timer.join()
    beginning.save(snapshot(1))
    assert same(CheckpointReader(alive).load(), snapshot(1))


def test_epochs_survive_the_loss_of_their_claims():
    url = memory_url()
    CheckpointWriter(url)
    CheckpointWriter(url).save(snapshot(1))
    Storage(url).delete("epoch-0000000002.json")
    assert CheckpointWriter(url).epoch == 3


def test_a_store_without_create_only_writes_is_named_once(caplog):
    url = memory_url()
    writer = CheckpointWriter(Lax(url))
    writer.save(snapshot(1))
    assert not writer.create_only
    assert caplog.text.count("does not honour create-only writes") == 1
    assert url in caplog.text
    assert not [key for key in Storage(url).list() if key.startswith("probe-")]
    caplog.clear()
    assert CheckpointWriter(memory_url()).create_only
    assert not caplog.records


def test_a_lower_step_of_a_later_epoch_is_the_newest():
    url = memory_url()
    with CheckpointWriter(url) as writer:
        for step in (1, 2, 3):
            writer.save(snapshot(step))
    again = Snapshot(2, snapshot(2).arrays, {"again": True})
    CheckpointWriter(url).save(again)
    assert same(CheckpointReader(url).load(), again)


def test_a_reader_whose_checkpoint_is_removed_finds_the_newer_one():
    url = memory_url()
    writer = CheckpointWriter(url, keep=1)
    writer.save(snapshot(1))
    slow = Slow(url, lambda: [writer.save(snapshot(step)) for step in (2, 3)])
    assert same(CheckpointReader(slow).load(), snapshot(3))
