"""How sure a measured number is: 95 % intervals of shares, means and anything that can be drawn again."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from asp_neuro.certify import clopper_pearson

LEVEL = 0.05
NORMAL = 1.959963984540054  # of a two-sided interval at LEVEL
SURE = 3.2905267314919255  # the same at 0.001: beyond it a check fails, between the two it is unclear
DRAWS = 200


class Interval(NamedTuple):
    value: float
    low: float
    high: float


def share(count: int, n: int) -> Interval:
    """count of n, with the exact binomial interval."""
    if n == 0:
        return Interval(float("nan"), 0.0, 1.0)
    high = float(clopper_pearson(count, n, LEVEL / 2))
    low = 1.0 - float(clopper_pearson(n - count, n, LEVEL / 2))
    return Interval(count / n, max(low, 0.0), high)


def mean(values: np.ndarray) -> Interval:
    """The mean of independent values [n]; of fewer than two it can be anything."""
    values = np.asarray(values, dtype=np.float64)
    middle = float(values.mean())
    if len(values) < 2:
        return Interval(middle, -np.inf, np.inf)
    reach = NORMAL * float(values.std(ddof=1)) / np.sqrt(len(values))
    return Interval(middle, middle - reach, middle + reach)


def ratio(above: np.ndarray, below: np.ndarray) -> Interval:
    """sum above / sum below over independent scenes, [n] each (delta method)."""
    total = float(below.sum())
    value = float(above.sum()) / total
    reach = NORMAL * float(np.std(above - value * below, ddof=1)) * np.sqrt(len(above)) / total
    return Interval(value, value - reach, value + reach)


def drawn(statistic: Callable[[np.ndarray], float], n: int, seed: int, draws: int = DRAWS) -> Interval:
    """A statistic of the scenes at an index, on all n of them and on seeded draws with replacement."""
    rng = np.random.default_rng(seed)
    values = [statistic(rng.integers(0, n, n)) for _ in range(draws)]
    known = [value for value in values if np.isfinite(value)] or [float("nan")]
    low, high = np.quantile(known, [LEVEL / 2, 1 - LEVEL / 2])
    return Interval(statistic(np.arange(n)), float(low), float(high))


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's; 0 where one of the two does not vary."""
    a, b = (_ranks(values) for values in (one, other))
    spread = a.std() * b.std()
    return float(((a - a.mean()) * (b - b.mean())).mean() / spread) if spread > 0 else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    """[n] ranks, equal values share theirs."""
    _, at, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2.0)[at.ravel()])
