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

from dadagrad.data.blocks import Block
from dadagrad.data.ingest import parsing
from dadagrad.data.ingest.files import (
    Lines,
    as_float32,
    number_problem,
    ones_as_none,
    quote,
    rows_of,
)
from dadagrad.data.ingest.options import Options

MAX_TAG_BYTES = 256

_TOKEN_END = re.compile(rb"[\s|]")
_NAME_END = re.compile(rb"[\s|:]")
_LINE_END = re.compile(rb"\n")


def parse(chunk: bytes, *, path: str, offset: int, options: Options) -> Block:
    """Parse whole lines of Vowpal Wabbit text.

    `path` and `offset` are the file of the chunk and its position there, for messages. Ids are
    ``abs(murmur3_32(name)) % 2**hash_bits``; without ``options.hash_bits``, names must be integers
    in the unnamed namespace, and are the ids.

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
    lines = Lines(chunk, path, offset, options.on_error)
    n_newlines, _, n_spaces = parsing.count(lines.text)  # white space comes before each feature
    out = parsing.allocate(n_newlines, n_spaces)
    n_rows, _, skipped, outcome, line, token = parsing.vw_rows(
        lines.text, options.hash_bits or 0, options.no_labels, lines.skip, out
    )
    indptr, n_entries = out.indptr[: n_rows + 1], int(out.indptr[n_rows])
    ids, values = out.ids[:n_entries], out.values[:n_entries]
    labels, weights = out.labels[:n_rows], out.weights[:n_rows]
    _finish_values(lines, indptr, values, out)
    _finish_header(lines, labels, weights, out.label_at)
    names = {}
    if options.keep_names and options.hash_bits is not None:
        names = _names(lines, ids, out)
    parsing.merge_entries(indptr, ids, values)
    ids, values = ids[: indptr[n_rows]], values[: indptr[n_rows]]
    infinite = np.flatnonzero(~np.isfinite(values))
    for entry, row in zip(infinite.tolist(), rows_of(indptr, infinite), strict=True):
        problem = f"values of feature {ids[entry]} add up to more than float32 holds"
        lines.problems.setdefault(row, (int(out.row_at[row]), problem))
    block = Block(
        indptr=indptr,
        ids=ids,
        values=values,
        labels=labels[:, None],
        weights=weights,
        tags=_tags(lines, out.tag_at[:n_rows]),
        skipped=skipped,
        names=names,
    )
    block = lines.without_problems(block)
    if outcome != parsing.DONE:
        lines.reject(line, _describe(lines, outcome, token))
    return replace(
        block,
        values=None if block.values is None else ones_as_none(block.values),
        weights=None if block.weights is None else ones_as_none(block.weights),
    )


def _scaled(lines: Lines, name_at: int, namespace_at: int) -> tuple[float, str | None]:
    """Value of the feature named at `name_at` times the scale of its namespace, in double
    precision, and a message if it is wrong."""
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
    out: parsing.Output,
) -> None:
    """Convert the values that the kernel left as NaN; report those too large for float32."""
    late = np.flatnonzero(np.isnan(values))
    for entry, row in zip(late.tolist(), rows_of(indptr, late), strict=True):
        at = int(out.name_at[entry])
        value, problem = _scaled(lines, at, int(out.namespace_at[entry]))
        values[entry] = 0 if problem else as_float32(value)  # its row is left out or raises
        if problem:
            lines.problems.setdefault(row, (at, problem))


def _finish_header(
    lines: Lines,
    labels: NDArray[np.float64],
    weights: NDArray[np.float32],
    label_at: NDArray[np.int32],
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
            lines.problems[row] = (at, problem)


def _names(lines: Lines, ids: NDArray[np.int64], out: parsing.Output) -> dict[int, str]:
    """First name of each of `ids`, which are in the order of the text."""
    names = {}
    distinct, first = np.unique(ids, return_index=True)
    for feature, entry in zip(distinct.tolist(), first.tolist(), strict=True):
        name = lines.token(out.name_at[entry], _NAME_END)
        namespace = lines.token(out.namespace_at[entry], _NAME_END)
        whole = namespace + b"^" + name if namespace else name
        names[feature] = whole.decode("utf-8", "backslashreplace")
    return names


def _tags(lines: Lines, tag_at: NDArray[np.int32]) -> NDArray[np.object_] | None:
    """Tags of the rows, "" for a row without one; None if no row has one.

    Reports tags that are too long: in memory, each tag takes as many bytes as the longest.
    """
    if not (tag_at >= 0).any():
        return None
    tags = np.full(len(tag_at), "", object)
    for row in np.flatnonzero(tag_at >= 0).tolist():
        token = lines.token(tag_at[row], _TOKEN_END)
        if len(token) > MAX_TAG_BYTES:
            problem = f"tag is {quote(token)}; it must have {MAX_TAG_BYTES} bytes or less"
            lines.problems.setdefault(row, (int(tag_at[row]), problem))
            continue
        tags[row] = token.removeprefix(b"'").decode("utf-8", "backslashreplace")
    return tags


def _describe(lines: Lines, outcome: int, at: int) -> str:
    """Message about the wrong token at `at`."""
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
            "(text attached to the bar, without a space, is a tag; rows without labels, to be "
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
        return f"feature id is {quote(name)}; ids must be {parsing.MAX_ID} or less"
    return f"found {quote(token)}; features look like 'name' or 'name:0.5'"
