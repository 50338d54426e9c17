"""Blocks of rows with global feature ids, as parsers make them for partitions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dadagrad.errors import name_options

logger = logging.getLogger(__name__)

PER_ROW = ("labels", "weights", "row_scale", "queries", "tags", "lines", "keys")
"""The columns of a block that hold one item for each row."""

COLUMNS = ("indptr", "ids", "values", *PER_ROW)
"""All columns of a block."""

MAX_NOTES = 3
"""Rows left out of a block, or of all sources, that are described."""

Note: TypeAlias = tuple[object, str]
"""A place, which is found when it is shown, and what is wrong there."""

_FILLERS: dict[str, Any] = {"values": 1.0, "weights": 1.0, "row_scale": 1.0, "tags": ""}
"""Items of a column for the rows of blocks that lack it; of others they are 0."""


@dataclass(frozen=True, slots=True)
class Block:
    """Parsed rows with global feature ids; other fields are those of `Rows`.

    Attributes
    ----------
    ids : (nnz,) int64 or int32
        Global feature ids, strictly increasing within a row.
    labels : (n_rows, n_label_columns) float64, or (n_rows,) object array of str
        Strings become class codes when the whole source is known.
    tags : (n_rows,) array of str or None
        Name of the row (Vowpal Wabbit's tag).
    lines : (n_rows,) int64 or None
        Line of each row in the text that was parsed, or its row in a table, counted from 0.
    keys : (n_rows,) uint64 or None
        Random keys, in the order of which a shuffle puts rows.
    n_lines : int
        Lines or rows of what was parsed.
    skipped : int
        Rows left out because they were wrong and the user asked for that.
    notes : tuple of Note
        The first of these rows.
    names : tuple of pairs
        Names of features as arrays of Arrow, and their ids, or of a table the hashes of which these
        are made; where the source has names and they are to be kept.
    source_bytes : int
        Bytes of the file that were read for the block, for the progress of a reading.
    origin : tuple of int
        Place in the sources, which does not depend on who reads them; empty if it is not known.
    """

    indptr: NDArray[np.int64]
    ids: NDArray[np.int64]
    values: NDArray[np.float32] | None
    labels: NDArray[np.float64] | NDArray[np.object_]
    weights: NDArray[np.float32] | None = None
    row_scale: NDArray[np.float32] | None = None
    queries: NDArray[np.int64] | None = None
    tags: NDArray[np.object_] | None = None
    lines: NDArray[np.int64] | None = None
    keys: NDArray[np.uint64] | None = None
    n_lines: int = 0
    skipped: int = 0
    notes: tuple[Note, ...] = ()
    names: tuple[tuple[Any, NDArray[np.int64]], ...] = ()
    source_bytes: int = 0
    origin: tuple[int, ...] = ()

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        return len(self.ids)


@dataclass
class LeftOut:
    """Rows that were wrong and left out: all are counted, and the first described."""

    n_rows: int = 0
    notes: list[Note] = field(default_factory=list)

    def add(self, n_rows: int, notes: Sequence[Note]) -> None:
        """Add rows that were left out of a block, or by a worker."""
        self.n_rows += n_rows
        self.notes += notes[: MAX_NOTES - len(self.notes)]

    def log(self) -> None:
        """Log the rows that are described, and the number of all if it is larger."""
        for place, problem in self.notes:
            logger.warning("left out %s: %s", place, name_options(problem))
        if self.n_rows > len(self.notes):
            logger.warning("left out %s wrong rows in all", f"{self.n_rows:,}")


def compact(block: Block) -> Block:
    """The same rows in less memory: ids of 32 bits if they fit, values of one dropped.

    Ids above 2**31 - 1 stay 64 bits wide; everything in this package that takes a block takes both.
    """
    ids, values = block.ids, block.values
    if ids.dtype != np.int32 and (not len(ids) or ids.max() < 2**31):
        ids = ids.astype(np.int32)
    if values is not None and (values == 1).all():
        values = None
    tags = block.tags
    if tags is not None and tags.dtype == object:
        # Fixed-width text instead of objects: it can be written to a file without pickling.
        tags = tags.astype(np.str_)
    return replace(block, ids=ids, values=values, tags=tags)


def n_bytes(block: Block) -> int:
    """Memory that the arrays of `block` take."""
    columns = (getattr(block, name) for name in COLUMNS)
    return sum(column.nbytes for column in columns if column is not None)


def row_pointers(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """The (n_rows + 1,) bounds of rows of these (n_rows,) lengths."""
    indptr = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    return indptr


def concatenate(blocks: Sequence[Block]) -> Block:
    """The rows of all `blocks`, in order; a column that only some have is filled for the rest.

    Filled are: values, weights and scales with 1, queries with 0, tags with the empty text.
    What is not a column, such as `skipped`, `notes` and `names`, is not carried.
    """
    if len(blocks) == 1:
        return blocks[0]

    def join(name: str, sizes: list[int]) -> Any:
        columns = [getattr(block, name) for block in blocks]
        present = [column for column in columns if column is not None]
        if not present:
            return None
        filler = np.asarray(_FILLERS.get(name, 0), present[0].dtype)
        pairs = zip(columns, sizes, strict=True)
        return np.concatenate([np.full(n, filler) if c is None else c for c, n in pairs])

    n_rows, nnz = [block.n_rows for block in blocks], [block.nnz for block in blocks]
    return Block(
        indptr=row_pointers(np.concatenate([np.diff(block.indptr) for block in blocks])),
        ids=join("ids", nnz),
        values=join("values", nnz),
        **{name: join(name, n_rows) for name in PER_ROW},
    )


def cut(block: Block, start: int, stop: int) -> Block:
    """Rows ``start:stop``; the arrays are views."""
    first, last = block.indptr[start], block.indptr[stop]
    return replace(
        block,
        indptr=block.indptr[start : stop + 1] - first,
        ids=block.ids[first:last],
        values=None if block.values is None else block.values[first:last],
        **_per_row(block, slice(start, stop)),
    )


def take(block: Block, rows: NDArray[np.int64]) -> Block:
    """The given `rows` of `block`, in the given order."""
    indptr = row_pointers(np.diff(block.indptr)[rows])

    def gather(column: Any) -> Any:
        if column is None:
            return None
        out = np.empty(indptr[-1], column.dtype)
        _gather(block.indptr, rows, indptr, column, out)
        return out

    return replace(
        block,
        indptr=indptr,
        ids=gather(block.ids),
        values=gather(block.values),
        **_per_row(block, rows),
    )


def _per_row(block: Block, rows: slice | NDArray[np.int64]) -> dict[str, Any]:
    columns = {name: getattr(block, name) for name in PER_ROW}
    return {name: None if column is None else column[rows] for name, column in columns.items()}


@njit(cache=True, nogil=True)
def _gather(indptr, rows, out_indptr, column, out):  # type: ignore[no-untyped-def]
    for position in range(len(rows)):
        start, target = indptr[rows[position]], out_indptr[position]
        size = out_indptr[position + 1] - target
        # Views are copied several numbers at a time: an index into them is never negative.
        source, copy = column[start : start + size], out[target : target + size]
        for offset in range(size):
            copy[offset] = source[offset]


def drop_entries(block: Block, keep: NDArray[np.bool_]) -> Block:
    """`block` without the entries where `keep`, (nnz,), is false; no row goes."""
    values = None if block.values is None else block.values[keep]
    indptr = row_pointers(keep)[block.indptr]
    return replace(block, indptr=indptr, ids=block.ids[keep], values=values)


def transform_values(block: Block, *, binary: bool, norm: str) -> Block:
    """Turn all values that are not zero into 1 (`binary`), and scale rows to length 1 (norm "l2").

    Rows without values get a `row_scale` of one over the square root of their number of entries,
    so that they still need no values.
    """
    if binary:
        if block.values is not None:
            block = drop_entries(block, block.values != 0)
        block = replace(block, values=None, row_scale=None)
    if norm != "l2":
        return block
    lengths = np.diff(block.indptr)
    if block.values is None:
        scale = 1 / np.sqrt(np.maximum(lengths, 1))
        return replace(block, row_scale=scale.astype(np.float32))
    owner = np.repeat(np.arange(block.n_rows), lengths)
    norms = np.sqrt(np.bincount(owner, block.values.astype(np.float64) ** 2, block.n_rows))
    norms[norms == 0] = 1
    values = (block.values / norms[owner]).astype(np.float32)
    return replace(block, values=values, row_scale=None)
