"""Decision stability: could rounding in the carried state have changed a choice of place, an exit test or the label?

Equal spikes do not make equal membranes. With u the last layer's carried membrane in float units as the host rounds it
(step q), the exact one, rounded likewise, lies in the box |u' - u| <= B: B_k = E_t / units_k + q, 0 where E_t = 0
(`guard.drift`). H neurons; mean() is over them; every |.| and product of vectors is element by element. The belief is
b = gamma n + beta,

    n = (u - mean u) / sigma,    sigma = sqrt(var u + eps),

rounded to steps of p. The root mean square of u' - mean u' - (u - mean u) is at most r = sqrt(mean B^2), so that
sd u' >= sd u - r, and on the box

    sigma' >= s = sqrt(max(sd u - r, 0)^2 + eps),    |sigma' - sigma| <= r,    |1/sigma' - 1/sigma| <= r / (sigma s),
    |n' - n| <= dn = (B (1 - 2/H) + mean B + |n| r) / s           (its own share of the mean counts once: 1 - 1/H, 1/H)

For F(u) = f(b(u)) with Y = gamma df/db:  dF/du = N / sigma,  N = Y - mean Y - n c,  c = mean(Y n).  If |Y' - Y| <= dY
on the box, the mean value theorem gives

    dc = mean(|Y| dn + dY (|n| + dn)),    dN = dY + mean dY + |n| dc + dn (|c| + dc)
    |F(u') - F(u)| <= sum_k B_k (|N_k| / sigma + dN_k / s + |N_k| r / (sigma s)).                                   (*)

eps stands under the root, so s >= sqrt(eps): a last layer that is nearly dead (sd <= r) has a huge bound, not none.
Rounding the beliefs moves F by at most p sum_k |df/db_k| more (p / 2 in each of the two runs).

Place: F = score(best) - score(m) for each rival m, z = W_u b + geometry, Y = gamma W_u^T (w (sech^2 z_best - sech^2
z_m)). The slope of sech^2 is at most 4/(3 sqrt 3) < 0.77, hence dY = |gamma| |W_u|^T (1.54 |w| dz), dz = |W_u|
(|gamma| dn). tanh is rounded to 2^-30: four of them may be off by 2^-31 and a little. Stable if every recorded gap
exceeds (*) + p |w|^T |W_u| 1 + 2^-28 |w|^T 1.

Exit: D_c = logit_1 - logit_c for the recorded best class 1, Y = gamma (R_1 - R_c), dY = 0, reach d_c from (*) plus
p |R_1 - R_c|^T 1. The margin

    (1 - max_c e^-D_c) / (1 + sum_c e^-D_c)

rises in every D_c while all are >= 0. Where D - d is positive the margin at D - d is the least; the margin at D + d
is the largest among those where class 1 stays best. If class c can overtake (d_c > D_c) the margin is then c's lead
over the others, at most its lead over class 1 alone, tanh((d_c - D_c) / 2). As computed, a margin is off by less than
2^-29 (exponentials rounded to 2^-40, the result to 2^-30). A scene's margin rises in those of its targets, so it lies
between the task's pool of the least and of the largest. The test against tau is stable if the least exceeds tau or the
largest does not; the label is stable if D > d for every target.

All tests are done first with d = |gamma| (|R_1| + |R_c|) . dn and |F(u') - F(u)| <= 2 |w| . dz, which settle nearly
all, and before that, where the deviation of a membrane settles all decisions of a look, not at all (`quick.py`). Bounds
are rounded up to grids on which their products are exact, so that a verdict does not depend on the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from asp_neuro.grid.arithmetic import BELIEF_BITS, EPSILON, EXP_BITS, exp, on_grid, tanh
from asp_neuro.heads.verdict import Verdict, hit_place
from asp_neuro.model.episode import Played
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.look import Look
from asp_neuro.model.quick import Quick, deviation, runner_up, same_side
from asp_neuro.model.spec import Model

BELIEF_STEP = 2.0**-BELIEF_BITS * (1.0 + 2.0**-10)  # p, and the last bits of what is rounded
TANH_SLACK = 2.0**-28  # of four tanh
MARGIN_SLACK = 2.0**-29
SLOPE_BITS = 20
LAST_BITS = 1e-9  # of the bounds themselves, relative
SQUARED_SECH_SLOPE = 0.77
BOUND_BITS, BOUND_WEIGHT_BITS = 20, 12  # grids of bounds and of the weights that they meet
Test = Callable[[np.ndarray, np.ndarray], np.ndarray]  # leads and reaches [b, R, C] -> [b] bool
HOPELESS = 4.0  # a normalised membrane that can be off by so much proves nothing


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
    """The bounds for one model: what stands behind the last layer of its head."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.head, self.last, self.form = model.spec.head, model.spec.head.layers[-1], model.spec.head.neurons
        self.is_bounded = self.form.drift(self.head, 1) is not None
        self.gain = model.belief.gain
        self.readout = model.task.weight * self.gain  # [C, H], gamma included
        self.readout_bound = up(np.abs(self.readout), BOUND_WEIGHT_BITS)
        self.readout_rounding = BELIEF_STEP * np.abs(model.task.weight).sum(axis=1)  # [C]
        self.belief = model.policy.from_belief.weight  # [d, H]
        self.policy_bound = up(np.abs(self.belief * self.gain), BOUND_WEIGHT_BITS)  # [d, H], gamma included
        self.score = model.policy.score.weight[0]  # [d]
        self.score_bound = up(np.abs(self.score), BOUND_WEIGHT_BITS)
        spread = np.abs(self.belief).sum(axis=1)  # [d]
        self.score_rounding = float(np.abs(self.score) @ (BELIEF_STEP * spread + TANH_SLACK))
        self.slope_rounding = 2.0**-SLOPE_BITS * np.abs(self.belief * self.gain).sum(axis=0)  # [H]
        self._reaches = np.empty((0, len(self.gain)))
        self._quick: Quick | None = None

    def box(self, membrane: np.ndarray, t: int | np.ndarray) -> Box:
        """Membranes [b, H] as the head gave them after observation t (1, 2, ...; [b] or one) -> their box."""
        rounded = self.model.belief.steps(membrane) * self.model.belief.step
        return make_box(rounded, np.broadcast_to(self._reach(int(np.max(t)))[t], rounded.shape))

    def _reach(self, n_steps: int) -> np.ndarray:
        """[n_steps + 1 or more, H] float units: how far the rounded exact membrane can be after each observation."""
        if len(self._reaches) <= n_steps:
            self._reaches = np.array([self._reach_at(t) for t in range(max(n_steps, self.model.budget) + 1)])
            self._quick = None
        return self._reaches

    def quick(self, n_steps: int) -> Quick:
        """The bounds that need no box, for so many observations."""
        reaches = self._reach(n_steps)
        if self._quick is None:
            score, up_by = self.score_bound @ self.policy_bound, 2.0**-BOUND_BITS
            self._quick = Quick(
                reaches,
                self.model.belief.step,
                self.readout_bound,
                float((up_by * self.readout_bound.sum(axis=1) + self.readout_rounding).max()),
                2.0 * score,
                2.0 * up_by * float(score.sum() + self.score_bound.sum()) + self.score_rounding,
                HOPELESS,
            )
        return self._quick

    def _reach_at(self, t: int) -> np.ndarray:
        drift = self.form.drift(self.head, t)
        assert drift is not None
        return np.where(drift > 0.0, drift / self.last.units * (1.0 + LAST_BITS) + self.model.belief.step, 0.0)

    def choice_proven(
        self,
        box: Box,
        belief: np.ndarray,
        geometry: np.ndarray,
        scores: np.ndarray,
        rivals: np.ndarray,
        scene: np.ndarray | None = None,
    ) -> np.ndarray:
        """Scores [b, M] with their best among the rivals [b, M] -> [b] whether the exact run takes the same place.

        Geometry is [n, M, d]; row i of the others belongs to scene[i] of it (none: to i).
        """
        of = np.arange(len(scores)) if scene is None else scene
        rows = np.arange(len(scores))
        eligible = np.where(rivals, scores, -np.inf)
        best = eligible.argmax(axis=1)
        gaps = eligible[rows, best][:, None] - eligible  # inf where not eligible
        gaps[rows, best] = np.inf
        if not self.model.spec.policy.sees_belief:
            return np.ones(len(scores), dtype=bool)
        proven = (box.turn < HOPELESS).all(axis=1)
        turn = bounded(box.turn) @ self.policy_bound.T  # [b, d] dz
        coarse = 2.0 * (up(turn, BOUND_BITS) @ self.score_bound) + self.score_rounding
        row, rival = np.nonzero(gaps <= coarse[:, None])
        if row.size:
            pull = self.model.policy.from_belief(belief[row])  # [n, d]
            there, here = geometry[of[row], rival], geometry[of[row], best[row]]
            slope, bend = self.score_slope(pull + here, pull + there, turn[row])
            held = gaps[row, rival] > change(box[row], slope, bend) + self.score_rounding
            proven[row[~held]] = False
        return proven

    def score_slope(self, best: np.ndarray, rival: np.ndarray, turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """z of two places and dz, all [n, d] -> Y and dY [n, H] of score(best) - score(rival)."""
        steeper = on_grid(self.score * (tanh(rival) ** 2 - tanh(best) ** 2), SLOPE_BITS)
        slope = (steeper @ self.belief) * self.gain
        bend = up(2.0 * SQUARED_SECH_SLOPE * np.abs(self.score) * turn, BOUND_BITS) @ self.policy_bound
        return slope, bend + self.slope_rounding

    def exit_proven(self, box: Box, logits: np.ndarray, tau: float) -> np.ndarray:
        """Logits [b, R, C] -> [b] whether the exact run's margin lies on the same side of tau."""
        pool = self.model.task.pool

        def same_side(gap: np.ndarray, reach: np.ndarray) -> np.ndarray:
            least, largest = margin_range(gap, reach)
            return np.asarray((pool(least) > tau) | (pool(largest) <= tau))

        return self._settle(box, logits, same_side)

    def label_proven(self, box: Box, logits: np.ndarray) -> np.ndarray:
        """Logits [b, R, C] -> [b] whether the exact run has the same best class for every target."""
        return self._settle(box, logits, lambda gap, reach: (gap > reach).all(axis=(1, 2)))

    def points_proven(self, box: Box, logits: np.ndarray, margins: np.ndarray) -> np.ndarray:
        """Logits [R, C] of one scene, classes from the first on, and their margins [R] -> [R] whether the exact run has
        the same best. A lead D has a margin of at most tanh(D / 2) <= D / 2: where that is enough, leads are not asked.
        """
        if not (box.turn < HOPELESS).all():
            return np.zeros(len(logits), dtype=bool)
        coarse = (bounded(box.turn) @ self.readout_bound.T + self.readout_rounding)[0, : logits.shape[1]]
        proven = margins > coarse.max() + 2.0 * MARGIN_SLACK
        left = logits[~proven]
        proven[~proven] = (leads(left) > coarse + coarse[left.argmax(axis=1)][:, None]).all(axis=1)
        return np.asarray(proven)

    def _settle(self, box: Box, logits: np.ndarray, test: Test) -> np.ndarray:
        """A test of leads and reaches [b, R, C]: with the coarse reach for all, with the fine one where that fails."""
        gap, best = leads(logits), logits.argmax(axis=2)  # [b, R, C], [b, R]
        coarse = bounded(box.turn) @ self.readout_bound.T + self.readout_rounding  # [b, C]
        both = coarse[:, None, :] + np.take_along_axis(coarse, best, axis=1)[..., None]
        hopeful = (box.turn < HOPELESS).all(axis=1)
        proven = np.asarray(test(gap, both)) & hopeful
        left = np.flatnonzero(~proven & hopeful)
        if left.size:
            proven[left] = test(gap[left], self._fine(box[left], best[left]))
        return proven

    def _fine(self, box: Box, best: np.ndarray) -> np.ndarray:
        """Best classes [b, R] -> reaches [b, R, C] by (*); targets of a scene with the same best class share them."""
        n_classes, width = self.readout.shape
        pairs, which = np.unique(np.arange(len(best))[:, None] * n_classes + best, return_inverse=True)
        row, top = np.divmod(pairs, n_classes)
        slope = self.readout[top][:, None, :] - self.readout  # [pairs, C, H]
        moved = change(box[np.repeat(row, n_classes)], slope.reshape(-1, width), 0.0).reshape(-1, n_classes)
        return moved[which.reshape(best.shape)] + self.readout_rounding[best][..., None] + self.readout_rounding

    def verdicts(self, played: Played, rule: ExitRule) -> list[Verdict | None]:
        """For each scene the first thing that is not proven; None if the head reported no hits."""
        looks = played.looks
        n_scenes = len(looks[0].rows)
        if any(look.hit is None for look in looks) or not self.is_bounded:
            return [None] * n_scenes
        told: list[Verdict | None] = [PRESERVED] * n_scenes
        for _, _, row, verdict in sorted(self._doubts(played, rule), key=lambda doubt: doubt[:2], reverse=True):
            told[row] = verdict  # the earliest is written last
        return told

    def _doubts(self, played: Played, rule: ExitRule) -> Iterator[tuple[int, int, int, Verdict]]:
        """(observation, rank within it, scene, verdict) of everything that is not proven."""
        t = np.repeat([look.t for look in played.looks], [len(look.rows) for look in played.looks])
        rows, words = joined(played.looks, "rows"), joined(played.looks, "hit")
        for at in words.nonzero()[0]:
            yield int(t[at]), 0, int(rows[at]), spike_verdict(int(t[at]), *hit_place(words[at]))
        for rank, (kind, doubtful) in enumerate(self._decisions(played, rule, t, rows), start=1):
            for at in doubtful:
                sentence = f"After observation {t[at]} {DOUBTS[kind]}."
                yield int(t[at]), rank, int(rows[at]), Verdict(False, sentence, step=int(t[at]), decision=kind)

    def _decisions(
        self, played: Played, rule: ExitRule, t: np.ndarray, rows: np.ndarray
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Kinds of decision, and for each which of n looks at one scene are not proven; boxes only where they count."""
        looks = played.looks
        done, margin, membrane = (joined(looks, name) for name in ("done", "margin", "membrane"))
        quick = self.quick(int(t.max()))
        s = quick.sigma(deviation(membrane, self.model.belief.units), t)
        reach = quick.lead_reach(s, t)

        def box(left: np.ndarray) -> Box:
            return self.box(membrane[left], t[left])

        def exits(tau: float, at: np.ndarray) -> np.ndarray:
            left = at[~same_side(margin[at], tau, reach[at])]
            return left[~self.exit_proven(box(left), logits_of(looks, left), tau)] if left.size else left

        if rule.tau is not None:
            yield "exit", exits(rule.tau, np.arange(len(t)))
        ends = done.nonzero()[0]
        if rule.kappa is not None:
            yield "exit", exits(rule.kappa, ends)
        logits = logits_of(looks, ends)
        some = (~(np.minimum.reduce(runner_up(logits), axis=1) > reach[ends])).nonzero()[0]
        left = ends[some]
        yield "class", left[~self.label_proven(box(left), logits[some])] if left.size else left
        after = [look for look in looks if look.t > 1]
        if after and after[0].rivals is not None and self.model.spec.policy.sees_belief:  # else it rests on no membrane
            on = (~done).nonzero()[0]  # the choice after a look is recorded with the next one
            scores, rivals = joined(after, "scores"), joined(after, "rivals")
            gap = runner_up(np.where(rivals, scores, -np.inf))
            some = (~(gap > quick.score_reach(s[on], t[on]))).nonzero()[0]
            left = on[some]
            if left.size:
                belief = joined(looks, "belief")[left]
                chosen = self.choice_proven(box(left), belief, played.geometry, scores[some], rivals[some], rows[left])
                yield "chunk", left[~chosen]


def joined(looks: list[Look], name: str) -> np.ndarray:
    """One array of all looks, one after the other."""
    parts = [getattr(look, name) for look in looks]
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def logits_of(looks: list[Look], at: np.ndarray) -> np.ndarray:
    """joined(looks, "logits")[at] for ascending numbers, without the rest."""
    starts = np.cumsum([0, *(len(look.rows) for look in looks)])
    cuts = at.searchsorted(starts).tolist()
    some = zip(looks, starts, cuts, cuts[1:], strict=False)
    return np.concatenate([look.logits[at[low:high] - start] for look, start, low, high in some])


def up(x: np.ndarray, bits: int) -> np.ndarray:
    """Rounded up to multiples of 2^-bits."""
    return np.asarray(np.ceil(x * 2.0**bits) / 2.0**bits)


def bounded(turn: np.ndarray) -> np.ndarray:
    """Bounds on a grid; what is hopeless is told by itself, not by its size."""
    return up(np.minimum(turn, HOPELESS), BOUND_BITS)


def make_box(membrane: np.ndarray, reach: np.ndarray) -> Box:
    """Membranes and how far each may be off, both [b, H] -> the box."""
    centred = membrane - _mean(membrane)
    variance = _mean(centred * centred)
    radius = np.sqrt(_mean(reach * reach))
    sigma = np.sqrt(variance + EPSILON)
    least = np.sqrt(np.maximum(np.sqrt(variance) - radius, 0.0) ** 2 + EPSILON)
    normal = centred / sigma
    n_neurons = membrane.shape[1]
    own = reach * (1.0 - 2.0 / n_neurons) + _mean(reach)
    turn = (own + np.abs(normal) * radius) / least * (1.0 + LAST_BITS)
    return Box(normal, reach, turn, sigma, least, radius)


def _mean(x: np.ndarray) -> np.ndarray:
    """[b, H] -> [b, 1]; for few rows many times as quick as the method of an array."""
    return np.asarray(np.add.reduce(x, axis=1, keepdims=True) / x.shape[1])


def change(box: Box, slope: np.ndarray, bend: np.ndarray | float) -> np.ndarray:
    """The bound (*): Y and dY, both [b, H] -> [b] how far F can be off within the box."""
    bent = np.broadcast_to(bend, slope.shape)
    normal = np.abs(box.normal)
    along = _mean(slope * box.normal)  # c
    along_off = _mean(np.abs(slope) * box.turn + bent * (normal + box.turn))  # dc
    net = np.abs(slope - _mean(slope) - box.normal * along)  # |N|
    net_off = bent + _mean(bent) + normal * along_off + box.turn * (np.abs(along) + along_off)
    rate = net / box.sigma + net_off / box.least_sigma + net * box.radius / (box.sigma * box.least_sigma)
    return np.asarray((box.reach * rate).sum(axis=1) * (1.0 + LAST_BITS))


def leads(logits: np.ndarray) -> np.ndarray:
    """[..., C] how far the best logit leads each class; inf for the best itself."""
    gap = logits.max(axis=-1, keepdims=True) - logits
    np.put_along_axis(gap, logits.argmax(axis=-1)[..., None], np.inf, axis=-1)
    return gap


def margin_range(gap: np.ndarray, reach: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leads [..., C] and how far each may be off -> the least and the largest margin that can be computed."""
    overtaken = tanh(np.maximum(reach - gap, 0.0).max(axis=-1) / 2.0)
    largest = np.maximum(lead_margin(gap + reach), overtaken)
    return lead_margin(gap - reach) - MARGIN_SLACK, largest + MARGIN_SLACK


def lead_margin(gap: np.ndarray) -> np.ndarray:
    """The top-two margin of leads [..., C], inf for the best class; 0 if another class leads."""
    tail = on_grid(exp(-np.maximum(gap, 0.0)), EXP_BITS)
    return np.asarray((1.0 - tail.max(axis=-1)) / (1.0 + tail.sum(axis=-1)))


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
