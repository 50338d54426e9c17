"""Full and block metrics against the square root of a matrix."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.errors import InputError
from dadagrad.metrics import Block, Diagonal, Full
from dadagrad.regularizers import ElasticBox
from dadagrad.updates import UPDATES, make_update

seeds = st.integers(0, 2**32 - 1)
deltas = st.sampled_from([0.0, 0.01, 1.0])
each_update = pytest.mark.parametrize("name", list(UPDATES))
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
    ("metric", "sizes"),
    [(Full, [7]), (3, [3, 3, 1]), (7, [7]), (100, [7]), ((2, 4, 1), [2, 4, 1])],
)
@given(seed=seeds, delta=deltas)
def test_it_is_the_root_of_the_outer_products(metric, sizes, seed, delta):
    metric = Full(delta) if metric is Full else Block(delta, metric)
    gradients = draw_gradients(seed, n_steps=20)
    gradients += 0.1 * np.random.default_rng(seed).normal(size=gradients.shape)
    arrays = metric.init(*SHAPE)
    for gradient in gradients:
        arrays = metric.add(arrays, gradient)
    vector = gradients[0]
    for output in range(2):
        root = full_metric(gradients[:, :, output], delta, sizes)
        expected = root @ vector[:, output]
        np.testing.assert_allclose(metric.multiply(arrays, vector)[:, output], expected, atol=1e-9)
        solved = np.linalg.solve(root, vector[:, output])
        np.testing.assert_allclose(metric.solve(arrays, vector)[:, output], solved, atol=1e-8)
    rows = metric.solve(arrays, vector, np.array([1, 5]))
    np.testing.assert_array_equal(rows, metric.solve(arrays, vector)[[1, 5]])


@given(seed=seeds)
def test_without_delta_the_inverse_is_the_pseudo_inverse(seed):
    gradients, metric = draw_gradients(seed, n_steps=4), Full(0.0)
    arrays = metric.init(*SHAPE)
    for gradient in gradients:
        arrays = metric.add(arrays, gradient)
    vector = np.random.default_rng(seed).normal(size=SHAPE)
    for output in range(2):
        _, sigma, turned = np.linalg.svd(gradients[:, :, output], full_matrices=False)
        known = sigma > 1e-6 * sigma.max(initial=1e-300)
        inverse = turned[known].T / sigma[known] @ turned[known]
        found = metric.solve(arrays, vector)[:, output]
        scale = max(1.0, np.abs(inverse).max(initial=0.0))
        np.testing.assert_allclose(found, inverse @ vector[:, output], atol=1e-6 * scale)


@each_update
@given(seed=seeds, delta=deltas, l1=st.sampled_from([0.0, 0.05]))
def test_one_block_is_the_full_metric(name, seed, delta, l1):
    full = make_update(name, 0.3, Full(delta), ElasticBox(l1))
    block = make_update(name, 0.3, Block(delta, 7), ElasticBox(l1))
    full_state, block_state = full.init(*SHAPE), block.init(*SHAPE)
    for gradient in draw_gradients(seed, n_steps=4):
        full_state = full.step(full_state, gradient)
        block_state = block.step(block_state, gradient)
        np.testing.assert_array_equal(full.weights(full_state), block.weights(block_state))


@each_update
@given(seed=seeds, delta=deltas, l1=st.sampled_from([0.0, 0.05]))
def test_blocks_of_one_feature_are_the_diagonal_metric(name, seed, delta, l1):
    block = make_update(name, 0.3, Block(delta, 1), ElasticBox(l1, 0.1))
    diagonal = make_update(name, 0.3, Diagonal(delta), ElasticBox(l1, 0.1))
    block_state, diagonal_state = block.init(*SHAPE), diagonal.init(*SHAPE)
    for gradient in draw_gradients(seed):
        block_state = block.step(block_state, gradient)
        diagonal_state = diagonal.step(diagonal_state, gradient)
        found, expected = block.weights(block_state), diagonal.weights(diagonal_state)
        np.testing.assert_allclose(found, expected, atol=1e-9)
        np.testing.assert_array_equal(found == 0.0, expected == 0.0)


@pytest.mark.parametrize("metric", [Full(0.1), Block(0.1, 3)])
def test_merging_is_one_stream(metric):
    gradients = draw_gradients(1)
    whole, one, other = (metric.init(*SHAPE) for _ in range(3))
    for step, gradient in enumerate(gradients):
        whole = metric.add(whole, gradient)
        if step < 7:
            one = metric.add(one, gradient)
        else:
            other = metric.add(other, gradient)
    merged, vector = metric.merge(one, other), gradients[0]
    expected = metric.solve(whole, vector)
    np.testing.assert_allclose(metric.solve(merged, vector), expected, atol=1e-9)


@pytest.mark.parametrize("blocks", [0, -2, 1.5, True, (), (2, 0), (2, "a")])
def test_blocks_are_numbers_of_features(blocks):
    with pytest.raises(InputError, match="blocks must be the number of features of each block"):
        Block(0.1, blocks)


def test_blocks_must_cover_the_features():
    with pytest.raises(InputError, match="the blocks have 5 features together, but there are 7"):
        Block(0.1, (2, 3)).init(7, 1)


def test_a_full_metric_must_be_told_the_outputs():
    with pytest.raises(InputError, match="'full' takes vectors of shape"):
        Full(0.1).init(7)
