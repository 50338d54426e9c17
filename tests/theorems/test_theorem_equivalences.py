"""Training takes the steps of eq. 24 of Duchi, Hazan and Singer (2011)."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dadagrad
from dadagrad.data.dataset import MemoryDataset, Schema, describe_labels
from dadagrad.data.rows import Rows

N_FEATURES = 9


def make_rows(seed: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """(n_rows, N_FEATURES) sparse rows that are float32 numbers, and labels."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, N_FEATURES)) * (rng.random((n_rows, N_FEATURES)) < 0.4)
    x = x.astype(np.float32).astype(np.float64)
    return x, np.where(x @ rng.normal(size=N_FEATURES) + 0.3 * rng.normal(size=n_rows) > 0, 1.0, -1)


def as_dataset(x: np.ndarray, y: np.ndarray) -> MemoryDataset:
    counts = np.count_nonzero(x, axis=1)
    rows = Rows.from_csr(
        np.concatenate([[0], np.cumsum(counts)]),
        np.nonzero(x)[1],
        x[np.nonzero(x)].astype(np.float32),
        y[:, None],
    )
    schema = Schema(x.shape[1], describe_labels(np.array([[-1.0], [1.0]]), ["y"]))
    return MemoryDataset([rows], schema)


def slope(loss: str, margin: float, y: float) -> float:
    if loss == "hinge":
        return -y if y * margin < 1.0 else 0.0
    return -y / (1.0 + math.exp(y * margin))


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize("l1", [0.0, 0.02])
@pytest.mark.parametrize("delta", [1e-6, 1.0])
def test_training_is_eq_24_step_by_step(loss, l1, delta):
    """x_t+1,i = sign(-mean g_i) eta t / H_t,ii [|mean g_i| - lambda]_+ after each of 25 rows.

    Duchi et al. (2011), eq. 24, H_t,ii = delta + |g_1:t,i|_2. Training keeps 32 bits and sees only
    the features of each row; a run on the first t rows must have the weights of step t to 1e-6.
    """
    eta, (x, y) = 0.3, make_rows(4, 25)
    config = dadagrad.TrainConfig(
        loss=loss, update="dual-averaging", preconditioner="diagonal", step_size=eta, delta=delta,
        l1=l1, batch_size=1, shuffle=False, fit_intercept=False,
    )  # fmt: skip
    weights, sums, squares = np.zeros(N_FEATURES), np.zeros(N_FEATURES), np.zeros(N_FEATURES)
    zeros = 0
    for t in range(1, len(x) + 1):
        gradient = slope(loss, float(x[t - 1] @ weights), y[t - 1]) * x[t - 1]
        sums, squares = sums + gradient, squares + gradient**2
        for i in range(N_FEATURES):
            mean, h = sums[i] / t, delta + math.sqrt(squares[i])
            weights[i] = math.copysign(eta * t / h * max(abs(mean) - l1, 0.0), -mean)
        model = dadagrad.train(as_dataset(x[:t], y[:t]), config).model
        found = np.zeros(N_FEATURES)
        found[model.ids] = model.weights[:, 0]
        np.testing.assert_allclose(found, weights, rtol=0, atol=1e-6)
        far_from_the_threshold = np.abs(np.abs(sums) - t * l1) > 1e-5
        same = (found == 0) == (weights == 0)
        assert same[far_from_the_threshold].all()
        zeros += int(np.sum((weights == 0) & (squares > 0)))
    assert (zeros > 10) == (l1 > 0)  # the threshold was at work
