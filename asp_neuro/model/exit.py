"""When to stop looking: the stop test, and the reason for a stop (paper Thm. S4, J.1).

    stop at the first t with Delta_t > tau                                            strict

Delta is the margin (`grid/softmax.py`). An observation that crosses tau as the last one of the budget is a crossing
like any other. With patience an episode that has crossed nowhere ends after so many looks instead of the whole budget:
a cloud that is not settled by then seldom is later.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from asp_neuro.errors import UsageError

NEVER = -1  # the step of a cloud that crosses nowhere


class ExitReason(Enum):
    """Why an episode ended: `value` is the word in the records, `sentence` is for people."""

    sentence: str

    CERTIFIED = ("certified", "The margin crossed the certified threshold: the certificate's promise covers it.")
    THRESHOLD = ("threshold", "The margin crossed a threshold that no valid certificate backs: no promise.")
    BUDGET = ("budget", "The looks allowed were spent before the margin crossed the threshold: no promise.")
    UNFAMILIAR = ("unfamiliar", "The cloud is not like those that the model knows: no promise.")

    def __new__(cls, word: str, sentence: str) -> ExitReason:
        member = object.__new__(cls)
        member._value_ = word
        member.sentence = sentence
        return member


def stops(margins: np.ndarray | float, tau: np.ndarray | float) -> np.ndarray:
    """The stop test, wherever a stop is tested."""
    return np.asarray(margins > tau)


def n_crossed(margins: np.ndarray, ascending: np.ndarray) -> np.ndarray:
    """How many of the ascending taus each margin crosses: `stops` summed over them, by bisection."""
    return np.asarray(np.searchsorted(ascending, margins, side="left"))  # left: an equal tau is not crossed


def first_crossing(margins: np.ndarray, tau: float) -> np.ndarray:
    """[T, n] margins -> [n] index of the first step that crosses tau, or NEVER."""
    crossed = stops(margins, tau)  # [T, n]
    return np.where(crossed.any(axis=0), crossed.argmax(axis=0), NEVER)


@dataclass(frozen=True)
class ExitRule:
    """When to stop and what the stop is called.

    `tau` None reads the whole budget, or what of it `patience` allows; `certified` says whether a certificate stands
    behind the threshold; `kappa` is J.1's acceptance: the promise is then for the answers whose margin at the stop
    exceeds it, whatever made them stop. `fewest` is the number of distinct points from which on the promise holds;
    None: as many as the model was made with.
    """

    tau: float | None = None
    certified: bool = False
    kappa: float | None = None
    fewest: int | None = None
    patience: int | None = None  # looks at most; None: the whole budget

    def __post_init__(self) -> None:
        if self.patience is not None and self.patience < 1:
            raise UsageError(f"exit: patience {self.patience}, at least one look is needed")
        for name, value in (("tau", self.tau), ("kappa", self.kappa)):
            if value is not None and not 0.0 <= value < 1.0:
                raise UsageError(f"exit: {name} {value} is outside [0, 1), the range of a margin")

    def most(self, budget: int) -> int:
        """How many looks an episode may take."""
        return budget if self.patience is None else min(budget, self.patience)

    def crossed(self, margins: np.ndarray) -> np.ndarray:
        """[n] margins after an observation -> [n] whether to stop there."""
        return np.zeros(np.shape(margins), dtype=bool) if self.tau is None else stops(margins, self.tau)

    def reason(self, value: float, crossed: bool) -> ExitReason:
        """Why an episode ended: `value` is its margin at the stop; not crossed means that the budget is spent."""
        accepted = crossed if self.kappa is None else bool(stops(value, self.kappa))
        if self.certified and accepted:
            return ExitReason.CERTIFIED
        return ExitReason.THRESHOLD if crossed else ExitReason.BUDGET
