"""The work on a piece: pure functions of rows and what the coordinator handed out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dadagrad import kernels
from dadagrad.data.rows import Rows
from dadagrad.errors import TrainingError
from dadagrad.method import Method
from dadagrad.training.compact import mark, marked, relabel
from dadagrad.training.pairs import pair_rows
from dadagrad.training.plain_state import PlainState
from dadagrad.training.plan import Piece
from dadagrad.training.protocol import Given, Gradient, Result, Walked, WalkedShare
from dadagrad.training.shares import ShareInState, StateShare
from dadagrad.training.spread import Spread, in_turn
from dadagrad.training.state import State
from dadagrad.training.tally import Counter, Tally, count

_NO_VALUES = np.zeros(0, np.float32)
_NO_IMPORTANCE = np.zeros(0)
_NO_SQUARES = np.zeros((0, 0), np.float32)


def compute(
    method: Method,
    rows: Rows,
    piece: Piece,
    given: Given,
    where: str,
    spread: Spread = in_turn,
) -> Result:
    """Work on `piece` of the partition `rows`; `where` names the partition in messages.

    A state is walked in place, its outputs by whatever threads `spread` finds for them; the bits
    do not depend on it.

    Raises
    ------
    TrainingError
        A margin or a gradient is not finite.
    InputError
        A label is not one of the declared classes.
    """
    if method.loss.ranks:
        part = pair_rows(rows, piece, method.config.seed, where)
    else:
        part = rows.slice(piece.start, piece.stop)
    importance = row_importance(method, part)
    if isinstance(given, State):
        return Walked(_walk(method, part, importance, given, where, piece.start, spread))
    if isinstance(given, PlainState):
        walked = given.walk(method, part, importance)
        return Walked(count(method, as_batch(part, importance), walked.T, where, piece.start))
    if isinstance(given, StateShare | ShareInState):
        return _walk_share(method, part, importance, given, where, piece.start, spread)
    positions, compact = _compact(part, given.partial)
    weights = given.take(positions)
    gradient = np.zeros(weights.shape, np.float32)
    squares = np.zeros_like(gradient) if method.config.squares == "example" else _NO_SQUARES
    intercept = np.zeros((2, method.n_outputs))
    margins = np.empty((part.n_rows, method.n_outputs))
    batch = as_batch(compact, importance)
    kernels.piece_gradient(
        batch, method.problem, weights, given.intercept, gradient, squares, intercept, margins
    )
    tally = count(method, batch, margins.T, where, piece.start)
    moved = _moved(gradient)
    if len(squares):
        moved |= _moved(squares)
        squares = squares[moved]
    kept = np.flatnonzero(moved).astype(np.int32) if positions is None else positions[moved]
    gradient = gradient[moved]
    _check_finite(gradient, squares, intercept, rows, kept, where)
    return Gradient(kept, gradient, squares, intercept, tally)


def _compact(part: Rows, partial: bool) -> tuple[NDArray[np.int32] | None, Rows]:
    """Where in the vocabulary the features are that the rows touch, and the rows over these.

    None stands for all of it: rows that touch few of the partition's features get by with what
    there is of those, and have to where the rest is missing, as `partial` says.
    """
    if partial or part.nnz < part.n_local:
        positions, indices = relabel(part.indices, part.n_local)
        return positions, replace(part, indices=indices)
    return None, part


def _walk_share(
    method: Method,
    part: Rows,
    importance: NDArray[np.float64] | None,
    given: StateShare | ShareInState,
    where: str,
    first_row: int,
    spread: Spread,
) -> WalkedShare:
    """Walk the rows of a stream; only what they changed of the state goes back."""
    positions, compact = _compact(part, given.partial)
    before = given.take(positions)
    share = before.copy()
    # The rows are over all that there is in the share.
    compact = replace(compact, vocabulary=np.arange(share.n_features))
    tally = _walk(method, compact, importance, share, where, first_row, spread)
    kept = share.differences(before)
    changed = kept.astype(np.int32) if positions is None else positions[kept]
    return WalkedShare(changed, share.pull(kept), tally)


def touched(rows: Rows, piece: Piece) -> NDArray[np.int32] | None:
    """The increasing positions in the vocabulary of `rows` that the rows of `piece` touch.

    None where that is most of the vocabulary, and where the rows have queries: pairs touch what
    other rows of the query do.
    """
    part = rows.slice(piece.start, piece.stop)
    if part.nnz >= part.n_local or rows.queries is not None:
        return None
    positions: NDArray[np.int32] = marked(mark(part.indices, part.n_local))[0]
    return positions


def _moved(gradient: NDArray[np.float32]) -> NDArray[np.bool_]:
    """(k,): the features of which some output has a gradient."""
    other = gradient != 0.0
    # The common case apart: numpy is slow at reducing rows of one.
    moved: NDArray[np.bool_] = other[:, 0] if other.shape[1] == 1 else other.any(axis=1)
    return moved


def _check_finite(
    gradient: NDArray[np.float32],
    squares: NDArray[np.float32],
    intercept: NDArray[np.float64],
    rows: Rows,
    kept: NDArray[np.int32],
    where: str,
) -> None:
    what = None
    for array in (gradient, squares):
        if not np.isfinite(array).all():
            first = np.argwhere(~np.isfinite(array))[0][0]
            what = f"feature {rows.vocabulary[kept[first]]}"
    if not np.isfinite(intercept).all():
        what = "the intercept"
    if what is not None:
        raise TrainingError(
            f"{where}: the gradient of {what} is not finite, so the weights have diverged or a "
            "value is too large; choose a smaller step size, or normalise the rows"
        )


def _walk(
    method: Method,
    rows: Rows,
    importance: NDArray[np.float64] | None,
    state: State,
    where: str,
    first_row: int,
    spread: Spread,
) -> Tally:
    """One step per row, changing `state`; what is counted before each."""
    batch, width = as_batch(rows, importance), method.bundle_width
    margins = np.empty((method.n_outputs, rows.n_rows))
    counter = Counter(method, batch, margins, where, first_row)
    after = np.empty(method.n_bundles)

    def walk(bundle: int) -> None:
        own = margins[bundle * width : (bundle + 1) * width]
        after[bundle] = state.walk(method, bundle, rows.vocabulary, batch, own)
        counter.count(bundle)

    spread(walk, method.n_bundles)
    state.t = float(after[0])
    return counter.tally()


def row_importance(method: Method, rows: Rows) -> NDArray[np.float64] | None:
    """Row weights times class weights, (n_rows,); None where all are 1."""
    importance = None if rows.weights is None else rows.weights.astype(np.float64)
    per_class = method.class_importance
    if per_class is None:
        return importance
    position = np.searchsorted(method.classes, rows.labels[:, 0])
    of_class = per_class[np.minimum(position, len(per_class) - 1)]
    return of_class if importance is None else importance * of_class


def as_batch(rows: Rows, importance: NDArray[np.float64] | None) -> kernels.Batch:
    """Rows as the kernels take them."""
    return kernels.Batch(
        rows.indptr,
        rows.indices,
        _NO_VALUES if rows.values is None else rows.values,
        _NO_VALUES if rows.row_scale is None else rows.row_scale,
        np.ascontiguousarray(rows.labels.T),
        _NO_IMPORTANCE if importance is None else importance,
    )
