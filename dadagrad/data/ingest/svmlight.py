"""The svmlight (libsvm) text format: ``label [qid:N] id:value id:value ... # comment``."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.blocks import Block, compact
from dadagrad.data.ingest import parsing
from dadagrad.data.ingest.lines import BAD_ID, Lines, explain, quote
from dadagrad.data.ingest.options import Options

_TOKEN_END = re.compile(rb"[\s#]")
_MESSAGES = {
    parsing.MISSING_LABEL: (
        "starts with {token}; a line must start with its label, a number (rows without labels, to "
        "be predicted, are read with --no-labels)"
    ),
    parsing.BAD_QUERY: "found {token}; 'qid:' must come once, with a whole number from 0 up",
    parsing.BAD_FEATURE: (
        "found {token}; features look like 3:0.5, with white space between and ids from 0 up"
    ),
    parsing.BAD_ID: BAD_ID,
    parsing.ZERO_ID: "feature id is 0 in a file read as one-based; read it as zero-based",
}


def parse(chunk: bytes, *, path: str, offset: int, options: Options) -> Block:
    """Parse whole lines of svmlight text.

    `path` and `offset` are the file of the chunk and its position there, for messages. Ids start
    at 0 unless ``options.zero_based`` is False. If ``options.multilabel`` is None, a list of labels
    in any line of the chunk makes all labels texts, such as "1,3"; "" is a line without a label.

    Raises
    ------
    InputError
        Naming file and line, for a malformed line, a missing label, a value or label that is
        not finite, an id that is negative or too large, and ids that are not increasing.
    """
    lines = Lines(chunk, path, offset, options.on_error, _TOKEN_END)
    n_newlines, n_colons, _ = parsing.count(lines.text)
    out = parsing.allocate(n_newlines, n_colons)
    first_id = 1 if options.zero_based is False else 0
    label_optional = bool(options.multilabel or options.no_labels)
    n_rows, skipped, outcome, line, at, several = parsing.svmlight_rows(
        lines.text, first_id, label_optional, lines.skip, out
    )
    out = out.first(n_rows)
    labels: NDArray[np.float64] | NDArray[np.object_] = out.labels[:, None]
    if options.multilabel or (several and not options.no_labels):
        labels = _label_texts(lines, out, options.multilabel is False)
    else:
        lines.finish_labels(out)
    lines.finish_values(out, scaled=False)
    has_query = out.queries != parsing.NO_QUERY
    queried = bool(has_query.any())
    for row in np.flatnonzero(~has_query).tolist() if queried else ():
        problem = "no 'qid:' while other lines have one; every line needs its group, or none"
        lines.report(row, out.lines[row], problem)
    queries = out.queries if queried else None
    block = Block(out.indptr, out.ids, out.values, labels, queries=queries, skipped=skipped)
    block = lines.without_problems(block)
    if outcome != parsing.DONE:
        lines.reject(line, _describe(lines, outcome, line, at))
    return compact(block)


def _label_texts(lines: Lines, out: parsing.Output, forbidden: bool) -> NDArray[np.object_]:
    """Label lists of the rows as text; reports labels that overflow, and lists if forbidden."""
    texts = np.empty(len(out.labels), object)
    for row, at in enumerate(out.first_labels.tolist()):
        token = lines.token(at) if at >= 0 else b""
        texts[row] = token.decode("ascii")
        if token and not np.isfinite([float(label) for label in token.split(b",")]).all():
            lines.report(row, at, f"label is {quote(token)}; every label must be finite")
        elif forbidden and b"," in token:
            lines.report(row, at, f"label is {quote(token)}; it must be one number, not a list")
    return texts


def _describe(lines: Lines, outcome: int, line: int, at: int) -> str:
    """Message about the wrong token at `at`."""
    token = lines.token(at)
    if outcome != parsing.UNSORTED:
        return explain(outcome, token, _MESSAGES, "label")
    before = re.findall(rb"(?:^|\s)(\d+):", lines.chunk[line:at])[-1]
    name = token.partition(b":")[0]
    return f"feature {quote(name)} comes after {quote(before)}; the ids of a line must increase"
