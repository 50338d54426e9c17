"""Arrays in memory as blocks of rows, and as datasets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from dadagrad.data.blocks import Block, compact, drop_entries, row_pointers, take
from dadagrad.data.dataset import LabelColumn, MemoryDataset, Schema
from dadagrad.data.external_shuffle import ExternalShuffle
from dadagrad.data.labels import LabelCollector, check_label_names, keep_class_names
from dadagrad.data.rows import Rows, check_column, check_length, row_of
from dadagrad.errors import InputError

DEFAULT_PARTITION_NNZ = 2_000_000


def block_from_arrays(X: Any, y: ArrayLike, sample_weight: ArrayLike | None, place: str) -> Block:
    """Make a block of the arguments of `dataset_from_arrays`; `place` is their name in messages."""
    matrix = _as_csr(X, place)
    labels = as_labels(y, matrix.shape[0], place)
    with np.errstate(over="ignore"):
        values = matrix.data.astype(np.float32)
    block = Block(matrix.indptr.astype(np.int64), matrix.indices, values, labels)
    finite = np.isfinite(values)
    if not finite.all():
        entry = int(finite.argmin())
        row = row_of(block.indptr, entry)
        raise InputError(
            f"{place}: row {row}, feature {matrix.indices[entry]} is {matrix.data[entry]}; every "
            "value must be a finite number that fits in 32 bits"
        )
    if (values == 0).any():
        block = drop_entries(block, values != 0)  # too small for float32
    if sample_weight is None:
        return block
    given = as_column(sample_weight, "sample_weight", place)
    try:
        with np.errstate(over="ignore"):
            weights = given.astype(np.float64).astype(np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{place}: a weight is not a number ({error}); every weight must be"
        ) from error
    check_length(weights, block.n_rows, "sample_weight", place)
    check_column(weights, "weight", place)
    return replace(block, weights=weights)


def _as_csr(X: Any, place: str) -> Any:
    """`X` as a CSR array: sorted, without duplicates and zeros."""
    sparse = scipy.sparse.issparse(X)
    check_complete(X, f"{place}: X")
    try:
        if not (sparse or isinstance(X, Sequence) or hasattr(X, "__array__")):
            raise TypeError("it is neither an array nor a list")  # NumPy would take it apart
        X = X if sparse else np.asarray(X)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{place}: NumPy cannot read X, a {type(X).__name__}, as a matrix ({error}); give a "
            "matrix, such as adata.X of an AnnData"
        ) from None
    if X.ndim != 2:
        raise InputError(
            f"{place}: X has shape {X.shape}; it must have two dimensions, rows and features"
        )
    if X.dtype.kind not in "buif":
        raise InputError(f"{place}: X has dtype {X.dtype}; it must hold real numbers")
    if sparse:
        matrix = scipy.sparse.csr_array(X)
        if not (matrix.has_canonical_format and np.all(matrix.data != 0)):
            matrix = matrix.copy()  # the caller's arrays may be shared, and stay as they are
            matrix.sum_duplicates()
            matrix.eliminate_zeros()
        return matrix
    present = X != 0
    indptr = row_pointers(np.count_nonzero(present, axis=1))
    # Unlike np.nonzero, this does not make the row of each entry, of 64 bits, as well.
    columns = np.flatnonzero(present)
    columns %= max(X.shape[1], 1)
    return scipy.sparse.csr_array((X[present], columns, indptr), shape=X.shape)


def check_complete(array: Any, name: str) -> None:
    """Refuse masked arrays and lazy frames, which NumPy and scikit-learn misread."""
    if isinstance(array, np.ma.MaskedArray):
        raise InputError(
            f"{name} is a masked array; fill its masked cells, such as by filled(0), or leave out "
            "their rows"
        )
    if type(array).__name__ == "LazyFrame":
        raise InputError(f"{name} is a LazyFrame, which has no rows yet; give its collect()")


def as_column(values: Any, name: str, place: str) -> NDArray[Any]:
    """Labels or weights, called `name`, as an array; raises `InputError` for other things."""
    check_complete(values, f"{place}: {name}")
    try:
        column: NDArray[Any] = np.asarray(values)
    except ValueError:
        raise InputError(
            f"{place}: {name} has lists of different lengths; give sets of labels as a matrix of 0 "
            "and 1, such as sklearn.preprocessing.MultiLabelBinarizer makes"
        ) from None
    if column.dtype.kind not in "buifOUS":
        raise InputError(f"{place}: {name} has dtype {column.dtype}; it must hold numbers or texts")
    return column


def as_labels(y: ArrayLike, n_rows: int, place: str) -> NDArray[Any]:
    """Checked labels: (n_rows, n_label_columns) float64, or (n_rows,) object array of str."""
    labels = as_column(y, "y", place)
    if labels.ndim not in (1, 2) or len(labels) != n_rows:
        raise InputError(
            f"{place}: y has shape {labels.shape} and X {n_rows} rows; y must have one label, or "
            "one row of labels, for each"
        )
    try:
        if labels.dtype.kind == "S":
            labels = np.char.decode(labels, "utf-8")
        if labels.dtype.kind == "O" and not all(isinstance(label, str) for label in labels.flat):
            labels = labels.astype(np.float64)
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: a label is not UTF-8 text ({error}); decode them") from None
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{place}: y holds both texts and other things; it must hold numbers or texts only"
        ) from error
    n_columns = 1 if labels.ndim == 1 else labels.shape[1]
    if labels.dtype.kind in "OU":
        if n_columns != 1:
            raise InputError(f"{place}: y has {n_columns} columns of texts; it can have one only")
        return labels.reshape(-1).astype(object)
    labels = labels.astype(np.float64).reshape(n_rows, n_columns)
    check_column(labels, "label", place)
    return labels


def check_queries(query: ArrayLike, n_rows: int, place: str) -> NDArray[np.int64]:
    """The query of each row, checked."""
    queries: NDArray[Any] = np.asarray(query)
    check_length(queries, n_rows, "query", place)
    if queries.dtype.kind not in "iu" or (queries > np.iinfo(np.int64).max).any():
        raise InputError(
            f"{place}: query has dtype {queries.dtype}; it must hold whole numbers that fit in "
            "int64"
        )
    return queries.astype(np.int64)


def drop_zero_weights(block: Block) -> tuple[Block, int]:
    """`block` without its rows of weight 0, and their number.

    Weights that are all 1 are dropped, too.
    """
    weights = block.weights
    if weights is None:
        return block, 0
    positions = np.flatnonzero(weights != 0)
    dropped = block.n_rows - len(positions)
    if dropped:
        block = take(block, positions)
    if (weights[positions] == 1).all():
        block = replace(block, weights=None)
    return block, dropped


def finish_rows(block: Block, labels: NDArray[np.float64]) -> Rows:
    """Rows over their own vocabulary, from a block and its final labels."""
    block = compact(block)
    values = None if block.values is None else np.ascontiguousarray(block.values, np.float32)
    rows = Rows.from_csr(
        block.indptr, block.ids, values, labels, block.weights, block.row_scale, block.queries
    )
    return rows.factor_values()


def dataset_from_arrays(
    X: Any,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    query: ArrayLike | None = None,
    partition_nnz: int = DEFAULT_PARTITION_NNZ,
    shuffle: int | None = None,
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
        Approximate limit of the non-zeros of a partition, with one more counted for each row. A
        query is never divided between partitions.
    shuffle
        Seed of a random order of the rows, or of the queries; None keeps their order.

    Raises
    ------
    InputError
        If shapes do not fit, something is not a finite number, or no row is left.
    """
    block = block_from_arrays(X, y, sample_weight, "the arrays")
    if query is not None:
        block = replace(block, queries=check_queries(query, block.n_rows, "the arrays"))
    block, _ = drop_zero_weights(block)
    if not block.n_rows:
        weighted = "" if sample_weight is None else " of weight above 0"
        raise InputError(f"the arrays have no rows{weighted}; give at least one row")
    if block.queries is not None:
        # The rows of a query are put together; queries keep the order of their first rows.
        _, first, number = np.unique(block.queries, return_index=True, return_inverse=True)
        order = np.argsort(first[number], kind="stable")
        block = block if (np.diff(order) == 1).all() else take(block, order)
    collector = LabelCollector()
    block = replace(block, labels=collector.encode(block.labels))
    table = collector.settle()
    if hasattr(y, "columns") and len(y.columns) > 1:
        names = list(map(str, y.columns))
        check_label_names(names)
        columns = keep_class_names(table.columns, tuple(map(LabelColumn, names)))
        table = replace(table, columns=columns)
    collected = ExternalShuffle(seed=shuffle, run_bytes=1 << 62)
    collected.append(block)
    collected.finish()
    bounds = collected.bounds(partition_nnz, block.labels.shape[1])
    pieces = [collected.read(bounds, part) for part in range(bounds.shape[1] - 1)]
    parts = [finish_rows(piece, table.decode(np.asarray(piece.labels))) for piece in pieces]
    schema = Schema(
        int(np.shape(X)[1]),
        table.columns,
        block.weights is not None,
        queried=query is not None,
    )
    return MemoryDataset(parts, schema)
