"""State: shares taken out and put back, and the kernels it hands itself to."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from helpers.training_cases import UPDATES, make_data, method_of, state_bytes
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.config import TrainConfig
from dadagrad.problem import Problem, make_problem
from dadagrad.training.coordinator.combine import BatchStep, Progress
from dadagrad.training.state import zero_state
from dadagrad.training.state.compiled import State
from dadagrad.training.state.gradients import GradientSums
from dadagrad.training.state.reference import PlainState
from dadagrad.training.state.slices import Gradient
from dadagrad.training.worker.compute import as_batch

N_FEATURES = 60
each_update = pytest.mark.parametrize("update", UPDATES)
each_labels = pytest.mark.parametrize("labels", ["binary", "multiclass", "four labels", "coupled"])


def a_method(update: str, labels: str, accumulate: str = "batch") -> Problem:
    coupled = labels == "coupled"
    data = make_data((20,), labels="multiclass" if coupled else labels)
    config = TrainConfig(
        update=update, step_size=0.3, batch_size=8, l1=1e-3, accumulate=accumulate,
        loss="softmax" if coupled else "hinge",
    )  # fmt: skip
    return method_of(data, config)


def a_state(problem: Problem, seed: int = 0) -> State:
    rng = np.random.default_rng(seed)
    state = State.zero(problem)
    state.accumulators[:] = rng.exponential(size=state.accumulators.shape)
    state.accumulators[..., 0] -= 1.0
    state.intercept[:] = rng.exponential(size=state.intercept.shape)
    state.last_update[:] = rng.integers(0, 4, state.last_update.shape)
    state.t = 4.0
    return state


@each_update
@each_labels
def test_features_that_differ_in_anything_are_found(update, labels):
    problem = a_method(update, labels)
    state = a_state(problem)
    rng = np.random.default_rng(1)
    assert state.differences(state.copy()).tolist() == []
    for name in ("accumulators", "last_update") if state.last_update.size else ("accumulators",):
        other = state.copy()
        places = rng.choice(N_FEATURES, 7, replace=False)
        for place in places:
            own = getattr(other, name)[rng.integers(problem.n_groups)]
            own[(place, *(rng.integers(size) for size in own.shape[1:]))] += 1.0
        assert state.differences(other).tolist() == sorted(places)


@each_update
@each_labels
def test_what_is_pulled_is_a_copy_and_pushing_it_back_changes_nothing_else(update, labels):
    problem = a_method(update, labels)
    state = a_state(problem)
    before = state_bytes(state)
    ids = np.array([3, 4, 17, 59])
    share = state.pull(ids)
    np.testing.assert_array_equal(share.accumulators, state.accumulators[:, ids])
    share.accumulators += 1.0
    share.intercept += 1.0
    share.last_update += 1.0
    assert state_bytes(state) == before
    share.t = 5.0
    others = np.setdiff1d(np.arange(N_FEATURES), ids)
    kept = state.accumulators[:, others].copy()
    state.push(ids, share)
    np.testing.assert_array_equal(state.accumulators[:, others], kept)
    np.testing.assert_array_equal(state.accumulators[:, ids], share.accumulators)
    np.testing.assert_array_equal(state.intercept, share.intercept)
    assert state.t == 5.0
    # Going on with the share must not reach into the state.
    share.intercept += 1.0
    assert not np.array_equal(state.intercept, share.intercept)


@each_update
@each_labels
def test_a_copy_shares_nothing(update, labels):
    state = a_state(a_method(update, labels))
    copy = state.copy()
    assert state_bytes(copy) == state_bytes(state)
    for array in (copy.accumulators, copy.last_update, copy.intercept):
        array += 1.0
    assert state_bytes(a_state(a_method(update, labels))) == state_bytes(state)


@each_update
@each_labels
def test_weights_of_a_share_are_the_share_of_the_weights(update, labels):
    problem = a_method(update, labels)
    state = a_state(problem)
    vocabulary = np.array([0, 5, 8, 31, 58])
    lookup = BatchStep(problem, state).give(Progress(()), vocabulary)
    whole = state.weights(problem)[vocabulary]
    sent = lookup.at(None)
    assert not sent.partial
    for given_weights in (lookup, sent):
        np.testing.assert_array_equal(given_weights.take(None).weights, whole)
        some = given_weights.take(np.array([1, 4], np.int32)).weights
        np.testing.assert_array_equal(some, whole[[1, 4]])
        assert given_weights.take(None).weights.dtype == np.float32
    touched = np.array([1, 3, 4], np.int32)
    some = lookup.at(touched)
    assert some.partial
    np.testing.assert_array_equal(some.take(touched).weights, whole[[1, 3, 4]])
    assert some.take(touched[:0]).weights.shape == (
        0,
        problem.n_outputs,
    )  # of a partition skipped since


@each_update
@each_labels
def test_a_walk_takes_out_its_share_and_puts_it_back(update, labels):
    """As if the rows had been over all features, whatever the memory for shares held before."""
    problem = a_method(update, labels)
    data = make_data((20, 35, 9), labels="binary" if labels == "binary" else "multiclass")
    state, whole = a_state(problem), a_state(problem)
    for number in (0, 2, 1):
        rows = data.read(number)
        assert rows.n_local < N_FEATURES
        wide = replace(
            rows,
            vocabulary=np.arange(N_FEATURES),
            indices=rows.vocabulary[rows.indices].astype(np.int32),
        )
        found, expected = np.full((2, problem.n_outputs, rows.n_rows), np.nan)
        for group in range(problem.n_groups):
            outputs = slice(group * problem.group_width, (group + 1) * problem.group_width)
            after = [
                walked._learn_group(problem, group, ids, as_batch(part, None), margins[outputs])
                for walked, ids, part, margins in (
                    (state, rows.vocabulary, rows, found),
                    (whole, wide.vocabulary, wide, expected),
                )
            ]
            assert after == [4.0 + rows.n_rows] * 2
            for arena in state._arenas:
                arena.empty("accumulators", 2 * N_FEATURES, np.float32).fill(np.nan)
        np.testing.assert_array_equal(found, expected)
        assert state_bytes(state) == state_bytes(whole)
    assert len(list(state._arenas)) == 1


@each_update
def test_nothing_seen_weighs_nothing(update):
    problem = a_method(update, "binary")
    state = State.zero(problem)
    assert not state.weights(problem).any()
    assert not state.intercepts(problem).any()


def a_gradient(problem: Problem, rng: np.random.Generator, n_features: int) -> Gradient:
    shape = (n_features, problem.n_outputs)
    squares = np.zeros((0, 0), np.float32)
    if problem.config.accumulate == "row":
        squares = rng.random(shape).astype(np.float32)
    gradient = rng.normal(size=shape).astype(np.float32)
    return Gradient(gradient, squares, rng.normal(size=(2, problem.n_outputs)))


@given(
    seed=st.integers(0, 2**32 - 1),
    n_slices=st.integers(1, 5),
    accumulate=st.sampled_from(["batch", "row"]),
    labels=st.sampled_from(["binary", "multiclass"]),
)
def test_sums_of_pieces_are_taken_in_their_order_in_64_bits(seed, n_slices, accumulate, labels):
    rng = np.random.default_rng(seed)
    problem = a_method("dual-averaging", labels, accumulate)
    sums = GradientSums(problem)
    for _ in range(2):  # the second time, nothing may be left of the first
        features = [
            np.sort(rng.choice(N_FEATURES, rng.integers(0, N_FEATURES), False))
            for _ in range(n_slices)
        ]
        gradients = [a_gradient(problem, rng, len(ids)) for ids in features]
        total = sums.total(features, gradients)
        wanted = np.zeros((2, N_FEATURES, problem.n_outputs))
        touched = np.zeros(N_FEATURES, bool)
        intercept = np.zeros((2, problem.n_outputs))
        for ids, result in zip(features, gradients, strict=True):
            touched[ids] = True
            wanted[0, ids] += result.gradient
            if accumulate == "row":
                wanted[1, ids] += result.squares
            intercept += result.intercept
        assert len(set(total.ids.tolist())) == len(total.ids) == touched.sum()
        assert touched[total.ids].all()
        np.testing.assert_array_equal(total.gradient, wanted[0, total.ids])
        np.testing.assert_array_equal(total.intercept, intercept[:1])
        if accumulate == "row":
            np.testing.assert_array_equal(total.squares, wanted[1, total.ids])
            np.testing.assert_array_equal(total.intercept_squares, intercept[1:])
        else:
            assert total.squares.size == total.intercept_squares.size == 0


def test_threads_that_ask_at_once_have_the_weights_found_once(monkeypatch):
    """All slices of a step do; in a metric that is not diagonal this is most of the work."""
    config = TrainConfig(preconditioner="full", step_size=0.1, batch_size=10, regularizer="simplex")
    problem = make_problem(config, make_data().schema, 10)
    state = zero_state(problem)
    find, found = PlainState._all_weights, []

    def slowly(self, *arguments):
        found.append(1)
        time.sleep(0.05)
        return find(self, *arguments)

    monkeypatch.setattr(PlainState, "_all_weights", slowly)
    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda _: state.weights_at(problem, np.arange(5)), range(4)))
    assert len(found) == 1
    assert all((weights == taken[0]).all() for weights in taken)
