"""Full and block metrics against the square root of a matrix."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from helpers.objects import GRADIENT_UPDATES
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.errors import InputError
from dadagrad.optim.preconditioners import Block, Diagonal, Full
from dadagrad.optim.regularizers import ElasticBox
from dadagrad.optim.updates import UPDATES

seeds = st.integers(0, 2**32 - 1)
deltas = st.sampled_from([0.0, 0.01, 1.0])
each_update = pytest.mark.parametrize("name", GRADIENT_UPDATES)
SHAPE = (7, 2)


def draw_gradients(seed: int, n_steps: int = 12) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_steps, *SHAPE)) * (rng.random((n_steps, *SHAPE)) < 0.7)


def full_metric(gradients: np.ndarray, delta: float, sizes: list[int]) -> np.ndarray:
    """H of one output by scipy's square root of a matrix, block by block."""
    blocks = np.split(gradients, np.cumsum(sizes)[:-1], axis=1)
    roots = [np.real(scipy.linalg.sqrtm(block.T @ block)) for block in blocks]
    return scipy.linalg.block_diag(*roots) + delta * np.eye(gradients.shape[1])


@pytest.mark.parametrize(
    ("preconditioner", "sizes"),
    [(Full, [7]), (3, [3, 3, 1]), (7, [7]), (100, [7]), ((2, 4, 1), [2, 4, 1])],
)
@given(seed=seeds, delta=deltas)
def test_it_is_the_root_of_the_outer_products(preconditioner, sizes, seed, delta):
    preconditioner = Full(delta) if preconditioner is Full else Block(preconditioner, delta)
    gradients = draw_gradients(seed, n_steps=20)
    gradients += 0.1 * np.random.default_rng(seed).normal(size=gradients.shape)
    arrays = preconditioner.init(*SHAPE)
    for gradient in gradients:
        arrays = preconditioner.add(arrays, gradient)
    vector = gradients[0]
    for output in range(2):
        root = full_metric(gradients[:, :, output], delta, sizes)
        expected = root @ vector[:, output]
        np.testing.assert_allclose(
            preconditioner.multiply(arrays, vector)[:, output], expected, atol=1e-9
        )
        solved = np.linalg.solve(root, vector[:, output])
        np.testing.assert_allclose(
            preconditioner.solve(arrays, vector)[:, output], solved, atol=1e-8
        )
    rows = preconditioner.solve(arrays, vector, np.array([1, 5]))
    np.testing.assert_array_equal(rows, preconditioner.solve(arrays, vector)[[1, 5]])


@given(seed=seeds)
def test_without_delta_the_inverse_is_the_pseudo_inverse(seed):
    gradients, preconditioner = draw_gradients(seed, n_steps=4), Full(0.0)
    arrays = preconditioner.init(*SHAPE)
    for gradient in gradients:
        arrays = preconditioner.add(arrays, gradient)
    vector = np.random.default_rng(seed).normal(size=SHAPE)
    for output in range(2):
        _, sigma, turned = np.linalg.svd(gradients[:, :, output], full_matrices=False)
        known = sigma > 1e-6 * sigma.max(initial=1e-300)
        inverse = turned[known].T / sigma[known] @ turned[known]
        found = preconditioner.solve(arrays, vector)[:, output]
        scale = max(1.0, np.abs(inverse).max(initial=0.0))
        np.testing.assert_allclose(found, inverse @ vector[:, output], atol=1e-6 * scale)


@each_update
@given(seed=seeds, delta=deltas, l1=st.sampled_from([0.0, 0.05]))
def test_one_block_is_the_full_metric(name, seed, delta, l1):
    full = UPDATES[name](0.3, Full(delta), ElasticBox(l1))
    block = UPDATES[name](0.3, Block(7, delta), ElasticBox(l1))
    full_state, block_state = full.init(*SHAPE), block.init(*SHAPE)
    for gradient in draw_gradients(seed, n_steps=4):
        full_state = full.step(full_state, gradient)
        block_state = block.step(block_state, gradient)
        np.testing.assert_array_equal(full.weights(full_state), block.weights(block_state))


@each_update
@given(seed=seeds, delta=deltas, l1=st.sampled_from([0.0, 0.05]))
def test_blocks_of_one_feature_are_the_diagonal_metric(name, seed, delta, l1):
    block = UPDATES[name](0.3, Block(1, delta), ElasticBox(l1, 0.1))
    diagonal = UPDATES[name](0.3, Diagonal(delta), ElasticBox(l1, 0.1))
    block_state, diagonal_state = block.init(*SHAPE), diagonal.init(*SHAPE)
    for gradient in draw_gradients(seed):
        block_state = block.step(block_state, gradient)
        diagonal_state = diagonal.step(diagonal_state, gradient)
        found, expected = block.weights(block_state), diagonal.weights(diagonal_state)
        np.testing.assert_allclose(found, expected, atol=1e-9)
        np.testing.assert_array_equal(found == 0.0, expected == 0.0)


@pytest.mark.parametrize("preconditioner", [Full(0.1), Block(3, 0.1)])
def test_merging_is_one_stream(preconditioner):
    gradients = draw_gradients(1)
    whole, one, other = (preconditioner.init(*SHAPE) for _ in range(3))
    for step, gradient in enumerate(gradients):
        whole = preconditioner.add(whole, gradient)
        if step < 7:
            one = preconditioner.add(one, gradient)
        else:
            other = preconditioner.add(other, gradient)
    merged, vector = preconditioner.merge(one, other), gradients[0]
    expected = preconditioner.solve(whole, vector)
    np.testing.assert_allclose(preconditioner.solve(merged, vector), expected, atol=1e-9)


def test_blocks_must_cover_the_features():
    with pytest.raises(InputError, match="the blocks have 5 features together, but there are 7"):
        Block((2, 3), 0.1).init(7, 1)


def test_a_full_metric_must_be_told_the_outputs():
    with pytest.raises(InputError, match="'full' takes vectors of shape"):
        Full(0.1).init(7)
