"""Equalities that the papers and the package promise and that other tests do not hold to.

(One block = full, blocks of one = diagonal, l1 of strength 0 = none, and FTRL-proximal without l1 =
mirror descent are in tests/metrics/test_full_metrics.py and tests/test_updates.py.)
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.objects import GRADIENT_UPDATES
from hypothesis import given, settings
from hypothesis import strategies as st

import dadagrad
from dadagrad.data.dataset import MemoryDataset, Schema, describe_labels
from dadagrad.data.rows import Rows
from dadagrad.optim.preconditioners import Diagonal, Identity, Normalized
from dadagrad.optim.regularizers import ElasticBox, MixedL2, MixedLInfinity, WithElasticNet
from dadagrad.optim.updates import UPDATES

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


SEPARABLE = {
    "diagonal": Diagonal(0.1),
    "diagonal, no delta": Diagonal(0.0),
    "normalized": Normalized(0.1),
    "constant": Identity("constant"),
    "sqrt": Identity("sqrt"),
    "linear": Identity("linear"),
}
UNCOUPLED = {
    "none": ElasticBox(),
    "l1": ElasticBox(l1=0.05),
    "l2": ElasticBox(l2=0.2),
    "box": ElasticBox(low=-0.1, high=0.3),
    "all": ElasticBox(0.03, 0.2, -0.1, 0.3),
    "mixed-l2": MixedL2(0.05),
    "mixed-l-infinity": MixedLInfinity(0.05),
    "mixed-l2 and elastic net": WithElasticNet(MixedL2(0.05), 0.02, 0.1),
    "mixed-l-infinity and elastic net": WithElasticNet(MixedLInfinity(0.05), 0.02, 0.1),
}


@settings(max_examples=150)
@given(
    name=st.sampled_from(GRADIENT_UPDATES),
    preconditioner=st.sampled_from(list(SEPARABLE)),
    regularizer=st.sampled_from(list(UNCOUPLED)),
    seed=st.integers(0, 2**32 - 1),
)
def test_lazy_is_eager_to_the_last_bit(name, preconditioner, regularizer, seed):
    """Steps and weights by ids (supersets of the non-zeros), against whole ones, in float64.

    Weights are read by ids after each step, as a lazy learner reads them, and whole at the end.
    """
    rng = np.random.default_rng(seed)
    update = UPDATES[name](0.4, SEPARABLE[preconditioner], UNCOUPLED[regularizer])
    n_outputs = None if regularizer in ("none", "l1", "all") else 3
    lazy, eager = update.init(N_FEATURES, n_outputs), update.init(N_FEATURES, n_outputs)
    shape = (N_FEATURES,) if n_outputs is None else (N_FEATURES, n_outputs)
    for _ in range(12):
        ids = np.flatnonzero(rng.random(N_FEATURES) < 0.4)
        gradient = np.zeros(shape)
        gradient[ids] = rng.normal(size=(len(ids), *shape[1:]))
        gradient[ids[: len(ids) // 3]] = 0.0  # named, but 0
        importance = float(rng.choice([0.5, 1.0, 3.0]))
        asked = np.flatnonzero(rng.random(N_FEATURES) < 0.5)
        np.testing.assert_array_equal(update.weights(lazy, asked), update.weights(eager)[asked])
        lazy = update.step(lazy, gradient[ids], importance, ids=ids)
        eager = update.step(eager, gradient, importance)
    np.testing.assert_array_equal(update.weights(lazy), update.weights(eager))
    np.testing.assert_array_equal(lazy.primary, eager.primary)
    for key, array in eager.preconditioner.items():
        np.testing.assert_array_equal(lazy.preconditioner[key], array)
