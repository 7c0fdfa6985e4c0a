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

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asp_neuro.heads.soft.guard import Verdict, drift, hit_place
from asp_neuro.heads.spec import LayerSpec
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.host import EPSILON, SCORE_STEP, HostSpec

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
        self._drifts = np.empty((0, host.belief_gain.size))

    def box(self, membrane: np.ndarray, t: int | np.ndarray) -> Box:
        """Carried membranes [b, H] in float units after observation t (1, 2, ...; [b] or one) -> their box."""
        reach = self._reach(int(np.max(t)))[t] + 1e-12 * np.abs(membrane).max(axis=1, keepdims=True)
        return make_box(membrane, reach)

    def _reach(self, n_steps: int) -> np.ndarray:
        """[n_steps + 1 or more, H] float units: the drift after each number of observations."""
        if len(self._drifts) <= n_steps:
            self._drifts = np.array([drift(self.last.lambda_int, t) / self.last.units for t in range(n_steps + 1)])
        return self._drifts

    def chunk_proven(
        self,
        box: Box,
        belief: np.ndarray,
        geometry: np.ndarray,
        scores: np.ndarray,
        rivals: np.ndarray,
        cloud: np.ndarray | None = None,
    ) -> np.ndarray:
        """Scores [b, M] with their best among the rivals [b, M] -> [b] whether the exact run takes the same chunk.

        Geometry is [n, M, d]; row i of the others belongs to cloud[i] of it (none: to i).
        """
        of = np.arange(len(scores)) if cloud is None else cloud
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
            pull = belief[row] @ self.belief.T  # [n, d]
            there, here = geometry[of[row], rival], geometry[of[row], best[row]]
            slope, bend = self.score_slope(pull + here, pull + there, turn[row])
            held = gaps[row, rival] > change(box[row], slope, bend) + rounding
            proven[row[~held]] = False
        return proven

    def score_slope(self, best: np.ndarray, rival: np.ndarray, turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """z of two chunks and dz, all [n, d] -> Y and dY [n, H] of score(best) - score(rival)."""
        steeper = np.tanh(rival) ** 2 - np.tanh(best) ** 2
        slope = (self.score * steeper) @ self.policy
        bend = (2.0 * SQUARED_SECH_SLOPE * np.abs(self.score) * turn) @ np.abs(self.policy)
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


class Look(NamedTuple):
    """What the host knew after an observation, row by row of the clouds then under way."""

    t: int
    rows: np.ndarray  # [b] clouds
    membrane: np.ndarray  # [b, H] float units
    belief: np.ndarray  # [b, H]
    logits: np.ndarray  # [b, C]
    done: np.ndarray  # [b] bool: the episode stops here
    hit: np.ndarray | None  # [b] hit words


class Watch:
    """Follows a batch of episodes; at the end all their decisions are looked at together, which is cheap."""

    def __init__(self, stability: Stability, geometry: np.ndarray, rule: ExitRule) -> None:
        self.stability, self.geometry, self.rule = stability, geometry, rule
        self.looks: list[Look] = []
        self.choices: list[tuple[np.ndarray, np.ndarray]] = []  # scores and rivals, [b, M] each

    def observed(self, look: Look) -> None:
        self.looks.append(look)

    def chose(self, scores: np.ndarray, rivals: np.ndarray) -> None:
        """The choice after the last look, for the clouds that go on."""
        self.choices.append((scores, rivals))

    def verdicts(self) -> list[Verdict | None]:
        """For each cloud the first thing that is not proven; None if the head reported no hits."""
        n_clouds = len(self.geometry)
        if any(look.hit is None for look in self.looks):
            return [None] * n_clouds
        found: list[Verdict | None] = [PRESERVED] * n_clouds
        for _, _, row, verdict in sorted(self._doubts(), key=lambda doubt: doubt[:2], reverse=True):
            found[row] = verdict  # the earliest is written last
        return found

    def _doubts(self) -> Iterator[tuple[int, int, int, Verdict]]:
        """(observation, rank within it, cloud, verdict) of everything that is not proven."""
        for look in self.looks:
            words = np.asarray(look.hit)
            for at in np.flatnonzero(words):
                yield look.t, 0, int(look.rows[at]), spike_verdict(look.t, *hit_place(words[at]))
        t = np.repeat([look.t for look in self.looks], [len(look.rows) for look in self.looks])
        rows = np.concatenate([look.rows for look in self.looks])
        for rank, (kind, proven) in enumerate(self._decisions(t, rows), start=1):
            for at in np.flatnonzero(~proven):
                sentence = f"After observation {t[at]} {DOUBTS[kind]}."
                yield int(t[at]), rank, int(rows[at]), Verdict(False, sentence, step=int(t[at]), decision=kind)

    def _decisions(self, t: np.ndarray, rows: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Kinds of decision, and for each of n looks at one cloud whether it is proven, [n] bool."""
        rule, bounds = self.rule, self.stability
        done, logits = (np.concatenate([getattr(look, name) for look in self.looks]) for name in ("done", "logits"))
        box = bounds.box(np.concatenate([look.membrane for look in self.looks]), t)
        if rule.tau is not None:
            yield "exit", bounds.exit_proven(box, logits, rule.tau)
        last = np.flatnonzero(done)
        if rule.kappa is not None:
            yield "exit", _at(last, bounds.exit_proven(box[last], logits[last], rule.kappa), len(t))
        yield "class", _at(last, bounds.class_proven(box[last], logits[last]), len(t))
        if self.choices:
            on = np.flatnonzero(~done)
            belief = np.concatenate([look.belief for look in self.looks])[on]
            scores, rivals = (np.concatenate(part) for part in zip(*self.choices, strict=True))
            proven = bounds.chunk_proven(box[on], belief, self.geometry, scores, rivals, rows[on])
            yield "chunk", _at(on, proven, len(t))


def _at(places: np.ndarray, values: np.ndarray, n: int) -> np.ndarray:
    """[n] bool, true but for `values` at `places`."""
    found = np.ones(n, dtype=bool)
    found[places] = values
    return found


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
