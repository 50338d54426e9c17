"""Errors that users meet. Each message names the value, the requirement and the remedy."""

from __future__ import annotations

import re
import signal
from typing import Literal, TypeAlias

OnError: TypeAlias = Literal["raise", "skip"]
"""Treatment of a wrong row, or of a partition that cannot be read."""

_USER = re.compile(r"(?<=://)([^\s/@?]*:[^\s?]*|[^\s/?]*)@")
_QUERY = re.compile(r"(?<=://)(?<!file://)(?<!memory://)([^\s?]*?)(\?|%3F)[^\s'\",;)]*(?<!:)")


def redact(text: str) -> str:
    """Return `text` without the user, password and query of any URL in it; a path has none."""
    return _QUERY.sub(r"\1?...", _USER.sub("", text))


class DadagradError(Exception):
    """Base of every error that dadagrad raises on purpose; it shows no credentials of a URL."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(redact(x) if isinstance(x, str) else x for x in arguments))


class InputError(DadagradError, ValueError):
    """Error in the input: data, a file, an option or a combination of options."""


class StorageError(DadagradError, OSError):
    """Error of a store: it cannot be reached, refuses access or is full."""


class AlreadyExists(StorageError):
    """Error of a create-only write: the key exists."""


class MissingKey(StorageError):
    """Error of a read: the store has no object of that key."""


class TooLarge(StorageError):
    """Error of a read: the object is larger than permitted."""


class CorruptionError(DadagradError):
    """Error of stored bytes that differ from their manifest or metadata."""


class OutOfMemory(DadagradError, MemoryError):
    """Error of a process that has less memory than it needs; its data may be whole."""


class TrainingError(DadagradError):
    """Error that ends training: a loss that is not finite, or a task that fails repeatedly."""


def signals_to_end() -> list[signal.Signals]:
    """SIGINT, SIGTERM and SIGHUP (of a terminal that is closed), but one that is ignored."""
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    numbers = [signal.Signals[name] for name in names if hasattr(signal, name)]
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
