"""Which conditions a promise can cover, by what validation says; decided before a calibration sample is seen.

One threshold serves all conditions, so each that is covered may make it stricter. A condition is left out if with it no
threshold is likely to pass, if too few answers would be accepted under it, or if it costs too many answers on clouds as
they are. They are asked in the order given: put first what matters most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from asp_neuro.certify.bounds import binomial_cdf
from asp_neuro.certify.plan import START_SHARE, Condition, thresholds
from asp_neuro.certify.recording import Recording, Tallies, tallies

COST = 0.05  # of all clouds as they are: the largest share that may lose its certificate for the sake of all conditions
FEWEST = 0.1  # the smallest share of accepted answers under a condition that is worth a promise


def choose(
    clean: Recording,
    copies: Mapping[Condition, Recording],
    alpha: float,
    delta: float,
    n_calibration: int,
    cost: float = COST,
) -> tuple[tuple[Condition, ...], tuple[str, ...]]:
    """The conditions that stay, and a sentence for each that does not."""
    grid = thresholds(clean)
    counts = {what: tallies(one, grid) for what, one in copies.items()}
    first = tallies(clean, grid)
    alone = _loosest([first], clean.n, alpha, delta, n_calibration)
    kept: list[Condition] = []
    dropped = []
    for what in copies:
        found = [first, *(counts[one] for one in (*kept, what))]
        why = _why_not(found, clean.n, alone, _loosest(found, clean.n, alpha, delta, n_calibration), cost)
        if why is None:
            kept.append(what)
        else:
            dropped.append(f"{what.name}: {why}")
    return tuple(kept), tuple(dropped)


def _loosest(found: Sequence[Tallies], n: int, alpha: float, delta: float, n_calibration: int) -> int | None:
    """The loosest threshold that is likely to pass with so many calibration samples, under all conditions."""
    passes = np.ones(len(found[0].accepted), dtype=bool)
    for one in found:
        accepted = one.accepted * n_calibration // n
        errors = np.floor((one.errors + 1) / (one.accepted + 2) * accepted)
        passes &= binomial_cdf(errors, accepted, alpha) <= START_SHARE * delta
    return int(np.flatnonzero(passes)[-1]) if passes.any() else None


def _why_not(found: Sequence[Tallies], n: int, alone: int | None, both: int | None, cost: float) -> str | None:
    """Why the last of these should not be covered; None: it can be."""
    if both is None:
        return "no threshold is likely to keep the promise under it"
    share = found[-1].accepted[both] / n
    if share < FEWEST:
        return f"only {100.0 * share:.0f} % of the answers would be certified under it"
    if alone is not None:
        lost = (found[0].accepted[alone] - found[0].accepted[both]) / n
        if lost > cost:
            return f"{100.0 * lost:.0f} % of the answers on clouds as they are would lose their certificate for it"
    return None
