"""Frequent directions: the bounds of the papers, and rows given by their non-zeros."""

import numpy as np
from helpers.update_cases import seeds
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.optim.preconditioners import frequent_directions as fd

ranks = st.sampled_from([2, 3, 5, 8])
buffers = st.sampled_from([0, 1, 5])
decays = st.sampled_from([0.0, 0.3, 1.5])


def draw_rows(seed, n_rows, n_features=12, decay=0.3):
    """(n_rows, n_features), with singular values that fall by `decay`, some rows sparse."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(n_features, n_features))).Q
    rows = rng.normal(size=(n_rows, n_features)) * np.exp(-decay * np.arange(n_features)) @ turn
    rows[rng.random(n_rows) < 0.3] *= rng.random(n_features) < 0.3
    return rows


def empty(n_rows, n_features=12):
    kinds = {"filled": np.int64}
    shapes = fd.shapes(n_features, n_rows)
    return {name: np.zeros(shape, kinds.get(name, float)) for name, shape in shapes.items()}


def sketch_of(rows, rank, buffer):
    sketch = empty(rank + buffer, rows.shape[1])
    for row in rows:
        fd.add(sketch, rank, row)
    return sketch


def square(sketch):
    """S'S."""
    return sketch["directions"] @ sketch["directions"].T


def assert_bounds(sketch, rows, rank):
    """0 <= G - S'S <= Delta I, and Delta <= |A - A_k|_F^2 / (tau - k) for every k < tau."""
    lost = np.linalg.eigvalsh(rows.T @ rows - square(sketch))
    removed = sketch["removed"][0]
    noise = 1e-12 * max(np.square(rows).sum(), 1e-300)
    assert lost[0] >= -noise
    assert lost[-1] <= removed + noise
    tails = np.square(np.linalg.svd(rows, compute_uv=False))
    for k in range(rank):
        assert removed <= tails[k:].sum() / (rank - k) + noise


@given(seed=seeds, rank=ranks, buffer=buffers, decay=decays, n_rows=st.integers(1, 60))
def test_the_bounds_hold(seed, rank, buffer, decay, n_rows):
    rows = draw_rows(seed, n_rows, decay=decay)
    sketch = sketch_of(rows, rank, buffer)
    assert_bounds(sketch, rows, rank)
    fd.shrink(sketch, rank)
    assert_bounds(sketch, rows, rank)
    assert sketch["filled"][0] < rank
    assert not sketch["directions"][:, rank - 1 :].any()


def shrink_by_svd(rows, rank):
    """The rank - 1 rows that are left, and what was subtracted from their squared lengths."""
    _, sigma, turned = np.linalg.svd(rows, full_matrices=False)
    # More rows than features have zeros beyond their singular values.
    sigma = np.pad(sigma, (0, max(0, rank - len(sigma))))
    left = np.square(sigma) - sigma[rank - 1] ** 2
    count = min(rank - 1, len(turned))
    kept = np.sqrt(left[:count])[:, None] * turned[:count]
    return np.pad(kept, ((0, rank - 1 - count), (0, 0))), float(sigma[rank - 1] ** 2)


@given(seed=seeds, rank=ranks, buffer=buffers, decay=decays)
def test_a_sketch_is_that_of_a_singular_value_decomposition(seed, rank, buffer, decay):
    """Without a buffer, each row ends with a shrink, as algorithms 1 and 2 of the paper have it."""
    rows = draw_rows(seed, 40, decay=decay)
    kept, removed = np.zeros((0, rows.shape[1])), 0.0
    for row in rows[rows.any(1)]:
        if len(kept) == rank + buffer:
            kept, subtracted = shrink_by_svd(kept, rank)
            removed += subtracted
        kept = np.vstack([kept, row])
        if not buffer and len(kept) == rank:
            kept, subtracted = shrink_by_svd(kept, rank)
            removed += subtracted
    sketch = sketch_of(rows, rank, buffer)
    size = np.square(rows).sum()
    np.testing.assert_allclose(square(sketch), kept.T @ kept, atol=1e-12 * size)
    np.testing.assert_allclose(sketch["removed"][0], removed, atol=1e-12 * size)


def test_a_sketch_shrinks_only_when_it_is_full():
    sketch, filled = empty(8, 30), []
    for row in draw_rows(1, 20, n_features=30, decay=0.0):
        fd.add(sketch, 4, row)
        filled.append(int(sketch["filled"][0]))
    assert filled == [1, 2, 3, 4, 5, 6, 7, 8, 4, 5, 6, 7, 8, 4, 5, 6, 7, 8, 4, 5]
    assert np.isnan(sketch["products"][4])  # without the sum, so that nobody takes a stale one


def test_a_row_of_zeros_changes_nothing():
    sketch = sketch_of(draw_rows(2, 8), 4, 4)
    before = {key: array.copy() for key, array in sketch.items()}
    fd.add(sketch, 4, np.zeros(12))
    fd.add(sketch, 4, np.zeros(2), np.array([3, 5]))
    for key, array in before.items():
        np.testing.assert_array_equal(sketch[key], array)
