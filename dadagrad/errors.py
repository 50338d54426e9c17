"""Errors that users meet. Each message names the value, the requirement and the remedy."""

from __future__ import annotations

import difflib
import errno
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

OnError: TypeAlias = Literal["raise", "skip"]
"""Treatment of a wrong row, or of a partition that cannot be read."""

# With one slash it is a URL that was taken for a path.
_USER = re.compile(r"(?<=\w\w:/)(/?)([^\s/@?]*:[^\s?]*@|[^\s/?]*(@|%40))")
_QUERY = re.compile(r"(?<=://)(?<!file://)(?<!memory://)([^\s?]*?)(\?|%3F)[^\s'\",;)]*(?<!:)")


def redact(text: str) -> str:
    """Return `text` without the user, password and query of any URL in it; a path has none."""
    return _QUERY.sub(r"\1?...", _USER.sub(r"\1", text))


_QUOTED = re.compile(r"(`[^`]*`)")
_OPTION = re.compile(
    r"--(?!memory-limit|nthreads)([a-z][a-z-]*)"
    r"(?: (?=skip\b|hinge\b|logistic\b|squared\b|svmlight\b|\d))?"
)
_FLAGS = {
    "no-labels": "no_labels=True",
    "multilabel": "multilabel=True",
    "no-shuffle": "shuffle=False",
    "no-header": "header=False",
    "overwrite": "overwrite=True",
    "keep-state": "keep_state=True",
}


class Interface:
    """Interface through which this process is used: the command line, or else Python."""

    is_command_line = False


@contextmanager
def on_command_line() -> Iterator[None]:
    """Let messages name options of the command line."""
    before, Interface.is_command_line = Interface.is_command_line, True
    try:
        yield
    finally:
        Interface.is_command_line = before


def name_options(text: str) -> str:
    """Return a message with its options, such as ``--label``, as the interface in use names them.

    In Python, they are keyword arguments, such as ``label=``. Commands in backquotes stay.
    """
    if Interface.is_command_line:
        return text

    def keyword(option: re.Match[str]) -> str:
        return _FLAGS.get(option[1]) or f"{option[1].replace('-', '_')}="

    return "".join(
        part if part.startswith("`") else _OPTION.sub(keyword, part) for part in _QUOTED.split(text)
    )


_OF_OTHER_TOOLS = {
    "target": "label", "epochs": "passes", "max_iter": "passes", "learning_rate": "step_size",
    "lr": "step_size", "eta0": "step_size", "alpha": "l2", "random_state": "seed",
    "n_jobs": "threads", "log_loss": "logistic", "cross_entropy": "softmax", "mse": "squared",
    "mae": "absolute",
}  # fmt: skip
"""Names that other tools have for settings, options and losses."""


def nearest(name: str, names: Iterable[str], otherwise: str) -> str:
    """Return the question whether one of the `names` like `name` was meant, or `otherwise`."""
    names = list(names)
    dashes = name.startswith("--")
    known = _OF_OTHER_TOOLS.get(name.removeprefix("--").replace("-", "_"), "")
    near = [f"--{known.replace('_', '-')}" if dashes else known]
    near = near if near[0] in names else []
    near = near or [each for each in names if each.strip().casefold() == name.strip().casefold()]
    near = near or difflib.get_close_matches(name, names, 3)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else otherwise


class DadagradError(Exception):
    """Base of every error that dadagrad raises on purpose; it shows no credentials of a URL."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(redact(x) if isinstance(x, str) else x for x in arguments))

    def __str__(self) -> str:
        return name_options(super().__str__())


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
    """Error that ends training: a loss that is not finite, or a task that fails repeatedly.

    Where it is about a `feature`, the message has ``{feature}`` in the place of its id and name.
    """

    feature_name = ""

    def __init__(self, message: str, feature: int | None = None) -> None:
        super().__init__(message)
        self.feature = feature

    def __str__(self) -> str:
        name = f" ({self.feature_name[:60]!r})" if self.feature_name else ""
        return super().__str__().replace("{feature}", f"feature {self.feature}{name}")


_NO_MEMORY = re.compile(
    "can't start new thread|failed to map segment|cannot allocate memory|not enough memory"
    "|insufficient memory|out of memory|spawn worker thread|launch worker thread|spawn thread"
    "|memory allocation|bad_alloc",
    re.IGNORECASE,
)
"""Texts of errors of lacking memory that are not a `MemoryError`, of the system and libraries."""


def lacks_memory(error: BaseException | None) -> bool:
    """Return True if an error, or an error that it comes from, is one of lacking memory."""
    return any(
        isinstance(origin, MemoryError)
        or getattr(origin, "errno", None) == errno.ENOMEM
        or _NO_MEMORY.search(str(origin))
        for origin in origins(error)
    )


def origins(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it comes from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def signals_to_end() -> list[signal.Signals]:
    """SIGINT, SIGTERM and SIGHUP (of a terminal that is closed), but one that is ignored."""
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    numbers = [signal.Signals[name] for name in names if hasattr(signal, name)]
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
