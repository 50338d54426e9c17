"""State: shares taken out and put back, and the kernels it hands itself to."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_cases import UPDATES, make_data, method_of, state_bytes

from dadagrad.config import TrainConfig
from dadagrad.method import Method, make_method
from dadagrad.training.gradient_sums import GradientSums
from dadagrad.training.plain_state import PlainState
from dadagrad.training.protocol import Gradient, Weights, WeightsInState
from dadagrad.training.state import State
from dadagrad.training.states import zero_state
from dadagrad.training.tally import Tally
from dadagrad.training.worker import as_batch

N_FEATURES = 60
each_update = pytest.mark.parametrize("update", UPDATES)
each_labels = pytest.mark.parametrize("labels", ["binary", "multiclass", "four labels", "coupled"])


def a_method(update: str, labels: str, squares: str = "batch") -> Method:
    coupled = labels == "coupled"
    data = make_data((20,), labels="multiclass" if coupled else labels)
    config = TrainConfig(
        update=update, step_size=0.3, batch_size=8, l1=1e-3, squares=squares,
        loss="softmax" if coupled else "hinge",
    )  # fmt: skip
    return method_of(data, config)


def a_state(method: Method, seed: int = 0) -> State:
    rng = np.random.default_rng(seed)
    state = State.zero(method)
    state.accumulators[:] = rng.exponential(size=state.accumulators.shape)
    state.accumulators[..., 0] -= 1.0
    state.intercept[:] = rng.exponential(size=state.intercept.shape)
    state.settled[:] = rng.integers(0, 4, state.settled.shape)
    state.t = 4.0
    return state


@each_update
@each_labels
def test_features_that_differ_in_anything_are_found(update, labels):
    method = a_method(update, labels)
    state = a_state(method)
    rng = np.random.default_rng(1)
    assert state.differences(state.copy()).tolist() == []
    for name in ("accumulators", "settled") if state.settled.size else ("accumulators",):
        other = state.copy()
        places = rng.choice(N_FEATURES, 7, replace=False)
        for place in places:
            own = getattr(other, name)[rng.integers(method.n_bundles)]
            own[(place, *(rng.integers(size) for size in own.shape[1:]))] += 1.0
        assert state.differences(other).tolist() == sorted(places)


@each_update
@each_labels
def test_what_is_pulled_is_a_copy_and_pushing_it_back_changes_nothing_else(update, labels):
    method = a_method(update, labels)
    state = a_state(method)
    before = state_bytes(state)
    ids = np.array([3, 4, 17, 59])
    share = state.pull(ids)
    np.testing.assert_array_equal(share.accumulators, state.accumulators[:, ids])
    share.accumulators += 1.0
    share.intercept += 1.0
    share.settled += 1.0
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
    for array in (copy.accumulators, copy.settled, copy.intercept):
        array += 1.0
    assert state_bytes(a_state(a_method(update, labels))) == state_bytes(state)


@each_update
@each_labels
def test_weights_of_a_share_are_the_share_of_the_weights(update, labels):
    method = a_method(update, labels)
    state = a_state(method)
    vocabulary = np.array([0, 5, 8, 31, 58])
    lookup = WeightsInState(method, state, vocabulary, state.intercepts(method))
    whole = state.weights(method)[vocabulary]
    sent = lookup.at(None)
    assert isinstance(sent, Weights)
    assert not sent.partial
    for given_weights in (lookup, sent):
        np.testing.assert_array_equal(given_weights.take(None), whole)
        np.testing.assert_array_equal(given_weights.take(np.array([1, 4], np.int32)), whole[[1, 4]])
        assert given_weights.take(None).dtype == np.float32
    touched = np.array([1, 3, 4], np.int32)
    some = lookup.at(touched)
    assert some.partial
    np.testing.assert_array_equal(some.take(touched), whole[[1, 3, 4]])
    assert some.take(touched[:0]).shape == (0, method.n_outputs)  # of a partition skipped since


@each_update
@each_labels
def test_a_walk_takes_out_its_share_and_puts_it_back(update, labels):
    """As if the rows had been over all features, whatever the memory for shares held before."""
    method = a_method(update, labels)
    data = make_data((20, 35, 9), labels="binary" if labels == "binary" else "multiclass")
    state, whole = a_state(method), a_state(method)
    for number in (0, 2, 1):
        rows = data.read(number)
        assert rows.n_local < N_FEATURES
        wide = replace(
            rows,
            vocabulary=np.arange(N_FEATURES),
            indices=rows.vocabulary[rows.indices].astype(np.int32),
        )
        found, expected = np.full((2, method.n_outputs, rows.n_rows), np.nan)
        for bundle in range(method.n_bundles):
            outputs = slice(bundle * method.bundle_width, (bundle + 1) * method.bundle_width)
            after = [
                walked.walk(method, bundle, ids, as_batch(part, None), margins[outputs])
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
    method = a_method(update, "binary")
    state = State.zero(method)
    assert not state.weights(method).any()
    assert not state.intercepts(method).any()


def a_gradient(method: Method, rng: np.random.Generator, n_local: int) -> Gradient:
    positions = np.flatnonzero(rng.random(n_local) < 0.4).astype(np.int32)
    shape = (len(positions), method.n_outputs)
    squares = np.zeros((0, 0), np.float32)
    if method.config.squares == "example":
        squares = rng.random(shape).astype(np.float32)
    return Gradient(
        positions,
        rng.normal(size=shape).astype(np.float32),
        squares,
        rng.normal(size=(2, method.n_outputs)),
        Tally.zero(method),
    )


@given(
    seed=st.integers(0, 2**32 - 1),
    n_pieces=st.integers(1, 5),
    squares=st.sampled_from(["batch", "example"]),
    labels=st.sampled_from(["binary", "multiclass"]),
)
def test_sums_of_pieces_are_taken_in_their_order_in_64_bits(seed, n_pieces, squares, labels):
    rng = np.random.default_rng(seed)
    method = a_method("dual-averaging", labels, squares)
    sums = GradientSums(method)
    for _ in range(2):  # the second time, nothing may be left of the first
        vocabularies = [
            np.sort(rng.choice(N_FEATURES, rng.integers(0, N_FEATURES), False))
            for _ in range(n_pieces)
        ]
        gradients = [a_gradient(method, rng, len(ids)) for ids in vocabularies]
        total = sums.total(vocabularies, gradients)
        wanted = np.zeros((2, N_FEATURES, method.n_outputs))
        touched = np.zeros(N_FEATURES, bool)
        intercept = np.zeros((2, method.n_outputs))
        for vocabulary, result in zip(vocabularies, gradients, strict=True):
            ids = vocabulary[result.positions]
            touched[ids] = True
            wanted[0, ids] += result.gradient
            if squares == "example":
                wanted[1, ids] += result.squares
            intercept += result.intercept
        assert len(set(total.ids.tolist())) == len(total.ids) == touched.sum()
        assert touched[total.ids].all()
        np.testing.assert_array_equal(total.gradient, wanted[0, total.ids])
        np.testing.assert_array_equal(total.intercept, intercept[:1])
        if squares == "example":
            np.testing.assert_array_equal(total.squares, wanted[1, total.ids])
            np.testing.assert_array_equal(total.intercept_squares, intercept[1:])
        else:
            assert total.squares.size == total.intercept_squares.size == 0


def test_numbers_are_looked_up_within_bounds():
    from dadagrad.training.compact import look_up

    numbers = np.arange(10, 20)
    positions = np.array([0, 3, 9], np.int32)
    np.testing.assert_array_equal(look_up(numbers, positions), numbers[positions])
    assert look_up(numbers, positions[:0]).dtype == numbers.dtype
    for wrong in ([3, 10], [-1, 3]):
        with pytest.raises(IndexError, match="in 10 numbers"):
            look_up(numbers, np.array(wrong, np.int32))


@given(
    n_local=st.integers(1, 400),
    seed=st.integers(0, 2**32 - 1),
    nnz=st.integers(0, 100),
)
def test_relabelling_finds_distinct_features_and_their_places(n_local, seed, nnz):
    from dadagrad.training.compact import relabel

    indices = np.random.default_rng(seed).integers(0, n_local, nnz).astype(np.int32)
    positions, relabelled = relabel(indices, n_local)
    distinct, places = np.unique(indices, return_inverse=True)
    np.testing.assert_array_equal(positions, distinct)
    np.testing.assert_array_equal(relabelled, places)
    assert positions.dtype == relabelled.dtype == np.int32


def test_threads_that_ask_at_once_have_the_weights_found_once(monkeypatch):
    """All pieces of a step do; in a metric that is not diagonal this is most of the work."""
    config = TrainConfig(metric="full", step_size=0.1, batch_size=10, domain="simplex")
    method = make_method(config, make_data().schema, 10)
    state = zero_state(method)
    find, found = PlainState._all_weights, []

    def slowly(self, *arguments):
        found.append(1)
        time.sleep(0.05)
        return find(self, *arguments)

    monkeypatch.setattr(PlainState, "_all_weights", slowly)
    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda _: state.weights_at(method, np.arange(5)), range(4)))
    assert len(found) == 1
    assert all((weights == taken[0]).all() for weights in taken)


@given(ids=st.sets(st.integers(0, 60)), others=st.sets(st.integers(0, 60)))
def test_increasing_ids_are_united_and_compared(ids, others):
    from dadagrad.training.compact import add_common, common, unite

    first, second = (np.array(sorted(some), np.int64) for some in (ids, others))
    united, *places = unite(first, second)
    np.testing.assert_array_equal(united, np.union1d(first, second))
    for some, own in zip((first, second), places, strict=True):
        np.testing.assert_array_equal(united[own], some)
    _, *expected = np.intersect1d(first, second, return_indices=True)
    for found, wanted in zip(common(first, second), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    terms = np.arange(2.0 * len(second)).reshape(-1, 2)
    sums, here = np.ones((len(first), 2)), expected[0]
    add_common(sums, first, second, terms, 3.0)
    np.testing.assert_array_equal(sums[here], 1.0 + terms[expected[1]] / 3.0)
    np.testing.assert_array_equal(np.delete(sums, here, 0), 1.0)
