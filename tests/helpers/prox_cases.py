"""Random proxes, a general solver for them, and how far a point is from optimal."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

Prox = tuple[np.ndarray, np.ndarray, float]


def draw_prox(seed: int, n_features: int = 5, spread: float = 1.0) -> Prox:
    """A center with zeros and ties, a curvature over 2 * spread decades, and a scale."""
    rng = np.random.default_rng(seed)
    center = rng.normal(size=n_features) * 2
    center[rng.random(n_features) < 0.1] = 0.0
    if rng.random() < 0.3:
        center = np.round(center)
    curvature = 10.0 ** rng.uniform(-spread, spread, n_features)
    if rng.random() < 0.3:
        curvature[:] = 1.0
    return center, curvature, float(10.0 ** rng.uniform(-1, 0.7))


def objective(regularizer, weights: np.ndarray, prox: Prox) -> float:
    center, curvature, scale = prox
    distance = 0.5 * float(np.sum(curvature * np.square(weights - center)))
    return scale * regularizer.value(weights) + distance


def assert_no_point_is_better(regularizer, prox: Prox, into_domain=lambda weights: weights):
    """Against random points at all distances, put into the domain by `into_domain`."""
    weights = regularizer.prox(*prox)
    best = objective(regularizer, weights, prox)
    assert np.isfinite(best)
    rng = np.random.default_rng(0)
    for width in (1e-4, 1e-2, 0.3, 3.0):
        for _ in range(20):
            other = into_domain(weights + width * rng.normal(size=weights.shape))
            assert objective(regularizer, other, prox) >= best - 1e-12 * max(1.0, abs(best))


def solve(
    center,
    curvature,
    *,
    square=0.0,
    l1=0.0,
    level=0.0,
    l1_radius=None,
    l2_radius=None,
    floor=None,
    total=None,
):
    """The minimiser of the parts below by SLSQP, which knows nothing of proxes.

    1/2 sum curvature (w - center)^2 + square/2 |w|^2 + l1 sum_i s_i + level t, with |w_i| <= s_i
    and s_i <= t; in the balls, above the floor, and with the total that are given. The unknowns
    are w times the root of its curvature, s and t, so that the objective is round.
    """
    n = len(center)
    root = np.sqrt(curvature + square)
    goal = np.concatenate([curvature * center / root, np.zeros(n + 1)])
    linear = np.concatenate([np.zeros(n), np.full(n, l1), [level]])
    to_w = np.hstack([np.diag(1 / root), np.zeros((n, n + 1))])
    to_s = np.hstack([np.zeros((n, n)), np.eye(n), np.zeros((n, 1))])
    to_t = np.zeros((n, 2 * n + 1))
    to_t[:, -1] = 1.0
    rows = [(to_s - to_w, 0.0), (to_s + to_w, 0.0), (to_t - to_s, 0.0)]
    if l1_radius is not None:
        rows.append((-to_s.sum(axis=0, keepdims=True), -l1_radius))
    if floor is not None:
        rows.append((to_w, floor))
    matrix = np.vstack([row for row, _ in rows])
    bound = np.concatenate([np.full(len(row), least) for row, least in rows])
    constraints = [{"type": "ineq", "fun": lambda x: matrix @ x - bound, "jac": lambda x: matrix}]
    if total is not None:
        row = to_w.sum(axis=0)
        constraints.append({"type": "eq", "fun": lambda x: row @ x - total, "jac": lambda x: row})
    if l2_radius is not None:
        constraints.append(
            {
                "type": "ineq",
                "fun": lambda x: 1.0 - np.sum(np.square(to_w @ x / l2_radius)),
                "jac": lambda x: -2.0 * (to_w @ x) @ to_w / l2_radius**2,
            }
        )
    is_w = np.arange(2 * n + 1) < n
    found = minimize(
        lambda x: 0.5 * np.sum(np.square(x - goal), where=is_w) + linear @ x,
        np.concatenate([root * (0.5 / n), np.full(n, 1.0 / n), [1.0]]),
        jac=lambda x: np.where(is_w, x - goal, 0.0) + linear,
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-17, "maxiter": 2000},
    )
    return to_w @ found.x


def solve_l2_norm(center, curvature, strength):
    """Through its dual, min 1/2 sum (alpha - H center)^2 / H over |alpha| <= strength, by SLSQP."""
    product = curvature * center
    unit = max(strength, 1e-3)  # SLSQP wants numbers around 1
    found = minimize(
        lambda a: 0.5 * np.sum((a * unit - product) ** 2 / curvature) / unit**2,
        np.full(len(center), 0.1),
        jac=lambda a: (a * unit - product) / curvature / unit,
        constraints={
            "type": "ineq",
            "fun": lambda a: (strength / unit) ** 2 - a @ a,
            "jac": lambda a: -2 * a,
        },
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 2000},
    )
    return center - found.x * unit / curvature


def l2_violation(weights, pull, strength) -> float:
    """How far `pull` = H (center - w) is from strength times a subgradient of |w|_2."""
    length = np.linalg.norm(weights)
    if length == 0:
        return max(float(np.linalg.norm(pull)) - strength, 0.0)
    return float(np.abs(pull - strength * weights / length).max())


def l_infinity_violation(weights, pull, strength) -> float:
    """The same for |w|_inf: `pull` rests on the largest weights, and sums to strength."""
    size = np.abs(weights).max()
    if size == 0:
        return max(float(np.abs(pull).sum()) - strength, 0.0)
    at_top = np.abs(weights) == size
    wrong_sign = np.maximum(-pull * np.sign(weights), 0.0)
    return max(
        float(np.abs(pull[~at_top]).max(initial=0.0)),
        float(wrong_sign[at_top].max()),
        abs(float(np.abs(pull).sum()) - strength),
    )


def simplex_violation(above, pull) -> float:
    """`pull` is one number where there is weight above the floor, and no larger elsewhere."""
    theta = pull[above > 0].mean()
    return max(
        float(np.abs(pull[above > 0] - theta).max()),
        float((pull[above == 0] - theta).max(initial=0.0)),
    )


def l1_ball_violation(weights, pull, radius) -> float:
    if np.abs(weights).sum() < radius * (1 - 1e-12):
        return float(np.abs(pull).max())
    held = weights != 0
    theta = (pull[held] * np.sign(weights[held])).mean()
    return max(
        float(np.abs(pull[held] - theta * np.sign(weights[held])).max()),
        float((np.abs(pull[~held]) - theta).max(initial=0.0)),
        -theta,
    )


def l2_ball_violation(weights, pull, radius) -> float:
    if np.linalg.norm(weights) < radius * (1 - 1e-12):
        return float(np.abs(pull).max())
    multiplier = float(pull @ weights) / float(weights @ weights)
    return max(float(np.abs(pull - multiplier * weights).max()), -multiplier)
