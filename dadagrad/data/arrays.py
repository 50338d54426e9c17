"""Arrays that a user has at hand, as blocks and as datasets in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from dadagrad.data.blocks import Block
from dadagrad.data.combine import compact, drop_entries, take
from dadagrad.data.dataset import LabelColumn, MemoryDataset, Schema
from dadagrad.data.labels import LabelEncoder
from dadagrad.data.rows import Rows
from dadagrad.data.spool import Spool
from dadagrad.data.vocabulary import find_vocabulary
from dadagrad.errors import InputError

DEFAULT_PARTITION_NNZ = 2_000_000


def block_from_arrays(X: Any, y: ArrayLike, sample_weight: ArrayLike | None, where: str) -> Block:
    """Make a block of a matrix, labels and weights, checking all of them.

    Parameters
    ----------
    X : (n_rows, n_features) array, scipy sparse array or matrix
        Zeros are left out, stored ones too; duplicates are summed.
    y : (n_rows,) or (n_rows, n_label_columns)
        Numbers, or one column of texts.
    sample_weight : (n_rows,) or None
        Rows of weight 0 are left out: they are as if they were not there.
    where
        Names the arrays in messages.
    """
    matrix = _as_csr(X, where)
    labels = _as_labels(y, matrix.shape[0], where)
    with np.errstate(over="ignore"):
        values = matrix.data.astype(np.float32)
    indptr = matrix.indptr.astype(np.int64)
    _check_values(values, indptr, matrix, where)
    block = Block(indptr, matrix.indices, values, labels)
    if (values == 0).any():
        block = drop_entries(block, values != 0)  # too small for float32
    if sample_weight is None:
        return block
    return _with_weights(block, sample_weight, where)


def _as_csr(X: Any, where: str) -> Any:
    """`X` as a CSR array of float64 or float32: sorted, no duplicates, no zeros."""
    sparse = scipy.sparse.issparse(X)
    if not sparse:
        X = np.asarray(X)
    if X.ndim != 2:
        raise InputError(
            f"{where}: X has shape {X.shape}; it must have two dimensions, examples and features"
        )
    if X.dtype == object or not (np.issubdtype(X.dtype, np.number) or X.dtype == bool):
        raise InputError(f"{where}: X has dtype {X.dtype}; it must hold numbers")
    if np.issubdtype(X.dtype, np.complexfloating):
        raise InputError(f"{where}: X holds complex numbers; it must hold real ones")
    if not sparse:
        return _dense_to_csr(X)
    matrix = scipy.sparse.csr_array(X)
    if not (matrix.has_canonical_format and np.all(matrix.data != 0)):
        matrix = matrix.copy()  # the caller's arrays may be shared, and stay as they are
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    return matrix


def _dense_to_csr(X: NDArray[Any]) -> Any:
    present = X != 0
    indptr = np.zeros(X.shape[0] + 1, np.int64)
    np.cumsum(np.count_nonzero(present, axis=1), out=indptr[1:])
    # Not np.nonzero: it makes the row of each entry as well, of 64 bits.
    columns = np.flatnonzero(present) if X.shape[1] else np.zeros(0, np.int64)
    columns %= max(X.shape[1], 1)
    return scipy.sparse.csr_array((X[present], columns, indptr), shape=X.shape)


def _check_values(
    values: NDArray[np.float32], indptr: NDArray[np.int64], matrix: Any, where: str
) -> None:
    if np.isfinite(values).all():
        return
    entry = int(np.flatnonzero(~np.isfinite(values))[0])
    row = int(np.searchsorted(indptr, entry, side="right")) - 1
    raise InputError(
        f"{where}: row {row}, feature {matrix.indices[entry]} is {matrix.data[entry]}; every "
        "value must be a finite number that fits in 32 bits"
    )


def _as_labels(y: ArrayLike, n_rows: int, where: str) -> NDArray[Any]:
    """Checked labels: (n_rows, n_label_columns) float64, or (n_rows,) object array of str."""
    labels: NDArray[Any] = np.asarray(y)
    if labels.ndim not in (1, 2) or len(labels) != n_rows:
        raise InputError(
            f"{where}: y has shape {labels.shape} and X {n_rows} rows; y must have one label, or "
            "one row of labels, for each"
        )
    if labels.dtype.kind in "OUS":
        return _as_texts(labels, where)
    if labels.dtype.kind not in "buif":
        raise InputError(f"{where}: y has dtype {labels.dtype}; it must hold numbers or texts")
    labels = labels.astype(np.float64).reshape(n_rows, 1 if labels.ndim == 1 else labels.shape[1])
    if not np.isfinite(labels).all():
        row, column = np.argwhere(~np.isfinite(labels))[0]
        raise InputError(
            f"{where}: row {row} has label {labels[row, column]}; every label must be finite"
        )
    return labels


def _as_texts(labels: NDArray[Any], where: str) -> NDArray[Any]:
    if labels.dtype.kind == "S":
        try:
            labels = np.char.decode(labels, "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{where}: a label is no UTF-8 text ({error}); decode them") from None
    if labels.dtype.kind == "O" and not all(isinstance(label, str) for label in labels.flat):
        try:
            return _as_labels(labels.astype(np.float64), len(labels), where)
        except (TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{where}: y holds both texts and other things; it must hold numbers or texts only"
            ) from error
    if labels.ndim == 2 and labels.shape[1] != 1:
        raise InputError(
            f"{where}: y has {labels.shape[1]} columns of texts; texts can be one column only"
        )
    return labels.reshape(-1).astype(object)


def _with_weights(block: Block, sample_weight: ArrayLike, where: str) -> Block:
    try:
        with np.errstate(over="ignore"):
            weights = np.asarray(sample_weight, np.float64).astype(np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{where}: a weight is no number ({error}); every weight must be"
        ) from error
    if weights.shape != (block.n_rows,):
        raise InputError(
            f"{where}: sample_weight has shape {weights.shape}; it must have one weight for each "
            f"of the {block.n_rows} rows"
        )
    wrong = ~np.isfinite(weights) | (weights < 0)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"{where}: row {row} has weight {weights[row]}; every weight must be finite and not "
            "negative"
        )
    return replace(block, weights=weights)


def _with_queries(block: Block, query: ArrayLike, where: str) -> Block:
    """`block` with a query for each row; rows of one query are together, in their order."""
    queries: NDArray[Any] = np.asarray(query)
    if queries.shape != (block.n_rows,):
        raise InputError(
            f"{where}: query has shape {queries.shape}; it must have one query for each of the "
            f"{block.n_rows} rows"
        )
    if queries.dtype.kind not in "iu" or (queries > np.iinfo(np.int64).max).any():
        raise InputError(
            f"{where}: query has dtype {queries.dtype}; it must hold whole numbers that fit in "
            "int64"
        )
    block = replace(block, queries=queries.astype(np.int64))
    # By where a query is first met, so that queries that are together keep their order.
    _, first, number = np.unique(queries, return_index=True, return_inverse=True)
    order = np.argsort(first[number], kind="stable")
    return block if (np.diff(order) == 1).all() else take(block, order)


def drop_zero_weights(block: Block) -> tuple[Block, int]:
    """`block` without its rows of weight 0, and how many these were.

    Weights that are all 1 are dropped, too.
    """
    weights = block.weights
    if weights is None:
        return block, 0
    kept = np.flatnonzero(weights != 0)
    dropped = block.n_rows - len(kept)
    if dropped:
        block = take(block, kept)
    if (weights[kept] == 1).all():
        block = replace(block, weights=None)
    return block, dropped


def finish_rows(block: Block, labels: NDArray[np.float64]) -> Rows:
    """Rows over their own vocabulary, from a block and its final labels."""
    block = compact(block)
    vocabulary, indices = find_vocabulary(block.ids)
    return Rows(
        vocabulary,
        block.indptr,
        indices,
        None if block.values is None else np.ascontiguousarray(block.values, np.float32),
        labels,
        block.weights,
        block.row_scale,
        block.queries,
    )


def dataset_from_arrays(
    X: Any,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    query: ArrayLike | None = None,
    partition_nnz: int = DEFAULT_PARTITION_NNZ,
    shuffle: int | None = None,
    label_names: Sequence[str] | None = None,
) -> MemoryDataset:
    """Make a dataset in memory of a matrix and labels.

    Parameters
    ----------
    X : (n_rows, n_features) numpy array, scipy sparse array or matrix
        Values are stored as float32. Zeros are left out; duplicates of a sparse matrix are summed.
    y : (n_rows,) or (n_rows, n_label_columns)
        Numbers, or one column of texts, which become class codes.
    sample_weight : (n_rows,), optional
        Weights, not negative. Rows of weight 0 are left out.
    query : (n_rows,) of whole numbers, optional
        The query of each row, for rankings. The rows of a query are put together.
    partition_nnz
        About how many non-zeros, rows counted as one more each, a partition has at most. With
        queries, the last of a partition is in it whole.
    shuffle
        Seed of a random order of the rows, or of the queries; None keeps theirs.
    label_names
        Names of the label columns; default ``label``, or ``label_0`` and so on.

    Raises
    ------
    InputError
        If shapes do not fit, something is not a finite number, or no row is left.
    """
    block = block_from_arrays(X, y, sample_weight, "the arrays")
    if query is not None:
        block = _with_queries(block, query, "the arrays")
    block, _ = drop_zero_weights(block)
    if not block.n_rows:
        raise InputError("the arrays have no rows of weight above 0; give at least one example")
    encoder = LabelEncoder()
    block = replace(block, labels=encoder.encode(block.labels))
    table = encoder.settle()
    with Spool(shuffle=shuffle, run_bytes=1 << 62) as spool:
        spool.append(block)
        spool.finish()
        bounds = spool.bounds(partition_nnz, block.labels.shape[1])
        pieces = [spool.read(bounds, part) for part in range(bounds.shape[1] - 1)]
    parts = [finish_rows(piece, table.decode(np.asarray(piece.labels))) for piece in pieces]
    schema = Schema(
        int(np.shape(X)[1]),
        rename(table.columns, label_names),
        block.weights is not None,
        queried=query is not None,
    )
    return MemoryDataset(parts, schema)


def rename(
    columns: tuple[LabelColumn, ...], names: Sequence[str] | None
) -> tuple[LabelColumn, ...]:
    """The label columns under other names, one for each."""
    if names is None:
        return columns
    if len(names) != len(columns):
        raise InputError(
            f"label_names has {len(names)} names; there are {len(columns)} label columns"
        )
    return tuple(replace(column, name=str(n)) for column, n in zip(columns, names, strict=True))


def keep_class_names(
    columns: tuple[LabelColumn, ...], known: tuple[LabelColumn, ...] | None
) -> tuple[LabelColumn, ...]:
    """Give `columns` the names, of themselves and of their classes, that their source has."""
    if known is None or len(known) != len(columns):
        return columns
    named = []
    for column, source in zip(columns, known, strict=True):
        names = column.names
        if names is None and source.names is not None and column.values is not None:
            texts = dict(zip(source.values or (), source.names, strict=True))
            if all(value in texts for value in column.values):
                names = tuple(texts[value] for value in column.values)
        named.append(replace(column, name=source.name, names=names))
    return tuple(named)
