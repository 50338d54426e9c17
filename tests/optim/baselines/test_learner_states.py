"""What every learner promises: states of arrays, rows left out, features left alone."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest
from helpers.learner_cases import Linear, draw_rows, learn, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad.errors import InputError
from dadagrad.optim.baselines import (
    Arow,
    ArowFull,
    Averaged,
    CoinBetting,
    ExponentiatedGradient,
    LearnerState,
    PassiveAggressive,
    PassiveAggressive1,
    PassiveAggressive2,
    SignedExponentiatedGradient,
    StronglyConvexBall,
    StronglyConvexSimplex,
)
from dadagrad.optim.losses import LOSSES

N_FEATURES, N_OUTPUTS = 6, 3
LOGISTIC = LOSSES.make("logistic")
LEARNERS = [
    PassiveAggressive(),
    PassiveAggressive1(loss=LOSSES.make("multiclass-hinge")),
    PassiveAggressive2(loss=LOSSES.make("absolute")),
    Arow(),
    ArowFull(),
    ExponentiatedGradient(loss=LOGISTIC, step_size=0.3),
    SignedExponentiatedGradient(5.0, LOGISTIC, 0.3),
    StronglyConvexBall(0.1, loss=LOGISTIC),
    StronglyConvexSimplex(0.1, loss=LOGISTIC),
    CoinBetting(loss=LOGISTIC),
    Averaged(Arow()),
]
each_learner = pytest.mark.parametrize("learner", LEARNERS, ids=repr)
few = settings(max_examples=10)


def rows_for(learner, seed: int, n_rows: int = 10):
    task = learner.loss.task if isinstance(learner, PassiveAggressive) else "binary"
    return draw_rows(seed, n_rows, N_FEATURES, N_OUTPUTS, task)


def assert_same_bits(one: LearnerState, other: LearnerState) -> None:
    assert one.t == other.t
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        assert array.tobytes() == other.arrays[name].tobytes(), name


@each_learner
@few
@given(seed=seeds, left_out=st.sets(st.integers(0, 9)))
def test_importance_zero_is_a_row_that_was_never_there(learner, seed, left_out):
    rows = rows_for(learner, seed)
    with_them, without = learner.init(N_FEATURES, N_OUTPUTS), learner.init(N_FEATURES, N_OUTPUTS)
    for number, row in enumerate(rows):
        with_them = learn(learner, with_them, row, 0.0 if number in left_out else 1.0)
        if number not in left_out:
            without = learn(learner, without, row)
    assert_same_bits(with_them, without)
    assert learner.weights(with_them).tobytes() == learner.weights(without).tobytes()


@each_learner
@few
@given(seed=seeds)
def test_a_stored_state_goes_on_as_if_nothing_had_been(learner, seed):
    """Through a file of plain arrays, and with a copy that what comes after leaves alone."""
    rows = rows_for(learner, seed)
    state = learner.init(N_FEATURES, N_OUTPUTS)
    for row in rows[:5]:
        state = learn(learner, state, row)
    file = io.BytesIO()
    np.savez(file, **state.arrays)
    t = state.t
    copy, before = state.copy(), {name: array.tobytes() for name, array in state.arrays.items()}
    for row in rows[5:]:
        state = learn(learner, state, row)
    file.seek(0)
    with np.load(file, allow_pickle=False) as stored:
        restored = LearnerState(t, {name: stored[name] for name in stored.files})
    for name, array in copy.arrays.items():
        assert array.tobytes() == before[name]
    for other in (restored, copy):
        for row in rows[5:]:
            other = learn(learner, other, row)
        assert_same_bits(state, other)


@each_learner
def test_arrays_are_float64_and_weights_have_the_shape_of_the_model(learner):
    state = learner.init(N_FEATURES, N_OUTPUTS)
    for row in rows_for(learner, 5):
        state = learn(learner, state, row)
    assert all(array.dtype == np.float64 for array in state.arrays.values())
    weights = learner.weights(state)
    assert weights.shape == (N_FEATURES, N_OUTPUTS)
    ids = np.array([1, 2, 5])
    np.testing.assert_array_equal(learner.weights(state, ids), weights[ids])


@each_learner
@few
@given(seed=seeds)
def test_weights_are_a_copy_and_margins_are_theirs(learner, seed):
    state = learner.init(N_FEATURES, N_OUTPUTS)
    for row in rows_for(learner, seed):
        if not isinstance(learner, Averaged):
            margins = learner.margins(state, row.ids, row.values)
            expected = row.values @ learner.weights(state)[row.ids]
            np.testing.assert_allclose(margins, expected, atol=1e-12)
        kept = state.copy()
        learner.weights(state)[:] = 7.0
        assert_same_bits(state, kept)
        state = learn(learner, state, row)


@each_learner
@few
@given(seed=seeds)
def test_local_learners_leave_other_features_alone_bit_for_bit(learner, seed):
    state = learner.init(N_FEATURES, N_OUTPUTS)
    moved = False
    for row in rows_for(learner, seed):
        others = np.setdiff1d(np.arange(N_FEATURES), row.ids)
        before = learner.weights(state, others)
        state = learn(learner, state, row)
        moved = moved or learner.weights(state, others).tobytes() != before.tobytes()
        if learner.local:
            assert not moved


@each_learner
@few
@given(seed=seeds)
def test_a_value_of_zero_is_no_value(learner, seed):
    """A row with explicit zeros teaches what the row without them does."""
    dense, sparse = learner.init(N_FEATURES, N_OUTPUTS), learner.init(N_FEATURES, N_OUTPUTS)
    everywhere = np.arange(N_FEATURES)
    for row in rows_for(learner, seed):
        full = row._replace(ids=everywhere, values=row.dense(N_FEATURES))
        sparse, dense = learn(learner, sparse, row), learn(learner, dense, full)
        np.testing.assert_allclose(
            learner.weights(dense), learner.weights(sparse), rtol=1e-9, atol=1e-12
        )


@each_learner
def test_float32_values_are_taken_at_full_precision(learner):
    singles, doubles = learner.init(N_FEATURES, N_OUTPUTS), learner.init(N_FEATURES, N_OUTPUTS)
    for row in rows_for(learner, 6):
        single = row._replace(values=row.values.astype(np.float32))
        singles = learn(learner, singles, single)
        doubles = learn(learner, doubles, row._replace(values=single.values.astype(np.float64)))
    np.testing.assert_allclose(learner.weights(singles), learner.weights(doubles), rtol=1e-12)


@pytest.mark.parametrize(
    "learner",
    [
        ExponentiatedGradient(loss=Linear(), step_size=0.3),
        SignedExponentiatedGradient(5.0, Linear(), 0.3),
        CoinBetting(loss=Linear()),
    ],
    ids=repr,
)
@few
@given(seed=seeds, counts=st.lists(st.sampled_from([0.25, 1.0, 3.0]), min_size=10, max_size=10))
def test_importance_multiplies_the_loss(learner, seed, counts):
    """The slope of this loss is its target, so a target of c is a loss counted c times."""
    one, many = learner.init(N_FEATURES, N_OUTPUTS), learner.init(N_FEATURES, N_OUTPUTS)
    for row, importance in zip(rows_for(learner, seed), counts, strict=True):
        many = learn(learner, many, row, importance)
        one = learn(learner, one, row._replace(targets=importance * row.targets))
    assert (many.t, one.t) == (sum(counts), 10.0)
    for name, array in many.arrays.items():
        np.testing.assert_allclose(array, one.arrays[name], rtol=1e-12, err_msg=name)


@each_learner
@pytest.mark.parametrize("importance", [-1.0, np.nan, np.inf])
def test_bad_importance_is_refused_before_anything_moves(learner, importance):
    state = learner.init(N_FEATURES, N_OUTPUTS)
    before = state.copy()
    with pytest.raises(InputError, match="importance of a row must be finite and not negative"):
        learn(learner, state, rows_for(learner, 0)[0], importance)
    assert_same_bits(state, before)


@each_learner
def test_a_configuration_is_frozen(learner):
    assert hash(learner) == hash(learner)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(learner, dataclasses.fields(learner)[0].name, None)
