"""Ingest: from files to a dataset, the same for any number of workers, and never half of one."""

import json
import os
import threading
from contextlib import contextmanager
from pathlib import Path

import anndata
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from helpers.blocks import dense_dataset
from helpers.line_formats import COMPRESS
from helpers.processes import local_cluster
from helpers.zarr_cases import files_of, read_anndata
from sklearn.datasets import dump_svmlight_file

from dadagrad import InputError
from dadagrad.data import external_shuffle, open_dataset
from dadagrad.data.feature_space import FeatureSpace
from dadagrad.data.ingest import readers, sources, svmlight
from dadagrad.data.ingest.ingest import IngestReport, ingest
from dadagrad.data.reading import files
from dadagrad.data.reading.names import guess_format
from dadagrad.data.views import check_features


def write_and_ingest(folder, files, **options):
    """The dataset of files with these contents, in their order."""
    for name, content in files.items():
        (folder / name).write_text(content)
    out = str(folder / "out")
    options = {"shuffle": None, "overwrite": True} | options
    ingest([folder / name for name in files], out, **options)
    return open_dataset(out)


@contextmanager
def refused(message, out):
    """The block raises `InputError`, and leaves no dataset."""
    before = files_of(out) if out.exists() else None
    with pytest.raises(InputError, match=message):
        yield
    assert before == (files_of(out) if out.exists() else None)


def ingested(source, out, **options):
    ingest(source, str(out), **({"shuffle": None} | options))
    return open_dataset(str(out))


def make_svmlight(path, n_rows, *, zero_based=True, seed=0):
    matrix = scipy.sparse.random_array(
        (n_rows, 30), density=0.2, rng=np.random.default_rng(seed), format="csr"
    )
    matrix.data = np.round(matrix.data, 3) + 0.5
    dump_svmlight_file(matrix, np.arange(n_rows) % 2, str(path), zero_based=zero_based)
    return matrix.toarray().astype(np.float32)


# --- formats


@pytest.mark.parametrize("zero_based", [True, False])
def test_svmlight_rows_keep_their_order_over_files(tmp_path, zero_based):
    paths = [tmp_path / "a.svm", tmp_path / "b.svm"]
    expected = [
        make_svmlight(path, n_rows, zero_based=zero_based, seed=n_rows)
        for path, n_rows in zip(paths, (50, 40), strict=True)
    ]
    out = str(tmp_path / "out")
    report = ingest(paths, out, partition_nnz=150, shuffle=None)
    dataset = open_dataset(str(tmp_path / "out"))
    matrix, labels = dense_dataset(dataset)
    np.testing.assert_array_equal(matrix, np.vstack(expected))
    np.testing.assert_array_equal(labels[:, 0], [*np.arange(50) % 2, *np.arange(40) % 2])
    nnz = np.count_nonzero(matrix)
    assert report == IngestReport(
        rows=90,
        features=30,
        nnz=nnz,
        partitions=-(-(nnz + 90) // 150),
        source_bytes=sum(path.stat().st_size for path in paths),
        bytes=sum(map(len, files_of(tmp_path / "out").values())),
        seconds=report.seconds,
        skipped=0,
        columns="label: 0 45, 1 45",
    )
    assert report.partitions == len(dataset.partitions)
    assert dataset.schema.label_columns[0].counts == (45, 45)
    space = {"format": "svmlight", "zero_based": zero_based, "binary": False, "norm": "none"}
    assert dataset.schema.feature_space == FeatureSpace(space)


def test_one_zero_id_anywhere_makes_all_ids_zero_based(tmp_path):
    files = {"a.svm": "1 2:1\n", "b.svm": "0 0:1 3:1\n"}
    dataset = write_and_ingest(tmp_path, files, n_features=5)  # more than the sources show
    assert dense_dataset(dataset)[0].tolist() == [[0, 0, 1, 0, 0], [1, 0, 0, 1, 0]]


def test_several_labels_become_columns(tmp_path):
    files = {"a.svm": "10 1:1\n2 1:1\n", "b.svm": "2,10 1:1\n9 1:1\n"}
    dataset = write_and_ingest(tmp_path, files)
    assert [column.name for column in dataset.schema.label_columns] == ["2", "9", "10"]
    assert dataset.schema.label_columns[2].counts == (2, 2)
    assert dense_dataset(dataset)[1].tolist() == [[0, 0, 1], [1, 0, 0], [1, 0, 1], [0, 1, 0]]


def test_vw_weights_names_and_tags(tmp_path):
    content = "1 2 'x|w red:2\n-1 0 |w blue\n1 |w blue\n"
    dataset = write_and_ingest(tmp_path, {"a.vw": content}, hash_bits=10, keep_names=True)
    assert (dataset.n_rows, dataset.schema.n_features, dataset.schema.weighted) == (2, 1024, True)
    rows = dataset.read(0)
    assert rows.weights.tolist() == [2, 1]
    assert set(dataset.names(rows.vocabulary).values()) == {"w^red", "w^blue"}
    tags = read_anndata(tmp_path / "out" / "part-00000").obs["tag"]
    assert tags.tolist() == ["x", ""]
    root = json.loads((tmp_path / "out" / "zarr.json").read_text())
    assert root["attributes"]["provenance"]["zero_weight"] == 1
    assert dataset.schema.label_columns[0].values == (1.0,)


def test_names_of_vw_are_hashed_to_18_bits_unless_they_are_numbers(tmp_path):
    for content, n_features in (
        ("1 |f 9:0.5 14:2\n-1 |f 3:1\n", 15),
        ("1 |f 9:0.5 14:2\n-1 |g 3:1\n", 2**18),
        ("1 | a b\n", 2**18),
    ):
        for contents in ({"a.vw": content}, {"a.vw": "", "b.vw": content}):
            assert write_and_ingest(tmp_path, contents).schema.n_features == n_features


def test_csv_with_names_and_categories(tmp_path):
    files = {"a.csv": "age,y,pay\n2,1,\n,0,0.5\n", "b.csv": "y,pay,age\n1,,2\n0,0.5,\n"}
    dataset = write_and_ingest(tmp_path, files, label="y", scale="none")
    assert dense_dataset(dataset)[0].tolist() == [[2, 0, 0, 1], [0, 0.5, 1, 0]] * 2
    names = {0: "age", 1: "pay", 2: "age is missing", 3: "pay is missing"}
    assert dataset.names(np.arange(4)) == names
    files["b.csv"] = "age,y,rent\n2,1,1\n"
    with refused(r"b\.csv has no column 'pay'", tmp_path / "out"):
        write_and_ingest(tmp_path, files, label="y")
    dataset = write_and_ingest(tmp_path, {"b.csv": "2,1,red\n"}, hash_bits=6)
    assert dense_dataset(dataset)[0].sum() == 1  # the number is its own center


def test_text_labels_after_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "TASK_BYTES", 1 << 10)
    lines = [f"{number % 3}\tgood film\n" for number in range(3000)]
    content = "".join([*lines, "unknown\tbad film\n", "1\tbad\n"])
    dataset = write_and_ingest(tmp_path, {"a.tsv": content}, format="text", hash_bits=4)
    _, labels = dense_dataset(dataset)
    np.testing.assert_array_equal(labels[:, 0], [*np.arange(3000) % 3, 3, 1])
    assert dataset.schema.label_columns[0].names == ("0", "1", "2", "unknown")
    assert dataset.schema.label_columns[0].counts == (1000, 1001, 1000, 1)
    content = "".join(f"id{n}\tgood film\n" for n in range(1001))
    with refused(r"1001 different labels, .* is the label column the", tmp_path / "out"):
        write_and_ingest(tmp_path, {"a.tsv": content}, format="text")


def test_npz_with_labels_inside_or_beside(tmp_path):
    matrix = scipy.sparse.csr_array(np.array([[0, 2.0], [1, 0], [3, 3]]))
    scipy.sparse.save_npz(tmp_path / "a.npz", matrix)
    message = r"a\.npz has no labels: .* save the labels as .*a\.label.*no_labels=True"
    with refused(message, tmp_path / "out"):
        ingest(tmp_path / "a.npz", str(tmp_path / "out"))
    dense, _ = dense_dataset(ingested(tmp_path / "a.npz", tmp_path / "out0", no_labels=True))
    np.testing.assert_array_equal(dense, matrix.toarray())
    np.save(tmp_path / "a.labels.npy", np.array(["no", "yes", "no"]))
    dense, labels = dense_dataset(ingested(tmp_path / "a.npz", tmp_path / "out"))
    np.testing.assert_array_equal(dense, matrix.toarray())
    assert labels[:, 0].tolist() == [0, 1, 0]
    np.savez(tmp_path / "b.npz", X=matrix.toarray(), labels=[1, 0, 1], weights=[1, 0, 2])
    dataset = ingested(tmp_path / "b.npz", tmp_path / "out2", binary=True)
    assert dense_dataset(dataset)[0].tolist() == [[0, 1], [1, 1]]


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_anndata(tmp_path, sparse):
    matrix = np.array([[0, 2.0, 0], [1, 0, 0], [3, 3, 0]], np.float32)
    obs = pandas.DataFrame({"kind": pandas.Categorical(["b", "a", "b"])}, index=list("xyz"))
    var = pandas.DataFrame(index=["g1", "g2", "g3"])
    data = anndata.AnnData(scipy.sparse.csr_matrix(matrix) if sparse else matrix, obs, var)
    path = tmp_path / "a.h5ad"
    data.write_h5ad(path)
    dataset = ingested(path, tmp_path / "out", label="kind")
    dense, labels = dense_dataset(dataset)
    np.testing.assert_array_equal(dense, matrix)
    assert labels[:, 0].tolist() == [1, 0, 1]
    assert dataset.names(np.array([1])) == {1: "g2"}
    with refused("no column 'label' in obs; it has 'kind'", tmp_path / "out2"):
        ingest(path, str(tmp_path / "out2"))


def test_parquet_and_datasets_can_be_ingested(tmp_path):
    lists = {"indices": [[1, 4], [], [0]], "values": [[2.0, 1.0], [], [3.0]]}
    table = pa.table({**lists, "label": [1.0, 0.0, 1.0]})
    pq.write_table(table, tmp_path / "a.parquet")
    one = ingested(tmp_path / "a.parquet", tmp_path / "one", norm="l2")
    norm = 5**0.5
    expected = [[0, 2 / norm, 0, 0, 1 / norm], [0] * 5, [1, 0, 0, 0, 0]]
    np.testing.assert_allclose(dense_dataset(one)[0], expected, rtol=1e-6)
    two = ingested(tmp_path / "one", tmp_path / "two", partition_nnz=2, shuffle=1)
    assert one.schema == two.schema
    assert len(two.partitions) > 1
    rows = [sorted(map(tuple, np.hstack(dense_dataset(data)).tolist())) for data in (one, two)]
    assert rows[0] == rows[1]


# --- workers, compression and pipes


@pytest.mark.parametrize(("name", "shuffle"), [("a.svm", None), ("a.svm", 3), ("a.tsv", 3)])
def test_the_bytes_depend_neither_on_workers_nor_on_memory(tmp_path, monkeypatch, name, shuffle):
    monkeypatch.setattr(readers, "TASK_BYTES", 2000)
    expected = make_svmlight(tmp_path / "a.svm", 400)
    table = np.column_stack([np.arange(400) % 2, expected])
    np.savetxt(tmp_path / "a.tsv", table, "%.3f", delimiter="\t")
    options = {"shuffle": shuffle, "partition_nnz": 400}
    options |= {"scale": "none"} if name == "a.tsv" else {}
    results = []
    for workers, run_bytes in ((1, 1 << 27), (2, 10_000), (4, 1 << 27)):
        monkeypatch.setattr(external_shuffle, "RUN_BYTES", run_bytes)
        out = tmp_path / f"out{workers}"
        ingest(tmp_path / name, str(out), workers=workers, **options)
        results.append(files_of(out))
    assert results[0] == results[1] == results[2]
    matrix, _ = dense_dataset(open_dataset(str(tmp_path / "out1")))
    assert np.array_equal(matrix, expected) == (shuffle is None)
    assert sorted(map(tuple, matrix)) == sorted(map(tuple, expected))


def test_a_cluster_shuffles_and_writes_the_dataset_of_one_machine(tmp_path, monkeypatch):
    """The workers pass sorted runs of rows to each other through the folder of the dataset."""
    from dask.dataframe import from_pandas
    from distributed import Client

    for module in (files, readers):
        monkeypatch.setattr(module, "TASK_BYTES", 5_000)
    monkeypatch.setattr(sources, "_GROUP_TASKS", 3)
    monkeypatch.setattr(external_shuffle, "RUN_BYTES", 20_000)
    random = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {
            "age": np.where(random.random(1500) < 0.1, np.nan, random.lognormal(3, 2, 1500)),
            "job": random.choice(["cook", "nurse", "clerk"], 1500),
            "y": random.choice(["yes", "no", "it depends"], 1500),
        }
    )
    monkeypatch.chdir(tmp_path)
    frame.to_csv("a.tsv", sep="\t", index=False)
    frame.to_csv("a.csv.gz", index=False)
    frame.to_parquet("a.parquet", row_group_size=400)
    Path("a.svm").write_text("".join(f"{n % 2} qid:{n // 7} {n % 90}:1\n" for n in range(1500)))
    with Path("a.tsv").open("a") as file:
        file.write("too short\n" * 3 + "30\tcook\t\n")
    table = {"label": "y", "partition_nnz": 1000, "on_error": "skip"}
    with local_cluster(2, threads_per_worker=1, processes=False) as cluster, Client(cluster):
        for source, options in (
            (tmp_path / "a.tsv", table),
            ([tmp_path / "a.tsv", tmp_path / "a.csv.gz"], table),
            (tmp_path / "a.parquet", table | {"shuffle": None}),
            ("a.svm", {"partition_nnz": 500}),
            (tmp_path / "a.svm", {"partition_nnz": 500, "shuffle": None}),
            (from_pandas(frame, npartitions=4), table),
        ):
            reports = [
                ingest(source, out, overwrite=True, client=client, **options)
                for out, client in (("alone", None), ("together", "current"))
            ]
            assert reports[0].partitions > 2
            assert reports[0].skipped == reports[1].skipped
            assert files_of(tmp_path / "alone") == files_of(tmp_path / "together")
            assert reports[0].columns == reports[1].columns
        Path("bad.tsv").write_text("y\tage\n" + "no\t1\nyes\t2\n" * 3000 + "no\told\n")
        with pytest.raises(InputError, match=r"bad\.tsv, line 6002.*on the Dask worker at inproc"):
            ingest("bad.tsv", "bad", client="current", label="y")
        with pytest.raises(InputError, match=r"memory://out is in the memory of this process"):
            ingest("a.svm", "memory://out", client="current")
    assert not list(tmp_path.glob("*runs-*"))
    assert not Path("bad").exists()


@pytest.mark.parametrize("name", ["a.svm.bz2", "a.svm.xz", "a.csv.gz"])
def test_progress_through_one_compressed_file_is_in_its_own_bytes(tmp_path, name, monkeypatch):
    monkeypatch.setattr(readers, "TASK_BYTES", 1 << 17)
    monkeypatch.setattr("dadagrad.data.reading.files._READ_BYTES", 1 << 13)
    # Ten tasks of noise: compressed bytes come in step with the rows.
    numbers = np.random.default_rng(0).integers(10**8, 10**9, (30_000, 4))
    row = "{0},{1},{2},{3}" if ".csv" in name else "0 1:{0} 2:{1} 3:{2} 4:{3}"
    content = "\n".join(row.format(*four) for four in numbers.tolist()).encode()
    (tmp_path / name).write_bytes(COMPRESS[name.rpartition(".")[2]](content))
    calls = []
    options = {"progress": lambda *state: calls.append(state)}
    ingest(tmp_path / name, str(tmp_path / "out"), workers=2, **options)
    size = (tmp_path / name).stat().st_size
    assert len(calls) >= 9
    for done, total, rows in calls:
        assert total == size
        # Decompression runs ahead of the last whole row by little (for bzip2, by a block).
        assert -0.05 * size < done - size * rows / len(numbers) < 0.65 * size
    assert calls[0][0] < calls[-1][0] == size
    dense, _ = dense_dataset(open_dataset(str(tmp_path / "out")))
    assert len(dense) == len(numbers)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_small_file_of_many_rows_is_parsed_as_they_are_taken(tmp_path, monkeypatch, workers):
    parsed, parsed_before = [], []

    def parse(chunk, **options):
        parsed.append(chunk)
        return svmlight.parse(chunk, **options)

    monkeypatch.setitem(readers.LINE_PARSERS, "svmlight", parse)
    monkeypatch.setattr(readers, "TASK_BYTES", 1 << 13)
    (tmp_path / "a.svm.gz").write_bytes(COMPRESS["gz"](b"1 1:1\n" * 60_000))
    assert (tmp_path / "a.svm.gz").stat().st_size < 1 << 11
    options = {"progress": lambda *state: parsed_before.append(len(parsed)), "workers": workers}
    assert ingest(tmp_path / "a.svm.gz", str(tmp_path / "out"), **options).rows == 60_000
    assert len(parsed_before) > 40
    assert max(ahead - taken for taken, ahead in enumerate(parsed_before)) <= 8


def test_a_pipe_can_be_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    content = 'a,"good, film"\nb,"two\nlines"\n'
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(content,))
    writer.start()
    report = ingest(
        tmp_path / "pipe", str(tmp_path / "out"), format="text", delimiter=",", header=False
    )
    writer.join()
    assert report.rows == 2
    with refused(r"give it with format=", tmp_path / "out2"):
        ingest(tmp_path / "pipe", str(tmp_path / "out2"))


# --- the place of the dataset


def test_a_dataset_is_replaced_only_if_asked_and_after_all_is_read(tmp_path):
    make_svmlight(tmp_path / "a.svm", 30)
    out = tmp_path / "out"
    ingest(tmp_path / "a.svm", str(out), partition_nnz=50)
    with refused(r"there is a dataset at .* overwrite=True", out):
        ingest(tmp_path / "a.svm", str(out))
    (tmp_path / "bad.svm").write_text("1 nothing\n")
    with refused(r"bad\.svm, line 1", out):
        ingest(tmp_path / "bad.svm", str(out), overwrite=True)
    ingest(tmp_path / "a.svm", str(out), overwrite=True)
    assert len(open_dataset(str(out)).partitions) == 1
    assert not (out / "part-00001").exists()
    (out / "thesis.tex").write_text("precious")
    with refused(r"do not belong to a dataset, like thesis\.tex", out):
        ingest(tmp_path / "a.svm", str(out), overwrite=True)


# --- options and errors


def test_wrong_options_are_explained(tmp_path):
    for options, message in (
        ({"format": "svm"}, "format 'svm' is not known; choose one of svmlight, vw"),
        ({"hash_bits": 8}, "hash_bits is 8, but the format is svmlight; it applies to vw, text"),
        ({"ngrams": 2, "format": "svmlight"}, "ngrams is 2, but the format is svmlight"),
        ({"cross": ["a:b", "b:c"]}, "cross is 'a:b,b:c', but the format is svmlight"),
        ({"ignore": "a,b"}, "ignore is 'a,b', but the format is svmlight"),
        ({"format": "text", "hash_bits": 31}, "hash_bits is 31; it must be 1 to 30"),
        ({"format": "vw", "hash_bits": 0}, "hash_bits is 0; it must be 1 to 31"),
        ({"partition_nnz": 0}, "partition_nnz must be a whole number of at least 1, not 0"),
        ({"cross": "a:"}, "cross is 'a:'; needed are two columns or more, such as a:b"),
        ({"shuffle": -1}, "shuffle must be a whole number of at least 0, not -1"),
        ({"workers": "2"}, "workers must be a whole number of at least 1, not '2'"),
        ({"workers": 0}, "workers must be a whole number of at least 1, not 0"),
        ({"n_features": 2}, "n_features is 2, but the sources have features up to id 2"),
        ({"no_labels": True, "multilabel": True}, "no_labels and multilabel exclude each other"),
    ):
        with refused(message, tmp_path / "out"):
            write_and_ingest(tmp_path, {"a.svm": "1 1:1 3:2\n"}, **options)


def test_sources_without_rows(tmp_path):
    out = tmp_path / "out"
    for name, content, options, reason in (
        ("a.svm", "", {}, "; give sources"),
        ("b.vw", "1 0 | x\n", {"hash_bits": 5}, r" \(1 have weight 0\)"),
        ("c.svm", "what\n", {"on_error": "skip"}, r" \(1 were wrong and skipped\)"),
    ):
        with refused(rf"no rows in .*{name}{reason}", out):
            write_and_ingest(tmp_path, {name: content}, **options)
    with refused(r"there is no file .*d\.svm", out):
        ingest(tmp_path / "d.svm", str(out))
    (tmp_path / "folder" / "empty" / "too").mkdir(parents=True)
    with refused(r"the folder .*folder has no files", out):
        ingest(tmp_path / "folder", str(out))
    with refused("no source was given", out):
        ingest([], str(out))


def test_skipped_rows_are_counted_in_all_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "TASK_BYTES", 16)
    (tmp_path / "a.svm").write_text("1 1:1\nbad\n" * 20)
    report = ingest(tmp_path / "a.svm", str(tmp_path / "out"), on_error="skip")
    assert (report.rows, report.skipped) == (20, 20)


SVMLIGHT_LINES = (
    "1 1:2 3:4\n", "-1.5,2 qid:3 1:2 # note\n", "1:0.5 3:2\n", "qid:3 1:1\n", "+1\n", "1,2 3:1 #\n"
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        *(("a", content, "svmlight") for content in SVMLIGHT_LINES),
        ("a", "1 2.0 'tag|words good bad\n", "vw"),
        ("a", "| good bad\n", "vw"),
        ("a.txt", "pos\ta good film\n", "csv"),
        ("a.csv", "y,x\n1,2\n", "csv"),
        ("a.jsonl", "", "jsonl"),
        ("a", '{"a": 1}\n', "jsonl"),
        ("a.tsv", "1\t2\t3\n", "csv"),
        ("a.libsvm", "", "svmlight"),
    ],
)  # fmt: skip
def test_formats_are_guessed(tmp_path, name, content, format):
    (tmp_path / name).write_text(content)
    assert guess_format(str(tmp_path / name)) == format


def test_a_format_that_cannot_be_guessed(tmp_path):
    message = r"its first line is 'lorem ipsum'; .* format=svmlight"
    with refused(message, tmp_path / "out"):
        write_and_ingest(tmp_path, {"a": "lorem ipsum\n"})


# --- rows without labels

ROWS = {  # with labels, without, and with one that is missing
    "a.svm": (
        "1 1:0.5 3:2\n0 2:1\n1 1:4\n",
        "1:0.5 3:2 # comment\n2:1\n7,8 1:4\n",
        "1 2:1\n2:1\n",
    ),
    "a.vw": (
        "1 2 't| 1:0.5 3:2\n0 | 2:1\n1 | 1:4\n",
        "'t| 1:0.5 3:2\n| 2:1\n-1 | 1:4\n",
        "1 | 2:1\n| 2:1\n",
    ),
    "a.csv": (
        "y,a,b,c\n1,0.5,0,2\n0,,1,0\n1,4,,\n",
        "a,b,c\n0.5,0,2\n,1,0\n4,,\n",
        "y,a\n1,2\n,3\n",
    ),
    "a.tsv": (
        "good\tso very good\nbad\tso very bad\ngood\tvery\n",
        "so very good\nso very bad\nvery\n",
        "good\tso\n\tvery\n",
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_to_predict_need_no_labels(tmp_path, name, monkeypatch):
    options = {"format": "text"} if name == "a.tsv" else {}
    with_labels, without, one_missing = ROWS[name]
    labelled = write_and_ingest(tmp_path, {name: with_labels}, **options)
    expected = dense_dataset(labelled)[0]
    monkeypatch.setattr(external_shuffle, "RUN_BYTES", 1)
    monkeypatch.setattr(readers, "TASK_BYTES", 8)
    unlabelled = options | {"no_labels": True, "partition_nnz": 2}
    rows = write_and_ingest(tmp_path, {name: without}, **unlabelled)
    assert rows.schema.label_columns == ()
    check_features(labelled.schema, rows.schema)
    assert rows.schema.n_features == labelled.schema.n_features
    dense, labels = dense_dataset(rows)
    assert labels.shape == (3, 0)
    assert len(rows.partitions) > 1
    # Weights are not labels: row 0 of vw has one if it has a label.
    np.testing.assert_array_equal(dense, expected)
    assert read_anndata(tmp_path / "out" / "part-00000").n_vars == rows.read(0).n_local
    with refused(rf"{name}, line \d.*label.*no_labels=True", tmp_path / "out"):
        write_and_ingest(tmp_path, {name: one_missing}, **options)


def test_datasets_without_labels(tmp_path):
    first = write_and_ingest(tmp_path, {"a.svm": "1:1\n2:1\n"}, no_labels=True)
    with refused(r"has no labels.*no_labels=True", tmp_path / "b"):
        ingest(tmp_path / "out", str(tmp_path / "b"), format="parquet")
    again = ingested(tmp_path / "out", tmp_path / "b", format="parquet", no_labels=True)
    np.testing.assert_array_equal(dense_dataset(again)[0], dense_dataset(first)[0])
    write_and_ingest(tmp_path, {"a.svm": "1 1:1\n0 2:1\n"})
    unlabelled = ingested(tmp_path / "out", tmp_path / "c", format="parquet", no_labels=True)
    assert unlabelled.schema.label_columns == ()


CATS = "label,name,x,city\n" + "".join(f"{'cd'[n % 2]}at,u{n},{n},t{n % 3}\n" for n in range(40))


def test_a_dataset_that_is_cut_again_keeps_features_labels_tags_and_names(tmp_path):
    (tmp_path / "cats.csv").write_text(CATS)
    first, again = str(tmp_path / "first"), str(tmp_path / "again")
    ingest(tmp_path / "cats.csv", first, id="name")
    ingest(first, again, partition_nnz=50, shuffle=None, like=first)
    before, after = open_dataset(first), open_dataset(again)
    assert len(after.partitions) > len(before.partitions) == 1
    for made, expected in zip(dense_dataset(after), dense_dataset(before), strict=True):
        np.testing.assert_array_equal(made, expected)
    assert after.schema == before.schema
    tags = [after.tags(number) for number in range(len(after.partitions))]
    assert np.concatenate(tags).tolist() == before.tags(0).tolist()
    ids = before.read(0).vocabulary
    assert after.names(ids) == before.names(ids)


def test_a_dataset_made_of_several_keeps_their_lines(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(CATS.replace(",u", f",{name}.csv "))
    ingest([tmp_path / "b.csv", tmp_path / "a.csv"], tmp_path / "a.zarr", id="name")
    shorter = (tmp_path / "b.csv").read_text().split("\n")[:31]
    (tmp_path / "b.csv").write_text("\n".join(shorter))
    ingest(tmp_path / "b.csv", tmp_path / "b.zarr", like=tmp_path / "a.zarr")
    ingest(tmp_path / "[ab].zarr", tmp_path / "both", partition_nnz=50)
    data = open_dataset(str(tmp_path / "both"))
    assert data.n_rows == 110
    for number in range(len(data.partitions)):
        files, lines = data.lines(number)
        places = [f"{file[-5:]} {line - 2}" for file, line in zip(files, lines, strict=True)]
        assert places == data.tags(number).tolist()


def test_datasets_are_joined_by_the_names_of_their_labels_or_refused(tmp_path):
    (tmp_path / "cats.csv").write_text(CATS)
    (tmp_path / "cows.csv").write_text(CATS.replace("dat", "cow"))
    (tmp_path / "numbers.csv").write_text(CATS.replace("cat", "0").replace("dat", "1"))
    urls = [str(tmp_path / name) for name in ("cats", "cows", "numbers")]
    for url in urls:
        ingest(f"{url}.csv", url, like=None if url == urls[0] else urls[0])
    ingest(urls[:2], tmp_path / "both")
    (label,) = open_dataset(str(tmp_path / "both")).schema.label_columns
    assert (label.names, label.counts) == (("cat", "cow", "dat"), (40, 20, 20))
    with refused("are texts and numbers", tmp_path / "out"):
        ingest([urls[0], urls[2]], tmp_path / "out")
    ingest(f"{urls[1]}.csv", tmp_path / "other", ignore="city")
    with refused("in another feature space", tmp_path / "out"):
        ingest([urls[0], str(tmp_path / "other")], tmp_path / "out")
    with refused("hash_bits says how .* is a dataset already", tmp_path / "out"):
        ingest(urls[0], tmp_path / "out", hash_bits=8)
    with refused("cats is a dataset, .* the format is csv; leave format= out", tmp_path / "out"):
        ingest(urls[0], tmp_path / "out", format="csv")
    (tmp_path / "a.jsonl").write_text('{"label": 1, "x": 2}\n')
    with refused("cats.csv is csv and .*a.jsonl is jsonl", tmp_path / "out"):
        ingest([f"{urls[0]}.csv", str(tmp_path / "a.jsonl")], tmp_path / "out")
    with refused("cats.csv is csv and .*cows is a dataset", tmp_path / "out"):
        ingest([f"{urls[0]}.csv", urls[1]], tmp_path / "out")
    with refused("n_features is .*; it must be .* or less", tmp_path / "out"):
        ingest(f"{urls[0]}.csv", tmp_path / "out", n_features=2**63)


def write_ids(path, *rows):
    """A Parquet file of ids and values; labels are 0 and 1 in turn."""
    columns = {"indices": rows, "values": [[2.0] * len(row) for row in rows]}
    labels = [float(number % 2) for number in range(len(rows))]
    pq.write_table(pa.table(columns | {"label": labels}), path)


def test_files_of_ids_are_as_wide_as_the_widest_and_as_those_they_are_like(tmp_path):
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    write_ids(first, [0, 2], [1])
    write_ids(second, [0, 7], [3])
    ingest([first, second], tmp_path / "both", norm="l2")
    both = open_dataset(str(tmp_path / "both"))
    assert (both.n_rows, both.schema.n_features) == (4, 8)
    ingest(first, tmp_path / "like", like=both)
    like = open_dataset(str(tmp_path / "like"))
    assert like.schema.n_features == 8
    assert like.schema.feature_space == both.schema.feature_space
    np.testing.assert_allclose(np.linalg.norm(dense_dataset(like)[0], axis=1), 1.0)
    with refused("norm says how", tmp_path / "out"):
        ingest(tmp_path / "like", tmp_path / "out", norm="l2")
