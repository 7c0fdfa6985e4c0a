"""What is measured: the deployed system at full budget, and what every threshold makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asp_neuro.errors import InputError, UsageError
from asp_neuro.model.exit import NEVER, first_crossing, n_crossed


@dataclass(frozen=True, eq=False)
class Recording:
    """The deployed system at full budget, once per sample; every threshold follows from it. All arrays [T, n].

    `observations` counts what was seen up to each row (1..T unless given). `exit_threshold` is set by `at_exit` only.
    `strange` [T + 1, n] is the score of familiarity of a stop at each row, the last one for a stop that crosses
    nothing; None: nobody asked. After `at_exit` it is [1, n].
    """

    margins: np.ndarray
    correct: np.ndarray
    observations: np.ndarray | None = None
    exit_threshold: float | None = None
    strange: np.ndarray | None = None

    def __post_init__(self) -> None:
        margins = np.array(self.margins, dtype=np.float64)
        if margins.ndim != 2:
            raise InputError(f"recording: margins have shape {margins.shape}, expected [T, n]")
        if margins.size == 0:
            raise InputError(f"recording: empty ({margins.shape[0]} steps, {margins.shape[1]} samples)")
        if not ((margins >= 0) & (margins <= 1)).all():
            bad = margins[~((margins >= 0) & (margins <= 1))][0]
            raise InputError(f"recording: margin {bad} is outside [0, 1]")
        correct = np.array(self.correct)
        if correct.dtype != np.bool_:
            raise InputError(f"recording: `correct` is {correct.dtype}, expected bool")
        seen = np.arange(1, len(margins) + 1)[:, None] if self.observations is None else self.observations
        observations = np.array(np.broadcast_to(seen, margins.shape) if self.observations is None else seen)
        for name, array in (("correct", correct), ("observations", observations)):
            if array.shape != margins.shape:
                raise InputError(f"recording: {name} has shape {array.shape}, margins {margins.shape}")
        for name, array in (("margins", margins), ("correct", correct), ("observations", observations)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        rows = len(margins) + (self.exit_threshold is None)
        if self.strange is not None and self.strange.shape != (rows, margins.shape[1]):
            raise InputError(f"recording: strange has shape {self.strange.shape}, expected {(rows, margins.shape[1])}")

    @classmethod
    def from_predictions(cls, margins: np.ndarray, predictions: np.ndarray, labels: np.ndarray) -> Recording:
        """From predicted classes [T, n] and true classes [n]; a negative label is an unknown one."""
        labels = np.asarray(labels)
        check_known(labels)
        if np.ndim(predictions) != 2 or np.shape(predictions)[1:] != labels.shape:
            raise InputError(f"recording: predictions {np.shape(predictions)} do not fit labels {labels.shape}")
        return cls(margins, np.asarray(predictions) == labels)

    @property
    def n(self) -> int:
        return int(self.margins.shape[1])

    def subset(self, index: np.ndarray) -> Recording:
        """The samples at `index`, in that order, repeats allowed."""
        assert self.observations is not None
        strange = None if self.strange is None else self.strange[:, index]
        return Recording(
            self.margins[:, index], self.correct[:, index], self.observations[:, index], self.exit_threshold, strange
        )


def check_known(labels: np.ndarray) -> None:
    """Refuse labels [n], or [n, R] for R targets each, of which one is unknown (negative)."""
    unknown = np.flatnonzero((labels.reshape(len(labels), -1) < 0).any(axis=1)) if labels.size else labels
    if unknown.size:
        raise InputError(
            f"recording: {unknown.size} of {len(labels)} samples have no label (the first is sample {unknown[0]});"
            " a certificate needs all of them"
        )


def at_exit(recording: Recording, exit_threshold: float) -> Recording:
    """J.1: the one row [1, n] at the stop (first crossing of a threshold fixed beforehand, or the budget's end).

    Planned and certified like any recording, its threshold is the acceptance kappa on S = Delta at the stop.
    """
    if not 0.0 <= exit_threshold < 1.0:
        raise UsageError(f"exit threshold {exit_threshold} is outside [0, 1)")
    if recording.exit_threshold is not None:
        raise UsageError(f"the recording is cut at exit threshold {recording.exit_threshold} already")
    assert recording.observations is not None
    steps = first_crossing(recording.margins, exit_threshold)
    stop = np.where(steps == NEVER, len(recording.margins) - 1, steps)[None]  # [1, n]
    rows = [np.take_along_axis(a, stop, 0) for a in (recording.margins, recording.correct, recording.observations)]
    strange = None if recording.strange is None else recording.strange[steps, np.arange(recording.n)][None]
    return Recording(rows[0], rows[1], rows[2], float(exit_threshold), strange)


class Tallies(NamedTuple):
    """What each threshold of a grid makes of a recording: [G] each, in the order of the grid."""

    accepted: np.ndarray
    errors: np.ndarray
    mean_observations: np.ndarray  # over all samples, those that spend the budget included


@dataclass(frozen=True)
class Tally:
    """What one threshold makes of a recording."""

    threshold: float
    n: int
    accepted: int
    errors: int
    mean_observations: float

    @property
    def coverage(self) -> float:
        return self.accepted / self.n

    @property
    def risk(self) -> float | None:
        """Share of wrong answers among the accepted; None if there are none."""
        return self.errors / self.accepted if self.accepted else None


def tallies(recording: Recording, grid: np.ndarray, limits: Sequence[float] | None = None) -> Tallies:
    """All thresholds of a strict-to-loose grid at once; `limits`: of familiarity, above which nothing is accepted.

    With the running maximum of the margins, sample i stops at step t for exactly the thresholds that t crosses and t-1
    does not: a stretch of the sorted grid. Stretches are added up by their ends.
    """
    assert recording.observations is not None
    ascending = np.asarray(grid, dtype=np.float64)[::-1]
    if (np.diff(ascending) <= 0).any():
        raise UsageError("the grid of thresholds must fall strictly, from strict to loose")
    reach = n_crossed(np.maximum.accumulate(recording.margins, axis=0), ascending)  # [T, n], rising in t
    before = np.concatenate([np.zeros_like(reach[:1]), reach[:-1]])
    size = len(ascending)

    def total(weights: np.ndarray) -> np.ndarray:
        """[size] sum of weights [T, n] over the steps at which samples stop; whole numbers, so exact in float64."""
        weight = weights.ravel().astype(np.float64)
        ends = np.bincount(before.ravel(), weight, size + 1) - np.bincount(reach.ravel(), weight, size + 1)
        return np.asarray(np.cumsum(ends)[:size][::-1])

    accepted = total(np.ones_like(reach))
    whole_budget = recording.observations[-1].astype(np.float64)  # [n]
    spent = np.cumsum(np.bincount(reach[-1], whole_budget, size + 1))[:size][::-1]
    seen = total(recording.observations) + spent
    if limits is not None:
        return Tallies(*_familiar(recording, np.asarray(grid, dtype=np.float64), limits), seen / recording.n)
    return Tallies(accepted.astype(np.int64), total(~recording.correct).astype(np.int64), seen / recording.n)


def _familiar(recording: Recording, grid: np.ndarray, limits: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """[G] accepted and wrong among those that cross and are familiar there."""
    if recording.strange is None:
        raise UsageError("the recording does not say how familiar its samples are")
    who = np.arange(recording.n)
    accepted, errors = np.zeros(len(grid), dtype=np.int64), np.zeros(len(grid), dtype=np.int64)
    for j, (tau, limit) in enumerate(zip(grid, limits, strict=True)):
        steps = first_crossing(recording.margins, tau)
        taken = (steps != NEVER) & (recording.strange[steps, who] <= limit)
        accepted[j] = taken.sum()
        errors[j] = (taken & ~recording.correct[steps, who]).sum()
    return accepted, errors


def tally_at(recording: Recording, tau: float, limit: float | None = None) -> Tally:
    """One threshold: how many are accepted, how many of these are wrong, how many observations all take."""
    found = tallies(recording, np.array([tau]), None if limit is None else [limit])
    return Tally(
        float(tau), recording.n, int(found.accepted[0]), int(found.errors[0]), float(found.mean_observations[0])
    )
