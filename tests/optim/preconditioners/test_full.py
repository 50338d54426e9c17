"""Full and block preconditioners against the square root of a matrix."""

import numpy as np
import pytest
import scipy.linalg
from helpers.update_cases import arrays_after, draw_gradients, seeds
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.optim.preconditioners import Block, Full

deltas = st.sampled_from([0.0, 0.01, 1.0])
SHAPE = (7, 2)


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
