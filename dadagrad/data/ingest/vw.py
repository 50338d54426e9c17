"""Vowpal Wabbit's text format.

``[label [importance [base]]] ['tag]|namespace[:scale] feature[:value] ... |namespace ...``

A feature named in the unnamed namespace hashes by its name, one of another namespace by
``namespace^feature``, the way scikit-learn's `FeatureHasher` does without alternating signs.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.blocks import Block, compact
from dadagrad.data.ingest import parsing
from dadagrad.data.ingest.lines import (
    BAD_ID,
    Lines,
    as_float32,
    explain,
    number_problem,
    quote,
    row_of,
)
from dadagrad.data.ingest.options import Options

MAX_TAG_BYTES = 256

_TOKEN_END = re.compile(rb"[\s|]")
_NAME_END = re.compile(rb"[\s|:]")
_LINE_END = re.compile(rb"\n")
_MESSAGES = {
    parsing.NEEDS_HASHING: (
        "feature {token} is not an integer in the unnamed namespace; pass --hash-bits (hash_bits) "
        "to hash names"
    ),
    parsing.NO_BAR: "found no '|' after {token}; a line looks like '1 | price:0.5 sold'",
    parsing.MISSING_LABEL: (
        "there is no label before the first '|'; a line looks like '1 | price:0.5 sold' (text "
        "attached to the bar, without a space, is a tag; rows without labels, to be predicted, "
        "are read with --no-labels)"
    ),
    parsing.BAD_LABEL: (
        "found {token} before the first '|'; needed are a label, and at most an importance of 0 "
        "or more, a base, and a tag"
    ),
    parsing.BASE_MARGIN: "base is {token}; only 0, or no base, is supported",
    parsing.BAD_NAMESPACE: (
        "found the namespace {token}; one looks like '|words' or '|words:0.5', with a finite scale"
    ),
    parsing.BAD_FEATURE: "found {token}; features look like 'name' or 'name:0.5'",
    parsing.BAD_ID: BAD_ID,
}


def parse(chunk: bytes, *, path: str, offset: int, options: Options) -> Block:
    """Parse whole lines of Vowpal Wabbit text.

    `path` and `offset` are the file of the chunk and its position there, for messages. Ids are
    ``abs(murmur3_32(name)) % 2**hash_bits``; without ``options.hash_bits``, names must be integers
    in the unnamed namespace, and are the ids. Entries of one id are added up; those of value 0 are
    left out.

    Raises
    ------
    InputError
        Naming file and line, for a malformed line, a missing label, numbers that are not
        finite, a base other than 0; and where names need `hash_bits`.
    """
    lines = Lines(chunk, path, offset, options.on_error, _TOKEN_END)
    n_newlines, _, n_spaces = parsing.count(lines.text)  # white space comes before each feature
    out = parsing.allocate(n_newlines, n_spaces)
    n_rows, skipped, outcome, line, at = parsing.vw_rows(
        lines.text, options.hash_bits or 0, options.no_labels, lines.skip, out
    )
    out = out.first(n_rows)
    lines.finish_labels(out)
    _finish_weights(lines, out)
    lines.finish_values(out, scaled=True)
    names = {}
    if options.keep_names and options.hash_bits is not None:
        names = _names(lines, out)
    parsing.merge_entries(out.indptr, out.ids, out.values)
    out = out.first(n_rows)
    for entry in np.flatnonzero(~np.isfinite(out.values)).tolist():
        row = row_of(out, entry)
        problem = f"values of feature {out.ids[entry]} add up to more than float32 holds"
        lines.report(row, out.lines[row], problem)
    block = Block(
        out.indptr,
        out.ids,
        out.values,
        out.labels[:, None],
        out.weights,
        tags=_tags(lines, out),
        skipped=skipped,
        names=names,
    )
    block = lines.without_problems(block)
    if outcome != parsing.DONE:
        problem = explain(outcome, lines.token(at), _MESSAGES, "label or importance")
        lines.reject(line, problem)
    return compact(block)


def _finish_weights(lines: Lines, out: parsing.Output) -> None:
    """Convert the importances that the kernel left as NaN; report those that overflow."""
    for row in np.flatnonzero(~np.isfinite(out.weights)).tolist():
        at = out.first_labels[row]
        importance = lines.token(at, _LINE_END).split(maxsplit=2)[1]
        out.weights[row] = as_float32(float(importance))
        lines.report(row, at, number_problem("importance", importance))


def _names(lines: Lines, out: parsing.Output) -> dict[int, str]:
    """First name of each id of the entries, which are in the order of the text."""
    names = {}
    distinct, first = np.unique(out.ids, return_index=True)
    for feature, entry in zip(distinct.tolist(), first.tolist(), strict=True):
        name = lines.token(out.names[entry], _NAME_END)
        namespace = lines.token(out.namespaces[entry], _NAME_END)
        whole = namespace + b"^" + name if namespace else name
        names[feature] = whole.decode("utf-8", "backslashreplace")
    return names


def _tags(lines: Lines, out: parsing.Output) -> NDArray[np.object_] | None:
    """Tags of the rows, "" for a row without one; None if no row has one.

    Reports tags that are too long: in memory, each tag takes as many bytes as the longest.
    """
    tagged = np.flatnonzero(out.tags >= 0).tolist()
    if not tagged:
        return None
    tags = np.full(len(out.tags), "", object)
    for row in tagged:
        token = lines.token(out.tags[row])
        if len(token) > MAX_TAG_BYTES:
            problem = f"tag is {quote(token)}; it must have {MAX_TAG_BYTES} bytes or less"
            lines.report(row, out.tags[row], problem)
        else:
            tags[row] = token.removeprefix(b"'").decode("utf-8", "backslashreplace")
    return tags
