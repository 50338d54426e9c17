"""Connections to Dask clusters, and the settings of `dadagrad.yaml`.

Importing this module adds the defaults of `dadagrad.yaml` to Dask's configuration.
"""

from __future__ import annotations

import asyncio
import copy
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import dask.config
from dask.utils import parse_timedelta

from dadagrad._version import __version__
from dadagrad.errors import DadagradError, InputError

(_defaults,) = dask.config.collect_yaml([str(Path(__file__).with_name("dadagrad.yaml"))])
dask.config.update_defaults(_defaults)

_TLS_ADVICE = (
    " and that Dask's configuration names the certificates (distributed.comm.tls.ca-file, "
    "client.cert and client.key) that the scheduler trusts"
)


def seconds(name: str) -> float:
    """Return the time span of the setting ``dadagrad.NAME``; `InputError` if it is not one."""
    value = dask.config.get(f"dadagrad.{name}")
    span = None
    if isinstance(value, str | int | float):
        with suppress(KeyError, ValueError):
            span = parse_timedelta(value)
    if span is None or span < 0.0:
        raise _invalid_setting(name, value, "a time, such as 60s or 2h")
    return float(span)


def count(name: str, minimum: int) -> int:
    """Return the integer of the setting ``dadagrad.NAME``; `InputError` unless >= `minimum`."""
    value = dask.config.get(f"dadagrad.{name}")
    if type(value) is not int or value < minimum:
        raise _invalid_setting(name, value, f"a whole number of at least {minimum}")
    return value


def _invalid_setting(name: str, value: object, needed: str) -> InputError:
    variable = f"DASK_DADAGRAD__{name.upper().replace('-', '_')}"
    return InputError(
        f"dadagrad.{name} is {value!r} in Dask's configuration; it must be {needed} (see the files "
        f"in ~/.config/dask, and the environment variable {variable})"
    )


def has_active_client() -> bool:
    """Return True if this process has a current `distributed.Client`."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    with suppress(ValueError):
        distributed.default_client()
        return True
    return False


@contextmanager
def connected(client: Any) -> Iterator[Any]:
    """Connect to a scheduler that has workers, and yield a `distributed.Client`.

    `client` is the address of a scheduler, whose connection is closed at the end; or a client,
    which stays open; "current" stands for the active client.

    Raises
    ------
    InputError
        `client` is something else, asynchronous, or closed. Or no Dask scheduler answers at the
        address within ``dadagrad.connect-timeout``, the scheduler has no worker within
        ``dadagrad.workers-timeout``, or one of them lacks this release.
    DadagradError
        The connection was lost, and therefore the block failed.
    """
    from distributed import Client, default_client
    from distributed.comm.core import CommClosedError

    if client == "current":
        try:
            client = default_client()
        except ValueError as error:
            raise InputError(
                'client="current" needs an active distributed.Client; make one, or give the '
                "address of a scheduler"
            ) from error
    is_open = isinstance(client, Client) and client.scheduler is not None
    if is_open and client.asynchronous:
        raise InputError(
            f"client is {client!r}, whose operations are coroutines; give a client that was made "
            "without asynchronous=True, or the address of the scheduler"
        )
    if not is_open and not isinstance(client, str):
        raise InputError(
            f"client is {client!r}; it must be an open distributed.Client, the address of a "
            'scheduler, or "current"'
        )
    address = client if isinstance(client, str) else str(client.scheduler.address)
    with _open_client(client) if isinstance(client, str) else nullcontext(client) as opened:
        try:
            _wait_for_worker(opened, address)
            _check_release(opened)
            yield opened
        except DadagradError:
            raise
        except Exception as error:  # operations on a closed client raise many kinds of errors
            # The client notices the loss a little later than an operation that waits for an answer.
            if opened.status == "running" and not isinstance(error, CommClosedError):
                raise
            raise DadagradError(
                f"the connection to the scheduler at {address} was lost; when the cluster is back, "
                "start again, or continue a run that has checkpoints with `dadagrad resume`"
            ) from error


def _open_client(address: str) -> Any:
    from distributed import Client

    if "@" in address:
        raise InputError(
            "the address of the scheduler has a user or password in it, which Dask does not know; "
            "give tcp://HOST:PORT, or tls:// and certificates in Dask's configuration"
        )
    timeout = seconds("connect-timeout")
    try:
        _check_scheduler(address, timeout)
        return Client(address, timeout=timeout, set_as_default=False)
    # The bytes of another service may be taken for anything, even an array larger than the memory.
    except Exception as error:
        cause = error
        while cause.__cause__ is not None and isinstance(cause.__cause__, Exception):
            cause = cause.__cause__
        messages = dict.fromkeys(str(e) or type(e).__name__ for e in (error, cause))
        raise InputError(
            f"no Dask scheduler answers at {address} ({': '.join(messages)}); check that `dask "
            "scheduler` runs there, that this is the address it prints (tls:// if it uses TLS)"
            f"{_TLS_ADVICE if address.startswith('tls') else ''}, or work without a scheduler"
        ) from error


def _check_scheduler(address: str, timeout: float) -> None:
    """Ask the server at `address` for its type.

    `distributed.Client` waits for ever at a port where another service listens and is silent.
    """
    from distributed.core import rpc
    from distributed.security import Security

    async def ask() -> Any:
        options = Security().get_connection_args("client")
        async with (
            asyncio.timeout(timeout + 1),
            rpc(address, timeout=timeout, connection_args=options) as server,
        ):
            return await server.identity()

    # On another thread, because the thread of the caller may have an event loop (in a notebook).
    with ThreadPoolExecutor(1, thread_name_prefix="dadagrad") as pool:
        try:
            kind = pool.submit(lambda: asyncio.run(ask())).result()["type"]
        except TimeoutError:
            raise TimeoutError(f"no answer within {timeout:g} seconds") from None
    if kind != "Scheduler":
        raise ValueError(f"a Dask {str(kind).lower()} answers")


def _wait_for_worker(client: Any, address: str) -> None:
    timeout = seconds("workers-timeout")
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError as error:
        raise InputError(
            f"the scheduler at {address} has had no worker for {timeout:g} seconds; "
            f"start some with `dask worker {address}`"
        ) from error


def _check_release(client: Any) -> None:
    """Raise `InputError` unless the scheduler and all workers that answer have this release."""
    answers: dict[str, Any] = {}
    with suppress(OSError, TimeoutError):  # the cluster is lost, or a worker stands still
        workers = client.run(
            release, on_error="return", callback_timeout=seconds("connect-timeout")
        )
        answers = {f"the worker at {worker}": answer for worker, answer in workers.items()}
    try:
        answers["the scheduler"] = client.run_on_scheduler(release)
    except (ImportError, AttributeError) as error:
        answers["the scheduler"] = error
    except ValueError:  # it may not load code
        pass
    for place, answer in answers.items():
        if answer != __version__ and not isinstance(answer, OSError):
            reason = answer if isinstance(answer, Exception) else f"it has {answer}"
            raise InputError(
                f"{place} does not have dadagrad {__version__} ({reason}); install the same "
                "release as here wherever the scheduler and the workers run"
            )


@contextmanager
def naming_worker() -> Iterator[None]:
    """Add the address of this Dask worker to an error of the block."""
    try:
        yield
    except DadagradError as error:
        from distributed import get_worker

        named = copy.copy(error)  # several tasks may get the error of one read
        place = f"(on the Dask worker at {get_worker().address})"
        named.args = (f"{error.args[0]} {place}", *error.args[1:])
        raise named from None


def release() -> str:
    """Return the release of dadagrad; for the processes of a cluster."""
    return __version__
