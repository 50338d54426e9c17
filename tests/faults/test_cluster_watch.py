"""The watch over a cluster ends when it is told to, whatever Dask makes of that."""

from __future__ import annotations

import asyncio
import gc
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from dadagrad.training.dask_watch import ClusterWatch


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


def test_it_stops_where_its_question_fails_instead_of_being_cancelled(loop, caplog):
    scheduler = ClosingScheduler()
    client: Any = SimpleNamespace(
        scheduler=scheduler, loop=SimpleNamespace(asyncio_loop=loop), status="running"
    )
    watch = ClusterWatch(client, set)
    assert scheduler.asked.wait(10)
    watch.stop()
    del watch  # it holds the task, and what asyncio has to say is said once that has gone
    asyncio.run_coroutine_threadsafe(tasks_ended(), loop).result(10)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(10)
    gc.collect()
    assert scheduler.times == 1
    assert not [record for record in caplog.records if record.name == "asyncio"]
