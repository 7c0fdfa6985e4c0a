"""Ways to look, compared on the same clouds (paper Table 2, Tables S10 and S11, J.3, J.13).

    at a budget      every answer after exactly k observations: whatever differs, differs by the order alone
    at a margin      every answer at the first margin above tau, or at full budget: accuracy and observations per cloud
    spread           standard deviation over trained models (seeds)
    paired error     of ours minus theirs: std over clouds of d_i / sqrt(n), with d_i cloud i's mean over the models
    headroom         (learned - random) / (oracle - random): the share of what a perfect order could win

Everything is read off full-budget recordings, cloud by cloud (F.1): no exit depends on the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from asp_neuro.certify import Recording
from asp_neuro.errors import InputError
from asp_neuro.model.exit import NEVER, first_crossing

BUDGETS = (1, 2, 3, 4, 8, 16)
THRESHOLDS = (0.20, 0.25, 0.30, 0.35, 0.40, 0.45, 0.50)


@dataclass(frozen=True)
class Stop:
    """Where the answers are read: after k observations or, if there is a tau, at the first margin above it."""

    k: int = 0
    tau: float | None = None


@dataclass(frozen=True)
class Measured:
    """Means over clouds and models; spreads over models, NaN where there is one only."""

    accuracy: float
    spread: float
    observations: float
    observations_spread: float


@dataclass(frozen=True)
class Difference:
    """Ours minus theirs; errors are standard errors, paired over clouds, NaN where there is one cloud only."""

    difference: float  # of the accuracies
    standard_error: float
    observations: float
    observations_error: float


def budgets(n_steps: int) -> tuple[int, ...]:
    """The budgets of the table that a run of `n_steps` has, the last of them the whole one."""
    return (*(k for k in BUDGETS if k < n_steps), n_steps)


def answers(recording: Recording, stop: Stop) -> tuple[np.ndarray, np.ndarray]:
    """[n] whether each cloud's answer is right, and [n] after how many observations it was given."""
    n_steps = len(recording.margins)
    if stop.tau is None:
        if not 1 <= stop.k <= n_steps:
            raise InputError(f"after {stop.k} observations: the run has 1 to {n_steps}")
        last = np.full(recording.n, stop.k - 1)
    else:
        crossing = first_crossing(recording.margins, stop.tau)
        last = np.where(crossing == NEVER, n_steps - 1, crossing)
    return recording.correct[last, np.arange(recording.n)], last + 1


def measure(recordings: Sequence[Recording], stop: Stop) -> Measured:
    """One rule over trained models."""
    answered = [answers(recording, stop) for recording in recordings]
    right, seen = (np.array([one[i].mean() for one in answered]) for i in (0, 1))
    return Measured(float(right.mean()), spread(right), float(seen.mean()), spread(seen))


def difference(ours: Sequence[Recording], theirs: Sequence[Recording], stop: Stop) -> Difference:
    """Same clouds, same models in the same order, another way to look."""
    shapes = {recording.margins.shape for recording in (*ours, *theirs)}
    if len(ours) != len(theirs) or len(shapes) != 1:
        raise InputError(f"{len(ours)} and {len(theirs)} runs of shapes {sorted(shapes)} cannot be paired")
    mine, rival = ([answers(recording, stop) for recording in side] for side in (ours, theirs))
    right, seen = (
        np.mean([a[i].astype(np.float64) - b[i] for a, b in zip(mine, rival)], axis=0) for i in (0, 1)
    )  # [n] each
    root = np.sqrt(len(right))
    return Difference(float(right.mean()), spread(right) / root, float(seen.mean()), spread(seen) / root)


def spread(values: np.ndarray) -> float:
    """Standard deviation with n - 1; NaN for a single value, which has none."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


def headroom(learned: float, random: float, oracle: float) -> float | None:
    """The captured share of the oracle-over-random headroom; None where the oracle leaves none."""
    return (learned - random) / (oracle - random) if oracle > random else None
