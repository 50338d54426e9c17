"""The svmlight (libsvm) text format: ``label [qid:N] id:value id:value ... # comment``."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.blocks import Block
from dadagrad.data.ingest.lines import BAD_ID, Lines, explain, quote
from dadagrad.data.reading.options import Options
from dadagrad.data.rows import row_of
from dadagrad.kernels import parsing

_MESSAGES = {
    parsing.MISSING_LABEL: (
        "starts with {token}; a line must start with its label, a number (rows with sets of "
        "labels, which may be empty, are read with --multilabel, and rows without labels, to be "
        "predicted, with --no-labels)"
    ),
    parsing.BAD_QUERY: "found {token}; 'qid:' must come once, with a whole number from 0 up",
    parsing.BAD_FEATURE: (
        "found {token}; features look like 3:0.5, with white space between and ids from 0 up"
    ),
    parsing.BAD_ID: BAD_ID,
}


def parse(chunk: bytes, *, path: str, offset: int, options: Options) -> Block:
    """Parse whole lines of svmlight text.

    With ``options.multilabel``, or a list of labels in any line of the chunk, all labels are texts,
    such as "1,3"; "" is a line without a label. Raises `InputError`, naming file and line,
    for a malformed line, a missing label, a value or label that is not finite, an id that is
    negative, too large or 0 in a one-based file, and ids that are not increasing.
    """
    lines = Lines(chunk, path, offset, options)
    out = lines.out
    labels: NDArray[np.float64] | NDArray[np.object_] = out.labels[:, None]
    if options.multilabel or (lines.several and not options.no_labels):
        labels = _label_texts(lines)
    else:
        lines.finish_labels()
    lines.finish_values()
    for entry in np.flatnonzero(out.ids == 0).tolist() if options.zero_based is False else ():
        problem = "feature id is 0 in a file read as one-based, like the data of the features"
        lines.report(row_of(out.indptr, entry), out.names[entry], problem)
    queries, has_query = None, out.queries != parsing.NO_QUERY
    if has_query.any():
        queries = out.queries
        for row in np.flatnonzero(~has_query).tolist():
            problem = "no 'qid:' while other lines have one; every line needs its group, or none"
            lines.report(row, out.lines[row], problem)
    block = Block(out.indptr, out.ids, out.values, labels, queries=queries)

    def describe(outcome: int, line: int, at: int) -> str:
        token = lines.token(at)
        if outcome != parsing.UNSORTED:
            return explain(outcome, token, _MESSAGES, "label")
        before = re.findall(rb"(?:^|\s)(\d+):", lines.chunk[line:at])[-1]
        name = token.partition(b":")[0]
        return f"feature {quote(name)} comes after {quote(before)}; the ids of a line must increase"

    return lines.finish(block, describe)


def _label_texts(lines: Lines) -> NDArray[np.object_]:
    """Label lists of the rows as text; reports labels that overflow."""
    texts = np.empty(len(lines.out.labels), object)
    for row, at in enumerate(lines.out.first_labels.tolist()):
        token = lines.token(at) if at >= 0 else b""
        texts[row] = token.decode("ascii")
        if token and not np.isfinite([float(label) for label in token.split(b",")]).all():
            lines.report(row, at, f"label is {quote(token)}; every label must be finite")
    return texts
