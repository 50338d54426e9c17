"""Preconditioners from sketches: equal to the full one where they must be, and their formulas."""

import numpy as np
import pytest
from helpers.objects import GRADIENT_UPDATES
from helpers.update_cases import arrays_after, seeds, walk
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad.optim.preconditioners import CorrectedSketch, Full, Sketch, SketchedNewton
from dadagrad.optim.regularizers import ElasticBox
from dadagrad.optim.updates import UPDATES, DualAveraging, MirrorDescent

N_FEATURES, RANK = 12, 4


def draw_gradients(seed, n_steps, of_rank, spread=1.0):
    """(n_steps, N_FEATURES, 2), each output of the given rank, its directions unequally long."""
    rng = np.random.default_rng(seed)
    lengths = np.geomspace(1.0, spread, of_rank)
    parts = [
        rng.normal(size=(n_steps, of_rank)) * lengths @ rng.normal(size=(of_rank, N_FEATURES))
        for _ in range(2)
    ]
    return np.stack(parts, axis=-1)


@given(
    kind=st.sampled_from([Sketch, CorrectedSketch]),
    name=st.sampled_from(GRADIENT_UPDATES),
    seed=seeds,
    delta=st.sampled_from([0.0, 1e-2, 1.0]),
    spread=st.sampled_from([1.0, 1e-3]),
    penalty=st.sampled_from([(0.0, 0.0), (0.05, 0.1)]),
)
@settings(max_examples=16)
def test_a_rank_below_the_sketch_is_the_full_preconditioner(
    kind, name, seed, delta, spread, penalty
):
    delta = max(delta, 1e-2) if any(penalty) else delta
    gradients = draw_gradients(seed, 8 if any(penalty) else 30, RANK - 1, spread)
    sketched, full = (
        list(walk(UPDATES[name](0.5, each, ElasticBox(*penalty)), gradients))
        for each in (kind(delta=delta, rank=RANK), Full(delta))
    )
    for found, expected in zip(sketched, full, strict=True):
        size = max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(found, expected, atol=1e-6 * size)


@given(seed=seeds, rank=st.sampled_from([2, 4]), n_steps=st.integers(0, 30))
@pytest.mark.parametrize("kind", [Sketch, CorrectedSketch, SketchedNewton])
def test_each_is_its_formula(kind, seed, rank, n_steps):
    """H from S itself, by an eigen-decomposition of the whole S'S."""
    delta, preconditioner = 0.3, kind(rank=rank, delta=0.3)
    arrays = arrays_after(preconditioner, draw_gradients(seed, n_steps, 8))
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


@pytest.mark.parametrize("buffer", [0, None])
def test_algorithms_1_and_2_of_the_paper(buffer):
    """With u, g and S as there; with a buffer S has room for all rows here."""
    eta, delta, gradients = 0.5, 0.2, draw_gradients(5, 8, 8)[:, :, :1]
    preconditioner = Sketch(delta, RANK, buffer)
    duals, mirrors = (
        list(walk(kind(eta, preconditioner, ElasticBox()), gradients))
        for kind in (DualAveraging, MirrorDescent)
    )
    u, weights = np.zeros(N_FEATURES), np.zeros(N_FEATURES)
    sketch = np.zeros((preconditioner.n_rows, N_FEATURES))
    for t, gradient in enumerate(gradients[:, :, 0]):
        sketch[np.flatnonzero(~sketch.any(1))[0]] = gradient
        _, sigma, v = np.linalg.svd(sketch, full_matrices=False)
        if buffer == 0:
            sigma = np.sqrt(np.square(sigma) - sigma[-1] ** 2)
            sketch = sigma[:, None] * v
        shares = sigma / (delta + sigma)
        u = u + gradient
        expected = -eta / delta * (u - v.T * shares @ v @ u)
        np.testing.assert_allclose(duals[t][:, 0], expected, atol=1e-9)
        weights = weights - eta / delta * (gradient - v.T * shares @ v @ gradient)
        np.testing.assert_allclose(mirrors[t][:, 0], weights, atol=1e-9)


def test_fd_son_divides_the_outer_products_by_the_root_of_time():
    """H_t = delta I + sum g_s g_s' / sqrt(s), eq. in sec. 3.3, while the buffer has room."""
    gradients, preconditioner = draw_gradients(6, 7, 7)[:, :, :1], SketchedNewton(0.3, RANK)
    arrays = arrays_after(preconditioner, gradients)
    rows = gradients[:, :, 0] / np.arange(1, 8)[:, None] ** 0.25
    vector = np.ones((N_FEATURES, 1))
    expected = np.linalg.solve(0.3 * np.eye(N_FEATURES) + rows.T @ rows, vector)
    np.testing.assert_allclose(preconditioner.solve(arrays, vector), expected, atol=1e-10)


def test_weights_by_ids_have_the_bits_of_all_weights():
    """However many there are, and wherever they stand."""
    rng = np.random.default_rng(1)
    update = DualAveraging(0.5, Sketch(0.3, 10), ElasticBox())
    state = update.init(997, 1)
    for _ in range(25):
        state = update.step(state, rng.normal(size=(997, 1)))
        ids = np.sort(rng.choice(997, rng.integers(1, 997), replace=False))
        np.testing.assert_array_equal(update.weights(state, ids), update.weights(state)[ids])
