"""The svmlight (libsvm) text format: ``label [qid:N] id:value id:value ... # comment``."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dadagrad.data import parsing
from dadagrad.data.blocks import Block
from dadagrad.data.lines import (
    Lines,
    OnError,
    as_float32,
    number_problem,
    ones_as_none,
    quote,
    rows_of,
)

_TOKEN_END = re.compile(rb"[\s#]")


def parse(
    chunk: bytes,
    *,
    path: str,
    offset: int,
    zero_based: bool,
    on_error: OnError = "raise",
    multilabel: bool | None = None,
    no_labels: bool = False,
) -> Block:
    """Parse whole lines of svmlight text.

    Parameters
    ----------
    chunk
        Whole lines; the last may lack its newline.
    path, offset
        The file the chunk is from and the byte where it starts there, for messages.
    zero_based
        False: the smallest id in the text is 1 and becomes 0. True: ids are taken as they are.
    on_error
        "skip" leaves wrong lines out and counts them in ``Block.skipped``.
    multilabel
        True: `labels` are the texts of the label lists, such as "1,3", or "" where a line has no
        label. False: a list of labels is an error. None: texts if any line of the chunk has
        more than one label. `split_labels` reads the texts.
    no_labels
        Lines need no label, and those that are there are not kept.

    Returns
    -------
    Block
        labels are (n_rows, 1) float64, or (n_rows,) object array of str, see `multilabel`; with
        `no_labels` (n_rows, 0).

    Raises
    ------
    InputError
        Naming file and line, for a malformed line, a missing label, a value or label that is
        not finite, an id that is negative or too large, and ids that are not increasing.
    """
    lines = Lines(chunk, path, offset, on_error)
    n_newlines, n_colons, _ = parsing.count(lines.text)
    indptr = np.empty(n_newlines + 1, np.int64)
    ids = np.empty(n_colons, np.int64)
    values = np.empty(n_colons, np.float32)
    value_at = np.empty(n_colons, np.int32)
    labels = np.empty(n_newlines, np.float64)
    label_at = np.empty(n_newlines, np.int32)
    row_at = np.empty(n_newlines, np.int32)
    queries = np.empty(n_newlines, np.int64)
    n_rows, n_entries, skipped, outcome, line, token, several = parsing.svmlight_rows(
        lines.text,
        0 if zero_based else 1,
        bool(multilabel or no_labels),
        lines.skip,
        indptr,
        ids,
        values,
        value_at,
        labels,
        label_at,
        row_at,
        queries,
    )
    indptr, n_nonzeros = indptr[: n_rows + 1], int(indptr[n_rows])
    values, labels, queries = values[:n_nonzeros], labels[:n_rows], queries[:n_rows]
    problems = _finish_values(lines, indptr, values, value_at)
    texts = None
    if no_labels:
        labels = np.zeros((n_rows, 0))
    elif several or multilabel:
        texts = _label_texts(lines, label_at[:n_rows], row_at, multilabel is False, problems)
    else:
        _finish_labels(lines, labels, label_at, problems)
        labels = labels[:, None]
    has_query = queries != parsing.NO_QUERY
    for row in np.flatnonzero(~has_query).tolist() if has_query.any() else ():
        problem = "no 'qid:' while other lines have one; every line needs its group, or none"
        problems.setdefault(row, (int(row_at[row]), problem))
    block = Block(
        indptr=indptr,
        ids=ids[:n_nonzeros],
        values=values,
        labels=labels if texts is None else texts,
        queries=queries if has_query.any() else None,
        skipped=skipped,
    )
    block = lines.without(block, problems)
    if outcome != parsing.DONE:
        before = int(ids[n_entries - 1]) if n_entries > n_nonzeros else None
        lines.reject(line, _describe(outcome, lines.token(token, _TOKEN_END), before, zero_based))
    return replace(block, values=None if block.values is None else ones_as_none(block.values))


def split_labels(text: str) -> tuple[float, ...]:
    """The labels in a text such as "1,3"; none in an empty text."""
    return tuple(float(label) for label in text.split(",")) if text else ()


def _finish_values(
    lines: Lines,
    indptr: NDArray[np.int64],
    values: NDArray[np.float32],
    value_at: NDArray[np.int32],
) -> dict[int, tuple[int, str]]:
    """Convert the values that the kernel left as NaN; report those too large for float32."""
    problems: dict[int, tuple[int, str]] = {}
    late = np.flatnonzero(np.isnan(values))
    for entry, row in zip(late.tolist(), rows_of(indptr, late), strict=True):
        values[entry] = as_float32(lines.number(value_at[entry]))
        problem = number_problem("value", lines.token(value_at[entry], _TOKEN_END))
        if problem is not None:
            problems.setdefault(row, (int(value_at[entry]), problem))
    return problems


def _finish_labels(
    lines: Lines,
    labels: NDArray[np.float64],
    label_at: NDArray[np.int32],
    problems: dict[int, tuple[int, str]],
) -> None:
    """Convert the labels that the kernel left as NaN; report those that overflow."""
    for row in np.flatnonzero(np.isnan(labels)).tolist():
        labels[row] = lines.number(label_at[row])
        if not np.isfinite(labels[row]):
            problem = number_problem("label", lines.token(label_at[row], _TOKEN_END))
            problems[row] = (int(label_at[row]), str(problem))


def _label_texts(
    lines: Lines,
    label_at: NDArray[np.int32],
    row_at: NDArray[np.int32],
    forbidden: bool,
    problems: dict[int, tuple[int, str]],
) -> NDArray[np.object_]:
    """The label lists of the rows as text; reports labels that overflow, or lists if forbidden."""
    texts = np.empty(len(label_at), object)
    for row, at in enumerate(label_at.tolist()):
        token = lines.token(at, _TOKEN_END) if at >= 0 else b""
        texts[row] = token.decode("ascii")
        if not np.isfinite(split_labels(texts[row])).all():
            problems[row] = (at, f"label is {quote(token)}; every label must be finite")
        elif forbidden and b"," in token:
            problems[row] = (at, f"label is {quote(token)}; it must be one number, not a list")
    return texts


def _describe(outcome: int, token: bytes, before: int | None, zero_based: bool) -> str:
    """What is wrong with `token`: found, needed, what to do."""
    if outcome == parsing.MISSING_LABEL:
        return (
            f"starts with {quote(token)}; a line must start with its label, a number (rows that "
            "have none, to be predicted, are read with --no-labels)"
        )
    if outcome == parsing.BAD_LABEL:
        for label in token.split(b","):
            if problem := number_problem("label", label):
                return problem
        return f"label is {quote(token)}; it must be a number, or numbers with commas between"
    if outcome == parsing.BAD_QUERY:
        return f"found {quote(token)}; 'qid:' must come once, with a whole number from 0 up"
    if outcome == parsing.ZERO_ID:
        return "feature id is 0, and ids were said to start at 1; read the file as zero-based"
    name, _, value = token.partition(b":")
    if outcome == parsing.UNSORTED and before is not None:
        before += 0 if zero_based else 1
        # Without zeros in front: Python refuses to read thousands of digits.
        feature = int(name.lstrip(b"0") or b"0")
        if feature == before:
            return f"feature {before} comes twice; the ids of a line must increase"
        return f"feature {feature} comes after {before}; the ids of a line must increase"
    return _feature_problem(token, name, value)


def _feature_problem(token: bytes, name: bytes, value: bytes) -> str:
    needed = "features look like 3:0.5, with white space between"
    if not re.fullmatch(rb"-?\d+", name) or b":" not in token:
        return f"found {quote(token)}; {needed}"
    if name.startswith(b"-"):
        return f"feature id is {quote(name)}; ids must not be negative"
    digits = name.lstrip(b"0") or b"0"
    if len(digits) > 19 or int(digits) > parsing.LARGEST_ID:
        return f"feature id is {quote(name)}; ids must be {parsing.LARGEST_ID} or less"
    return number_problem(f"value of feature {int(digits)}", value) or (
        f"found {quote(token)}; {needed}"
    )
