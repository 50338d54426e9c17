"""Ingest: from files to a dataset, the same for any number of workers, and never half of one."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import zstandard
from processes import local_cluster
from sklearn.datasets import dump_svmlight_file
from sklearn.feature_extraction.text import HashingVectorizer

from dadagrad.data import readers, sources, spool
from dadagrad.data.dataset import Dataset, open_dataset
from dadagrad.data.ingest import ingest
from dadagrad.data.locate import guess_format
from dadagrad.data.zarr import ZarrDataset
from dadagrad.errors import DadagradError, InputError

COMPRESS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lambda content: lzma.compress(content, preset=0),
    "zst": zstandard.compress,
}


def dense(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """The whole dataset as a dense matrix and labels."""
    matrices, labels = [], []
    for number in range(len(dataset.partitions)):
        rows = dataset.read(number)
        matrix = np.zeros((rows.n_rows, dataset.schema.n_features))
        owner = np.repeat(np.arange(rows.n_rows), np.diff(rows.indptr))
        matrix[owner, rows.vocabulary[rows.indices]] = 1 if rows.values is None else rows.values
        if rows.row_scale is not None:
            matrix *= rows.row_scale[:, None]
        matrices.append(matrix)
        labels.append(rows.labels)
    return np.concatenate(matrices), np.concatenate(labels)


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def files_under(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def make_svmlight(path: Path, n_rows: int, *, zero_based: bool, seed: int = 0) -> Any:
    matrix = scipy.sparse.random_array(
        (n_rows, 30), density=0.2, rng=np.random.default_rng(seed), format="csr"
    )
    matrix.data = np.round(matrix.data, 3) + 0.5
    dump_svmlight_file(matrix, np.arange(n_rows) % 2, str(path), zero_based=zero_based)
    return matrix.toarray()


@pytest.mark.parametrize("given", [True, False, "auto"])
def test_svmlight_rows_keep_their_order_over_files(tmp_path: Path, given: Any) -> None:
    zero_based = given is True
    one = make_svmlight(tmp_path / "a.svm", 50, zero_based=zero_based)
    two = make_svmlight(tmp_path / "b.svm", 40, zero_based=zero_based, seed=1)
    out = tmp_path / "out"
    report = ingest(
        [tmp_path / "a.svm", tmp_path / "b.svm"], str(out), partition_nnz=150, zero_based=given
    )
    dataset = open_dataset(str(out))
    matrix, labels = dense(dataset)
    np.testing.assert_array_equal(matrix, np.vstack([one, two]).astype(np.float32))
    np.testing.assert_array_equal(labels[:, 0], [*np.arange(50) % 2, *np.arange(40) % 2])
    assert (report.examples, report.features, report.skipped) == (90, 30, 0)
    assert report.nnz == np.count_nonzero(matrix)
    assert report.partitions == len(dataset.partitions) == -(-(report.nnz + 90) // 150)
    sizes = [(tmp_path / name).stat().st_size for name in ("a.svm", "b.svm")]
    assert report.source_bytes == sum(sizes)
    assert dataset.schema.label_columns[0].counts == (45, 45)
    assert dataset.schema.feature_space == {
        "format": "svmlight",
        "zero_based": zero_based,
        "binary": False,
        "norm": "none",
    }


def test_one_zero_id_anywhere_makes_all_ids_zero_based(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("1 2:1\n")
    (tmp_path / "b.svm").write_text("0 0:1 3:1\n")
    ingest([tmp_path / "a.svm", tmp_path / "b.svm"], str(tmp_path / "out"))
    matrix, _ = dense(open_dataset(str(tmp_path / "out")))
    assert matrix.tolist() == [[0, 0, 1, 0], [1, 0, 0, 1]]


@pytest.mark.parametrize("shuffle", [None, 3])
def test_the_bytes_do_not_depend_on_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shuffle: int | None
) -> None:
    monkeypatch.setattr("dadagrad.data.readers.TASK_BYTES", 2000)
    make_svmlight(tmp_path / "a.svm", 400, zero_based=True)
    results = []
    for workers in (1, 2, 4):
        out = tmp_path / f"out{workers}"
        ingest(tmp_path / "a.svm", str(out), shuffle=shuffle, workers=workers, partition_nnz=400)
        results.append(files_of(out))
    assert results[0] == results[1] == results[2]


def write_reviews(path: Path, n_rows: int) -> list[str]:
    generator = np.random.default_rng(0)
    words = np.array(["good", "bad", "film", "plot", "story", "end"])
    texts = [" ".join(generator.choice(words, 8)) for _ in range(n_rows)]
    labels = ["pos" if number < n_rows // 2 else "neg" for number in range(n_rows)]
    rows = zip(labels, texts, strict=True)
    path.write_text("".join(f"train\t{y}\t{x}\n" for y, x in rows))
    return texts


def test_text_by_processes_equals_text_by_one_and_hashing_vectorizer(tmp_path: Path) -> None:
    texts = write_reviews(tmp_path / "a.tsv", 300)
    options: dict[str, Any] = {
        "label_column": 1,
        "text_column": "2",
        "ngrams": 2,
        "hash_bits": 8,
        "binary": True,
        "norm": "l2",
        "partition_nnz": 700,
    }
    for workers in (1, 2):
        ingest(tmp_path / "a.tsv", str(tmp_path / f"out{workers}"), workers=workers, **options)
    assert files_of(tmp_path / "out1") == files_of(tmp_path / "out2")
    dataset = open_dataset(str(tmp_path / "out1"))
    matrix, labels = dense(dataset)
    expected = HashingVectorizer(n_features=256, ngram_range=(1, 2), binary=True, norm="l2")
    np.testing.assert_allclose(matrix, expected.transform(texts).toarray(), rtol=1e-7)
    assert labels[:, 0].tolist() == [1.0] * 150 + [0.0] * 150
    (column,) = dataset.schema.label_columns
    assert (column.values, column.counts, column.names) == ((0, 1), (150, 150), ("neg", "pos"))
    rows = dataset.read(0)
    assert rows.values is None
    assert rows.row_scale is not None
    assert dataset.schema.feature_space == {
        "format": "text",
        "hash_bits": 8,
        "ngrams": 2,
        "alternate_sign": False,
        "binary": True,
        "norm": "l2",
    }


def test_a_dask_cluster_gives_the_same_bytes(tmp_path: Path) -> None:
    from distributed import Client

    write_reviews(tmp_path / "a.tsv", 60)
    ingest(tmp_path / "a.tsv", str(tmp_path / "out1"), label_column=1, text_column=2, shuffle=1)
    with (
        local_cluster(1, threads_per_worker=2, processes=False) as cluster,
        Client(cluster) as client,
    ):
        for number, scheduler in ((2, client), (3, cluster.scheduler_address)):
            ingest(
                tmp_path / "a.tsv",
                str(tmp_path / f"out{number}"),
                label_column=1,
                text_column=2,
                shuffle=1,
                scheduler=scheduler,
            )
    assert files_of(tmp_path / "out1") == files_of(tmp_path / "out2") == files_of(tmp_path / "out3")


def test_text_labels_that_come_after_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dadagrad.data.readers.TASK_BYTES", 1 << 20)
    monkeypatch.setattr("dadagrad.data.spool.RUN_BYTES", 1)
    lines = [f"{number % 3}\tgood film\n" for number in range(300_000)]
    (tmp_path / "a.tsv").write_text("".join([*lines, "unknown\tbad film\n", "1\tbad\n"]))
    ingest(tmp_path / "a.tsv", str(tmp_path / "out"), format="text", hash_bits=4)
    dataset = open_dataset(str(tmp_path / "out"))
    _, labels = dense(dataset)
    np.testing.assert_array_equal(labels[:-2, 0], np.arange(300_000) % 3)
    assert labels[-2:, 0].tolist() == [3, 1]
    assert dataset.schema.label_columns[0].names == ("0", "1", "2", "unknown")
    assert dataset.schema.label_columns[0].counts == (100_000, 100_001, 100_000, 1)


def test_several_labels_become_columns(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("10 1:1\n2 1:1\n")
    (tmp_path / "b.svm").write_text("2,10 1:1\n9 1:1\n")
    ingest([tmp_path / "a.svm", tmp_path / "b.svm"], str(tmp_path / "out"))
    dataset = open_dataset(str(tmp_path / "out"))
    assert [column.name for column in dataset.schema.label_columns] == ["2", "9", "10"]
    assert dataset.schema.label_columns[2].counts == (2, 2)
    assert dense(dataset)[1].tolist() == [[0, 0, 1], [1, 0, 0], [1, 0, 1], [0, 1, 0]]


def test_too_many_text_labels_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"id{n}\tgood film\n" for n in range(1001)))
    with pytest.raises(InputError, match=r"1001 different labels, .* is the label column the"):
        ingest(tmp_path / "a.tsv", str(tmp_path / "out"), format="text")


@pytest.mark.parametrize("name", ["a.svm.gz", "a.svm.bz2"])
def test_compressed_sources(tmp_path: Path, name: str) -> None:
    expected = make_svmlight(tmp_path / "plain", 30, zero_based=True)
    compress = gzip.compress if name.endswith("gz") else bz2.compress
    (tmp_path / name).write_bytes(compress((tmp_path / "plain").read_bytes()))
    calls: list[tuple[int, int, int]] = []
    report = ingest(
        tmp_path / name,
        str(tmp_path / "out"),
        workers=2,
        progress=lambda *state: calls.append(state),
    )
    np.testing.assert_array_equal(
        dense(open_dataset(str(tmp_path / "out")))[0], expected.astype(np.float32)
    )
    size = (tmp_path / name).stat().st_size
    assert calls[-1] == (size, size, 30)
    assert report.source_bytes == size
    assert report.bytes == sum(path.stat().st_size for path in files_under(tmp_path / "out"))


@pytest.mark.parametrize("name", ["a.svm.gz", "a.svm.bz2", "a.svm.xz", "a.svm.zst", "a.csv.gz"])
def test_progress_through_one_compressed_file_is_in_its_own_bytes(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "TASK_BYTES", 1 << 17)
    monkeypatch.setattr(sources, "_READ_BYTES", 1 << 13)
    # Ten tasks of noise: compressed bytes come in step with the rows.
    numbers = np.random.default_rng(0).integers(10**8, 10**9, (30_000, 4))
    row = "{0},{1},{2},{3}" if ".csv" in name else "0 1:{0} 2:{1} 3:{2} 4:{3}"
    content = "\n".join(row.format(*four) for four in numbers.tolist()).encode()
    (tmp_path / name).write_bytes(COMPRESS[name.rpartition(".")[2]](content))
    calls: list[tuple[int, int, int]] = []
    ingest(tmp_path / name, str(tmp_path / "out"), progress=lambda *state: calls.append(state))
    size = (tmp_path / name).stat().st_size
    assert len(calls) >= 9
    for done, total, rows in calls:
        assert total == size
        # What is decompressed ahead of the last whole row is little (of bzip2, a block); zstd
        # compresses the first rows a little better than the rest.
        assert -0.05 * size < done - size * rows / len(numbers) < 0.55 * size
    assert calls[-1][0] == size
    assert calls[0][0] < size


def test_a_pipe_can_be_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    content = 'a,"good, film"\nb,"two\nlines"\n'
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(content,))
    writer.start()
    report = ingest(tmp_path / "pipe", str(tmp_path / "out"), format="text", delimiter=",")
    writer.join()
    assert report.examples == 2
    with pytest.raises(InputError, match=r"give it with --format"):
        ingest(tmp_path / "pipe", str(tmp_path / "out2"))


def test_vw_weights_and_rows_of_weight_zero(tmp_path: Path) -> None:
    (tmp_path / "a.vw").write_text("1 2 'x|w red:2\n-1 0 |w blue\n1 |w blue\n")
    report = ingest(tmp_path / "a.vw", str(tmp_path / "out"), hash_bits=10, keep_names=True)
    assert (report.examples, report.features) == (2, 1024)
    dataset = open_dataset(str(tmp_path / "out"))
    assert dataset.schema.weighted
    rows = dataset.read(0)
    assert rows.weights is not None
    assert rows.weights.tolist() == [2, 1]
    assert set(dataset.names(rows.vocabulary).values()) == {"w^red", "w^blue"}
    import anndata

    tags = anndata.read_zarr(tmp_path / "out" / "part-00000").obs["tag"]
    assert tags.tolist() == ["x", ""]
    root = json.loads((tmp_path / "out" / "zarr.json").read_text())
    assert root["attributes"]["provenance"]["zero_weight"] == 1
    assert dataset.schema.label_columns[0].values == (1.0,)


def test_csv_with_names_and_categories(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("age,y,pay\n2,1,\n,0,0.5\n")
    ingest(tmp_path / "*.csv", str(tmp_path / "out"), label_column="y")
    dataset = open_dataset(str(tmp_path / "out"))
    assert dense(dataset)[0].tolist() == [[2, 0], [0, 0.5]] * 2
    assert dataset.names(np.array([0, 1])) == {0: "age", 1: "pay"}
    (tmp_path / "b.csv").write_text("age,y,rent\n2,1,1\n")
    with pytest.raises(InputError, match=r"b\.csv has the columns age, y, rent; .*a\.csv has"):
        ingest(tmp_path / "*.csv", str(tmp_path / "out2"), label_column="y")
    (tmp_path / "b.csv").write_text("2,1,red\n")
    with pytest.raises(InputError, match=r"column '2' holds 'red', .* give --hash-bits"):
        ingest(tmp_path / "b.csv", str(tmp_path / "out2"))
    ingest(tmp_path / "b.csv", str(tmp_path / "out2"), hash_bits=6)
    assert dense(open_dataset(str(tmp_path / "out2")))[0].sum() == 2


def test_npz_with_labels_inside_or_beside(tmp_path: Path) -> None:
    matrix = scipy.sparse.csr_array(np.array([[0, 2.0], [1, 0], [3, 3]]))
    scipy.sparse.save_npz(tmp_path / "a.npz", matrix)
    with pytest.raises(InputError, match=r"a\.npz has no labels: .* save the labels as .*a\.label"):
        ingest(tmp_path / "a.npz", str(tmp_path / "out"))
    np.save(tmp_path / "a.labels.npy", np.array(["no", "yes", "no"]))
    ingest(tmp_path / "a.npz", str(tmp_path / "out"))
    found, labels = dense(open_dataset(str(tmp_path / "out")))
    np.testing.assert_array_equal(found, matrix.toarray())
    assert labels[:, 0].tolist() == [0, 1, 0]
    np.savez(tmp_path / "b.npz", X=matrix.toarray(), labels=[1, 0, 1], weights=[1, 0, 2])
    report = ingest(tmp_path / "b.npz", str(tmp_path / "out2"), binary=True)
    assert report.examples == 2
    assert dense(open_dataset(str(tmp_path / "out2")))[0].tolist() == [[0, 1], [1, 1]]


def test_an_npz_that_would_be_unpickled_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.array([[object()]]), labels=[1])
    with pytest.raises(InputError, match=r"cannot read .*a\.npz as npz"):
        ingest(tmp_path / "a.npz", str(tmp_path / "out"))


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_anndata(tmp_path: Path, suffix: str, sparse: bool) -> None:
    anndata = pytest.importorskip("anndata")
    import pandas

    matrix = np.array([[0, 2.0, 0], [1, 0, 0], [3, 3, 0]], np.float32)
    obs = pandas.DataFrame({"kind": pandas.Categorical(["b", "a", "b"])}, index=list("xyz"))
    var = pandas.DataFrame(index=["g1", "g2", "g3"])
    data = anndata.AnnData(scipy.sparse.csr_matrix(matrix) if sparse else matrix, obs, var)
    path = tmp_path / f"a.{suffix}"
    data.write_h5ad(path) if suffix == "h5ad" else data.write_zarr(path)
    ingest(path, str(tmp_path / "out"), label_column="kind")
    dataset = open_dataset(str(tmp_path / "out"))
    found, labels = dense(dataset)
    np.testing.assert_array_equal(found, matrix)
    assert labels[:, 0].tolist() == [1, 0, 1]
    assert dataset.names(np.array([1])) == {1: "g2"}
    with pytest.raises(InputError, match="no column 'label' in obs; it has 'kind'"):
        ingest(path, str(tmp_path / "out2"))


def test_a_dataset_can_be_ingested_anew(tmp_path: Path) -> None:
    write_reviews(tmp_path / "a.tsv", 50)
    ingest(tmp_path / "a.tsv", str(tmp_path / "one"), label_column=1, text_column=2, hash_bits=8)
    ingest(tmp_path / "one", str(tmp_path / "two"), partition_nnz=100, shuffle=1)
    one, two = open_dataset(str(tmp_path / "one")), open_dataset(str(tmp_path / "two"))
    assert one.schema == two.schema
    assert len(two.partitions) > 1
    rows_of_one, rows_of_two = (
        sorted(map(tuple, np.hstack(dense(dataset)).tolist())) for dataset in (one, two)
    )
    assert rows_of_one == rows_of_two


def test_parquet(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(
        {
            "indices": pyarrow.array([[1, 4], [], [0]], pyarrow.list_(pyarrow.int64())),
            "values": pyarrow.array([[2.0, 1.0], [], [3.0]], pyarrow.list_(pyarrow.float32())),
            "label": [1.0, 0.0, 1.0],
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    ingest(tmp_path / "a.parquet", str(tmp_path / "out"), norm="l2")
    matrix, labels = dense(open_dataset(str(tmp_path / "out")))
    norm = 5**0.5
    expected = [[0, 2 / norm, 0, 0, 1 / norm], [0] * 5, [1, 0, 0, 0, 0]]
    np.testing.assert_allclose(matrix, expected, rtol=1e-6)
    assert labels[:, 0].tolist() == [1, 0, 1]


def test_a_dataset_is_not_overwritten_unless_asked(tmp_path: Path) -> None:
    make_svmlight(tmp_path / "a.svm", 30, zero_based=True)
    out = str(tmp_path / "out")
    ingest(tmp_path / "a.svm", out, partition_nnz=50)
    before = files_of(tmp_path / "out")
    with pytest.raises(InputError, match=r"there is a dataset at .* --overwrite"):
        ingest(tmp_path / "a.svm", out)
    (tmp_path / "bad.svm").write_text("1 nothing\n")
    with pytest.raises(InputError, match=r"bad\.svm, line 1"):
        ingest(tmp_path / "bad.svm", out, overwrite=True)
    assert files_of(tmp_path / "out") == before
    ingest(tmp_path / "a.svm", out, overwrite=True)
    assert len(open_dataset(out).partitions) == 1
    assert not (tmp_path / "out" / "part-00001").exists()


def test_what_no_ingest_wrote_is_left_alone(tmp_path: Path) -> None:
    make_svmlight(tmp_path / "a.svm", 5, zero_based=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(InputError, match=r"no part of a dataset, like thesis\.tex"):
            ingest(tmp_path / "a.svm", str(tmp_path / "out"), overwrite=overwrite)
    assert (tmp_path / "out" / "thesis.tex").read_text() == "precious"


KILLED = """
import os, sys
import dadagrad.data.zarr as zarr
from dadagrad.data.ingest import ingest
write = zarr.write_partition
def killed(storage, name, *rest, **options):
    if name == "part-00002":
        os._exit(9)
    return write(storage, name, *rest, **options)
zarr.write_partition = killed
ingest(sys.argv[1], sys.argv[2], partition_nnz=50)
"""


def test_a_killed_ingest_leaves_no_dataset_and_can_run_again(tmp_path: Path) -> None:
    make_svmlight(tmp_path / "a.svm", 40, zero_based=True)
    out = tmp_path / "out"
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "a.svm"), str(out)], check=False
    )
    assert ended.returncode == 9
    assert (out / "part-00001").exists()
    with pytest.raises(InputError, match="half-written"):
        open_dataset(str(out))
    ingest(tmp_path / "a.svm", str(out), partition_nnz=1000)
    assert [p.name for p in open_dataset(str(out)).partitions] == ["part-00000"]
    assert not (out / "part-00001").exists()


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("weight 1:1\n")
    (tmp_path / "a.csv").write_text("label,text\nb,good\n")
    (tmp_path / "out").write_text("a file, not a folder")
    with pytest.raises(DadagradError):
        ingest(tmp_path / "a.csv", str(tmp_path / "out" / "x"), format="text")
    assert (tmp_path / "out").read_text() == "a file, not a folder"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "svm"}, "format is 'svm'; it must be one of svmlight, vw"),
        ({"norm": "l1"}, "norm is 'l1'; it must be one of l2, none"),
        ({"hash_bits": 8}, "hash_bits is 8, but the format is svmlight; it applies to text and vw"),
        ({"ngrams": 2, "format": "svmlight"}, "ngrams is 2, but the format is svmlight"),
        ({"format": "text", "hash_bits": 31}, "hash_bits is 31; it must be 1 to 30"),
        ({"partition_nnz": 0}, "partition_nnz is 0; it must be 1 or more"),
        ({"shuffle": -1}, "shuffle is -1; it must be 0 or more"),
        ({"workers": 0}, "workers is 0; it must be 1 or more"),
        ({"n_features": 2}, "n_features is 2, but the sources have features up to id 2"),
    ],
)
def test_wrong_options_are_explained(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    (tmp_path / "a.svm").write_text("1 1:1 3:2\n")
    with pytest.raises(InputError, match=message):
        ingest(tmp_path / "a.svm", str(tmp_path / "out"), **options)
    assert not (tmp_path / "out").exists()


def test_n_features_can_be_more_than_the_sources_show(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("1 1:1 3:2\n")
    assert ingest(tmp_path / "a.svm", str(tmp_path / "out"), n_features=10).features == 10


def test_sources_without_examples(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("")
    (tmp_path / "b.vw").write_text("1 0 | x\n")
    (tmp_path / "c.svm").write_text("what\n")
    (tmp_path / "folder").mkdir()
    out = str(tmp_path / "out")
    with pytest.raises(InputError, match=r"no examples in .*a\.svm; give sources"):
        ingest(tmp_path / "a.svm", out)
    with pytest.raises(InputError, match=r"no examples in .*b\.vw \(1 have weight 0\)"):
        ingest(tmp_path / "b.vw", out, hash_bits=5)
    with pytest.raises(InputError, match=r"no examples in .*c\.svm \(1 were wrong and skipped\)"):
        ingest(tmp_path / "c.svm", out, on_error="skip")
    with pytest.raises(InputError, match=r"there is no file .*d\.svm"):
        ingest(tmp_path / "d.svm", out)
    with pytest.raises(InputError, match=r"the folder .*folder has no files"):
        ingest(tmp_path / "folder", out)
    with pytest.raises(InputError, match="no source was given"):
        ingest([], out)


def test_skipped_rows_are_counted_wherever_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dadagrad.data.readers.TASK_BYTES", 16)
    (tmp_path / "a.svm").write_text("1 1:1\nbad\n" * 20)
    report = ingest(tmp_path / "a.svm", str(tmp_path / "out"), on_error="skip")
    assert (report.examples, report.skipped) == (20, 20)


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("a", "1 1:2 3:4\n", "svmlight"),
        ("a", "-1.5,2 qid:3 1:2 # note\n", "svmlight"),
        ("a", "1 2.0 'tag|words good bad\n", "vw"),
        ("a", "| good bad\n", "vw"),
        ("a.txt", "pos\ta good film\n", "text"),
        ("a.csv", "y,x\n1,2\n", "csv"),
        ("a.csv", 'y,x\n1,"a good film"\n', "text"),
        ("a.tsv", "1\t2\t3\n", "csv"),
        ("a.libsvm", "", "svmlight"),
    ],
)
def test_formats_are_seen(tmp_path: Path, name: str, content: str, format: str) -> None:
    (tmp_path / name).write_text(content)
    assert guess_format(str(tmp_path / name), prefer_text=False) == format


def test_a_format_that_cannot_be_seen(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("lorem ipsum\n")
    with pytest.raises(InputError, match=r"its first line is 'lorem ipsum'; .* --format svmlight"):
        ingest(tmp_path / "a", str(tmp_path / "out"))


def test_a_shuffle_through_files_gives_the_same_bytes_as_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dadagrad.data.readers.TASK_BYTES", 4000)
    expected = make_svmlight(tmp_path / "a.svm", 1000, zero_based=True)
    ingest(tmp_path / "a.svm", str(tmp_path / "memory"), shuffle=5, partition_nnz=500)
    monkeypatch.setattr("dadagrad.data.spool.RUN_BYTES", 10_000)
    ingest(
        tmp_path / "a.svm",
        str(tmp_path / "files"),
        shuffle=5,
        partition_nnz=500,
        temporary=str(tmp_path),
        workers=2,
    )
    assert files_of(tmp_path / "memory") == files_of(tmp_path / "files")
    matrix, _ = dense(ZarrDataset(str(tmp_path / "files")))
    assert sorted(map(tuple, matrix)) == sorted(map(tuple, expected.astype(np.float32)))
    assert not list(tmp_path.glob("dadagrad-*"))


def test_a_scheduler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dask.config

    from dadagrad import dask_config  # noqa: F401 (adds its defaults to the configuration)

    monkeypatch.setitem(dask.config.config["dadagrad"], "connect-timeout", 1)
    make_svmlight(tmp_path / "a.svm", 5, zero_based=True)
    with pytest.raises(InputError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1 "):
        ingest(tmp_path / "a.svm", str(tmp_path / "out"), scheduler="tcp://127.0.0.1:1")
    assert not (tmp_path / "out").exists()


LABELLED = {
    "a.svm": "1 1:0.5 3:2\n0 2:1\n1 1:4\n",
    "a.vw": "1 2 't| 1:0.5 3:2\n0 | 2:1\n1 | 1:4\n",
    "a.csv": "y,a,b,c\n1,0.5,0,2\n0,,1,0\n1,4,,\n",
    "a.tsv": "good\tso very good\nbad\tso very bad\ngood\tvery\n",
}
UNLABELLED = {
    "a.svm": "1:0.5 3:2 # comment\n2:1\n7,8 1:4\n",
    "a.vw": "'t| 1:0.5 3:2\n| 2:1\n-1 | 1:4\n",
    "a.csv": "a,b,c\n0.5,0,2\n,1,0\n4,,\n",
    "a.tsv": "so very good\nso very bad\nvery\n",
}


def make_unlabelled(folder: Path, name: str, **options: Any) -> Dataset:
    (folder / name).write_text(UNLABELLED[name])
    format = "text" if name == "a.tsv" else None
    ingest(folder / name, str(folder / "rows"), format=format, no_labels=True, **options)
    return open_dataset(str(folder / "rows"))


@pytest.mark.parametrize("name", LABELLED)
def test_rows_to_predict_need_no_labels(tmp_path: Path, name: str) -> None:
    options = {"format": "text"} if name == "a.tsv" else {}
    (tmp_path / f"labelled-{name}").write_text(LABELLED[name])
    ingest(tmp_path / f"labelled-{name}", str(tmp_path / "labelled"), **options)
    expected = open_dataset(str(tmp_path / "labelled"))
    rows = make_unlabelled(tmp_path, name)
    assert rows.schema.label_columns == ()
    assert rows.read(0).labels.shape == (3, 0)
    assert rows.schema.feature_space == expected.schema.feature_space
    assert rows.schema.n_features == expected.schema.n_features
    # Weights are not labels: row 0 of vw has one where it has a label.
    np.testing.assert_array_equal(dense(rows)[0], dense(expected)[0])


@pytest.mark.parametrize("name", LABELLED)
def test_a_missing_label_names_the_option_for_rows_without(tmp_path: Path, name: str) -> None:
    content = UNLABELLED[name]
    if name == "a.csv":
        content = "y,a\n1,2\n,3\n"
    if name == "a.tsv":
        content = "good\tso\n\tvery\n"
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=rf"{name}, line \d.*label.*--no-labels"):
        ingest(tmp_path / name, str(tmp_path / "out"), format="text" if name == "a.tsv" else None)


def test_arrays_without_labels(tmp_path: Path) -> None:
    matrix = scipy.sparse.random_array((20, 6), density=0.3, rng=np.random.default_rng(0))
    scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.csr_array(matrix))
    with pytest.raises(InputError, match=r"has no labels.*--no-labels"):
        ingest(tmp_path / "x.npz", str(tmp_path / "a"))
    ingest(tmp_path / "x.npz", str(tmp_path / "a"), no_labels=True)
    with pytest.raises(InputError, match=r"has no labels.*--no-labels"):
        ingest(tmp_path / "a", str(tmp_path / "b"), format="parquet")
    ingest(tmp_path / "a", str(tmp_path / "b"), format="parquet", no_labels=True, shuffle=3)
    found = [dense(open_dataset(str(tmp_path / name)))[0] for name in "ab"]
    np.testing.assert_array_equal(found[0], matrix.toarray().astype(np.float32))
    assert sorted(found[1].tolist()) == sorted(found[0].tolist())


def test_labels_that_are_there_are_left_out_on_request(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text(LABELLED["a.svm"])
    ingest(tmp_path / "a.svm", str(tmp_path / "a"))
    ingest(tmp_path / "a", str(tmp_path / "b"), format="parquet", no_labels=True)
    assert open_dataset(str(tmp_path / "b")).schema.label_columns == ()


def test_rows_without_labels_that_do_not_fit_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "RUN_BYTES", 1)
    monkeypatch.setattr(readers, "TASK_BYTES", 8)
    rows = make_unlabelled(tmp_path, "a.svm", partition_nnz=2)
    assert [part.n_rows for part in rows.partitions] == [1, 1, 1]
    assert dense(rows)[1].shape == (3, 0)


def test_a_dataset_without_labels_is_anndata_too(tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata")
    make_unlabelled(tmp_path, "a.svm")
    found = anndata.read_zarr(tmp_path / "rows" / "part-00000")
    assert found.shape == (3, 3)


@pytest.mark.parametrize("option", [{"multilabel": True}, {"label_column": "y"}])
def test_no_labels_and_where_they_are_exclude_each_other(tmp_path: Path, option: Any) -> None:
    name = "a.svm" if "multilabel" in option else "a.csv"
    (tmp_path / name).write_text(LABELLED[name])
    with pytest.raises(InputError, match=f"no_labels and {next(iter(option))} exclude"):
        ingest(tmp_path / name, str(tmp_path / "out"), no_labels=True, **option)


def test_unlabelled_svmlight_is_recognised(tmp_path: Path) -> None:
    for first in ("1:0.5 3:2", "qid:3 1:1", "3:1", "1 2:3", "+1", "1,2 3:1 # x"):
        (tmp_path / "rows.txt").write_text(first + "\n")
        assert guess_format(str(tmp_path / "rows.txt"), prefer_text=False) == "svmlight"
