"""Lines of text for the compiled parsers, and messages about the wrong ones."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.blocks import Block, take
from dadagrad.data.ingest import parsing
from dadagrad.data.ingest.files import place
from dadagrad.data.ingest.options import OnError
from dadagrad.errors import InputError

BAD_ID = f"feature id is {{name}}; ids must be {parsing.MAX_ID} or less"

_MAX_QUOTE = 40
_NUMBER = re.compile(rb"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_NOT_FINITE = re.compile(rb"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)


class Lines:
    """A chunk of text for a kernel, and the policy on its wrong lines.

    Attributes
    ----------
    text : (n_bytes,) uint8
        The chunk, which ends in a newline.
    skip : bool
        True if wrong lines are left out.
    """

    def __init__(
        self, chunk: bytes, path: str, offset: int, on_error: OnError, token_end: re.Pattern[bytes]
    ) -> None:
        if offset == 0 and chunk.startswith(b"\xef\xbb\xbf"):
            chunk = b"   " + chunk[3:]  # a byte order mark; positions stay the same
        self.chunk = chunk if chunk.endswith(b"\n") else chunk + b"\n"
        self.text: NDArray[np.uint8] = np.frombuffer(self.chunk, np.uint8)
        self.skip = on_error == "skip"
        self._path = path
        self._offset = offset
        self._token_end = token_end
        self._problems: dict[int, tuple[int, str]] = {}

    def token(self, at: int, end: re.Pattern[bytes] | None = None) -> bytes:
        """Text from `at` to the first match of `end`."""
        match = (end or self._token_end).search(self.chunk, at)
        return self.chunk[at : match.start() if match else len(self.chunk)]

    def report(self, row: int, position: int, problem: str | None) -> None:
        """Note a `problem` of a row; the first of a row counts."""
        if problem is not None:
            self._problems.setdefault(row, (int(position), problem))

    def finish_labels(self, out: parsing.Output) -> None:
        """Convert the labels that the kernel left as NaN; report those that overflow."""
        for row in np.flatnonzero(np.isnan(out.labels) & (out.first_labels >= 0)).tolist():
            label = self.token(out.first_labels[row])
            out.labels[row] = float(label)
            self.report(row, out.first_labels[row], number_problem("label", label))

    def finish_values(self, out: parsing.Output, *, scaled: bool) -> None:
        """Convert the values that the kernel left as NaN; report those too large for float32.

        A value counts times that of its namespace if it is `scaled`, in double precision.
        """
        for entry in np.flatnonzero(np.isnan(out.values)).tolist():
            name, _, value = self.token(out.names[entry]).partition(b":")
            scale = self.token(out.namespaces[entry]).partition(b":")[2] if scaled else b""
            product = as_float32(float(value or 1) * float(scale or 1))
            out.values[entry] = product
            if not np.isfinite(product):
                out.values[entry] = 0  # its row is left out or raises
                problem = f"value of feature {quote(name)} is {quote(value)}"
                problem += f" times its namespace's {quote(scale)}" if scale else ""
                self.report(row_of(out, entry), out.names[entry], f"{problem}; that is too large")

    def without_problems(self, block: Block) -> Block:
        """`block` without the rows that have problems; raises for the first unless skipping."""
        if not self._problems:
            return block
        if not self.skip:
            self.reject(*self._problems[min(self._problems)])
        right = np.delete(np.arange(block.n_rows), list(self._problems))
        return replace(take(block, right), skipped=block.skipped + len(self._problems))

    def reject(self, position: int, problem: str) -> NoReturn:
        """Raise `InputError` about the line that holds `position`."""
        raise InputError(f"{place(self._path, self.chunk, self._offset, position)}: {problem}")


def explain(outcome: int, token: bytes, messages: dict[int, str], label: str) -> str:
    """Message about a wrong `token`: what is wrong with its number, or else one of `messages`.

    `label` is the name of the numbers before the features.
    """
    name, _, value = token.partition(b":")
    numbers: list[tuple[str, bytes]] = []
    if outcome == parsing.BAD_LABEL:
        numbers = [(label, part) for part in token.split(b",")]
    elif outcome == parsing.BAD_VALUE:
        numbers = [(f"value of feature {quote(name)}", value)]
    for problem in filter(None, (number_problem(what, number) for what, number in numbers)):
        return problem
    return messages[outcome].format(token=quote(token), name=quote(name))


def quote(token: bytes) -> str:
    """Format `token` for a message: printable, on one line, not too long."""
    shown = token[:_MAX_QUOTE].decode("utf-8", "backslashreplace")
    return repr(shown) + ("..." if len(token) > _MAX_QUOTE else "")


def number_problem(name: str, token: bytes) -> str | None:
    """Message about the number `token`, the `name` of its line; None if it is right."""
    if _NOT_FINITE.fullmatch(token):
        return f"{name} is {quote(token)}; it must be finite"
    if not _NUMBER.fullmatch(token):
        return f"{name} is {quote(token)}; it must be a number"
    if not np.isfinite(float(token) if name == "label" else as_float32(float(token))):
        return f"{name} is {quote(token)}; that is too large"
    return None


def as_float32(value: float) -> np.float32:
    """`value` rounded; infinite, without a warning, if it is too large."""
    with np.errstate(over="ignore"):
        return np.float32(value)


def row_of(out: parsing.Output, entry: int) -> int:
    """Row of an entry."""
    return int(np.searchsorted(out.indptr, entry, side="right")) - 1
