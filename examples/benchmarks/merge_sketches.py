"""Merged sketches: what they would give to streams and to batches, beside batches as they are.

Sketches by frequent directions merge, so the streams of a round could each learn in a sketch of
their own, and the rows of a batch could be sketched where they are. Both are done here, one process
after the other, in dual averaging with the logistic loss:

- streams: K streams begin a round with the same state. After it the gradient sum is the mean of
  theirs, and the sketch that of the mean of their G.
- rows of a batch: G grows by the mean of g g' over the rows of a batch, in a sketch of their own
  that is merged with that of the run.

Test errors are those of the best step size, CPU seconds those of one pass with it. Streams or
workers that share the work perfectly divide these seconds by their number.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import reporting
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_svmlight_file
from threadpoolctl import threadpool_limits

from dadagrad.optim.losses import Logistic
from dadagrad.optim.preconditioners import Arrays, CorrectedSketch, Preconditioner, Sketch, Step
from dadagrad.optim.regularizers import ElasticBox
from dadagrad.optim.updates import DualAveraging, State

Array = NDArray[np.float64]
STEP_SIZES = (0.1, 0.3, 1.0, 3.0)
ROUNDS = 20


def main() -> None:
    parser = reporting.parser(__doc__, "adult_a9a/a9a, adult_a9a/a9a.t and w8a/w8a (svmlight)")
    parser.add_argument("--rows", type=int, default=16_384, help="default: %(default)s")
    options = parser.parse_args()
    runs: dict[str, Callable[[DualAveraging, sparse.csr_matrix, Array], State]] = {
        "one row a step": lambda update, X, y: learn_rows(update, zero(update, X), X, y),
        "4 streams": lambda update, X, y: learn_streams(update, X, y, 4),
        "16 streams": lambda update, X, y: learn_streams(update, X, y, 16),
        "batches of 16": lambda update, X, y: learn_batches(update, X, y, 16),
        "batches of 64": lambda update, X, y: learn_batches(update, X, y, 64),
        "rows of batches of 64": lambda update, X, y: learn_batches(update, X, y, 64, rows=True),
    }
    lines = []
    for name, (X, y, X_test, y_test) in read(options.data, options.rows).items():
        for preconditioner in (Sketch(delta=0.1), CorrectedSketch()):
            for way, run in runs.items():
                results = []
                for step_size in STEP_SIZES:
                    update = DualAveraging(step_size, preconditioner, ElasticBox())
                    begun = time.process_time()
                    state = run(update, X, y)
                    seconds = time.process_time() - begun
                    wrong = (X_test @ update.weights(state)[:, 0] > 0.0) != (y_test > 0.0)
                    results.append((wrong.mean(), seconds, step_size))
                error, seconds, step_size = min(results)
                figures = [f"{error:.4f}", f"{seconds:.2f}", f"{step_size:g}"]
                lines.append([f"{name}, {preconditioner.name}, {way}", *figures])
    text = reporting.table(["", "test error", "CPU s", "step size"], lines)
    title = f"{options.rows:,} rows, rank 10, {ROUNDS} rounds:\n\n{text}"
    reporting.publish("merge_sketches", title, options.markdown)


def read(
    folder: Path, n_rows: int
) -> dict[str, tuple[sparse.csr_matrix, Array, sparse.csr_matrix, Array]]:
    """Rows to learn from and to test on, with a feature that is always 1."""
    X, y = load_svmlight_file(str(folder / "w8a" / "w8a"), n_features=301, zero_based=False)
    order = np.random.default_rng(0).permutation(len(y))
    w8a = X[order[:-10_000]], y[order[:-10_000]], X[order[-10_000:]], y[order[-10_000:]]
    a9a = [
        part
        for name in ("a9a", "a9a.t")
        for part in load_svmlight_file(
            str(folder / "adult_a9a" / name), n_features=124, zero_based=False
        )
    ]
    sets = {}
    for name, (X, y, X_test, y_test) in {"a9a": a9a, "w8a": w8a}.items():
        chosen = np.random.default_rng(1).permutation(len(y))[:n_rows]
        sets[name] = with_one(X[chosen]), np.sign(y[chosen]), with_one(X_test), np.sign(y_test)
    return sets


def with_one(X: sparse.csr_matrix) -> sparse.csr_matrix:
    return sparse.hstack([X, np.ones((X.shape[0], 1))]).tocsr()


def zero(update: DualAveraging, X: sparse.csr_matrix) -> State:
    return update.init(X.shape[1], 1)


def learn_rows(update: DualAveraging, state: State, X: sparse.csr_matrix, y: Array) -> State:
    for start, stop, label in zip(X.indptr[:-1], X.indptr[1:], y, strict=True):
        ids, values = X.indices[start:stop].astype(np.int64), X.data[start:stop]
        slope = Logistic().slope(values @ update.weights(state, ids)[:, 0], label)
        state = update.step(state, (slope * values)[:, None], 1.0, ids)
    return state


def learn_batches(
    update: DualAveraging, X: sparse.csr_matrix, y: Array, size: int, *, rows: bool = False
) -> State:
    state = zero(update, X)
    for start in range(0, len(y), size):
        batch, labels = X[start : start + size], y[start : start + size]
        slopes = Logistic().slope(batch @ update.weights(state)[:, 0], labels)
        batch = batch.multiply(slopes[:, None]).tocsr()
        mean = np.asarray(batch.mean(axis=0)).reshape(-1, 1)
        if not rows:
            state = update.step(state, mean)
            continue
        sketch = update.preconditioner.init(X.shape[1], 1)
        for row in batch.toarray() / np.sqrt(batch.shape[0]):
            sketch = update.preconditioner.add(sketch, Step(row[:, None]))
        total = state.primary + mean
        arrays = merge(update.preconditioner, [state.preconditioner, sketch], 1.0, total)
        state = State(state.t + 1.0, total, arrays)
    return state


def learn_streams(update: DualAveraging, X: sparse.csr_matrix, y: Array, n_streams: int) -> State:
    state, length = zero(update, X), len(y) // n_streams
    stops = np.unique((length * np.linspace(0, 1, ROUNDS + 1) ** 1.5).astype(int))
    for start, stop in pairwise(stops):
        ends = []
        for first in range(0, n_streams * length, length):
            sketch = {name: array.copy() for name, array in state.preconditioner.items()}
            begin = State(state.t, state.primary.copy(), sketch)
            rows = slice(first + start, first + stop)
            ends.append(learn_rows(update, begin, X[rows], y[rows]))
        total = sum(end.primary for end in ends) / n_streams
        sketches = [end.preconditioner for end in ends]
        arrays = merge(update.preconditioner, sketches, 1.0 / n_streams, total)
        state = State(float(state.t + stop - start), total, arrays)
    return state


def merge(
    preconditioner: Preconditioner, sketches: list[Arrays], scale: float, total: Array
) -> Arrays:
    """The sketch of `scale` times the sum of the G of several."""
    merged = preconditioner.init(len(total), 1)
    for sketch in sketches:
        for row in sketch["directions"][0].T[: int(sketch["filled"][0, 0])]:
            merged = preconditioner.add(merged, Step(np.sqrt(scale) * row[:, None]))
        merged["removed"] += scale * sketch["removed"]
    merged["products"][0] = total[:, 0] @ merged["directions"][0]
    return merged


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
