"""The features that contribute most to the scores of rows."""

import csv
import re

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from helpers.training_cases import make_data

from dadagrad import InputError, predict, train


def reasons_of(model, data, tmp_path, count, column="reasons"):
    """Of each row its score, and the names and contributions of features."""
    predict(model, data, str(tmp_path / "p.csv"), overwrite=True, reasons=count)
    with open(tmp_path / "p.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    parts = [re.findall(r"(.+?) ([-+][^ ;]+)(?:; |$)", row[column]) for row in rows]
    return rows, [[(name, float(value)) for name, value in each] for each in parts]


@pytest.mark.parametrize("labels", ["binary", "multiclass", "real", "multilabel"])
def test_all_contributions_sum_to_the_score(tmp_path, labels):
    loss = "squared" if labels == "real" else "hinge"
    data = make_data((40, 30), labels=labels, entries=5)
    model = train(data, loss=loss, step_size=0.3).model
    suffix = f"_{model.output_names[1]}" if labels == "multilabel" else ""
    rows, reasons = reasons_of(model, data, tmp_path, 100, f"reasons{suffix}")
    assert len(rows) == 70
    for row, parts in zip(rows, reasons, strict=True):
        score, intercept = row.get(f"score{suffix}"), model.intercept[1 if suffix else 0]
        if labels == "multiclass":
            predicted = model.output_names.index(str(int(float(row["prediction"]))))
            score = row[f"score_{model.output_names[predicted]}"]
            intercept = model.intercept[predicted]
        total = intercept + sum(value for _, value in parts)
        assert total == pytest.approx(float(score), rel=0.02, abs=0.02)  # of three digits each
        sizes = [abs(value) for _, value in parts]
        assert sizes == sorted(sizes, reverse=True)


def test_reasons_name_columns_and_values_of_raw_rows(tmp_path):
    frame = pd.DataFrame({"job": ["nurse", "cook; +1"] * 50, "age": [30.0, 30.0] * 50})
    model = train(frame.assign(rich=frame["job"] == "nurse"), label="rich", step_size=0.5).model
    new = pd.DataFrame({"job": ["nurse", "pilot"], "age": [30.0, 0.0]})
    rows, reasons = reasons_of(model, new, tmp_path, 1)
    assert rows[0]["prediction"] == "true"
    ((name, value),) = reasons[0]
    assert (name, value > 0) == ("job=nurse", True)
    assert reasons[1] == []  # what the model has not seen contributes nothing


def test_without_a_file_predictions_are_a_table(tmp_path):
    frame = pd.DataFrame({"job": ["nurse", "cook"] * 50, "age": range(100)})
    model = train(frame.assign(rich=frame["job"] == "nurse"), label="rich", step_size=0.5).model
    file = str(tmp_path / "p.parquet")
    predict(model, frame, file, reasons=2)
    table = predict(model, frame, reasons=2)
    assert table.equals(pq.read_table(file))
    assert table["reasons"][0].as_py().startswith("job=nurse +")
    data = make_data((30, 0, 20))
    stored = predict(train(data, step_size=0.3).model, data)
    assert stored["row"].to_pylist() == list(range(50))


def test_a_model_without_names_gives_no_reasons(tmp_path):
    frame = pd.DataFrame({"job": ["nurse", "cook"] * 20, "rich": [1, 0] * 20})
    model = train(frame, label="rich", keep_names=False).model
    with pytest.raises(InputError, match=r"has no names of features.*keep_names="):
        predict(model, frame, str(tmp_path / "p.csv"), reasons=2)


def test_reasons_of_two_classes_are_for_the_second_whatever_the_loss():
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = np.where(X[:, 0] > X[:, 1], "b", "a")
    for loss in ("logistic", "softmax"):
        model = train((X, y), loss=loss, step_size=0.3).model
        table = predict(model, X, reasons=2).to_pandas()
        parts = table["reasons"].str.extractall(r"([+-][\d.e-]+)")[0].astype(float)
        for_second = parts.groupby(level=0).sum() > 0
        assert (for_second == (table["prediction"] == "b")).mean() > 0.95
