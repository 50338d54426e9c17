"""Merging what streams made of one state: the compiled form against the formula, and its limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.training_cases import UPDATES, make_data, method_of, state_bytes
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.config import TrainConfig
from dadagrad.problem import Problem
from dadagrad.training.coordinator.combine import Progress, StreamMerge
from dadagrad.training.coordinator.merge import merge
from dadagrad.training.state.compiled import State
from dadagrad.training.state.slices import StreamDelta

N = 12
DUAL = ("dual-averaging", "ftrl")
LAZY = "mirror-descent"
LABELS = ("binary", "multiclass", "coupled", "four labels")
"""Groups of one output, or of several; one group, or several."""
each_update = pytest.mark.parametrize("update", UPDATES)


def method_with(labels: str = "binary", **settings) -> Problem:
    given = {"batch_size": 1, "step_size": 0.4, "streams": 16, **settings}
    if labels == "coupled":
        labels, given["loss"] = "multiclass", "multiclass-hinge"
    return method_of(make_data((6, 5), labels=labels, n_features=N), TrainConfig(**given))


def some_state(problem: Problem, rng: np.random.Generator) -> State:
    state = State.zero(problem)
    state.accumulators[..., 0] = rng.normal(size=state.accumulators.shape[:3])
    state.accumulators[..., 1] = rng.uniform(0.1, 3.0, state.accumulators.shape[:3])
    state.intercept[..., 0] = rng.normal(size=state.intercept.shape[:3])
    state.intercept[..., 1] = rng.uniform(0.1, 3.0, state.intercept.shape[:3])
    state.t = 20.0
    if state.last_update.size:
        state.last_update[:] = rng.uniform(0.0, 20.0, state.last_update.shape)
    return state


def some_case(seed: int, labels: str = "binary", **settings) -> tuple[Any, Problem, State]:
    """A source of random numbers, a problem, and a state from which streams begin."""
    rng = np.random.default_rng(seed)
    problem = method_with(labels, **settings)
    return rng, problem, some_state(problem, rng)


def sums_of(state: State) -> np.ndarray:
    """(n_features, n_outputs, 2): the primary sums and those of squares; a copy."""
    return np.concatenate(state.accumulators, axis=1)


def walked(state: State, rng: np.random.Generator, ids=None) -> StreamDelta:
    """As a stream would leave `state`, having changed some features at random."""
    ids = np.sort(rng.choice(N, rng.integers(1, N), False)) if ids is None else np.asarray(ids)
    share = state.pull(ids)
    share.t = state.t + float(rng.integers(1, 9))
    changed = share.accumulators
    changed[..., 0] += rng.normal(size=changed.shape[:3])
    changed[..., 1] += rng.uniform(0.0, 1.0, changed.shape[:3])
    share.intercept[..., 0] += rng.normal()
    share.intercept[..., 1] += rng.uniform(0.1, 1.0)
    if share.last_update.size:
        share.last_update[:] = rng.uniform(state.t, share.t, share.last_update.shape)
    return StreamDelta(ids, share)


def weight_at(problem: Problem, primary: float, squares: float, t: float) -> float:
    """The weight of dual averaging and FTRL, as `dadagrad.optim.updates` has it."""
    config = problem.config
    over = max(abs(primary) - t * config.l1, 0.0)
    size = 0.4 * over / (problem.hyperparameters.delta + np.sqrt(squares) + 0.4 * t * config.l2)
    return -np.sign(primary) * size


def by_the_formula(problem: Problem, state: State, walks: list[StreamDelta], id_: int, output: int):
    """(primary, squares, own time) of a coordinate, before it is moved to the common time."""
    base = sums_of(state)[id_, output].astype(np.float64)
    changes = []
    for walk in walks:
        if id_ in walk.ids:
            place = int(np.searchsorted(walk.ids, id_))
            changes.append(sums_of(walk.state)[place, output].astype(np.float64) - base)
    begun, whole = state.t, sum(walk.state.t - state.t for walk in walks)
    if not changes:
        return *base, begun + whole
    of_u, of_g = np.array(changes).T
    c = of_g.sum() ** 2 / (of_g**2).sum()
    return base[0] + of_u.sum() / c, base[1] + of_g.sum() / c, begun + whole / c


@given(
    st.integers(0, 10_000),
    st.integers(2, 6),
    st.sampled_from(UPDATES),
    st.sampled_from(LABELS),
    st.sampled_from([0.0, 0.02]),
    st.sampled_from([0.0, 0.05]),
)
def test_each_weight_is_that_of_the_formula(seed, n_streams, update, labels, l1, l2):
    if update == LAZY:  # what it shrinks is told apart below
        l1 = l2 = 0.0
    rng, problem, state = some_case(seed, labels, update=update, l1=l1, l2=l2)
    before = state.copy()
    walks = [walked(state, rng) for _ in range(n_streams)]
    merge(problem, state, walks)
    assert state.t == before.t + sum(walk.state.t - before.t for walk in walks)
    found = state.weights(problem)
    rel = 1e-5 if update == LAZY else 1e-6
    for id_ in range(N):
        for output in range(problem.n_outputs):
            primary, squares, own = by_the_formula(problem, before, walks, id_, output)
            assert sums_of(state)[id_, output, 1] == pytest.approx(squares, rel=rel)
            wanted = primary if update == LAZY else weight_at(problem, primary, squares, own)
            assert found[id_, output] == pytest.approx(wanted, rel=2e-5, abs=2e-6)
            if not l1 and not l2:
                kept = sums_of(state)[id_, output, 0]
                assert kept == pytest.approx(primary, rel=rel, abs=1e-6)


@each_update
def test_the_intercept_is_a_coordinate_without_a_penalty(update):
    rng, problem, state = some_case(11, update=update, l1=0.3, l2=0.3)
    base = state.intercept[0, 0, 0].copy()
    walks = [walked(state, rng) for _ in range(4)]
    merge(problem, state, walks)
    changes = np.array([walk.state.intercept[0, 0, 0] - base for walk in walks])
    c = changes[:, 1].sum() ** 2 / (changes[:, 1] ** 2).sum()
    assert 1.0 < c < 4.0
    assert state.intercept[0, 0, 0] == pytest.approx(base + changes.sum(axis=0) / c, rel=1e-12)


@given(st.integers(0, 10_000), st.integers(2, 5))
def test_within_the_threshold_the_share_of_it_stays(seed, n_streams):
    """A weight of 0 is no nearer to leaving 0, and no farther from it, than at its own time."""
    rng, problem, state = some_case(seed, l1=10.0)
    before = state.copy()
    walks = [walked(state, rng) for _ in range(n_streams)]
    merge(problem, state, walks)
    assert not state.weights(problem).any()
    for id_ in range(N):
        primary, _, own = by_the_formula(problem, before, walks, id_, 0)
        if sum(id_ in walk.ids for walk in walks) > 1:
            assert sums_of(state)[id_, 0, 0] / state.t == pytest.approx(primary / own, rel=1e-5)


@each_update
@pytest.mark.parametrize("labels", LABELS)
def test_one_stream_alone_leaves_its_bits(update, labels):
    rng, problem, state = some_case(3, labels, update=update, l1=1e-2)
    walk = walked(state, rng)
    wanted = state.copy()
    wanted.push(walk.ids, walk.state)
    merge(problem, state, [walk])
    assert state_bytes(state) == state_bytes(wanted)


@pytest.mark.parametrize("update", DUAL)
def test_what_one_stream_saw_of_several_counts_in_full(update):
    rng, problem, state = some_case(5, update=update, l1=1e-2, l2=1e-2)
    walks = [walked(state, rng, ids) for ids in ([0, 3, 4], [1, 7], [2, 9, 11])]
    untouched = sums_of(state)[[5, 6, 8, 10]]
    merge(problem, state, walks)
    for walk in walks:
        assert (sums_of(state)[walk.ids] == sums_of(walk.state)).all()
    assert (sums_of(state)[[5, 6, 8, 10]] == untouched).all()


@each_update
@pytest.mark.parametrize("n_streams", [2, 7])
def test_streams_that_did_alike_count_once(update, n_streams):
    """And so does the time: a stream's own, as if it had been alone."""
    rng, problem, state = some_case(8, update=update, l1=1e-2, l2=1e-2)
    walk = walked(state, rng, np.arange(N))
    alone = state.copy()
    merge(problem, alone, [walk])
    merge(problem, state, [walk] * n_streams)
    assert state.weights(problem) == pytest.approx(alone.weights(problem), rel=1e-4, abs=1e-6)
    assert sums_of(state)[..., 1] == pytest.approx(sums_of(alone)[..., 1], rel=1e-6)
    assert state.intercepts(problem) == pytest.approx(alone.intercepts(problem), rel=1e-9)
    assert state.t == 20.0 + n_streams * (walk.state.t - 20.0)


@pytest.mark.parametrize("labels", LABELS)
def test_mirror_descent_shrinks_what_one_stream_saw_for_all_of_the_time(labels):
    rng, problem, state = some_case(13, labels, update=LAZY, l1=1e-2, l2=1e-2)
    walks = [walked(state, rng, ids) for ids in ([0, 3, 4], [1, 7])]
    merged = state.copy()
    merge(problem, merged, walks)
    whole = merged.t
    for walk in walks:
        wanted = replace(walk.state, t=whole).weights(problem)
        found = merged.pull(walk.ids).weights(problem)
        assert found == pytest.approx(wanted, rel=1e-5, abs=1e-7)
    rest = [2, 5, 6, 8, 9, 10, 11]
    wanted = replace(state.pull(np.array(rest)), t=whole).weights(problem)
    assert merged.pull(np.array(rest)).weights(problem) == pytest.approx(wanted)


def test_mirror_descent_shrinks_what_two_of_three_saw_for_half_of_the_rest():
    """As by the formula: its own time is T / c, of which each stream has been through its part."""
    rng, problem, state = some_case(15, update=LAZY, l1=1e-2, l2=1e-2)
    seen, other = walked(state, rng, [0, 3, 4]), walked(state, rng, [1, 7])
    other.state.t = state.t + 40.0
    merge(problem, state, [seen, other, seen])
    own = replace(seen.state, t=seen.state.t + 40.0 / 2)
    assert state.pull(seen.ids).weights(problem) == pytest.approx(own.weights(problem), rel=1e-5)


def test_mirror_descent_takes_no_walk_that_only_shrank_for_a_change():
    """A row that was right makes no gradient; its features have only been looked at."""
    rng, problem, state = some_case(19, update=LAZY, l1=1e-3)
    ids = np.arange(N)
    looked = walked(state, rng, ids)
    looked.state.accumulators[:] = state.accumulators
    looked.state.accumulators[0, ..., 0] = replace(state, t=looked.state.t).weights(problem)
    looked.state.last_update[:] = looked.state.t
    moved = walked(state, rng, ids)
    both = state.copy()
    merge(problem, both, [looked, moved])
    wanted = replace(moved.state, t=both.t).weights(problem)
    assert both.weights(problem) == pytest.approx(wanted, rel=1e-5)
    assert sums_of(both)[..., 1] == pytest.approx(sums_of(moved.state)[..., 1])


@pytest.mark.parametrize("update", ["dual-averaging", LAZY])
def test_where_squares_no_longer_grow_all_that_moved_count_alike(update):
    rng, problem, state = some_case(23, update=update)
    state.accumulators[..., 1] = 1e9
    before = state.copy()
    walks = [walked(state, rng, np.arange(N)) for _ in range(3)]
    for walk in walks:
        walk.state.accumulators[..., 1] = 1e9
    merge(problem, state, walks)
    moved = [sums_of(walk.state)[..., 0] - sums_of(before)[..., 0] for walk in walks]
    wanted = sums_of(before)[..., 0] + np.mean(moved, axis=0)
    assert sums_of(state)[..., 0] == pytest.approx(wanted, rel=1e-5, abs=1e-6)


@each_update
def test_a_walk_goes_on_from_where_it_was(update):
    """What a second slice left of a feature stands in the place of what the first did."""
    rng, _, state = some_case(31, update=update)
    first, second = walked(state, rng, [1, 4, 6]), walked(state, rng, [0, 4, 11])
    both = first.then(second)
    assert both.ids.tolist() == [0, 1, 4, 6, 11]
    wanted = state.copy()
    wanted.push(first.ids, first.state)
    wanted.push(second.ids, second.state)
    assert state_bytes(both.state) == state_bytes(wanted.pull(both.ids))
    nothing = walked(state, rng, np.zeros(0, np.int64))
    kept = first.then(nothing).state
    assert (kept.accumulators == first.state.accumulators).all()
    assert (kept.last_update == first.state.last_update).all()
    assert kept.t == nothing.state.t
    assert nothing.then(second).ids.tolist() == second.ids.tolist()


@each_update
def test_a_share_is_that_of_the_state_and_of_the_walk_so_far(update):
    rng, problem, state = some_case(37, update=update)
    walk = walked(state, rng, [1, 4, 6])
    now = state.copy()
    now.push(walk.ids, walk.state)
    vocabulary = np.array([0, 1, 3, 4, 5, 6, 10])
    stretch = Progress((), delta=walk)
    given = StreamMerge(problem, state).give(stretch, vocabulary)
    for positions in (None, np.array([0, 3, 5], np.int32)):
        ids = vocabulary if positions is None else vocabulary[positions]
        wanted = state_bytes(now.pull(ids))
        assert state_bytes(given.take(positions)) == wanted
        for sent in (given.at(None), given.at(positions)):
            assert state_bytes(sent.take(positions)) == wanted
