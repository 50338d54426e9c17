"""Metrics of `evaluate`, in several partitions, against scikit-learn on all rows at once."""

import numpy as np
import pytest
import sklearn.metrics as sk

from dadagrad.data.dataset import MemoryDataset, Schema, describe_labels
from dadagrad.data.rows import Rows
from dadagrad.model.evaluate import evaluate
from dadagrad.model.model import Model


def make(task, loss, n_classes, seed):
    """A random model, and data of one feature for each output, in two partitions."""
    random = np.random.default_rng(seed)
    n_outputs = n_classes if task == "multiclass" else 1
    labels = random.integers(0, n_classes, (90, 1)).astype(float)
    if task == "regression":
        labels = 1e6 + random.normal(size=(90, 1))
    parts = []
    for rows in (slice(0, 50), slice(50, 90)):
        n_rows = rows.stop - rows.start
        values = random.normal(size=2 * n_rows).round(1).astype(np.float32)
        ids = np.tile([0, 1], n_rows).astype(np.int64)
        weights = random.integers(1, 4, n_rows).astype(np.float32)
        indptr = 2 * np.arange(n_rows + 1)
        parts.append(Rows.from_csr(indptr, ids, values, labels[rows], weights))
    columns = describe_labels(labels, ["y"])
    model = Model(
        2, np.arange(2), random.normal(size=(2, n_outputs)).astype(np.float32),
        np.full(n_outputs, 1e6 if task == "regression" else 0.1), loss, task, columns,
    )  # fmt: skip
    return model, MemoryDataset(parts, Schema(2, columns, True))


def all_rows(model, data):
    rows = [data.read(number) for number in range(2)]
    scores = np.concatenate([model.scores(part) for part in rows])
    labels = np.concatenate([part.labels[:, 0] for part in rows])
    weights = np.concatenate([part.weights for part in rows if part.weights is not None])
    return scores, labels, model.predict_labels(scores), weights


@pytest.mark.parametrize(("task", "loss", "n"), [
    ("binary", "logistic", 2), ("multiclass", "softmax", 3), ("multiclass", "logistic", 2),
])  # fmt: skip
def test_metrics_of_classes(task, loss, n):
    model, data = make(task, loss, n, seed=n)
    result = evaluate(model, data)
    scores, labels, predicted, weight = all_rows(model, data)
    options = {"sample_weight": weight}
    probabilities = model.probabilities(scores)
    expected = sk.precision_recall_fscore_support(labels, predicted, zero_division=0, **options)
    for row, name in enumerate(("precision", "recall", "f1", "weight")):
        mine = [facts[name] for facts in result["classes"].values()]
        np.testing.assert_allclose(mine, expected[row])
    average = "binary" if n == 2 else "macro"
    assert result["f1"] == pytest.approx(sk.f1_score(labels, predicted, average=average, **options))
    assert result["log_loss"] == pytest.approx(sk.log_loss(labels, probabilities, **options))
    np.testing.assert_allclose(
        result["confusion"], sk.confusion_matrix(labels, predicted, **options)
    )
    ranked = scores[:, -1] if scores.shape[1] == 1 else scores[:, 1] - scores[:, 0]
    if n == 2:  # of two outputs the difference ranks the rows
        assert result["auc"] == pytest.approx(sk.roc_auc_score(labels, ranked, **options))
        precision = sk.average_precision_score(labels, ranked, **options)
        assert result["pr_auc"] == pytest.approx(precision)
    confidence, right = probabilities.max(axis=1), predicted == labels
    bins = np.minimum((confidence * 10).astype(int), 9)
    gaps = [
        abs(weight[bins == k] @ (confidence - right)[bins == k]) / weight.sum() for k in range(10)
    ]
    assert result["calibration_error"] == pytest.approx(sum(gaps))


def test_metrics_of_numbers_far_from_zero():
    model, data = make("regression", "squared", 2, seed=1)
    result = evaluate(model, data)
    _, labels, predicted, weight = all_rows(model, data)
    arguments = {"y_true": labels, "y_pred": predicted, "sample_weight": weight}
    assert result["rmse"] == pytest.approx(sk.root_mean_squared_error(**arguments))
    assert result["mae"] == pytest.approx(sk.mean_absolute_error(**arguments))
    assert result["r2"] == pytest.approx(sk.r2_score(**arguments))
