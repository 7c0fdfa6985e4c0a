"""Promises and probabilities: selective risk under repeated calibration (S4, S19), calibration at the exit (J.7).

Repeated calibration: the recorded scenes stand for the world. Again and again half as many are drawn from them, with
replacement, a threshold is certified on these alone, and its risk is looked up among all recorded scenes. So every draw
is independent, the true risk is known, and a broken promise is one: a second half of the scenes would only estimate it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from asp_neuro.certify import Recording, certify_alone, paper_rule, percent, tallies, tally_at
from asp_neuro.errors import InputError
from asp_neuro.studies.audits import intervals
from asp_neuro.studies.audits.record import Exits
from asp_neuro.studies.audits.row import FAILS, HOLDS, UNCLEAR, Row, at_most

REPEATS = 200
BINS = 15
FEWEST = 10  # answers of a bin that the largest error may be of, where any bin has so many: one answer is 0 or 1

Rule = Callable[[Recording, float, float, int], float | None]  # calibration, alpha, delta, seed -> threshold


def ours(calibration: Recording, alpha: float, delta: float, seed: int) -> float | None:
    """The planned fallback walk; a quarter of the scenes plan."""
    return certify_alone(calibration, alpha, delta, seed=seed)[1].threshold


def papers(calibration: Recording, alpha: float, delta: float, seed: int) -> float | None:
    """Every recorded margin is tried at the whole delta, and the loosest that passes is taken."""
    grid = np.unique(calibration.margins.max(axis=0))[::-1]
    return paper_rule(calibration, grid[grid < 1.0], alpha, delta)


def broken(recording: Recording, rule: Rule, alpha: float, delta: float, repeats: int, seed: int) -> tuple[int, int]:
    """In how many of the repetitions the promise was broken, and how many certified anything."""
    rng = np.random.default_rng(seed)
    n_broken = n_certified = 0
    for repeat in range(repeats):
        drawn = recording.subset(rng.integers(0, recording.n, recording.n // 2))
        tau = rule(drawn, alpha, delta, repeat)
        if tau is not None:
            n_certified += 1
            risk = tally_at(recording, tau).risk
            n_broken += risk is not None and risk > alpha
    return n_broken, n_certified


def largest_risk(recording: Recording) -> float:
    """Over all thresholds."""
    grid = np.unique(recording.margins.max(axis=0))[::-1]
    found = tallies(recording, grid[grid < 1.0])
    return float(
        np.divide(found.errors, found.accepted, out=np.zeros(len(found.errors)), where=found.accepted > 0).max()
    )


def risk(
    recording: Recording, rule: Rule, who: str, alpha: float = 0.05, delta: float = 0.05, repeats: int = REPEATS,
    seed: int = 0,
) -> Row:  # fmt: skip
    """How often a rule breaks its promise over repeated calibrations."""
    claim, theorem = f"promises hold over repeated calibrations: {who}", "S4, S19"
    predicted, told = f"at most {delta:g}", "2.1 % risk, 4.8 % certified (J.1)"
    try:
        n_broken, n_certified = broken(recording, rule, alpha, delta, repeats, seed)
    except InputError as error:
        return Row(claim, theorem, predicted, None, None, None, None, told, UNCLEAR, 0, str(error))
    found = intervals.share(n_broken, repeats)
    note = f"risk promised: {percent(alpha)}; {n_certified} of {repeats} calibrations on {recording.n // 2} scenes pass"
    note += (
        "; no threshold has a larger risk here, so nothing could be broken" if largest_risk(recording) <= alpha else ""
    )
    verdict = at_most(found.low, found.high, delta) if n_certified else UNCLEAR
    return Row(claim, theorem, predicted, *found, None, told, verdict, repeats, note)


def gaps(confidence: np.ndarray, right: np.ndarray, bins: int = BINS) -> tuple[float, float]:
    """ECE and MCE of confidences [n] in equal bins: mean and largest distance of confidence and accuracy.

    The largest is of bins with at least FEWEST answers: with all of them it would be that of the emptiest, whatever the
    others do.
    """
    at = np.minimum((confidence * bins).astype(int), bins - 1)
    count = np.bincount(at, minlength=bins)
    apart = np.abs(np.bincount(at, confidence - right, bins))
    told = count >= min(FEWEST, count.max())
    return float(apart.sum() / len(right)), float((apart[told] / count[told]).max())


def brier(probabilities: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """[n] squared distance of the probabilities [n, C] from the truth, summed over classes."""
    return np.asarray(((probabilities - np.eye(probabilities.shape[1])[truth]) ** 2).sum(axis=1))


def chance(confidence: np.ndarray, seed: int, draws: int = intervals.DRAWS) -> np.ndarray:
    """[2] the 95 % quantiles of ECE and MCE of answers that are right exactly as often as their confidences say."""
    rng = np.random.default_rng(seed)
    values = [gaps(confidence, rng.random(len(confidence)) < confidence) for _ in range(draws)]
    return np.asarray(np.quantile(values, 1 - intervals.LEVEL, axis=0))


def calibration(probabilities: np.ndarray, truth: np.ndarray, exits: Exits, seed: int = 0) -> list[Row]:
    """ECE, MCE and Brier score at the exit, against the whole budget: [T, n, C] probabilities, [n] classes."""
    early, late = exits.at(probabilities), probabilities[-1]
    pairs = [(shares.max(axis=1), shares.argmax(axis=1) == truth) for shares in (early, late)]
    null, n = chance(pairs[0][0], seed), len(truth)
    told = ["ECE 0.0173", "MCE 0.0394", "Brier 0.063"]
    rows = []
    for at, name in enumerate(("ECE", "MCE")):

        def gap(index: np.ndarray, at: int = at) -> float:
            return gaps(pairs[0][0][index], pairs[0][1][index])[at]

        def worse(index: np.ndarray, at: int = at) -> float:
            return gap(index, at) - gaps(pairs[1][0][index], pairs[1][1][index])[at]

        rows.append(
            _kept(name, intervals.drawn(gap, n, seed), intervals.drawn(worse, n, seed), float(null[at]), told[at], n)
        )
    both = [brier(shares, truth) for shares in (early, late)]
    rows.append(_kept("Brier score", intervals.mean(both[0]), intervals.mean(both[0] - both[1]), None, told[2], n))
    return rows


def _kept(
    name: str, found: intervals.Interval, worse: intervals.Interval, null: float | None, paper: str, n: int
) -> Row:
    """Exiting early must not make it worse; where it is within chance of perfect there is nothing to lose."""
    good = null is not None and found.value <= null
    verdict = FAILS if worse.low > 0 and not good else HOLDS if good or worse.high <= 0 else UNCLEAR
    return Row(
        f"exiting early keeps the probabilities honest: {name}", "J.7",
        f"as at full budget ({found.value - worse.value:.4g})", *found, null, paper, verdict, n,
        f"exit minus full budget: {worse.value:+.4f} ({worse.low:+.4f} .. {worse.high:+.4f})",
    )  # fmt: skip
