"""Is a mean of bounded losses at most alpha? p-values from bets (Waudby-Smith and Ramdas, 2024).

    null: losses x_1, x_2, ... in [0, 1] are independent, each of mean above alpha
    W_i = prod_{j <= i} (1 + lambda_j (alpha - x_j)),   0 <= lambda_j <= CAP / (1 - alpha),   p = 1 / max(1, max_i W_i)

lambda_j is chosen before x_j is seen, and no factor is below 1 - CAP, so under the null W is a nonnegative
supermartingale and by Ville's inequality P(p <= u) <= u for every u. The bets follow the variance seen so far:

    mean_j = (1/2 + sum_{i <= j} x_i) / (j + 1);    var_j = (1/4 + sum_{i <= j} (x_i - mean_i)^2) / (j + 1)
    lambda_j = min( sqrt(2 log(1 / level) / (n var_{j-1})),  CAP / (1 - alpha) )

`level` and n steer the bets and are no part of the proof: any fixed level, and n, the number of samples that are
accepted, is known before the first loss. The order of betting must not depend on the losses: it is drawn from a seed.
"""

from __future__ import annotations

import numpy as np

CAP = 0.99  # of a stake: what is left of the wealth if all is lost is 1 - CAP


def betting_p_value(
    losses: np.ndarray, accepted: np.ndarray | None = None, alpha: float = 0.05, level: float = 0.05
) -> np.ndarray:
    """Losses [..., n] in the order of betting -> p-values [...] of "the mean is above alpha"; 1 where none is accepted.

    Samples that are not accepted [..., n] are passed over.
    """
    there = np.ones(np.shape(losses), dtype=bool) if accepted is None else np.asarray(accepted, dtype=bool)
    x = np.where(there, losses, 0.0)
    if x.size and not (x.min() >= 0.0 and x.max() <= 1.0):
        raise ValueError(f"losses from {x.min()} to {x.max()} must lie in [0, 1]")
    count = np.cumsum(there, axis=-1)
    mean = (0.5 + np.cumsum(x, axis=-1)) / (count + 1)
    spread = (0.25 + np.cumsum(np.where(there, (x - mean) ** 2, 0.0), axis=-1)) / (count + 1)
    before = np.concatenate([np.full_like(spread[..., :1], 0.25), spread[..., :-1]], axis=-1)
    n = np.maximum(count[..., -1:], 1)
    stake = np.minimum(np.sqrt(2.0 * np.log(1.0 / level) / (n * before)), CAP / (1.0 - alpha))
    wealth = np.cumsum(np.where(there, np.log1p(stake * (alpha - x)), 0.0), axis=-1)
    return np.exp(-np.maximum(wealth.max(axis=-1), 0.0))


def point_weighted(wrong: np.ndarray, accepted: np.ndarray, alpha: float) -> np.ndarray:
    """Shares of a shape's points that are wrong and accepted, and that are accepted -> losses for the same test.

    "wrong accepted points / accepted points, over all shapes, is above alpha" is E[wrong - alpha accepted] > 0, and
    wrong - alpha accepted + alpha lies in [0, 1].
    """
    return np.asarray(wrong - alpha * accepted + alpha)
