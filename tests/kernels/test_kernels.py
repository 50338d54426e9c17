"""The compiled kernels against the plain formulas of `dadagrad.optim.updates` and
`dadagrad.optim.losses`."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from helpers.objects import GRADIENT_UPDATES, kernel_parameter, loss_of
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.kernels import training as kernels
from dadagrad.optim.losses import LOSSES, Loss
from dadagrad.optim.preconditioners import Diagonal
from dadagrad.optim.regularizers import ElasticBox
from dadagrad.optim.updates import UPDATES, State, Update

NO_BOX = (-np.inf, np.inf)
LOSS_NAMES = [name for name in LOSSES if name != "ranking"]  # which is hinge, to the kernels


@dataclass
class Case:
    """A random problem: sparse rows, and the settings of every output."""

    seed: int = 0
    n_rows: int = 20
    n_features: int = 12
    density: float = 0.5
    update: str = "dual-averaging"
    loss_name: str = "hinge"
    n_outputs: int = 1
    l1: float = 0.0
    l2: float = 0.0
    box: tuple[float, float] = NO_BOX
    delta: float = 0.1
    has_values: bool = True
    has_scale: bool = False
    importance: str | None = None
    intercept: bool = True
    batch: kernels.Batch = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        rows = [
            np.flatnonzero(rng.random(self.n_features) < self.density) for _ in range(self.n_rows)
        ]
        indices = np.concatenate(rows).astype(np.int32)
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        none = np.zeros(0, np.float32)
        choices = {"integers": [1.0, 2.0, 3.0], "fractions": [0.5, 1.25, 2.5], "zeros": [0.0, 1.0]}
        if self.mirror and self.l2 and self.importance == "fractions":
            # Lazy shrinking by l2 takes whole steps: see `kernels._shrink`.
            self.importance = "integers"
        if self.loss.couples:
            self.n_outputs = max(self.n_outputs, 2)
        self.batch = kernels.Batch(
            indptr,
            indices,
            rng.normal(size=len(indices)).astype(np.float32) if self.has_values else none,
            rng.uniform(0.3, 1.5, self.n_rows).astype(np.float32) if self.has_scale else none,
            np.ascontiguousarray(self._labels(rng).T),
            rng.choice(choices[self.importance], self.n_rows) if self.importance else np.zeros(0),
        )

    def _labels(self, rng: np.random.Generator) -> np.ndarray:
        if self.loss.couples:
            return rng.choice(np.arange(float(self.n_targets)), (self.n_rows, 2))
        if self.loss.classifies:
            return rng.choice([0.0, 1.0, 2.0], (self.n_rows, 2))
        real = rng.normal(size=(self.n_rows, 2))
        return np.abs(real) if self.loss.link == "log" else real

    @property
    def loss(self) -> Loss:
        return loss_of(self.loss_name)

    @property
    def n_targets(self) -> int:
        """Outputs of a setting: of a loss that couples them 2, or 3 of which 9 are 3 settings."""
        if not self.loss.couples:
            return self.n_outputs
        return 3 if self.n_outputs % 3 == 0 else 2

    @property
    def kernel_targets(self) -> kernels.Targets:
        outputs = np.arange(self.n_outputs)
        column, positive = outputs % 2, (outputs % 3).astype(float)
        if self.loss.couples:
            column = outputs // self.n_targets % 2
            positive = (outputs % self.n_targets).astype(float)
        elif not self.loss.classifies:
            positive = np.full(len(outputs), np.nan)
        return kernels.Targets(
            self.loss.code,
            kernel_parameter(self.loss),
            self.n_targets,
            column,
            positive,
            self.intercept,
        )

    @property
    def width(self) -> int:
        """Outputs of a bundle."""
        if self.loss.couples:
            return self.n_targets
        return 2 if self.n_outputs % 2 == 0 and not self.mirror else 1

    @property
    def n_groups(self) -> int:
        return self.n_outputs // self.width

    @property
    def steps(self) -> kernels.Hyperparameters:
        """Every bundle has its own step size and penalties."""
        spread = 1.0 + 0.5 * np.arange(self.n_groups)
        return kernels.Hyperparameters(
            0.3 * spread, self.l1 * spread, self.l2 * spread, *self.box, self.delta,
            self.update == "ftrl",
        )  # fmt: skip

    @property
    def mirror(self) -> bool:
        return self.update == "mirror-descent"

    def dense(self) -> np.ndarray:
        """(n_rows, n_features) float64, values times the row's scale."""
        rows = np.zeros((self.n_rows, self.n_features))
        for r in range(self.n_rows):
            entries = slice(self.batch.indptr[r], self.batch.indptr[r + 1])
            values = self.batch.values[entries].astype(float) if self.has_values else 1.0
            scale = float(self.batch.row_scale[r]) if self.has_scale else 1.0
            rows[r, self.batch.indices[entries]] = values * scale
        return rows

    def importances(self) -> np.ndarray:
        return self.batch.importance if len(self.batch.importance) else np.ones(self.n_rows)

    def targets(self) -> np.ndarray:
        """(n_rows, n_outputs): what each output is to predict."""
        labels = self.batch.labels[self.kernel_targets.label_column].T
        if not self.loss.classifies:
            return labels
        return np.where(labels == self.kernel_targets.positive, 1.0, -1.0)

    def slopes(self, scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """The slopes of all outputs, (..., n_outputs) as `scores` and `targets`."""
        shape = scores.shape
        if self.loss.couples:
            settings = (*shape[:-1], self.n_outputs // self.n_targets, self.n_targets)
            scores, targets = scores.reshape(settings), targets.reshape(settings)
        return self.loss.slope(scores, targets).reshape(shape)

    def update_of(self, output: int, regularized: bool = True) -> Update:
        steps, group = self.steps, output // self.width
        regularizer = ElasticBox(steps.l1[group], steps.l2[group], *self.box)
        return UPDATES[self.update](
            steps.step_size[group],
            Diagonal(self.delta),
            regularizer if regularized else ElasticBox(),
        )


@dataclass
class Run:
    """What a walk, or some batch steps, left behind."""

    t: float
    scores: np.ndarray
    weights: np.ndarray
    bias: np.ndarray


def walk_reference(case: Case) -> Run:
    """Every row a step of the reference update; the bias is a feature of its own update."""
    rows, targets = case.dense(), case.targets()
    outputs = range(case.n_outputs)
    updates = [case.update_of(k) for k in outputs]
    free = [case.update_of(k, regularized=False) for k in outputs]
    states = [update.init(case.n_features) for update in updates]
    bias_states = [update.init(1) for update in free]

    def bias() -> np.ndarray:
        found = [free[k].weights(bias_states[k])[0] for k in outputs]
        return np.array(found) * case.intercept

    def weights() -> np.ndarray:
        return np.stack([updates[k].weights(states[k]) for k in outputs], axis=1)

    scores = np.zeros((case.n_rows, case.n_outputs))
    for r, importance in enumerate(case.importances()):
        scores[r] = rows[r] @ weights() + bias()
        while importance > 0.0:
            part = min(importance, 1.0)
            slopes = case.slopes(rows[r] @ weights() + bias(), targets[r])
            for k in outputs:
                states[k] = updates[k].step(states[k], slopes[k] * rows[r], part)
                bias_states[k] = free[k].step(bias_states[k], slopes[[k]], part)
            importance -= part
    return Run(states[0].t, scores, weights(), bias())


class Compiled:
    """State arrays in the kernels' layout, and the kernels applied to them."""

    def __init__(self, case: Case, dtype: type = np.float64) -> None:
        self.case = case
        self.t = 0.0
        shape = case.n_groups, case.n_features
        self.state = np.zeros((*shape, case.width, 2), dtype)
        self.intercept = np.zeros((case.n_groups, 1, case.width, 2))
        self.last_update = np.zeros(shape)

    def walk(self, batch: kernels.Batch) -> np.ndarray:
        case, targets, steps = self.case, self.case.kernel_targets, self.case.steps
        scores = np.full((case.n_outputs, len(batch.indptr) - 1), np.nan)
        kernel = kernels.online_kernel(case.mirror, case.width)
        for group in range(case.n_groups):
            outputs = slice(group * case.width, (group + 1) * case.width)
            last_update = self.last_update[group] if case.mirror else None
            t = kernel(
                batch,
                targets._replace(
                    n_targets=case.width,
                    label_column=targets.label_column[outputs],
                    positive=targets.positive[outputs],
                ),
                None,
                steps._replace(
                    step_size=steps.step_size[group], l1=steps.l1[group], l2=steps.l2[group]
                ),
                kernels.make_work(batch, self.state[group], self.intercept[group, 0], last_update),
                self.t,
                scores[outputs],
            )
        self.t = t
        return scores.T

    def apply(self, gradient: np.ndarray, squares: np.ndarray) -> None:
        if self.case.mirror:
            kernels.apply_mirror(
                self.state, self.last_update, self.case.steps, self.t, gradient, squares
            )
        else:
            kernels.apply_dual(self.state, self.case.steps, self.t, gradient, squares)
        self.t += 1.0

    def weights(self, dtype: type = np.float64) -> np.ndarray:
        weights = np.full((self.case.n_features, self.case.n_outputs), np.nan, dtype)
        if self.case.mirror:
            kernels.mirror_weights(self.state, self.last_update, self.case.steps, self.t, weights)
        else:
            kernels.dual_weights(self.state, self.case.steps, self.t, weights)
        return weights

    def bias(self) -> np.ndarray:
        free = self.case.steps._replace(
            l1=np.zeros(self.case.n_groups), l2=np.zeros(self.case.n_groups),
            low=-np.inf, high=np.inf,
        )  # fmt: skip
        if self.case.mirror:
            return self.intercept[..., 0].flatten()
        weights = np.zeros((1, self.case.n_outputs))
        kernels.dual_weights(self.intercept, free, self.t, weights)
        return weights[0]

    def arrays(self) -> list[np.ndarray]:
        """Everything that the next row's step depends on."""
        return [np.array(self.t), self.state, self.intercept, self.last_update, self.weights()]


def walk_compiled(case: Case, dtype: type = np.float64) -> Run:
    compiled = Compiled(case, dtype)
    scores = compiled.walk(case.batch)
    return Run(compiled.t, scores, compiled.weights(), compiled.bias())


def assert_same_run(found: Run, expected: Run, tolerance: float) -> None:
    assert found.t == pytest.approx(expected.t)
    for name in ("scores", "weights", "bias"):
        there = getattr(expected, name)
        size = max(1.0, float(np.abs(there).max()))
        np.testing.assert_allclose(getattr(found, name), there, atol=tolerance * size, rtol=0)


def take_rows(batch: kernels.Batch, start: int, stop: int) -> kernels.Batch:
    first, last = batch.indptr[start], batch.indptr[stop]
    return kernels.Batch(
        batch.indptr[start : stop + 1] - first,
        batch.indices[first:last],
        batch.values[first:last] if len(batch.values) else batch.values,
        batch.row_scale[start:stop] if len(batch.row_scale) else batch.row_scale,
        np.ascontiguousarray(batch.labels[:, start:stop]),
        batch.importance[start:stop] if len(batch.importance) else batch.importance,
    )


def join_rows(batch: kernels.Batch, rows: list[int]) -> kernels.Batch:
    """The rows named, in that order, each with importance 1."""
    parts = [take_rows(batch, row, row + 1) for row in rows]
    lengths = [part.indptr[1] for part in parts]
    return kernels.Batch(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        *(np.concatenate([part[column] for part in parts]) for column in (1, 2, 3)),
        np.concatenate([part.labels for part in parts], axis=1),
        np.zeros(0),
    )


seeds = st.integers(0, 2**32 - 1)
cases = st.builds(
    Case,
    seed=seeds,
    n_rows=st.sampled_from([1, 5, 30]),
    n_features=st.sampled_from([1, 9, 40]),
    density=st.sampled_from([0.0, 0.2, 0.8, 1.0]),
    update=st.sampled_from(GRADIENT_UPDATES),
    loss_name=st.sampled_from(LOSS_NAMES),
    n_outputs=st.sampled_from([1, 3, 4, 9]),
    l1=st.sampled_from([0.0, 0.01, 0.3]),
    l2=st.sampled_from([0.0, 0.02, 0.5]),
    box=st.sampled_from([NO_BOX, (-0.2, 0.1), (0.0, np.inf)]),
    delta=st.sampled_from([0.0, 0.1, 1.0]),
    has_values=st.booleans(),
    has_scale=st.booleans(),
    importance=st.sampled_from([None, "integers", "fractions", "zeros"]),
    intercept=st.booleans(),
)


@pytest.mark.parametrize("update", GRADIENT_UPDATES)
@pytest.mark.parametrize("loss_name", LOSS_NAMES)
@given(case=cases)
def test_walk_is_the_reference(update, loss_name, case):
    case = replace(case, update=update, loss_name=loss_name)
    found = walk_compiled(case)
    assert_same_run(found, walk_reference(case), 1e-9)
    expected_zeros = walk_reference(case).weights == 0.0
    np.testing.assert_array_equal(found.weights == 0.0, expected_zeros)


@pytest.mark.parametrize("update", GRADIENT_UPDATES)
@pytest.mark.parametrize("loss_name", ["logistic", "squared"])
@given(case=cases)
def test_walk_in_single_precision_stays_close(update, loss_name, case):
    # Losses without a kink, whose slope a last bit cannot turn over.
    delta = max(case.delta, 0.1) if loss_name == "squared" else case.delta
    case = replace(case, update=update, loss_name=loss_name, delta=delta)
    assert_same_run(walk_compiled(case, np.float32), walk_reference(case), 1e-5)


@given(case=cases, cut=st.floats(0, 1))
def test_walk_in_two_chunks_is_the_same_walk(case, cut):
    whole, chunked = Compiled(case, np.float32), Compiled(case, np.float32)
    row = round(cut * case.n_rows)
    scores = whole.walk(case.batch)
    pieces = [
        chunked.walk(take_rows(case.batch, 0, row)),
        chunked.walk(take_rows(case.batch, row, case.n_rows)),
    ]
    np.testing.assert_array_equal(np.concatenate(pieces), scores)
    for one, other in zip(chunked.arrays(), whole.arrays(), strict=True):
        np.testing.assert_array_equal(one, other)


@given(case=cases)
def test_importance_is_the_number_of_times_a_row_comes(case):
    case = replace(case, importance=None)
    importance = np.random.default_rng(case.seed).choice([0.0, 1.0, 2.0, 3.0], case.n_rows)
    weighted, repeated = Compiled(case, np.float32), Compiled(case, np.float32)
    weighted.walk(case.batch._replace(importance=importance))
    rows = np.repeat(np.arange(case.n_rows), importance.astype(int))
    if len(rows):
        repeated.walk(join_rows(case.batch, rows.tolist()))
    for one, other in zip(weighted.arrays(), repeated.arrays(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("update", ["dual-averaging", "mirror-descent", "ftrl"])
def test_a_huge_importance_is_a_bounded_number_of_steps(update):
    """Without the bound this would walk a row 10^9 times."""
    case = Case(seed=3, update=update, loss_name="logistic", n_rows=3)
    walked = Compiled(case)
    walked.walk(case.batch._replace(importance=np.full(3, 1e9)))
    assert walked.t == pytest.approx(3e9)
    assert np.isfinite(walked.weights()).all()


@given(case=cases)
def test_a_row_of_importance_zero_is_still_predicted(case):
    learned = Compiled(case)
    learned.walk(case.batch)
    weights, bias = learned.weights(), learned.bias()
    scores = learned.walk(case.batch._replace(importance=np.zeros(case.n_rows)))
    expected = case.dense() @ weights + case.intercept * bias
    np.testing.assert_allclose(scores, expected, atol=1e-9 * max(1.0, np.abs(expected).max()))


@given(case=cases, n_steps=st.integers(1, 5), example_squares=st.booleans())
def test_batch_steps_are_the_reference(case, n_steps, example_squares):
    """Weights out, gradients of a piece at those weights, the mean gradient back in."""
    compiled = Compiled(case)
    rows, targets, importances = case.dense(), case.targets(), case.importances()
    total = max(importances.sum(), 1.0)
    states = [case.update_of(k).init(case.n_features) for k in range(case.n_outputs)]
    for _ in range(n_steps):
        weights = compiled.weights(np.float32)
        gradient = np.zeros((case.n_features, case.n_outputs), np.float32)
        squares = np.zeros_like(gradient) if example_squares else np.zeros((0, 0), np.float32)
        bias = np.random.default_rng(case.seed).normal(size=case.n_outputs)
        bias_gradient = np.zeros((2, case.n_outputs))
        scores = np.full((case.n_rows, case.n_outputs), np.nan)
        found_slopes = np.full_like(scores, np.nan)
        kernels.predict_scores(case.batch, weights, bias, scores)
        kernels.fill_slopes(case.batch.labels, case.kernel_targets, None, scores, found_slopes)
        kernels.add_gradients(case.batch, found_slopes, gradient, squares, bias_gradient)
        expected_scores = rows @ weights.astype(float) + bias
        np.testing.assert_allclose(scores, expected_scores, atol=1e-5, rtol=1e-5)
        slopes = case.slopes(scores, targets)
        expected = rows.T @ (importances[:, None] * slopes)
        size = max(1.0, np.abs(expected).max(initial=0.0))
        np.testing.assert_allclose(gradient, expected, atol=1e-5 * size)
        expected_squares = np.square(rows).T @ (importances[:, None] * np.square(slopes))
        if example_squares:
            size = max(1.0, np.abs(expected_squares).max(initial=0.0))
            np.testing.assert_allclose(squares, expected_squares, atol=1e-5 * size)
        sums = [(importances[:, None] * slopes**power).sum(0) for power in (1, 2)]
        np.testing.assert_allclose(bias_gradient, sums, atol=1e-9 * max(1.0, np.abs(sums).max()))

        mean = gradient.astype(float) / total
        mean_squares = squares.astype(float) / total
        compiled.apply(mean, mean_squares)
        for k, state in enumerate(states):
            update = case.update_of(k)
            stepped = reference_step(
                update, state, mean[:, k], mean_squares[:, k] if example_squares else None
            )
            states[k] = stepped
            there = update.weights(stepped)
            found = compiled.weights()[:, k]
            np.testing.assert_allclose(found, there, atol=1e-9 * max(1.0, np.abs(there).max()))


def reference_step(
    update: Update, state: State, gradient: np.ndarray, squares: np.ndarray | None
) -> State:
    """`update.step`, or the same where the metric grows by `squares` and not by gradient^2."""
    if squares is None:
        return update.step(state, gradient)
    preconditioner, before = Diagonal(update.preconditioner.delta), state.preconditioner
    after = {"squares": before["squares"] + squares}
    if update.__class__.__name__ == "MirrorDescent":
        center = state.primary - update.step_size * preconditioner.solve(after, gradient)
        weights = preconditioner.prox(after, update.regularizer, center, update.step_size)
        return State(state.t + 1.0, weights, after)
    if update.__class__.__name__ == "FollowTheLeader":
        growth = preconditioner.curvature(after) - preconditioner.curvature(before)
        gradient = gradient - growth * update.weights(state) / update.step_size
    return State(state.t + 1.0, state.primary + gradient, after)


@given(case=cases)
def test_scores_are_the_matrix_product(case):
    rng = np.random.default_rng(case.seed)
    weights = rng.normal(size=(case.n_features, case.n_outputs)).astype(np.float32)
    bias = rng.normal(size=case.n_outputs)
    out = np.full((case.n_rows, case.n_outputs), np.nan)
    kernels.predict_scores(case.batch, weights, bias, out)
    np.testing.assert_allclose(out, case.dense() @ weights + bias, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("l1", [0.0, 0.05])
@pytest.mark.parametrize("l2", [0.0, 0.4])
@pytest.mark.parametrize("box", [NO_BOX, (-0.1, 0.2)])
@pytest.mark.parametrize("gap", [1, 7, 100])
def test_lazy_shrinking_is_eager_shrinking(l1, l2, box, gap):
    """A feature that comes once and then stays away, against the reference stepping all along."""
    case = Case(update="mirror-descent", n_features=3, l1=l1, l2=l2, box=box, intercept=False)
    compiled, update = Compiled(case), case.update_of(0)
    state = update.init(3)
    gradient = np.array([-0.4, 0.9, 0.0])
    compiled.apply(gradient[:, None], np.zeros((0, 0)))
    state = update.step(state, gradient)
    for _ in range(gap):
        state = update.step(state, np.zeros(3))
    compiled.t += gap
    np.testing.assert_allclose(compiled.weights()[:, 0], update.weights(state), atol=1e-12)
    gradient = np.array([0.2, 0.1, 0.3])
    compiled.apply(gradient[:, None], np.zeros((0, 0)))
    state = update.step(state, gradient)
    np.testing.assert_allclose(compiled.weights()[:, 0], update.weights(state), atol=1e-12)


@pytest.mark.parametrize("update", GRADIENT_UPDATES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_outputs", [1, 9])
def test_squares_that_underflow_do_not_make_huge_weights(update, dtype, n_outputs):
    """With delta = 0 a gradient of 1e-30 has the square 0 in single precision: H = 0, so w = 0."""
    tiny = np.float32(1e-30)
    case = Case(update=update, n_features=1, density=1.0, delta=0.0, n_outputs=n_outputs, n_rows=3)
    compiled = Compiled(case, dtype)
    compiled.walk(case.batch._replace(values=np.full(3, tiny)))
    weights = compiled.weights()
    assert np.isfinite(weights).all()
    assert np.abs(weights).max() <= 10.0


@pytest.mark.parametrize("update", GRADIENT_UPDATES)
@pytest.mark.parametrize("loss_name", LOSS_NAMES)
def test_without_delta_nothing_is_nan(update, loss_name):
    case = Case(update=update, loss_name=loss_name, delta=0.0, l1=0.01, l2=0.1, n_outputs=3)
    for dtype in (np.float32, np.float64):
        with np.errstate(all="raise", under="ignore"):
            run = walk_compiled(case, dtype)
        for array in (run.scores, run.weights, run.bias):
            assert np.isfinite(array).all()


def test_a_label_of_a_class_is_the_sign_of_its_output():
    case = Case(n_rows=1, n_features=1, density=1.0, n_outputs=3, has_values=False, delta=1.0)
    batch = case.batch._replace(labels=np.array([[2.0], [1.0]]))
    compiled = Compiled(case)
    compiled.walk(batch)
    # The columns of outputs 0, 1, 2 are 0, 1, 0 and their classes 0, 1, 2.
    np.testing.assert_array_equal(np.sign(compiled.weights()[0]), [-1.0, 1.0, 1.0])


def test_nothing_is_compiled_twice():
    first = Case(seed=1, n_outputs=3, has_scale=True, importance="fractions")
    second = Case(seed=2, n_rows=7, n_features=30, loss_name="squared", has_values=False)
    for update in ("ftrl", "mirror-descent"):
        kernel = kernels.online_kernel(update == "mirror-descent", first.width)
        walk_compiled(replace(first, update=update), np.float32)
        compiled = len(kernel.signatures)
        walk_compiled(replace(second, update=update), np.float32)
        assert len(kernel.signatures) == compiled


SECOND_PROCESS = """
import numpy as np
from dadagrad.kernels import training as kernels
settings = kernels.Hyperparameters(np.ones(1), np.zeros(1), np.zeros(1), -1.0, 1.0, 1.0, False)
kernels.dual_weights(np.zeros((1, 1, 1, 2)), settings, 1.0, np.zeros((1, 1)))
stats = kernels.dual_weights.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def test_a_second_process_finds_the_cache(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}

    def run() -> list[str]:
        command = [sys.executable, "-c", SECOND_PROCESS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert run() == ["0", "1"]
    assert run() == ["1", "0"]
