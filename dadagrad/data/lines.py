"""What the line-based parsers share: their input, and what to do about a wrong line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.blocks import Block
from dadagrad.data.sources import place
from dadagrad.errors import InputError

OnError = Literal["raise", "skip"]

NUMBER = re.compile(rb"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_NOT_FINITE = re.compile(rb"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_MAX_CHUNK_BYTES = np.iinfo(np.int32).max - 1
_LONGEST_QUOTE = 40


class Lines:
    """A chunk of text ready for the kernels, and its policy on wrong lines."""

    def __init__(self, chunk: bytes, path: str, offset: int, on_error: OnError) -> None:
        if on_error not in ("raise", "skip"):
            raise InputError(f"on_error is {on_error!r}; it must be 'raise' or 'skip'")
        if len(chunk) > _MAX_CHUNK_BYTES:
            raise InputError(
                f"{path}: a chunk has {len(chunk)} bytes; it must have {_MAX_CHUNK_BYTES} or less"
            )
        if offset == 0 and chunk.startswith(b"\xef\xbb\xbf"):
            chunk = b"   " + chunk[3:]  # a byte order mark; positions must stay what they are
        self.chunk = chunk if chunk.endswith(b"\n") else chunk + b"\n"
        self.text: NDArray[np.uint8] = np.frombuffer(self.chunk, np.uint8)
        self.path = path
        self.offset = offset
        self.skip = on_error == "skip"

    def token(self, at: int, ends: re.Pattern[bytes]) -> bytes:
        """The text from `at` to where `ends` first matches."""
        found = ends.search(self.chunk, at)
        return self.chunk[at : found.start() if found else len(self.chunk)]

    def number(self, at: int) -> float:
        """The number at `at`, which a kernel has found to be well formed."""
        found = NUMBER.match(self.chunk, at)
        if found is None:
            raise AssertionError(f"a kernel took {self.chunk[at : at + 20]!r} for a number")
        return float(found.group())

    def reject(self, position: int, problem: str) -> NoReturn:
        """Raise `InputError` about the line that holds `position`."""
        raise InputError(f"{place(self.path, self.chunk, self.offset, position)}: {problem}")

    def without(self, block: Block, problems: dict[int, tuple[int, str]]) -> Block:
        """`block` without the rows that have a problem; raises for the first unless skipping.

        `problems` maps a row to a position in its line and a message.
        """
        if not problems:
            return block
        if not self.skip:
            self.reject(*problems[min(problems)])
        keep = np.ones(block.n_rows, bool)
        keep[list(problems)] = False
        lengths = np.diff(block.indptr)
        kept_entries = np.repeat(keep, lengths)
        return replace(
            block,
            indptr=np.concatenate([[0], np.cumsum(lengths[keep])]).astype(np.int64),
            ids=block.ids[kept_entries],
            values=None if block.values is None else block.values[kept_entries],
            labels=block.labels[keep],
            weights=None if block.weights is None else block.weights[keep],
            queries=None if block.queries is None else block.queries[keep],
            tags=None if block.tags is None else block.tags[keep],
            skipped=block.skipped + len(problems),
        )


def quote(token: bytes) -> str:
    """`token` for a message: printable, on one line, not too long."""
    shown = token[:_LONGEST_QUOTE].decode("utf-8", "backslashreplace")
    return repr(shown) + ("..." if len(token) > _LONGEST_QUOTE else "")


def number_problem(what: str, token: bytes) -> str | None:
    """What is wrong with the number `token`, which is the `what` of its line, if anything."""
    if _NOT_FINITE.fullmatch(token):
        return f"{what} is {quote(token)}; it must be finite"
    if not NUMBER.fullmatch(token):
        return f"{what} is {quote(token)}; it must be a number"
    if not np.isfinite(float(token) if what == "label" else as_float32(float(token))):
        return f"{what} is {quote(token)}; that is too large"
    return None


def as_float32(value: float) -> np.float32:
    """`value` rounded; infinite, without a warning, where it is too large."""
    with np.errstate(over="ignore"):
        return np.float32(value)


def rows_of(indptr: NDArray[np.int64], entries: Sequence[int] | NDArray[np.int64]) -> list[int]:
    """The row of each of `entries`."""
    rows: list[int] = (np.searchsorted(indptr, entries, side="right") - 1).tolist()
    return rows


def ones_as_none(values: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """None for values that are all 1, as blocks and rows have it."""
    return None if bool((values == 1).all()) else values
