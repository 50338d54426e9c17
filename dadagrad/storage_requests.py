"""Asking a store that fails: which failures may pass, how long they are waited out, and how.

The client of `obstore` repeats a request for a moment, but not every one: a create-only write or a
deletion whose answer was lost is not sent again. Here everything is, because everything may be:
what is written is either written whole under a name of its own, or create-only, and then whoever
wrote it finds out whether it was his.
"""

from __future__ import annotations

import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from dadagrad.errors import InputError

logger = logging.getLogger(__name__)

PATIENCE = "DADAGRAD_STORAGE_PATIENCE"
TIMEOUT = "DADAGRAD_STORAGE_TIMEOUT"

FIRST_SECONDS = 3.0
"""How long failures are waited out of a store that has never answered: its name is a mistake."""

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_STATUS = re.compile(r"status code: (\d{3})")
_LASTING = {501, 505}  # of the 5xx: a server that does not know what it is asked for

T = TypeVar("T")


def patience_seconds() -> float:
    """How long the failures of a store that has answered before are waited out."""
    return _seconds(PATIENCE, 120.0, 0.0)


def timeout_seconds() -> float:
    """How long a request may go without a byte of its answer."""
    return _seconds(TIMEOUT, 15.0, 0.1)


def _seconds(name: str, default: float, least: float) -> float:
    given = os.environ.get(name)
    if given is None:
        return default
    try:
        seconds = float(given)
    except ValueError:
        seconds = float("nan")
    if not least <= seconds <= 86400.0:
        raise InputError(
            f"{name}={given!r} was given; it must be a number of seconds, {least:g} to 86400"
        )
    return seconds


class GaveUp(Exception):
    """A failure that did not pass in time: `error`, after so many `seconds`."""

    def __init__(self, error: Exception, seconds: float) -> None:
        super().__init__(str(error))
        self.error = error
        self.seconds = seconds


class Patience:
    """Waits out the failures of one store; shared by all threads that ask it.

    Parameters
    ----------
    name : str
        What messages call the store.

    Attributes
    ----------
    seconds : float
        How long, where the store has answered before.
    answered : bool
        Whether the store is known to be there.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.seconds = patience_seconds()
        self._down = False
        self._lock = threading.Lock()
        self.answered = False

    def ask(self, call: Callable[[], T]) -> T:
        """What `call` returns, once it does.

        Raises what `call` raises where that would come again, and `GaveUp` where it might not.
        """
        begun = time.monotonic()
        pause = _FIRST_PAUSE
        while True:
            try:
                result = call()
            except Exception as error:
                passing = may_pass(error)
                if not passing or _status(error) is not None:
                    # If it is from the store, and not from where credentials were looked for.
                    self.answered |= not is_without_credentials(error)
                if not passing:
                    raise
                waited = time.monotonic() - begun
                # Looked up anew each time: another thread may have given the store up.
                limit = self.seconds if self.answered else min(FIRST_SECONDS, self.seconds)
                if waited >= limit:
                    # What comes next has waited with this one, and need not wait as long again.
                    self.answered = False
                    raise GaveUp(error, waited) from None
                self._say_down(error, limit)
            else:
                self.answered = True
                self._say_up()
                return result
            time.sleep(min(pause * random.uniform(0.5, 1.0), limit - waited))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _say_down(self, error: Exception, limit: float) -> None:
        with self._lock:
            said, self._down = self._down, True
        if not said:
            logger.warning(
                "%s: %s; trying again for up to %g seconds", self._name, what_failed(error), limit
            )

    def _say_up(self) -> None:
        if self._down:
            with self._lock:
                said, self._down = self._down, False
            if said:
                logger.warning("%s answers again", self._name)


def may_pass(error: Exception) -> bool:
    """Whether the same request may well succeed a moment later."""
    import obstore.exceptions as kinds

    if not isinstance(error, kinds.GenericError):
        return False
    status = _status(error)
    if status is None:
        return "HTTP error" in str(error).partition("\n")[0]
    return status in (408, 429) or (status >= 500 and status not in _LASTING)


def is_without_credentials(error: Exception) -> bool:
    """Whether a credential was looked for, in vain, where machines of a cloud have one."""
    first, _, _ = str(error).partition("\n")
    return any(host in first for host in ("169.254.169.254", "metadata.google.internal"))


def what_failed(error: Exception) -> str:
    """A failure that may pass, in a few words."""
    text = str(error)
    if is_without_credentials(error):
        return "no credentials found"
    status = re.search(r"status code: (\d{3}[^:\n]*)", text)
    if status:
        return f"the store answers {status[1].strip()}"
    return "no answer in time" if "kind: Timeout" in text else "the endpoint cannot be reached"


def _status(error: Exception) -> int | None:
    found = _STATUS.search(str(error).partition("\n")[0])
    return int(found[1]) if found else None
