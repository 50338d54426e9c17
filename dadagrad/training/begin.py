"""Plan and coordinator of a run, for either way of exchange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from dadagrad.config import TrainConfig
from dadagrad.method import Method
from dadagrad.training.coordinator import Coordinator
from dadagrad.training.local_steps import StreamCoordinator
from dadagrad.training.plan import CHUNK_ROWS, Plan, n_turns
from dadagrad.training.states import TrainingState
from dadagrad.training.streams import StreamPlan

AnyPlan: TypeAlias = Plan | StreamPlan
AnyCoordinator: TypeAlias = Coordinator | StreamCoordinator


def make_plan(
    config: TrainConfig,
    partition_rows: Sequence[int],
    *,
    passes: int | None = None,
    chunk_rows: int = CHUNK_ROWS,
) -> AnyPlan:
    """The plan of a run over partitions of so many rows.

    Parameters
    ----------
    config : TrainConfig
        Its batch size must be a number.
    partition_rows : sequence of int
    passes : int or None
        In the place of those of `config`.
    chunk_rows : int
        Rows that are walked at most between two looks at the outside world.
    """
    assert isinstance(config.batch_size, int)
    assert isinstance(config.delay, int)
    plan = Plan(
        tuple(partition_rows),
        config.batch_size,
        config.lanes,
        config.passes if passes is None else passes,
        config.shuffle,
        config.seed,
        chunk_rows,
        n_turns(config.lanes, config.delay),
    )
    if config.exchange == "local-steps":
        return StreamPlan(plan, config.streams, config.rounds)
    return plan


def online_plan(plan: AnyPlan) -> Plan:
    """`plan`, or where it is one of streams, that of one walk over the same rows."""
    return plan.walk if isinstance(plan, StreamPlan) else plan


def make_coordinator(
    method: Method, plan: AnyPlan, state: TrainingState, **options: Any
) -> AnyCoordinator:
    """The coordinator that carries out `plan`; `options` are those of its class."""
    if isinstance(plan, StreamPlan):
        pending = options.pop("pending", ())
        assert not pending, "local steps leave nothing under way"
        return StreamCoordinator(method, plan, state, **options)
    return Coordinator(method, plan, state, **options)
