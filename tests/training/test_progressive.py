"""Progressive validation: exact counts of what was predicted before it was learned."""

import numpy as np
import pytest
from helpers.training_cases import make_data, method_of

from dadagrad import TrainConfig
from dadagrad.data.rows import Rows
from dadagrad.training.progressive import count as count_batch
from dadagrad.training.worker.compute import as_batch


def method_for(labels, **settings):
    loss = "squared" if labels == "real" else "logistic"
    data = make_data((40,), labels=labels)
    return method_of(data, TrainConfig(loss=loss, step_size=0.3, batch_size=1, **settings))


def rows_of(labels):
    """One entry a row."""
    n = len(labels)
    return Rows.from_csr(np.arange(n + 1), np.arange(n), None, np.asarray(labels, float))


def count(problem, margins, rows, importance, where, first_row):
    """The metrics of `rows` with (n_rows, n_outputs) `margins`."""
    scores = np.ascontiguousarray(margins.T)
    return count_batch(problem, as_batch(rows, importance), scores, where, first_row)


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
    np.testing.assert_allclose(metrics.mean_error(), [2.0 / 3.5])
    np.testing.assert_allclose(metrics.mean_loss(), [importance @ losses / 3.5])


@pytest.mark.parametrize(
    ("labels", "margins", "rows", "mistakes"),
    [
        ("multiclass", [[-1.0, -3.0, -2.0], [0.0, 5.0, 6.0]], [[2.0], [3.0]], 1.0),
        ("multilabel", [[1.0, -1.0, 1.0]], [[1.0, 1.0, 0.0]], 2 / 3),  # a share of the row
    ],
)
def test_mistakes_of_several_outputs(labels, margins, rows, mistakes):
    problem, margins = method_for(labels), np.array(margins)
    metrics = count(problem, margins, rows_of(rows), None, "here", 0)
    np.testing.assert_allclose(metrics.mistakes, [mistakes])
    signs = np.where(problem.targets(np.array(rows)) > 0, 1.0, -1.0)
    losses = np.log1p(np.exp(-signs * margins)).mean(axis=1)
    np.testing.assert_allclose(metrics.loss, [losses.sum()])
