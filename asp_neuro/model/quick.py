"""What the deviation of a membrane settles alone, before `stability.py` draws a box around it.

With sd the deviation of the last layer's membranes in float units, the box after observation t has turns

    dn <= (own_t + |n| r_t) / s,       s >= max(sd - r_t - q, sqrt eps),       |n|_2 <= sqrt H

where own_t = B (1 - 2/H) + mean B and r_t depend on t alone. So by Cauchy-Schwarz every bound v . dn of the first tests
there, v >= 0, is at most (v . own_t + r_t sqrt H |v|_2) / s: a number that is known for each t, over one that a look
has. Every lead of a class is then off by at most the same d, and a margin by at most d / 2 (the slope of (1 - a e^x) /
(1 + c e^x), a <= c, is at most 1/2; a class that overtakes leads by at most tanh((d - D) / 2)). Whatever passes here
passes there, so verdicts are the same with and without; grids of bounds and last bits are counted generously.
"""

from __future__ import annotations

import numpy as np

from asp_neuro.grid.arithmetic import EPSILON

GENEROUS = 1.0 + 2.0**-16  # last bits of the bounds
MARGIN_ROOM = 2.0**-26  # of a margin: more than all of its roundings


class Quick:
    """Bounds for boxes B_t, `reaches` [T, H], of membranes rounded to steps of q.

    `leads` [C, H] and `scores` [H] are what dn is multiplied with in the bounds of a class's logit and of a gap between
    two scores; `lead_more` and `score_more` is what else they hold; `hopeless` is a dn that proves nothing.
    """

    def __init__(
        self,
        reaches: np.ndarray,
        q: float,
        leads: np.ndarray,
        lead_more: float,
        scores: np.ndarray,
        score_more: float,
        hopeless: float,
    ) -> None:
        root = np.sqrt(reaches.shape[1])
        radius = np.sqrt((reaches**2).mean(axis=1))  # [T] r
        own = reaches * (1.0 - 2.0 / reaches.shape[1]) + reaches.mean(axis=1, keepdims=True)  # [T, H]

        def over_s(vectors: np.ndarray) -> np.ndarray:
            """[n, H] -> [T] the largest of v . own + r sqrt H |v|."""
            length = np.sqrt((vectors**2).sum(axis=1))  # [n]
            return np.asarray((own @ vectors.T + np.multiply.outer(radius, root * length)).max(axis=1) * GENEROUS)

        self.less = radius * GENEROUS + q  # [T] what s lacks of sd
        self.lead, self.lead_more = 2.0 * over_s(leads), 2.0 * lead_more * GENEROUS
        self.score, self.score_more = over_s(scores[None]), score_more * GENEROUS
        self.least = (own.max(axis=1) + radius * root) * GENEROUS / hopeless  # [T] s below it may be hopeless

    def sigma(self, deviation: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Deviations [n] of membranes after observations t [n] -> s, nan where it may be hopeless."""
        s = np.maximum(deviation - self.less[t], np.sqrt(EPSILON))
        s[s <= self.least[t]] = np.nan
        return np.asarray(s)

    def lead_reach(self, s: np.ndarray, t: np.ndarray) -> np.ndarray:
        """[n] how far the lead of any class over any other may be off."""
        return np.asarray(self.lead[t] / s + self.lead_more)

    def score_reach(self, s: np.ndarray, t: np.ndarray) -> np.ndarray:
        """[n] the same for the gap between the scores of any two places."""
        return np.asarray(self.score[t] / s + self.score_more)


def same_side(margin: np.ndarray, tau: float, lead_reach: np.ndarray) -> np.ndarray:
    """[n] whether a margin stays on its side of tau when every lead is off by so much."""
    return np.asarray(np.abs(margin - tau) > 0.5 * lead_reach + MARGIN_ROOM)


def deviation(membrane: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Membranes [n, H] -> [n] their deviation in float units."""
    values = membrane / units
    values -= np.add.reduce(values, axis=1, keepdims=True) / values.shape[1]
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", values, values) / values.shape[1]) / GENEROUS)


def runner_up(values: np.ndarray) -> np.ndarray:
    """[..., n] -> [...]: how far the largest leads the next; inf where there is only one."""
    if values.shape[-1] < 2:
        return np.full(values.shape[:-1], np.inf)
    two = np.partition(values, -2, axis=-1)
    return np.asarray(two[..., -1] - two[..., -2])
