"""Properties of every learner: states of arrays, rows left out, features left alone."""

from copy import deepcopy

import numpy as np
from helpers.learner_cases import Linear, draw_rows, finish, learn, learner_of, seeds
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from dadagrad.optim.baselines import (
    Arow,
    CoinBetting,
    ExponentiatedGradient,
    PassiveAggressive,
    SignedExponentiatedGradient,
)
from dadagrad.optim.updates import UPDATES

N_FEATURES, N_OUTPUTS = 6, 3
LEARNERS = [
    *(learner_of(name) for name in UPDATES if UPDATES[name].by_row),
    learner_of("pa-1", "multiclass-hinge"),
    learner_of("pa-2", "absolute"),
    learner_of("pa-1", "logistic"),
    learner_of("arow", "logistic"),
    learner_of("arow-full", "logistic"),
    learner_of("eg-signed:radius=5", "logistic"),
    learner_of("strongly-convex:sigma=0.1", "softmax"),
    learner_of("strongly-convex-simplex:sigma=0.1", "logistic"),
    learner_of("coin-betting", "logistic"),
]
LOCAL = [each for each in LEARNERS if isinstance(each, Arow | CoinBetting | PassiveAggressive)]
learners = st.sampled_from(LEARNERS)
many = settings(max_examples=250)


def rows_for(learner, seed):
    task = learner.loss.task if isinstance(learner, PassiveAggressive) else "binary"
    return draw_rows(seed, 10, N_FEATURES, N_OUTPUTS, task)


def assert_same_bits(one, other):
    assert one.t == other.t
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        assert array.tobytes() == other.arrays[name].tobytes(), name


@many
@given(learner=learners, seed=seeds, left_out=st.sets(st.integers(0, 9)))
def test_importance_zero_is_a_row_that_was_never_there(learner, seed, left_out):
    rows = rows_for(learner, seed)
    with_them = learner.init(N_FEATURES, N_OUTPUTS)
    for number, row in enumerate(rows):
        with_them = learn(learner, with_them, row, 0.0 if number in left_out else 1.0)
    kept = [row for number, row in enumerate(rows) if number not in left_out]
    assert_same_bits(with_them, finish(learner, kept, N_FEATURES, N_OUTPUTS))


@settings(max_examples=75)
@given(
    name=st.sampled_from(["arow", "arow-full", "pa-1"]),
    price=st.sampled_from([0.1, 1.0, 3.0]),
    importance=st.sampled_from([0.5, 1, 4]),
    seed=seeds,
)
def test_a_logistic_step_is_what_a_solver_finds(name, price, importance, seed):
    """1/2 (w - w_t)' Sigma^-1 (w - w_t) + c C log(1 + exp(-y <w, x>)), AROW's C is 1 / r."""
    text = f"pa-1:C={price}" if name == "pa-1" else f"{name}:r={1 / price}"
    learner, rows = learner_of(text, "logistic"), draw_rows(seed, 6, 4)
    state = finish(learner, rows[:-1], 4)
    before, x, y = learner.weights(state)[:, 0], rows[-1].dense(4), rows[-1].targets[0]
    covariance = {
        "arow": lambda: np.diag(learner.variances(state)[:, 0]),
        "arow-full": lambda: state.arrays["covariance"][0],
        "pa-1": lambda: np.eye(4),
    }
    inverse = np.linalg.inv(covariance[name]())

    def objective(w):
        loss = importance * price * np.logaddexp(0, -y * (x @ w))
        return 0.5 * (w - before) @ inverse @ (w - before) + loss

    def slope(w):
        pull = importance * price * y * x * np.exp(-np.logaddexp(0, y * (x @ w)))
        return inverse @ (w - before) - pull

    found = minimize(objective, before, jac=slope, method="BFGS", options={"gtol": 1e-10}).x
    state = learn(learner, state, rows[-1], importance)
    np.testing.assert_allclose(learner.weights(state)[:, 0], found, atol=1e-6)


@many
@given(learner=learners, seed=seeds)
def test_a_state_goes_on_from_its_arrays_with_the_same_bits(learner, seed):
    rows = rows_for(learner, seed)
    state = finish(learner, rows[:5], N_FEATURES, N_OUTPUTS)
    shapes = {name: array.shape for name, array in state.arrays.items()}
    assert shapes == learner.shapes(N_FEATURES, N_OUTPUTS)
    assert all(array.dtype == np.float64 for array in state.arrays.values())
    restored = {name: array.copy() for name, array in state.arrays.items()}
    other = learner.init(N_FEATURES, N_OUTPUTS).with_arrays(restored, state.t)
    for row in rows[5:]:
        state = learn(learner, state, row)
        other = learn(learner, other, row)
    assert_same_bits(state, other)


@many
@given(learner=learners, seed=seeds)
def test_weights_are_a_copy_and_scores_are_theirs(learner, seed):
    state, ids = learner.init(N_FEATURES, N_OUTPUTS), np.array([1, 2, 5])
    for row in rows_for(learner, seed):
        weights = learner.weights(state)
        assert weights.shape == (N_FEATURES, N_OUTPUTS)
        np.testing.assert_array_equal(learner.weights(state, ids), weights[ids])
        scores = learner.scores(state, row.ids, row.values)
        np.testing.assert_allclose(scores, row.values @ weights[row.ids], atol=1e-12)
        kept = deepcopy(state)
        weights[:] = 7.0
        assert_same_bits(state, kept)
        state = learn(learner, state, row)


@many
@given(learner=st.sampled_from(LOCAL), seed=seeds)
def test_local_learners_leave_other_features_alone_bit_for_bit(learner, seed):
    state = learner.init(N_FEATURES, N_OUTPUTS)
    for row in rows_for(learner, seed):
        others = np.setdiff1d(np.arange(N_FEATURES), row.ids)
        before = learner.weights(state, others)
        state = learn(learner, state, row)
        assert learner.weights(state, others).tobytes() == before.tobytes()


@many
@given(learner=learners, seed=seeds)
def test_explicit_zeros_change_nothing(learner, seed):
    plain, padded = (learner.init(N_FEATURES, N_OUTPUTS) for _ in range(2))
    for row in rows_for(learner, seed):
        dense = row._replace(ids=np.arange(N_FEATURES), values=row.dense(N_FEATURES))
        plain, padded = learn(learner, plain, row), learn(learner, padded, dense)
        weights = learner.weights(padded), learner.weights(plain)
        np.testing.assert_allclose(*weights, rtol=1e-9, atol=1e-12)


@many
@given(learner=st.sampled_from([each for each in LEARNERS if not each.loss.couples]), seed=seeds)
def test_outputs_that_no_loss_couples_are_alone(learner, seed):
    rows = rows_for(learner, seed)
    together = learner.weights(finish(learner, rows, N_FEATURES, N_OUTPUTS))
    for k in range(N_OUTPUTS):
        alone = [row._replace(targets=row.targets[k : k + 1]) for row in rows]
        expected = learner.weights(finish(learner, alone, N_FEATURES))[:, 0]
        np.testing.assert_allclose(together[:, k], expected, rtol=1e-9, atol=1e-12)


@settings(max_examples=60)
@given(
    learner=st.sampled_from(
        [
            ExponentiatedGradient(loss=Linear(), step_size=0.3),
            SignedExponentiatedGradient(5.0, 0.3, loss=Linear()),
            CoinBetting(loss=Linear()),
        ]
    ),
    seed=seeds,
    counts=st.lists(st.sampled_from([0.25, 1.0, 3.0]), min_size=10, max_size=10),
)
def test_importance_multiplies_the_loss(learner, seed, counts):
    """The slope of this loss is its target, so a target of c is a loss counted c times."""
    one, many = learner.init(N_FEATURES, N_OUTPUTS), learner.init(N_FEATURES, N_OUTPUTS)
    for row, importance in zip(rows_for(learner, seed), counts, strict=True):
        many = learn(learner, many, row, importance)
        one = learn(learner, one, row._replace(targets=importance * row.targets))
    assert (many.t, one.t) == (sum(counts), 10.0)
    for name, array in many.arrays.items():
        np.testing.assert_allclose(array, one.arrays[name], rtol=1e-12, err_msg=name)
