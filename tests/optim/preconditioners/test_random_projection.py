"""ADA-LR and RADAGRAD against the steps that the papers list."""

import numpy as np
import scipy.fft

from dadagrad.optim.preconditioners import AdaLowRank, RadaGrad
from dadagrad.optim.preconditioners.random_projection import projection
from dadagrad.optim.regularizers import ElasticBox
from dadagrad.optim.updates import MirrorDescent

N_FEATURES, RANK, ETA, DELTA = 15, 4, 0.3, 0.2


def draw_gradients(n_steps=20):
    return np.random.default_rng(0).normal(size=(n_steps, N_FEATURES))


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
    for g in draw_gradients():
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
    for g in draw_gradients():
        state = update.step(state, g[:, None])
        projected += np.outer(g, matrix @ g)
        basis = np.linalg.qr(projected).Q
        _, sigma, w = np.linalg.svd(projected.T @ basis)
        known = sigma > 1e-9 * sigma[0]
        v, sigma = (basis @ w.T)[:, known].T, sigma[known]
        across = ETA * (g - v.T @ v @ g)
        weights = weights - ETA * v.T / (np.sqrt(sigma) + DELTA) @ v @ g - across
        np.testing.assert_allclose(update.weights(state)[:, 0], weights, atol=1e-9)
