"""Parameter-free learning: each weight bets on the sign of its next gradient.

A coin bettor starts with a wealth, stakes w_t on each gradient, and has - sum g_t w_t in the end.
If that is large whenever the gradients agree, the regret against *any* u is small, with no step
size to choose. The bettor of Krichevsky and Trofimov, and COCOB (Orabona and Tommasi 2017), must
know the largest gradient before they start. This is FreeGrad, which need not (Mhammedi and Koolen
2020, eq. 9), one for each weight. With the sums G of the gradients fed to it and V = h_1^2 + sum of
their squares, the first gradient h_1 = |g_1| and the largest so far h, it stakes

    w = -G epsilon h_1^2 (2 V + h |G|) / (2 (V + h |G|)^2 sqrt(V)) exp(G^2 / (2 V + 2 h |G|))

and then, whatever the next gradient within [-h, h], its wealth stays at least

    Psi(G, V, h) = epsilon h_1^2 / sqrt(V) exp(G^2 / (2 V + 2 h |G|)),   at first epsilon h_1.

Two reductions of Cutkosky (2019) make that enough for any gradient:

- hints: a gradient beyond h is fed as h, and raises h;
- the leash: what is played is w clipped to [-D, D], D = leash sqrt(sum |g_s| / h_s), h_s the
  largest up to and with g_s; and while w is outside, a gradient that pushes it further is not fed.

**Theorem.** For every sequence of gradients g_1 .. g_T of one weight (g_1 the first that is not 0),
whose bound nobody knew, and every u,

    sum_t g_t (w_t - u)  <=  epsilon h_1
        + max( |u| sqrt(2 V ln(1 + 2 (V u / (epsilon h_1^2))^2)),
               4 h |u| ln_+(4 h |u| sqrt(V) / (epsilon h_1^2)) )
        + (h - h_1) (D + |u|)
        + h |u| (1 + (u / leash)^2)

with V, h and D as they are after T. *Proof.* (1) Feeding h for a larger gradient costs at most
(|g_t| - h_t) (|w_t| + |u|), which is at most what h grows by times D + |u|. (2) While |u| <= D the
leash costs nothing; before that D_t < |u|, so the |g_s| / h_s until then sum to at most
(u / leash)^2, and one more: at most |u| h times that. (3) What is fed has regret
epsilon h_1 - Psi - G u at most, and sup_G |G u| - Psi is bounded by the max above since the
exponent is at least min(G^2 / 4 V, |G| / 4 h). Losses being convex, the regret of a model is at
most the sum of this over its weights. []

A row of importance c has its loss counted c times: c g in place of g. There is no l1 and no l2.
"""

from __future__ import annotations

import numpy as np

from dadagrad.optim.arrays import Array, Ids, Shapes, quotient, rows_of
from dadagrad.optim.baselines.base import Learner, LearnerState, Row
from dadagrad.optim.registry import Positive, register
from dadagrad.optim.updates import UPDATES

NAMES = ("gradient_sum", "gradient_squares", "first", "largest", "travel")


@register(UPDATES, "coin-betting")
class CoinBetting(Learner):
    """FreeGrad with hints and a leash, for each weight alone. O(nnz n_outputs) a row.

    Arrays, (n_features, n_outputs) each and 0 for a feature never seen: `gradient_sum` G,
    `gradient_squares` V - h_1^2, `first` h_1, `largest` h, `travel` sum |g_s| / h_s. The weights
    are a function of these, so a feature that does not occur keeps its own.

    Attributes
    ----------
    wealth : float
        epsilon. A new weight first moves by 0.23 of it, and what the choice is wrong by costs no
        more than its logarithm.
    leash : float
        How far a weight may go, in units of the square root of the gradients it has seen.
    """

    wealth: Positive = 1.0
    leash: Positive = 10.0

    def shapes(self, n_features: int, n_outputs: int) -> Shapes:
        return dict.fromkeys(NAMES, (n_features, n_outputs))

    def _learn(self, state: LearnerState, row: Row) -> None:
        slopes = row.importance * self.loss.slope(row.scores, row.targets)
        if not slopes.any():
            return
        gradient = np.outer(row.values, slopes)
        share = [state.arrays[name][row.ids] for name in NAMES]
        stake, bound = self._stake(*share)
        total, squares, first, largest, travel = share
        size = np.abs(gradient)
        new = (first == 0.0) & (size > 0.0)
        first[new] = largest[new] = size[new]

        at_bound = (np.abs(stake) > bound) & (gradient * stake < 0.0)
        fed = np.where(at_bound, 0.0, np.clip(gradient, -largest, largest))
        total += fed
        squares += np.square(fed)
        np.maximum(largest, size, out=largest)
        travel += quotient(size, largest)
        for name, array in zip(NAMES, share, strict=True):
            state.arrays[name][row.ids] = array

    def weights(self, state: LearnerState, ids: Ids | None = None) -> Array:
        stake, bound = self._stake(*(rows_of(state.arrays[name], ids) for name in NAMES))
        return np.clip(stake, -bound, bound)

    def _stake(
        self, total: Array, squares: Array, first: Array, largest: Array, travel: Array
    ) -> tuple[Array, Array]:
        """Stake of the bettor without a leash, and the leash D.

        In units of h, and by logarithms: a stake may be a tiny opening times an exponential beyond
        the range of float64. The stake itself is not, since the sum stops once the leash holds it.
        """
        is_learned = first > 0.0
        unit = np.where(is_learned, largest, 1.0)
        opening = np.where(is_learned, first / unit, 1.0)
        g = np.abs(total) / unit
        v = np.square(opening) + np.square(np.sqrt(squares) / unit)
        v = np.maximum(v, np.finfo(np.float64).tiny)
        log_stake = np.log(self.wealth) + 2.0 * np.log(opening) + 0.5 * np.square(g) / (v + g)
        log_stake += np.log(v + 0.5 * g) - 2.0 * np.log(v + g) - 0.5 * np.log(v)
        stake = -np.sign(total) * g * np.exp(log_stake)
        return stake, self.leash * np.sqrt(travel)
