"""Preconditioners of matrices: roots of matrices, the steps of papers, and what holds for all."""

import numpy as np
import pytest
import scipy.fft
import scipy.linalg
from helpers.objects import preconditioner_of
from helpers.update_cases import arrays_after, draw_gradients, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad.optim.preconditioners import PRECONDITIONERS, AdaLowRank, Block, Full, RadaGrad
from dadagrad.optim.preconditioners.random_projection import projection
from dadagrad.optim.regularizers import ElasticBox
from dadagrad.optim.updates import MirrorDescent

deltas = st.sampled_from([0.0, 0.01, 1.0])
SHAPE = (7, 2)


@given(name=st.sampled_from(list(PRECONDITIONERS)), seed=seeds)
@settings(max_examples=110)
def test_the_inverse_undoes_the_product_and_the_majorant_is_above(name, seed):
    preconditioner = preconditioner_of(name)
    rng = np.random.default_rng(seed)  # gradients of rank 2, which sketches of rank 3 keep whole
    directions, coefficients = rng.normal(size=(2, *SHAPE)), rng.normal(size=(12, 2, 2))
    gradients = np.einsum("ndk,dik->nik", coefficients, directions)
    arrays, vector = arrays_after(preconditioner, gradients), rng.normal(size=SHAPE)
    product = preconditioner.multiply(arrays, vector)
    if name == "ada-lr":  # H is 0 across the gradients
        vector = preconditioner.solve(arrays, product)
        product = preconditioner.multiply(arrays, vector)
    np.testing.assert_allclose(preconditioner.solve(arrays, product), vector, atol=1e-6)
    ids = np.array([1, 5])
    some = preconditioner.solve(arrays, product, ids)
    np.testing.assert_array_equal(some, preconditioner.solve(arrays, product)[ids])
    largest = np.sum(preconditioner.majorant(arrays) * vector * vector, axis=0)
    assert (np.sum(product * vector, axis=0) <= largest * (1 + 1e-9)).all()


@pytest.mark.parametrize(
    ("size", "sizes"), [(None, [7]), (3, [3, 3, 1]), (100, [7]), ((2, 4, 1), [2, 4, 1])]
)
@given(seed=seeds, delta=deltas)
def test_full_and_blocks_are_roots_of_outer_products(size, sizes, seed, delta):
    """By scipy's square root of a matrix, block by block."""
    preconditioner = Block(size, delta) if size else Full(delta)
    gradients = draw_gradients(seed, SHAPE, 20)
    gradients += 0.1 * np.random.default_rng(seed).normal(size=gradients.shape)
    arrays, vector = arrays_after(preconditioner, gradients), gradients[0]
    product, solved = preconditioner.multiply(arrays, vector), preconditioner.solve(arrays, vector)
    for output in range(2):
        blocks = np.split(gradients[:, :, output], np.cumsum(sizes)[:-1], axis=1)
        roots = [np.real(scipy.linalg.sqrtm(block.T @ block)) for block in blocks]
        root = scipy.linalg.block_diag(*roots) + delta * np.eye(7)
        np.testing.assert_allclose(product[:, output], root @ vector[:, output], atol=1e-9)
        expected = np.linalg.solve(root, vector[:, output])
        np.testing.assert_allclose(solved[:, output], expected, atol=1e-8)


@given(seed=seeds)
def test_without_delta_the_inverse_is_the_pseudo_inverse(seed):
    gradients, preconditioner = draw_gradients(seed, SHAPE, 4), Full(0.0)
    arrays = arrays_after(preconditioner, gradients)
    vector = np.random.default_rng(seed).normal(size=SHAPE)
    for output in range(2):
        _, sigma, turned = np.linalg.svd(gradients[:, :, output], full_matrices=False)
        known = sigma > 1e-6 * sigma.max(initial=1e-300)
        inverse = turned[known].T / sigma[known] @ turned[known]
        found = preconditioner.solve(arrays, vector)[:, output]
        scale = max(1.0, np.abs(inverse).max(initial=0.0))
        np.testing.assert_allclose(found, inverse @ vector[:, output], atol=1e-6 * scale)


# ADA-LR and RADAGRAD.

N_FEATURES, RANK, ETA, DELTA = 15, 4, 0.3, 0.2
GRADIENTS = np.random.default_rng(0).normal(size=(20, N_FEATURES))


def test_the_projection_is_a_subsampled_cosine_transform():
    found = projection(N_FEATURES, RANK, 3) / np.sqrt(N_FEATURES / RANK)
    transform = scipy.fft.dct(np.eye(N_FEATURES), axis=0, norm="ortho")
    rows = np.argmax(np.abs(found) @ np.abs(transform).T, axis=1)
    assert len(set(rows.tolist())) == RANK
    np.testing.assert_allclose(np.abs(found), np.abs(transform[rows]), atol=1e-12)
    np.testing.assert_allclose(found @ found.T, np.eye(RANK), atol=1e-12)
    assert projection(N_FEATURES, RANK, 4).tolist() != projection(N_FEATURES, RANK, 3).tolist()
    assert projection(3, RANK, 3).shape == (3, 3)


def test_ada_lr_is_eq_3():
    update = MirrorDescent(ETA, AdaLowRank(DELTA, RANK, 7), ElasticBox())
    state, weights = update.init(N_FEATURES, 1), np.zeros(N_FEATURES)
    outer, matrix = np.zeros((N_FEATURES, N_FEATURES)), projection(N_FEATURES, RANK, 7)
    for g in GRADIENTS:
        state = update.step(state, g[:, None])
        outer += np.outer(g, g)
        basis = np.linalg.qr(outer @ matrix.T).Q
        _, sigma, v = np.linalg.svd(basis.T @ outer, full_matrices=False)
        # Directions with Sigma = 0 (the first gradients are fewer than rank) are across V.
        v, sigma = v[sigma > 1e-9 * sigma[0]], sigma[sigma > 1e-9 * sigma[0]]
        weights = weights - ETA * v.T / (np.sqrt(sigma) + DELTA) @ v @ g
        np.testing.assert_allclose(update.weights(state)[:, 0], weights, atol=1e-9)


def test_radagrad_is_eq_4():
    update = MirrorDescent(ETA, RadaGrad(DELTA, RANK, 7), ElasticBox())
    state, weights = update.init(N_FEATURES, 1), np.zeros(N_FEATURES)
    projected, matrix = np.zeros((N_FEATURES, RANK)), projection(N_FEATURES, RANK, 7)
    for g in GRADIENTS:
        state = update.step(state, g[:, None])
        projected += np.outer(g, matrix @ g)
        basis = np.linalg.qr(projected).Q
        _, sigma, w = np.linalg.svd(projected.T @ basis)
        known = sigma > 1e-9 * sigma[0]
        v, sigma = (basis @ w.T)[:, known].T, sigma[known]
        across = ETA * (g - v.T @ v @ g)
        weights = weights - ETA * v.T / (np.sqrt(sigma) + DELTA) @ v @ g - across
        np.testing.assert_allclose(update.weights(state)[:, 0], weights, atol=1e-9)
