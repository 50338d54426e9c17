"""The two constructions of sec. 1.3 and appendix A of Duchi, Hazan and Singer (2011).

Hinge losses [1 - y <z, x>]_+. The first direction comes eta^2 / eps^2 times; then the others come
in a random order, with random signs. A step size eta / sqrt(t) that all directions share is below
eps by then, so each other direction needs 1 / eps more visits, at losses 1, 1 - eps, 1 - 2 eps, ...
whose sum is at least 1 / (2 eps). AdaGrad needs one visit of each.

The paper says d / (2 eps) for d directions; its construction gives (d - 1) / (2 eps), as the first
direction may cost no more than 1.
"""

import numpy as np
import pytest
from scipy.linalg import hadamard

from dadagrad.optim.preconditioners import Block, Diagonal, Full, Identity
from dadagrad.optim.regularizers import ElasticBox, L2Ball
from dadagrad.optim.updates import DualAveraging, MirrorDescent

N_FEATURES = 8
BOX = ElasticBox(low=-1.0, high=1.0)
# In the paper eta = 1 and the radius is sqrt(d), which leads to margins of exactly 1. A margin that
# rounding leaves at 1 - 1e-16 has a loss of 1e-16 but a gradient of length 1, which leads far away.
# Both are therefore larger here by less than any loss counts.
ONE = 1.0 + 1e-9
BALL = L2Ball(np.sqrt(N_FEATURES) * (1.0 + 1e-6))
ROTATIONS = {
    "hadamard": hadamard(N_FEATURES) / np.sqrt(N_FEATURES),
    "random": np.linalg.qr(np.random.default_rng(2).normal(size=(N_FEATURES, N_FEATURES)))[0],
}


def examples(directions, eta, eps, seed):
    """z_t and y_t: the columns of `directions`, with y_t = sign <1, V' z_t>.

    Enough of them for a step size of eta / sqrt(t) to come to an end: n visits of each of d
    directions move it by at least n eta / sqrt(eta^2 / eps^2 + n d), which must be 1.
    """
    rng = np.random.default_rng(seed)
    d = directions.shape[1]
    first = int(np.ceil(eta**2 / eps**2))
    visits = int(np.ceil(d / eta**2 + 1 / eps + 2))
    order = np.concatenate([rng.permutation(np.arange(1, d)) for _ in range(visits)])
    for i in (*np.zeros(first, int), *order):
        sign = rng.choice([-1.0, 1.0])
        yield sign * directions[:, i], np.sign(np.sum(directions.T @ (sign * directions[:, i])))


def losses(update, stream):
    state, suffered = update.init(N_FEATURES, 1), []
    for z, y in stream:
        margin = y * float(z @ update.weights(state)[:, 0])
        suffered.append(max(0.0, 1.0 - margin))
        gradient = -y * z if margin < 1.0 else np.zeros(N_FEATURES)
        state = update.step(state, gradient[:, None])
    return np.array(suffered)


each_schedule = pytest.mark.parametrize(("eta", "eps"), [(1.0, 0.1), (0.5, 0.05), (4.0, 0.2)])
each_kind = pytest.mark.parametrize("kind", [MirrorDescent, DualAveraging])


@each_kind
@each_schedule
def test_diagonal_adagrad_loses_once_a_feature(kind, eta, eps):
    """X = [-1, 1]^d, D_inf = 2, so the step size is sqrt(2): at most d, and d exactly here."""
    suffered = losses(
        kind(np.sqrt(2.0), Diagonal(0.0), BOX), examples(np.eye(N_FEATURES), eta, eps, 1)
    )
    assert suffered.sum() == N_FEATURES
    assert np.count_nonzero(suffered) == N_FEATURES


@each_kind
@each_schedule
def test_gradient_descent_loses_many_times_a_feature(kind, eta, eps):
    """eta / sqrt(t): at least (d - 1) / (2 eps), whatever eta is. Averaged gradients as well."""
    stream = list(examples(np.eye(N_FEATURES), eta, eps, 1))
    suffered = losses(kind(eta, Identity("sqrt"), BOX), iter(stream))
    assert suffered.sum() >= (N_FEATURES - 1) / (2 * eps)
    if kind is MirrorDescent:  # it has come to an end; averages go on to shrink, and to lose
        assert not suffered[-N_FEATURES:].any()


@each_kind
@pytest.mark.parametrize("rotation", list(ROTATIONS))
def test_full_adagrad_loses_once_a_direction(kind, rotation):
    """X = {|x|_2 <= sqrt(d)}, the columns of V instead of features, eta = 1: at most d.

    x is then the sum of the directions seen, all with margin 1.
    """
    stream = examples(ROTATIONS[rotation], 1.0, 0.2, 1)
    suffered = losses(kind(ONE, Full(0.0), BALL), stream)
    assert suffered.sum() <= N_FEATURES + 1e-6
    assert np.count_nonzero(suffered > 1e-6) == N_FEATURES


@pytest.mark.parametrize("rotation", list(ROTATIONS))
@each_schedule
def test_gradient_descent_loses_many_times_a_direction(rotation, eta, eps):
    """Appendix A: at least (d - 1) / (2 eps). The projection can but shorten a direction."""
    stream = examples(ROTATIONS[rotation], eta, eps, 1)
    suffered = losses(MirrorDescent(eta, Identity("sqrt"), BALL), stream)
    assert suffered.sum() >= (N_FEATURES - 1) / (2 * eps)


def test_the_diagonal_does_not_see_the_rotation():
    """The full matrix sees it: the diagonal needs many more losses, whatever its eta."""
    stream = list(examples(ROTATIONS["hadamard"], 1.0, 0.1, 1))
    full = losses(MirrorDescent(ONE, Full(0.0), BALL), iter(stream)).sum()
    for eta in (0.3, 1.0, np.sqrt(2.0), 3.0):
        diagonal = losses(MirrorDescent(eta, Diagonal(0.0), BALL), iter(stream)).sum()
        assert diagonal > 2 * full


def test_blocks_see_a_rotation_within_a_block():
    """Corollary 12 between the two: two blocks, each with a rotation of its own."""
    half = hadamard(4) / 2.0
    directions = np.kron(np.eye(2), half)
    stream = examples(directions, 1.0, 0.1, 1)
    suffered = losses(MirrorDescent(ONE, Block(4, 0.0), ElasticBox()), stream)
    assert suffered.sum() <= N_FEATURES + 1e-6
