"""Task: what the belief is asked for. The read-out is affine in the belief,

    logits[target] = offset(what was seen)[target] + W b,

everything nonlinear goes into the offset. A class is one target, the parts of a cloud are many. A scene's margin is
an order statistic of its targets' margins, rising in each of them, and by no more than they do: that is all that the
bounds of `model/stability.py` ask of a task.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np

from asp_neuro.grid.operations import Operations
from asp_neuro.scenes.base import View


class Task(Protocol):
    """The arithmetic of a task, built once for a model."""

    weight: np.ndarray  # [C, H] float64, on a grid

    def logits(self, belief: np.ndarray, view: View, rows: np.ndarray) -> np.ndarray:
        """Beliefs [b, H] -> logits [b, R, C] of the R targets of each scene."""

    def pool(self, margins: np.ndarray) -> np.ndarray:
        """Margins of the targets [b, R] -> of the scenes [b]; rises in each, and by no more than the largest rise."""

    def label(self, logits: np.ndarray) -> np.ndarray:
        """Logits [b, R, C] -> labels, [b] or [b, R]."""

    def shares(self, logits: np.ndarray) -> np.ndarray:
        """Logits [b, R, C] -> probabilities, [b, C] or [b, R, C]."""

    def loss(self, label: np.ndarray, truth: np.ndarray) -> np.ndarray:
        """Labels and true ones -> [b] in [0, 1]."""


class TaskSpec(Protocol):
    """A kind of task as a section (`grid.sections`)."""

    kind: ClassVar[str]

    @property
    def classes(self) -> tuple[str, ...]:
        """What the labels are called."""

    @property
    def n_inputs(self) -> int:
        """Width of the belief."""

    def task(self, belief_bound: np.ndarray) -> Task:
        """Ready to run on beliefs within +-bound [H]; refused where a sum could round."""

    def operations(self) -> Operations:
        """Of read-out and margins after an observation."""
