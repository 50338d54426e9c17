"""Vowpal Wabbit's text format.

``[label [importance [base]]] ['tag]|namespace[:scale] feature[:value] ... |namespace ...``

A feature named in the unnamed namespace hashes by its name, one of another namespace by
``namespace^feature``, the way scikit-learn's `FeatureHasher` does without alternating signs.
"""

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
from dadagrad.data.merging import merge_entries
from dadagrad.errors import InputError

MAX_HASH_BITS = 31
MAX_TAG_BYTES = 256

_TOKEN_END = re.compile(rb"[\s|]")
_NAME_END = re.compile(rb"[\s|:]")
_LINE_END = re.compile(rb"\n")


def parse(
    chunk: bytes,
    *,
    path: str,
    offset: int,
    hash_bits: int | None,
    on_error: OnError = "raise",
    keep_names: bool = False,
    allow_unlabelled: bool = False,
) -> Block:
    """Parse whole lines of Vowpal Wabbit text.

    Parameters
    ----------
    chunk
        Whole lines; the last may lack its newline.
    path, offset
        The file the chunk is from and the byte where it starts there, for messages.
    hash_bits
        Ids are ``abs(murmur3_32(name)) % 2**hash_bits``, for 1 to 31 bits. None: the names are
        integers, all in the unnamed namespace, and are the ids.
    on_error
        "skip" leaves wrong lines out and counts them in ``Block.skipped``.
    keep_names
        Fill ``Block.names`` with the first name seen of each hashed id.
    allow_unlabelled
        Let lines without a label through, with label NaN: rows to predict.

    Returns
    -------
    Block
        labels (n_rows, 1) float64; weights from the importances, None if all are 1. Entries of
        one id are added up; those of value 0 are left out.

    Raises
    ------
    InputError
        Naming file and line, for a malformed line, a missing label, numbers that are not
        finite, a base other than 0; and where names need `hash_bits`.
    """
    if hash_bits is not None and not 1 <= hash_bits <= MAX_HASH_BITS:
        raise InputError(f"hash_bits is {hash_bits}; it must be 1 to {MAX_HASH_BITS}")
    lines = Lines(chunk, path, offset, on_error)
    n_newlines, _, n_spaces = parsing.count(lines.text)  # white space comes before each feature
    indptr = np.empty(n_newlines + 1, np.int64)
    ids = np.empty(n_spaces, np.int64)
    values = np.empty(n_spaces, np.float32)
    name_at, namespace_at = np.empty((2, n_spaces), np.int32)
    labels = np.empty(n_newlines, np.float64)
    weights = np.empty(n_newlines, np.float32)
    label_at, tag_at, row_at = np.empty((3, n_newlines), np.int32)
    n_rows, _, skipped, outcome, line, token = parsing.vw_rows(
        lines.text,
        hash_bits or 0,
        allow_unlabelled,
        lines.skip,
        indptr,
        ids,
        values,
        name_at,
        namespace_at,
        labels,
        label_at,
        weights,
        tag_at,
        row_at,
    )
    indptr, n_entries = indptr[: n_rows + 1], int(indptr[n_rows])
    ids, values = ids[:n_entries], values[:n_entries]
    labels, weights, tag_at = labels[:n_rows], weights[:n_rows], tag_at[:n_rows]
    problems = _finish_values(lines, indptr, values, name_at, namespace_at)
    _finish_header(lines, labels, weights, label_at, problems)
    names = {}
    if keep_names and hash_bits is not None:
        names = _names(lines, ids, name_at, namespace_at)
    merge_entries(indptr, ids, values)
    ids, values = ids[: indptr[n_rows]], values[: indptr[n_rows]]
    infinite = np.flatnonzero(~np.isfinite(values))
    for entry, row in zip(infinite.tolist(), rows_of(indptr, infinite), strict=True):
        problem = f"values of feature {ids[entry]} add up to more than float32 holds"
        problems.setdefault(row, (int(row_at[row]), problem))
    block = Block(
        indptr=indptr,
        ids=ids,
        values=values,
        labels=labels[:, None],
        weights=weights,
        tags=_tags(lines, tag_at, problems),
        skipped=skipped,
        names=names,
    )
    block = lines.without(block, problems)
    if outcome != parsing.DONE:
        lines.reject(line, _describe(lines, outcome, token))
    return _compact(block)


def _compact(block: Block) -> Block:
    """`block` with None for values, weights that are all 1."""
    weights = block.weights
    return replace(
        block,
        values=None if block.values is None else ones_as_none(block.values),
        weights=None if weights is None else ones_as_none(weights),
    )


def _scaled(lines: Lines, name_at: int, namespace_at: int) -> tuple[float, str | None]:
    """The value of the feature named at `name_at` times the scale of its namespace, in double
    precision, and what is wrong with it."""
    name = lines.token(name_at, _NAME_END)
    value, scale = (
        token.partition(b":")[2] or b"1"
        for token in (lines.token(name_at, _TOKEN_END), lines.token(namespace_at, _TOKEN_END))
    )
    product = float(value) * float(scale)
    problem = None
    if not np.isfinite(as_float32(product)):
        problem = f"value of feature {quote(name)} is {quote(value)}"
        problem += f" times its namespace's {quote(scale)}" if scale != b"1" else ""
        problem += "; that is too large"
    return product, problem


def _finish_values(
    lines: Lines,
    indptr: NDArray[np.int64],
    values: NDArray[np.float32],
    name_at: NDArray[np.int32],
    namespace_at: NDArray[np.int32],
) -> dict[int, tuple[int, str]]:
    """Convert the values that the kernel left as NaN; report those too large for float32."""
    problems: dict[int, tuple[int, str]] = {}
    late = np.flatnonzero(np.isnan(values))
    for entry, row in zip(late.tolist(), rows_of(indptr, late), strict=True):
        at = int(name_at[entry])
        value, problem = _scaled(lines, at, int(namespace_at[entry]))
        values[entry] = 0 if problem else as_float32(value)  # its row is left out or raises
        if problem:
            problems.setdefault(row, (at, problem))
    return problems


def _finish_header(
    lines: Lines,
    labels: NDArray[np.float64],
    weights: NDArray[np.float32],
    label_at: NDArray[np.int32],
    problems: dict[int, tuple[int, str]],
) -> None:
    """Convert labels and importances that the kernel left as NaN; report those that overflow."""
    late = (np.isnan(labels) & (label_at[: len(labels)] >= 0)) | ~np.isfinite(weights)
    for row in np.flatnonzero(late).tolist():
        at = int(label_at[row])
        label, *rest = lines.token(at, _LINE_END).partition(b"|")[0].split()
        labels[row] = float(label)
        problem = number_problem("label", label)
        if not np.isfinite(weights[row]):
            weights[row] = as_float32(float(rest[0]))
            problem = problem or number_problem("importance", rest[0])
        if problem:
            problems[row] = (at, problem)


def _names(
    lines: Lines,
    ids: NDArray[np.int64],
    name_at: NDArray[np.int32],
    namespace_at: NDArray[np.int32],
) -> dict[int, str]:
    """The first name of each of `ids`, which are in the order of the text."""
    names = {}
    distinct, first = np.unique(ids, return_index=True)
    for feature, entry in zip(distinct.tolist(), first.tolist(), strict=True):
        name = lines.token(name_at[entry], _NAME_END)
        namespace = lines.token(namespace_at[entry], _NAME_END)
        whole = namespace + b"^" + name if namespace else name
        names[feature] = whole.decode("utf-8", "backslashreplace")
    return names


def _tags(
    lines: Lines, tag_at: NDArray[np.int32], problems: dict[int, tuple[int, str]]
) -> NDArray[np.object_] | None:
    """The tags of the rows, "" where a row has none; None if no row has one.

    Reports tags that are too long: on their way, all rows take the room of the longest.
    """
    if not (tag_at >= 0).any():
        return None
    tags = np.full(len(tag_at), "", object)
    for row in np.flatnonzero(tag_at >= 0).tolist():
        token = lines.token(tag_at[row], _TOKEN_END)
        if len(token) > MAX_TAG_BYTES:
            problem = f"tag is {quote(token)}; it must have {MAX_TAG_BYTES} bytes or less"
            problems.setdefault(row, (int(tag_at[row]), problem))
            continue
        tags[row] = token.removeprefix(b"'").decode("utf-8", "backslashreplace")
    return tags


def _describe(lines: Lines, outcome: int, at: int) -> str:
    """What is wrong with the line at `at`: found, needed, what to do."""
    token = lines.token(at, _TOKEN_END)
    if outcome == parsing.NEEDS_HASHING:
        return (
            f"feature {quote(token)} is not an integer in the unnamed namespace; pass --hash-bits "
            "(hash_bits) to hash names"
        )
    if outcome == parsing.NO_BAR:
        return f"found no '|' after {quote(token)}; a line looks like '1 | price:0.5 sold'"
    if outcome == parsing.MISSING_LABEL:
        return (
            "there is no label before the first '|'; a line looks like '1 | price:0.5 sold' "
            "(text attached to the bar, without a space, is a tag; rows that have no label, to be "
            "predicted, are read with --no-labels)"
        )
    if outcome == parsing.BASE_MARGIN:
        return f"base is {quote(token)}; only 0, or no base, is supported"
    if outcome == parsing.BAD_LABEL:
        problem = number_problem("label or importance", token)
        return problem or (
            f"found {quote(token)} before the first '|'; needed are a label, and at most an "
            "importance of 0 or more, a base, and a tag"
        )
    if outcome == parsing.BAD_NAMESPACE:
        needed = "a namespace looks like '|words' or '|words:0.5', with a finite scale"
        return f"found {quote(b'|' + token)}; {needed}"
    return _feature_problem(token)


def _feature_problem(token: bytes) -> str:
    name, colon, value = token.partition(b":")
    if name and colon and (problem := number_problem(f"value of feature {quote(name)}", value)):
        return problem
    if not colon and name.isdigit():
        return f"feature id is {quote(name)}; ids must be {parsing.LARGEST_ID} or less"
    return f"found {quote(token)}; features look like 'name' or 'name:0.5'"
