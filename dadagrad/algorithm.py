"""From a configuration to the algorithm that it names, or to the reason why there is none.

Three kinds of algorithm share one training loop:

* compiled: an update in the diagonal metric with l1, l2 and a box (`dadagrad.kernels`), for data
  of any size;
* plain: an update in any metric with any regularizer or domain (`dadagrad.updates`), in NumPy;
* a learner (`dadagrad.learners`), which goes row by row and is no gradient step in a metric.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from dadagrad.errors import InputError
from dadagrad.learners import LEARNERS, Learner, make_learner
from dadagrad.metrics import make_metric
from dadagrad.regularizers import Regularizer, make_regularizer
from dadagrad.updates import UPDATES, Update, make_update

if TYPE_CHECKING:
    from dadagrad.config import TrainConfig
    from dadagrad.losses import Loss

ROW_LEARNERS = tuple(name for name in LEARNERS if name != "coin")
"""Updates that are learners; "coin" is what ``step_size="free"`` stands for."""
UPDATE_NAMES = (*UPDATES, *ROW_LEARNERS)

_WITH_STEP_SIZE = ("eg", "eg-signed")
_WITH_RADIUS = ("eg", "eg-signed", "strongly-convex", "strongly-convex-simplex")


def learner_name(config: TrainConfig) -> str | None:
    """The learner that the configuration names, or None where it names an update."""
    if config.step_size == "free":
        return "coin"
    return None if config.update in UPDATES else config.update


def is_compiled(config: TrainConfig) -> bool:
    """Whether compiled kernels run the configuration."""
    return (
        learner_name(config) is None
        and config.metric == "diagonal"
        and config.regularizer is None
        and config.domain is None
        and not config.average
    )


def has_step_size(config: TrainConfig) -> bool:
    """Whether the algorithm has a step size, that "auto" could choose."""
    learner = learner_name(config)
    return learner is None or learner in _WITH_STEP_SIZE


def check_algorithm(config: TrainConfig) -> None:
    """Refuse settings that cannot be combined; `InputError` says why and what to do."""
    learner = learner_name(config)
    if learner is None:
        make_metric(config.metric, config.delta, config.rank, config.blocks, config.seed)
        _regularizer(config)
        if config.squares == "example" and not is_compiled(config):
            raise InputError(
                "squares 'example' is for the diagonal metric with l1, l2 and a box, without "
                "averaging; leave it out, or change the rest"
            )
        return
    _check_learner(config, learner)


def _check_learner(config: TrainConfig, learner: str) -> None:
    what = "step_size 'free'" if learner == "coin" else f"update {learner!r}"
    if learner == "coin" and config.update != "dual-averaging":
        raise InputError(
            f"step_size 'free' is an algorithm of its own and cannot be combined with update "
            f"{config.update!r}; leave out the update, or give a step size"
        )
    if config.batch_size not in (1, "auto"):
        raise InputError(
            f"{what} learns row by row, so batch_size {config.batch_size} is not possible; leave "
            "it out"
        )
    if config.delay not in (0, "auto"):
        raise InputError(
            f"{what} learns row by row, each from where the one before has left it, so delay="
            f"{config.delay} is not possible; leave it out"
        )
    unused = ["metric", "regularizer", "domain", "l1", "l2", "low", "high", "squares"]
    if learner not in _WITH_RADIUS:
        unused.append("radius")
    if learner != "strongly-convex-simplex":
        unused.append("floor")
    usual = {field.name: field.default for field in fields(config)}
    for name in unused:
        given = getattr(config, name)
        if given != usual[name]:
            raise InputError(
                f"{what} has no use for {name}={given!r}: it is no step in a metric with a "
                f"regularizer; leave out {name}, or choose one of the updates {', '.join(UPDATES)}"
            )


def check_exchange(config: TrainConfig) -> None:
    """Refuse settings that do not go with the way of exchange; `InputError` says why."""
    usual = {field.name: field.default for field in fields(config)}
    if config.exchange != "local-steps":
        for name in ("streams", "rounds"):
            given = getattr(config, name)
            if given != usual[name]:
                raise InputError(
                    f"{name}={given!r} is for exchange 'local-steps', whose streams are merged "
                    f"now and then; leave out {name}, or choose that exchange"
                )
        return
    if learner_name(config) is not None:
        raise InputError(
            f"{config.update if config.step_size != 'free' else 'step_size free'!r} learns row by "
            "row from all that came before, and streams that walk apart have no sums that could "
            f"be merged; leave out exchange, or choose one of the updates {', '.join(UPDATES)}"
        )
    if not is_compiled(config):
        raise InputError(
            "exchange 'local-steps' merges the sums of each coordinate by how much each stream saw "
            "of it, which is for the diagonal metric with l1, l2 and a box, without averaging; "
            "leave out exchange, or change the rest"
        )
    if config.batch_size not in (1, "auto"):
        raise InputError(
            f"with exchange 'local-steps' each row is a step of its stream, so batch_size "
            f"{config.batch_size} is not possible; leave it out, or leave out exchange"
        )
    if config.delay not in (0, "auto"):
        raise InputError(
            f"delay={config.delay} lets batches be under way while others make their steps, and "
            "streams of local steps wait for nothing between two merges; leave out delay, or "
            "leave out exchange"
        )


def make_algorithm(config: TrainConfig, step_size: float, loss: Loss) -> Update | Learner:
    """The plain algorithm of `config`; `InputError` where the loss does not suit it."""
    learner = learner_name(config)
    if learner is not None:
        return make_learner(
            learner,
            loss,
            aggressiveness=config.aggressiveness,
            epsilon=config.insensitivity,
            r=config.confidence,
            step_size=step_size,
            radius=config.radius,
            sigma=config.strong_convexity,
            floor=config.floor,
        )
    metric = make_metric(config.metric, config.delta, config.rank, config.blocks, config.seed)
    return make_update(config.update, step_size, metric, _regularizer(config))


def _regularizer(config: TrainConfig) -> Regularizer:
    return make_regularizer(
        l1=config.l1,
        l2=config.l2,
        low=config.low,
        high=config.high,
        regularizer=config.regularizer,
        strength=config.strength,
        domain=config.domain,
        radius=config.radius,
        floor=config.floor,
        blocks=config.blocks,
    )
