"""The merge of streams that each learned from rows of their own, starting from the same state.

For one coordinate, let stream k have changed the primary sum by du_k and the sum of squared
gradients by dG_k. Its participation is

    c = (sum_k dG_k)^2 / sum_k dG_k^2,

1 if one stream saw it, K if all K saw as much of it. Both changes are divided by it:

    u <- u + sum_k du_k / c,        G <- G + sum_k dG_k / c.

A change of one stream alone counts in full, as if all rows had been learned from one after the
other. A change that all streams made counts once: each has already gone as far as its rows asked
for, and the sum would overshoot K times. (Where G is so large that no change of it shows, steps are
so short that nothing overshoots, and c is 1.) So each coordinate has seen c times fewer rows, and
its own time, which a penalty is proportional to, is t_c = t + T / c, where T is the importance of
all rows of the round. The state has one t for all coordinates, t + T after the round. Therefore the
primary sum is moved so that the weight at t + T is the weight meant for t_c:

    |u| <- |u| + (T - T / c) l1                        with an l1 penalty, beyond its threshold,
    |u| <- |u| (t + T) / t_c                                                     within.

(Without a penalty nothing moves. At t + T alone, common features would pay c times their penalty,
and vanish long before rare ones.)

Features that most rows have move by the mean of the streams: c times fewer steps are taken of them,
each sqrt(c) times as long, because G grows c times slower. So they go sqrt(c) times less far than
with one stream, and do not arrive where the loss is flat. Without a penalty, the primary sum
therefore has a momentum v. It makes sqrt(c) times as much of a change that all rounds repeat, and
nothing of one that the next round takes back:

    b = 1 - 1 / sqrt(c),        v <- b v + sum_k du_k / c,        u <- u + sum_k du_k / c + b v.

(Nesterov's; DiLoCo, 2023, has it with the same b for all coordinates. Features of one stream have
none.) Where the change of a round has not the sign of v, b is 0.7 times that: steps that are too
long for the mean of many streams would swing further with each round. (O'Donoghue and Candes, 2015,
forget the momentum then, which costs more than it saves where the changes of rounds are noise.)

In mirror descent the primary value is the weight itself. Each stream has shrunk it over its own
rows; what is then missing of T / c is shrunk after the merge. The corrected sum of FTRL-proximal
merges as a gradient sum does. The intercept is a coordinate without a penalty.

The average of the weights counts the steps of all streams as if they were taken side by side, over
the time from t to t' = t + T: a stream goes its way T / T_k times slower. Let w_k be the weight at
the end of stream k, at its time t_k = t + T_k, and m_k its mean over the steps of that stream. The
mean over the round is as much behind the merged weight w' as the streams say, and

    m = w' - sum_k (w_k - m_k) / c,        average' = (t^2 average + (t'^2 - t^2) m) / t'^2.

In the sums A that average w - A / t^2 is made of (see `dadagrad.optim.updates`), this is

    A' = A + t^2 (w' - w) + sum_k (dA_k - t^2 dw_k) (t'^2 - t^2) / (t_k^2 - t^2) / c.

Outputs are independent here, coupled by the loss or not, and so are features: the features are cut
into shards, which any threads may merge. Streams are added in their order, in float64. The bits
depend on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dadagrad.kernels.id_sets import common
from dadagrad.kernels.id_sets import unite as unite_ids
from dadagrad.kernels.training import merge_streams, settle_streams
from dadagrad.problem import Problem
from dadagrad.training.state.base import intercepts
from dadagrad.training.state.compiled import State
from dadagrad.training.state.slices import FeatureSlice, SharedFeatures

Learned: TypeAlias = FeatureSlice[State]
"""State of the features that a stream changed in a round, with its intercept and its t."""

Shard: TypeAlias = list[slice]
"""The places of some neighbouring features in what each stream learned."""

SHARD_ENTRIES = 1 << 15
"""Changed features of a shard, counted once for each stream."""

MAX_SHARDS = 256


def shards(learned: Sequence[Learned]) -> list[Shard]:
    """Cut what several streams learned into shards of the features, which are merged apart."""
    n_entries = sum(len(each.ids) for each in learned)
    if not n_entries:
        return []
    n_shards = min(MAX_SHARDS, -(-n_entries // SHARD_ENTRIES))
    longest = max((each.ids for each in learned), key=len)
    edges = longest[np.arange(1, n_shards) * len(longest) // n_shards]
    cuts = [[0, *np.searchsorted(each.ids, edges).tolist(), len(each.ids)] for each in learned]
    return [[slice(cut[number], cut[number + 1]) for cut in cuts] for number in range(n_shards)]


def merge_shard(problem: Problem, state: State, learned: Sequence[Learned], shard: Shard) -> None:
    """Merge what streams learned of a shard; `state.t` stays at the begin of the round.

    A stream alone leaves its bits.
    """
    if len(learned) == 1:
        features, places = learned[0], np.arange(shard[0].start, shard[0].stop)
        state.push_features(features.ids[shard[0]], features.content.pull(places))
        return
    parts = list(zip(learned, shard, strict=True))

    def joined(name: str, group: int) -> NDArray[Any]:
        arrays = [getattr(each.content, name)[group, entries] for each, entries in parts]
        return np.concatenate(arrays)

    times = np.array([each.content.t for each in learned])
    lazy = problem.config.update.shrinks_lazily
    for group, base in enumerate(state.accumulators):
        ids = np.concatenate([each.ids[entries] for each, entries in parts])
        ends = np.cumsum([entries.stop - entries.start for entries in shard])
        accumulators, averages = joined("accumulators", group), joined("averages", group)
        shared = times, problem.of_group(group)[1], state.t
        if lazy:
            updates, last_update = joined("last_update", group), state.last_update[group]
            ends = settle_streams(
                base, last_update, ids, accumulators, averages, updates, ends, *shared
            )
            ids, accumulators, averages = (
                each[: ends[-1]] for each in (ids, accumulators, averages)
            )
            last_update[ids] = state.t + (times - state.t).sum()
        merge_streams(
            base, ids, accumulators, ends, *shared, lazy,
            state.averages[group], averages, state.momentum[group],
        )  # fmt: skip


def merge_common(problem: Problem, state: State, learned: Sequence[State]) -> None:
    """Merge the intercepts and the times that streams reached, after all features.

    A stream alone leaves its bits.
    """
    if len(learned) == 1:
        state.intercept, state.t = learned[0].intercept, learned[0].t
    if len(learned) < 2:
        return
    base, begun = state.intercept, state.t
    end = begun + sum(each.t - begun for each in learned)
    changes = np.stack([each.intercept for each in learned]) - base
    # In the order of the streams: the order in which NumPy adds depends on the number of outputs.
    gathered = reduce(np.add, changes)
    squared = reduce(np.add, np.square(changes[..., 1]))
    participation = np.ones_like(squared)
    np.divide(gathered[..., 1] ** 2, squared, out=participation, where=squared > 0.0)
    state.intercept = base + gathered / participation[..., None]
    if problem.averages:
        weight = intercepts(problem, base, begun)
        lag = begun**2 * (intercepts(problem, state.intercept, end) - weight)
        for each, change in zip(learned, changes[..., 2], strict=True):
            if each.t > begun:
                slower = (end**2 - begun**2) / (each.t**2 - begun**2)
                moved = intercepts(problem, each.intercept, each.t) - weight
                lag_of_stream = change.ravel() - begun**2 * moved
                lag += slower * lag_of_stream / participation.ravel()
        state.intercept[..., 2] = base[..., 2] + lag.reshape(base[..., 2].shape)
    state.t = end


def unite(before: Learned | None, after: Learned) -> Learned:
    """State after two slices of a stream; where both touched a feature, `after` holds."""
    if before is None:
        return after
    ids, *places = unite_ids(before.ids, after.ids)
    arrays = {}
    for name, array in after.content.feature_arrays.items():
        is_kept = array.shape[1] or getattr(before.content, name).shape[1]
        shape = (len(array), len(ids) if is_kept else 0, *array.shape[2:])
        arrays[name] = np.empty(shape, array.dtype)
    state = after.content.with_features(arrays)
    for learned, place in zip((before, after), places, strict=True):
        state.push(place, learned.content)
    return FeatureSlice(ids, state)


def features_after(
    before: Learned | None, pull: Callable[[NDArray[np.int64]], State]
) -> SharedFeatures:
    """The features that `pull` copies, some of them as the slices `before` left them."""

    def pull_latest(ids: NDArray[np.int64]) -> State:
        state = pull(ids)
        if before is not None:
            places, positions = common(before.ids, ids)
            state.push(positions, before.content.pull(places))
        return state

    return SharedFeatures(pull_latest)
