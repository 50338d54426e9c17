"""Checkpoints are whole or not at all, whatever fails and whoever else writes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_stores import Died, Failing, Ignores, memory_url, orphans, same, snapshot

from dadagrad import parts
from dadagrad.errors import InputError, StorageError
from dadagrad.storage import Storage
from dadagrad.training import fence
from dadagrad.training.checkpoint import CheckpointReader, CheckpointWriter, Snapshot, TakenOver


@pytest.mark.parametrize("ignores", [False, True], ids=["create-only", "degraded"])
@pytest.mark.parametrize("how", ["raises", "raises torn", "raises after", "dies", "dies torn"])
def test_failure_at_every_write(how: str, ignores: bool) -> None:
    at, finished = 0, False
    while not finished:
        at += 1
        url = memory_url()
        first, second = snapshot(1), snapshot(2)
        good = Ignores(url) if ignores else Storage(url)
        CheckpointWriter(good, keep=1).save(first)
        failing = Failing(url, at, how)
        if ignores:
            failing_put = failing.put
            failing.put = lambda key, data, create=False, put=failing_put: put(key, data)  # type: ignore[method-assign]
        committed = False
        try:
            writer = CheckpointWriter(failing, keep=1)
            writer.save(second)
            committed = True
        except (Died, StorageError):
            pass
        finished = failing.writes >= 0 and failing.writes < at
        loaded = CheckpointReader(url).load()
        assert same(loaded, second if loaded.step == 2 else first)
        assert loaded.step == 2 or not committed
        # The next run goes on from there, saves the same step, and tidies up.
        CheckpointWriter(good, keep=1).save(second)
        assert same(CheckpointReader(url).load(), second)
        assert not orphans(url)
        kept = [info.step for info in CheckpointReader(url).list(verify=True) if info.valid]
        assert kept == [2]
    assert at > 5


def test_a_failed_save_leaves_no_parts() -> None:
    url = memory_url()
    failing = Failing(url, at=0, how="raises")
    writer = CheckpointWriter(failing)
    failing.at = failing.writes + 3
    with pytest.raises(StorageError, match="the store is full"):
        writer.save(snapshot(1))
    assert not [key for key in Storage(url).list() if key.endswith(".zst")]
    writer.save(snapshot(2))
    assert same(CheckpointReader(url).load(), snapshot(2))


def test_an_answer_that_was_lost() -> None:
    """The client sends a create-only write again whose answer was lost, and finds its own."""

    class Retries(Storage):
        def put(self, key: str, data: Any, *, create: bool = False) -> None:
            super().put(key, data, create=create)
            if create:
                super().put(key, data, create=True)

    url = memory_url()
    writer = CheckpointWriter(Retries(url))
    writer.save(snapshot(1))
    assert [info.key for info in CheckpointReader(url).list()] == ["manifest-000000000001.json"]


def test_a_manifest_that_is_torn_in_silence_costs_no_older_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Tears(Storage):
        def put(self, key: str, data: Any, *, create: bool = False) -> None:
            tear = key == f"manifest-{2:012d}.json"
            super().put(key, data[: len(data) // 2] if tear else data, create=create)

    url = memory_url()
    with CheckpointWriter(Tears(url), keep=1) as writer:
        writer.save(snapshot(1))
        writer.save(snapshot(2))
        assert "manifest-000000000002.json" in caplog.text
        assert same(CheckpointReader(url).load(), snapshot(1))
        writer.save(snapshot(3))
        assert [info.step for info in CheckpointReader(url).list()] == [3]


SAVES = """
import sys
import numpy as np
from dadagrad.training.checkpoint import CheckpointReader, CheckpointWriter, Snapshot, TakenOver
url = sys.argv[1]
with CheckpointWriter(url, keep=2) as writer:
    infos = CheckpointReader(url).list()
    step = CheckpointReader(url).load().step if infos else 0
    print("started", flush=True)
    while True:
        step += 1
        array = np.random.default_rng(step).normal(size=20_000)
        writer.submit(Snapshot(step, {"array": array, "same": array}, {"step": step}))
        writer.wait()
"""


def test_killed_while_saving(tmp_path: Path) -> None:
    url = str(tmp_path / "run")
    CheckpointWriter(url).save(Snapshot(0, {}, {"step": 0}))
    delay = random.Random(3)
    last = 0
    for _ in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVES, url],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(Path(parts.__file__).parents[1])},
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"started\n"
            time.sleep(delay.uniform(0.02, 0.2))
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        loaded = CheckpointReader(url).load()
        assert loaded.meta == {"step": loaded.step}
        if loaded.step:
            expected = np.random.default_rng(loaded.step).normal(size=20_000)
            assert loaded.arrays["array"].tobytes() == expected.tobytes()
        assert loaded.step >= last
        last = loaded.step
    assert last > 2
    # What the killed ones left goes with the next commit, in folders of parts begun as well.
    half = tmp_path / "run" / f"{3:012d}-{'0' * 32}" / "000-00000.zst#1"
    half.parent.mkdir()
    half.write_bytes(b"half")
    Storage(url).put(f"probe-{'0' * 32}.json", b"{}")
    CheckpointWriter(url, keep=1).save(Snapshot(last + 1, {}, {}))
    names = [name for name in os.listdir(url) if "#" not in name]
    assert sorted(name.partition("-")[0] for name in names) == ["epoch", "manifest"]


@pytest.mark.parametrize("kind", [Storage, Ignores], ids=["create-only", "degraded"])
def test_a_newer_writer_fences_the_older(kind: type[Storage]) -> None:
    url = memory_url()
    older = CheckpointWriter(kind(url))
    older.save(snapshot(1))
    newer = CheckpointWriter(kind(url))
    assert (older.epoch, newer.epoch) == (1, 2)
    before = Storage(url).list()
    with pytest.raises(StorageError, match="another run took over the checkpoints at"):
        older.save(snapshot(5))
    assert Storage(url).list() == before
    older.submit(snapshot(6))
    with pytest.raises(StorageError, match="its epoch is 2, this run has 1"):
        older.close()
    newer.save(snapshot(3))
    assert same(CheckpointReader(url).load(), snapshot(3))


@pytest.mark.parametrize("ignores", [False, True], ids=["create-only", "degraded"])
@pytest.mark.parametrize("step", [4, 9])
def test_taken_over_at_the_last_moment(ignores: bool, step: int) -> None:
    """A run is taken over between its look at the epochs and its manifest: it never wins."""

    class Overtaken(Storage):
        armed = False

        def put(self, key: str, data: Any, *, create: bool = False) -> None:
            if self.armed and key.startswith("manifest-"):
                self.armed = False
                CheckpointWriter(Ignores(url) if ignores else url).save(snapshot(4))
            super().put(key, data, create=create and not ignores)

    url = memory_url()
    storage = Overtaken(url)
    older = CheckpointWriter(storage)
    older.save(snapshot(1))
    storage.armed = True
    taken = Snapshot(step, snapshot(1).arrays, {"older": True})
    with pytest.raises(TakenOver, match="another run took over"):
        older.save(taken)  # perhaps too late to keep it from writing, which is of no consequence
    assert same(CheckpointReader(url).load(), snapshot(4))


def at_once(n_threads: int, action: Callable[[], None]) -> None:
    """Have so many threads do the same at the same moment."""
    start = threading.Barrier(n_threads)

    def act() -> None:
        start.wait()
        action()

    threads = [threading.Thread(target=act) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("kind", [Storage, Ignores], ids=["create-only", "degraded"])
def test_epochs_are_unique(kind: type[Storage]) -> None:
    url = memory_url()
    epochs: list[int] = []

    def claim() -> None:
        epochs.append(CheckpointWriter(kind(url)).epoch)

    at_once(6, claim)
    assert len(set(epochs)) == 6
    assert CheckpointWriter(url).epoch > max(epochs)


@pytest.mark.parametrize("kind", [Storage, Ignores], ids=["create-only", "degraded"])
def test_of_many_new_runs_one_begins(kind: type[Storage]) -> None:
    url = memory_url()
    outcomes: list[object] = []

    def begin() -> None:
        try:
            writer = CheckpointWriter(kind(url), new=True)
            writer.save(snapshot(0))
            outcomes.append(writer.epoch)
        except InputError as error:
            outcomes.append(str(error))

    at_once(8, begin)
    assert [outcome for outcome in outcomes if isinstance(outcome, int)] == [1]
    others = [outcome for outcome in outcomes if isinstance(outcome, str)]
    assert len(others) == 7
    assert all(f"another run has just begun at {url}: this one stops" in text for text in others)
    assert [info.epoch for info in CheckpointReader(url).list()] == [1]


@pytest.mark.parametrize("kind", [Storage, Ignores], ids=["create-only", "degraded"])
def test_a_new_run_waits_for_one_that_is_beginning(
    kind: type[Storage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it begins, or died before it did, shows after a while."""
    dead, alive = memory_url(), memory_url()
    CheckpointWriter(kind(dead), new=True)
    monkeypatch.setattr(fence, "BEGIN_SECONDS", 0.6)
    begun = time.monotonic()
    with CheckpointWriter(kind(dead), new=True) as writer:
        assert 0.6 <= time.monotonic() - begun < 10
        assert writer.epoch == 2
    monkeypatch.setattr(fence, "BEGIN_SECONDS", 60.0)
    beginning = CheckpointWriter(kind(alive), new=True)
    timer = threading.Timer(0.1, beginning.save, [snapshot(0)])
    timer.start()
    with pytest.raises(InputError, match="another run has just begun"):
        CheckpointWriter(kind(alive), new=True)
    timer.join()
    beginning.save(snapshot(1))
    assert same(CheckpointReader(alive).load(), snapshot(1))


def test_epochs_survive_the_loss_of_their_claims() -> None:
    url = memory_url()
    CheckpointWriter(url)
    CheckpointWriter(url).save(snapshot(1))
    Storage(url).delete("epoch-0000000002.json")
    assert CheckpointWriter(url).epoch == 3


def test_degraded_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    url = memory_url()
    writer = CheckpointWriter(Ignores(url))
    assert writer.probe() is False
    writer.save(snapshot(1))
    assert caplog.text.count("does not honour create-only writes") == 1
    assert url in caplog.text
    assert not [key for key in Storage(url).list() if key.startswith("probe-")]
    caplog.clear()
    assert CheckpointWriter(memory_url()).probe() is True
    assert not caplog.records


def test_a_store_that_refuses_the_condition_itself() -> None:
    class Refuses(Storage):
        def put(self, key: str, data: Any, *, create: bool = False) -> None:
            if create:
                raise StorageError("conditional writes are not supported")
            super().put(key, data)

    url = memory_url()
    writer = CheckpointWriter(Refuses(url))
    assert writer.probe() is False
    writer.save(snapshot(1))
    assert same(CheckpointReader(url).load(), snapshot(1))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        CheckpointWriter(str(tmp_path / "file" / "run"))


def test_resumed_from_an_older_one() -> None:
    """What a run of a later epoch writes is the newest, even where its step is lower."""
    url = memory_url()
    with CheckpointWriter(url) as writer:
        for step in (1, 2, 3):
            writer.save(snapshot(step))
    again = Snapshot(2, snapshot(2).arrays, {"again": True})
    CheckpointWriter(url).save(again)
    assert same(CheckpointReader(url).load(), again)
    assert same(CheckpointReader(url).load(2), again)


def test_reading_while_a_writer_removes() -> None:
    """The checkpoint being read is removed under the reader's hands: the newer one is found."""

    class Slow(Storage):
        armed = True

        def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
            if self.armed and key.endswith(".zst"):
                self.armed = False
                for step in (2, 3):
                    writer.save(snapshot(step))
            return super().get(key, max_bytes=max_bytes)

    url = memory_url()
    writer = CheckpointWriter(url, keep=1)
    writer.save(snapshot(1))
    assert same(CheckpointReader(Slow(url)).load(), snapshot(3))
