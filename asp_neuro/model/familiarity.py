"""Familiar: like the scenes that a model knows. What is not, gets its answer and no promise.

    x        parameter-free statistics of a scene (`SceneSpec.statistics`), S numbers
    d_c(x)   squared distance from the nearest of class c's prototypes, in directions and units in which clouds of one
             prototype spread evenly (Mahalanobis):  min over p of c  | (x - m_p) B |^2
    o_k(x)   how much a scene is like known ones changed in a way k that misleads the model (tilted, ...), rather than
             like them as they are: a sum over the statistics and their squares, nothing up to the middle of known
             scenes, in units in which one of a hundred known scenes is as odd as one of a hundred is distant
    score    the largest of all o_k, and of d of the class that was answered, where the margin crossed the exit
             threshold; of the nearest class, where the budget was spent: an answer that claims nothing is not held
             against a cloud
    unfamiliar  iff score > limit(tau), and then there is no promise

Prototypes, directions and limits are made by `certify/familiarity.py` from clouds that calibrate nothing, and frozen.
There is one limit for each exit threshold that a certificate may choose, each the split conformal quantile of the
scores at that exit: of clouds like the known ones at most `level` (1 %) are called unfamiliar, whichever is chosen.

Exact: statistics are rounded to whole steps, products with B and squares are sums of whole numbers below 2^53. So
neither batch nor BLAS nor machine changes a bit. So are the sums of o_k.
"""

from __future__ import annotations

import base64
import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property
from operator import neg
from typing import Any, cast

import numpy as np

from asp_neuro import plain
from asp_neuro.errors import InputError
from asp_neuro.grid import ARITHMETIC
from asp_neuro.model.exit import ExitReason, ExitRule
from asp_neuro.model.look import Answer
from asp_neuro.model.spec import ModelSpec
from asp_neuro.plain import later
from asp_neuro.report import about
from asp_neuro.scenes.base import KnownScene, SceneSpec

STEPS = 2.0**13  # of a statistic, per unit
LARGEST = 2.0**15 - 1.0  # steps: what 16 bits hold
FINE = 2.0**6  # steps of a distance, per unit
FARTHEST = 2.0**20  # in those steps; what lies beyond is moved there
PART = 2.0**5  # steps of a statistic's distance from the middle, per spread, in an oddness
WIDEST = 6.0 * PART  # what lies farther counts as there
USUAL = 3.0  # spreads about a prototype that are called usual


@dataclass(frozen=True)
class Familiarity:
    """What is known, as plain data; arrays in base64, 16 bits each. Classes are numbered as the model's."""

    level: float  # the largest share of clouds like these that is called unfamiliar
    n: int  # clouds that set the limits
    n_reference: int  # clouds that the prototypes are of
    known: tuple[str, ...]  # conditions under which clouds are known
    statistics: tuple[str, ...]
    owners: tuple[int, ...]  # the class of each prototype
    middles: str  # [p, S] in steps
    spread: str  # [S] in steps, of one prototype's clouds
    directions: str  # [S, S] B up to `units`
    units: tuple[float, ...]  # [S] of a column of B
    exits: tuple[float, ...]  # exit thresholds, strict to loose
    limits: tuple[float, ...]  # the largest familiar score at each
    whole: float  # the same where the whole budget is read
    model_sha256: str
    reference_sha256: str
    data_sha256: str  # of the clouds that set the limits
    arithmetic: int = ARITHMETIC
    odd: tuple[str, ...] = later(())  # ways to be changed that mislead the model
    odd_centre: str = later("")  # [S] in steps
    odd_width: tuple[float, ...] = later(())  # [S] from steps to parts of a spread
    odd_slopes: str = later("")  # [k, 2 S] of the parts and of their squares
    odd_offset: tuple[float, ...] = later(())  # [k] the middle of known scenes
    odd_unit: tuple[float, ...] = later(())  # [k] of what lies above it

    def __post_init__(self) -> None:
        n, p = len(self.statistics), len(self.owners)
        if not 0.0 < self.level < 1.0:
            raise InputError(f"familiarity: level {self.level} must lie strictly between 0 and 1")
        if not 1 <= n <= 1024 or not 1 <= p <= 65_536 or not min(self.owners) >= 0:
            raise InputError(f"familiarity: {n} statistics and {p} prototypes do not fit")
        if len(self.units) != n or len(self.exits) != len(self.limits) or not self.exits:
            raise InputError("familiarity: units, exits and limits do not fit")
        if not (np.diff(self.exits) < 0).all() or min((*self.limits, self.whole)) < 0:
            raise InputError("familiarity: exits must fall strictly, and limits must not be negative")
        if not all(0.0 < unit < 2.0**20 for unit in self.units):
            raise InputError("familiarity: units must lie above 0 and below 2^20")
        for name, shape in (("middles", (p, n)), ("spread", (n,)), ("directions", (n, n))):
            _unpacked(name, getattr(self, name), shape)
        k = len(self.odd)
        if k:
            _unpacked("odd_centre", self.odd_centre, (n,))
            _unpacked("odd_slopes", self.odd_slopes, (k, 2 * n))
        if (len(self.odd_width), len(self.odd_offset), len(self.odd_unit)) != (n if k else 0, k, k):
            raise InputError("familiarity: odd_width, odd_offset and odd_unit do not fit")
        if not all(0.0 < unit < 2.0**20 for unit in (*self.odd_width, *self.odd_unit)):
            raise InputError("familiarity: odd_width and odd_unit must lie above 0 and below 2^20")
        if min(_unpacked("spread", self.spread, (n,))) < 1:
            raise InputError("familiarity: a spread is below one step")

    @property
    def sha256(self) -> str:
        return plain.seal("familiarity", self)

    def to_dict(self) -> dict[str, Any]:
        return plain.sealed("familiarity", self)

    @classmethod
    def from_dict(cls, data: Any) -> Familiarity:
        return plain.unsealed("familiarity", cls, data)

    @cached_property
    def reference(self) -> Reference:
        n, p = len(self.statistics), len(self.owners)
        return Reference(
            np.array(self.owners),
            _unpacked("middles", self.middles, (p, n)).astype(np.float64),
            _unpacked("spread", self.spread, (n,)).astype(np.float64),
            _unpacked("directions", self.directions, (n, n)).astype(np.float64),
            np.array(self.units),
            self._oddness() if self.odd else None,
        )

    def _oddness(self) -> Oddness:
        n, k = len(self.statistics), len(self.odd)
        return Oddness(
            _unpacked("odd_centre", self.odd_centre, (n,)).astype(np.float64),
            np.array(self.odd_width),
            _unpacked("odd_slopes", self.odd_slopes, (k, 2 * n)).astype(np.float64),
            np.array(self.odd_offset),
            np.array(self.odd_unit),
        )

    def limit(self, tau: float | None) -> float:
        """At an exit threshold; one that no certificate can choose has the larger limit of its neighbours."""
        if tau is None:
            return self.whole
        at = bisect_left(self.exits, -tau, key=neg)  # the first that is not stricter
        exact = at < len(self.exits) and self.exits[at] == tau
        return max(self.limits[at if exact else max(at - 1, 0) : at + 1])

    def unfamiliar(self, answer: Answer, statistics: np.ndarray, rule: ExitRule, spec: ModelSpec) -> str | None:
        """Why a scene with these statistics [S] is not familiar, in a sentence; None: it is."""
        statistics = statistics[: len(self.statistics)]
        crossed = bool(rule.crossed(np.array(answer.margin)))
        like = self.reference.oddness(statistics[None])[0]
        if len(like) and like.max() > self.limit(rule.tau):
            which = self.odd[int(like.argmax())]
            return about(spec.scene.kind, f"not like known clouds as they are, but like known clouds under '{which}'")
        far = self.reference.apart(statistics[None])[0]
        own = far if not crossed else np.where(self.reference.owners == self.group(answer.label), far, np.inf)
        at = int(own.argmin())
        if own[at] <= self.limit(rule.tau):
            return None
        name = spec.classes[self.owners[at]] if np.ndim(answer.label) == 0 else None
        scene = with_statistics(spec.scene)
        words = {} if scene is None else scene.words
        return about(spec.scene.kind, self._sentence(statistics, at, words, name, crossed))

    def group(self, label: Any) -> Any:
        """Whose prototypes a label is compared with: its class's, or for a label with many targets those of all."""
        return label if np.ndim(label) == 0 else 0

    def _sentence(self, x: np.ndarray, at: int, words: dict[str, str], name: str | None, answered: bool) -> str:
        """Names the statistic that lies farthest outside, in spreads; `name` is the class of prototype `at`."""
        known, spread = self.reference.middles[at], self.reference.spread
        worst = int(np.abs((steps(x) - known) / spread).argmax())
        low, high = ((known[worst] + side * USUAL * spread[worst]) / STEPS for side in (-1.0, 1.0))
        value = float(x[worst])
        what = words.get(self.statistics[worst], self.statistics[worst])
        usual = f"where {low:.2f} to {high:.2f} is usual"
        if value > high > 0.02:
            usual = f"{value / high:.1f} times the most that is usual"
        of = "for known clouds" if name is None else f"for known clouds of '{name}'"
        nearest = "" if answered or name is None else ", the class that it is most like"
        return f"not like known clouds: {what} is {value:.2f}, {usual} {of}{nearest}"


@dataclass(frozen=True, eq=False)
class Reference:
    """The arrays of a familiarity, float64, whole numbers but for `units`."""

    owners: np.ndarray  # [p]
    middles: np.ndarray  # [p, S]
    spread: np.ndarray  # [S]
    directions: np.ndarray  # [S, S]
    units: np.ndarray  # [S]
    odd: Oddness | None = None

    @cached_property
    def prototypes(self) -> np.ndarray:
        return self.turned(self.middles)

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.asarray(np.square(self.prototypes).sum(axis=1))

    def turned(self, whole: np.ndarray) -> np.ndarray:
        """[n, S] whole steps -> whole fine steps along the directions: sums below 2^15 2^15 S, exact."""
        return np.clip(np.rint((whole @ self.directions) * self.units), -FARTHEST, FARTHEST)

    def oddness(self, statistics: np.ndarray) -> np.ndarray:
        """[n, S] -> [n, k], nothing or more."""
        return np.zeros((len(statistics), 0)) if self.odd is None else self.odd(steps(statistics))

    def distances(self, statistics: np.ndarray) -> np.ndarray:
        """[n, S] -> [n, p]: how far from each prototype, or how odd if that is more."""
        return np.maximum(self.apart(statistics), self.oddness(statistics).max(axis=1, initial=0.0)[:, None])

    def apart(self, statistics: np.ndarray) -> np.ndarray:
        """[n, S] -> [n, p] squared distances from the prototypes; sums below 2^42 S, exact."""
        x = self.turned(steps(statistics))
        square = np.square(x).sum(axis=1)[:, None] - 2.0 * (x @ self.prototypes.T) + self.lengths
        return np.asarray(square / FINE**2)

    def to_classes(self, statistics: np.ndarray, n_classes: int) -> np.ndarray:
        """[n, S] -> [n, C + 1]: the score of each class, inf for one without a prototype, and of the nearest one."""
        out = np.full((len(statistics), n_classes + 1), np.inf)
        for start in range(0, len(statistics), 256):
            far = self.distances(statistics[start : start + 256])
            for owner in np.unique(self.owners):
                out[start : start + 256, owner] = far[:, self.owners == owner].min(axis=1)
            out[start : start + 256, n_classes] = far.min(axis=1)
        return out


@dataclass(frozen=True, eq=False)
class Oddness:
    """How much scenes are like changed ones. Float64, whole numbers but for `width` and `unit`."""

    centre: np.ndarray  # [S]
    width: np.ndarray  # [S]
    slopes: np.ndarray  # [k, 2 S]
    offset: np.ndarray  # [k]
    unit: np.ndarray  # [k]

    def __call__(self, whole: np.ndarray) -> np.ndarray:
        """[n, S] whole steps -> [n, k]."""
        return np.asarray(np.maximum(self.raw(whole) - self.offset, 0.0) * self.unit)

    def raw(self, whole: np.ndarray) -> np.ndarray:
        """[n, S] -> [n, k] before offset and unit; sums below 2^15 2^16 S, exact."""
        part = parts(whole, self.centre, self.width)
        return np.asarray(np.concatenate([part, part * part], axis=1) @ self.slopes.T)


def parts(whole: np.ndarray, centre: np.ndarray, width: np.ndarray) -> np.ndarray:
    """[n, S] whole steps -> [n, S] whole parts of a spread from the middle."""
    return np.asarray(np.clip(np.rint((whole - centre) * width), -WIDEST, WIDEST))


def told(
    answers: list[Answer], scenes: Any, spec: ModelSpec, rule: ExitRule, known: Familiarity | None
) -> list[Answer]:
    """Answers without a promise where a scene is unfamiliar; they keep label, margin and order."""
    scene = with_statistics(spec.scene)
    if known is None or scene is None:
        return answers
    found = zip(answers, scene.statistics(scenes), strict=True)
    reasons = [known.unfamiliar(answer, x, rule, spec) for answer, x in found]
    return [answer if why is None else without(answer, why) for answer, why in zip(answers, reasons, strict=True)]


def without(answer: Answer, why: str) -> Answer:
    """The answer to an unfamiliar scene."""
    return replace(answer, exit=ExitReason.UNFAMILIAR, unfamiliar=why)


def with_statistics(scene: SceneSpec) -> KnownScene | None:
    """The same, if its kind has statistics."""
    return cast(KnownScene, scene) if hasattr(scene, "statistics") else None


def steps(statistics: np.ndarray) -> np.ndarray:
    """Whole steps, as far as 16 bits go."""
    return np.clip(np.rint(statistics * STEPS), -LARGEST, LARGEST)


def packed(values: np.ndarray) -> str:
    """Whole numbers of 16 bits as text."""
    return base64.b64encode(np.asarray(values, dtype="<i2").tobytes()).decode("ascii")


def _unpacked(name: str, text: str, shape: tuple[int, ...]) -> np.ndarray:
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        raise InputError(f"familiarity: {name} are not in base64") from None
    if len(raw) != 2 * math.prod(shape):
        raise InputError(f"familiarity: {name} take {len(raw)} bytes, expected {2 * math.prod(shape)}")
    return np.frombuffer(raw, dtype="<i2").reshape(shape)
