"""A reader of datasets and models that follows ``docs/format.md``, by Zarr alone."""

import hashlib
import json
import warnings
from typing import NamedTuple

import numpy as np
import zarr
from numcodecs import zstd


class Partition(NamedTuple):
    """Rows as the page names their arrays, by path; absent arrays are left out."""

    n_rows: int
    arrays: dict

    @property
    def columns(self):
        """The id of each non-zero."""
        return self.arrays["var/feature"][self.arrays["X/indices"]]

    @property
    def values(self):
        """The value of each non-zero, times the factor of its row."""
        lengths = np.diff(self.arrays["X/indptr"])
        scale = self.arrays.get("obs/row_scale", np.ones(self.n_rows))
        return self.arrays["X/data"] * np.repeat(scale, lengths)


def read_schema(folder):
    attributes = json.loads((folder / "zarr.json").read_bytes())["attributes"]
    kind = attributes["encoding-type"], attributes["encoding-version"]
    assert kind == ("dadagrad-dataset", "3")
    checksum = attributes.pop("checksum")
    assert hashlib.sha256(json.dumps(attributes, sort_keys=True).encode()).hexdigest() == checksum
    return attributes["schema"], attributes["partitions"]


def read_partitions(folder):
    """Partitions in the order of the dataset, each checked."""
    schema, partitions = read_schema(folder)
    for record in partitions:
        place = folder / record["name"]
        document = (place / "zarr.json").read_bytes()
        assert hashlib.sha256(document).hexdigest() == record["checksum"]
        chunks = json.loads(document)["attributes"]["dadagrad"]["chunks"]
        for path, seals in chunks.items():
            for number, (size, _) in enumerate(seals):
                assert (place / path / "c" / str(number)).stat().st_size == size
        with warnings.catch_warnings():
            # zarr-python warns of the codec of decimals, which stands in no specification yet.
            warnings.filterwarnings("ignore", "Numcodecs codecs")
            group = zarr.open_group(place, mode="r", use_consolidated=False)
            arrays = {path: np.asarray(group[path][:]) for path in chunks if "_index" not in path}
        labels = {f"obs/{column['name']}" for column in schema["label_columns"]}
        assert labels <= arrays.keys()
        assert len(arrays["X/indptr"]) == record["n_rows"] + 1
        assert len(arrays["X/indices"]) == len(arrays["X/data"]) == record["nnz"]
        assert len(arrays["var/feature"]) == record["n_local"]
        yield Partition(record["n_rows"], arrays)


def read_arrays(folder, body):
    arrays = {}
    for record in body["arrays"]:
        raw = b""
        for part in record["parts"]:
            data = (folder / part["key"]).read_bytes()
            assert hashlib.sha256(data).hexdigest() == part["sha256"]
            assert len(data) == part["bytes"]
            raw += zstd.decompress(data)
        arrays[record["name"]] = np.frombuffer(raw, record["dtype"]).reshape(record["shape"])
    return arrays


def read_model(folder):
    document = json.loads((folder / "model.json").read_bytes())
    body = document["body"]
    text = json.dumps(body, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == document["sha256"]
    assert (body["format"], body["version"]) == ("dadagrad-model", 2)
    arrays = read_arrays(folder, body)
    ranges = arrays["ids"] // 1024
    digest = hashlib.sha256()
    for number in np.unique(ranges):
        content = [arrays[name][ranges == number].tobytes() for name in ("ids", "weights")]
        digest.update(hashlib.sha256(b"".join(content)).digest())
    digest.update(arrays["intercept"].tobytes())
    assert digest.hexdigest() == body["digest"]
    return body, arrays


def scores(partition, arrays):
    """(n_rows, n_outputs) scores of a model."""
    found = np.tile(arrays["intercept"], (partition.n_rows, 1))
    rows = np.repeat(np.arange(partition.n_rows), np.diff(partition.arrays["X/indptr"]))
    for row, column, value in zip(rows, partition.columns, partition.values, strict=True):
        place = np.searchsorted(arrays["ids"], column)
        if place < len(arrays["ids"]) and arrays["ids"][place] == column:
            found[row] += arrays["weights"][place] * value
    return found
