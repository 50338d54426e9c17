"""Progressive validation: exact counts of what was predicted before it was learned."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers.training_cases import make_data, method_of
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.config import TrainConfig
from dadagrad.data.rows import Rows
from dadagrad.errors import InputError, TrainingError
from dadagrad.problem import Problem
from dadagrad.training.worker.compute import as_batch
from dadagrad.training.worker.progressive import ProgressiveMetrics
from dadagrad.training.worker.progressive import count as count_batch


def method_for(labels: str, **settings) -> Problem:
    loss = "squared" if labels == "real" else "logistic"
    data = make_data((40,), labels=labels)
    return method_of(data, TrainConfig(loss=loss, step_size=0.3, batch_size=1, **settings))


def rows_of(labels: np.ndarray) -> Rows:
    """One entry a row."""
    n = len(labels)
    return Rows.from_csr(np.arange(n + 1), np.arange(n), None, np.asarray(labels, float))


def count(
    problem: Problem,
    margins: np.ndarray,
    rows: Rows,
    importance: np.ndarray | None,
    where: str,
    first_row: int,
) -> ProgressiveMetrics:
    """The metrics of `rows` with (n_rows, n_outputs) `margins`."""
    return count_batch(problem, as_batch(rows, importance), margins.T, where, first_row)


def test_a_tally_is_what_its_definition_says():
    problem = method_for("binary")
    margins = np.array([[0.5], [-2.0], [0.0], [1.0]])
    labels = np.array([[1.0], [1.0], [-1.0], [-1.0]])
    importance = np.array([1.0, 2.0, 0.5, 0.0])
    metrics = count(problem, margins, rows_of(labels), importance, "here", 0)
    assert (metrics.rows, metrics.entries, metrics.weight) == (3, 3, 3.5)
    losses = np.log1p(np.exp(-labels * margins))[:, 0]
    np.testing.assert_allclose(metrics.loss, [importance @ losses])
    # A margin of 0 predicts -1; the last row would be a mistake, but weighs nothing.
    np.testing.assert_array_equal(metrics.mistakes, [2.0])
    np.testing.assert_allclose(metrics.error(problem), [2.0 / 3.5])
    np.testing.assert_allclose(metrics.mean_loss(problem), [importance @ losses / 3.5])


def test_a_multiclass_mistake_is_another_class_with_the_largest_margin():
    problem = method_for("multiclass")
    np.testing.assert_array_equal(problem.classes, [2.0, 3.0, 4.0])
    margins = np.array([[-1.0, -3.0, -2.0], [0.0, 5.0, 6.0]])
    metrics = count(problem, margins, rows_of([[2.0], [3.0]]), None, "here", 0)
    np.testing.assert_array_equal(metrics.mistakes, [1.0])


def test_multilabel_mistakes_are_shares_of_a_row():
    problem = method_for("multilabel")
    margins = np.array([[1.0, -1.0, 1.0]])
    metrics = count(problem, margins, rows_of([[1.0, 1.0, 0.0]]), None, "here", 0)
    np.testing.assert_allclose(metrics.mistakes, [2 / 3])
    # And so is the loss: the mean over the labels.
    losses = np.log1p(np.exp([-1.0, 1.0, 1.0]))
    np.testing.assert_allclose(metrics.loss, [losses.mean()])


def test_a_regression_has_no_error():
    problem = method_for("real")
    metrics = count(problem, np.array([[1.0]]), rows_of([[3.0]]), None, "here", 0)
    assert metrics.error(problem) is None
    np.testing.assert_allclose(metrics.loss, [2.0])


def test_settings_are_counted_apart():
    problem = method_for("binary").with_step_sizes((0.1, 1.0))
    metrics = count(problem, np.array([[1.0, -1.0]]), rows_of([[1.0]]), None, "here", 0)
    np.testing.assert_array_equal(metrics.mistakes, [0.0, 1.0])
    assert metrics.mean_loss(problem)[0] < metrics.mean_loss(problem)[1]


@given(st.integers(0, 2**32 - 1), st.integers(0, 40))
def test_tallies_of_disjoint_rows_add_up(seed, cut):
    rng = np.random.default_rng(seed)
    data = make_data((40,), labels="multiclass")
    problem = method_of(data, TrainConfig(step_size=0.3, batch_size=1))
    margins = rng.normal(size=(40, 3))
    importance = rng.integers(0, 3, 40).astype(float)
    rows = data.read(0)
    parts = [
        count(problem, margins[part], rows.slice(part.start, part.stop), importance[part], "", 0)
        for part in (slice(0, cut), slice(cut, 40))
    ]
    whole = count(problem, margins, rows, importance, "", 0)
    total = ProgressiveMetrics.zero(problem) + parts[0] + parts[1]
    assert (total.rows, total.entries, total.weight) == (
        whole.rows,
        whole.entries,
        whole.weight,
    )
    np.testing.assert_allclose(total.loss, whole.loss, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(total.mistakes, whole.mistakes)
    rest = total - parts[0]
    assert rest.rows == parts[1].rows
    np.testing.assert_allclose(rest.loss, parts[1].loss, rtol=1e-12, atol=1e-9)


def test_counting_is_exact_past_what_32_bits_hold():
    problem = method_for("binary")
    many = ProgressiveMetrics(2**24, 2**40, float(2**24), np.zeros(1), np.array([float(2**24)]))
    one = ProgressiveMetrics(1, 1, 1.0, np.zeros(1), np.ones(1))
    total = many + one
    assert total.rows == total.mistakes[0] == total.weight == 2**24 + 1
    assert total.error(problem)[0] == 1.0


@given(st.floats(0, 1e300), st.lists(st.floats(0, 1e300), min_size=1, max_size=4))
def test_json_keeps_every_bit(weight, loss):
    metrics = ProgressiveMetrics(3, 2**60, weight, np.array(loss), np.array([weight]))
    again = ProgressiveMetrics.from_json(json.loads(json.dumps(metrics.to_json())))
    assert (again.rows, again.entries, again.weight) == (3, 2**60, weight)
    assert again.loss.tobytes() == metrics.loss.tobytes()
    assert again.mistakes.tobytes() == metrics.mistakes.tobytes()


def test_before_the_first_row_there_is_no_mean():
    problem = method_for("binary")
    assert np.isnan(ProgressiveMetrics.zero(problem).mean_loss(problem)).all()
    assert np.isnan(ProgressiveMetrics.zero(problem).error(problem)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_margin_that_is_not_finite_is_named(bad):
    problem = method_for("binary")
    margins = np.array([[0.0], [0.0], [bad]])
    with pytest.raises(TrainingError, match=r"data x, partition 7: the score of row 102 .*0\.3"):
        count(problem, margins, rows_of([[1.0]] * 3), None, "data x, partition 7", 100)


def test_a_label_that_is_no_class_is_named():
    problem = method_for("multiclass")
    with pytest.raises(InputError, match=r"data x: row 11 has label 7 in column 'label0'.*2, 3, 4"):
        count(problem, np.zeros((2, 3)), rows_of([[2.0], [7.0]]), None, "data x", 10)
