"""Options of ``dadagrad train`` that choose among the algorithms of `dadagrad.algorithm`.

The names are repeated here rather than imported, so that ``--help`` does not wait for NumPy; a
test holds them to those of the library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])

UPDATES = (
    "dual-averaging", "mirror-descent", "ftrl", "pa", "pa-1", "pa-2", "arow", "arow-full", "eg",
    "eg-signed", "strongly-convex", "strongly-convex-simplex",
)  # fmt: skip
METRICS = (
    "diagonal", "identity", "normalized", "full", "block", "sketch", "corrected-sketch", "radagrad",
    "ada-lr", "fd-son",
)  # fmt: skip
REGULARIZERS = ("l2-norm", "l-infinity", "group", "mixed-l2", "mixed-l-infinity")
DOMAINS = ("l1-ball", "l2-ball", "simplex", "floor-simplex")


def _blocks(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> int | tuple[int, ...] | None:
    """``N``, or ``N,N,...``."""
    if value is None:
        return None
    try:
        sizes = tuple(int(size) for size in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no whole number, nor several like 3,3,4") from None
    return sizes[0] if len(sizes) == 1 else sizes


_OPTIONS = (
    click.option(
        "--update",
        type=click.Choice(UPDATES),
        help="The first three step in a metric; the others learn row by row.  "
        "[default: dual-averaging]",
    ),
    click.option(
        "--metric",
        type=click.Choice(METRICS),
        help="What steps are measured in. Only the diagonal one is compiled.  [default: diagonal]",
    ),
    click.option(
        "--rank", type=int, help="Directions of a sketch or a random projection.  [default: 10]"
    ),
    click.option(
        "--blocks",
        callback=_blocks,
        metavar="N|N,N,...",
        help="Features in each block, for --metric block and --regularizer group.",
    ),
    click.option(
        "--regularizer",
        type=click.Choice(REGULARIZERS),
        help="A norm of the weights, besides --l1 and --l2; needs --strength.",
    ),
    click.option("--strength", type=float, help="Of --regularizer, per step."),
    click.option(
        "--domain", type=click.Choice(DOMAINS), help="What holds the weights of each output."
    ),
    click.option(
        "--radius", type=float, help="Of --domain, and of --update eg and strongly-convex."
    ),
    click.option("--floor", type=float, help="Least weight in --domain floor-simplex."),
    click.option(
        "--average/--no-average",
        default=None,
        help="Take the mean of the weights that all steps met.  [default: no-average]",
    ),
    click.option("--aggressiveness", type=float, help="C of --update pa-1 and pa-2.  [default: 1]"),
    click.option(
        "--insensitivity",
        type=float,
        help="epsilon of --update pa, pa-1 and pa-2 in a regression.  [default: 0.1]",
    ),
    click.option(
        "--confidence", type=float, help="r of --update arow: larger is slower.  [default: 1]"
    ),
    click.option(
        "--strong-convexity",
        type=float,
        help="sigma of --update strongly-convex.  [default: 1e-4]",
    ),
)


def algorithm_options(command: Command) -> Command:
    """Give `command` the options of this module."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
