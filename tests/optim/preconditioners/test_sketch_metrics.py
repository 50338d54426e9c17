"""Metrics from sketches: equal to the full metric where they must be, and to their formulas."""

from __future__ import annotations

import time

import numpy as np
import pytest
from helpers.objects import GRADIENT_UPDATES
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad.optim.preconditioners import CorrectedSketch, Full, Sketch, SketchedNewton
from dadagrad.optim.regularizers import ElasticBox
from dadagrad.optim.updates import UPDATES, DualAveraging, MirrorDescent

seeds = st.integers(0, 2**32 - 1)
each_update = pytest.mark.parametrize("name", GRADIENT_UPDATES)
N_FEATURES, RANK = 12, 4


def draw_gradients(seed: int, n_steps: int, of_rank: int, spread: float = 1.0) -> np.ndarray:
    """(n_steps, N_FEATURES, 2), each output of the given rank, its directions unequally long."""
    rng = np.random.default_rng(seed)
    lengths = np.geomspace(1.0, spread, of_rank)
    parts = [
        rng.normal(size=(n_steps, of_rank)) * lengths @ rng.normal(size=(of_rank, N_FEATURES))
        for _ in range(2)
    ]
    return np.stack(parts, axis=-1)


@each_update
@pytest.mark.parametrize("corrected", [False, True])
@given(
    seed=seeds,
    delta=st.sampled_from([0.0, 1e-2, 1.0]),
    spread=st.sampled_from([1.0, 1e-3]),
    penalty=st.sampled_from([(0.0, 0.0), (0.05, 0.1)]),
)
@settings(max_examples=20)
def test_a_rank_below_the_sketch_is_the_full_metric(name, corrected, seed, delta, spread, penalty):
    delta = max(delta, 1e-2) if any(penalty) else delta
    sketch = CorrectedSketch(RANK, delta) if corrected else Sketch(delta, RANK)
    sketched = UPDATES[name](0.5, sketch, ElasticBox(*penalty))
    full = UPDATES[name](0.5, Full(delta), ElasticBox(*penalty))
    sketch_state, full_state = sketched.init(N_FEATURES, 2), full.init(N_FEATURES, 2)
    steps = 8 if any(penalty) else 30
    for gradient in draw_gradients(seed, steps, RANK - 1, spread):
        sketch_state = sketched.step(sketch_state, gradient)
        full_state = full.step(full_state, gradient)
        expected = full.weights(full_state)
        size = max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(sketched.weights(sketch_state), expected, atol=1e-6 * size)
    assert not sketch_state.preconditioner["removed"].any()


@given(seed=seeds, rank=st.sampled_from([2, 4]), n_steps=st.integers(0, 30))
@pytest.mark.parametrize("kind", [Sketch, CorrectedSketch, SketchedNewton])
def test_each_is_its_formula(kind, seed, rank, n_steps):
    """H from S itself, by an eigen-decomposition of the whole S'S."""
    delta, preconditioner = 0.3, kind(rank=rank, delta=0.3)
    arrays = preconditioner.init(N_FEATURES, 2)
    for gradient in draw_gradients(seed, n_steps, 8):
        arrays = preconditioner.add(arrays, gradient)
    vector = np.random.default_rng(seed).normal(size=(N_FEATURES, 2))
    for output in range(2):
        directions, removed = arrays["directions"][output], arrays["removed"][output, 0]
        values, vectors = np.linalg.eigh(directions @ directions.T)
        values = np.maximum(values, 0.0)
        values[values < 1e-13 * values[-1]] = 0.0
        curvature = {
            Sketch: delta + np.sqrt(values),
            CorrectedSketch: delta + np.sqrt(values + removed),
            SketchedNewton: delta + values,
        }[kind]
        expected = vectors * curvature @ vectors.T @ vector[:, output]
        found = preconditioner.multiply(arrays, vector)[:, output]
        np.testing.assert_allclose(found, expected, atol=1e-7 * curvature.max())
        expected = vectors / curvature @ vectors.T @ vector[:, output]
        found = preconditioner.solve(arrays, vector)[:, output]
        np.testing.assert_allclose(found, expected, atol=1e-6)
    if n_steps > 20 and rank == 2:
        assert arrays["removed"].all()


def test_algorithms_1_and_2_of_the_paper():
    """With u and g as there; S is this sketch, whose newest row is the gradient of the step."""
    eta, delta, gradients = 0.5, 0.2, draw_gradients(5, 6, 6)[:, :, :1]
    preconditioner = Sketch(delta, RANK)
    dual, mirror = (
        kind(eta, preconditioner, ElasticBox()) for kind in (DualAveraging, MirrorDescent)
    )
    dual_state, mirror_state = dual.init(N_FEATURES, 1), mirror.init(N_FEATURES, 1)
    u, weights = np.zeros(N_FEATURES), np.zeros(N_FEATURES)
    for t, gradient in enumerate(gradients[:, :, 0], start=1):
        dual_state = dual.step(dual_state, gradient[:, None])
        mirror_state = mirror.step(mirror_state, gradient[:, None])
        u = u + gradient
        # Six rows fit the buffer of eight: S has all gradients so far, g_t included.
        _, sigma, v = np.linalg.svd(gradients[:t, :, 0], full_matrices=False)
        shares = sigma / (delta + sigma)
        expected = -eta / delta * (u - v.T * shares @ v @ u)
        np.testing.assert_allclose(dual.weights(dual_state)[:, 0], expected, atol=1e-11)
        weights = weights - eta / delta * (gradient - v.T * shares @ v @ gradient)
        np.testing.assert_allclose(mirror.weights(mirror_state)[:, 0], weights, atol=1e-11)


def test_fd_son_divides_the_outer_products_by_the_root_of_time():
    """H_t = delta I + sum g_s g_s' / sqrt(s), eq. in sec. 3.3, while the buffer has room."""
    gradients, preconditioner = draw_gradients(6, 7, 7)[:, :, :1], SketchedNewton(0.3, RANK)
    arrays = preconditioner.init(N_FEATURES, 1)
    for gradient in gradients:
        arrays = preconditioner.add(arrays, gradient)
    rows = gradients[:, :, 0] / np.arange(1, 8)[:, None] ** 0.25
    vector = np.ones((N_FEATURES, 1))
    expected = np.linalg.solve(0.3 * np.eye(N_FEATURES) + rows.T @ rows, vector)
    np.testing.assert_allclose(preconditioner.solve(arrays, vector), expected, atol=1e-10)


def test_the_corrected_sketch_is_never_below_the_full_matrix():
    gradients, preconditioner = draw_gradients(7, 60, 12)[:, :, :1], CorrectedSketch(RANK, 0.0)
    arrays, outer = preconditioner.init(N_FEATURES, 1), np.zeros((N_FEATURES, N_FEATURES))
    for gradient in gradients:
        arrays = preconditioner.add(arrays, gradient)
        outer += gradient * gradient.T
        directions, removed = arrays["directions"][0], arrays["removed"][0, 0]
        above = directions @ directions.T + removed * np.eye(N_FEATURES) - outer
        assert np.linalg.eigvalsh(above)[0] >= -1e-9
    assert removed > 0.0
    eye = np.eye(N_FEATURES)
    found = np.hstack([preconditioner.multiply(arrays, eye[:, [i]]) for i in range(N_FEATURES)])
    squared = directions @ directions.T + removed * eye
    np.testing.assert_allclose(found @ found, squared, atol=1e-9 * squared.max())


@pytest.mark.parametrize("kind", [Sketch, CorrectedSketch, SketchedNewton])
def test_merged_metrics_go_on(kind):
    """Of gradients of low rank the merged metric is that of one stream, S u included."""
    preconditioner, gradients = kind(rank=RANK, delta=0.3), draw_gradients(8, 20, RANK - 1)
    update = DualAveraging(0.5, preconditioner, ElasticBox())
    states = [update.init(N_FEATURES, 2) for _ in range(3)]
    for step, gradient in enumerate(gradients):
        states[0] = update.step(states[0], gradient)
        which = 1 if step < 9 else 2
        states[which] = update.step(states[which], gradient)
    whole, one, other = states
    total = one.primary + other.primary
    merged = preconditioner.merge(one.preconditioner, other.preconditioner, total)
    if kind is SketchedNewton:
        np.testing.assert_array_equal(merged["time"], whole.preconditioner["time"])
        return
    expected = preconditioner.solve_sum(whole.preconditioner, whole.primary)
    np.testing.assert_allclose(preconditioner.solve_sum(merged, total), expected, atol=1e-8)


def test_a_sparse_example_costs_its_non_zeros():
    """Steps and weights by ids read nothing else: all else is not a number here."""
    rng = np.random.default_rng(0)
    update = DualAveraging(0.5, Sketch(0.3, RANK), ElasticBox())
    state, ids = update.init(1000, 2), np.array([3, 500, 999])
    for _ in range(5):
        state = update.step(state, rng.normal(size=(3, 2)), ids=ids)
    others = np.setdiff1d(np.arange(1000), ids)
    state.primary[others] = np.nan
    state.preconditioner["directions"][:, others] = np.nan
    state = update.step(state, rng.normal(size=(3, 2)), ids=ids)
    assert np.isfinite(update.weights(state, ids)).all()
    assert np.isnan(state.primary[others]).all()


def test_weights_by_ids_have_the_bits_of_all_weights():
    """However many there are, and wherever they stand."""
    rng = np.random.default_rng(1)
    update = DualAveraging(0.5, Sketch(0.3, 10), ElasticBox())
    state = update.init(997, 1)
    for step in range(25):
        state = update.step(state, rng.normal(size=(997, 1)))
        whole = update.weights(state)
        for count in (1, 2, 3, 5, 30, 31, 500, 996):
            ids = np.sort(rng.choice(997, count, replace=False))
            np.testing.assert_array_equal(update.weights(state, ids), whole[ids], err_msg=f"{step}")


def test_sparse_steps_are_much_faster_than_whole_ones():
    n_features, rng = 100_000, np.random.default_rng(0)
    update = DualAveraging(0.5, Sketch(0.3, 10), ElasticBox())

    def seconds(ids: np.ndarray | None) -> float:
        state = update.init(n_features, 1)
        least = np.inf
        for _ in range(9):  # no shrink yet
            gradient = rng.normal(size=(n_features if ids is None else len(ids), 1))
            start = time.perf_counter()
            state = update.step(state, gradient, ids=ids)
            update.weights(state, ids)
            least = min(least, time.perf_counter() - start)
        return least

    assert seconds(np.arange(0, n_features, 5000)) < 0.2 * seconds(None)
