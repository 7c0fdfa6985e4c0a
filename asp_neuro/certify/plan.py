"""How many tests are paid for: thresholds and shares of delta, fixed beforehand, and the walk over them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from asp_neuro import plain
from asp_neuro.certify.bounds import binomial_cdf, check_inside, check_levels, fewest, percent
from asp_neuro.certify.recording import Recording, tallies
from asp_neuro.errors import InputError, UsageError
from asp_neuro.grid import ARITHMETIC
from asp_neuro.model.familiarity import Familiarity

START_SHARE = 0.8  # of delta, at the planned start; the rest is spread over the grid
N_GRID = 100  # thresholds at validation coverage 1 %, 2 %, ..., 100 %
N_GRID_MAX = 100_000
N_WARN, N_ADVISED, N_COMFORTABLE = 300, 600, 1200  # calibration samples


@dataclass(frozen=True)
class Condition:
    """How copies of clouds are changed: a kind and an amount (`scenes/conditions.py`), and the seed of the draw."""

    name: str
    kind: str
    amount: float
    seed: int


@dataclass(frozen=True)
class Plan:
    """Fixed before a calibration sample is seen: the thresholds, strict to loose, and the share of delta of each."""

    alpha: float
    delta: float
    grid: tuple[float, ...]
    shares: tuple[float, ...]
    start: int  # index of the planned start
    n_calibration: int  # the size planned for
    n_validation: int  # samples that planned
    source: str  # "validation", or "pilot": a share of the calibration samples that is not tested on
    seed: int | None  # of the pilot
    exit_threshold: float | None  # J.1: fixed, and `grid` holds acceptance thresholds
    model_sha256: str
    data_sha256: str
    arithmetic: int | None = plain.later(None)  # of the host that planned; None: made before it was noted
    familiarity_sha256: str | None = plain.later(None)  # None: none is asked for
    cover: tuple[Condition, ...] = plain.later(())  # conditions that are tested too, beside clouds as they are
    dropped: tuple[str, ...] = plain.later(())  # conditions that were asked for, and why they are not covered
    patience: int | None = plain.later(None)  # looks at most; None: the whole budget

    def __post_init__(self) -> None:
        for name in ("alpha", "delta"):
            check_inside(f"plan: {name}", getattr(self, name), InputError)
        n_grid = len(self.grid)
        if not 1 <= n_grid <= N_GRID_MAX or len(self.shares) != n_grid or not 0 <= self.start < n_grid:
            raise InputError(f"plan: {n_grid} thresholds, {len(self.shares)} shares, start {self.start} do not fit")
        if not (np.diff(self.grid) < 0).all() or not 0 <= self.grid[-1] <= self.grid[0] < 1:
            raise InputError("plan: thresholds must fall strictly within [0, 1)")
        if not min(self.shares) >= 0 or not math.fsum(self.shares) <= 1 + 1e-12:
            raise InputError(f"plan: shares must not be negative and sum to at most 1 (here {math.fsum(self.shares)})")
        if self.source not in ("validation", "pilot"):
            raise InputError(f"plan: source '{self.source}' is neither 'validation' nor 'pilot'")

    @property
    def sha256(self) -> str:
        return plain.seal("plan", self)

    def to_dict(self) -> dict[str, Any]:
        return plain.sealed("plan", self)

    @classmethod
    def from_dict(cls, data: Any) -> Plan:
        return plain.unsealed("plan", cls, data)


def make_plan(
    validation: Recording,
    alpha: float = 0.05,
    delta: float = 0.05,
    n_calibration: int = N_COMFORTABLE,
    *,
    n_grid: int = N_GRID,
    source: str = "validation",
    seed: int | None = None,
    model_sha256: str = "",
    data_sha256: str = "",
    known: Familiarity | None = None,
    cover: Mapping[Condition, Recording] | None = None,
    dropped: Sequence[str] = (),
    patience: int | None = None,
) -> Plan:
    """Thresholds and shares from samples that calibrate nothing; refused where n_calibration can certify nothing.

    `cover` are copies of the same samples under other conditions: the start is where the hardest of all is likeliest to
    pass. With `known` only familiar samples are accepted. With `patience` the recordings hold so many looks at most.
    """
    check_levels(alpha, delta)
    if not 1 <= n_grid <= N_GRID_MAX:
        raise UsageError(f"{n_grid} thresholds: the grid takes 1 to {N_GRID_MAX}")
    grid = thresholds(validation, n_grid)
    limits = limits_of(known, grid, validation.exit_threshold)
    hope = [
        (alpha - (found.errors + 1) / (found.accepted + 2)) * np.sqrt(n_calibration * found.accepted / validation.n)
        for found in (tallies(one, grid, limits) for one in (validation, *(cover or {}).values()))
    ]
    start = int(np.argmax(np.min(hope, axis=0)))
    shares = np.full(len(grid), (1 - START_SHARE) / len(grid))
    shares[start] += START_SHARE
    made = Plan(
        alpha=float(alpha),
        delta=float(delta),
        grid=tuple(grid.tolist()),
        shares=tuple(shares.tolist()),
        start=start,
        n_calibration=int(n_calibration),
        n_validation=validation.n,
        source=source,
        seed=seed,
        exit_threshold=validation.exit_threshold,
        model_sha256=model_sha256,
        data_sha256=data_sha256,
        arithmetic=ARITHMETIC,
        familiarity_sha256=None if known is None else known.sha256,
        cover=tuple(cover or {}),
        dropped=tuple(dropped),
        patience=patience,
    )
    check_enough(n_calibration, made)
    return made


def thresholds(validation: Recording, n_grid: int = N_GRID) -> np.ndarray:
    """Thresholds at validation coverage 1/n_grid, ..., 1: halfway between neighbouring recorded margins of any step."""
    highest = np.sort(validation.margins.max(axis=0))[::-1]  # [n]
    rank = (np.arange(1, n_grid + 1) * validation.n + n_grid - 1) // n_grid  # coverage j/n_grid, rounded up
    upper = highest[rank - 1]
    upper = np.unique(upper[upper > 0])[::-1]  # a margin of 0 crosses no threshold in [0, 1)
    if upper.size == 0:
        raise InputError(f"plan: all {validation.n} samples have margin 0 at every step")
    recorded = np.unique(np.append(validation.margins, 0.0))
    lower = recorded[np.searchsorted(recorded, upper) - 1]
    middle = lower + (upper - lower) / 2
    return np.asarray(np.where(middle < upper, middle, lower))  # neighbours in the last bit: the lower one


def limits_of(
    known: Familiarity | None, grid: np.ndarray | Sequence[float], exit_threshold: float | None
) -> Sequence[float] | None:
    """The limit of familiarity at each threshold of a grid: of J.1, where the exit stays, one for all."""
    if known is None:
        return None
    if exit_threshold is not None:
        return [known.limit(exit_threshold)] * len(grid)
    if tuple(grid) != known.exits:
        raise UsageError("the familiarity was made for other exit thresholds than the plan's")
    return known.limits


class Walk(NamedTuple):
    """The tests in order, strict to loose: [G, ...] each."""

    p_value: np.ndarray
    level: np.ndarray
    passed: np.ndarray


def walk(errors: np.ndarray, accepted: np.ndarray, made: Plan) -> Walk:
    """The planned fallback walk over [G, ...] counts: a level is handed on where the test before it passed."""
    return walk_all([(errors, accepted)], made)


def walk_all(counts: Sequence[tuple[np.ndarray, np.ndarray]], made: Plan) -> Walk:
    """The same over errors and accepted under several conditions: a test passes if it passes under each.

    The null is "under some condition the risk is above alpha". Under such a one its own p-value is valid, and the
    largest of all is no smaller: it is a p-value of that null, at the full level, whatever the copies share.
    """
    p_value = np.max([binomial_cdf(errors, accepted, made.alpha) for errors, accepted in counts], axis=0)
    return fallback(p_value, made.shares, made.delta)


def fallback(p_value: np.ndarray, shares: Sequence[float], delta: float) -> Walk:
    """The walk over p-values [G, ...] of whatever test: valid for any dependence between them."""
    level, passed = np.empty_like(p_value), np.empty(p_value.shape, dtype=bool)
    carried = np.zeros(p_value.shape[1:])
    for j, share in enumerate(shares):
        level[j] = delta * share + carried
        passed[j] = p_value[j] <= level[j]
        carried = np.where(passed[j], level[j], 0.0)
    return Walk(p_value, level, passed)


def paper_walk(errors: np.ndarray, accepted: np.ndarray, made: Plan) -> Walk:
    """The paper's rule in the same form: every threshold is tested at the whole delta. Not valid."""
    p_value = binomial_cdf(errors, accepted, made.alpha)
    level = np.full_like(p_value, made.delta)
    return Walk(p_value, level, p_value <= level)


def minimum_accepted(made: Plan, errors: int = 0) -> int:
    """Fewest accepted samples that can pass the planned start with so many errors (none: 63 at 5 % / 5 %)."""
    return fewest(lambda n: bool(binomial_cdf(errors, n, made.alpha) <= _best_level(made)), errors + 1)


def accepted_for_power(made: Plan, risk: float = 0.02, power: float = 0.9) -> int:
    """The number of accepted samples from which on the planned start passes with at least this probability.

    Power falls while samples are added and no further error is allowed, so it is asked for just before the next one is.
    """
    check_inside("power", power, UsageError)
    if not 0.0 <= risk < made.alpha:
        raise UsageError(f"risk {risk} must be at least 0 and below alpha = {made.alpha}")

    def enough(errors: int) -> bool:
        return bool(binomial_cdf(errors, minimum_accepted(made, errors + 1) - 1, risk) >= power)

    return minimum_accepted(made, fewest(enough, 0))


def _best_level(made: Plan) -> float:
    """The highest level that a first pass can have: nothing is inherited before it."""
    return made.delta * max(made.shares)


def sizes(made: Plan) -> str:
    """How many accepted samples a certificate takes under this plan, in one sentence."""
    risk = 0.4 * made.alpha
    return (
        f"A certificate needs at least {minimum_accepted(made)} accepted samples without error at the planned start;"
        f" from {accepted_for_power(made, risk, 0.9)} accepted on it passes there in 90 % of calibrations if the true"
        f" risk is {percent(risk)}."
    )


def advice(n: int) -> str | None:
    """A warning for a small calibration split, or None."""
    if n >= N_WARN:
        return None
    return f"only {n} calibration samples: {N_ADVISED} or more are advised, {N_COMFORTABLE} are comfortable"


def check_enough(n: int, made: Plan) -> None:
    needed = minimum_accepted(made)
    if n < needed:
        raise InputError(
            f"{n} calibration samples: a certificate at alpha = {percent(made.alpha)}, delta = {percent(made.delta)}"
            f" needs at least {needed} that are accepted without error"
        )
