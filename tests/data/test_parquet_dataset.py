"""Parquet as it comes: what is read equals what was written, and bad columns are named."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.array_files import parquet
from helpers.checkpoint_stores import memory_url
from helpers.processes import local_cluster
from hypothesis import given, settings
from hypothesis import strategies as st

import dadagrad
from dadagrad import open_dataset
from dadagrad.data.dataset import LabelColumn, checksum
from dadagrad.data.parquet.dataset import ParquetDataset
from dadagrad.data.rows import Rows
from dadagrad.errors import CorruptionError, InputError
from dadagrad.storage.store import Storage

INDICES = [[1, 5], [], [0, 5, 9], [2]]
VALUES = [[0.5, 1.5], [], [1.0, 2.0, 3.0], [-1.0]]
LABELS = [1.0, -1.0, 1.0, -1.0]


def columns(**changed):
    """The columns of a good table, some `changed` or left out (None)."""
    made = {
        "indices": pa.array(INDICES, pa.list_(pa.int32())),
        "values": pa.array(VALUES, pa.list_(pa.float32())),
        "label": pa.array(LABELS),
        "weight": pa.array([1.0, 2.0, 0.5, 0.0]),
    }
    made.update(changed)
    return {name: column for name, column in made.items() if column is not None}


def put(storage, key, made, n_features=None, **options):
    table = pa.table(made)
    if n_features is not None:
        table = table.replace_schema_metadata({"dadagrad.n_features": str(n_features)})
    storage.put(key, parquet(table, **options))


@pytest.fixture
def storage():
    return Storage(f"{memory_url()}/some data é")


def rows_of(indices, values, labels, weights=None):
    """The rows that such columns hold."""
    flat = np.array([value for row in values for value in row], np.float32)
    return Rows.from_csr(
        np.cumsum([0] + [len(row) for row in indices]),
        np.array([feature for row in indices for feature in row], np.int64),
        None if (flat == 1).all() else flat,
        np.array(labels, np.float64)[:, None],
        weights,
    )


@pytest.mark.parametrize("local", [True, False])
def test_reads_row_groups_of_a_folder(local, storage, tmp_path):
    storage = Storage(tmp_path / "some data é") if local else storage
    put(storage, "b.parquet", columns(), row_group_size=3)
    put(storage, "a/x.parquet", columns())
    put(storage, "_hidden/x.parquet", columns(label=None))
    storage.put("_SUCCESS", b"")
    dataset = open_dataset(storage.url)
    assert isinstance(dataset, ParquetDataset)
    assert [partition.n_rows for partition in dataset.partitions] == [4, 3, 1]
    assert [partition.nnz for partition in dataset.partitions] == [6, 5, 1]
    assert dataset.schema.n_features == 10
    assert dataset.schema.weighted
    (label,) = dataset.schema.label_columns
    assert (label.name, label.values, label.counts) == ("label", (-1.0, 1.0), (4, 4))
    for number, rows in enumerate([slice(None), slice(0, 3), slice(3, 4)]):
        read = dataset.read(number)
        weights = np.array([1.0, 2.0, 0.5, 0.0], np.float32)[rows]
        expected = rows_of(INDICES[rows], VALUES[rows], LABELS[rows], weights)
        assert checksum(read) == checksum(expected)
        assert read.n_local <= dataset.partitions[number].n_local
        for array in (read.vocabulary, read.indptr, read.indices, read.labels, read.values):
            assert array.flags.writeable
    assert len({partition.checksum for partition in dataset.partitions}) == 3
    assert len({partition.name for partition in dataset.partitions}) == 3


def test_a_dataset_of_one_file_is_pickled(storage):
    put(storage, "x.parquet", columns(label=pa.array(["b", "a", "b", "a"])))
    dataset = open_dataset(f"{storage.url}/x.parquet")
    again = pickle.loads(pickle.dumps(dataset))
    assert (again.digest, checksum(again.read(0))) == (dataset.digest, checksum(dataset.read(0)))


def test_the_digest_follows_the_content(storage):
    prints = set()
    for label in ([1.0, -1.0, 1.0, -1.0], [1.0, 1.0, 1.0, -1.0], [2.0, -1.0, 1.0, -1.0]):
        put(storage, "x.parquet", columns(label=pa.array(label)))
        prints.add(ParquetDataset(storage.url).digest)
    assert len(prints) == 3


def test_a_column_of_queries_is_read(storage):
    put(storage, "x.parquet", columns(query=pa.array([7, 7, 9, 9])))
    dataset = ParquetDataset(storage.url)
    assert dataset.schema.queried
    assert dataset.read(0).queries.tolist() == [7, 7, 9, 9]


def test_fixed_size_lists(storage):
    indices = pa.array([[1, 2], [0, 3]], pa.list_(pa.int32(), 2))
    put(storage, "x.parquet", {"indices": indices, "label": pa.array([True, False])})
    rows = ParquetDataset(storage.url).read(0)
    assert rows.indptr.tolist() == [0, 2, 4]
    assert rows.vocabulary[rows.indices].tolist() == [1, 2, 0, 3]
    assert rows.labels[:, 0].tolist() == [1.0, 0.0]
    assert (rows.values, rows.weights) == (None, None)


@pytest.mark.parametrize("dictionary", [False, True])
def test_text_labels_become_codes(storage, dictionary):
    for key, names in (("a", ["no", "yes", "no", "é"]), ("b", ["yes", "yes", "no", "no"])):
        label = pa.array(names)
        label = label.dictionary_encode() if dictionary else label
        put(storage, f"{key}.parquet", columns(label=label))
    dataset = ParquetDataset(storage.url)
    expected = LabelColumn("label", (0.0, 1.0, 2.0), (4, 3, 1), ("no", "yes", "é"))
    assert dataset.schema.label_columns == (expected,)
    assert dataset.read(0).labels[:, 0].tolist() == [0.0, 1.0, 0.0, 2.0]
    assert dataset.read(1).labels[:, 0].tolist() == [1.0, 1.0, 0.0, 0.0]


def test_any_number_of_label_columns(storage):
    several = {"label_b": pa.array([1, 2, 3, 4]), "label_a": pa.array([0, 1, 0, 1])}
    put(storage, "x.parquet", columns(label=None, **several))
    dataset = ParquetDataset(storage.url)
    assert dataset.schema.label_names == ["label_a", "label_b"]
    assert dataset.read(0).labels.tolist() == [[0, 1], [1, 2], [0, 3], [1, 4]]
    put(storage, "x.parquet", columns(label=None))
    dataset = ParquetDataset(storage.url)
    assert dataset.schema.label_columns == ()
    assert dataset.read(0).labels.shape == (4, 0)


def test_many_distinct_labels_are_a_regression(storage):
    n_rows = 1001
    indices = pa.array([[1]] * n_rows, pa.list_(pa.int32()))
    put(storage, "x.parquet", {"indices": indices, "label": pa.array(np.arange(n_rows) / 7)})
    assert ParquetDataset(storage.url).schema.label_columns[0].values is None
    text = pa.array([str(number) for number in range(n_rows)])
    put(storage, "x.parquet", {"indices": indices, "label": text})
    with pytest.raises(InputError, match="1001 distinct texts"):
        ParquetDataset(storage.url)


@pytest.mark.parametrize("statistics", [True, False])
def test_number_of_features(storage, statistics):
    put(storage, "x.parquet", columns(), write_statistics=statistics, row_group_size=2)
    assert ParquetDataset(storage.url).schema.n_features == 10
    put(storage, "x.parquet", columns(), n_features=77, write_statistics=statistics)
    assert ParquetDataset(storage.url).schema.n_features == 77


INTS, FLOATS = pa.list_(pa.int32()), pa.list_(pa.float32())


def test_bad_columns_and_entries_are_named(storage):
    for changed, message in (
        ({"indices": None}, "there is no column 'indices' among"),
        ({"indices": pa.array(LABELS)}, "column 'indices' is double; needed is list<int>"),
        ({"indices": pa.array(VALUES, FLOATS)}, "column 'indices' is list<.*float"),
        ({"values": pa.array(LABELS)}, "column 'values' is double; needed is list<float>"),
        ({"values": pa.array([["a"]] * 4)}, "column 'values' is list<.*string"),
        ({"weight": pa.array(["a"] * 4)}, "column 'weight' is string; needed is a number"),
        ({"label": pa.array([[1]] * 4)}, "column 'label' is list<.*; needed is a number, a boo"),
        ({"label": pa.array([1.0, None, 1.0, 1.0])}, "row 1 has null in 'label'"),
        ({"label": pa.array(["a", "b", None, "b"])}, "row 2 has null in 'label'"),
        ({"label": pa.array([1.0, 1.0, np.nan, 1.0])}, "row 2 has label nan"),
        ({"indices": pa.array([[1, 5], None, [0, 5, 9], [2]], INTS)}, "row 1 has null in 'indic"),
        ({"indices": pa.array([[1, 5], [], [0, None, 9], [2]], INTS)}, "row 2 has a null in 'ind"),
        ({"indices": pa.array([[1, 5], [], [0, 5, 9], [-2]], INTS)}, "row 3 has feature -2"),
        ({"indices": pa.array([[1, 5], [], [0, 5, 99], [2]], INTS)}, "row 2 has feature 99; ids"),
        ({"indices": pa.array([[5, 1], [], [0, 5, 9], [2]], INTS)}, "row 0 has feature 1 out of"),
        ({"indices": pa.array([[1, 5], [], [0, 5, 5], [2]], INTS)}, "row 2 has feature 5 twice"),
        ({"values": pa.array([[1, 2], [], [1, None, 3], [1]], FLOATS)}, "row 2 has a null in 'val"),
        ({"values": pa.array([[1, 2], [3], [1, 2], [1]], FLOATS)}, "row 1 has 0 indices and 1 val"),
        ({"values": pa.array([[1, 2], [], [1, np.nan, 3], [1]], FLOATS)}, "row 2, feature 5 is na"),
        ({"values": pa.array([[1, 2], [], [1, 2, 1e300], [1]])}, "row 2, feature 9 is inf"),
        ({"weight": pa.array([1.0, None, 1.0, 1.0])}, "row 1 has null in 'weight'"),
        ({"query": pa.array(["a"] * 4)}, "column 'query' is string; needed is a whole number"),
        ({"query": pa.array([None, 1, 1, 1])}, "row 0 has null in 'query'"),
        ({"weight": pa.array([1.0, -1.0, 1.0, 1.0])}, "row 1 has weight -1"),
        (
            {
                "indices": pa.array([[1], [], [2**63 + 5], [2]], pa.list_(pa.uint64())),
                "values": None,
            },
            "'indices' has 9223372036854775813, which int64",
        ),
    ):
        put(storage, "x.parquet", columns(**changed), n_features=10)
        with pytest.raises(InputError, match=rf"x\.parquet.*: {message}"):
            ParquetDataset(storage.url).read(0)


@pytest.mark.parametrize("other", [{"weight": None}, {"label": pa.array(["a", "b", "a", "b"])}])
def test_files_with_other_columns_are_named(storage, other):
    put(storage, "a.parquet", columns())
    put(storage, "b.parquet", columns(**other))
    with pytest.raises(InputError, match=r"b\.parquet has the columns .* all files need the same"):
        ParquetDataset(storage.url)


def test_files_that_are_not_parquet_are_named(storage):
    with pytest.raises(InputError, match="no Parquet file at"):
        ParquetDataset(storage.url)
    put(storage, "x.parquet", columns())
    whole = storage.get("x.parquet")
    for broken in (b"", b"PAR1", whole[:-20], b"text\n" * 100):
        storage.put("x.parquet", broken)
        with pytest.raises(InputError, match=r"x\.parquet is not a whole Parquet file"):
            ParquetDataset(storage.url)
    empty = {name: column[:0] for name, column in columns().items()}
    put(storage, "x.parquet", empty)
    with pytest.raises(InputError, match="has no rows"):
        ParquetDataset(storage.url)


def test_damaged_pages_are_found(storage):
    put(storage, "x.parquet", columns(), write_page_checksum=True)
    data = storage.get("x.parquet")
    at = data.index(np.array(LABELS).tobytes()[:8])
    storage.put("x.parquet", data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
    with pytest.raises(CorruptionError, match=r"x\.parquet, row group 0 cannot be decoded"):
        ParquetDataset(storage.url)


@given(st.data(), st.integers(1, 4))
@settings(max_examples=60)
def test_any_table_is_read_as_it_is(data, group):
    """All types of ids, values and lists, in row groups of any size."""
    ids = data.draw(st.sampled_from([pa.int8(), pa.uint16(), pa.int64(), pa.uint64()]))
    value = data.draw(st.sampled_from([pa.float32(), pa.float64(), pa.int32()]))
    make_list = data.draw(st.sampled_from([pa.list_, pa.large_list]))
    largest = 2**7 - 1 if ids == pa.int8() else 2**16 - 1 if ids == pa.uint16() else 2**40
    ids_of_row = st.sets(st.integers(0, largest), max_size=5).map(sorted)
    indices = data.draw(st.lists(ids_of_row, min_size=1, max_size=8))
    number = st.integers(-9, 9) if value == pa.int32() else st.floats(-1e9, 1e9, width=32)
    values = [data.draw(st.lists(number, min_size=len(r), max_size=len(r))) for r in indices]
    labels = data.draw(st.lists(st.floats(-1e9, 1e9), min_size=len(values), max_size=len(values)))
    storage = Storage(memory_url())
    made = {
        "indices": pa.array(indices, make_list(ids)),
        "values": pa.array(values, make_list(value)),
        "label": pa.array(labels),
    }
    put(storage, "x.parquet", made, row_group_size=group, n_features=2**41)
    dataset = ParquetDataset(storage.url)
    start = 0
    for each, partition in enumerate(dataset.partitions):
        rows, part = dataset.read(each), slice(start, start + partition.n_rows)
        assert rows.nnz == partition.nnz
        assert checksum(rows) == checksum(rows_of(indices[part], values[part], labels[part]))
        start += rows.n_rows
    assert start == len(labels)


# Files without checksums that change while a run uses them.

N_ROWS, GROUP = 400, 100
CONFIG = dadagrad.TrainConfig(step_size=0.1, batch_size=50, passes=3)


@pytest.fixture
def source(tmp_path):
    random = np.random.default_rng(0)
    ids = [np.sort(random.choice(50, 4, replace=False)) for _ in range(N_ROWS)]
    values = random.random((N_ROWS, 4)).astype(np.float32)
    columns = {
        "indices": pa.array(ids, pa.list_(pa.int32())),
        "values": pa.array(list(values), pa.list_(pa.float32())),
        "label": pa.array(np.arange(N_ROWS) % 2),
    }
    options = {"compression": "none", "use_dictionary": False, "row_group_size": GROUP}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", **options)
    return tmp_path / "a.parquet"


def flip_a_value(path):
    """Change one bit of a value in the last row group: it decodes, to another number."""
    last = pq.ParquetFile(path).read_row_group(3)["values"][7].as_py()
    data, value = path.read_bytes(), np.array(last, np.float32).tobytes()
    assert data.count(value) == 1
    at = data.index(value)
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def test_a_later_reading_is_compared_with_the_first(source):
    data = open_dataset(str(source))
    data.read(3)
    data.read(3)
    flip_a_value(source)
    with pytest.raises(CorruptionError, match=r"partition file:3 is not what it was"):
        data.read(3)


def test_a_resumed_run_compares_with_the_first_reading(source, tmp_path):
    config, run = {"checkpoints": str(tmp_path / "run"), "save_every": 10}, tmp_path / "run"
    dadagrad.train(str(source), CONFIG, **config)
    for manifest in sorted(run.glob("manifest-*"))[2:]:
        manifest.unlink()
    flip_a_value(source)
    with pytest.raises(CorruptionError, match=r"partition file:3 is not what it was"):
        dadagrad.resume(str(run))


def test_workers_compare_with_each_other(source):
    data = open_dataset(str(source))
    data.read(3)  # the data that this process has read
    flip_a_value(source)
    with (
        local_cluster(1, threads_per_worker=1, processes=False) as cluster,
        pytest.raises(CorruptionError, match=r"partition file:3 is not what it was"),
    ):
        dadagrad.train(data, CONFIG, client=cluster.scheduler_address)
