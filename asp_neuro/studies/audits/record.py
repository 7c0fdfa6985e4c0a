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

BATCH = 128


@dataclass(frozen=True, eq=False)
class Record:
    """T observations of n scenes, one target each; rows of every array in the order of the scenes."""

    truth: np.ndarray  # [n] true classes
    place: np.ndarray  # [T, n]
    logits: np.ndarray  # [T, n, C]
    belief: np.ndarray  # [T, n, H]
    membrane: np.ndarray  # [T, n, H] last layer, whole numbers
    drive_int: np.ndarray  # [T, n, D]
    scores: np.ndarray | None = None  # [T, n, M] that places were chosen by; None: the order was given
    free: np.ndarray | None = None  # [T, n, M] bool: what could have been chosen
    hit: np.ndarray | None = None  # [T, n] guard hits, 0 for none; None: nobody looked

    def __post_init__(self) -> None:
        if self.n == 0 or (self.truth < 0).any():
            raise InputError(f"audit: {self.n} scenes, {int((self.truth < 0).sum())} of them without a known class")

    @property
    def n(self) -> int:
        return len(self.truth)

    @property
    def n_steps(self) -> int:
        return len(self.place)

    @property
    def n_classes(self) -> int:
        return int(self.logits.shape[-1])

    @property
    def margins(self) -> np.ndarray:
        """[T, n]"""
        return margin(self.logits)

    @property
    def right(self) -> np.ndarray:
        """[T, n] bool"""
        return np.asarray(self.logits.argmax(axis=-1) == self.truth)

    @property
    def probabilities(self) -> np.ndarray:
        """[T, n, C]"""
        return probabilities(self.logits)

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


def exits(margins: np.ndarray, tau: float) -> Exits:
    """Margins [T, n] -> stops."""
    crossing = first_crossing(margins, tau)
    return Exits(tau, np.where(crossing == NEVER, len(margins) - 1, crossing), crossing != NEVER)


def stacked(parts: Sequence[Sequence[Look]], truth: np.ndarray) -> Record:
    """Looks of batch after batch, each at full budget."""
    if any(look.logits.shape[1] != 1 for part in parts for look in part[:1]):
        raise InputError("audit: the audits are of tasks with one target, a class")

    def whole(name: str) -> np.ndarray | None:
        values = [[getattr(look, name) for look in part] for part in parts]
        if any(value is None for part in values for value in part):
            return None
        return np.concatenate([np.stack(part) for part in values], axis=1)

    scores = whole("scores")
    free = None if scores is None else np.concatenate([np.stack([_free(look) for look in part]) for part in parts], 1)
    arrays: dict[str, Any] = {name: whole(name) for name in ("place", "belief", "membrane", "drive_int", "hit")}
    logits = whole("logits")
    assert logits is not None
    return Record(truth=truth, logits=logits[:, :, 0], scores=scores, free=free, **arrays)


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
    return stacked(parts, truth)
