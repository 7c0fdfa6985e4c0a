"""How it is bounded: exact binomial tails, Clopper-Pearson bounds, and how many samples they take."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from asp_neuro.errors import AspError, UsageError

N_MAX = 2**53  # samples that a size may ask for


def binomial_cdf(errors: np.ndarray | int, accepted: np.ndarray | int, risk: float) -> np.ndarray:
    """P(Bin(accepted, risk) <= errors), elementwise; 1 where none is accepted."""
    from scipy import special  # here: most of an answer's start would be its import

    k, n = np.broadcast_arrays(np.asarray(errors, dtype=np.float64), np.asarray(accepted, dtype=np.float64))
    some = k < n
    tail = special.betaincc(np.where(some, k + 1, 1.0), np.where(some, n - k, 1.0), risk)
    return np.where(some, tail, 1.0)


def clopper_pearson(errors: np.ndarray | int, accepted: np.ndarray | int, level: np.ndarray | float) -> np.ndarray:
    """The largest risk that `errors` of `accepted` do not refute at `level`; <= alpha iff the p-value is <= level."""
    from scipy import special

    k, n = np.broadcast_arrays(np.asarray(errors, dtype=np.float64), np.asarray(accepted, dtype=np.float64))
    some = k < n
    upper = special.betainccinv(np.where(some, k + 1, 1.0), np.where(some, n - k, 1.0), level)
    return np.where(some, upper, 1.0)


def fewest(enough: Callable[[int], bool], low: int) -> int:
    """The smallest whole number from `low` on that is enough, by doubling and bisection."""
    high = max(low, 1)
    while not enough(high):
        low, high = high + 1, 2 * high
        if high > N_MAX:
            raise UsageError(f"more than {N_MAX} samples would be needed: alpha, delta or the power asks too much")
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def check_levels(alpha: float, delta: float) -> None:
    check_inside("alpha", alpha, UsageError)
    check_inside("delta", delta, UsageError)


def check_inside(name: str, value: object, error: type[AspError]) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value < 1.0:
        raise error(f"{name} {value!r} must lie strictly between 0 and 1")


def percent(value: float) -> str:
    """0.05 -> "5 %"; digits as needed."""
    return f"{100 * value:.10g} %"
