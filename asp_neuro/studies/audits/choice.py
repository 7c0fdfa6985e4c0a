"""Choices: what the mask is for (S11), and whether sampled and deployed choices agree as they should (S12)."""

from __future__ import annotations

import numpy as np

from asp_neuro.studies.audits import intervals
from asp_neuro.studies.audits.record import Exits
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
    with_mask, without = (stop.at(values).astype(np.float64) for stop, values in zip(exits, right))
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
