"""Writing a dataset as a Zarr group of partitions, each of them a valid AnnData store.

::

    zarr.json                 schema, partitions with their checksums: written last
    part-00000/zarr.json      the metadata of all arrays below, size and CRC of all chunks
    part-00000/X/             csr_matrix: data, indices, indptr
    part-00000/obs/           label columns; weight, row_scale, query, tag, line if there are any
    part-00000/var/           feature (the vocabulary: global ids), and name where there are any

zarr-python encodes a partition in memory, and `Storage` writes the objects. A partition's checksum
is the SHA-256 of its ``zarr.json``, which holds the SHA-256 of its content and the CRC-32C of every
chunk: one number in the root vouches for every byte.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import repeat
from typing import Any

import numpy as np
from crc32c import crc32c
from numcodecs import blosc
from numpy.typing import NDArray

from dadagrad.data.dataset import Partition, Schema, checksum
from dadagrad.data.labels import check_label_names
from dadagrad.data.rows import Rows
from dadagrad.data.zarr.codec import MAX_PLACES, chunk_grid, decimals, decimals_codec
from dadagrad.storage.arrays import sync
from dadagrad.storage.store import Storage

FORMAT = "dadagrad-dataset"
FORMAT_VERSION = 3
READ_VERSIONS = ("2", "3")
"""Versions that are read; version 2 had no decimals."""

_SHUFFLES = {
    "noshuffle": blosc.NOSHUFFLE,
    "shuffle": blosc.SHUFFLE,
    "bitshuffle": blosc.BITSHUFFLE,
}
_MAX_COMPRESSED = 0.9  # of the uncompressed bytes: above this, numbers are stored as they are
_MAX_DECIMAL = 0.9  # of the bytes of the same numbers as floats: dividing takes time
_MAX_BITSHUFFLED = 0.9  # of the bytes after another shuffle, which is decoded in half the time


def pointer_type(nnz: int) -> str:
    """Type of row pointers: the type of the positions if possible, as SciPy prefers it."""
    return "int32" if nnz < 2**31 else "int64"


def write_partition(
    storage: Storage,
    name: str,
    rows: Rows,
    label_names: Sequence[str],
    *,
    tags: Sequence[str] | NDArray[Any] | None = None,
    lines: NDArray[np.int64] | None = None,
    names: Mapping[int, str] | None = None,
) -> Partition:
    """Write partition `name` of the dataset at `storage`; one of that name is overwritten.

    There is a name for each column of ``rows.labels``. Values that are all 1 are not stored, and
    are read as None. `lines` are counted from 0 over all sources, and `names` are those of global
    feature ids, also of other partitions. Raises `InputError` if the rows are not valid (see
    `Rows.check`) or a name cannot be stored.
    """
    check_label_names(label_names)
    rows.check(f"{storage.url}/{name}")
    if rows.values is not None and (rows.values == 1).all():
        rows = replace(rows, values=None)
    columns = dict(zip(label_names, rows.labels.T, strict=True))
    optional = {"weight": rows.weights, "row_scale": rows.row_scale, "query": rows.queries}
    optional["line"] = lines
    columns |= {name: column for name, column in optional.items() if column is not None}
    numbers = {f"obs/{name}": column for name, column in columns.items()}
    strings: dict[str, Any] = {} if tags is None else {"obs/tag": tags}
    local = list(map(names.get, rows.vocabulary.tolist(), repeat(""))) if names else []
    if any(local):
        strings["var/name"] = local
    # AnnData requires an index of the rows; that of the columns is the vocabulary.
    numbers |= {"obs/_index": np.arange(rows.n_rows), "var/feature": rows.vocabulary}
    objects = _encode(rows, numbers, strings)
    document = _partition_document(objects, checksum(rows))
    storage.put_many({f"{name}/{key}": data for key, data in objects.items()})
    # Last, so that a partition with this object is whole.
    storage.put(f"{name}/zarr.json", document)
    sync(storage, [f"{name}/{key}" for key in (*objects, "zarr.json")])
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

    `provenance` is plain JSON: where the data came from and how.
    """
    attributes: dict[str, Any] = {
        "encoding-type": FORMAT,
        "encoding-version": str(FORMAT_VERSION),
        "schema": schema.to_json(),
        "partitions": [asdict(partition) for partition in partitions],
        "provenance": dict(provenance),
    }
    attributes["checksum"] = attributes_checksum(attributes)
    root = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    storage.put("zarr.json", _to_json(root))
    sync(storage, ["zarr.json"])


def attributes_checksum(attributes: Mapping[str, Any]) -> str:
    """SHA-256 of the root attributes without their own checksum."""
    content = {key: value for key, value in attributes.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def seal(chunk: bytes) -> list[int]:
    """Size and CRC-32C of a chunk."""
    return [len(chunk), crc32c(chunk)]


def _encode(
    rows: Rows,
    numbers: Mapping[str, NDArray[Any]],
    strings: Mapping[str, Sequence[str] | NDArray[Any]],
) -> dict[str, bytes]:
    """All objects of a partition by key, as zarr-python encodes them."""
    import zarr

    buffers: dict[str, Any] = {}
    kind = {"encoding-type": "anndata", "encoding-version": "0.1.0"}
    root = zarr.create_group(zarr.storage.MemoryStore(buffers), attributes=kind)
    kind = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}
    root.create_group("X", attributes={**kind, "shape": [rows.n_rows, rows.n_local]})
    places = _add_values(root, rows)
    indptr = rows.indptr - rows.indptr[0]
    _add_numbers(root, "X/indices", rows.indices.astype(np.int32, copy=False))
    _add_numbers(root, "X/indptr", indptr.astype(pointer_type(rows.nnz), copy=False))
    frame_kind = {"encoding-type": "dataframe", "encoding-version": "0.2.0"}
    for frame, index in (("obs", "_index"), ("var", "feature")):
        columns = [path[4:] for path in (*numbers, *strings) if path.startswith(frame)]
        columns.remove(index)
        attributes = {**frame_kind, "_index": index, "column-order": columns}
        root.create_group(frame, attributes=attributes)
    kind = {"encoding-type": "array", "encoding-version": "0.2.0"}
    for path, column in numbers.items():
        _add_numbers(root, path, column, attributes=kind)
    for path, texts in strings.items():
        _add_strings(root, path, texts)
    objects = {key: buffer.to_bytes() for key, buffer in buffers.items()}
    if places is not None:
        # zarr-python warns of the codec when it writes, and it stands in no specification yet.
        metadata = json.loads(objects["X/data/zarr.json"])
        codecs = [decimals_codec(places), *metadata["codecs"]]
        metadata |= {"data_type": "float32", "fill_value": 0.0, "codecs": codecs}
        objects["X/data/zarr.json"] = _to_json(metadata)
    return objects


def _add_values(root: Any, rows: Rows) -> int | None:
    """Add the values in as few bytes as pays; values of 1 take no chunk at all.

    Values of few decimals are added as whole numbers; returns their decimal places, else None.
    """
    if rows.values is None:
        options = {"chunks": (chunk_grid(rows.nnz)[1],), "fill_value": 1.0, "compressors": None}
        root.create_array("X/data", shape=(rows.nnz,), dtype="float32", **options)
        return None
    sample = np.ascontiguousarray(rows.values[: 1 << 16])
    shuffle, size = _best_shuffle(sample)
    for places in range(MAX_PLACES + 1):
        if (numbers := decimals(sample, places)) is None:
            continue
        best, size_of_numbers = _best_shuffle(numbers)
        if size_of_numbers > _MAX_DECIMAL * size:
            break
        if (numbers := decimals(rows.values, places)) is not None:
            _add_numbers(root, "X/data", numbers, best)
            return places
    _add_numbers(root, "X/data", rows.values, shuffle)
    return None


def _best_shuffle(sample: NDArray[Any]) -> tuple[str | None, float]:
    """The best shuffle, None for no compression, and its bytes; those of bits count for more."""
    sizes: dict[str, float] = {
        name: len(blosc.compress(sample, b"lz4", 5, code)) for name, code in _SHUFFLES.items()
    }
    sizes["bitshuffle"] /= _MAX_BITSHUFFLED
    best = min(sizes, key=lambda name: sizes[name])
    if sizes[best] < _MAX_COMPRESSED * sample.nbytes:
        return best, sizes[best]
    return None, sample.nbytes


def _add_numbers(
    root: Any,
    path: str,
    array: NDArray[Any],
    shuffle: str | None = "shuffle",
    attributes: dict[str, Any] | None = None,
) -> None:
    """Add numbers, compressed with lz4 after `shuffle`, or as they are if that is None."""
    lz4 = {"typesize": array.itemsize, "cname": "lz4", "clevel": 5, "shuffle": shuffle}
    root.create_array(
        path,
        data=np.ascontiguousarray(array),
        chunks=(chunk_grid(len(array))[1],),
        compressors=None if shuffle is None else {"name": "blosc", "configuration": lz4},
        attributes=attributes,
        config={"write_empty_chunks": True},
    )


def _add_strings(root: Any, path: str, texts: Sequence[str] | NDArray[Any]) -> None:
    """Add strings, not compressed: the size of their chunk limits the memory of decoding."""
    array = root.create_array(
        path,
        shape=(len(texts),),
        dtype="string",
        chunks=(max(len(texts), 1),),
        compressors=None,
        attributes={"encoding-type": "string-array", "encoding-version": "0.2.0"},
        config={"write_empty_chunks": True},
    )
    array[:] = np.array(texts, object)


def _partition_document(objects: dict[str, bytes], content_checksum: str) -> bytes:
    """The metadata of the group and of all arrays, for which `objects` loses the former."""
    document = json.loads(objects.pop("zarr.json"))
    metadata: dict[str, Any] = {}
    chunks: dict[str, list[list[int]]] = {}
    # zarr-python requires that the members of a group follow one another.
    for key in sorted(objects):
        path, is_node, _ = key.partition("/zarr.json")
        if not is_node:
            continue
        metadata[path] = json.loads(objects[key])
        if metadata[path]["node_type"] == "array":
            n_chunks = sum(key.startswith(f"{path}/c/") for key in objects)
            chunks[path] = [seal(objects[f"{path}/c/{number}"]) for number in range(n_chunks)]
    document["attributes"]["dadagrad"] = {"sha256": content_checksum, "chunks": chunks}
    inline = {"kind": "inline", "must_understand": False, "metadata": metadata}
    return _to_json({**document, "consolidated_metadata": inline})


def _to_json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
