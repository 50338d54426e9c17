"""The compiled count of an output against the plain formulas of `dadagrad.optim.losses`."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.objects import kernel_parameter, loss_of
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.kernels.training import Batch, Targets, count_rows
from dadagrad.optim.losses import LOSSES

COUNTED = [name for name in LOSSES if not LOSSES.make(name).couples]
NO_IMPORTANCE = np.zeros(0)


def count(
    name: str,
    labels: np.ndarray,
    margins: np.ndarray,
    importance: np.ndarray = NO_IMPORTANCE,
    other: float = np.nan,
) -> tuple[float, float, int]:
    """Of the second of two label columns; a classifier's positive label is 3."""
    loss = loss_of(name)
    nothing = np.zeros(0, np.float32)
    batch = Batch(
        np.zeros(len(margins) + 1, np.int64),
        np.zeros(0, np.int32),
        nothing,
        nothing,
        np.stack([np.full(len(labels), -7.0), labels]),
        importance,
    )
    positive = 3.0 if loss.classifies else np.nan
    problem = Targets(
        loss.code, kernel_parameter(loss), 1, np.ones(1, np.int64), np.array([positive]), True
    )
    return count_rows(batch, problem, other, margins)


@pytest.mark.parametrize("name", COUNTED)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_rows=st.sampled_from([0, 1, 7, 60]),
    scale=st.sampled_from([0.0, 1e-3, 1.0, 1e4]),
    weighted=st.booleans(),
)
def test_what_is_counted_is_the_plain_loss_and_the_wrong_signs(
    name: str, seed: int, n_rows: int, scale: float, weighted: bool
) -> None:
    rng = np.random.default_rng(seed)
    loss = loss_of(name)
    if loss.classifies:
        labels = rng.choice([1.0, 3.0], n_rows)
        targets = np.where(labels == 3.0, 1.0, -1.0)
    elif loss.link == "log":
        targets = labels = rng.poisson(2.0, n_rows).astype(float)
    else:
        targets = labels = rng.normal(size=n_rows)
    margins = scale * rng.normal(size=n_rows)
    importance = rng.choice([0.0, 0.5, 3.0], n_rows) if weighted else NO_IMPORTANCE
    each = importance if weighted else np.ones(n_rows)
    total, mistakes, unknown = count(name, labels, margins, importance)
    assert total == pytest.approx(float((each * loss.value(margins, targets)).sum()), rel=1e-12)
    assert mistakes == each[(margins > 0.0) != (targets > 0.0)].sum()
    assert unknown == 0


def test_labels_that_are_neither_are_counted_where_there_is_a_rule() -> None:
    labels, margins = np.array([3.0, 1.0, 2.0, 3.0, np.nan]), np.zeros(5)
    assert count("hinge", labels, margins, other=1.0)[2] == 2
    assert count("hinge", labels, margins)[2] == 0


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_margin_that_is_not_finite_makes_the_loss_no_number(name: str, bad: float) -> None:
    labels, margins = np.full(9, 3.0), np.zeros(9)
    margins[4] = bad
    assert np.isnan(count(name, labels, margins)[0])
    assert np.isnan(count(name, labels, margins, np.zeros(9))[0])
