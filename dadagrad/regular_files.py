"""Local files that hold bytes: not pipes, which may be silent for ever, nor devices without end.

Whoever made a folder of data, checkpoints or a model may have put such a thing, or a link to it,
in the place of a file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from dadagrad.errors import InputError

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def open_regular(path: str, flags: int) -> int:
    """A descriptor of the regular file at `path`: an `opener` for reading with the built-in `open`.

    Raises
    ------
    OSError
        As the built-in `open`.
    InputError
        There is something else than a file or a folder.
    """
    # What is no file is found out when it is open, so that nothing can be put in its place between.
    # Opening a pipe would wait for a writer, but for the flag, which means nothing to a file.
    try:
        handle = os.open(path, flags | os.O_NONBLOCK)
    except OSError:
        check_regular(path, os.stat(path).st_mode)  # a socket cannot be opened
        raise
    try:
        check_regular(path, os.fstat(handle).st_mode)
    except InputError:
        os.close(handle)
        raise
    return handle


def check_regular(path: str, mode: int) -> None:
    """Raise `InputError` if what has this `st_mode` is neither a file nor a folder."""
    for is_kind, kind in _KINDS:
        if is_kind(mode):
            raise InputError(
                f"cannot read {path}: it is {kind}, or a link to one, where only regular files are "
                "read; put the file itself there"
            )
