"""What travels between the coordinator and the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from distributed.protocol.serialize import pickle_dumps, pickle_loads, register_serialization
from numpy.typing import NDArray

from dadagrad.training.plan import Piece
from dadagrad.training.protocol import Given, Gradient, Result, WalkedShare, Weights
from dadagrad.training.shares import StateShare
from dadagrad.training.touched import pack, unpack

Touched: TypeAlias = NDArray[Any] | None
"""What some rows touch, as `dadagrad.training.worker.touched` has it, packed."""


@dataclass(frozen=True, slots=True)
class Work:
    """Pieces of one step, to be worked on one after the other.

    Attributes
    ----------
    run : str
        The run that they belong to.
    pieces, given, ahead : tuples of the same length
        What is worked on, with what, and which rows of the same partition come later: it is told
        what they touch.
    skipped : mapping of str to str
        Partitions that the run skips, and why.
    """

    run: str
    pieces: tuple[Piece, ...]
    given: tuple[Given, ...]
    ahead: tuple[Piece | None, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Read:
    """Partitions were read by the worker at an address.

    `vocabularies` are their ids, `touched` what the first pieces of each touch, all packed.
    """

    worker: str
    vocabularies: tuple[NDArray[Any], ...]
    touched: tuple[tuple[Touched, ...], ...]
    skipped: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Worked:
    """All pieces of some work were worked on by the worker at an address.

    `touched` is what the rows ahead of each piece touch. Positions in it and in the results are
    packed, as they travel.
    """

    worker: str
    results: tuple[Result, ...]
    touched: tuple[Touched, ...]
    skipped: Mapping[str, str]


def _in_frames(message: Read | Worked) -> tuple[dict[str, Any], list[Any]]:
    """A message as Dask sends it from one worker to another, its arrays as they are in memory.

    Through the scheduler, Dask would copy them into the message, in the thread that a worker's
    loop has.
    """
    header, frames = pickle_dumps(message)
    return header, frames


for kind in (Read, Worked):
    register_serialization(kind, _in_frames, pickle_loads)


def packed(result: Result) -> Result:
    """The result of a piece with its positions as they travel."""
    if isinstance(result, Gradient | WalkedShare):
        return replace(result, positions=pack(result.positions))
    return result


def unpacked(result: Result) -> Result:
    """What `packed` was given."""
    if isinstance(result, Gradient | WalkedShare):
        return replace(result, positions=unpack(result.positions, np.int32))
    return result


def n_bytes(message: Given | Result) -> int:
    """What the arrays of a message take."""
    arrays: tuple[NDArray[Any], ...] = ()
    if isinstance(message, Weights):
        arrays = (message.weights, message.intercept)
    elif isinstance(message, Gradient):
        arrays = (message.positions, message.gradient, message.squares, message.intercept)
    elif isinstance(message, StateShare):
        arrays = tuple(message.share.arrays.values())
    elif isinstance(message, WalkedShare):
        arrays = (message.positions, *message.state.arrays.values())
    return sum(array.nbytes for array in arrays)
