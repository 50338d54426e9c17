"""A row of weight 2 is the row twice, and a fractional weight is that part of a step."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers.training_cases import UPDATES, as_dataset, dense_rows, make_data
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from dadagrad import TrainConfig, train
from dadagrad.data.rows import Rows
from dadagrad.optim.preconditioners import Diagonal


def with_weights(rows, weights):
    return replace(rows, weights=weights.astype(np.float32))


SETTINGS = [
    *({"update": update, "l1": l1, "l2": l1} for update in UPDATES for l1 in (0.0, 1e-3)),
    *({"update": name} for name in ("pa-1", "arow", "eg-signed", "strongly-convex")),
    *({"update": "coin-betting"}, {"preconditioner": "sketch:delta=0.1"}, {"average": True}),
]


@given(settings=st.sampled_from(SETTINGS))
def test_online_a_weight_of_two_is_the_row_twice_and_of_none_no_row(settings):
    rows = make_data((60,)).read(0)
    times = np.random.default_rng(5).integers(0, 4, 60)
    repeated = [rows.slice(row, row + 1) for row in np.repeat(np.arange(60), times)]
    config = TrainConfig(**{"step_size": 0.3, "batch_size": 1, "shuffle": False} | settings)
    weighted = train(as_dataset([with_weights(rows, times)]), config)
    assert weighted.model.digest == train(as_dataset(repeated), config).model.digest
    assert weighted.report["rows"] == (times > 0).sum()


def mean_after_parts(parts, importance, **settings):
    """The mean of the weights after each part but the first; t^2 grows by their counts."""
    sums, squares = np.zeros((60, 1)), np.square(np.cumsum(importance))
    for n_parts in range(2, len(parts) + 1):
        end = train(as_dataset(parts[:n_parts]), average=False, **settings).coordinator
        count = squares[n_parts - 1] - squares[n_parts - 2]
        sums = sums + count * end.state.weights(end.problem)
    return sums / squares[-1]


@pytest.mark.parametrize("update", ["dual-averaging", "arow"])
def test_the_mean_of_the_weights_counts_rows_by_their_weight(update):
    rows = make_data((12,)).read(0)
    rows.labels[:2, 0] = 1.0, -1.0  # every prefix has both classes
    importance = np.random.default_rng(3).choice([0.05, 0.3, 1.0], 12)
    rows = with_weights(rows, importance)
    parts = [rows.slice(0, 2), *(rows.slice(row, row + 1) for row in range(2, 12))]
    settings = {"update": update, "batch_size": 1, "shuffle": False, "step_size": 0.3}
    ends = train(as_dataset(parts), average=True, **settings).coordinator
    first = train(as_dataset(parts[:1]), average=True, **settings).coordinator
    begun = importance[:2].sum()
    rest = np.append(begun, importance[2:])
    expected = mean_after_parts(parts, rest, **settings)
    expected += (begun / importance.sum()) ** 2 * first.state.weights(first.problem)
    np.testing.assert_allclose(ends.state.weights(ends.problem), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("preconditioner", ["diagonal", "full"])
def test_mirror_descent_shrinks_by_l2_for_the_weight_of_the_rows(preconditioner):
    """Rows of other features, of weight 10 in all: the weight shrinks by exp(-10 eta l2 / H)."""

    def weight_after(n_rows):
        ids = np.repeat([0, 1], [2, n_rows])
        weights = np.repeat([1.0, 1e-9, 0.25], [1, 1, n_rows])
        values, indptr = np.ones(len(ids), np.float32), np.arange(len(ids) + 1)
        labels = np.where(np.arange(len(ids)) == 1, -1.0, 1.0)[:, None]
        rows = Rows.from_csr(indptr, ids, values, labels, weights.astype(np.float32))
        settings = {"update": "mirror-descent", "preconditioner": preconditioner, "l2": 0.05}
        settings |= {"step_size": 0.5, "batch_size": 1, "fit_intercept": False, "shuffle": False}
        end = train(as_dataset([rows], 2), **settings).coordinator
        return float(end.state.weights(end.problem)[0, 0])

    assert weight_after(40) / weight_after(0) == pytest.approx(math.exp(-0.25), rel=0.02)


@pytest.mark.parametrize(
    ("loss", "labels"), [("logistic", "binary"), ("squared-hinge", "binary"), ("squared", "real")]
)
@pytest.mark.parametrize("update", ["mirror-descent", "ftrl"])
def test_a_row_of_weight_h_is_h_rows_in_the_limit_of_many_small_parts(update, loss, labels):
    """The limit solves dw/dh = -eta slope(<w, x>) x (Karampatziakis and Langford 2011, eq. 6)."""
    rows = make_data((12,), labels=labels).read(0)
    importance = np.random.default_rng(1).uniform(0.2, 5.0, 12)
    eta, delta = 0.3, 1e6  # squares of gradients vanish beside delta: H is constant
    result = train(
        as_dataset([with_weights(rows, importance)]), loss=loss, update=update,
        preconditioner=Diagonal(delta), step_size=eta * delta, batch_size=1, shuffle=False,
        importance_aware=True, average=False, fit_intercept=False, scale_columns=False,
    )  # fmt: skip
    weights, slope = np.zeros(60), result.coordinator.problem.loss.slope
    for x, y, h in zip(dense_rows(rows), rows.labels[:, 0], importance, strict=True):

        def change(_, w, x=x, y=y):
            return -eta * slope(w @ x, y) * x

        weights = solve_ivp(change, (0.0, h), weights, rtol=1e-9, atol=1e-12).y[:, -1]
    got = result.coordinator.state.weights(result.coordinator.problem)[:, 0]
    np.testing.assert_allclose(got, weights, rtol=0, atol=1e-5 * np.abs(weights).max())
