"""The monitor of a cluster stops in any state, and frees results of frozen workers."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client
from helpers.processes import START_SECONDS, local_cluster, wait_until

from dadagrad.training.engines.dask.monitor import ClusterMonitor


class ClosingScheduler:
    """As the connections of a client that closes: who waits for one fails, and is not cancelled."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.times = 0

    async def ncores_running(self) -> Any:
        self.times += 1
        self.asked.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise OSError("ConnectionPool closing.") from None


@pytest.fixture
def loop():
    """An event loop on a thread of its own."""
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


async def tasks_ended() -> None:
    """Wait for all other tasks of the loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others)


# The collection of garbage also meets sockets that other tests of the process have left.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_the_monitor_stops_if_its_request_fails_instead_of_being_cancelled(loop, caplog):
    scheduler = ClosingScheduler()
    client: Any = SimpleNamespace(
        scheduler=scheduler, loop=SimpleNamespace(asyncio_loop=loop), status="running"
    )
    monitor = ClusterMonitor(client, set)
    assert scheduler.asked.wait(10)
    monitor.stop()
    del monitor  # it holds the task, and what asyncio has to say is said once that has gone
    asyncio.run_coroutine_threadsafe(tasks_ended(), loop).result(10)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(10)
    gc.collect()
    assert scheduler.times == 1
    assert not [record for record in caplog.records if record.name == "asyncio"]


async def give_up(address: str, dask_scheduler: Any) -> None:
    """What a scheduler does with a worker that has not been heard of for too long."""
    await dask_scheduler.remove_worker(address, stimulus_id="test")


def test_a_result_on_a_worker_that_froze_comes_from_another():
    """The connection to a frozen process stays open, and nobody answers there."""
    with (
        local_cluster(2) as cluster,
        Client(cluster, set_as_default=False, direct_to_workers=True) as client,
    ):
        client.wait_for_workers(2, timeout=START_SECONDS)
        process_of = client.run(os.getpid)
        frozen, other = process_of
        first = client.submit(os.getpid, key="known", pure=False, workers=[frozen])
        assert first.result(timeout=START_SECONDS) == process_of[frozen]
        kept = client.submit(
            os.getpid, key="kept", pure=False, workers=[frozen], allow_other_workers=True
        )
        wait_until(kept.done, START_SECONDS, "the result")
        monitor = ClusterMonitor(client, set)
        try:
            os.kill(process_of[frozen], signal.SIGSTOP)
            wait_until(
                lambda: monitor.take_status() is not None, START_SECONDS, "the monitor to know both"
            )
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(kept.result, timeout=START_SECONDS)
                time.sleep(0.5)  # it is asked for by then
                client.run_on_scheduler(give_up, frozen)
                # Before the process is killed, which takes its nanny some 15 seconds.
                assert waiting.result(10) == process_of[other]
        finally:
            monitor.stop()
            os.kill(process_of[frozen], signal.SIGKILL)
