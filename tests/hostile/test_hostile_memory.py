"""Files that declare more than they have are refused before memory is taken.

Readers run in processes that may take little more memory than their libraries have taken already:
a reader that trusts a header there gets a `MemoryError`, not an error of dadagrad.
"""

import hashlib
import io
import json
import shutil
import zipfile
from pathlib import Path

import anndata.io
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.array_files import joined, npy, parquet, split
from helpers.hostile_cases import in_little_memory, sealed
from helpers.line_formats import COMPRESS

from dadagrad import TrainConfig, ingest, train
from dadagrad.data.zarr.writer import attributes_checksum
from dadagrad.errors import OutOfMemory
from dadagrad.storage import memory
from dadagrad.storage.documents import unseal

PROGRAM = """
    import sys, json, resource, warnings
    from functools import partial
    import numpy as np
    import dadagrad
    from dadagrad.data import open_dataset
    from dadagrad.data.ingest.ingest import ingest
    from dadagrad.kernels import parsing
    from dadagrad.errors import DadagradError
    from dadagrad.model.model import Model
    from dadagrad.training.checkpoints.reader import CheckpointReader
    import anndata.io, pyarrow.parquet, scipy.sparse
    warnings.simplefilter("ignore")
    good, cases = sys.argv[1], json.loads(sys.argv[2])
    FORMATS = "svmlight", "vw", "csv", "text", "npz", "anndata", "parquet"

    def read(url):
        data = open_dataset(url)
        for number in range(len(data.partitions)):
            data.read(number)
        data.names(np.arange(10))

    def ingest_as(format, path):
        ingest(path, path + ".out", format=format, overwrite=True)

    do = {name: partial(ingest_as, name) for name in FORMATS} | {
        "read": read,
        "load": Model.load,
        "checkpoints": lambda url: CheckpointReader(url).load(),
        "train": lambda url: dadagrad.train(url, dadagrad.TrainConfig(step_size=0.1)),
    }
    for name, folder in (("load", "/model"), ("checkpoints", "/run"), ("train", "/data")):
        do[name](good + folder)
    do["svmlight"](good + "/good.svmlight")
    limit()
    for what, path in cases:
        try:
            do[what](path)
            print(path, "read")
        except DadagradError as error:
            print(path, "refused", str(error)[-300:].replace(chr(10), " "))
"""


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    lines = [f"{row % 2} {1 + row % 7}:0.5 {10 + row % 5}:1" for row in range(200)]
    (folder / "good.svmlight").write_text("\n".join(lines))
    ingest(folder / "good.svmlight", str(folder / "data"), partition_nnz=300)
    result = train(
        str(folder / "data"), TrainConfig(step_size=0.1), checkpoints=str(folder / "run")
    )
    result.model.save(str(folder / "model"))
    return folder


def datasets(good, folder):
    """Datasets that declare far more rows, entries or features than they have."""
    huge = 2**31 - 1
    cases = []
    for counts in (["n_rows"], ["nnz"], ["n_local"], ["n_rows", "nnz", "n_local"]):
        url = Path(shutil.copytree(good / "data", folder / "-".join(counts)))
        root = json.loads((url / "zarr.json").read_text())
        first = root["attributes"]["partitions"][0]
        first.update(dict.fromkeys(counts, huge))
        if len(counts) == 3:
            document = inflated(json.loads((url / "part-00000/zarr.json").read_text()), huge)
            (url / "part-00000/zarr.json").write_bytes(document)
            first["checksum"] = hashlib.sha256(document).hexdigest()
        root["attributes"]["checksum"] = attributes_checksum(root["attributes"])
        (url / "zarr.json").write_text(json.dumps(root))
        cases += [("read", str(url)), ("train", str(url))]
    return cases


def inflated(document, length):
    """The metadata of a partition, with arrays of so many numbers."""
    chunks = document["attributes"]["dadagrad"]["chunks"]
    for path, array in document["consolidated_metadata"]["metadata"].items():
        if array["node_type"] == "array" and array["data_type"] != "string":
            array["shape"] = [length + (path == "X/indptr")]
            array["chunk_grid"]["configuration"]["chunk_shape"] = [1 << 22]
            if array["codecs"][-1]["name"] == "bytes" and path in chunks:
                array["codecs"].append({"name": "blosc", "configuration": {}})
            chunks[path] = [[1 << 18, 0]] * 512
    return json.dumps(document).encode()


def write(folder, name, data):
    (folder / name).write_bytes(data)
    return str(folder / name)


def of_shape(shape, data=b""):
    return npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n", data)


def zipped(content, method=zipfile.ZIP_STORED):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        archive.writestr("X.npy", content)
    return sink.getvalue()


def files(folder):
    zeros = of_shape("(1, 5000000)", bytes(40_000_000))
    quote = COMPRESS["zst"](b'a,b\n1,"') + COMPRESS["zst"](bytes(1 << 20) + b"\n") * 600
    return [
        # 600 MB without a newline, and with one quote that never closes.
        ("svmlight", write(folder, "a.zst", COMPRESS["zst"](b"1" * (1 << 20)) * 600)),
        ("csv", write(folder, "quote.csv.zst", quote)),
        # Arrays that are not there, and an array that is zeros.
        ("npz", write(folder, "far.npz", zipped(of_shape("(1152921504606846976,)")))),
        ("npz", write(folder, "near.npz", zipped(of_shape("(250000000,)")))),
        ("npz", write(folder, "zeros.npz", zipped(zeros, zipfile.ZIP_BZIP2))),
        ("read", write(folder, "a.parquet", billion_rows())),
        ("parquet", write(folder, "texts.parquet", long_texts())),
    ]


def long_texts():
    """A Parquet file of 600 bytes that names one text of 1 MB ten thousand times."""
    text = pa.DictionaryArray.from_arrays(np.zeros(10_000, np.int32), pa.array(["x" * 1_000_000]))
    columns = {"label": np.arange(10_000) % 2, "text": text}
    return parquet(columns, compression="zstd", store_schema=False)


def billion_rows():
    """A Parquet file whose footer declares a billion rows of one value."""
    columns = {"indices": pa.array([[0]] * 9, pa.list_(pa.int32())), "label": [0.0] * 9}
    body, footer = split(parquet(columns))
    assert footer.count(b"\x16\x12") >= 3
    return joined(body, footer.replace(b"\x16\x12", b"\x16\x80\xa8\xd6\xb9\x07"))  # was 9


def artefacts(good, folder):
    """A model and a checkpoint that declare 256 GB in parts that are not there."""
    cases = []
    for what, name, pattern in (("load", "model", "model.json"), ("checkpoints", "run", "man*")):
        url = Path(shutil.copytree(good / name, folder / name))
        (*_, document) = sorted(url.glob(pattern))
        for other in url.glob("manifest-*"):
            if other != document:
                other.unlink()
        body = unseal(document.read_bytes(), "test")
        record = body["arrays"][0]
        part = record["parts"][0]
        width = np.dtype(record["dtype"]).itemsize
        count = 4096  # of 64 MiB each
        record["parts"] = [
            part | {"key": f"{part['key']}{number}", "bytes": 1 << 16, "raw_bytes": 1 << 26}
            for number in range(count)
        ]
        record["shape"] = [count * (1 << 26) // width, *([1] * (len(record["shape"]) - 1))]
        document.write_bytes(sealed(body))
        cases.append((what, str(url)))
    return cases


@pytest.mark.parametrize("kind", ["zarr", "parquet", "table", "npz", "anndata"])
def test_sources_larger_than_the_memory_are_not_read(kind, good, tmp_path, monkeypatch):
    path = tmp_path / "a.h5ad"
    if kind == "zarr":
        path = good / "data"
    elif kind == "npz":
        path = tmp_path / "a.npz"
        np.savez(path, X=np.eye(9), labels=np.ones(9))
    elif kind == "anndata":
        labels = pd.DataFrame({"label": range(9)}, index=list("abcdefghi"))
        anndata.AnnData(np.eye(9), labels).write_h5ad(path)
    else:
        ids = {"parquet": {"indices": [[0]] * 9}, "table": {"x": [0.5] * 9}}[kind]
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"label": [0, 1, 2] * 3, **ids}), path)
    monkeypatch.setattr(memory, "_UNCHECKED_BYTES", 0)
    monkeypatch.setattr(memory, "free_memory", lambda: 30)
    options = {"format": kind} if kind in ("npz", "anndata") else {}
    with pytest.raises(OutOfMemory, match=r"takes \d.* of memory, and 30 bytes are free"):
        ingest(path, str(tmp_path / "out"), **options)


def test_files_that_declare_too_much_are_refused(good, tmp_path):
    cases = [*datasets(good, tmp_path), *files(tmp_path), *artefacts(good, tmp_path)]
    lines = in_little_memory(PROGRAM, good, json.dumps(cases)).splitlines()
    for line, (what, path) in zip(lines, cases, strict=True):
        assert line.startswith(f"{path} refused"), (what, line)
        assert "quote.csv" not in path or f"within {64 << 20} bytes" in line
