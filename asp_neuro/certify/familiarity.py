"""Making a familiarity (`model/familiarity.py`): prototypes of training clouds, limits from clouds that only plan.

The prototypes may come from clouds that were trained on: only the limits must come from clouds like new ones. A limit
is the ceil((n + 1)(1 - level))-th smallest score of n such clouds (split conformal): a new cloud like them exceeds it
with probability at most `level`, over the draw of all n + 1. Under several conditions it is the largest of theirs, so
that this holds under each. It holds for every exit threshold by itself, and the one in use is chosen by calibration
clouds, which these are independent of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asp_neuro.errors import UsageError
from asp_neuro.model.exit import NEVER, first_crossing
from asp_neuro.model.familiarity import FINE, LARGEST, STEPS, Familiarity, Reference, packed

LEVEL = 0.01
PROTOTYPES = 8  # at most, of a class under one condition
CLOUDS = 20  # of a prototype, on average at least
FEWEST = 5  # clouds of a prototype, else it goes
RIDGE = 0.1  # added to every direction's variance, in its own unit: what few clouds did not show
ROUNDS = 10  # of k-means


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


def reference(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> Reference:
    """Statistics [m, S] and classes [m] of known clouds, a pair for each condition -> prototypes and directions."""
    owners, middles, rests = [], [], []
    for statistics, classes in parts:
        even = _whitening(*_rests(statistics, classes))
        for owner in np.unique(classes):
            mine = statistics[classes == owner]
            where = _clusters(mine @ even, min(PROTOTYPES, max(1, len(mine) // CLOUDS)))
            for one in np.unique(where):
                some = mine[where == one]
                if len(some) >= FEWEST or len(mine) < FEWEST:
                    owners.append(int(owner))
                    middles.append(some.mean(axis=0))
                    rests.append(some - middles[-1])
    rest = np.concatenate(rests)
    spread = np.maximum(np.sqrt((rest**2).mean(axis=0)), 16.0 / STEPS)
    wanted = _whitening(rest, spread) * (FINE / STEPS)  # on whole steps, to fine steps
    units = _short(np.maximum(np.abs(wanted).max(axis=0), 2.0**-30) / LARGEST)
    return Reference(
        np.array(owners),
        np.clip(np.rint(np.array(middles) * STEPS), -LARGEST, LARGEST),
        np.clip(np.rint(spread * STEPS), 1.0, LARGEST),
        np.rint(wanted / units),
        units,
    )


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
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
    planning: Sequence[Seen],
    exits: Sequence[float],
    *,
    n_classes: int,
    statistics: Sequence[str],
    known: Sequence[str],
    level: float = LEVEL,
    model_sha256: str = "",
    reference_sha256: str = "",
    data_sha256: str = "",
) -> Familiarity:
    """A familiarity from known clouds (`reference`) and clouds that plan, a pair of these for each condition."""
    frozen = reference(parts)
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
    )
