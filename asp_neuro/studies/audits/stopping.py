"""The stopping law: margins drift upwards where a scene can be solved, and so the exit comes (S6, S7, J.6, G.5).

The solvable event A of the theorem is here "the answer after the whole budget is right".

    S6         E[T | A] <= min(1 + (tau + c - E[Delta_1 | A])+ / delta, M)        delta: drift, c: largest increment
    S7         T is a mixture: a mode before the budget's end, and one there; P(no crossing) <= P(not A)
    G.5        error left after k looks ~ D exp(-gamma k), so that E[T] = ceil(log(D / epsilon) / gamma)
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from asp_neuro.studies.audits import intervals
from asp_neuro.studies.audits.record import Exits
from asp_neuro.studies.audits.row import FAILS, HOLDS, UNCLEAR, Row, above, at_most

EPSILON = 0.05  # points of accuracy that may be missing (G.5)
FEW = 100  # exits, below which a shape cannot be told


def increments(margins: np.ndarray, exits: Exits) -> tuple[np.ndarray, np.ndarray]:
    """[n] sum of the margin's increments up to the stop, and their number."""
    return exits.at(margins) - margins[0], exits.step.astype(np.float64)


def drift(margins: np.ndarray, solvable: np.ndarray, exits: Exits) -> Row:
    """The mean increment of the margin an observation, before the stop, of solvable scenes."""
    gained, taken = (values[solvable] for values in increments(margins, exits))
    claim, theorem = "margins of solvable scenes drift upwards until the exit", "S6"
    if taken.sum() == 0 or len(taken) < 2:
        return Row(claim, theorem, "above 0", None, None, None, 0.0, "0.026", UNCLEAR, len(taken), "none looks twice")
    found = intervals.ratio(gained, taken)
    return Row(
        claim, theorem, "above 0", *found, 0.0, "0.026", above(found.low, found.high, 0.0), int(taken.sum()),
        f"{int(taken.sum())} increments of {len(taken)} solvable scenes (right after the whole budget)",
    )  # fmt: skip


def halves(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Seeded, [n // 2] and [n - n // 2] indices."""
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])


def law(margins: np.ndarray, solvable: np.ndarray, exits: Exits, seed: int = 0) -> Row:
    """E[T | A] on one half of the scenes, against the bound whose constants come from the other half."""
    one, other = (index[solvable[index]] for index in halves(len(solvable), seed))
    gained, taken = increments(margins, exits)
    claim, theorem = "solvable scenes exit as soon as their drift says", "S6"
    if taken[one].sum() == 0 or len(other) < 2:
        return Row(claim, theorem, "at most the bound", None, None, None, None, None, UNCLEAR, len(other), "too few")
    delta = float(gained[one].sum() / taken[one].sum())
    before = np.arange(1, len(margins))[:, None] <= exits.step  # increments that were made
    steps = np.where(before, np.diff(margins, axis=0), 0.0)
    reach, start = float(steps[:, one].max()), float(margins[0, one].mean())
    bound = 1.0 + max(exits.tau + reach - start, 0.0) / delta if delta > 0 else np.inf
    bound = min(bound, float(len(margins)))
    found = intervals.mean(exits.observations[other])
    return Row(
        claim, theorem, f"at most {bound:.3g} observations", *found, None, None, at_most(found.low, found.high, bound),
        len(other), f"1 + (tau + c - E[first margin]) / drift with tau {exits.tau:.3f}, c {reach:.3f}, first margin "
        f"{start:.3f}, drift {delta:.4f} from the other half",
    )  # fmt: skip


def censored(solvable: np.ndarray, exits: Exits) -> Row:
    """Scenes that never cross, against scenes that are not solvable; paired."""
    never = ~exits.crossed
    found = intervals.share(int(never.sum()), len(never))
    limit = float((~solvable).mean())
    apart = intervals.mean(never.astype(np.float64) - ~solvable)
    verdict = UNCLEAR if len(never) < 2 else at_most(apart.low, apart.high, 0.0)
    return Row(
        "no more scenes spend the budget than cannot be solved", "S7", f"at most {limit:.4g}", *found, None,
        "0.115 (limit 0.146)", verdict, len(never),
        f"never crossing minus not solvable: {apart.value:+.3f} ({apart.low:+.3f} .. {apart.high:+.3f})",
    )  # fmt: skip


def rising(values: np.ndarray) -> np.ndarray:
    """The nearest sequence that never falls (least squares; pool adjacent violators)."""
    level: list[float] = []
    width: list[int] = []
    for value in values.tolist():
        level.append(value)
        width.append(1)
        while len(level) > 1 and level[-2] > level[-1]:
            last, n = level.pop(), width.pop()
            level[-1] = (level[-1] * width[-1] + last * n) / (width[-1] + n)
            width[-1] += n
    return np.repeat(level, width)


def one_mode(histogram: np.ndarray) -> np.ndarray:
    """The nearest histogram [M] that rises to one mode and falls after it."""
    fits = [
        np.concatenate([rising(histogram[:peak]), rising(histogram[peak:][::-1])[::-1]])
        for peak in range(len(histogram) + 1)
    ]
    return fits[int(np.argmin([((fit - histogram) ** 2).sum() for fit in fits]))]


def second_mode(histogram: np.ndarray) -> float:
    """The share of a histogram that must move for it to have one mode."""
    return float(np.abs(histogram - one_mode(histogram)).sum() / (2 * histogram.sum()))


def two_modes(exits: Exits, n_steps: int, seed: int = 0, draws: int = intervals.DRAWS) -> Row:
    """Is there a second mode, more than one mode gives by chance?"""
    n = len(exits.step)
    histogram = np.bincount(exits.step, minlength=n_steps).astype(np.float64)
    rng, nearest = np.random.default_rng(seed), one_mode(histogram)
    chance = [second_mode(rng.multinomial(n, nearest / nearest.sum())) for _ in range(draws)]
    found = intervals.drawn(lambda i: second_mode(np.bincount(exits.step[i], minlength=n_steps)), n, seed, draws)
    null = float(np.quantile(chance, 1 - intervals.LEVEL))
    verdict = HOLDS if found.value > null else UNCLEAR if n < FEW else FAILS
    return Row(
        "exits have two modes: soon, and at the budget's end", "S7", "a second mode, above the null", *found, null,
        "two on images; one on ModelNet40 (J.6)", verdict, n, "share of the exits that must move for one mode; "
        + exit_shares(exits, n_steps),
    )  # fmt: skip


def exit_shares(exits: Exits, n_steps: int) -> str:
    """The histogram in words: quarters of the budget."""
    ends = [round(n_steps * part / 4) for part in range(5)]
    taken = exits.observations
    words = [
        f"{low + 1}-{high}: {100.0 * float(((taken > low) & (taken <= high)).mean()):.1f} %"
        for low, high in pairwise(ends)
        if high > low
    ]
    return "observations " + ", ".join(words)


def mean_exit(exits: Exits, n_steps: int) -> Row:
    """J.6."""
    found = intervals.mean(exits.observations)
    return Row(
        "the exit saves observations", "J.6", f"below the budget of {n_steps}", *found, float(n_steps), "6.81 of 16",
        at_most(found.low, found.high, np.nextafter(n_steps, 0)), len(exits.step), exit_shares(exits, n_steps),
    )  # fmt: skip


def needed(right: np.ndarray) -> tuple[float, float, float]:
    """[T, n] bool -> gamma, D (points) and the looks that the model of G.5 says are needed; NaN: no decay to fit."""
    left = 100.0 * (right[-1].mean() - right.mean(axis=1))  # [T] points
    falling = np.flatnonzero(left <= EPSILON)
    end = int(falling[0]) if falling.size else len(left)
    if end < 2:
        return float("nan"), float(left[0]), 1.0 if end < 1 else float("nan")
    gamma = -float(np.polyfit(np.arange(end), np.log(left[:end]), 1)[0])
    if gamma <= 0:
        return gamma, float(left[0]), float("nan")
    return gamma, float(left[0]), float(np.ceil(np.log(left[0] / EPSILON) / gamma))


def capacity(right: np.ndarray, exits: Exits, seed: int = 0) -> Row:
    """Observations taken against those that the anytime curve says are needed."""
    gamma, difficulty, looks = needed(right)
    found, claim = intervals.mean(exits.observations), "the exit takes no more looks than the information needs"
    if not np.isfinite(looks):
        note = "accuracy does not rise towards its value at full budget in a way that could be fitted"
        return Row(claim, "G.5", "at most the fitted need", *found, None, "3.84 of 4", UNCLEAR, len(exits.step), note)
    drawn = intervals.drawn(lambda index: needed(right[:, index])[2], len(exits.step), seed)
    low, high = (looks if not np.isfinite(end) else end for end in (drawn.low, drawn.high))
    verdict = HOLDS if found.high <= low else FAILS if found.low > high else UNCLEAR
    return Row(
        claim, "G.5", f"at most {looks:.3g} ({low:.3g} .. {high:.3g})", *found, None, "3.84 of 4", verdict,
        len(exits.step), f"gamma {gamma:.2f}, D {difficulty:.2f} points, epsilon {EPSILON} points",
    )  # fmt: skip
