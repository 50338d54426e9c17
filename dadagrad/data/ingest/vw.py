"""Vowpal Wabbit's text format.

``[label [importance [base]]] ['tag]|namespace[:scale] feature[:value] ... |namespace ...``

A feature named in the unnamed namespace hashes by its name, one of another namespace by
``namespace^feature``, the way scikit-learn's `FeatureHasher` does without alternating signs. A
combination of features of crossed namespaces hashes by their ids.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse
from numpy.typing import NDArray

from dadagrad.data.blocks import Block
from dadagrad.data.feature_space import hash_of_cross
from dadagrad.data.ingest.lines import BAD_ID, Lines, as_float32, explain, number_problem, quote
from dadagrad.data.reading.files import read_head
from dadagrad.data.reading.options import Options
from dadagrad.data.rows import row_of
from dadagrad.errors import InputError, name_options
from dadagrad.kernels import parsing
from dadagrad.storage.files import SourceFile
from dadagrad.storage.memory import check_free_memory
from dadagrad.summary import listed

logger = logging.getLogger(__name__)

MAX_TAG_BYTES = 256

_HASH_BITS = 18  # Vowpal Wabbit's own default
_NAME_END = re.compile(rb"[\s|:]")
_LINE_END = re.compile(rb"\n")
_MESSAGES = {
    parsing.NEEDS_HASHING: (
        "feature {token} is not an integer in the namespace of the first feature; pass --hash-bits "
        "to hash names, where the training data are read"
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


def complete_options(options: Options, file: SourceFile) -> Options:
    """The options with the number of bits of hashes, by the first lines of a file.

    Names are not hashed by default if all are integers in a single namespace. A warning names
    chosen namespaces that the lines do not have. Of a pipe, no line is known. Raises `InputError`
    for a cross of namespaces that other options leave out.
    """
    crossed = {name for cross in options.cross for name in cross}
    ignored, kept = {*options.ignore}, {*(options.columns or ())}
    chosen = {"--cross": crossed, "--ignore": ignored, "--columns": kept}
    if both := crossed & ignored:
        raise InputError(
            f"--cross and --ignore name the namespace {min(both)!r}; leave it out of one of them"
        )
    if kept and (left_out := crossed - kept):
        raise InputError(
            f"--cross names the namespace {min(left_out)!r}, which --columns leaves out; name it "
            "there, too"
        )
    if options.hash_bits is not None and not any(chosen.values()):
        return options
    head = b"" if file.version is None else read_head(file)
    if options.cross or file.version is None or _needs_hashing(head, file.path):
        options = replace(options, hash_bits=options.hash_bits or _HASH_BITS)
    found = re.findall(rb"\|([^\s|:]+)", head)
    known = sorted({name.decode("utf-8", "backslashreplace") for name in found})
    for option, names in chosen.items():
        for name in sorted(names.difference(known) if known else ()):
            reason = f"{option} names the namespace {name!r}, which no line of the first MiB has"
            logger.warning(f"{file.path}: {name_options(reason)}; they have {listed(known)}")
    return options


def _needs_hashing(head: bytes, path: str) -> bool:
    lines = Lines(head, path, 0, Options("vw", on_error="skip", no_labels=True))
    return lines.outcome == parsing.NEEDS_HASHING


def parse(chunk: bytes, *, path: str, offset: int, options: Options) -> Block:
    """Parse whole lines of Vowpal Wabbit text.

    Ids are ``abs(murmur3_32(name)) % 2**hash_bits``; without ``options.hash_bits``, names must be
    integers in a single namespace, and are the ids. Entries of one id are added up; those of
    value 0 are left out. Raises `InputError`, naming file and line, for a malformed line, a missing
    label, numbers that are not finite, a base other than 0; and where names need `hash_bits`.
    """
    lines = Lines(chunk, path, offset, options)
    out = lines.out
    lines.finish_labels()
    for row in np.flatnonzero(~np.isfinite(out.weights)).tolist():  # that the kernel left as NaN
        at = out.first_labels[row]
        importance = lines.token(at, _LINE_END).split(maxsplit=2)[1]
        out.weights[row] = as_float32(float(importance))
        lines.report(row, at, number_problem("importance", importance))
    lines.finish_values()
    left_out = _left_out(lines)
    if left_out is not None:
        out.values[left_out] = 0.0
    keep_names = options.keep_names and options.hash_bits is not None
    names = []
    if keep_names:
        entries = np.arange(len(out.ids)) if left_out is None else np.flatnonzero(~left_out)
        names.append(_names(lines, out.ids[entries], entries[:, None]))
    # Sums of float32 numbers in double precision.
    content = out.values.astype(np.float64), out.ids, out.indptr
    shape = len(out.lines), parsing.MAX_ID + 1
    matrix = scipy.sparse.csr_array(content, shape=shape)
    if options.cross:
        matrix, crosses = _add_crosses(matrix, lines)
        if keep_names:
            names += [_names(lines, ids, parts) for ids, parts in crosses]
    matrix.sum_duplicates()
    with np.errstate(over="ignore"):
        matrix.data = matrix.data.astype(np.float32)
    matrix.eliminate_zeros()
    for entry in np.flatnonzero(~np.isfinite(matrix.data)).tolist():
        row = row_of(matrix.indptr, entry)
        problem = f"values of feature {matrix.indices[entry]} add up to more than float32 holds"
        lines.report(row, out.lines[row], problem)
    block = Block(
        matrix.indptr,
        matrix.indices,
        matrix.data,
        out.labels[:, None],
        out.weights,
        tags=_tags(lines),
        names=tuple(names),
    )

    def describe(outcome: int, line: int, at: int) -> str:
        return explain(outcome, lines.token(at), _MESSAGES, "label or importance")

    return lines.finish(block, describe)


def _left_out(lines: Lines) -> NDArray[np.bool_] | None:
    """True for each entry whose namespace is ignored or not chosen; None if there are no such."""
    options = lines.options
    wrong = _namespaces(lines, options.ignore) >= 0 if options.ignore else None
    if options.columns is None:
        return wrong
    others = _namespaces(lines, options.columns) < 0
    return others if wrong is None else wrong | others


def _namespaces(lines: Lines, names: Sequence[str]) -> NDArray[np.int32]:
    """The number of the namespace of each entry among `names`, or -1."""
    encoded = [name.encode() for name in names]
    ends = np.cumsum([0, *map(len, encoded)])
    text, wanted = (np.frombuffer(part, np.uint8) for part in (lines.chunk, b"".join(encoded)))
    return parsing.group_by_namespace(text, lines.out, wanted, ends)


def _add_crosses(
    matrix: Any, lines: Lines
) -> tuple[Any, list[tuple[NDArray[np.int64], NDArray[np.int32]]]]:
    """Add the combinations of entries of crossed namespaces to a matrix.

    Returned are also, for each cross, the ids and the (n, n_namespaces) numbers of the entries.
    """
    out, options = lines.out, lines.options
    wanted = sorted({name for cross in options.cross for name in cross})
    groups = _namespaces(lines, wanted)
    ids, values = out.ids.astype(np.uint64), out.values.astype(np.float64)
    n_rows, crosses = len(out.lines), []
    rows = np.repeat(np.arange(n_rows), np.diff(out.indptr))
    counts = [np.bincount(rows[groups == n], minlength=n_rows) for n in range(len(wanted))]
    entries = [(matrix.data, *matrix.tocoo().coords)]
    for cross in options.cross:
        chosen = np.array([wanted.index(name) for name in cross])
        n_crossed = int(np.prod([counts[n] for n in chosen], axis=0).sum())
        check_free_memory(n_crossed * (24 + 4 * len(cross)), f"{lines.path}, crossed")
        parts = parsing.combinations(out.indptr, groups, chosen, n_crossed)
        hashed = hash_of_cross(ids[column] for column in parts.T)
        crossed = (hashed & (2 ** (options.hash_bits or 0) - 1)).astype(np.int64)
        products = reduce(np.multiply, (values[column] for column in parts.T))
        entries.append((products, rows[parts[:, 0]], crossed))
        crosses.append((crossed, parts))
    data, *coordinates = map(np.concatenate, zip(*entries, strict=True))
    return scipy.sparse.coo_array((data, coordinates), shape=matrix.shape).tocsr(), crosses


def _names(
    lines: Lines, ids: NDArray[np.int64], parts: NDArray[Any]
) -> tuple[pa.Array, NDArray[np.int64]]:
    """The first name of each of the ids, and the distinct ids.

    An id is that of one entry or of a combination of several, which are its `parts`.
    """
    distinct, first = np.unique(ids, return_index=True)
    combined = parts[first].tolist()
    names = ["*".join(_name(lines, entry) for entry in entries) for entries in combined]
    return pa.array(names, pa.string()), distinct


def _name(lines: Lines, entry: int) -> str:
    """The name of an entry, with that of its namespace."""
    name = lines.token(lines.out.names[entry], _NAME_END)
    namespace = lines.token(lines.out.namespaces[entry], _NAME_END)
    whole = namespace + b"^" + name if namespace else name
    return whole.decode("utf-8", "backslashreplace")


def _tags(lines: Lines) -> NDArray[np.object_] | None:
    """Tags of the rows, "" for a row without one; None if no row has one.

    Reports tags that are too long: in memory, each tag takes as many bytes as the longest.
    """
    out = lines.out
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
