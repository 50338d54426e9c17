"""Properties of every preconditioner: an inverse, a majorant, and vectors."""

import numpy as np
from helpers.objects import preconditioner_of
from helpers.update_cases import arrays_after, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

from dadagrad.optim.preconditioners import PRECONDITIONERS

N_FEATURES = 7


def draw_gradients(seed, n_steps=12):
    """(n_steps, N_FEATURES, 2) gradients of rank 2, which sketches of rank 3 keep whole."""
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(2, N_FEATURES, 2))
    return np.einsum("ndk,dik->nik", rng.normal(size=(n_steps, 2, 2)), directions)


@given(name=st.sampled_from(list(PRECONDITIONERS)), seed=seeds)
@settings(max_examples=110)
def test_the_inverse_undoes_the_product_and_the_majorant_is_above(name, seed):
    preconditioner = preconditioner_of(name)
    arrays = arrays_after(preconditioner, draw_gradients(seed))
    vector = np.random.default_rng(seed).normal(size=(N_FEATURES, 2))
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
