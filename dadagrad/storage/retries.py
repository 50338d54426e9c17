"""Retries of requests: which errors may pass, and for how long a store is asked again.

The retries of obstore are switched off, because it never repeats a create-only write or a deletion
whose answer was lost. Here every request is repeated. That is safe: an object is written whole,
and the writer of a create-only object finds out whether its own write won.
"""

from __future__ import annotations

import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from dadagrad.errors import InputError

logger = logging.getLogger(__name__)

PATIENCE = "DADAGRAD_STORAGE_PATIENCE"
TIMEOUT = "DADAGRAD_STORAGE_TIMEOUT"

FIRST_SECONDS = 3.0
"""Seconds of retries for a store that has never answered: its name may be a mistake."""

QUIET_SECONDS = 1.0
"""Seconds of retries before a warning: busy stores refuse single requests all the time."""

UPLOAD_TIMES = 4  # as long a timeout: a part of 64 MiB at 1.1 MB/s takes 60 seconds

_FIRST_PAUSE = 0.1
_MAX_PAUSE = 5.0
_STATUS = re.compile(r"status code: ((\d{3})[^:\n]*)")

T = TypeVar("T")


def patience_seconds() -> float:
    """Seconds of retries for a store that has answered before."""
    return _seconds(PATIENCE, 120.0, 0.0)


def timeout_seconds() -> float:
    """Seconds that a request may last without a byte of its answer."""
    return _seconds(TIMEOUT, 15.0, 0.1)


def _seconds(name: str, default: float, minimum: float) -> float:
    text = os.environ.get(name, str(default))
    with suppress(ValueError):
        if minimum <= float(text) <= 86400.0:
            return float(text)
    raise InputError(
        f"{name}={text!r} was given; it must be a number of seconds, {minimum:g} to 86400"
    )


class RetryTimeout(Exception):
    """Failure that did not pass in time, in words, and what to do."""


class RetryPolicy:
    """Retries of all requests of this process to the store `name`, by any thread.

    `seconds` limits the retries of a store that has `answered` before, and so is known to exist.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.seconds = patience_seconds()
        self.answered = False
        self._given_up = self._down = False
        self._lock = threading.Lock()

    def give_up(self) -> None:
        """Have all requests, also those that follow to tidy up, wait shortly until one succeeds."""
        self._given_up = True

    def ask(self, call: Callable[[], T]) -> T:
        """Return what `call` returns, repeating it while its error may pass; or `RetryTimeout`."""
        waited, pause = 0.0, _FIRST_PAUSE
        while True:
            begun = time.monotonic()
            try:
                result = call()
            except Exception as error:
                problem, advice = self._passing_problem(error)
                # Any answer of the store counts, unlike one of a server that keeps credentials.
                if (problem is None or _STATUS.search(str(error))) and not lacks_credentials(error):
                    self.answered = True
                if problem is None:
                    self._given_up = False
                    raise
                # No request takes longer: for the rest of the time this process was suspended.
                waited += min(time.monotonic() - begun, UPLOAD_TIMES * timeout_seconds())
                # Read in each turn: another thread may have given the store up meanwhile.
                is_known = self.answered and not self._given_up
                limit = self.seconds if is_known else min(FIRST_SECONDS, self.seconds)
                if waited >= limit:
                    self.give_up()
                    tried = f"tried for {waited:.0f} s: {first_line(error)}"
                    raise RetryTimeout(f"{problem} ({tried}); {advice}") from None
                if waited >= QUIET_SECONDS:
                    self._log(True, f"{problem}; trying again for up to {limit:g} seconds")
            else:
                self.answered, self._given_up = True, False
                self._log(False, "answers again")
                return result
            seconds = min(pause * random.uniform(0.5, 1.0), limit - waited)
            time.sleep(seconds)
            waited += seconds
            pause = min(2 * pause, _MAX_PAUSE)

    def _log(self, down: bool, text: str) -> None:
        """Log a change of the store's state once, whichever thread notices it."""
        with self._lock:
            changed, self._down = self._down != down, down
        if changed:
            logger.warning("%s %s" if not down else "%s: %s", self._name, text)

    def _passing_problem(self, error: Exception) -> tuple[str | None, str]:
        """Describe no answer, 408, 429 and most of 5xx, and say what to do; None for others."""
        import obstore.exceptions as kinds

        text = str(error)
        if not isinstance(error, kinds.GenericError):
            return None, ""
        if status := _STATUS.search(text):
            number = int(status[2])
            passes = number in (408, 429) or (number >= 500 and number not in (501, 505))
            return f"the store answers {status[1].strip()}" if passes else None, "try again later"
        line = first_line(error)
        if not re.search("(?<!Generic )HTTP error", line) or "following redirect" in line:
            return None, ""  # which comes again
        if lacks_credentials(error):
            return "no credentials found", ""
        endpoint = " and AWS_ENDPOINT_URL" * self._name.startswith("s3:")
        advice = f"check the network, the host name{endpoint}"
        if "kind: Timeout" in text:
            return "no answer in time", f"{advice}; on a slow network, raise {TIMEOUT}"
        return "the endpoint cannot be reached", advice


def lacks_credentials(error: Exception) -> bool:
    """True if obstore asked the metadata server of a cloud for credentials, in vain."""
    hosts = "169.254.169.254", "metadata.google.internal"
    return any(host in first_line(error) for host in hosts)


def first_line(error: Exception) -> str:
    """Text of an error of obstore without its debug dump, which has the headers of the request."""
    return str(error).strip().partition("\n")[0]
