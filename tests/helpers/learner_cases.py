"""Streams of sparse rows and small helpers that the tests of the learners share."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from hypothesis import strategies as st

from dadagrad.optim.baselines import Row as ScoredRow
from dadagrad.optim.losses import LOSSES, Loss, Task
from dadagrad.optim.updates import UPDATES

seeds = st.integers(0, 2**32 - 1)


class Row(NamedTuple):
    ids: np.ndarray
    values: np.ndarray
    targets: np.ndarray

    def dense(self, n_features):
        x = np.zeros(n_features)
        x[self.ids] = self.values
        return x


def one_feature(value, target=1.0):
    """A row of the first feature alone."""
    return Row(np.array([0]), np.array([value]), np.array([target]))


@dataclass(frozen=True)
class Linear(Loss):
    """target * margin: with target 1 and values g, the gradient of a row is g itself."""

    task: ClassVar[Task] = "regression"

    def value(self, scores, labels):
        return scores * labels

    def slope(self, scores, labels):
        return labels + 0.0 * scores


def learner_of(text, loss="hinge"):
    return UPDATES.make(text).bind(loss=LOSSES.make(loss), step_size=0.3)


def draw_rows(seed, n_rows, n_features, n_outputs=1, task="binary"):
    """Rows with about half of the features; the last feature never occurs."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n_features, n_outputs))
    rows = []
    for _ in range(n_rows):
        ids = np.flatnonzero(rng.random(n_features - 1) < 0.5)
        values = rng.normal(size=len(ids))
        scores = values @ truth[ids] + 0.3 * rng.normal(size=n_outputs)
        if task == "regression":
            targets = scores
        elif task == "multiclass":
            targets = np.where(np.arange(n_outputs) == np.argmax(scores), 1.0, -1.0)
        else:
            targets = np.where(scores > 0, 1.0, -1.0)
        rows.append(Row(ids, values, targets))
    return rows


def learn(learner, state, row, importance=1.0):
    scores = learner.scores(state, row.ids, row.values)
    return learner.learn(state, ScoredRow(*row, scores, importance))


def walk(learner, rows, n_features, n_outputs=1):
    """Each row with the weights before and after it, and the state after it."""
    state = learner.init(n_features, n_outputs)
    for row in rows:
        before = learner.weights(state)
        state = learn(learner, state, row)
        yield row, before, learner.weights(state), state


def finish(learner, rows, n_features, n_outputs=1):
    state = learner.init(n_features, n_outputs)
    for row in rows:
        state = learn(learner, state, row)
    return state
