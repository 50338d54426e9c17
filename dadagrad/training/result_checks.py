"""Whether what came back from a worker can be the gradient of a piece, or the walk of a stream.

Workers check what they compute, and name the row or the feature. What is found here has gone wrong
after that: in the memory of a machine, or on the way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.method import Method
from dadagrad.training.plan import Piece
from dadagrad.training.protocol import Gradient, WalkedShare


def problem_with(
    result: Gradient | WalkedShare, method: Method, piece: Piece, vocabulary: NDArray[np.int64]
) -> str | None:
    """What is wrong with the `result` of `piece`; None if nothing is.

    `vocabulary` is that of the piece's partition, (n_local,) int64.
    """
    positions = result.positions
    n_moved = len(positions)
    if isinstance(result, WalkedShare):
        own = _of_walk(result, method, n_moved)
    else:
        own = _of_gradient(result, method, n_moved)
    shapes = {
        **own,
        "loss": (result.tally.loss, (method.n_settings,)),
        "mistakes": (result.tally.mistakes, (method.n_settings,)),
    }
    for name, (array, shape) in shapes.items():
        if array.shape != shape:
            return f"its {name} has the shape {array.shape}, not {shape}"
        if not np.isfinite(array).all():
            return f"its {name} is not finite"
    if n_moved and (
        positions[0] < 0
        or positions[-1] >= len(vocabulary)
        or (positions[1:] <= positions[:-1]).any()
    ):
        return f"its positions are not increasing numbers below {len(vocabulary)}"
    if not 0 <= result.tally.examples <= piece.n_rows or not 0.0 <= result.tally.weight < np.inf:
        return f"it counts {result.tally.examples} examples of weight {result.tally.weight:g}"
    return None


_Shapes = dict[str, tuple[NDArray[Any], tuple[int, ...]]]


def _of_gradient(result: Gradient, method: Method, n_moved: int) -> _Shapes:
    """The arrays that a gradient has, and of which shape they must be."""
    squares = (n_moved, method.n_outputs) if method.config.squares == "example" else (0, 0)
    return {
        "gradient": (result.gradient, (n_moved, method.n_outputs)),
        "squares": (result.squares, squares),
        "intercept": (result.intercept, (2, method.n_outputs)),
    }


def _of_walk(result: WalkedShare, method: Method, n_moved: int) -> _Shapes:
    """The same of a walk; its time is one more."""
    state = result.state
    n_bundles, width = method.n_bundles, method.bundle_width
    lazy = method.config.update == "mirror-descent"
    return {
        "state": (state.accumulators, (n_bundles, n_moved, width, 2)),
        "state of shrinking": (state.settled, (n_bundles, n_moved if lazy else 0)),
        "intercept": (state.intercept, (n_bundles, 1, width, 2)),
        "time": (np.asarray(state.t), ()),
    }
