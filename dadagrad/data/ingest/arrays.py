"""Files that hold arrays: npz, AnnData, and datasets (Zarr, Parquet)."""

from __future__ import annotations

import hashlib
import json
import operator
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse
from numpy.typing import NDArray

from dadagrad.data import open_dataset
from dadagrad.data.arrays import block_from_arrays
from dadagrad.data.blocks import Block
from dadagrad.data.dataset import Dataset, LabelColumn
from dadagrad.data.feature_space import FeatureSpace
from dadagrad.data.ingest.array_checks import (
    check_npy,
    check_npz,
    check_stored,
    readable,
    refuse_too_large,
)
from dadagrad.data.reading.options import Options
from dadagrad.data.rows import check_length
from dadagrad.data.tables.encoder import Names
from dadagrad.data.views import join
from dadagrad.errors import InputError
from dadagrad.storage.files import is_url
from dadagrad.storage.memory import check_free_memory
from dadagrad.storage.store import check_regular, open_regular

BLOCK_NNZ = 2_000_000
"""Approximate number of entries in a block of a large matrix."""


@dataclass(frozen=True)
class ArraySource:
    """Blocks of one file, and facts about the features and labels of the whole file.

    The `feature_space` of AnnData has a checksum of the names of its columns, in their order.
    """

    place: str
    blocks: Iterator[Block]
    n_features: int
    label_columns: tuple[LabelColumn, ...] | None = None
    feature_space: FeatureSpace = field(default_factory=FeatureSpace)
    names: Names = ()


def open_arrays(path: str, options: Options) -> ArraySource:
    """Open an array file; raises `InputError` for damage, and for labels that are missing."""
    if is_url(path):
        raise InputError(f"{path}: {options.format} is read from files; copy it to this machine")
    return (open_npz if options.format == "npz" else _open_anndata)(path, options)


def open_npz(path: str, options: Options) -> ArraySource:
    """A matrix saved by ``scipy.sparse.save_npz``, or arrays saved by ``numpy.savez``.

    The file holds a sparse matrix (``save_npz``; the arrays ``data, indices, indptr, shape`` of
    a CSR matrix are enough) or a dense ``X``. Labels are its array ``labels``, or the file
    ``NAME.labels.npy`` beside ``NAME.npz``; weights, if there are any, are ``weights`` or
    ``NAME.weights.npy``. The whole matrix is held in memory.
    """
    with readable(path, "npz"):
        with open(path, "rb", opener=open_regular) as file:
            check_npz(path, file)
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                arrays = dict(archive)
        for name in ("labels", "weights"):
            beside = Path(path).with_suffix(f".{name}.npy")
            if name not in arrays and beside.exists():
                arrays[name] = _load_npy(str(beside))
        matrix = _npz_matrix(path, arrays)
    if "labels" not in arrays and not (options.no_labels or options.to_predict):
        raise InputError(
            f"{path} has no labels: it holds {', '.join(sorted(arrays))}; add an array named "
            f"labels, or save the labels as {Path(path).with_suffix('.labels.npy')} (rows to be "
            "predicted are read with --no-labels)"
        )
    labels = None if options.no_labels else arrays.get("labels")
    return matrix_source(path, matrix, labels, arrays.get("weights"))


def _load_npy(path: str) -> NDArray[Any]:
    with readable(path, "npy"), open(path, "rb", opener=open_regular) as file:
        check_npy(path, file, os.fstat(file.fileno()).st_size)
        file.seek(0)
        loaded: NDArray[Any] = np.load(file, allow_pickle=False)
    return loaded


def _npz_matrix(path: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """The matrix in the `arrays` of a file, which can be sliced by rows."""
    if "format" in arrays:
        matrix: Any = scipy.sparse.load_npz(path)
        return _as_csr(matrix, path, os.path.getsize(path))
    if {"data", "indices", "indptr", "shape"} <= arrays.keys():
        return _checked_csr(*(arrays[name] for name in ("data", "indices", "indptr", "shape")))
    if "X" in arrays:
        return arrays["X"]
    raise InputError(
        f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}; needed is a matrix saved by "
        "scipy.sparse.save_npz, the arrays data, indices, indptr and shape of one, or a dense X"
    )


def _as_csr(matrix: Any, path: str, stored: int) -> Any:
    """A sparse matrix of another format, checked, as CSR."""
    # As CSR it has a pointer for each row, also for rows without entries.
    refuse_too_large(f"{path}, shape", 8 * matrix.shape[0], stored)
    return scipy.sparse.csr_array(_checked(matrix) if hasattr(matrix, "indptr") else matrix)


def _checked(matrix: Any) -> Any:
    """`matrix`, CSR, CSC or BSR; raises `ValueError` for indices that SciPy's code trusts."""
    starts = matrix.indptr
    # SciPy checks nothing more if the last one, its number of entries, is negative.
    if not len(starts) or starts[0] != 0 or (starts[1:] < starts[:-1]).any():
        raise ValueError("indptr does not rise from 0")
    matrix.check_format(full_check=True)
    return matrix


def _checked_csr(data: Any, indices: Any, indptr: Any, shape: Any) -> Any:
    """A CSR array; raises `ValueError` for wrong indices."""
    for name, array in (("indices", indices), ("indptr", indptr)):
        if array.dtype.kind not in "iu" and array.size:
            raise ValueError(f"{name} has dtype {array.dtype}; needed are whole numbers")
    content = (data, indices.astype(np.int64), indptr.astype(np.int64))
    n_rows, n_columns = map(operator.index, shape)
    return _checked(scipy.sparse.csr_array(content, shape=(n_rows, n_columns)))


def matrix_source(
    path: str,
    matrix: Any,
    labels: NDArray[Any] | None,
    weights: NDArray[Any] | None,
    names: Names = (),
    space: FeatureSpace | None = None,
) -> ArraySource:
    """A matrix that can be sliced by rows, as a source, with labels and weights if any."""
    if len(matrix.shape) != 2:
        raise InputError(
            f"{path}: X has shape {matrix.shape}; it must have two dimensions, rows and features"
        )
    n_rows, n_columns = matrix.shape
    for name, column in (("labels", labels), ("weights", weights)):
        if column is not None:
            check_length(column, n_rows, name, path, flat=False)
    if labels is None:
        labels = np.zeros((n_rows, 0))
    blocks = _matrix_blocks(matrix, labels, weights, path)
    return ArraySource(path, blocks, n_columns, None, space or FeatureSpace(), names)


def _matrix_blocks(
    matrix: Any, labels: NDArray[Any], weights: NDArray[Any] | None, place: str
) -> Iterator[Block]:
    n_rows, n_columns = matrix.shape
    n_entries = getattr(matrix, "nnz", n_rows * n_columns)
    n_blocks = max(1, min(-(-(n_entries + n_rows) // BLOCK_NNZ), n_rows))
    for number in range(n_blocks):
        rows = slice(n_rows * number // n_blocks, n_rows * (number + 1) // n_blocks)
        with readable(place, "a matrix"):
            part = matrix[rows]
        yield block_from_arrays(
            part,
            labels[rows],
            None if weights is None else weights[rows],
            place if rows.start == 0 else f"{place}, counting from row {rows.start}",
        )


def _open_anndata(path: str, options: Options) -> ArraySource:
    """An AnnData file (.h5ad): ``X``, and the labels from a column of ``obs``.

    Refused are links to other files, and arrays that declare more than `MAX_RATIO` times the bytes
    stored. Weights are the column ``weight`` of ``obs``, if there is one.
    """
    try:
        import anndata.io
        import h5py  # type: ignore[import-untyped]
    except ImportError as error:
        raise InputError(
            f"{path} is an AnnData file; reading it needs a library: pip install anndata"
        ) from error
    if not os.path.exists(path) or os.path.isdir(path):
        raise InputError(f"there is no file {path}; AnnData is read from files (.h5ad)")
    with readable(path, "AnnData"):
        check_regular(path, os.stat(path).st_mode)
        group = h5py.File(path, "r")
        stored = os.path.getsize(path)
        for name in ("obs", "var", "X"):
            check_stored(path, group, name, stored)
        obs, var = (anndata.io.read_elem(group[name]) for name in ("obs", "var"))
        kind = group["X"].attrs.get("encoding-type", "array")
        matrix = (
            _SlicedCsr(group["X"]) if kind == "csr_matrix" else anndata.io.read_elem(group["X"])
        )
        if kind == "csc_matrix":
            matrix = _as_csr(matrix, f"{path}, X", stored)
    labels = None
    label = "label" if options.label is None else str(options.label)
    if not (options.no_labels or (options.to_predict and label not in obs.columns)):
        if label not in obs.columns:
            raise InputError(
                f"{path} has no column {label!r} in obs; it has "
                f"{', '.join(map(repr, obs.columns)) or 'none'}; name one with --label "
                "(rows to be predicted are read with --no-labels)"
            )
        labels = _labels_of_cells(obs[label], path, options)
    weights = obs["weight"].to_numpy() if "weight" in obs.columns else None
    names = list(var.index.astype(str))
    plain = all(name == str(number) for number, name in enumerate(names[:100]))
    described: dict[str, Any] = {"reading": {"format": "anndata", "label": label}}
    if not plain:
        described["names"] = hashlib.sha256(json.dumps(names).encode()).hexdigest()
    named = () if plain else ((pa.array(names), np.arange(len(names))),)
    source = matrix_source(path, matrix, labels, weights, named, FeatureSpace(described))
    if len(names) != source.n_features:
        raise InputError(
            f"{path}: var names {len(names)} features and X has {source.n_features} columns; they "
            "must be as many"
        )
    return source


def _labels_of_cells(column: Any, path: str, options: Options) -> NDArray[Any] | None:
    """The labels of all cells; None if some have none in rows to be predicted."""
    missing = np.flatnonzero(column.isna().to_numpy())
    if not len(missing):
        return np.asarray(column.to_numpy())
    if options.to_predict:
        return None
    raise InputError(
        f"{path}, cell {column.index[missing[0]]!r}: the label, column {column.name!r} of obs, is "
        f"missing, as in {len(missing):,} of {len(column):,} cells; leave these out, or read the "
        "file without labels, to be predicted, with --no-labels"
    )


class _SlicedCsr:
    """A CSR matrix on disk, read by slices of rows."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._indptr = np.asarray(group["indptr"][:], np.int64)
        self.shape = tuple(operator.index(size) for size in group.attrs["shape"])
        self.nnz = int(self._indptr[-1])
        stored = min(group["indices"].shape[0], group["data"].shape[0])
        rising = self._indptr[0] == 0 and self.nnz <= stored and (np.diff(self._indptr) >= 0).all()
        if len(self._indptr) != self.shape[0] + 1 or not rising:
            raise ValueError(f"X/indptr does not rise from 0 to {stored} in {self.shape[0]} rows")

    def __getitem__(self, rows: slice) -> Any:
        indptr = self._indptr[rows.start : rows.stop + 1]
        first, last = int(indptr[0]), int(indptr[-1])
        width = self._group["data"].dtype.itemsize + self._group["indices"].dtype.itemsize
        check_free_memory((last - first) * width, f"rows {rows.start} to {rows.stop - 1}")
        return _checked_csr(
            self._group["data"][first:last],
            np.asarray(self._group["indices"][first:last]),
            indptr - first,
            (len(indptr) - 1, self.shape[1]),
        )


def open_datasets(paths: list[str]) -> Dataset:
    """Open datasets as one; raises `InputError` if their features or labels differ in kind."""
    datasets = [open_dataset(path) for path in paths]
    if not any(each.schema.feature_space for each in datasets):
        # A file of ids knows the largest of its own alone.
        width = max(each.schema.n_features for each in datasets)
        for each in datasets:
            each.schema = replace(each.schema, n_features=width)
    return join(datasets)


def stored_source(dataset: Dataset, options: Options) -> ArraySource:
    """A dataset, partition by partition: to shuffle or repartition it."""
    schema = dataset.schema
    if not schema.label_columns and not options.no_labels:
        raise InputError(
            f"{dataset.url} has no labels (in Parquet, the column must be named 'label'); rows to "
            "be predicted are read with --no-labels"
        )
    sizes = dataset.lines_of_files
    first_lines = dict(zip(sizes, np.cumsum([0, *sizes.values()]), strict=False))

    def blocks() -> Iterator[Block]:
        for number, partition in enumerate(dataset.partitions):
            lines = None
            if sizes and (located := dataset.lines(number)) is not None:
                lines = np.array([first_lines[f] for f in located[0]], np.int64) + located[1] - 1
            rows, part = dataset.read(number), dataset.with_partitions([partition])
            names = part.names(rows.vocabulary)
            yield Block(
                rows.indptr - rows.indptr[0],
                rows.vocabulary[rows.indices],
                rows.values,
                rows.labels,
                rows.weights,
                rows.row_scale,
                rows.queries,
                dataset.tags(number),
                names=((pa.array([*names.values()], pa.string()), np.array([*names], np.int64)),),
                lines=lines,
            )

    labels = None if options.no_labels else schema.label_columns
    return ArraySource(dataset.url, blocks(), schema.n_features, labels, schema.feature_space)
