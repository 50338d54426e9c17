"""Random gradients, and updates and preconditioners that take them step by step."""

import numpy as np
from hypothesis import strategies as st

from dadagrad.optim.preconditioners import Step

seeds = st.integers(0, 2**32 - 1)


def draw_gradients(seed, shape, n_steps=12, density=0.6):
    """(n_steps, *shape) gradients with many exact zeros; the last feature never occurs."""
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(n_steps, *shape)) * (rng.random((n_steps, *shape)) < density)
    gradients[:, -1] = 0.0
    return gradients


def walk(update, gradients, importance=1.0):
    """The weights after each step, shaped as a gradient."""
    shape = gradients.shape[1:]
    columns = gradients.reshape(*gradients.shape[:2], -1)
    state = update.init(*columns.shape[1:])
    for gradient in columns:
        state = update.step(state, gradient, importance)
        yield update.weights(state).reshape(shape)


def assert_alike(updates, gradients, atol):
    """All updates have the weights of the first after each step."""
    for expected, *others in zip(*(walk(update, gradients) for update in updates), strict=True):
        for found in others:
            np.testing.assert_allclose(found, expected, atol=atol)


def arrays_after(preconditioner, gradients):
    """The arrays of a preconditioner after (n_steps, n_features, n_outputs) gradients."""
    arrays = preconditioner.init(*gradients.shape[1:])
    for gradient in gradients:
        arrays = preconditioner.add(arrays, Step(gradient))
    return arrays
