"""Corners of the compiled kernels; `tests/training/test_formulas.py` holds them to the formulas."""

import math
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from helpers.training_cases import UPDATES, as_dataset, make_data

from dadagrad import train
from dadagrad.data.rows import Rows
from dadagrad.kernels import training as kernels

SETTINGS = {"batch_size": 1, "step_size": 0.3}
VALUE = np.float32(0.3)


def three_rows(value, weight=1.0):
    """Rows of the same feature and value."""
    values, weights = np.full((2, 3), [[value], [weight]], np.float32)
    labels = np.array([[1.0], [-1.0], [1.0]])
    return as_dataset([Rows.from_csr(np.arange(4), np.zeros(3, int), values, labels, weights)], 1)


@pytest.mark.parametrize("update", UPDATES)
def test_squares_that_underflow_do_not_make_huge_weights(update):
    """A gradient of 1e-30 has the square 0 in single precision: without delta H = 0, so w = 0."""
    settings = SETTINGS | {"update": update, "preconditioner": "diagonal:delta=0"}
    weights = train(three_rows(1e-30), **settings).model.weights
    assert np.isfinite(weights).all()
    assert np.abs(weights).max(initial=0.0) <= 10.0


@pytest.mark.parametrize("update", UPDATES)
def test_a_huge_weight_of_a_row_is_a_bounded_number_of_steps(update):
    """Without the bound this would learn from a row 10^9 times."""
    result = train(three_rows(1.0, 1e9), loss="logistic", update=update, **SETTINGS)
    assert result.coordinator.state.t == pytest.approx(3e9)
    assert np.isfinite(result.model.weights).all()


@pytest.mark.parametrize("labels", ["binary", "multilabel"])
@pytest.mark.parametrize("update", UPDATES)
def test_a_step_does_not_depend_on_the_rows_beside_it(update, labels):
    """Kernels read vectors, which go on into the next row; beyond the last there is none."""
    rows = make_data((40,), labels=labels, entries=20).read(0)
    each = [rows.slice(number, number + 1) for number in range(rows.n_rows)]
    together, alone = (
        train(as_dataset(parts), update=update, average=True, shuffle=False, **SETTINGS).model
        for parts in ([rows], each)
    )
    np.testing.assert_array_equal(together.weights, alone.weights)
    assert together.report["progressive_loss"] == pytest.approx(alone.report["progressive_loss"])


def test_nothing_is_compiled_twice():
    first = make_data((20,), labels="multilabel", weighted=True)
    rows = make_data((7,), labels="real").read(0)
    second = as_dataset([replace(rows, values=None, row_scale=np.ones(7, np.float32))])
    for update in UPDATES:
        train(first, update=update, **SETTINGS)
        kernel = kernels.online_kernel(update == "mirror-descent", 1)
        compiled = len(kernel.signatures)
        train(second, update=update, loss="squared", l1=0.1, **SETTINGS)
        assert len(kernel.signatures) == compiled


FIRST_RUN = """
import numpy as np
from dadagrad import train
from dadagrad.kernels.training import count_by_score
train((np.eye(2), [0, 1]), update="pa")
print(sum(count_by_score.stats.cache_misses.values()))
"""


def test_processes_that_start_together_compile_once(tmp_path):
    """As on the workers of a new cluster."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", FIRST_RUN]
    pipes = {"env": environment, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(2)]
    compiled = [process.communicate()[0].strip() for process in processes]
    assert sorted(compiled) == ["0", "1"]


def constant_feature(update, labels, state, t, step_size, l1=0.0, loss=kernels.HINGE):
    """Rows of one feature of value 0.3, and one or more outputs with the `state` of it.

    Returns a function that learns from all rows from t on, and the scores that it writes.
    """
    n_rows, width = len(labels), state.shape[1]
    rows = np.arange(n_rows + 1), np.zeros(n_rows, np.int32), np.full(n_rows, VALUE)
    batch = kernels.Batch(*rows, np.zeros(0, np.float32), labels[None], np.zeros(0))
    targets = kernels.Targets(loss, 0.0, 1, np.zeros(width, int), np.ones(width), False)
    is_ftrl = update == "ftrl"
    steps = kernels.Hyperparameters(step_size, l1, 0.0, -np.inf, np.inf, 0.0, is_ftrl, False)
    work = kernels.make_work(batch, state, np.zeros((width, 2)), np.full(1, t))
    kernel = kernels.online_kernel(update == "mirror-descent", width)
    scores = np.empty((width, n_rows))

    def learn(t):
        kernel(batch, targets, None, steps, work, t, scores, np.zeros((0, 0)))

    return learn, scores


@pytest.mark.parametrize(
    ("before", "n_parts"), [(2.0**22, 1), pytest.param(0.0, 5000, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("update", UPDATES)
def test_squares_grow_without_end(update, width, before, n_parts):
    """A sum of 2^22, as after 47 M rows of a constant column, grows by each; and over 10^9 rows.

    In single precision alone it would stand still. Units above and below a power of 2 differ.
    """
    n_rows, t = 200_000, 2.0**26 if before else 0.0
    state = np.zeros((1, width, 2), np.float32)
    state[..., 1] = before
    learn, _ = constant_feature(update, np.ones(n_rows), state, t, step_size=1e-9)
    for part in range(n_parts):
        learn(t + part * n_rows)
    exact = n_parts * n_rows * np.float64(VALUE) ** 2
    assert state[0, :, 1] - before == pytest.approx(exact, rel=1e-3)


def plain_scores(update, labels, x, primary, squares, t, eta, l1):
    """Scores of rows of one feature, each before its step, in the numbers of Python."""
    scores = []
    for label in labels.tolist():
        root, weight = math.sqrt(squares), primary
        if update != "mirror-descent":
            shrunk = max(abs(primary) - t * l1, 0.0)
            weight = -math.copysign(eta * shrunk / root, primary)
        scores.append(weight * x)
        gradient = -label * x / (1.0 + math.exp(label * weight * x))
        squares += gradient * gradient
        rate = eta / math.sqrt(squares)
        if update == "mirror-descent":
            center = weight - rate * gradient
            primary = math.copysign(max(abs(center) - rate * l1, 0.0), center)
        else:
            pull = (math.sqrt(squares) - root) * weight / eta
            primary += gradient - (pull if update == "ftrl" else 0.0)
        t += 1.0
    return scores


@pytest.mark.parametrize("update", UPDATES)
def test_weights_of_many_small_equal_gradients_stay_right(update):
    """Two gradients alone, each rounded the same way each time, would pull the weight aside."""
    t, eta, l1 = 2.0**30, 0.4, 1e-3
    labels = np.where(np.arange(400_000) % 10 < 7, 1.0, -1.0)
    squares = 0.0189 * t
    primary = 2.79 if update == "mirror-descent" else -(t * l1 + 2.79 * math.sqrt(squares) / eta)
    state = np.array([[[primary, squares]]], np.float32)
    learn, scores = constant_feature(update, labels, state, t, eta, l1, kernels.LOGISTIC)
    learn(t)
    expected = plain_scores(update, labels, float(VALUE), primary, squares, t, eta, l1)
    assert scores[0, -100_000:].mean() == pytest.approx(np.mean(expected[-100_000:]), rel=1e-3)
