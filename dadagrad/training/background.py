"""One background thread for work of which only the latest matters."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


class LatestOnly(Generic[T]):
    """Runs ``work(item)`` for the items put in, one at a time, on a thread of its own.

    One item waits at most: a newer one takes the place of one that has not begun. So `put` never
    waits, and memory holds two items at most, the one in work and the one waiting.
    """

    def __init__(self, work: Callable[[T], object], name: str) -> None:
        self._work = work
        self._name = name
        self._changed = threading.Condition()
        self._waiting: T | None = None
        self._busy = False
        self._closing = False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def put(self, item: T) -> None:
        """Hand over `item`; raises the error of an earlier one, once."""
        with self._changed:
            self._raise_error()
            if self._closing:
                raise RuntimeError(f"{self._name} is closed")
            if self._waiting is not None:
                logger.info("%s: a newer item took the place of one that was waiting", self._name)
            self._waiting = item
            if self._thread is None:
                # A daemon: an interpreter that ends must not wait for a store that hangs.
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def check(self) -> None:
        """Raise the error of an earlier item, once, if there was one."""
        with self._changed:
            self._raise_error()

    def wait(self) -> None:
        """Return when everything put in is done; raises the error of any of it, once."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is None and not self._busy)
            self._raise_error()

    def close(self) -> None:
        """Do what is waiting, end the thread, and raise any error not raised yet."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._changed:
            self._raise_error()

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting is not None or self._closing)
                if self._waiting is None:
                    return
                item, self._waiting, self._busy = self._waiting, None, True
            try:
                self._work(item)
            except BaseException as error:
                with self._changed:
                    self._error = self._error or error
            finally:
                # Let go of the item before anyone is told: what it holds can be large.
                del item
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()
