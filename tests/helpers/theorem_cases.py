"""Games to play against an update, the best fixed answer to them, and the bounds they must keep.

A stream is an opponent: it is shown the weights of a step and answers with a loss of <x, w>. The
best fixed weights of a whole game are found by SciPy (a linear program, or L-BFGS for logistic
losses), which knows nothing of this package. The gradients, preconditioners and bounds are computed
here from what was played, by the formulas of the papers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from dadagrad.optim.regularizers import ElasticBox, Regularizer
from helpers.update_cases import seeds

N_FEATURES = 6
SLACK = 1e-7  # of the weights: proxes that are iterated to, and the solvers


@dataclass(frozen=True)
class Loss:
    """f(w) = kind(<x, w>, y): hinge, absolute or logistic; linear is <x, w> itself."""

    kind: str
    x: np.ndarray
    y: float = 1.0

    def value(self, w):
        margin = float(self.x @ w)
        if self.kind == "hinge":
            return max(0.0, 1.0 - self.y * margin)
        if self.kind == "absolute":
            return abs(margin - self.y)
        return float(np.logaddexp(0.0, -self.y * margin)) if self.kind == "logistic" else margin

    def gradient(self, w):
        margin = float(self.x @ w)
        if self.kind == "hinge":
            return -self.y * self.x if self.y * margin < 1.0 else np.zeros_like(self.x)
        if self.kind == "absolute":
            return np.sign(margin - self.y) * self.x
        if self.kind == "logistic":
            return -self.y * self.x * np.exp(-np.logaddexp(0.0, self.y * margin))
        return self.x


Stream = Callable[[np.random.Generator, int, np.ndarray], Loss]
"""The loss of step t = 1, 2, ..., by an opponent who sees the weights; every |x_i| <= 1."""


def away_from(w):
    """The sign of each weight, +1 for 0: the gradient that hurts."""
    return np.where(w >= 0, 1.0, -1.0)


def sparse(rng, t, w):
    """Independent sparse rows; the label is a noisy sign of the same linear function."""
    x = rng.uniform(-1, 1, len(w)) * (rng.random(len(w)) < 0.4)
    y = 1.0 if x @ np.cos(np.arange(len(w))) + 0.2 * rng.normal() > 0 else -1.0
    return Loss("hinge", x, y)


def power_law(rng, t, w):
    """Sec. 1.3 of Duchi et al.: feature i is +-1 with probability min(1, 1 / i^1.5), or 0."""
    common = rng.random(len(w)) < np.arange(1, len(w) + 1) ** -1.5
    x = common * rng.choice([-1.0, 1.0], len(w))
    return Loss("logistic", x, 1.0 if x.sum() + 0.5 * rng.normal() > 0 else -1.0)


def noise(rng, t, w):
    """Targets that have nothing to do with the rows."""
    return Loss("absolute", rng.uniform(-1, 1, len(w)), rng.normal())


def against(rng, t, w):
    """In some features, the sign that hurts the weights played."""
    return Loss("linear", away_from(w) * (rng.random(len(w)) < 0.7))


def wrong_label(rng, t, w):
    """A row with the label that the weights did not predict."""
    x = np.roll([1.0, -0.5, *np.zeros(len(w) - 2)], rng.integers(len(w)))
    return Loss("hinge", x, -1.0 if x @ w > 0 else 1.0)


def bursts(rng, t, w):
    """Twelve steps of one feature and one sign, then of another; some bursts are faint."""
    burst = (t - 1) // 12
    x = np.zeros(len(w))
    x[burst % len(w)] = (-1.0) ** (burst // len(w)) * (0.01 if burst % 3 == 1 else 1.0)
    return Loss("linear", x)


def in_turn(rng, t, w):
    """One feature after the other, with the sign that hurts."""
    x = np.zeros(len(w))
    x[t % len(w)] = away_from(w)[t % len(w)]
    return Loss("linear", x)


def growing(rng, t, w):
    """Gradients that start a thousand times smaller than they end, with the sign that hurts."""
    return Loss("linear", away_from(w) * min(1.0, 1e-3 * 1.1**t))


def constant(rng, t, w):
    """Always the same: the weights go as far as the step size lets them."""
    return Loss("linear", np.ones(len(w)))


def surprise(rng, t, w):
    """1, 1, -10: what a preconditioner without delta cannot take."""
    return Loss("linear", np.full(len(w), -10.0 if t == 3 else 1.0))


def flat_then_steep(rng, t, w):
    """Long one way, then one step the other way: what a small preconditioner cannot take."""
    return Loss("linear", np.full(len(w), -1.0 if t % 30 == 0 else 0.02))


def turning(rng, t, w):
    """Dense gradients near a plane that turns, with the sign that hurts."""
    angles = 0.02 * t + np.arange(len(w))
    x = np.cos(angles) + 0.1 * rng.normal(size=len(w))
    return Loss("linear", x / np.abs(x).max() * (1.0 if x @ w >= 0 else -1.0))


EVERY = (
    *(sparse, power_law, noise, against, wrong_label, bursts),
    *(in_turn, growing, constant, flat_then_steep, turning),
)
STREAMS = {stream.__name__: stream for stream in EVERY}
streams = st.sampled_from(list(STREAMS))
games = {"stream": streams, "seed": seeds, "eta": st.sampled_from([0.1, 0.7, 3.0])}
"""Strategies of arguments of `play`."""
NOTHING = np.zeros(N_FEATURES)
"""The rival whose weights are 0."""


@dataclass(frozen=True)
class Case:
    """phi and X, and the set in which the best fixed weights are looked for.

    Without a domain the bounds hold for every x*, but the best may be at infinity: rivals are then
    taken from the box [-reach, reach].
    """

    regularizer: Regularizer = field(default_factory=ElasticBox)
    reach: float = 3.0

    @property
    def l1(self):
        return self.regularizer.l1 if isinstance(self.regularizer, ElasticBox) else 0.0

    @property
    def box(self):
        """A box that holds every rival; for a ball also its radius does."""
        if not isinstance(self.regularizer, ElasticBox):
            return -self.reach, self.reach
        low, high = self.regularizer.low, self.regularizer.high
        return max(low, -self.reach), min(high, self.reach)

    def holds(self, w):
        return bool(np.isfinite(self.regularizer.value(w)))


CASES = {
    "free": Case(),
    "l1": Case(ElasticBox(l1=0.05)),
    "box": Case(ElasticBox(low=-0.5, high=1.0)),
    "l1 and box": Case(ElasticBox(l1=0.05, low=-1.0, high=1.0)),
}


@dataclass(frozen=True)
class Game:
    """A game of T losses: the weights that met them, and the weights after them all."""

    losses: list[Loss]
    weights: np.ndarray
    gradients: np.ndarray
    after: np.ndarray
    case: Case

    @property
    def suffered(self):
        """sum f_t(x_t) + phi(x_t)."""
        phi = self.case.regularizer
        pairs = zip(self.losses, self.weights, strict=True)
        return sum(loss.value(w) + phi.value(w) for loss, w in pairs)

    def regret(self, rival):
        """R_phi(T) of eq. 2, against `rival`."""
        phi = self.case.regularizer.value(rival)
        return self.suffered - sum(loss.value(rival) + phi for loss in self.losses)

    def farthest(self, rival):
        """max over t <= T of |x* - x_t|_2."""
        return float(np.linalg.norm(rival - self.weights, axis=1).max())

    def rivals(self):
        """The best fixed weights, 0, and points on the way to them and to the last weights."""
        best = best_fixed(self.losses, self.case)
        yield best
        total = self.gradients.sum(0)
        for way in (best, self.after, -np.sign(total) * np.abs(self.after).max(initial=0.0)):
            for share in (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 4 / 3, 2.0, 4.0):
                if self.case.holds(share * way):
                    yield share * way


def play(kind, eta, preconditioner, stream, n_steps, case="free", seed=0, length=None):
    """`n_steps` of `stream` against an update; rows longer than `length` (Euclidean) are cut."""
    case = CASES[case] if isinstance(case, str) else case
    stream = STREAMS[stream] if isinstance(stream, str) else stream
    rng = np.random.default_rng(seed)
    update = kind(eta, preconditioner, case.regularizer)
    state = update.init(N_FEATURES, 1)
    losses, weights, gradients = [], [], []
    for t in range(1, n_steps + 1):
        w = update.weights(state)[:, 0].copy()
        loss = stream(rng, t, w)
        if length is not None:
            share = min(1.0, length / max(np.linalg.norm(loss.x), 1e-300))
            loss = Loss(loss.kind, share * loss.x, loss.y)
        losses.append(loss)
        weights.append(w)
        gradients.append(loss.gradient(w))
        state = update.step(state, gradients[-1][:, None])
    after = update.weights(state)[:, 0]
    return Game(losses, np.array(weights), np.array(gradients), after, case)


def best_fixed(losses, case):
    """argmin of sum f_t + T phi over the domain, by SciPy."""
    if losses[0].kind == "logistic":
        return _best_logistic(losses, case)
    x = np.array([loss.x for loss in losses])
    y = np.array([loss.y for loss in losses])
    kind, (n_steps, n) = losses[0].kind, x.shape
    low, high = case.box
    # Variables: positive and negative parts of the weights, then the loss of each step.
    cost = np.full(2 * n, n_steps * case.l1)
    bounds = [(0.0, high)] * n + [(0.0, -low)] * n
    rows = sides = None
    if kind == "linear":
        cost = cost + np.r_[x.sum(0), -x.sum(0)]
    else:
        cost = np.r_[cost, np.ones(n_steps)]
        bounds += [(0.0, None)] * n_steps
        signed = -y[:, None] * x if kind == "hinge" else x
        offset = -np.ones(n_steps) if kind == "hinge" else y
        halves = np.c_[signed, -signed]
        rows, sides = np.c_[halves, -np.eye(n_steps)], offset
        if kind == "absolute":
            rows, sides = np.r_[rows, np.c_[-halves, -np.eye(n_steps)]], np.r_[sides, -offset]
    found = linprog(cost, rows, sides, bounds=bounds)
    assert found.success, found.message
    return np.clip(found.x[:n] - found.x[n : 2 * n], low, high)  # without rounding errors


def _best_logistic(losses, case):
    signed = np.array([loss.y * loss.x for loss in losses])
    n_steps, n = signed.shape
    low, high = case.box

    def objective(parts):
        margins = signed @ (parts[:n] - parts[n:])
        slope = -signed.T @ np.exp(-np.logaddexp(0.0, margins))
        value = np.logaddexp(0.0, -margins).sum() + n_steps * case.l1 * parts.sum()
        return value, np.r_[slope, -slope] + n_steps * case.l1

    bounds = [(0.0, high)] * n + [(0.0, -low)] * n
    found = minimize(objective, np.zeros(2 * n), jac=True, bounds=bounds, method="L-BFGS-B")
    return np.clip(found.x[:n] - found.x[n:], low, high)


def must_be_below(regret, bound, what=""):
    assert regret <= bound + SLACK * (1.0 + abs(bound)), f"{what}: {regret} > {bound}"


def ratio(regret, bound):
    must_be_below(regret, bound)
    return regret / bound


def regret_bound(rival, size, total, eta, delta, longer=1.0):
    """delta / 2 eta |x*|_2^2 + size^2 / 2 eta total + eta longer total.

    `size` is how far the rival is, `total` the trace of G_T^(1/2), and `longer` the factor by which
    steps may be too long.
    """
    return 0.5 * (delta * rival @ rival + size**2 * total) / eta + eta * longer * total


def proposition_2(game, rival, eta, preconditioners, delta):
    """psi_T(x*) / eta + eta / 2 sum |g_t|^2 in the dual norm of H_t-1, with H_0 = delta I.

    Duchi et al. (2011), proposition 2, with psi_t(x) = <x, H_t x> / 2; `preconditioners` are
    H_1, ..., H_T.
    """
    before = np.concatenate([delta * np.eye(N_FEATURES)[None], preconditioners[:-1]])
    duals = sum(squared_dual(h, g) for h, g in zip(before, game.gradients, strict=True))
    return 0.5 / eta * rival @ preconditioners[-1] @ rival + 0.5 * eta * duals


def proposition_3(game, rival, eta, preconditioners):
    """B_1(x*, x_1) / eta + sum [B_t+1 - B_t](x*, x_t+1) / eta + eta / 2 sum |g_t|^2, H_t's dual.

    Duchi et al. (2011), proposition 3, with B_t(x, y) = |x - y|^2 / 2 in the norm of H_t.
    """
    growth = np.concatenate([preconditioners[:1], np.diff(preconditioners, axis=0)])
    away = rival - game.weights
    moved = sum(way @ h @ way for h, way in zip(growth, away, strict=True))
    duals = sum(squared_dual(h, g) for h, g in zip(preconditioners, game.gradients, strict=True))
    return 0.5 / eta * moved + 0.5 * eta * duals


def squared_dual(preconditioner, vector):
    """<x, H^+ x>; x must be in the range of H."""
    values, vectors = np.linalg.eigh(preconditioner)
    inner = vectors.T @ vector
    kept = values > 1e-10 * max(values[-1], 1e-300)
    return float(np.sum(np.square(inner[kept]) / values[kept]))


def root(matrix):
    """The square root of a positive semi-definite matrix, or of each of several."""
    values, vectors = np.linalg.eigh(matrix)
    # Rounding leaves zeros of size eps, whose roots would be 1e-8.
    values = np.where(values > 1e-14 * values[..., -1:], values, 0.0)
    return vectors * np.sqrt(values)[..., None, :] @ vectors.swapaxes(-1, -2)


def outer_sums(gradients):
    """G_1, ..., G_T: (T, d, d)."""
    return np.cumsum(gradients[:, :, None] * gradients[:, None, :], axis=0)
