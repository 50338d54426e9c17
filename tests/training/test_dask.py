"""On a cluster of real processes: the bits of a run on threads."""

import asyncio
import ipaddress
import json
import os
import pickle
import shutil
import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import dask.config
import psutil
import pytest
from distributed import Client, SpecCluster
from helpers.processes import local_cluster, wait_until
from helpers.training_cases import bits, interrupt_at, make_data
from helpers.zarr_cases import write_zarr

from dadagrad import TrainConfig, clusters, dry_run, open_dataset, resume, sweep, train  # noqa: F401 (adds its defaults to the configuration)
from dadagrad.errors import CorruptionError, InputError, StorageError, TrainingError
from dadagrad.training.engines.dask import driver as dask_driver
from dadagrad.training.engines.dask import tasks
from dadagrad.training.engines.dask.streams import peers, shard_store
from dadagrad.training.memory import workers

CONFIG = TrainConfig(step_size=0.3, batch_size=60, l1=1e-4, passes=2)
STREAMS = replace(CONFIG, streams=3, rounds=4, batch_size=1, l1=0.0)


@pytest.fixture(autouse=True)
def every_row_is_worth_a_task(monkeypatch):
    """Else the steps of these little data would be left to one worker."""
    monkeypatch.setitem(dask.config.config["dadagrad"], "task-work", 1)


def check_bits(url, config, **options):
    """A run on a cluster, whose bits are those of a run on threads."""
    result = train(url, config, **options)
    assert bits(result) == bits(train(url, config))
    return result


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    made = make_data((90, 0, 70, 110, 40, 60), weighted=True)
    return write_zarr(made, tmp_path_factory.mktemp("data") / "train")


@pytest.mark.parametrize(
    "settings",
    [
        {"accumulate": "row"},
        {"update": "mirror-descent", "batch_size": "auto", "passes": 1},
        {"update": "ftrl", "preconditioner": "sketch:rank=3,delta=0.1", "batch_size": "auto"},
    ],
    ids=str,
)
def test_a_running_cluster_makes_the_bits_of_threads(scheduler, data, settings):
    result = train(data, replace(CONFIG, **settings), client=scheduler)
    chosen = {name: result.report[name] for name in ("batch_size", "streams")}
    assert bits(result) == bits(train(data, replace(CONFIG, **(settings | chosen))))
    expected = {"dual-averaging": (60, 1), "mirror-descent": (1, 16), "ftrl": (16, 1)}
    assert tuple(chosen.values()) == expected[settings.get("update", "dual-averaging")]


def test_several_outputs_settings_and_class_weights_too(scheduler, tmp_path, monkeypatch):
    url = write_zarr(make_data((100, 80, 120), labels="multiclass"), tmp_path / "data")
    config = replace(CONFIG, class_weight="balanced", loss="logistic", update="ftrl")
    check_bits(url, replace(config, step_size=(0.1, 0.3)), client=scheduler)
    streams = replace(
        config, streams=20, rounds=4, batch_size=1, l1=(0.0, 1e-3), step_size=(1e30, 0.3)
    )
    assert check_bits(url, streams, client=scheduler).report["best"] in (2, 3)
    predicted = dry_run(url, streams, client=scheduler).bytes_per_step
    for task_work in (1, 150_000):  # the latter leaves all slices to one worker
        monkeypatch.setitem(dask.config.config["dadagrad"], "task-work", task_work)
        moved = train(url, streams, client=scheduler).report["bytes_per_step"]
        assert moved == pytest.approx(sum(predicted.values()), rel=0.4)


def test_passes_with_early_stopping_move_and_read_as_much_as_without(scheduler, data, tmp_path):
    moved, read = [], []
    for stops in (False, True):
        config = replace(CONFIG, passes=5, step_size=0.01, holdout=0.3, early_stopping=stops)
        trace = tmp_path / f"{stops}.json"
        report = train(data, config, client=scheduler, trace=str(trace)).report
        assert report["passes"] == 5
        moved.append(report["bytes_per_step"])
        events = json.loads(trace.read_text())["traceEvents"]
        read.append(sum(event["name"] == "read" for event in events))
    assert moved[1] == pytest.approx(moved[0], rel=0.2)
    assert max(read) <= 2 * 5  # each of 5 partitions once by each of 2 workers


def test_a_sweep_reports_the_bytes_of_a_step_as_a_run_does(scheduler, data):
    alone = train(data, CONFIG, client=scheduler).report["bytes_per_step"]
    both = sweep(data, CONFIG, step_size=[0.1, 0.3], client=scheduler).best.report
    assert alone < both["bytes_per_step"] < 2 * alone  # one of the two was dropped


def test_events_of_a_run_on_a_cluster_can_be_copied_and_lose_the_client(scheduler, data):
    events = []
    train(data, replace(CONFIG, passes=1), client=scheduler, callbacks=events.append)
    assert events[0].run.client is not None
    copies = pickle.loads(pickle.dumps(events))
    assert [event.rows for event in copies] == [event.rows for event in events]
    assert copies[0].run == replace(events[0].run, client=None)


def test_no_slice_reads_a_shard_whose_merge_is_not_done(data, monkeypatch):
    """Merges that take their time: the tasks of both workers have begun long before."""
    merge = shard_store.merge_shard
    streams = replace(STREAMS, streams=4, passes=1)
    expected = train(data, streams).model.digest

    def merge_slowly(*arguments):
        time.sleep(0.01)
        merge(*arguments)

    monkeypatch.setattr(shard_store, "merge_shard", merge_slowly)
    with local_cluster(2, processes=False, threads_per_worker=2) as cluster:
        result = train(data, streams, client=cluster.scheduler_address)
    assert result.model.digest == expected


def test_weights_are_counted_on_the_workers_as_here(scheduler, data):
    counts = {None: [], scheduler: []}
    for client, seen in counts.items():
        count = [lambda event, seen=seen: seen.append(event.count_nonzeros())]
        train(data, replace(STREAMS, l1=1e-2, passes=1), client=client, callbacks=count)
    assert counts[scheduler] == counts[None] != []


@pytest.mark.parametrize("update", ["ftrl", "mirror-descent"])
def test_workers_write_the_checkpoints_of_a_state_that_stays_with_them(
    scheduler, data, monkeypatch, tmp_path, update
):
    monkeypatch.setattr(workers, "MAX_GATHERED", 0)
    folder, copy = str(tmp_path / "run"), str(tmp_path / "copy")
    settings = {"average": True} if update == "ftrl" else {"l1": 1e-3}
    streams = replace(STREAMS, update=update, rounds=6, **settings)
    options = {"checkpoints": folder, "save_every": 100, "callbacks": [interrupt_at(150)]}
    assert not train(data, streams, client=scheduler, **options).complete
    shutil.copytree(folder, copy)
    expected = train(data, streams).model.digest
    assert resume(folder, client=scheduler).model.digest == expected
    assert resume(copy, threads=2).model.digest == expected
    assert resume(copy, client=scheduler).model.digest == expected  # it is complete


def test_a_store_that_refuses_the_shards_of_workers_is_named(
    scheduler_here, data, monkeypatch, tmp_path
):
    def refuse(url, *arguments):
        raise StorageError(f"cannot write to {url}: the disk is full")

    monkeypatch.setattr(workers, "MAX_GATHERED", 0)
    monkeypatch.setattr(shard_store, "write_shard", refuse)
    options = {"checkpoints": str(tmp_path / "run"), "save_every": 100}
    with pytest.raises(StorageError, match="run: the disk is full"):
        train(data, STREAMS, client=scheduler_here, **options)


def test_pairs_of_few_rows_get_the_features_of_their_partners(scheduler, tmp_path):
    url = write_zarr(make_data((100, 80), labels="relevance", n_features=500), tmp_path / "data")
    ranking = TrainConfig(loss="ranking", step_size=0.3, batch_size=12, passes=2)
    check_bits(url, ranking, client=scheduler)


def test_stopped_on_a_cluster_and_resumed_on_threads_and_back(scheduler, data, tmp_path):
    folder = str(tmp_path / "run")
    stop = {"checkpoints": folder, "callbacks": [interrupt_at(200)]}
    assert not train(data, CONFIG, client=scheduler, **stop).complete
    assert not resume(folder, callbacks=[interrupt_at(450)]).complete
    assert bits(resume(folder, client=scheduler)) == bits(train(data, CONFIG))


def test_nothing_of_a_run_is_left_on_the_workers(scheduler, data):
    def n_cached():
        from dadagrad.training.engines.dask import tasks

        return 0 if tasks._cache is None else len(tasks._cache.kept)

    train(data, CONFIG, client=scheduler)
    with Client(scheduler, set_as_default=False) as client:
        wait_until(lambda: not any(client.has_what().values()), 10, "results to be released")
        assert set(client.run(n_cached).values()) == {0}


def test_a_task_that_goes_on_after_its_run_has_no_error_of_its_own():
    """Nobody would take it, and asyncio would show it."""
    ended = peers.Peer(SimpleNamespace(address="tcp://a:1"), "run")
    ended.close()
    answer = asyncio.run(ended.answer(lambda peer: None))
    assert str(answer) == "the run has ended on worker tcp://a:1"


def test_workers_drop_the_state_of_a_run_whose_client_has_gone(scheduler_here, data, monkeypatch):
    """A client that is killed tells them nothing."""

    def stores():
        return len(shard_store._stores.keys() - before)

    before = set(shard_store._stores)
    monkeypatch.setattr(shard_store, "CLIENT_SECONDS", 0.02)
    monkeypatch.setattr(dask_driver.DaskDriver, "_clean_up", lambda driver: driver._pending.stop())
    with Client(scheduler_here, set_as_default=False) as client:
        train(data, STREAMS, client=client)
        assert stores() == 1
        train(data, STREAMS, client=scheduler_here)
        wait_until(lambda: stores() == 1, 10, "the state of the second run to be dropped")
        assert any(client.id in run for _, run in shard_store._stores)
        client.close()
        wait_until(lambda: stores() == 0, 10, "the state of the first run to be dropped")


def test_results_are_left_on_the_workers_within_bounds(scheduler, data, monkeypatch):
    monkeypatch.setattr(dask_driver, "MAX_SPENT_TASKS", 5)
    monkeypatch.setattr(dask_driver, "MAX_SPENT_BYTES", 1 << 30)
    most = []
    with Client(scheduler, set_as_default=False) as client:

        def look(event):
            most.append(sum(map(len, client.has_what().values())))

        train(data, replace(CONFIG, batch_size=10, passes=1), client=scheduler, callbacks=[look])
    # Those of five tasks, of the step that is under way, of partitions read, and the job.
    assert 5 <= max(most) <= 5 + 4 + 3 + 2


def test_a_worker_that_does_not_know_the_run_is_told(scheduler, data):
    """It may have joined later, and get slices before it has read a partition."""

    def forget_all(digest):
        from dadagrad.training.engines.dask import tasks

        for run in list(tasks._jobs):
            tasks.forget(run)
        tasks.forget_partitions(digest)

    digest = open_dataset(data).digest
    with Client(scheduler, set_as_default=False) as client:

        def interfere(event):
            client.run(forget_all, digest)

        check_bits(data, replace(CONFIG, passes=1), client=scheduler, callbacks=[interfere])


def test_an_address_without_a_scheduler_is_refused(data, scheduler, tmp_path):
    """In bounded time, and before any work."""
    with Client(scheduler, set_as_default=False) as client:
        worker, _ = client.nthreads()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for address, seconds, reason in (
            ("tcp://127.0.0.1:1", 0.2, r"Timed out trying .*\); check that `dask scheduler`"),
            ("nonsense://x", 5, ""),
            ("tcp://", 5, ""),
            ("tls://127.0.0.1:1", 5, ""),
            (f"tcp://127.0.0.1:{silent.getsockname()[1]}", 0.2, "no answer within 0.2 seconds"),
            (worker, 5, "a Dask worker answers"),
        ):
            announced = []
            options = {"checkpoints": str(tmp_path / "run"), "messages": announced.append}
            begun = time.monotonic()
            with (
                dask.config.set({"dadagrad.connect-timeout": seconds}),
                pytest.raises(InputError, match=rf"no Dask scheduler answers at.* \({reason}"),
            ):
                train(data, CONFIG, client=address, step_size="auto", **options)
            assert time.monotonic() - begun < 8
            assert not announced
    assert not (tmp_path / "run").exists()


def test_a_cluster_without_workers_is_refused_after_a_while(data):
    with (
        dask.config.set({"dadagrad.workers-timeout": 0.2}),
        local_cluster(0) as cluster,
        pytest.raises(InputError, match=r"has had no worker for 0\.2 seconds; start some"),
    ):
        train(data, CONFIG, client=cluster.scheduler_address)


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("damage", CorruptionError, "partition part-00001, X/indices"),
        ("label", InputError, "partition part-00001: row 13 has label 5"),
        ("overflow", TrainingError, "partition part-00001: the "),
    ],
)
def test_errors_in_rows_are_named(scheduler, tmp_path, fault, error, message):
    made = make_data((50, 50), labels="real" if fault == "overflow" else "binary")
    if fault == "label":
        made.read(1).labels[13] = 5.0
    elif fault == "overflow":
        made.read(1).values[100:200] = 3e38
    url = write_zarr(made, tmp_path / "data")
    if fault == "damage":
        (chunk,) = (tmp_path / "data/part-00001/X/indices/c").iterdir()
        content = chunk.read_bytes()
        chunk.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    config = replace(CONFIG, loss="squared", scale_columns=False) if fault == "overflow" else CONFIG
    with pytest.raises(error, match=message):
        train(url, config, client=scheduler)


def test_a_worker_gives_signs_of_life_while_it_compiles(scheduler_here, data, monkeypatch):
    """Compiling takes long on a slow machine; a silent worker would be given up as frozen."""
    loops = []

    def look(problem, announce):
        loops.append(asyncio._get_running_loop())
        return 0.0

    monkeypatch.setattr(tasks, "compile_kernels", look)
    train(data, CONFIG, client=scheduler_here)
    assert loops
    assert not any(loops)


@pytest.mark.parametrize("config", [CONFIG, STREAMS], ids=["batches", "streams"])
def test_a_worker_of_another_release_is_named(scheduler_here, data, config, monkeypatch):
    """It may compute other bits, and nobody would know."""
    monkeypatch.setattr(tasks, "__version__", "0.0.9")
    named = r"worker has dadagrad 0\.0\.9, .* \(on the Dask worker at inp"
    with pytest.raises(InputError, match=named):
        train(data, config, client=scheduler_here)


def test_a_client_may_be_given_or_the_current_one_and_stays_open(data, scheduler):
    expected = bits(train(data, CONFIG))

    async def notebook():
        """A run that starts in an event loop."""
        return train(data, CONFIG, client=client)

    with Client(scheduler, set_as_default=True) as client:
        interval = client.scheduler_comm.interval
        assert bits(asyncio.run(notebook())) == expected
        assert bits(train(data, CONFIG, client="current")) == expected
        assert client.status == "running"
        assert client.scheduler_comm.interval == interval
    with pytest.raises(InputError, match="needs an active distributed"):
        train(data, CONFIG, client="current")
    for wrong in (client, 5):
        with pytest.raises(InputError, match=r"client is .*; it must be an open distributed"):
            train(data, CONFIG, client=wrong)


def test_an_asynchronous_client_is_refused(data, scheduler):
    async def with_coroutines():
        async with Client(scheduler, asynchronous=True, set_as_default=False) as client:
            train(data, CONFIG, client=client)

    with pytest.raises(InputError, match=r"coroutines; .* or the address of the scheduler"):
        asyncio.run(with_coroutines())


def listening():
    """The addresses at which this process and those that it started listen."""
    this = psutil.Process()
    return {
        connection.laddr
        for process in (this, *this.children(recursive=True))
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }


def living_children():
    """Processes below this one; Python's own resource tracker stays until its end."""
    children = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            children |= {process} if "resource_tracker" not in str(process.cmdline()) else set()
    return children


def test_a_cluster_that_is_started_has_its_settings_listens_here_alone_and_ends(data, monkeypatch):
    names = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
    # A cluster started earlier in this process leaves its setting in the environment.
    monkeypatch.delenv(names[0], raising=False)
    monkeypatch.setenv(names[1], "1000000")  # what is set here counts

    def settings_there():
        import dask.config

        settings = ("distributed.worker.profile.enabled", "distributed.admin.low-level-log-length")
        return [*(os.environ[name] for name in names), *map(dask.config.get, settings)]

    def kept_messages(dask_scheduler):
        return {stream.recent_message_log.maxlen for stream in dask_scheduler.stream_comms.values()}

    def look(event):
        if event.steps == 1:
            (cluster,) = (each for each in SpecCluster._instances if each.status.name == "running")
            with Client(cluster, set_as_default=False) as client:
                seen.extend(client.run(settings_there).values())
                seen.append(client.run_on_scheduler(kept_messages))
            opened.extend(listening() - before)

    before, opened, seen = listening(), [], []
    children = living_children()
    check_bits(data, CONFIG, workers=1, callbacks=[look])
    assert seen == [[str(128 << 20), "1000000", False, 10], {10}]
    assert len(opened) >= 4
    assert all(ipaddress.ip_address(address.ip).is_loopback for address in opened)
    wait_until(lambda: not (living_children() - children), 10, "the processes to end")
    assert not [thread for thread in threading.enumerate() if "dadagrad" in thread.name]
