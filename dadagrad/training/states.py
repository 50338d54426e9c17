"""The state of whatever algorithm trains: compiled, or as plainly as it is written down."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dadagrad.training.plain_state import PlainState
from dadagrad.training.state import State

if TYPE_CHECKING:
    from dadagrad.method import Method

CHUNK_WEIGHTS = 1 << 20
"""Weights of all features that are made at a time."""

TrainingState: TypeAlias = State | PlainState
"""Either has `t`, `arrays` and the same methods; the coordinator does not tell them apart."""


def zero_state(method: Method) -> TrainingState:
    """The state before the first step."""
    return State.zero(method) if method.compiled else PlainState.zero(method)


def state_bytes(method: Method) -> int:
    """What all arrays of the state of `method` take together, found without making them."""
    shapes = State.shapes(method) if method.compiled else PlainState.shapes(method)
    return sum(math.prod(shape) * size for shape, size in shapes.values())


def feature_bytes(method: Method) -> int:
    """What the compiled state of one feature takes, of all outputs."""
    lazy = method.config.update == "mirror-descent"
    return 8 * method.n_outputs + 8 * lazy * method.n_bundles


def nonzero_weights(
    method: Method, state: TrainingState
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The features that have a weight other than 0 at t, (k,), and their (k, n_outputs) weights.

    Beside them it takes little memory: there may be many features, and most weigh 0.
    """
    stride = max(1, CHUNK_WEIGHTS // method.n_outputs)
    if isinstance(state, PlainState):
        stride = max(1, method.n_features)
    ids = np.empty(0, np.int64)
    weights = np.empty((0, method.n_outputs), np.float32)
    for start in range(0, method.n_features, stride):
        some = state if isinstance(state, PlainState) else state.part(start, start + stride)
        found = some.weights(method)
        kept = np.flatnonzero((found != 0.0).any(axis=1))
        n_before = len(ids)
        # In place: large arrays are not copied, their pages only get other addresses.
        ids.resize(n_before + len(kept), refcheck=False)
        weights.resize((len(ids), method.n_outputs), refcheck=False)
        np.add(kept, start, out=ids[n_before:])
        weights[n_before:] = found[kept]
    return ids, weights


def restore_state(method: Method, arrays: Mapping[str, NDArray[Any]], t: float) -> TrainingState:
    """The state that had these `arrays`; `KeyError` or `ValueError` if they are not of `method`."""
    state = zero_state(method)
    own = state.arrays
    check_names(arrays, own.keys())
    for name, array in own.items():
        check_array(name, arrays[name], array.dtype, array.shape)
    return state.with_arrays(dict(arrays), t)


def check_names(arrays: Mapping[str, NDArray[Any]], expected: Set[str]) -> None:
    """`ValueError` unless `arrays` are those that are `expected`."""
    if arrays.keys() != expected:
        raise ValueError(f"arrays {sorted(arrays)} where {sorted(expected)} were expected")


def check_array(
    name: str, given: NDArray[Any], dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    """`ValueError` unless `given` is of that type and shape."""
    if given.shape != shape or given.dtype != dtype:
        raise ValueError(
            f"{name} is {given.dtype}, shape {given.shape}, where {dtype}, shape {shape} was "
            "expected"
        )
