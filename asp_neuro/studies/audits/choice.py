"""Choices: what the mask is for (S11), whether sampled and deployed choices agree as they should (S12), whether the
order is worth anything (Table S3), and whether other trainings would choose the same (J.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asp_neuro.studies.audits import intervals
from asp_neuro.studies.audits.record import Exits, early
from asp_neuro.studies.audits.row import FAILS, HOLDS, UNCLEAR, Row, above, counted

DRAWS = 8  # of Gumbel noise a decision


def revisits(place: np.ndarray) -> np.ndarray:
    """Places [T, n] -> [T, n] bool: seen before in this episode."""
    return np.array([(place[:t] == place[t]).any(axis=0) for t in range(len(place))])


def covered(place: np.ndarray) -> np.ndarray:
    """[n] distinct places of an episode."""
    return np.asarray((~revisits(place)).sum(axis=0))


def masked(place: np.ndarray) -> Row:
    """With the mask nothing is seen twice."""
    again = int(revisits(place).sum())
    return Row(
        "with the mask no place is seen twice", "S11a", "0 revisits", float(again), None, None, None, "6.2 % (J.2)",
        counted(again), place.size, f"{float(covered(place).mean()):.2f} distinct places in {len(place)} observations",
    )  # fmt: skip


def unmasked(place: np.ndarray, n_places: int) -> Row:
    """Without it the same weights come back to where they were."""
    again = revisits(place)
    found = intervals.mean(again.mean(axis=0))
    seen = intervals.mean(covered(place))
    return Row(
        "without the mask places are seen again", "S11b", "above 0", *found, 0.0, "0.81; 3.0 of 16 covered",
        above(found.low, found.high, 0.0), place.size,
        f"share of observations that are revisits; {seen.value:.2f} of {n_places} places are covered in {len(place)}",
    )  # fmt: skip


def dissociation(right: tuple[np.ndarray, np.ndarray], exits: tuple[Exits, Exits]) -> list[Row]:
    """With and without the mask, [T, n] each: accuracy at the exit falls, and more observations are taken."""
    with_mask, without = (stop.at(values).astype(np.float64) for stop, values in zip(exits, right, strict=True))
    lost = intervals.mean(without - with_mask)
    more = intervals.mean(exits[1].observations - exits[0].observations)
    n = len(with_mask)
    return [
        Row(
            "without the mask accuracy at the exit falls", "S11b", "below 0", *lost, 0.0, "-0.093 (93.2 to 83.9 %)",
            above(-lost.high, -lost.low, 0.0), n, f"{with_mask.mean():.4f} with, {without.mean():.4f} without; paired",
        ),
        Row(
            "without the mask the exit comes later", "S11b", "above 0 observations", *more, 0.0, "+1.10 (3.45 to 4.55)",
            above(more.low, more.high, 0.0), n,
            f"{exits[0].observations.mean():.3f} with, {exits[1].observations.mean():.3f} without; paired",
        ),
    ]  # fmt: skip


def gumbel(scores: np.ndarray, free: np.ndarray, place: np.ndarray, seed: int = 0) -> Row:
    """Scores and what was free [T, n, M], places taken [T, n]: P(sampled = taken) must be the largest softmax."""
    decisions = free.sum(axis=-1) > 1  # where there is a choice
    masked = np.where(free, scores, -np.inf)[decisions]  # [d, M]
    taken = place[decisions]
    claim, theorem, paper = "sampled and deployed choices agree as often as the scores say", "S12", "0.243, 0.238"
    if len(taken) == 0:
        return Row(claim, theorem, "the softmax of the best", None, None, None, None, paper, UNCLEAR, 0, "no choices")
    weights = np.exp(masked - masked.max(axis=1, keepdims=True))
    shares = weights.max(axis=1) / weights.sum(axis=1)  # [d]
    rng, agreed = np.random.default_rng(seed), np.zeros(len(taken))
    for _ in range(DRAWS):
        agreed += (masked + rng.gumbel(size=masked.shape)).argmax(axis=1) == taken
    predicted, measured = float(shares.mean()), float(agreed.mean() / DRAWS)
    error = max(float(np.sqrt((shares * (1 - shares)).sum() / DRAWS)) / len(taken), 1e-12)
    off = abs(measured - predicted) / error
    verdict = HOLDS if off <= intervals.NORMAL else FAILS if off > intervals.SURE else UNCLEAR
    reach = intervals.NORMAL * error
    return Row(
        claim, theorem, f"{predicted:.4f}", measured, measured - reach, measured + reach,
        float((1.0 / free[decisions].sum(axis=-1)).mean()), paper, verdict, len(taken) * DRAWS,
        f"{len(taken)} decisions, {DRAWS} draws each; the null is a choice at random",
    )  # fmt: skip


def ahead(learned: np.ndarray, random: np.ndarray) -> Row:
    """[T, n] shares right in the learned and in a random order: mean over the first quarter of the budget, paired."""
    k = early(len(learned))
    lead = intervals.mean((learned[:k].astype(np.float64) - random[:k]).mean(axis=0))
    return Row(
        "the learned order tells more than a random one", "Table S3", "above 0", *lead, 0.0, "+0.026",
        above(lead.low, lead.high, 0.0), learned.shape[1],
        f"share right, mean over looks 1 .. {k}: {learned[:k].mean():.4f} learned, {random[:k].mean():.4f} random; "
        "paired",
    )  # fmt: skip


def agreement(own: Sequence[np.ndarray], others: Sequence[np.ndarray], free: Sequence[np.ndarray]) -> Row:
    """Choices [T, n] of trainings with other seeds after the same looks, and how many places were free: [T, n]."""
    claim, theorem, paper = "other trainings would look at the same places", "J.2", "0.773 (three seeds)"
    if not own:
        note = "one model: name trainings with other seeds (asp-neuro audit a_0.pt --others a_1.pt a_2.pt)"
        return Row(claim, theorem, "above the null", None, None, None, None, paper, UNCLEAR, 0, note)
    same, chance = [], []
    for mine, theirs, n_free in zip(own, others, free, strict=True):
        open_ = n_free > 1  # where there is a choice
        count = np.maximum(open_.sum(axis=0), 1)
        same.append(((mine == theirs) & open_).sum(axis=0) / count)
        chance.append(np.where(open_, 1.0 / n_free, 0.0).sum(axis=0) / count)
    found = intervals.mean(np.mean(same, axis=0))  # over scenes: the pairs share them
    null = float(np.mean(chance))
    return Row(
        claim, theorem, "above the null", *found, null, paper, above(found.low, found.high, null),
        int(sum((n > 1).sum() for n in free)),
        f"share of decisions, after the same looks, in {len(own)} ordered pairs of trainings; the null is a choice at "
        "random",
    )  # fmt: skip
