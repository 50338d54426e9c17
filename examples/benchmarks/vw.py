"""Vowpal Wabbit as the benchmarks use it: its package ``vowpalwabbit``, in this process.

A `Workspace` that is given ``--data`` reads and learns while it is made, with a thread that parses
and one that learns, exactly as the program ``vw`` does.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

NAMESPACE = "f"
"""Features are integers of one namespace: VW adds a constant to them instead of hashing."""


@dataclass(frozen=True)
class Pass:
    """One pass: its seconds, the mean of the losses before each row was learned from, and the
    seconds of CPU time of all threads."""

    seconds: float
    loss: float
    cpu_seconds: float


def run(*options: str) -> Pass:
    """One run of VW. The time is that of the pass and of taking the weights (some milliseconds)."""
    import vowpalwabbit

    begun, cpu = time.perf_counter(), time.process_time()
    workspace = vowpalwabbit.Workspace(arg_list=[*options, "--quiet"])
    seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu
    loss = workspace.get_sum_loss() / max(workspace.get_weighted_examples(), 1e-9)
    workspace.finish()
    return Pass(seconds, loss, cpu_seconds)


def scores(model: Path, *options: str) -> NDArray[np.float64]:
    """The scores of rows by a saved model, (n_rows, n_outputs); `options` name the rows.

    Raw predictions are read: VW clips the others to the range of the labels, -1 to 1, where the
    ties would spoil the area under the ROC curve.
    """
    raw = model.with_name("raw")
    run(*options, "--testonly", "-i", str(model), "--raw_predictions", str(raw))
    lines = raw.read_text().splitlines()
    return np.array([[float(word.split(":")[-1]) for word in line.split()] for line in lines])


def write_matrix(
    path: Path, x: scipy.sparse.csr_array, y: NDArray[Any], *, classes: bool = True
) -> None:
    """Write rows as VW text; values of 1 are left out.

    Labels are -1 and 1, or 1 to k; without `classes` they are the numbers of a regression.
    """
    if classes:
        y = y.astype(np.int64) + 1 if y.max() > 1 else np.where(y > 0, 1, -1)
    labels = y.tolist()
    ids, values, indptr = x.indices.tolist(), x.data.tolist(), x.indptr.tolist()
    ones = bool((x.data == 1).all())
    with open(path, "w") as file:
        for row, label in enumerate(labels):
            entries = range(indptr[row], indptr[row + 1])
            texts = (f"{ids[j]}" if ones else f"{ids[j]}:{values[j]:.6g}" for j in entries)
            file.write(f"{label} |{NAMESPACE} {' '.join(texts)}\n")
