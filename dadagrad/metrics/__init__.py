"""Metrics: the norm in which an update measures how far it moves.

A metric is a frozen choice of formula; what it remembers of the stream is a dict of named arrays
that it makes (`init`) and grows (`add`), so that a checkpoint can store it.
"""

from __future__ import annotations

from collections.abc import Callable

from dadagrad.errors import InputError
from dadagrad.metrics.block import Block, Full
from dadagrad.metrics.diagonal import Diagonal
from dadagrad.metrics.identity import Identity
from dadagrad.metrics.metric import Arrays, Metric, Separable
from dadagrad.metrics.normalized import Normalized
from dadagrad.metrics.random_projection import AdaLowRank, RadaGrad
from dadagrad.metrics.sketch import CorrectedSketch, Sketch, SketchedNewton

__all__ = [
    "METRICS",
    "AdaLowRank",
    "Arrays",
    "Block",
    "CorrectedSketch",
    "Diagonal",
    "Full",
    "Identity",
    "Metric",
    "Normalized",
    "RadaGrad",
    "Separable",
    "Sketch",
    "SketchedNewton",
    "make_metric",
]

METRICS: dict[str, type[Metric]] = {
    metric.name: metric
    for metric in (
        Diagonal,
        Identity,
        Normalized,
        Full,
        Block,
        Sketch,
        CorrectedSketch,
        RadaGrad,
        AdaLowRank,
        SketchedNewton,
    )
}
"""Every metric by the name that configuration and the command line use."""


def make_metric(
    name: str,
    delta: float = 0.0,
    rank: int = 10,
    blocks: int | tuple[int, ...] | None = None,
    seed: int = 0,
) -> Metric:
    """The metric called `name`; it takes of the other settings what it has use for.

    Parameters
    ----------
    name : str
        One of `METRICS`.
    delta : float
        Added to the diagonal.
    rank : int
        Directions of a sketch or a random projection, at least 2.
    blocks : int or tuple of int
        The size of all blocks, or of each: needed by "block".
    seed : int
        Of a random projection.

    Raises
    ------
    InputError
        Says which setting cannot be, and why.
    """
    if name not in METRICS:
        raise InputError(f"metric {name!r} is not known; choose one of {', '.join(METRICS)}")
    makers: dict[str, Callable[[], Metric]] = {
        "diagonal": lambda: Diagonal(delta),
        "identity": lambda: Identity(),
        "normalized": lambda: Normalized(delta),
        "full": lambda: Full(delta),
        "block": lambda: Block(delta, _given(blocks)),
        "sketch": lambda: Sketch(delta, rank),
        "corrected-sketch": lambda: CorrectedSketch(rank, delta),
        "radagrad": lambda: RadaGrad(delta, rank, seed),
        "ada-lr": lambda: AdaLowRank(delta, rank, seed),
        "fd-son": lambda: SketchedNewton(delta, rank),
    }
    return makers[name]()


def _given(blocks: int | tuple[int, ...] | None) -> int | tuple[int, ...]:
    if blocks is None:
        raise InputError("the metric 'block' needs blocks: the number of features of each")
    return blocks
