"""Progressive validation: exact counts of what was predicted before it was learned."""

import numpy as np
import pytest
from helpers.training_cases import make_data, problem_of

from dadagrad import TrainConfig
from dadagrad.data.rows import Rows
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
