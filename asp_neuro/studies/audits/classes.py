"""Classes: exits follow difficulty, beliefs of a class come together (J.9)."""

from __future__ import annotations

import numpy as np

from asp_neuro.studies.audits import intervals
from asp_neuro.studies.audits.record import Exits
from asp_neuro.studies.audits.row import FAILS, HOLDS, UNCLEAR, Row

AT_MOST = 600  # scenes of a silhouette: it takes all pairs


def class_means(values: np.ndarray, truth: np.ndarray, n_classes: int) -> np.ndarray:
    """[n] -> [C'] mean of each class that is there."""
    count = np.bincount(truth, minlength=n_classes)
    return np.asarray(np.bincount(truth, values, n_classes)[count > 0] / count[count > 0])


def difficulty(right: np.ndarray, truth: np.ndarray, exits: Exits, n_classes: int, seed: int = 0) -> Row:
    """Rank correlation over classes: share of wrong answers over all observations, and observations at the exit."""
    wrong, taken = 1.0 - right.mean(axis=0), exits.observations.astype(np.float64)

    def tracked(classes: np.ndarray, index: np.ndarray) -> float:
        pair = (class_means(values[index], classes[index], n_classes) for values in (wrong, taken))
        return intervals.rank_correlation(*pair)

    n = len(truth)
    found = intervals.drawn(lambda index: tracked(truth, index), n, seed)
    rng = np.random.default_rng(seed)
    chance = [tracked(rng.permutation(truth), np.arange(n)) for _ in range(intervals.DRAWS)]
    null = float(np.quantile(chance, 1 - intervals.LEVEL))
    means = np.sort(class_means(taken, truth, n_classes))
    verdict = HOLDS if found.value > null else FAILS if found.high <= 0 else UNCLEAR
    return Row(
        "harder classes take more looks", "J.9", "above the null", *found, null, "4.3 looks (easy) to 7.1 (hard)",
        verdict, n, f"rank correlation over {len(means)} classes; mean exit from {means[0]:.2f} to {means[-1]:.2f} "
        "observations; null: classes shuffled, which keeps that hard scenes exit late",
    )  # fmt: skip


def silhouettes(points: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """[n, H] and [n] -> [n] silhouette: how much nearer the own class is than the nearest other, in -1 .. 1."""
    square = (points**2).sum(axis=1)
    apart = np.sqrt(np.maximum(square[:, None] + square - 2.0 * points @ points.T, 0.0))
    np.fill_diagonal(apart, 0.0)
    names, at = np.unique(classes, return_inverse=True)
    member = np.eye(len(names))[at.ravel()]  # [n, C']
    count = member.sum(axis=0)
    total = apart @ member  # [n, C']
    own_count = count[at.ravel()]
    own = total[np.arange(len(points)), at.ravel()] / np.maximum(own_count - 1, 1)
    others = np.where(member > 0, np.inf, total / count)
    nearest = others.min(axis=1)
    larger = np.maximum(own, nearest)
    value = np.where(larger > 0, (nearest - own) / np.where(larger > 0, larger, 1.0), 0.0)
    return np.asarray(np.where(own_count > 1, value, 0.0))


def separation(belief: np.ndarray, truth: np.ndarray, seed: int = 0) -> Row:
    """Beliefs [T, n, H]: the silhouette of the classes after 5 observations, against that after the first."""
    step = min(5, len(belief)) - 1
    rng = np.random.default_rng(seed)
    index = np.sort(rng.permutation(len(truth))[:AT_MOST])
    classes = truth[index]
    claim, theorem, paper = "beliefs of a class come together while looking", "J.9", "0.63 at step 5 (of a t-SNE)"
    if len(np.unique(classes)) < 2 or step == 0:
        return Row(claim, theorem, "rises", None, None, None, None, paper, UNCLEAR, len(index), "one class or one look")
    first, later = (silhouettes(belief[t, index], classes) for t in (0, step))
    found, rise = intervals.mean(later), intervals.mean(later - first)
    null = float(silhouettes(belief[step, index], rng.permutation(classes)).mean())
    verdict = HOLDS if rise.low > 0 and found.low > null else FAILS if rise.high <= 0 or found.high <= null else UNCLEAR
    return Row(
        claim, theorem, f"more than after one look ({first.mean():.3f})", *found, null, paper, verdict, len(index),
        f"silhouette of the beliefs after {step + 1} observations, not of a picture of them; rise {rise.value:+.3f} "
        f"({rise.low:+.3f} .. {rise.high:+.3f})",
    )  # fmt: skip
