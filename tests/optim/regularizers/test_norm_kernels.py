"""The compiled norms against plain NumPy, and that nothing compiles before it must."""

from __future__ import annotations

import subprocess
import sys
from types import FunctionType

import numpy as np
import pytest
from helpers.norm_formulas import l2_rows, l_infinity_rows
from hypothesis import given
from hypothesis import strategies as st

from dadagrad.optim.regularizers import MixedL2, MixedLInfinity, kernels
from dadagrad.optim.regularizers.base import MIN_CURVATURE

PAIRS = [(MixedL2, l2_rows), (MixedLInfinity, l_infinity_rows)]


@pytest.mark.parametrize(("mixed", "rows"), PAIRS)
@given(
    seed=st.integers(0, 2**32 - 1),
    strength=st.sampled_from([0.0, 1e-3, 1.0, 30.0, 1e4]),
    spread=st.sampled_from([0.0, 1.0, 5.0]),
)
def test_kernels_are_the_formulas(mixed, rows, seed, strength, spread):
    rng = np.random.default_rng(seed)
    center = rng.normal(size=(60, 7)) * 10.0 ** rng.integers(-2, 3, size=(60, 1))
    center[rng.random(center.shape) < 0.2] = 0.0
    center[:10] = np.round(center[:10])
    curvature = 10.0 ** rng.uniform(-spread, spread, center.shape)
    curvature[rng.random(center.shape) < 0.1] = 0.0
    curvature[0] = 0.0
    found, expected = (
        mixed(strength).prox(center, curvature, 1.0),
        rows(center, curvature, strength),
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-13 * np.abs(center).max())
    np.testing.assert_array_equal(found == 0, expected == 0)


def test_both_take_the_same_curvatures_for_zero():
    assert kernels.MIN_CURVATURE == MIN_CURVATURE


def test_newton_converges_in_few_steps():
    """The bisection alone needs some 50: this would be seen as time, not as a wrong number."""
    rng = np.random.default_rng(0)
    center, curvature = rng.normal(size=(500, 10)), 10.0 ** rng.uniform(-3, 3, (500, 10))
    exact = MixedL2(1.0).prox(center, curvature, 1.0)
    names = {**vars(kernels), "MAX_STEPS": 12}
    multiplier = FunctionType(kernels._multiplier.py_func.__code__, names)
    for row in range(500):
        strength = float(np.linalg.norm(curvature[row] * center[row]))
        if strength <= 1.0:
            continue
        theta = multiplier(center[row], 1 / curvature[row], 10, 1.0)
        found = theta * center[row] / (1 / curvature[row] + theta)
        np.testing.assert_allclose(found, exact[row], rtol=1e-12)


@pytest.mark.parametrize(
    "module", ["dadagrad", "dadagrad.optim.regularizers", "dadagrad.optim.projections"]
)
def test_numba_is_not_imported_before_it_is_needed(module):
    code = f"import sys, {module}; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_second_call_compiles_nothing():
    rng = np.random.default_rng(0)
    for mixed, kernel in ((MixedL2, kernels.l2_norms), (MixedLInfinity, kernels.l_infinity_norms)):
        mixed(0.1).prox(rng.normal(size=(20, 2)), 1.0, 1.0)
        compiled = list(kernel.signatures)
        for n_outputs in (1, 3):
            center = rng.normal(size=(20, n_outputs))
            mixed(0.1).prox(center, np.ones_like(center), 1.0)
            mixed(0.1).prox(center[:1, :1], 1.0, 1.0)
            mixed(0.1).prox(np.asfortranarray(center)[::2], 1.0, 1.0)
        assert kernel.signatures == compiled
