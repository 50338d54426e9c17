"""The svmlight (libsvm) text format: ``label [qid:N] id:value id:value ... # comment``."""

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

_TOKEN_END = re.compile(rb"[\s#]")


def parse(chunk: bytes, *, path: str, offset: int, options: Options) -> Block:
    """Parse whole lines of svmlight text.

    `path` and `offset` are the file of the chunk and its position there, for messages. Ids start
    at 0 unless ``options.zero_based`` is False. If ``options.multilabel`` is None, a list of labels
    in any line of the chunk makes all labels texts, such as "1,3"; "" is a line without a label.

    Returns
    -------
    Block
        labels are (n_rows, 1) float64, or (n_rows,) object array of str, see above; (n_rows, 0)
        without labels.

    Raises
    ------
    InputError
        Naming file and line, for a malformed line, a missing label, a value or label that is
        not finite, an id that is negative or too large, and ids that are not increasing.
    """
    lines = Lines(chunk, path, offset, options.on_error)
    zero_based, multilabel = options.zero_based is not False, options.multilabel
    n_newlines, n_colons, _ = parsing.count(lines.text)
    out = parsing.allocate(n_newlines, n_colons)
    n_rows, n_entries, skipped, outcome, line, token, several = parsing.svmlight_rows(
        lines.text, 0 if zero_based else 1, bool(multilabel or options.no_labels), lines.skip, out
    )
    indptr, n_nonzeros = out.indptr[: n_rows + 1], int(out.indptr[n_rows])
    ids, values = out.ids[:n_nonzeros], out.values[:n_nonzeros]
    labels, queries = out.labels[:n_rows], out.queries[:n_rows]
    _finish_values(lines, indptr, values, out.value_at)
    final_labels: NDArray[np.float64] | NDArray[np.object_] = labels[:, None]
    if options.no_labels:
        final_labels = np.zeros((n_rows, 0))
    elif several or multilabel:
        final_labels = _label_texts(lines, out.label_at[:n_rows], multilabel is False)
    else:
        _finish_labels(lines, labels, out.label_at)
    has_query = queries != parsing.NO_QUERY
    for row in np.flatnonzero(~has_query).tolist() if has_query.any() else ():
        problem = "no 'qid:' while other lines have one; every line needs its group, or none"
        lines.problems.setdefault(row, (int(out.row_at[row]), problem))
    block = Block(
        indptr=indptr,
        ids=ids,
        values=values,
        labels=final_labels,
        queries=queries if has_query.any() else None,
        skipped=skipped,
    )
    block = lines.without_problems(block)
    if outcome != parsing.DONE:
        before = int(out.ids[n_entries - 1]) if n_entries > n_nonzeros else None
        lines.reject(line, _describe(outcome, lines.token(token, _TOKEN_END), before, zero_based))
    return replace(block, values=None if block.values is None else ones_as_none(block.values))


def _finish_values(
    lines: Lines,
    indptr: NDArray[np.int64],
    values: NDArray[np.float32],
    value_at: NDArray[np.int32],
) -> None:
    """Convert the values that the kernel left as NaN; report those too large for float32."""
    late = np.flatnonzero(np.isnan(values))
    for entry, row in zip(late.tolist(), rows_of(indptr, late), strict=True):
        at = int(value_at[entry])
        values[entry] = as_float32(lines.number(at))
        if problem := number_problem("value", lines.token(at, _TOKEN_END)):
            lines.problems.setdefault(row, (at, problem))


def _finish_labels(lines: Lines, labels: NDArray[np.float64], label_at: NDArray[np.int32]) -> None:
    """Convert the labels that the kernel left as NaN; report those that overflow."""
    for row in np.flatnonzero(np.isnan(labels)).tolist():
        at = int(label_at[row])
        labels[row] = lines.number(at)
        if problem := number_problem("label", lines.token(at, _TOKEN_END)):
            lines.problems[row] = (at, problem)


def _label_texts(lines: Lines, label_at: NDArray[np.int32], forbidden: bool) -> NDArray[np.object_]:
    """Label lists of the rows as text; reports labels that overflow, and lists if forbidden."""
    texts = np.empty(len(label_at), object)
    for row, at in enumerate(label_at.tolist()):
        token = lines.token(at, _TOKEN_END) if at >= 0 else b""
        texts[row] = token.decode("ascii")
        if token and not np.isfinite([float(label) for label in token.split(b",")]).all():
            lines.problems[row] = (at, f"label is {quote(token)}; every label must be finite")
        elif forbidden and b"," in token:
            problem = f"label is {quote(token)}; it must be one number, not a list"
            lines.problems[row] = (at, problem)
    return texts


def _describe(outcome: int, token: bytes, before: int | None, zero_based: bool) -> str:
    """Message about a wrong `token`."""
    if outcome == parsing.MISSING_LABEL:
        return (
            f"starts with {quote(token)}; a line must start with its label, a number (rows "
            "without labels, to be predicted, are read with --no-labels)"
        )
    if outcome == parsing.BAD_LABEL:
        for label in token.split(b","):
            if problem := number_problem("label", label):
                return problem
        return f"label is {quote(token)}; it must be a number, or numbers with commas between"
    if outcome == parsing.BAD_QUERY:
        return f"found {quote(token)}; 'qid:' must come once, with a whole number from 0 up"
    if outcome == parsing.ZERO_ID:
        return "feature id is 0 in a file read as one-based; read it as zero-based"
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
    if len(digits) > 19 or int(digits) > parsing.MAX_ID:
        return f"feature id is {quote(name)}; ids must be {parsing.MAX_ID} or less"
    return number_problem(f"value of feature {int(digits)}", value) or (
        f"found {quote(token)}; {needed}"
    )
