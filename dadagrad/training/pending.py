"""What a checkpoint keeps of the rounds that were under way, of which a delay makes some.

Their gradients were taken at weights that are gone, so that they cannot be computed again. Each is
kept as what its step takes: the sums over its rows, as arrays beside those of the state, and the
tallies of its pieces, in plain JSON. So are the rounds that have made their steps since: what is
under way has not seen them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dadagrad.training.gradient_sums import GradientSum, RoundSum
from dadagrad.training.states import check_array, check_names
from dadagrad.training.tally import Tally

if TYPE_CHECKING:
    from dadagrad.method import Method

PREFIX = "pending."
_NAMES = tuple(field.name for field in fields(GradientSum))


def pending_arrays(pending: Sequence[RoundSum]) -> dict[str, NDArray[Any]]:
    """The arrays of rounds, by names that no array of a state has."""
    return {
        f"{PREFIX}{number}.{name}": getattr(done.total, name)
        for number, done in enumerate(pending)
        for name in _NAMES
    }


def pending_facts(pending: Sequence[RoundSum]) -> list[dict[str, Any]]:
    """What else there is to each round, as plain JSON types."""
    return [
        {"stepped": done.stepped, "tallies": [tally.to_json() for tally in done.tallies]}
        for done in pending
    ]


def split_arrays(
    arrays: Mapping[str, NDArray[Any]],
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """The arrays of a checkpoint: of the state, and of the rounds."""
    state = {name: array for name, array in arrays.items() if not name.startswith(PREFIX)}
    return state, {name: array for name, array in arrays.items() if name.startswith(PREFIX)}


def restore_pending(
    method: Method, arrays: Mapping[str, NDArray[Any]], facts: Sequence[dict[str, Any]]
) -> tuple[RoundSum, ...]:
    """The rounds that `arrays` and `facts` were of.

    Raises `KeyError`, `TypeError` or `ValueError` if they are not of `method`.
    """
    stepped = [fact["stepped"] for fact in facts]
    n_stepped, n_rounds = stepped.count(True), len(stepped)
    if stepped != [True] * n_stepped + [False] * (n_rounds - n_stepped):
        raise ValueError(f"rounds have made their steps out of order: {stepped}")
    if max(n_stepped, n_rounds - n_stepped) > method.delay:
        raise ValueError(
            f"{n_rounds - n_stepped} rounds were under way and {n_stepped} before them kept, where "
            f"delay={method.delay} allows fewer"
        )
    expected = {f"{PREFIX}{number}.{name}" for number in range(n_rounds) for name in _NAMES}
    check_names(arrays, expected)
    return tuple(
        RoundSum(
            _total(method, {name: arrays[f"{PREFIX}{number}.{name}"] for name in _NAMES}, number),
            tuple(_tally(method, plain) for plain in fact["tallies"]),
            fact["stepped"],
        )
        for number, fact in enumerate(facts)
    )


def _total(method: Method, arrays: dict[str, NDArray[Any]], number: int) -> GradientSum:
    ids = arrays["ids"]
    nothing, one, each = (0, 0), (1, method.n_outputs), (len(ids), method.n_outputs)
    with_squares = method.config.squares == "example"
    shapes = {
        "ids": (len(ids),),
        "gradient": each,
        "squares": each if with_squares else nothing,
        "intercept": one,
        "intercept_squares": one if with_squares else nothing,
    }
    for name, array in arrays.items():
        dtype = np.dtype(np.int64 if name == "ids" else np.float64)
        check_array(f"{name} of pending round {number}", array, dtype, shapes[name])
        if not np.isfinite(array).all():
            raise ValueError(f"{name} of pending round {number} is not finite")
    if (ids[1:] <= ids[:-1]).any():
        raise ValueError(f"ids of pending round {number} are not increasing")
    if len(ids) and not 0 <= ids[0] <= ids[-1] < method.n_features:
        raise ValueError(
            f"ids of pending round {number} are not all from 0 to {method.n_features - 1}"
        )
    return GradientSum(**arrays)


def _tally(method: Method, plain: dict[str, Any]) -> Tally:
    tally = Tally.from_json(plain)
    if tally.loss.shape != (method.n_settings,) or tally.mistakes.shape != (method.n_settings,):
        raise ValueError(f"a tally of a pending round is not of {method.n_settings} setting(s)")
    return tally
