"""What the beliefs know: sufficiency of the membrane (S2), greedy choice (S9, S10), Bayes filter (S22), leak (S23).

All by linear probes, so "information" is what a linear read-out could use (`probes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from asp_neuro.studies.audits import intervals, probes
from asp_neuro.studies.audits.record import Record, early
from asp_neuro.studies.audits.row import FAILS, HOLDS, UNCLEAR, Row, above, at_most

SMALL = 0.05  # of the class entropy: what counts as a small gap
TOLERANCE = 0.03  # nats by which a gain may exceed the one before (the paper's)


def sufficiency(record: Record, seed: int = 0) -> Row:
    """Nats that the drives so far add to the belief, less what drives of other scenes add.

    Shuffling the drives keeps what a probe pays for so many more features; shuffling the classes, as the paper does,
    would make the belief useless too, and the probe would pay far more: every gap would look large. Drives that repeat
    what the belief knows are cheaper than those of other scenes, so the truth lies between the gap as it is (the
    interval's low end) and the gap without the price (its high end).
    """
    k, classes = early(record.n_steps), record.truth
    belief, history = record.belief[k - 1], np.concatenate([*record.drive_int[:k]], axis=1)
    others = np.random.default_rng(seed).permutation(record.n)

    def known(features: np.ndarray) -> np.ndarray:
        return probes.information(features, classes, record.n_classes, seed)

    alone, both, shuffled = (
        known(belief), known(np.concatenate([belief, history], 1)), known(np.concatenate([belief, history[others]], 1))
    )  # fmt: skip
    null = float((shuffled - alone).mean())
    least, most = intervals.mean(both - alone), intervals.mean(both - shuffled)
    found = intervals.Interval(most.value, min(least.low, most.low), most.high)
    limit = SMALL * float(probes.prior_loss(classes, record.n_classes, seed).mean())
    return Row(
        "the membrane holds what the history knew", "S2", f"small: at most {limit:.3f} nats", *found, null,
        "0.047; 0.0478 on ModelNet40", at_most(found.low, found.high, limit), record.n,
        f"after {k} looks; the null (drives of other scenes: {null:+.3f}) is subtracted; limit {SMALL:.0%} of the "
        f"class entropy; probes in {probes.FOLDS} folds of the audited split, seed {seed}",
    )  # fmt: skip


def gains(record: Record, ks: list[int], seed: int) -> np.ndarray:
    """[len(ks), n] nats that a probe knows of each scene from the belief after k looks."""
    return np.stack([probes.information(record.belief[k - 1], record.truth, record.n_classes, seed) for k in ks])


def returns(record: Record, seed: int = 0) -> Row:
    """Along the learned order each look should add less than the one before."""
    ks = list(range(1, min(record.n_steps, 8) + 1))
    known = np.concatenate([np.zeros((1, record.n)), gains(record, ks, seed)])
    steps = np.diff(known, axis=0)  # [k, n] gain of each look
    claim, theorem, paper = "each look adds less than the one before", "S9", "0.00 (tolerance 0.03)"
    if len(steps) < 2:
        return Row(claim, theorem, "0", None, None, None, None, paper, UNCLEAR, record.n, "one look only")
    rises = [intervals.mean(later - before) for before, later in pairwise(steps)]
    violated = sum(rise.value > TOLERANCE for rise in rises)
    sure = sum(rise.low > TOLERANCE for rise in rises)
    maybe = sum(rise.high > TOLERANCE for rise in rises)
    verdict = FAILS if sure else HOLDS if violated == 0 else UNCLEAR
    curve = ", ".join(f"{value:.2f}" for value in steps.mean(axis=1))
    return Row(
        claim, theorem, "0 of the steps violate it", violated / len(rises), sure / len(rises), maybe / len(rises), None,
        paper, verdict, record.n, f"nats gained by look 1, 2, ..: {curve}; tolerance {TOLERANCE} nats",
    )  # fmt: skip


def amortisation(records: Mapping[str, Record], greedy: Record, seed: int = 0) -> Row:
    """How far each order is from the greedy one; `records` has learned and random, and may have more."""
    k = early(greedy.n_steps)
    best = gains(greedy, [k], seed)[0]
    short = {name: best - gains(record, [k], seed)[0] for name, record in records.items()}
    found, lead = intervals.mean(short["learned"]), intervals.mean(short["random"] - short["learned"])
    told = ", ".join(f"{name} {values.mean():.3f}" for name, values in short.items())
    return Row(
        "the learned order is nearer to the greedy one than chance", "S10", "below random's gap (the null)", *found,
        float(short["random"].mean()), "0.095, random 0.130", above(lead.low, lead.high, 0.0), greedy.n,
        f"nats behind an order that is greedy in the true class's likelihood, after {k} looks: {told}; learned ahead "
        f"of random by {lead.value:.3f} ({lead.low:.3f} .. {lead.high:.3f}). The greedy order knows the class: what it "
        "knows is too much, by the same amount for every rival",
    )  # fmt: skip


def log_odds(values: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Logits [n, C] and a class of each [n] -> [n] log-odds of that class against all others."""
    rows = np.arange(len(label))
    others = values.copy()
    others[rows, label] = -np.inf
    return np.asarray(values[rows, label] - probes.softmax(others)[1])


def bayes(record: Record, seed: int = 0) -> Row:
    """Rank correlation of the read-out's log-odds with those of a probe on the summed drives."""
    k = early(record.n_steps)
    own = record.told[k - 1]
    label = own.argmax(axis=1)
    probe = probes.logits(record.drive_int[:k].sum(axis=0), record.truth, record.n_classes, seed)
    ours, theirs = log_odds(own, label), log_odds(probe, label)
    found = intervals.drawn(lambda i: intervals.rank_correlation(ours[i], theirs[i]), record.n, seed)
    null = intervals.NORMAL / np.sqrt(max(record.n - 1, 1))
    return Row(
        "the membrane is a log-posterior: it ranks scenes as summed evidence does", "S22", "above the null", *found,
        float(null), None, above(found.low, found.high, float(null)), record.n,
        f"Spearman, after {k} looks, log-odds of the class answered; the null is the 97.5 % point of no relation",
    )  # fmt: skip


def evidence(record: Record, seed: int = 0) -> np.ndarray:
    """[T, n] what each drive says for the true class, by a probe on the drives' sum over the whole budget."""
    total = record.drive_int.sum(axis=0).astype(np.float64)
    fold, out = probes.folds(record.n, seed), np.zeros(record.drive_int.shape[:2])
    for which in range(probes.FOLDS):
        here, there = fold == which, fold != which
        spread = total[there].std(axis=0)
        scale = np.where(spread > 0, 1.0 / np.where(spread > 0, spread, 1.0), 0.0)
        weight = probes.chosen(probes.standardised(total, there)[there], record.truth[there], record.n_classes)[:, :-1]
        mine = (weight - weight.mean(axis=0))[record.truth[here]] * scale  # [m, D]
        out[:, here] = (record.drive_int[:, here] * mine).sum(axis=-1)
    return out


def matched_leak(told: np.ndarray) -> float:
    """Evidence [T, n] -> the leak that fits its correlation from one observation to the next."""
    centred = told - told.mean(axis=1, keepdims=True)
    before, after = centred[:-1], centred[1:]
    size = np.sqrt((before**2).sum() * (after**2).sum())
    return float((before * after).sum() / size) if size > 0 else 0.0


def leak(record: Record, leaks: np.ndarray, seed: int = 0) -> Row:
    """The leaks [H] per observation that were learned, against the one that the evidence's correlation asks for."""
    claim, theorem, paper = "leaks fit how long evidence stays related", "S23", "0.9 (9.5 observations)"
    low, high = (float(value) for value in np.quantile(leaks, [0.05, 0.95]))
    predicted = f"{leaks.mean():.3f} (90 % of the neurons: {low:.3f} .. {high:.3f})"
    if record.n_steps < 2:
        return Row(claim, theorem, predicted, None, None, None, 0.0, paper, UNCLEAR, record.n, "one look only")
    told = evidence(record, seed)
    found = intervals.drawn(lambda index: matched_leak(told[:, index]), record.n, seed)
    inside, outside = low <= found.low and found.high <= high, found.high < low or found.low > high
    length = f"{-1.0 / np.log(found.value):.1f}" if 0.0 < found.value < 1.0 else "no"
    return Row(
        claim, theorem, predicted, *found, 0.0, paper, HOLDS if inside else FAILS if outside else UNCLEAR, record.n,
        f"correlation of the evidence for the true class between neighbouring looks ({length} observations long)",
    )  # fmt: skip
