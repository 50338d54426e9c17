"""Several datasets as one, and rows that are held out."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.training_cases import make_data
from helpers.zarr_cases import write_zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad import InputError, dataset_from_arrays, evaluate, open_dataset, train
from dadagrad.data.feature_space import FeatureSpace
from dadagrad.data.ingest.ingest import read_dataset
from dadagrad.data.views import hold_out, join, with_label_columns


def contents(data):
    """Label, ids and values of each row, in order."""
    rows = []
    for number, partition in enumerate(data.partitions):
        part = data.read(number)
        assert (part.n_rows, partition.n_rows) == (partition.n_rows, part.n_rows)
        for start, stop, labels in zip(
            part.indptr[:-1], part.indptr[1:], part.labels.tolist(), strict=True
        ):
            ids = part.vocabulary[part.indices[start:stop]]
            rows.append((*labels, *ids.tolist(), *part.values[start:stop].tolist()))
    return rows


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(lambda s: sum(s) > 3),
    fraction=st.floats(0.15, 0.85),
    seed=st.integers(0, 100),
)
def test_each_row_is_either_held_out_or_learned_from(sizes, fraction, seed):
    data = make_data([*sizes, 5])
    learned, held = hold_out(data, fraction, seed)
    assert held.n_rows == round(fraction * data.n_rows)
    assert sorted(contents(learned) + contents(held)) == sorted(contents(data))
    assert held.digest == hold_out(data, fraction, seed)[1].digest


@pytest.mark.parametrize("sizes", [(9, 12, 6, 30), (60,), (3, 120)])
def test_queries_of_three_rows_are_not_torn_apart(sizes):
    data = make_data(sizes, labels="relevance")
    learned, held = hold_out(data, 0.41, 0)
    assert 0 <= held.n_rows - round(0.41 * data.n_rows) < 3
    queries = [
        {number for k in range(len(part.partitions)) for number in part.read(k).queries.tolist()}
        for part in (learned, held)
    ]
    assert not queries[0] & queries[1]
    assert learned.n_rows + held.n_rows == data.n_rows
    with pytest.raises(InputError, match="leaves none to learn from or none to measure on"):
        hold_out(make_data((3,), labels="relevance"), 0.4, 0)


def test_datasets_follow_each_other_and_their_text_labels_agree(tmp_path):
    X = 3 * np.eye(4)
    first = dataset_from_arrays(X, np.array(["cat", "dog", "cat", "dog"], object))
    second = dataset_from_arrays(2 * X, np.array(["ant", "dog", "ant", "dog"], object))
    both = join([first, second])
    (column,) = both.schema.label_columns
    assert (column.names, column.counts) == (("ant", "cat", "dog"), (2, 2, 4))
    labels = [column.names[int(row[0])] for row in contents(both)]
    assert labels == ["cat", "dog", "cat", "dog", "ant", "dog", "ant", "dog"]
    stored = [write_zarr(make_data(seed=seed), tmp_path / str(seed)) for seed in (1, 2)]
    expected = contents(make_data(seed=1)) + contents(make_data(seed=2))
    assert contents(join([open_dataset(url) for url in stored])) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_features": 61}, "other has 61 features and memory 60; give the same columns"),
        (
            {"feature_space": FeatureSpace({"format": "text"})},
            "other is in another feature space than memory",
        ),
        ({"feature_space": FeatureSpace({"format": "text"})}, "give data of one format"),
        (
            {"feature_space": FeatureSpace({"columns": [{"name": "age", "scale": 2.0}]})},
            r"it has the column 'age' \(scale 2\), and memory the column 'age' \(scale 1\)",
        ),
        ({"queried": True}, "other does not go with memory: both need the same columns of labels"),
        ({"label_columns": ()}, "both need the same columns of labels"),
    ],
)
def test_datasets_of_another_kind_do_not_go_together(change, message):
    data, other = make_data(), make_data()
    other.schema = replace(other.schema, **change)
    other.url = "other"
    if "columns" in other.schema.feature_space.plain:
        space = FeatureSpace({"columns": [{"name": "age", "scale": 1.0}]})
        data.schema = replace(data.schema, feature_space=space)
    with pytest.raises(InputError, match=message):
        join([data, other])


def write_sets(path, labels, n_rows=300):
    """Rows of three of eight features; a label is a feature that it lists."""
    random, lines = np.random.default_rng(0), []
    for _ in range(n_rows):
        ids = np.sort(random.choice(np.arange(1, 9), 3, replace=False)).tolist()
        listed = ",".join(str(label) for label in labels if label in ids)
        lines.append(f"{listed} {' '.join(f'{each}:1' for each in ids)}\n")
    path.write_text("".join(lines))


def test_sets_of_labels_are_matched_by_the_labels(tmp_path):
    for name, labels in {"first": (1, 2, 3), "later": (2, 3, 4), "few": (3,)}.items():
        write_sets(tmp_path / f"{name}.svm", labels)
    sources = {
        name: read_dataset(tmp_path / f"{name}.svm", multilabel=True)
        for name in ("first", "later", "few")
    }
    known = {"loss": "logistic", "step_size": 1.0, "passes": 4}
    model = train(sources["first"], **known).model
    with pytest.raises(InputError, match="has the label '4', which the model was not trained on"):
        evaluate(model, sources["later"])
    with pytest.raises(InputError, match="has the label '4'"):
        with_label_columns(sources["later"], model.label_columns, 8)
    both = train([sources["first"], sources["later"]], **known).model
    assert [column.name for column in both.label_columns] == ["1", "2", "3", "4"]
    alone = train(sources["few"], **known).model
    with pytest.raises(InputError, match=r"has the label '1', which .* it knows '?3'?"):
        evaluate(alone, sources["first"])
    assert evaluate(alone, str(tmp_path / "few.svm"))["error"] == 0.0
    few = with_label_columns(sources["few"], both.label_columns, 8)
    assert few.read(0).labels.sum(axis=0).tolist()[:2] == [0.0, 0.0]
    assert few.read(0).labels[:, 2].tolist() == sources["few"].read(0).labels[:, 0].tolist()


def test_a_model_of_sets_reads_rows_without_a_label(tmp_path):
    write_sets(tmp_path / "a.svm", (1, 2, 3))
    rows = [line for line in (tmp_path / "a.svm").read_text().splitlines() if line[0] != " "]
    (tmp_path / "a.svm").write_text("\n".join(rows) + "\n")
    model = train(str(tmp_path / "a.svm"), loss="logistic", step_size=1.0, passes=9).model
    (tmp_path / "b.svm").write_text(" 5:1 6:1\n2 2:1 7:1\n")
    assert evaluate(model, str(tmp_path / "b.svm"))["error"] == 0.0
