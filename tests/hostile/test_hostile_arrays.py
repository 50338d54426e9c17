"""Array files that mean harm: npz, npy and AnnData. Nothing in them is unpickled or evaluated."""

import contextlib
import io
import os
import pickle
import shutil
import struct
import zipfile
import zlib
from pathlib import Path

import anndata
import h5py
import numpy as np
import pytest
import scipy.sparse
from helpers.array_files import npy, npz
from helpers.hostile_cases import mutated_bytes, only_our_errors
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad import InputError, ingest
from dadagrad.data.ingest import array_checks
from dadagrad.data.ingest.arrays import open_npz
from dadagrad.data.ingest.ingest import read_dataset
from dadagrad.data.reading.options import Options

MATRIX = scipy.sparse.random(12, 9, 0.4, "csr", random_state=0)
LABELS = np.arange(12.0) % 2
NPZ = Options("npz")


class Bomb:
    """Whoever unpickles it leaves a trace."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


def saved(kind):
    """The arrays that `scipy.sparse.save_npz` stores for a matrix of some format."""
    sink = io.BytesIO()
    scipy.sparse.save_npz(sink, MATRIX.asformat(kind))
    sink.seek(0)
    with np.load(sink) as archive:
        return {**archive, "labels": LABELS}


VALID = {
    "plain": {
        "data": MATRIX.data, "indices": MATRIX.indices, "indptr": MATRIX.indptr,
        "shape": [12, 9], "labels": LABELS,
    },
    "dense": {"X": MATRIX.toarray(), "labels": LABELS, "weights": np.ones(12)},
    **{kind: saved(kind) for kind in ("csr", "csc", "coo", "dia", "bsr")},
}  # fmt: skip
ODD = [
    3.0, [], np.zeros((2, 2, 2)), ["a", "b"], [1 + 2j], 2**62, [-1], [2**60, 2**60], [np.nan] * 12,
    np.zeros((0, 5)), b"\xff", [b"\xff"] * 12, np.arange(12), [12, 9], [12.5, 9], [True] * 12,
    np.arange(13) * 10**9, "csc", "os.system", np.arange(13)[::-1], [2**40, 9], [12, 2**60],
    np.full(12, -1.0), [np.datetime64("2020")] * 12,
]  # fmt: skip


@st.composite
def archives(draw):
    """An npz file of which some arrays are not what they should be, or some bytes."""
    arrays = dict(VALID[draw(st.sampled_from(sorted(VALID)))])
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from(sorted(arrays)))
        array = np.array(arrays[name])
        if draw(st.booleans()):
            array = draw(st.sampled_from(ODD))
        elif array.size and array.dtype.kind in "iuf":
            place = draw(st.integers(0, array.size - 1))
            array.flat[place] = draw(st.sampled_from([-1, 2**31 - 1, -(2**31), 100, 12]))
        arrays[name] = array
    data = npz(**arrays)
    return draw(mutated_bytes(data)) if draw(st.integers(0, 3)) == 0 else data


@given(archives())
def test_any_damage_of_an_archive_is_refused_or_harmless(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "a.npz"
    path.write_bytes(data)
    with only_our_errors():
        source = open_npz(str(path), NPZ)
        for block in source.blocks:
            # What SciPy and the kernels do with other indices is to read or write elsewhere.
            assert not block.nnz or 0 <= block.ids.min() <= block.ids.max() < source.n_features
            assert (np.diff(block.indptr) >= 0).all()


def test_what_is_valid_is_read(tmp_path):
    for arrays in VALID.values():
        (tmp_path / "a.npz").write_bytes(npz(**arrays))
        blocks = list(open_npz(str(tmp_path / "a.npz"), NPZ).blocks)
        assert sum(block.nnz for block in blocks) == MATRIX.nnz


BROKE = {
    # SciPy's compiled code writes to these places: it overwrote memory of others.
    "csc rows": (VALID["csc"] | {"indices": np.full(MATRIX.nnz, 10**8)}, "indices"),
    "csr columns": (VALID["csr"] | {"indices": np.full(MATRIX.nnz, -5)}, "indices"),
    # SciPy checks nothing more of a matrix that has -1 entries.
    "csr end": (VALID["csr"] | {"indptr": [*MATRIX.indptr[:-1], -1]}, "indptr does not rise"),
    # A pointer for each of 2**40 rows.
    "rows": (VALID["csc"] | {"shape": [2**40, 9]}, "declares 8796093022208 bytes"),
    "no weight": (VALID["dense"] | {"weights": 3.0}, r"weights has shape \(\) and X 12 rows"),
    "one dimension": ({"X": [1.0], "labels": [1]}, r"X has shape \(1,\)"),
    "text": (VALID["dense"] | {"labels": [b"\xff"] * 12}, "not UTF-8"),
    "halves": (VALID["plain"] | {"indices": MATRIX.indices + 0.5}, "indices has dtype float64"),
}


def test_what_broke(tmp_path):
    for arrays, said in BROKE.values():
        (tmp_path / "a.npz").write_bytes(npz(**arrays))
        with pytest.raises(InputError, match=rf"a\.npz.*{said}"), only_our_errors(False):
            list(open_npz(str(tmp_path / "a.npz"), NPZ).blocks)


def test_a_wide_matrix_without_rows_takes_no_memory(tmp_path):
    wide = {"data": [], "indices": [], "indptr": [0, 0], "shape": [1, 2**60], "labels": [1.0]}
    (tmp_path / "a.npz").write_bytes(npz(**wide))
    assert sum(block.n_rows for block in open_npz(str(tmp_path / "a.npz"), NPZ).blocks) == 1


GOOD = "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }\n"
SHAPES = ["(1152921504606846976,)", "(4294967296, 4294967296)", "(-1,)", "(" * 3000 + ")" * 3000,
          "(__import__('os').mkdir('trace'),)"]  # fmt: skip
TYPES = ["'|O'", "[('a', '<f8'), ('b', '|O')]", "'<U'", "'<U999999999'"]
HEADERS = st.one_of(
    st.sampled_from(SHAPES).map(lambda shape: GOOD.replace("(1,)", shape)),
    st.sampled_from(TYPES).map(lambda kind: GOOD.replace("'<f8'", kind)),
    st.sampled_from(["0", "'True'", "exit()"]).map(lambda flag: GOOD.replace("False", flag)),
    st.sampled_from(["'extra': 1}", ""]).map(lambda end: GOOD.replace("}", end)),
    st.sampled_from(["", "0" * 4000, "__import__('os').mkdir('trace')"]),
)


@given(HEADERS, st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_headers_of_arrays(tmp_path_factory, header, version):
    """Nothing in a header is evaluated, and no memory is taken for its shape."""
    folder = tmp_path_factory.mktemp("headers")
    array = npy(header, bytes(8), version)
    with zipfile.ZipFile(folder / "a.npz", "w") as archive:
        archive.writestr("X.npy", array)
    (folder / "b.npz").write_bytes(npz(X=[[1.0]]))
    (folder / "b.labels.npy").write_bytes(array)
    with contextlib.chdir(folder):
        for file in ("a.npz", "b.npz"):
            with pytest.raises(InputError, match=r"X\.npy|b\.labels\.npy"), only_our_errors(False):
                open_npz(file, NPZ)
    assert not (folder / "trace").exists()


def test_headers_of_other_programs(tmp_path):
    for header in (
        '{"shape":(1,1),"fortran_order":False,"descr":"<f8"}',
        GOOD.replace("1,", "1,1"),
    ):
        with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("X.npy", npy(header, struct.pack("<d", 2.5)))
            archive.writestr("labels.npy", npy(GOOD, bytes(8)))
        (block,) = open_npz(str(tmp_path / "a.npz"), NPZ).blocks
        assert block.values.tolist() == [2.5]


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_two_arrays_of_one_name(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for content in (bytes(8), struct.pack("<d", 2.5)):
            archive.writestr("X.npy", npy(GOOD, content))
    with pytest.raises(InputError, match=r"a\.npz has two arrays of one name"):
        open_npz(str(tmp_path / "a.npz"), NPZ)


# --- AnnData


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A folder with a file of AnnData, ``a.h5ad``."""
    import anndata
    import pandas

    folder = tmp_path_factory.mktemp("anndata")
    obs = pandas.DataFrame({"label": LABELS}, index=[f"r{row}" for row in range(12)])
    data = anndata.AnnData(MATRIX.astype(np.float32), obs=obs)
    data.write_h5ad(folder / "a.h5ad")
    return folder


pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


def test_h5ad_that_lies(stores, tmp_path, monkeypatch):
    monkeypatch.setattr(array_checks, "free_memory", lambda: 0)  # looks into all chunks
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["x"] = np.arange(12.0)
    (tmp_path / "secret.bin").write_bytes(bytes(96))

    def label(file, **options):
        file["obs"].create_dataset("label", dtype="f8", **options)

    def virtual(file):
        layout = h5py.VirtualLayout(shape=(12,), dtype="f8")
        layout[:] = h5py.VirtualSource(str(secret), "x", shape=(12,))
        file.create_virtual_dataset("obs/label", layout)

    def bomb(file):
        label(file, shape=(12,), chunks=(12,), compression="gzip")
        file["obs/label"].id.write_direct_chunk((0,), zlib.compress(bytes(5_000_000), 9))

    def twice(file):
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((12,))
        for _ in range(2):
            properties.set_deflate(9)
        space, kind = h5py.h5s.create_simple((12,)), h5py.h5t.NATIVE_DOUBLE
        h5py.h5d.create(file["obs"].id, b"label", kind, space, properties)

    raw = [(str(tmp_path / "secret.bin"), 0, 96)]
    labels = [
        (lambda file: label(file, shape=(2**40,), chunks=(1 << 20,)), "declares"),
        (lambda file: label(file, shape=(12,), external=raw), "lies in another file"),
        (virtual, "lies in another file"),
        (bomb, r"the chunk at \(0,\) of .*obs/label declares 96 bytes and has more"),
        (twice, "compressed 2 times"),
        (
            lambda file: file["obs"].update(label=h5py.ExternalLink(str(secret), "/x")),
            "link to another file",
        ),
        (lambda file: file["obs"].update(again=file["obs"]), "lies too deep"),
    ]
    matrix = [
        (lambda file: file["X/indices"].write_direct(np.full(MATRIX.nnz, 10**6)), "a.h5ad"),
        (lambda file: file["X/indptr"].write_direct(np.arange(13) * 10**6), "does not rise"),
        (lambda file: file["X"].attrs.update(shape=[12, 2**50]), "var names 9 features"),
    ]
    for number, (damage, said) in enumerate([*labels, *matrix]):
        path = tmp_path / f"{number}-a.h5ad"  # an error may keep the last one open
        shutil.copy(stores / "a.h5ad", path)
        with h5py.File(path, "r+") as file:
            if (damage, said) in labels:
                del file["obs/label"]
            damage(file)
        with pytest.raises(InputError, match=said), only_our_errors(False):
            ingest(path, str(tmp_path / "out"))


@given(data=st.data())
def test_any_damage_of_an_h5ad_is_refused_or_harmless(stores, tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged.h5ad"
    path.write_bytes(data.draw(mutated_bytes((stores / "a.h5ad").read_bytes())))
    with only_our_errors():
        read_dataset(str(path))


def test_objects_in_an_h5ad_are_not_unpickled(stores, tmp_path):
    path = Path(shutil.copy(stores / "a.h5ad", tmp_path))
    with h5py.File(path, "r+") as file:
        del file["obs/label"]
        column = file["obs"].create_dataset("label", (12,), h5py.vlen_dtype(np.uint8))
        column[:] = [np.frombuffer(pickle.dumps(Bomb(tmp_path / "trace")), np.uint8)] * 12
        column.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    with pytest.raises(InputError, match=r"a\.h5ad"), only_our_errors(False):
        read_dataset(str(path))
    assert not (tmp_path / "trace").exists()


def test_valid_stores_are_read(stores, tmp_path, monkeypatch):
    monkeypatch.setattr(array_checks, "free_memory", lambda: 0)
    anndata.read_h5ad(stores / "a.h5ad").write_h5ad(stores / "gz.h5ad", compression="gzip")
    for name in ("a.h5ad", "gz.h5ad"):
        report = ingest(stores / name, str(tmp_path / f"out-{name}"), format="anndata")
        assert (report.rows, report.nnz) == (12, MATRIX.nnz)
