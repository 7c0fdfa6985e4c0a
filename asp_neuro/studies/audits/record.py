"""What an audit reads: every look of n scenes at full budget, stacked, as any engine gave them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asp_neuro.certify import Recording
from asp_neuro.errors import InputError
from asp_neuro.grid.softmax import margin, probabilities
from asp_neuro.model.exit import NEVER, ExitRule, first_crossing
from asp_neuro.model.look import Look
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.report import progress
from asp_neuro.studies.deployed import log_shares
from asp_neuro.tasks.base import Task

BATCH = 128


def early(n_steps: int) -> int:
    """The number of looks at which early knowledge is compared: a quarter of the budget."""
    return max(1, n_steps // 4)


@dataclass(frozen=True, eq=False)
class Record:
    """T observations of n scenes; rows of every array in the order of the scenes.

    A scene with one target has logits, from which all else follows. With more targets the task tells the margin; if it
    gives a scene one class all the same (parts: the category), its log-probabilities stand for the logits, if not it
    tells the loss, and rows that speak of a class are left out.
    """

    truth: np.ndarray  # [n] true classes, or [n, R] of the targets
    place: np.ndarray  # [T, n]
    logits: np.ndarray | None  # [T, n, C]; None: many targets and no class
    belief: np.ndarray  # [T, n, H]
    membrane: np.ndarray  # [T, n, H] last layer, whole numbers
    drive_int: np.ndarray  # [T, n, D]
    scores: np.ndarray | None = None  # [T, n, M] that places were chosen by; None: the order was given
    free: np.ndarray | None = None  # [T, n, M] bool: what could have been chosen
    hit: np.ndarray | None = None  # [T, n] guard hits, 0 for none; None: nobody looked
    pooled: np.ndarray | None = None  # [T, n] margins of scenes with many targets
    lost: np.ndarray | None = None  # [T, n] their losses, in 0 .. 1

    def __post_init__(self) -> None:
        unknown = (self.truth.reshape(len(self.truth), -1) < 0).all(axis=1)  # a target alone may be unknown
        if self.n == 0 or unknown.any():
            raise InputError(f"audit: {self.n} scenes, {int(unknown.sum())} of them without a known class")

    @property
    def n(self) -> int:
        return len(self.truth)

    @property
    def n_steps(self) -> int:
        return len(self.place)

    @property
    def told(self) -> np.ndarray:
        """[T, n, C] logits of the one target."""
        if self.logits is None:
            raise InputError("audit: this row is about tasks with one target, a class")
        return self.logits

    @property
    def n_classes(self) -> int:
        return int(self.told.shape[-1])

    @property
    def margins(self) -> np.ndarray:
        """[T, n]"""
        return margin(self.told) if self.pooled is None else self.pooled

    @property
    def right(self) -> np.ndarray:
        """[T, n] bool"""
        return np.asarray(self.told.argmax(axis=-1) == self.truth)

    @property
    def score(self) -> np.ndarray:
        """[T, n] in 0 .. 1: right or not, or the share of what is not lost."""
        return self.right.astype(np.float64) if self.lost is None else 1.0 - self.lost

    @property
    def probabilities(self) -> np.ndarray:
        """[T, n, C]"""
        return probabilities(self.told)

    def recording(self) -> Recording:
        """As certificates read it."""
        return Recording(self.margins, self.right)


@dataclass(frozen=True, eq=False)
class Exits:
    """Where a threshold stops each scene."""

    tau: float
    step: np.ndarray  # [n] index of the last observation taken
    crossed: np.ndarray  # [n] bool; the others spent the budget

    @property
    def observations(self) -> np.ndarray:
        return np.asarray(self.step + 1)

    def at(self, values: np.ndarray) -> np.ndarray:
        """[T, n, ...] -> [n, ...] at the stop."""
        return np.asarray(values[self.step, np.arange(len(self.step))])


def exits(margins: np.ndarray, tau: float, patience: int | None = None) -> Exits:
    """Margins [T, n] -> stops."""
    margins = margins[:patience]
    crossing = first_crossing(margins, tau)
    return Exits(tau, np.where(crossing == NEVER, len(margins) - 1, crossing), crossing != NEVER)


def stacked(parts: Sequence[Sequence[Look]], truth: np.ndarray, task: Task | None = None) -> Record:
    """Looks of batch after batch, each at full budget; a task of many targets tells their loss."""

    def whole(name: str) -> np.ndarray | None:
        values = [[getattr(look, name) for look in part] for part in parts]
        if any(value is None for part in values for value in part):
            return None
        return np.concatenate([np.stack(part) for part in values], axis=1)

    scores = whole("scores")
    free = None if scores is None else np.concatenate([np.stack([_free(look) for look in part]) for part in parts], 1)
    arrays: dict[str, Any] = {name: whole(name) for name in ("place", "belief", "membrane", "drive_int", "hit")}
    if all(look.logits.shape[1] == 1 for part in parts for look in part[:1]):
        logits = whole("logits")
        assert logits is not None
        return Record(truth=truth, logits=logits[:, :, 0], scores=scores, free=free, **arrays)
    assert task is not None
    arrays["pooled"] = whole("margin")
    if task.shares(parts[0][0].logits[:1]).ndim == 2:
        told = [np.stack([log_shares(task, look.logits) for look in part]) for part in parts]
        return Record(truth=truth, logits=np.concatenate(told, axis=1), scores=scores, free=free, **arrays)
    ends = np.cumsum([len(part[0].rows) for part in parts])
    lost = [
        np.stack([task.loss(look.label, truth[end - len(look.rows) : end]) for look in part])
        for end, part in zip(ends, parts, strict=True)
    ]
    return Record(truth=truth, logits=None, scores=scores, free=free, lost=np.concatenate(lost, axis=1), **arrays)


def _free(look: Look) -> np.ndarray:
    """[b, M] what could have been chosen; the first choice has everything."""
    assert look.scores is not None
    return np.ones(look.scores.shape, dtype=bool) if look.rivals is None else look.rivals


def record(
    perceiver: Perceiver, scenes: Any, truth: np.ndarray, order: np.ndarray | None = None, label: str = "looking"
) -> Record:
    """Play all scenes at full budget on the fast engine, by the policy or in a given order [n, budget]."""
    parts = []
    for start in progress(range(0, len(truth), BATCH), label=label):
        part = slice(start, start + BATCH)
        parts.append(perceiver.played(scenes[part], ExitRule(), None if order is None else order[part]).looks)
    return stacked(parts, truth, perceiver.model.task)
