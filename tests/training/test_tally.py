"""Progressive validation: exact counts of what was predicted before it was learned."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_cases import make_data, method_of

from dadagrad.config import TrainConfig
from dadagrad.data.rows import Rows
from dadagrad.errors import InputError, TrainingError
from dadagrad.method import Method
from dadagrad.training.tally import Tally
from dadagrad.training.tally import count as count_batch
from dadagrad.training.worker import as_batch


def method_for(labels: str, **settings) -> Method:
    loss = "squared" if labels == "real" else "logistic"
    data = make_data((40,), labels=labels)
    return method_of(data, TrainConfig(loss=loss, step_size=0.3, batch_size=1, **settings))


def rows_of(labels: np.ndarray) -> Rows:
    """One entry a row."""
    n = len(labels)
    return Rows.from_csr(np.arange(n + 1), np.arange(n), None, np.asarray(labels, float))


def count(
    method: Method,
    margins: np.ndarray,
    rows: Rows,
    importance: np.ndarray | None,
    where: str,
    first_row: int,
) -> Tally:
    """The tally of `rows` with (n_rows, n_outputs) `margins`."""
    return count_batch(method, as_batch(rows, importance), margins.T, where, first_row)


def test_a_tally_is_what_its_definition_says():
    method = method_for("binary")
    margins = np.array([[0.5], [-2.0], [0.0], [1.0]])
    labels = np.array([[1.0], [1.0], [-1.0], [-1.0]])
    importance = np.array([1.0, 2.0, 0.5, 0.0])
    tally = count(method, margins, rows_of(labels), importance, "here", 0)
    assert (tally.examples, tally.entries, tally.weight) == (3, 3, 3.5)
    losses = np.log1p(np.exp(-labels * margins))[:, 0]
    np.testing.assert_allclose(tally.loss, [importance @ losses])
    # A margin of 0 predicts -1; the last row would be a mistake, but weighs nothing.
    np.testing.assert_array_equal(tally.mistakes, [2.0])
    np.testing.assert_allclose(tally.error(method), [2.0 / 3.5])
    np.testing.assert_allclose(tally.mean_loss(method), [importance @ losses / 3.5])


def test_a_multiclass_mistake_is_another_class_with_the_largest_margin():
    method = method_for("multiclass")
    np.testing.assert_array_equal(method.classes, [2.0, 3.0, 4.0])
    margins = np.array([[-1.0, -3.0, -2.0], [0.0, 5.0, 6.0]])
    tally = count(method, margins, rows_of([[2.0], [3.0]]), None, "here", 0)
    np.testing.assert_array_equal(tally.mistakes, [1.0])


def test_multilabel_mistakes_are_shares_of_a_row():
    method = method_for("multilabel")
    margins = np.array([[1.0, -1.0, 1.0]])
    tally = count(method, margins, rows_of([[1.0, 1.0, 0.0]]), None, "here", 0)
    np.testing.assert_allclose(tally.mistakes, [2 / 3])
    # And so is the loss: the mean over the labels.
    losses = np.log1p(np.exp([-1.0, 1.0, 1.0]))
    np.testing.assert_allclose(tally.loss, [losses.mean()])


def test_a_regression_has_no_error():
    method = method_for("real")
    tally = count(method, np.array([[1.0]]), rows_of([[3.0]]), None, "here", 0)
    assert tally.error(method) is None
    np.testing.assert_allclose(tally.loss, [2.0])


def test_settings_are_counted_apart():
    method = method_for("binary").with_step_sizes((0.1, 1.0))
    tally = count(method, np.array([[1.0, -1.0]]), rows_of([[1.0]]), None, "here", 0)
    np.testing.assert_array_equal(tally.mistakes, [0.0, 1.0])
    assert tally.mean_loss(method)[0] < tally.mean_loss(method)[1]


@given(st.integers(0, 2**32 - 1), st.integers(0, 40))
def test_tallies_of_disjoint_rows_add_up(seed, cut):
    rng = np.random.default_rng(seed)
    data = make_data((40,), labels="multiclass")
    method = method_of(data, TrainConfig(step_size=0.3, batch_size=1))
    margins = rng.normal(size=(40, 3))
    importance = rng.integers(0, 3, 40).astype(float)
    rows = data.read(0)
    parts = [
        count(method, margins[part], rows.slice(part.start, part.stop), importance[part], "", 0)
        for part in (slice(0, cut), slice(cut, 40))
    ]
    whole = count(method, margins, rows, importance, "", 0)
    total = Tally.zero(method) + parts[0] + parts[1]
    assert (total.examples, total.entries, total.weight) == (
        whole.examples,
        whole.entries,
        whole.weight,
    )
    np.testing.assert_allclose(total.loss, whole.loss, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(total.mistakes, whole.mistakes)
    rest = total - parts[0]
    assert rest.examples == parts[1].examples
    np.testing.assert_allclose(rest.loss, parts[1].loss, rtol=1e-12, atol=1e-9)


def test_counting_is_exact_past_what_32_bits_hold():
    method = method_for("binary")
    many = Tally(2**24, 2**40, float(2**24), np.zeros(1), np.array([float(2**24)]))
    one = Tally(1, 1, 1.0, np.zeros(1), np.ones(1))
    total = many + one
    assert total.examples == total.mistakes[0] == total.weight == 2**24 + 1
    assert total.error(method)[0] == 1.0


@given(st.floats(0, 1e300), st.lists(st.floats(0, 1e300), min_size=1, max_size=4))
def test_json_keeps_every_bit(weight, loss):
    tally = Tally(3, 2**60, weight, np.array(loss), np.array([weight]))
    again = Tally.from_json(json.loads(json.dumps(tally.to_json())))
    assert (again.examples, again.entries, again.weight) == (3, 2**60, weight)
    assert again.loss.tobytes() == tally.loss.tobytes()
    assert again.mistakes.tobytes() == tally.mistakes.tobytes()


def test_before_the_first_row_there_is_no_mean():
    method = method_for("binary")
    assert np.isnan(Tally.zero(method).mean_loss(method)).all()
    assert np.isnan(Tally.zero(method).error(method)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_margin_that_is_not_finite_is_named(bad):
    method = method_for("binary")
    margins = np.array([[0.0], [0.0], [bad]])
    with pytest.raises(TrainingError, match=r"data x, partition 7: the margin of row 102 .*0\.3"):
        count(method, margins, rows_of([[1.0]] * 3), None, "data x, partition 7", 100)


def test_a_label_that_is_no_class_is_named():
    method = method_for("multiclass")
    with pytest.raises(InputError, match=r"data x: row 11 has label 7 in column 'label0'.*2, 3, 4"):
        count(method, np.zeros((2, 3)), rows_of([[2.0], [7.0]]), None, "data x", 10)
