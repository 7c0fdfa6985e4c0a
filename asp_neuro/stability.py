"""Decision stability: could rounding in the carried state have changed a choice of chunk, an exit test or the class?

Equal spikes do not make equal membranes. With u the last layer's carried membrane in float units, the exact one lies
in the box |u' - u| <= B, B_k = E_t / units_k (`guard.drift`), widened by the rounding of float64 itself. H neurons;
mean() is over them; every |.| and product of vectors is element by element. The belief is b = gamma n + beta,

    n = (u - mean u) / sigma,    sigma = sqrt(var u + eps).

The root mean square of u' - mean u' - (u - mean u) is at most r = sqrt(mean B^2), so that sd u' >= sd u - r, and on
the box

    sigma' >= s = sqrt(max(sd u - r, 0)^2 + eps),    |sigma' - sigma| <= r,    |1/sigma' - 1/sigma| <= r / (sigma s),
    |n' - n| <= dn = (B (1 - 2/H) + mean B + |n| r) / s           (its own share of the mean counts once: 1 - 1/H, 1/H)

For F(u) = f(b(u)) with Y = gamma df/db:  dF/du = N / sigma,  N = Y - mean Y - n c,  c = mean(Y n).  If |Y' - Y| <= dY
on the box, the mean value theorem gives

    dc = mean(|Y| dn + dY (|n| + dn)),    dN = dY + mean dY + |n| dc + dn (|c| + dc)
    |F(u') - F(u)| <= sum_k B_k (|N_k| / sigma + dN_k / s + |N_k| r / (sigma s)).                                   (*)

eps stands under the root, so s >= sqrt(eps): a last layer that is nearly dead (sd <= r) has a huge bound, not none.

Chunk: F = score(best) - score(m) for each rival m, z = W_u b + geometry, Y = gamma W_u^T (w (sech^2 z_best - sech^2
z_m)). The slope of sech^2 is at most 4/(3 sqrt 3) < 0.77, hence dY = |gamma| |W_u|^T (1.54 |w| dz), dz = |W_u|
(|gamma| dn). Scores are rounded to 2^-30, which may take 2^-31 off each of four of them: stable if every recorded gap
exceeds (*) + 2^-29.

Exit: D_c = logit_1 - logit_c for the recorded best class 1, Y = gamma (R_1 - R_c), dY = 0, reach d_c from (*). The
margin

    (1 - max_c e^-D_c) / (1 + sum_c e^-D_c)

rises in every D_c while all are >= 0. Where D - d is positive the margin at D - d is the least; the margin at D + d
is the largest among those where class 1 stays best. If class c can overtake (d_c > D_c) the margin is then c's lead
over the others, at most its lead over class 1 alone, tanh((d_c - D_c) / 2). The test against tau is stable if the
least exceeds tau or the largest does not; the class is stable if D > d.

Both tests are done first with d = |gamma| (|R_1| + |R_c|) . dn and |F(u') - F(u)| <= 2 |w| . dz, which settle nearly
all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from asp_neuro.exit import ExitRule
from asp_neuro.guard import Verdict, drift, hit_place
from asp_neuro.head_spec import LayerSpec
from asp_neuro.host import EPSILON, SCORE_STEP, HostSpec

SLACK = 1e-9  # for the last bits of ordinary float64, which depend on the order of sums
SQUARED_SECH_SLOPE = 0.77
INDEPENDENT = ("geometry", "belief", "additive")  # scorers whose choice does not depend on the belief


@dataclass(frozen=True)
class Box:
    """Where the exact membranes [b, H] can be, and what that means for the normalised ones; indexed by rows."""

    normal: np.ndarray  # n
    reach: np.ndarray  # B
    turn: np.ndarray  # dn
    sigma: np.ndarray  # [b, 1]
    least_sigma: np.ndarray  # [b, 1] s
    radius: np.ndarray  # [b, 1] r

    def __getitem__(self, rows: np.ndarray) -> Box:
        return Box(*(value[rows] for value in vars(self).values()))


class Stability:
    """The bounds for one model: its host and the last layer of its head."""

    def __init__(self, host: HostSpec, last: LayerSpec) -> None:
        self.spec = host
        self.last = last
        self.gain = host.belief_gain.astype(np.float64)
        self.readout = host.readout_weight.astype(np.float64) * self.gain  # [C, H], gamma included
        self.belief = host.policy_belief.astype(np.float64)  # [d, H]
        self.policy = self.belief * self.gain  # [d, H], gamma included
        self.score = host.policy_score.astype(np.float64)
        self._drifts: dict[int, np.ndarray] = {}

    def box(self, membrane: np.ndarray, t: int) -> Box:
        """Carried membranes [b, H] in float units after observation t (1, 2, ...) -> where the exact ones can be."""
        if t not in self._drifts:
            self._drifts[t] = drift(self.last.lambda_int, t) / self.last.units
        reach = self._drifts[t] + 1e-12 * np.abs(membrane).max(axis=1, keepdims=True)
        return make_box(membrane, reach)

    def chunk_proven(
        self, box: Box, belief: np.ndarray, geometry: np.ndarray, scores: np.ndarray, rivals: np.ndarray
    ) -> np.ndarray:
        """Scores [b, M] with their best among the rivals [b, M] -> [b] whether the exact run takes the same chunk."""
        rows = np.arange(len(scores))
        eligible = np.where(rivals, scores, -np.inf)
        best = eligible.argmax(axis=1)
        gaps = eligible[rows, best][:, None] - eligible  # inf where not eligible
        gaps[rows, best] = np.inf
        proven = np.ones(len(scores), dtype=bool)
        if self.spec.scorer in INDEPENDENT:
            return proven
        turn = box.turn @ np.abs(self.policy).T  # [b, d] dz
        rounding = 2.0 / SCORE_STEP + SLACK * (1.0 + np.abs(self.score).sum())
        row, rival = np.nonzero(gaps <= (2.0 * (turn @ np.abs(self.score)) + rounding)[:, None])
        if row.size:
            slope, bend = self._score_slope(belief, geometry, turn, row, best[row], rival)
            held = gaps[row, rival] > change(box[row], slope, bend) + rounding
            proven[row[~held]] = False
        return proven

    def _score_slope(
        self,
        belief: np.ndarray,
        geometry: np.ndarray,
        turn: np.ndarray,
        row: np.ndarray,
        best: np.ndarray,
        rival: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Y and dY [n, H] of score(best) - score(rival), for n pairs."""
        pull = belief[row] @ self.belief.T  # [n, d]
        steep_best = 1.0 - np.tanh(pull + geometry[row, best]) ** 2
        steep_rival = 1.0 - np.tanh(pull + geometry[row, rival]) ** 2
        slope = (self.score * (steep_best - steep_rival)) @ self.policy
        bend = (2.0 * SQUARED_SECH_SLOPE * np.abs(self.score) * turn[row]) @ np.abs(self.policy)
        return slope, bend

    def exit_proven(self, box: Box, logits: np.ndarray, tau: float) -> np.ndarray:
        """Logits [b, C] -> [b] whether the exact run's margin lies on the same side of tau."""
        return self._settle(box, logits, lambda gap, reach: same_side(gap, reach, tau))

    def class_proven(self, box: Box, logits: np.ndarray) -> np.ndarray:
        """Logits [b, C] -> [b] whether the exact run has the same best class."""
        return self._settle(box, logits, lambda gap, reach: (gap > reach).all(axis=1))

    def _settle(self, box: Box, logits: np.ndarray, test: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """A test of leads and reaches: with the coarse reach for all, with the fine one where that fails."""
        gap = leads(logits)
        slack = SLACK * (1.0 + np.abs(logits).max(axis=1, keepdims=True))
        best = logits.argmax(axis=1)
        coarse = box.turn @ np.abs(self.readout).T  # [b, C]
        coarse += np.take_along_axis(coarse, best[:, None], axis=1) + slack
        proven = np.asarray(test(gap, coarse))
        left = np.flatnonzero(~proven)
        if left.size:
            slope = self.readout[best[left], None, :] - self.readout  # [n, C, H]
            pairs = np.repeat(left, slope.shape[1])
            fine = change(box[pairs], slope.reshape(len(pairs), -1), 0.0).reshape(len(left), -1)
            proven[left] = test(gap[left], fine + slack[left])
        return proven


def make_box(membrane: np.ndarray, reach: np.ndarray) -> Box:
    """Membranes and how far each may be off, both [b, H] -> the box."""
    centred = membrane - membrane.mean(axis=1, keepdims=True)
    variance = (centred * centred).mean(axis=1, keepdims=True)
    radius = np.sqrt((reach * reach).mean(axis=1, keepdims=True))
    sigma = np.sqrt(variance + EPSILON)
    least = np.sqrt(np.maximum(np.sqrt(variance) - radius, 0.0) ** 2 + EPSILON)
    normal = centred / sigma
    n_neurons = membrane.shape[1]
    own = reach * (1.0 - 2.0 / n_neurons) + reach.mean(axis=1, keepdims=True)
    return Box(normal, reach, (own + np.abs(normal) * radius) / least, sigma, least, radius)


def change(box: Box, slope: np.ndarray, bend: np.ndarray | float) -> np.ndarray:
    """The bound (*): Y and dY, both [b, H] -> [b] how far F can be off within the box."""
    bent = np.broadcast_to(bend, slope.shape)
    normal = np.abs(box.normal)
    along = (slope * box.normal).mean(axis=1, keepdims=True)  # c
    along_off = (np.abs(slope) * box.turn + bent * (normal + box.turn)).mean(axis=1, keepdims=True)  # dc
    net = np.abs(slope - slope.mean(axis=1, keepdims=True) - box.normal * along)  # |N|
    net_off = bent + bent.mean(axis=1, keepdims=True) + normal * along_off + box.turn * (np.abs(along) + along_off)
    rate = net / box.sigma + net_off / box.least_sigma + net * box.radius / (box.sigma * box.least_sigma)
    return np.asarray((box.reach * rate).sum(axis=1) * (1.0 + SLACK))


def leads(logits: np.ndarray) -> np.ndarray:
    """[b, C] how far the best logit leads each class; inf for the best itself."""
    gap = logits.max(axis=1, keepdims=True) - logits
    np.put_along_axis(gap, logits.argmax(axis=1)[:, None], np.inf, axis=1)
    return gap


def same_side(gap: np.ndarray, reach: np.ndarray, tau: float) -> np.ndarray:
    """Leads and how far each may be off -> [b] whether every margin so reached lies on one side of tau."""
    overtaken = np.tanh(np.maximum(reach - gap, 0.0).max(axis=1) / 2.0)
    largest = np.maximum(lead_margin(gap + reach), overtaken)
    return (lead_margin(gap - reach) - SLACK > tau) | (largest + SLACK <= tau)


def lead_margin(gap: np.ndarray) -> np.ndarray:
    """The top-two margin of leads [b, C], inf for the best class; negative if another class leads."""
    tail = np.exp(-np.maximum(gap, -700.0))
    return np.asarray((1.0 - tail.max(axis=1)) / (1.0 + tail.sum(axis=1)))


class Watch:
    """Follows a batch of episodes and keeps, for each cloud, the first thing that is not proven."""

    def __init__(self, stability: Stability, n_clouds: int) -> None:
        self.stability = stability
        self.open = np.ones(n_clouds, dtype=bool)
        self.first: list[Verdict] = [PRESERVED] * n_clouds
        self.blind = False  # a backend that reports no hits proves nothing

    def spikes(self, rows: np.ndarray, words: np.ndarray | None, t: int) -> None:
        """First guard hits [b] of the clouds `rows` at observation t."""
        if words is None:
            self.blind = True
            return
        for at in np.flatnonzero((np.asarray(words) != 0) & self.open[rows]):
            self._close(rows[at], spike_verdict(t, *hit_place(words[at])))

    def chunk(
        self,
        rows: np.ndarray,
        box: Box,
        belief: np.ndarray,
        geometry: np.ndarray,
        scores: np.ndarray,
        rivals: np.ndarray,
        t: int,
    ) -> None:
        """The choice made after observation t."""
        at = np.flatnonzero(self.open[rows])
        proven = self.stability.chunk_proven(box[at], belief[at], geometry[at], scores[at], rivals[at])
        self._decide("chunk", rows[at[~proven]], t)

    def exit(self, rows: np.ndarray, box: Box, logits: np.ndarray, done: np.ndarray, rule: ExitRule, t: int) -> None:
        """The exit test after observation t, and at a stop the acceptance and the class."""
        if rule.tau is not None:
            at = np.flatnonzero(self.open[rows])
            self._decide("exit", rows[at[~self.stability.exit_proven(box[at], logits[at], rule.tau)]], t)
        if not done.any():
            return
        if rule.kappa is not None:
            at = np.flatnonzero(self.open[rows] & done)
            self._decide("exit", rows[at[~self.stability.exit_proven(box[at], logits[at], rule.kappa)]], t)
        at = np.flatnonzero(self.open[rows] & done)
        self._decide("class", rows[at[~self.stability.class_proven(box[at], logits[at])]], t)

    def verdict(self, row: int) -> Verdict | None:
        return None if self.blind else self.first[row]

    def _decide(self, kind: str, rows: np.ndarray, t: int) -> None:
        for row in rows:
            self._close(row, Verdict(False, f"After observation {t} {DOUBTS[kind]}.", step=t, decision=kind))

    def _close(self, row: int, verdict: Verdict) -> None:
        self.open[row] = False
        self.first[row] = verdict


PRESERVED = Verdict(True, "Exact arithmetic gives the same spikes, chunks, exit and class.")
DOUBTS = {
    "chunk": "rounding could change which chunk comes next",
    "exit": "rounding could change whether to stop",
    "class": "rounding could change the class",
}


def spike_verdict(t: int, layer: int, neuron: int) -> Verdict:
    """Layer and neuron from 0."""
    where = f"neuron {neuron} of layer {layer + 1}"
    text = f"At observation {t} {where} came within rounding of its threshold, or saturated."
    return Verdict(False, text, step=t, layer=layer + 1, neuron=neuron)
