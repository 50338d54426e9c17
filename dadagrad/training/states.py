"""The state of whatever algorithm trains: compiled, or as plainly as it is written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dadagrad.training.plain_state import PlainState
from dadagrad.training.state import State

if TYPE_CHECKING:
    from dadagrad.method import Method

TrainingState: TypeAlias = State | PlainState
"""Either has `t`, `arrays` and the same methods; the coordinator does not tell them apart."""


def zero_state(method: Method) -> TrainingState:
    """The state before the first step."""
    return State.zero(method) if method.compiled else PlainState.zero(method)


def zero_states(methods: list[Method]) -> list[TrainingState]:
    """As `zero_state`, for methods that differ in their step size alone.

    They share one block of memory: large ones come in large pages, with far fewer interrupts. What
    they walk on in turn stays close to the processor when it is the same for all.
    """
    states = [zero_state(method) for method in methods]
    first = states[0]
    if not isinstance(first, State):
        return states
    block = np.zeros((len(states), *first.accumulators.shape), np.float32)
    return [
        replace(state, accumulators=share, _memory=first._memory)
        for state, share in zip(states, block, strict=True)
        if isinstance(state, State)
    ]


def restore_state(method: Method, arrays: Mapping[str, NDArray[Any]], t: float) -> TrainingState:
    """The state that had these `arrays`; `KeyError` or `ValueError` if they are not of `method`."""
    state = zero_state(method)
    own = state.arrays
    if own.keys() != arrays.keys():
        raise ValueError(f"arrays {sorted(arrays)} where {sorted(own)} were expected")
    for name, array in own.items():
        given = arrays[name]
        if given.shape != array.shape or given.dtype != array.dtype:
            raise ValueError(
                f"{name} is {given.dtype}, shape {given.shape}, where {array.dtype}, shape "
                f"{array.shape} was expected"
            )
    return state.with_arrays(dict(arrays), t)
