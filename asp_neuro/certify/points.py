"""Promises for dense answers: which points of a shape may be answered (paper J.1 calls it open).

Points of a shape depend on each other, shapes do not: the unit is the shape. A point is accepted if its margin is above
tau. A shape's loss at tau is the share of wrong points among its accepted ones, 0 if none is. The exit is fixed
beforehand; what is calibrated is tau.

    A   E[loss | at least one point is accepted] <= alpha, with confidence 1 - delta
            the planned fallback walk (`plan`) over tau, from strict to loose, with p-values from bets (`betting`)
    B   each shape: with probability at least 1 - alpha, at most a share t of its accepted points is wrong
            r_i = the smallest tau from which on, stricter, shape i keeps its loss at most t
            tau = the ceil((n + 1)(1 - alpha))-th smallest r_i; above n, nothing is accepted     (split conformal)

A says nothing about one shape, B nothing about one point; both are about shapes like those of the calibration. B is
marginal: over the draw of calibration shapes and the new one together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from asp_neuro import plain
from asp_neuro.certify.betting import betting_p_value, point_weighted
from asp_neuro.certify.bounds import check_inside, check_levels, percent
from asp_neuro.certify.plan import N_COMFORTABLE, N_GRID, N_GRID_MAX, START_SHARE, Walk, fallback
from asp_neuro.errors import InputError, UsageError, nearest
from asp_neuro.grid import ARITHMETIC

SHAPES, POINTS = RISKS = ("shapes", "points")  # a mean over shapes, or over accepted points
NOTHING = 1.0  # a threshold that no margin is above


@dataclass(frozen=True)
class PointRecording:
    """The answers for the points of n shapes, at the exit."""

    margins: np.ndarray  # [n, P] in [0, 1]
    wrong: np.ndarray  # [n, P] bool
    there: np.ndarray  # [n, P] bool: shapes may have different numbers of points

    def __post_init__(self) -> None:
        if self.margins.ndim != 2 or self.wrong.shape != self.margins.shape or self.there.shape != self.margins.shape:
            raise InputError(
                f"points: margins {self.margins.shape}, wrong {self.wrong.shape}, there {self.there.shape} do not fit"
            )
        if not self.there.any(axis=1).all():
            raise InputError(f"points: shape {int((~self.there.any(axis=1)).argmax())} has none")
        inside = self.margins[self.there]
        if not ((inside >= 0.0) & (inside <= 1.0)).all():
            raise InputError("points: a margin outside [0, 1]")

    @property
    def n(self) -> int:
        return len(self.margins)

    def subset(self, index: np.ndarray) -> PointRecording:
        return PointRecording(self.margins[index], self.wrong[index], self.there[index])


class Shares(NamedTuple):
    """At each threshold, [G, n]: the share of a shape's points that are accepted, and that are accepted and wrong."""

    accepted: np.ndarray
    wrong: np.ndarray

    def loss(self) -> np.ndarray:
        """[G, n] the share of wrong points among accepted ones; 0 where none is."""
        return np.divide(self.wrong, self.accepted, out=np.zeros_like(self.wrong), where=self.accepted > 0.0)


def shares(recording: PointRecording, grid: np.ndarray) -> Shares:
    """At thresholds that fall strictly."""
    margins = np.where(recording.there, recording.margins, -1.0)
    order = np.argsort(-margins, axis=1, kind="stable")
    falling = -np.take_along_axis(margins, order, axis=1)  # rises
    wrong = np.take_along_axis(recording.wrong & recording.there, order, axis=1)
    total = np.concatenate([np.zeros((recording.n, 1), int), np.cumsum(wrong, axis=1)], axis=1)
    count = np.stack([np.searchsorted(row, -np.asarray(grid), side="left") for row in falling])  # [n, G] margin > tau
    n_points = recording.there.sum(axis=1)[:, None]
    both = np.take_along_axis(total, count, axis=1)
    return Shares((count / n_points).T, (both / n_points).T)


@dataclass(frozen=True)
class PointPlan:
    """Fixed before a calibration shape is seen: thresholds, strict to loose, and the share of delta of each."""

    alpha: float
    delta: float
    risk: str  # of RISKS
    grid: tuple[float, ...]
    shares: tuple[float, ...]
    start: int
    n_calibration: int
    n_validation: int
    seed: int  # of the order of betting
    model_sha256: str = ""
    data_sha256: str = ""
    arithmetic: int | None = None

    def __post_init__(self) -> None:
        for name in ("alpha", "delta"):
            check_inside(f"plan: {name}", getattr(self, name), InputError)
        if self.risk not in RISKS:
            raise InputError(f"plan: risk '{self.risk}'{nearest(self.risk, RISKS)}")
        n_grid = len(self.grid)
        if not 1 <= n_grid <= N_GRID_MAX or len(self.shares) != n_grid or not 0 <= self.start < n_grid:
            raise InputError(f"plan: {n_grid} thresholds, {len(self.shares)} shares, start {self.start} do not fit")
        if not (np.diff(self.grid) < 0).all() or not 0.0 <= self.grid[-1] <= self.grid[0] < 1.0:
            raise InputError("plan: thresholds must fall strictly within [0, 1)")
        if not min(self.shares) >= 0 or not math.fsum(self.shares) <= 1 + 1e-12:
            raise InputError(f"plan: shares must not be negative and sum to at most 1 (here {math.fsum(self.shares)})")
        if self.seed < 0:
            raise InputError(f"plan: seed {self.seed} must not be negative")

    @property
    def sha256(self) -> str:
        return plain.seal("point plan", self)

    def to_dict(self) -> dict[str, Any]:
        return plain.sealed("point plan", self)

    @classmethod
    def from_dict(cls, data: Any) -> PointPlan:
        return plain.unsealed("point plan", cls, data)


def plan_points(
    validation: PointRecording,
    alpha: float = 0.05,
    delta: float = 0.05,
    n_calibration: int = N_COMFORTABLE,
    *,
    risk: str = SHAPES,
    n_grid: int = N_GRID,
    seed: int = 0,
    model_sha256: str = "",
    data_sha256: str = "",
) -> PointPlan:
    """Thresholds at which 1/n_grid, ..., 1 of the validation points are accepted; the start where most is to spare."""
    check_levels(alpha, delta)
    if risk not in RISKS:
        raise UsageError(f"risk '{risk}'{nearest(risk, RISKS)}")
    if not 1 <= n_grid <= N_GRID_MAX:
        raise UsageError(f"{n_grid} thresholds: the grid takes 1 to {N_GRID_MAX}")
    grid = _grid(validation, n_grid)
    found = shares(validation, grid)
    losses, counted = counted_losses(found, alpha, risk)
    n_counted = counted.sum(axis=1)
    mean = ((losses * counted).sum(axis=1) + 1.0) / (n_counted + 2.0)
    spare = (alpha - mean) * np.sqrt(n_calibration * found.accepted.mean(axis=1))
    start = int(np.argmax(spare))
    share = np.full(len(grid), (1 - START_SHARE) / len(grid))
    share[start] += START_SHARE
    return PointPlan(
        float(alpha), float(delta), risk, tuple(grid.tolist()), tuple(share.tolist()), start, int(n_calibration),
        validation.n, int(seed), model_sha256, data_sha256, ARITHMETIC,
    )  # fmt: skip


def _grid(validation: PointRecording, n_grid: int) -> np.ndarray:
    """Halfway between neighbouring recorded margins, strict to loose."""
    recorded = np.unique(np.append(validation.margins[validation.there], 0.0))
    falling = np.sort(validation.margins[validation.there])[::-1]
    rank = (np.arange(1, n_grid + 1) * len(falling) + n_grid - 1) // n_grid
    upper = falling[rank - 1]
    upper = np.unique(upper[upper > 0.0])[::-1]
    if upper.size == 0:
        raise InputError(f"plan: all points of {validation.n} shapes have margin 0")
    lower = recorded[np.searchsorted(recorded, upper) - 1]
    middle = lower + (upper - lower) / 2
    return np.asarray(np.where(middle < upper, middle, lower))


def counted_losses(found: Shares, alpha: float, risk: str) -> tuple[np.ndarray, np.ndarray]:
    """[G, n] losses in [0, 1] whose mean is to be at most alpha, and which shapes count."""
    if risk == POINTS:
        return point_weighted(found.wrong, found.accepted, alpha), np.ones(found.wrong.shape, dtype=bool)
    return found.loss(), found.accepted > 0.0


@dataclass(frozen=True)
class PointRow:
    """One threshold of the table."""

    threshold: float
    risk: float | None  # None: nothing accepted
    accepted: float  # mean share of a shape's points
    none: float  # share of shapes without an accepted point
    p_value: float
    level: float
    passed: bool


@dataclass(frozen=True)
class PointCertificate:
    """The outcome of one calibration. `threshold` None: nothing is certified, and no point is accepted."""

    certified: bool
    alpha: float
    delta: float
    risk_of: str
    threshold: float | None
    n: int
    risk: float | None
    accepted: float
    none: float
    table: tuple[PointRow, ...]
    plan_sha256: str
    model_sha256: str
    data_sha256: str
    arithmetic: int | None

    def to_dict(self) -> dict[str, Any]:
        return plain.sealed("point certificate", self)

    @classmethod
    def from_dict(cls, data: Any) -> PointCertificate:
        return plain.unsealed("point certificate", cls, data)


def certify_points(calibration: PointRecording, made: PointPlan, data_sha256: str = "") -> PointCertificate:
    """Promise A: the loosest threshold that passed."""
    if data_sha256 and data_sha256 == made.data_sha256:
        raise UsageError("the calibration shapes are those that planned: take others, or the promise is void")
    found = shares(calibration, np.array(made.grid))
    losses, counted = counted_losses(found, made.alpha, made.risk)
    passed = walk_points(losses[:, None], counted[:, None], made)
    rows = tuple(
        _row(made, j, found, float(p[0]), float(level[0]), bool(ok[0]))
        for j, (p, level, ok) in enumerate(zip(passed.p_value, passed.level, passed.passed))
    )
    best = next((row for row in reversed(rows) if row.passed), None)
    return PointCertificate(
        certified=best is not None,
        alpha=made.alpha,
        delta=made.delta,
        risk_of=made.risk,
        threshold=None if best is None else best.threshold,
        n=calibration.n,
        risk=None if best is None else best.risk,
        accepted=0.0 if best is None else best.accepted,
        none=1.0 if best is None else best.none,
        table=rows,
        plan_sha256=made.sha256,
        model_sha256=made.model_sha256,
        data_sha256=data_sha256,
        arithmetic=made.arithmetic,
    )


def _row(made: PointPlan, j: int, found: Shares, p_value: float, level: float, passed: bool) -> PointRow:
    accepted, wrong = found.accepted[j], found.wrong[j]
    some = accepted > 0.0
    risk = None
    if some.any():
        risk = float(wrong.sum() / accepted.sum()) if made.risk == POINTS else float(found.loss()[j][some].mean())
    return PointRow(made.grid[j], risk, float(accepted.mean()), float((~some).mean()), p_value, level, passed)


def walk_points(losses: np.ndarray, counted: np.ndarray, made: PointPlan) -> Walk:
    """The planned fallback walk over [G, ..., n] losses; the plan's seed orders the bets."""
    order = np.random.default_rng(made.seed).permutation(losses.shape[-1])
    p_value = betting_p_value(losses[..., order], counted[..., order], made.alpha, made.delta)
    return fallback(p_value, made.shares, made.delta)


# Promise B


def strictest_needed(recording: PointRecording, most: float) -> np.ndarray:
    """[n] r_i: the smallest tau >= 0 from which on, stricter, a shape has at most a share `most` of wrong points.

    Accepted are margins above tau, equal ones together: the first fall of the margin at which the share is exceeded is
    where acceptance has to stop.
    """
    if not 0.0 <= most < 1.0:
        raise UsageError(f"a share of {most} wrong points must be at least 0 and below 1")
    limit = Fraction(str(float(most)))
    margins = np.where(recording.there, recording.margins, -1.0)
    order = np.argsort(-margins, axis=1, kind="stable")
    falling = np.take_along_axis(margins, order, axis=1)
    wrong = np.cumsum(np.take_along_axis(recording.wrong & recording.there, order, axis=1), axis=1)
    count = np.arange(1, falling.shape[1] + 1)
    last = np.append(falling[:, 1:] != falling[:, :-1], np.ones((recording.n, 1), dtype=bool), axis=1)
    broken = last & (falling > 0.0) & (wrong * limit.denominator > count * limit.numerator)
    first = broken.argmax(axis=1)
    return np.where(broken.any(axis=1), falling[np.arange(recording.n), first], 0.0)


@dataclass(frozen=True)
class ShapePromise:
    """Promise B: with probability 1 - alpha at most a share `most` of a shape's accepted points is wrong."""

    alpha: float
    most: float
    threshold: float  # accepted are margins above; NOTHING: none is
    n: int
    accepted: float  # mean share of a calibration shape's points
    model_sha256: str = ""
    data_sha256: str = ""
    arithmetic: int | None = None

    @property
    def holds_nothing(self) -> bool:
        return self.threshold >= NOTHING

    def to_dict(self) -> dict[str, Any]:
        return plain.sealed("shape promise", self)

    @classmethod
    def from_dict(cls, data: Any) -> ShapePromise:
        return plain.unsealed("shape promise", cls, data)


def promise_shapes(
    calibration: PointRecording, alpha: float = 0.1, most: float = 0.05, model_sha256: str = "", data_sha256: str = ""
) -> ShapePromise:
    """Split conformal over shapes."""
    check_inside("alpha", alpha, UsageError)
    threshold = conformal_threshold(strictest_needed(calibration, most), alpha)
    accepted = shares(calibration, np.array([threshold])).accepted.mean() if threshold < NOTHING else 0.0
    return ShapePromise(
        float(alpha), float(most), threshold, calibration.n, float(accepted), model_sha256, data_sha256, ARITHMETIC
    )


def conformal_threshold(needed: np.ndarray, alpha: float) -> float:
    """The ceil((n + 1)(1 - alpha))-th smallest; NOTHING where there are too few."""
    rank = math.ceil((len(needed) + 1) * (1 - Fraction(str(float(alpha)))))
    return float(np.sort(needed)[rank - 1]) if rank <= len(needed) else NOTHING


def sentence_a(found: PointCertificate) -> str:
    """Promise A in words."""
    if found.threshold is None:
        return f"Nothing is certified at {percent(found.alpha)}: no point is accepted."
    of = (
        "of a shape's accepted points, on average over shapes," if found.risk_of == SHAPES else "of all accepted points"
    )
    return (
        f"At most {percent(found.alpha)} {of} are wrong (confidence {percent(1 - found.delta)}, for shapes like those "
        f"of the calibration); {percent(round(found.accepted, 3))} of the points are accepted, and "
        f"{percent(round(found.none, 3))} of the shapes have none."
    )


def sentence_b(found: ShapePromise) -> str:
    """Promise B in words."""
    if found.holds_nothing:
        return f"{found.n} shapes are too few to promise anything of each shape at {percent(found.alpha)}."
    return (
        f"With probability {percent(1 - found.alpha)}, at most {percent(found.most)} of a shape's accepted points are "
        f"wrong (shapes like those of the calibration); {percent(round(found.accepted, 3))} of the points are accepted."
    )
