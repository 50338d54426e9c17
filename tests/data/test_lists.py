"""Columns of lists: of numbers, such as embeddings, and of ids."""

import json

import dask
import dask.dataframe as dd
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.blocks import dense_dataset
from hypothesis import given
from hypothesis import strategies as st

from dadagrad import InputError, ingest, open_dataset, train
from dadagrad.data.ingest.ingest import read_dataset
from dadagrad.data.tables.encoder import TableEncoder

rng = np.random.default_rng(0)
VECTORS = rng.normal(100, 5, (60, 3)).astype(np.float32)
LABELS = (VECTORS @ [1, -1, 0.5] > 50).astype(int)


def table_of(lists, kind=None, labels=LABELS):
    return pa.table({"e": pa.array(list(lists), kind), "label": labels[: len(lists)]})


def dense(sources, **options):
    return dense_dataset(read_dataset(sources, shuffle=None, **options))[0]


def write(tmp_path, table, suffix):
    """The table in a file of this format, or the frame of pandas that reading it gives."""
    path = str(tmp_path / f"a.{suffix}")
    if suffix == "jsonl":
        lines = "".join(json.dumps(row) + "\n" for row in table.to_pylist())
        (tmp_path / "a.jsonl").write_text(lines)
        return path
    if suffix == "pandas":
        return table.to_pandas()
    pyarrow.parquet.write_table(table, path, row_group_size=25)
    return path


@pytest.mark.parametrize("suffix", ["jsonl", "pandas", "parquet"])
@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float64(), 3)], ids=str)
def test_items_of_lists_are_columns_of_numbers(tmp_path, suffix, kind):
    columns = {f"e{item}": VECTORS[:, item] for item in range(3)}
    flat = read_dataset(pa.table({**columns, "label": LABELS}), shuffle=None)
    data = read_dataset(write(tmp_path, table_of(VECTORS, kind), suffix), shuffle=None)
    assert list(data.names(np.arange(3)).values()) == ["e.0", "e.1", "e.2"]
    assert np.array_equal(dense_dataset(data)[0], dense_dataset(flat)[0])


numbers = st.none() | st.floats(-1e6, 1e6, width=32)


pairs = st.lists(numbers, min_size=2, max_size=2)


@given(st.lists(st.none() | st.just([]) | pairs, min_size=1, max_size=30))
def test_missing_and_empty_lists_and_missing_items_are_missing_numbers(lists):
    lists = [[1.5, 2.5], *lists]
    pairs = [each or [None, None] for each in lists]
    labels = np.zeros(len(lists))
    columns = {f"e{item}": pa.array([each[item] for each in pairs]) for item in range(2)}
    flat = pa.table({**columns, "label": labels})
    assert np.array_equal(dense(table_of(lists, labels=labels)), dense(flat))


@pytest.mark.parametrize("first", [[None, None, None], [None, None, 1.5]], ids=str)
def test_lines_of_json_may_begin_with_missing_items(tmp_path, first):
    table = table_of([first, *VECTORS[1:].tolist()], pa.list_(pa.float64()))
    assert np.array_equal(dense(write(tmp_path, table, "jsonl")), dense(table))


def test_all_lists_of_a_file_of_json_may_hold_missing_items(tmp_path):
    ingest(table_of(VECTORS), str(tmp_path / "d"))
    data = open_dataset(str(tmp_path / "d"))
    path = write(tmp_path, table_of([[None] * 3] * 2), "jsonl")
    missing = read_dataset(table_of([None] * 2), like=data)
    assert np.array_equal(
        dense_dataset(read_dataset(path, like=data))[0], dense_dataset(missing)[0]
    )


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_list_of_another_length_is_refused_by_its_row(tmp_path, suffix):
    lists = VECTORS[:20].tolist()
    lists[7].append(1.0)
    path = write(tmp_path, table_of(lists), suffix)
    with pytest.raises(InputError, match=r"(line|row) 8.*'e' holds a list of 4.*lists of 3"):
        read_dataset(path)
    assert read_dataset(path, on_error="skip").n_rows == 19


def test_a_wrong_item_is_refused_by_its_row_and_name():
    lists = VECTORS[:20].tolist()
    lists[7][1] = np.inf
    with pytest.raises(InputError, match=r"row 7.*'e\.1' holds .*inf"):
        read_dataset(table_of(lists))


def test_a_column_with_the_name_of_an_item_is_refused():
    table = table_of(VECTORS).append_column("e.1", pa.array(VECTORS[:, 0]))
    with pytest.raises(InputError, match=r"each item of its lists, names the column 'e\.1' twice"):
        read_dataset(table)
    assert read_dataset(table, ignore="e.1").schema.n_features == 3


@pytest.mark.parametrize(
    ("lists", "kind"), [([[1.5]], "lists of numbers"), ([[3], [3, 4]], "words")], ids=str
)
def test_a_cross_takes_no_lists(lists, kind):
    table = table_of(lists).append_column("job", pa.array(["cook"] * len(lists)))
    with pytest.raises(InputError, match=f"cross= names the column 'e' of {kind}; it takes cat"):
        read_dataset(table, cross="job:e")


def test_lists_that_dask_made_texts_are_refused():
    frame = pandas.DataFrame({"e": list(VECTORS), "label": LABELS})
    with pytest.raises(InputError, match=r"'e' holds texts of lists.*such as '\["):
        read_dataset(dd.from_pandas(frame, npartitions=2))
    with dask.config.set({"dataframe.convert-string": False}):
        data = read_dataset(dd.from_pandas(frame, npartitions=2))
    assert list(data.names(np.arange(3)).values()) == ["e.0", "e.1", "e.2"]


def test_lists_of_ids_are_words():
    lists = [[3, 99], [3], [], [7, 3, 3]]
    texts = [list(map(str, each)) for each in lists]
    features = dense(table_of(lists), hash_bits=8)
    assert np.array_equal(features, dense(table_of(texts), hash_bits=8))
    assert features.max() == 2


def test_categories_makes_words_of_lists_of_one_length():
    lists = [[3, 99], [3, 4]]
    texts = [list(map(str, each)) for each in lists]
    options = {"hash_bits": 8, "categories": "e"}
    assert np.array_equal(dense(table_of(lists), **options), dense(table_of(texts), hash_bits=8))


@pytest.mark.parametrize(("option", "role"), [("label", "label"), ("id", "names of rows")])
def test_a_list_is_neither_a_label_nor_a_name(option, role):
    table = table_of(VECTORS).append_column("age", pa.array(VECTORS[:, 0]))
    with pytest.raises(InputError, match=f"the {role}, column 'e', (is|are) .*list"):
        read_dataset(table, **{option: "e"})


@pytest.mark.parametrize("others", [["red"], 4, [["red"]]], ids=str)
def test_another_file_needs_lists_of_numbers(others):
    data = read_dataset(table_of(VECTORS))
    other = pa.table({"e": [others], "label": [1]})
    with pytest.raises(InputError, match=r"'e' is .* lists of 3 numbers"):
        read_dataset(other, like=data)


@pytest.mark.parametrize("item", [-1, 2, "0", 1.5], ids=str)
def test_a_damaged_item_of_a_transformation_is_refused(item):
    space = read_dataset(table_of(VECTORS)).schema.feature_space
    columns = [dict(space.plain["columns"][0], item=item)]
    with pytest.raises(InputError, match="does not describe a column"):
        TableEncoder.of_space(type(space)({**space.plain, "columns": columns}))


def test_a_model_predicts_one_row_as_it_does_many():
    dates = [f"2024-05-{1 + row % 28:02}" for row in range(len(VECTORS))]
    for extra in ({}, {"on": dates}):
        names = {"seen": [[row % 5, 7][: row % 3] for row in range(60)], **extra}
        table = pa.table({**names, "e": list(VECTORS), "label": LABELS})
        model = train(table).model
        rows = table.slice(0, 5).to_pylist()
        rows[1]["e"] = None
        together = model.decision_function(rows)
        alone = [model.decision_function(row) for row in rows]
        assert np.allclose(np.ravel(alone), np.ravel(together), rtol=1e-6)
        rows[0]["e"] = np.array(rows[0]["e"])
        assert np.allclose(model.decision_function(rows[0]), together[0])
        with pytest.raises(InputError, match=r"'e' holds a list of 2 numbers.*lists of 3"):
            model.decision_function(rows[0] | {"e": [1.0, 2.0]})
        with pytest.raises(
            InputError, match=r"no column '(seen|on)'.*its columns are 'e', 'label' "
        ):
            model.decision_function({"e": rows[0]["e"], "label": 1})


def test_vectors_of_spark_are_refused_with_other_ways_to_write_them():
    vector = {"type": 0, "size": 9, "indices": [3, 7], "values": [1.0, 2.0]}
    with pytest.raises(InputError, match=r"'features' holds vectors of Spark ML.*libsvm"):
        read_dataset(pa.Table.from_pylist([{"features": vector, "label": 1}]))
