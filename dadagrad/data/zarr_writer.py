"""Writing a dataset as a Zarr group of partitions, each of them a valid AnnData store.

::

    zarr.json                 schema, partitions with their checksums: written last
    part-00000/zarr.json      the metadata of all arrays below, size and CRC of all chunks
    part-00000/X/             csr_matrix: data, indices, indptr
    part-00000/obs/           label columns, and weight, row_scale, query, tag where there are any
    part-00000/var/           feature (the vocabulary: global ids), and name where there are any

A partition's checksum is the SHA-256 of its ``zarr.json``, which holds the SHA-256 of its content
and the CRC-32C of every chunk, so that one number in the root vouches for every byte.
"""

from __future__ import annotations

import hashlib
import json
import re
import reprlib
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.data.dataset import Partition, Schema, checksum
from dadagrad.data.rows import Rows
from dadagrad.data.zarr_arrays import (
    EncodedArray,
    encode,
    encode_strings,
    encode_values,
    lay_out_strings,
)
from dadagrad.errors import InputError
from dadagrad.storage import Storage

FORMAT = "dadagrad-dataset"
FORMAT_VERSION = 1
RESERVED_COLUMNS = frozenset({"weight", "row_scale", "query", "tag", "_index", "index"})

_PARTITION_NAME = re.compile(r"part-[0-9]{5,9}")
_ARRAY = {"encoding-type": "array", "encoding-version": "0.2.0"}


def check_partition_name(name: Any) -> str:
    """Return `name`; raise `InputError` unless it is of the form ``part-00000``."""
    if not isinstance(name, str) or not _PARTITION_NAME.fullmatch(name):
        raise InputError(
            f"{reprlib.repr(name)} is no name of a partition; names are part-00000, part-00001..."
        )
    return name


def pointer_type(nnz: int) -> str:
    """The type of row pointers: that of the positions wherever it can be.

    Many operations of SciPy refuse a matrix whose two index arrays are of different types.
    """
    return "int32" if nnz < 2**31 else "int64"


def check_label_names(names: Sequence[str]) -> None:
    """Raise `InputError` if the label columns cannot be columns of ``obs`` under these `names`."""
    for name in names:
        wrong = not name or "/" in name or name.startswith((".", "__"))
        if wrong or any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
            raise InputError(f"label column {name!r} cannot be stored; use letters, digits and '_'")
        if name in RESERVED_COLUMNS:
            raise InputError(f"label column {name!r} has a reserved name; rename it")
    if len(set(names)) < len(names):
        raise InputError(f"the label columns {list(names)} must have distinct names")


def write_partition(
    storage: Storage,
    name: str,
    rows: Rows,
    label_names: Sequence[str],
    *,
    queries: NDArray[np.int64] | None = None,
    tags: Sequence[str] | NDArray[np.object_] | None = None,
    names: Mapping[int, str] | None = None,
) -> Partition:
    """Write one partition of the dataset at `storage`.

    Parameters
    ----------
    storage : Storage
        Of the dataset.
    name : str
        ``part-00000`` and so on. An existing partition of that name is overwritten.
    rows : Rows
        Values that are all 1 are not stored, and are read as None.
    label_names : sequence of str
        One for each column of ``rows.labels``.
    queries : (n_rows,) int64, optional
        Default: those of `rows`.
    tags : (n_rows,) str, optional
    names : mapping of int to str, optional
        Names of global feature ids; those of other partitions are left out.

    Raises
    ------
    InputError
        If the rows are not valid (see `Rows.check`) or a name cannot be stored.
    StorageError
        If the store cannot be written.
    """
    check_partition_name(name)
    check_label_names(label_names)
    queries = rows.queries if queries is None else queries
    _check_rows(f"{storage.url}/{name}", rows, label_names, queries, tags)
    if rows.values is not None and (rows.values == 1).all():
        rows = _without_values(rows)
    indptr = rows.indptr - rows.indptr[0]
    arrays = {
        "X/data": encode_values(rows.values, rows.nnz),
        "X/indices": encode(rows.indices.astype(np.int32, copy=False), "bitshuffle"),
        "X/indptr": encode(indptr.astype(pointer_type(rows.nnz), copy=False)),
        **_obs(rows, label_names, queries, tags),
        **_var(rows.vocabulary, names or {}),
    }
    document = _group_document(arrays, rows)
    objects = {f"{name}/{key}": data for key, data in _objects(arrays, rows).items()}
    storage.put_many(objects)
    # Last, so that a partition that has it is whole.
    storage.put(f"{name}/zarr.json", document)
    return Partition(
        name, rows.n_rows, rows.nnz, rows.n_local, hashlib.sha256(document).hexdigest()
    )


def write_root(
    storage: Storage,
    schema: Schema,
    partitions: Sequence[Partition],
    provenance: Mapping[str, Any],
) -> None:
    """Make the dataset visible: write its root metadata, after all of its partitions.

    `provenance` is plain JSON: where the data came from and how. Raises `InputError` for a
    dataset without partitions or with two of the same name.
    """
    if not partitions:
        raise InputError(f"{storage.url}: the dataset would be empty; give it at least one row")
    listed = [check_partition_name(partition.name) for partition in partitions]
    if len(set(listed)) < len(listed):
        raise InputError(f"{storage.url}: two partitions have the same name")
    check_label_names([column.name for column in schema.label_columns])
    attributes: dict[str, Any] = {
        "encoding-type": FORMAT,
        "encoding-version": str(FORMAT_VERSION),
        "schema": schema.to_json(),
        "partitions": [
            {
                "name": partition.name,
                "n_rows": partition.n_rows,
                "nnz": partition.nnz,
                "n_local": partition.n_local,
                "checksum": partition.checksum,
            }
            for partition in partitions
        ],
        "provenance": dict(provenance),
    }
    attributes["checksum"] = attributes_checksum(attributes)
    storage.put("zarr.json", _json({**_group({}), "attributes": attributes}))


def attributes_checksum(attributes: Mapping[str, Any]) -> str:
    """sha256 over the root attributes, their own checksum left out."""
    content = {key: value for key, value in attributes.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _check_rows(
    where: str,
    rows: Rows,
    label_names: Sequence[str],
    queries: NDArray[np.int64] | None,
    tags: Sequence[str] | NDArray[np.object_] | None,
) -> None:
    if rows.labels.shape != (rows.n_rows, len(label_names)):
        raise InputError(
            f"{where}: labels have shape {rows.labels.shape}; {rows.n_rows} rows with the label "
            f"columns {list(label_names)} need {(rows.n_rows, len(label_names))}"
        )
    for what, column in (("queries", queries), ("tags", tags)):
        if column is not None and len(column) != rows.n_rows:
            raise InputError(f"{where}: {len(column)} {what} for {rows.n_rows} rows")
    rows.check(where)


def _without_values(rows: Rows) -> Rows:
    from dataclasses import replace

    return replace(rows, values=None)


def _obs(
    rows: Rows,
    label_names: Sequence[str],
    queries: NDArray[np.int64] | None,
    tags: Sequence[str] | NDArray[np.object_] | None,
) -> dict[str, EncodedArray]:
    columns: dict[str, NDArray[Any] | None] = {
        **{name: rows.labels[:, number] for number, name in enumerate(label_names)},
        "weight": rows.weights,
        "row_scale": rows.row_scale,
        "query": None if queries is None else np.asarray(queries, np.int64),
    }
    obs = {
        f"obs/{name}": encode(column, attributes=_ARRAY)
        for name, column in columns.items()
        if column is not None
    }
    if tags is not None:
        obs["obs/tag"] = encode_strings(lay_out_strings(list(tags)), rows.n_rows)
    obs["obs/_index"] = _index(np.arange(rows.n_rows))
    return obs


def _var(vocabulary: NDArray[np.int64], names: Mapping[int, str]) -> dict[str, EncodedArray]:
    var = {"var/feature": encode(vocabulary.astype(np.int64, copy=False), attributes=_ARRAY)}
    local = [names.get(feature, "") for feature in vocabulary.tolist()] if names else []
    if any(local):
        var["var/name"] = encode_strings(lay_out_strings(local), len(local))
    var["var/_index"] = _index(vocabulary)
    return var


def _index(numbers: NDArray[np.int64]) -> EncodedArray:
    # Imported late: reading a dataset must not wait for numba.
    from dadagrad.data.zarr_text import lay_out_numbers

    return encode_strings(lay_out_numbers(numbers), len(numbers))


def _objects(arrays: Mapping[str, EncodedArray], rows: Rows) -> dict[str, bytes]:
    """All objects of a partition but its own metadata, by key."""
    objects = {}
    for path, array in arrays.items():
        objects[f"{path}/zarr.json"] = _json(array.metadata)
        for number, chunk in enumerate(array.chunks):
            objects[f"{path}/c/{number}"] = chunk
    for path, group in _groups(arrays, rows).items():
        objects[f"{path}/zarr.json"] = _json(group)
    return objects


def _groups(arrays: Mapping[str, EncodedArray], rows: Rows) -> dict[str, dict[str, Any]]:
    def frame(prefix: str) -> dict[str, Any]:
        columns = [path.removeprefix(prefix) for path in arrays if path.startswith(prefix)]
        return _group(
            {
                "encoding-type": "dataframe",
                "encoding-version": "0.2.0",
                "_index": "_index",
                "column-order": [column for column in columns if column != "_index"],
            }
        )

    matrix = {
        "encoding-type": "csr_matrix",
        "encoding-version": "0.1.0",
        "shape": [rows.n_rows, rows.n_local],
    }
    return {"X": _group(matrix), "obs": frame("obs/"), "var": frame("var/")}


def _group_document(arrays: Mapping[str, EncodedArray], rows: Rows) -> bytes:
    """The ``zarr.json`` of a partition: one read tells all about its arrays."""
    content = {
        "sha256": checksum(rows),
        "chunks": {path: array.seals for path, array in arrays.items()},
    }
    attributes = {"encoding-type": "anndata", "encoding-version": "0.1.0", "dadagrad": content}
    metadata = {
        **_groups(arrays, rows),
        **{path: array.metadata for path, array in arrays.items()},
    }
    consolidated = {"kind": "inline", "must_understand": False, "metadata": metadata}
    return _json({**_group(attributes), "consolidated_metadata": consolidated})


def _group(attributes: dict[str, Any]) -> dict[str, Any]:
    return {"zarr_format": 3, "node_type": "group", "attributes": attributes}


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
