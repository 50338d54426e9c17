"""Progressive validation: counts of what was predicted before it was learned; the best constant."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.training_cases import as_dataset, make_data, problem_of
from hypothesis import given
from hypothesis import strategies as st

from dadagrad import TrainConfig, evaluate, train
from dadagrad.data.rows import Rows
from dadagrad.errors import TrainingError
from dadagrad.training import constant
from dadagrad.training.progressive import count
from dadagrad.training.worker.compute import as_batch

LOGISTIC = TrainConfig(loss="logistic", step_size=0.3, batch_size=1)


def count_rows(problem, scores, labels, importance=None):
    """The metrics of rows of one entry with (n_rows, n_outputs) `scores`."""
    n_rows = len(labels)
    rows = Rows.from_csr(np.arange(n_rows + 1), np.arange(n_rows), None, labels)
    return count(problem, as_batch(rows, importance), np.ascontiguousarray(scores.T), "here", 0)


def test_metrics_are_sums_over_rows_by_their_importance():
    scores = np.array([[0.5], [-2.0], [0.0], [1.0]])
    labels = np.array([[1.0], [1.0], [-1.0], [-1.0]])
    importance = np.array([1.0, 2.0, 0.5, 0.0])
    metrics = count_rows(problem_of(make_data(), LOGISTIC), scores, labels, importance)
    assert (metrics.rows, metrics.entries, metrics.weight) == (3, 3, 3.5)
    losses = np.log1p(np.exp(-labels * scores))[:, 0]
    np.testing.assert_allclose(metrics.loss, [importance @ losses])
    # A score of 0 predicts -1; the last row would be a mistake, but weighs nothing.
    np.testing.assert_array_equal(metrics.mistakes, [2.0])
    np.testing.assert_allclose(metrics.mean_error(), [2.0 / 3.5])
    np.testing.assert_allclose(metrics.mean_loss(), [importance @ losses / 3.5])


@pytest.mark.parametrize(
    ("kind", "scores", "labels", "mistakes"),
    [
        ("multiclass", [[-1.0, -3.0, -2.0], [0.0, 5.0, 6.0]], [[2.0], [3.0]], 1.0),
        ("multilabel", [[1.0, -1.0, 1.0]], [[1.0, 1.0, 0.0]], 2 / 3),  # a share of the row
    ],
)
def test_mistakes_of_several_outputs(kind, scores, labels, mistakes):
    scores, labels = np.array(scores), np.array(labels)
    problem = problem_of(make_data(labels=kind), LOGISTIC)
    metrics = count_rows(problem, scores, labels)
    np.testing.assert_allclose(metrics.mistakes, [mistakes])
    losses = np.log1p(np.exp(-problem.targets(labels) * scores)).mean(axis=1)
    np.testing.assert_allclose(metrics.loss, [losses.sum()])


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"step_size": 0.3}, "choose a step size below 0.3, or normalise the rows"),
        ({"update": "pa"}, "normalise the rows"),  # it has no step size
    ],
)
def test_a_score_that_is_not_finite_comes_with_a_remedy(settings, remedy):
    problem = problem_of(make_data(), TrainConfig(**settings, batch_size=1))
    with pytest.raises(TrainingError, match=f"too large; {remedy}$"):
        count_rows(problem, np.array([[np.nan]]), np.array([[1.0]]))


# The best constant, which every report names beside what was reached.

LABELS = np.repeat([1.0, 2.0, 4.0], [50, 30, 20])
SHARES = np.array([0.5, 0.3, 0.2])
EXPECTED = {
    # Two classes of 70 and 30 rows.
    "hinge": (0.6, 0.3),
    "logistic": (-0.7 * np.log(0.7) - 0.3 * np.log(0.3), 0.3),
    "squared-hinge": (2 * 0.7 * 0.3, 0.3),
    # Three classes: each has an output of its own, or all together have one loss.
    "hinge, 3": (np.mean(2 * np.minimum(SHARES, 1 - SHARES)), 0.5),
    "softmax, 3": (-np.sum(SHARES * np.log(SHARES)), 0.5),
    "multiclass-hinge, 3": (1.0, 0.5),
    # Numbers.
    "squared": (0.5 * np.var(LABELS), None),
    "absolute": (np.mean(np.abs(LABELS - 1.5)), None),
    "quantile:q=0.9": (np.mean(np.maximum(0.9 * (LABELS - 4), 0.1 * (4 - LABELS))), None),
    "poisson": (np.mean(LABELS * np.log(LABELS)) - LABELS.mean() * np.log(LABELS.mean()), None),
}


@given(case=st.sampled_from(list(EXPECTED)), weighted=st.booleans())
def test_reports_name_the_best_constant(case, weighted):
    loss, _, classes = case.partition(",")
    data = make_data((100,))
    labels = LABELS if classes or EXPECTED[case][1] is None else np.repeat([1.0, 2.0], [70, 30])
    labels = np.random.default_rng(0).permutation(labels)[:, None]
    weights = np.full(100, 2.0, np.float32) if weighted else None
    rows = replace(data.read(0), labels=labels, weights=weights)
    report = train(as_dataset([rows]), loss=loss, step_size=0.1).report
    expected_loss, error = EXPECTED[case]
    assert report["constant_loss"] == pytest.approx(expected_loss, abs=1e-9)
    assert report["constant_error"] == pytest.approx(error) if error else error is None


def test_a_run_says_loudly_that_a_constant_is_better(caplog):
    learnable = make_data((300,))
    labels = np.random.default_rng(0).permutation(np.repeat([1.0, -1.0], [270, 30]))[:, None]
    random = as_dataset([replace(learnable.read(0), labels=labels)])
    for data in (learnable, random):
        train(data, step_size=10.0, loss="logistic")
    assert caplog.text.count("worse than a constant") == 1
    assert caplog.text.endswith("try smaller step sizes, try scale_columns=\n")


def test_a_first_pass_of_long_steps_is_not_the_last_word(caplog):
    settings = {"loss": "logistic", "average": False, "passes": 100}
    report = train(make_data((30,)), step_size=10.0, **settings).report
    assert report["progressive_loss"] > report["constant_loss"] > report["by_pass"][-1]["loss"]
    assert "worse than a constant" not in caplog.text


def test_averaged_weights_are_compared_with_a_constant(caplog):
    random = np.random.default_rng(0)
    age, income = random.normal(40, 12, 4000), random.lognormal(10.8, 0.5, 4000)
    y = (age - 40) / 12 + (income - 50_000) / 25_000 > 0
    data = np.stack([age, income], axis=1), y
    settings = {"loss": "logistic", "average": True, "step_size": 0.1}
    good, bad = (train(data, **settings, scale_columns=scaled) for scaled in (True, False))
    assert evaluate(bad.model, data)["loss"] > 1 > evaluate(good.model, data)["loss"]
    assert caplog.text.count("worse than a constant") == 1


def test_averages_of_several_classes_are_not_judged_by_the_weights_that_step(caplog):
    random = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 60)
    data = random.normal(size=(180, 8)) + 2.0 * np.eye(3, 8)[y], y
    result = train(data, loss="softmax", average=True, passes=2, step_size=5.0)
    losses = result.report["progressive_loss"], result.report["constant_loss"]
    assert losses[0] > 2 * losses[1] > 2 * evaluate(result.model, data)["loss"]
    assert "worse than a constant" not in caplog.text


@pytest.mark.parametrize("classes", [2, 3, 20])
def test_a_run_warns_of_rows_that_are_sorted_by_label(caplog, classes):
    rows = make_data((1200,)).read(0)
    labels = np.repeat(np.arange(float(classes)), 1200 // classes)[:, None]
    random = np.random.default_rng(0).permutation(labels)
    for order in (random, labels):
        assert "the labels come in order" not in caplog.text
        train(as_dataset([replace(rows, labels=order)]), step_size=0.1)
    assert "the labels come in order" in caplog.text


@pytest.mark.parametrize(("loss", "n_warnings"), [("hinge", 1), ("squared", 0), ("ranking", 0)])
def test_a_run_warns_of_grades_that_are_learned_as_classes(caplog, loss, n_warnings):
    rows = make_data((600,)).read(0)
    grades = np.random.default_rng(0).integers(0, 3, (600, 1)).astype(float)
    queried = replace(rows, labels=grades, queries=np.arange(600) // 6)
    train(as_dataset([queried]), loss=loss, step_size=0.1)
    assert caplog.text.count("the rows have queries") == n_warnings


@pytest.mark.parametrize("kind", ["numpy", "dask"])
def test_rows_of_a_matrix_that_are_sorted_by_label_are_shuffled(caplog, kind):
    y = np.repeat(np.arange(8), 200)
    X = np.eye(8)[y] + np.random.default_rng(0).normal(size=(1600, 8))
    if kind == "dask":
        X = pytest.importorskip("dask.array").from_array(X, chunks=(1600, 8))
    assert train((X, y), step_size=0.3).report["progressive_error"] > 0.2
    assert not caplog.text
    train((X, y), step_size=0.3, shuffle=False)
    assert "or leave out shuffle=False" in caplog.text


@pytest.mark.parametrize(
    ("n_rows", "n_partitions", "tolerance"), [(4_096, 4, 1e-6), (80, 4, 0.5), (1, 1, 1e-6)]
)
def test_the_constant_is_that_of_parts_from_all_over_the_data(
    n_rows, n_partitions, tolerance, monkeypatch
):
    monkeypatch.setattr(constant, "MIN_ROWS", n_rows)
    monkeypatch.setattr(constant, "MIN_PARTITIONS", n_partitions)
    rows = make_data((200,), labels="real", weighted=True).read(0)
    order = np.argsort(rows.labels[:, 0])
    weights = np.where(np.arange(200) < 20, 0.0, 1.0).astype(np.float32)
    rows = replace(rows, labels=rows.labels[order], weights=weights)
    parts = as_dataset([rows.slice(first, first + 20) for first in range(0, 200, 20)])
    report = train(parts, loss="squared", step_size=0.1).report
    assert report["constant_loss"] == pytest.approx(0.5 * np.var(rows.labels[20:]), rel=tolerance)


def test_a_label_of_very_many_numbers_may_be_a_quantity(caplog):
    x, prices = np.eye(300), np.arange(300.0)
    train((x, prices), step_size=0.1)
    assert "300 different numbers, and each is a class; if it is a quantity" in caplog.text
    caplog.clear()
    train((x, prices), step_size=0.1, loss="squared")
    train((x, prices % 50), step_size=0.1)
    train((x, prices.astype(str)), step_size=0.1)
    assert "quantity" not in caplog.text


def test_a_model_of_long_scores_that_errs_less_than_a_constant_is_not_worse(caplog):
    """Its loss is large, as averages may have long scores; probabilities are calibrated."""
    random = np.random.default_rng(0)
    x = random.normal(size=(4000, 10))
    y = x[:, 0] + 0.7 * random.normal(size=4000) > 0
    result = train((x, y), loss="logistic", step_size=60.0, average=True)
    assert result.report["progressive_loss"] > 2.0 * result.report["constant_loss"]
    assert result.report["progressive_error"] < 0.7 * result.report["constant_error"]
    assert "worse than a constant" not in caplog.text
