"""Reaching a Dask scheduler, or finding out in bounded time that there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from dadagrad.dask_config import seconds
from dadagrad.dask_tls import tls_problem
from dadagrad.errors import DadagradError, InputError


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """A ``distributed.Client`` of the scheduler at `address`, closed at the end.

    Raises
    ------
    InputError
        Nothing that is a Dask scheduler answers there within ``dadagrad.connect-timeout``, it and
        this process do not agree on TLS, or it has no worker within ``dadagrad.workers-timeout``.
    DadagradError
        The connection was lost, and what was done with the client has failed.
    """
    from distributed import Client
    from distributed.comm.core import CommClosedError

    problem = _problem(address)
    client = None
    if problem is None:
        try:
            timeout = seconds("connect-timeout")
            client = Client(address, timeout=timeout, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            problem = str(error)
    if client is None:
        raise InputError(
            f"no Dask scheduler answers at {address} ({problem}); start one with `dask scheduler` "
            "and give the address that it prints, or work without a scheduler"
        )
    with client:
        try:
            _wait_for_a_worker(client, address)
            yield client
        except DadagradError:
            raise
        except Exception as error:  # a client that is closed fails in many ways
            # It notices a little after those who wait for an answer.
            if client.status == "running" and not isinstance(error, CommClosedError):
                raise
            raise DadagradError(
                f"the connection to the scheduler at {address} was lost; when the cluster is back, "
                "start again, a run that left checkpoints with `dadagrad resume`"
            ) from error


def _wait_for_a_worker(client: Any, address: str) -> None:
    timeout = seconds("workers-timeout")
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError as error:
        raise InputError(
            f"the scheduler at {address} has had no worker for {timeout:g} seconds; "
            f"start some with `dask worker {address}`"
        ) from error


def _problem(address: str) -> str | None:
    """Why there is no scheduler at `address`; None if there is one.

    A client waits for ever on a port where something else listens and keeps silent.
    """
    from distributed.core import rpc
    from distributed.security import Security

    timeout = seconds("connect-timeout")

    async def ask() -> Any:
        options = Security().get_connection_args("client")
        async with rpc(address, timeout=timeout, connection_args=options) as server:
            return await server.identity()

    async def ask_in_time() -> Any:
        return await asyncio.wait_for(ask(), timeout + 1)

    try:
        # On a thread of its own: that of the caller may have an event loop, as in a notebook.
        with ThreadPoolExecutor(1, thread_name_prefix="dadagrad") as pool:
            kind = pool.submit(lambda: asyncio.run(ask_in_time())).result()["type"]
    except TimeoutError:
        return f"something is there, but gave no answer in {timeout:g} seconds"
    # Whatever the bytes of another service are taken for, also an array larger than the memory.
    except Exception as error:
        unlike = tls_problem(address, error)
        if unlike is not None:
            why, what_to_do = unlike
            raise InputError(
                f"no Dask scheduler answers at {address} ({why}); {what_to_do}"
            ) from error
        return str(error) or type(error).__name__
    return None if kind == "Scheduler" else f"a Dask {str(kind).lower()} is there"
