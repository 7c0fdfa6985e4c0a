"""Making a familiarity (`model/familiarity.py`): prototypes of training clouds, limits from clouds that only plan.

The prototypes may come from clouds that were trained on: only the limits must come from clouds like new ones. A limit
is the ceil((n + 1)(1 - level))-th smallest score of n such clouds (split conformal): a new cloud like them exceeds it
with probability at most `level`, over the draw of all n + 1. Under several conditions it is the largest of theirs, so
that this holds under each. It holds for every exit threshold by itself, and the one in use is chosen by calibration
clouds, which these are independent of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from asp_neuro.errors import UsageError
from asp_neuro.model.exit import NEVER, first_crossing
from asp_neuro.model.familiarity import (
    FINE,
    LARGEST,
    PART,
    STEPS,
    Familiarity,
    Oddness,
    Reference,
    packed,
    steps,
)
from asp_neuro.model.familiarity import parts as parts_of_spread

Pair = tuple[np.ndarray, np.ndarray]  # statistics [m, S] and classes [m] of known clouds

LEVEL = 0.01
PROTOTYPES = 8  # at most, of a class under one condition
CLOUDS = 20  # of a prototype, on average at least
FEWEST = 5  # clouds of a prototype, else it goes
RIDGE = 0.1  # added to every direction's variance, in its own unit: what few clouds did not show
ROUNDS = 10  # of k-means
TAIL = 0.99  # the share of known clouds below the point where distance and oddness count alike
PENALTY = 3e-4  # of a slope per spread, squared, against the mean loss of a cloud
STEPS_OF_FIT = 12  # Newton's, from nothing


class Seen(NamedTuple):
    """Labelled clouds at full budget under one condition."""

    statistics: np.ndarray  # [n, S]
    labels: np.ndarray  # [T, n] answered after each look, or zeros for a task of many targets
    margins: np.ndarray  # [T, n]


def needed(level: float) -> int:
    """Fewest clouds that give a limit at this level."""
    if not 0.0 < level < 1.0:
        raise UsageError(f"unfamiliar {level} must lie strictly between 0 and 1")
    n = max(int(1.0 / level) - 2, 1)
    while _allowed(n, level) < 1:
        n += 1
    return n


def _allowed(n: int, level: float) -> int:
    """How many of n + 1 clouds may exceed the limit."""
    return int((n + 1) * level + 1e-9)


def limit(scores: np.ndarray, level: float) -> float:
    """The split conformal limit of scores [n]."""
    allowed = _allowed(len(scores), level)
    if allowed < 1:
        raise UsageError(f"{len(scores)} clouds: {needed(level)} are needed to call at most {level:g} unfamiliar")
    return float(np.sort(scores)[len(scores) - allowed])


def reference(parts: Sequence[Pair], n_apart: int | None = None) -> Reference:
    """Statistics [m, S] and classes [m] of known clouds, a pair for each condition -> prototypes and directions.

    Distances count the first `n_apart` statistics only (None: all).
    """
    owners, middles, rests = [], [], []
    for statistics, classes in parts:
        even = _whitening(*_rests(statistics[:, :n_apart], classes))
        for owner in np.unique(classes):
            mine = statistics[classes == owner]
            where = _clusters(mine[:, :n_apart] @ even, min(PROTOTYPES, max(1, len(mine) // CLOUDS)))
            for one in np.unique(where):
                some = mine[where == one]
                if len(some) >= FEWEST or len(mine) < FEWEST:
                    owners.append(int(owner))
                    middles.append(some.mean(axis=0))
                    rests.append(some - middles[-1])
    rest = np.concatenate(rests)
    spread = np.maximum(np.sqrt((rest**2).mean(axis=0)), 16.0 / STEPS)
    wanted = np.zeros((rest.shape[1], rest.shape[1]))  # on whole steps, to fine steps
    wanted[:n_apart, :n_apart] = _whitening(rest[:, :n_apart], spread[:n_apart]) * (FINE / STEPS)
    units = _short(np.maximum(np.abs(wanted).max(axis=0), 2.0**-30) / LARGEST)
    return Reference(
        np.array(owners),
        np.clip(np.rint(np.array(middles) * STEPS), -LARGEST, LARGEST),
        np.clip(np.rint(spread * STEPS), 1.0, LARGEST),
        np.rint(wanted / units),
        units,
    )


class Odd(NamedTuple):
    """Known clouds changed in a way that misleads the model."""

    name: str
    statistics: np.ndarray  # [m, S]


def oddness(known: Reference, parts: Sequence[Pair], harmless: Sequence[np.ndarray], odd: Sequence[Odd]) -> Oddness:
    """What tells known clouds, as they are and changed harmlessly [m, S], from odd ones; by logistic regression."""
    usual = np.concatenate([*(statistics for statistics, _ in parts), *harmless])
    centre = np.clip(np.rint(usual.mean(axis=0) * STEPS), -LARGEST, LARGEST)
    spread = np.maximum(usual.std(axis=0) * STEPS, 16.0)
    width = _short(PART / spread)
    plain = features(usual, centre, width)
    slopes = np.stack([_fitted(plain, features(one.statistics, centre, width)) for one in odd])
    slopes = slopes / np.repeat([PART, PART**2], len(centre))
    raw = Oddness(
        centre, width, np.rint(slopes / np.abs(slopes).max() * LARGEST), np.zeros(len(odd)), np.ones(len(odd))
    )
    found = raw.raw(steps(np.concatenate([statistics for statistics, _ in parts])))
    offset, high = (np.rint(np.quantile(found, share, axis=0)) for share in (0.5, TAIL))
    own = [known.apart(statistics) for statistics, _ in parts]
    far = np.concatenate([_own(one, classes, known.owners) for one, (_, classes) in zip(own, parts, strict=True)])
    unit = _short(np.quantile(far, TAIL) / np.maximum(high - offset, 1.0))
    return dataclasses.replace(raw, offset=offset, unit=unit)


def features(statistics: np.ndarray, centre: np.ndarray, width: np.ndarray) -> np.ndarray:
    """[n, S] -> [n, 2 S] distances from the middle, in spreads, and their squares."""
    part = parts_of_spread(steps(statistics), centre, width) / PART
    return np.concatenate([part, part * part], axis=1)


def _own(far: np.ndarray, classes: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """[n, p] -> [n] from the nearest prototype of the own class, of any where it has none."""
    mine = np.where(owners == classes[:, None], far, np.inf)
    return np.where(np.isinf(mine).all(axis=1), far.min(axis=1), mine.min(axis=1))


def _fitted(usual: np.ndarray, odd: np.ndarray) -> np.ndarray:
    """Slopes [F] of a logistic regression of odd [m, F] against usual [n, F], both sides of equal weight."""
    x = np.concatenate([usual, odd])
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    side = np.repeat([0.0, 1.0], [len(usual), len(odd)])
    weight = np.repeat([0.5 / len(usual), 0.5 / len(odd)], [len(usual), len(odd)])
    slope, ridge = np.zeros(x.shape[1]), PENALTY * np.append(np.ones(x.shape[1] - 1), 1e-6)
    for _ in range(STEPS_OF_FIT):
        chance = 1.0 / (1.0 + np.exp(-np.clip(x @ slope, -30.0, 30.0)))
        pull = x.T @ (weight * (side - chance)) - ridge * slope
        curve = (x.T * (weight * np.maximum(chance * (1.0 - chance), 1e-3))) @ x + np.diag(ridge)
        slope = slope + np.linalg.solve(curve, pull)
    return np.asarray(slope[:-1])


def _short(units: np.ndarray) -> np.ndarray:
    """Up to 12 bits each: the last bits of a sum are the library's, and its threads'."""
    part, exponent = np.frexp(units)
    return np.asarray(np.ldexp(np.ceil(part * 2.0**12) / 2.0**12, exponent))


def _rests(statistics: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What is left without the mean of the class, and its spread."""
    rest = np.empty_like(statistics)
    for owner in np.unique(classes):
        mine = classes == owner
        rest[mine] = statistics[mine] - statistics[mine].mean(axis=0)
    return rest, np.maximum(np.sqrt((rest**2).mean(axis=0)), 16.0 / STEPS)


def _whitening(rest: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """[S, S] that makes what is left spread evenly in all directions, up to the ridge."""
    unit = np.clip(rest / spread, -8.0, 8.0)  # an outlier says little about the others
    covariance = unit.T @ unit / max(len(unit), 1) + RIDGE * np.eye(unit.shape[1])
    return np.asarray(np.linalg.cholesky(np.linalg.inv(covariance)) / spread[:, None])


def _clusters(points: np.ndarray, k: int) -> np.ndarray:
    """k-means [m, S] -> [m], from parts of equal size along the longest direction: nothing is drawn."""
    middle = points.mean(axis=0)
    along = (points - middle) @ np.linalg.svd(points - middle, full_matrices=False)[2][0]
    where = np.argsort(np.argsort(along, kind="stable"), kind="stable") * k // len(points)
    for _ in range(ROUNDS if k > 1 else 0):
        found = np.stack([points[where == i].mean(axis=0) if (where == i).any() else middle for i in range(k)])
        far = np.square(points).sum(axis=1)[:, None] - 2.0 * points @ found.T + np.square(found).sum(axis=1)
        where = far.argmin(axis=1)
    return np.asarray(where)


def strangeness(known: Reference, seen: Seen, n_classes: int) -> np.ndarray:
    """[T + 1, n]: the score of a stop at each look that crosses, and in the last row of one that does not."""
    to = known.to_classes(seen.statistics, n_classes)  # [n, C + 1]
    rows = [to[np.arange(len(to)), label] for label in seen.labels]
    return np.stack([*rows, to[:, n_classes]])


def at_exit(strange: np.ndarray, margins: np.ndarray, tau: float | None) -> np.ndarray:
    """[T + 1, n] and margins [T, n] -> [n] scores where the exit threshold is tau."""
    steps = np.full(margins.shape[1], NEVER) if tau is None else first_crossing(margins, tau)
    return np.asarray(strange[steps, np.arange(margins.shape[1])])  # NEVER is the last row


def make(
    parts: Sequence[Pair],
    planning: Sequence[Seen],
    exits: Sequence[float],
    *,
    n_classes: int,
    statistics: Sequence[str],
    known: Sequence[str],
    n_apart: int | None = None,
    harmless: Sequence[np.ndarray] = (),
    odd: Sequence[Odd] = (),
    level: float = LEVEL,
    model_sha256: str = "",
    reference_sha256: str = "",
    data_sha256: str = "",
) -> Familiarity:
    """A familiarity from known clouds (`reference`) and clouds that plan, a pair of these for each condition.

    `n_apart`: see `reference`. `harmless` [m, S] are statistics of known clouds, changed in ways that do not mislead
    the model; `odd`: that do.
    """
    frozen = reference(parts, n_apart)
    if odd:
        frozen = dataclasses.replace(frozen, odd=oddness(frozen, parts, harmless, odd))
    strange = [strangeness(frozen, seen, n_classes) for seen in planning]

    def largest(tau: float | None) -> float:
        return max(limit(at_exit(rows, seen.margins, tau), level) for rows, seen in zip(strange, planning, strict=True))

    return Familiarity(
        level=float(level),
        n=len(planning[0].statistics),
        n_reference=sum(len(classes) for _, classes in parts),
        known=tuple(known),
        statistics=tuple(statistics),
        owners=tuple(frozen.owners.tolist()),
        middles=packed(frozen.middles),
        spread=packed(frozen.spread),
        directions=packed(frozen.directions),
        units=tuple(frozen.units.tolist()),
        exits=tuple(float(tau) for tau in exits),
        limits=tuple(largest(float(tau)) for tau in exits),
        whole=largest(None),
        model_sha256=model_sha256,
        reference_sha256=reference_sha256,
        data_sha256=data_sha256,
        **_plain(frozen.odd, odd),
    )


def _plain(found: Oddness | None, odd: Sequence[Odd]) -> dict[str, Any]:
    """As a familiarity stores it."""
    if found is None:
        return {}
    return {
        "odd": tuple(one.name for one in odd),
        "odd_centre": packed(found.centre),
        "odd_width": tuple(found.width.tolist()),
        "odd_slopes": packed(found.slopes),
        "odd_offset": tuple(found.offset.tolist()),
        "odd_unit": tuple(found.unit.tolist()),
    }
