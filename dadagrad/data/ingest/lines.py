"""Lines of text parsed by the compiled kernels, and messages about the wrong ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dadagrad.data.blocks import MAX_NOTES, Block, take
from dadagrad.data.reading.files import place
from dadagrad.data.reading.options import Options
from dadagrad.data.rows import row_of
from dadagrad.data.tables.delimited import refuse_wide_text
from dadagrad.errors import InputError
from dadagrad.kernels import parsing

BAD_ID = f"feature id is {{name}}; ids must be {parsing.MAX_ID} or less"

_MAX_QUOTE = 40
_TOKEN_END = {"svmlight": re.compile(rb"[\s#]"), "vw": re.compile(rb"[\s|]")}
_NUMBER = re.compile(rb"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_NOT_FINITE = re.compile(rb"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)


class Lines:
    """The rows that a kernel parsed from a chunk of a file, and the policy on wrong lines.

    `out` holds the rows, `several` is true if any has several labels. `path` and `offset` are the
    file of the chunk and its position there, for messages.
    """

    def __init__(self, chunk: bytes, path: str, offset: int, options: Options) -> None:
        if offset == 0:
            refuse_wide_text(path, chunk)
        if offset == 0 and chunk.startswith(b"\xef\xbb\xbf"):
            chunk = b"   " + chunk[3:]  # a byte order mark; positions stay the same
        self.chunk = chunk if chunk.endswith(b"\n") else chunk + b"\n"
        self.path, self._offset, self.options = path, offset, options
        self._is_vw, self._skip = options.format == "vw", options.on_error == "skip"
        self._problems: dict[int, tuple[int, str]] = {}
        text = np.frombuffer(self.chunk, np.uint8)
        # White space comes before each feature of VW; svmlight has a colon in each.
        may_begin_entry = text <= ord(" ") if self._is_vw else text == ord(":")
        self._n_lines = int(np.count_nonzero(text == ord("\n")))
        n_entries = int(np.count_nonzero(may_begin_entry))
        scratch = np.empty(len(text) + 1, np.uint8) if self._is_vw else None
        label_optional = options.multilabel or options.no_labels or options.to_predict

        out = parsing.allocate(self._n_lines, n_entries)
        n_rows, self._skipped, self.several, *self._wrong = parsing.rows(
            text, label_optional, self._skip, options.hash_bits or 0, scratch, out
        )
        self.out = out.first(n_rows)

    @property
    def outcome(self) -> int:
        """Outcome of the first wrong line."""
        return int(self._wrong[0])

    def token(self, at: int, end: re.Pattern[bytes] | None = None) -> bytes:
        """Text from `at` to the first match of `end`, by default to the end of the token."""
        match = (end or _TOKEN_END[self.options.format]).search(self.chunk, at)
        return self.chunk[at : match.start() if match else len(self.chunk)]

    def report(self, row: int, position: int, problem: str | None) -> None:
        """Note a `problem` of a row; the first of a row counts."""
        if problem is not None:
            self._problems.setdefault(row, (int(position), problem))

    def finish_labels(self) -> None:
        """Convert the labels that the kernel left as NaN; report those that overflow."""
        out = self.out
        for row in np.flatnonzero(np.isnan(out.labels) & (out.first_labels >= 0)).tolist():
            label = self.token(out.first_labels[row])
            out.labels[row] = float(label)
            self.report(row, out.first_labels[row], number_problem("label", label))

    def finish_values(self) -> None:
        """Convert the values that the kernel left as NaN; report those too large for float32.

        A value of VW counts times that of its namespace, in double precision.
        """
        out = self.out
        for entry in np.flatnonzero(np.isnan(out.values)).tolist():
            name, _, value = self.token(out.names[entry]).partition(b":")
            scale = self.token(out.namespaces[entry]).partition(b":")[2] if self._is_vw else b""
            product = as_float32(float(value or 1) * float(scale or 1))
            out.values[entry] = product
            if not np.isfinite(product):
                out.values[entry] = 0  # its row is left out or raises
                problem = f"value of feature {quote(name)} is {quote(value)}"
                problem += f" times its namespace's {quote(scale)}" if scale else ""
                row = row_of(out.indptr, entry)
                self.report(row, out.names[entry], f"{problem}; that is too large")

    def finish(self, block: Block, describe: Callable[[int, int, int], str]) -> Block:
        """`block` without wrong rows; raises `InputError` about the first unless skipping.

        `describe` gives the message about the first line that the kernel refused, by the outcome
        and the positions of line and token.
        """
        problems = [self._problems[row] for row in sorted(self._problems)[:MAX_NOTES]]
        if self.outcome != parsing.DONE:
            problems.append((int(self._wrong[1]), describe(*self._wrong)))
        notes = tuple(
            (place(self.path, self.chunk, self._offset, position), problem)
            for position, problem in sorted(problems)
        )
        if notes and not self._skip:
            raise InputError("{}: {}".format(*notes[0]))
        if self.outcome == parsing.NEEDS_HASHING:
            raise InputError("{}: {}".format(*notes[-1]))
        if self.options.keep_lines:
            lines = np.arange(block.n_rows)
            if block.n_rows != self._n_lines:  # some are blank, comments or wrong
                newlines = np.flatnonzero(np.frombuffer(self.chunk, np.uint8) == ord("\n"))
                lines = np.searchsorted(newlines, self.out.lines)
            block = replace(block, lines=lines, n_lines=self._n_lines)
        right = np.delete(np.arange(block.n_rows), list(self._problems))
        block = take(block, right) if self._problems else block
        skipped = self._skipped + len(self._problems)
        return replace(block, skipped=skipped, notes=notes[:MAX_NOTES])


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
    problem = next(filter(None, (number_problem(*number) for number in numbers)), None)
    return problem or messages[outcome].format(token=quote(token), name=quote(name))


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
