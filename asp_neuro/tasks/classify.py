"""Classify: the scene is one target, its label a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from asp_neuro.errors import ConfigError
from asp_neuro.grid.arithmetic import BELIEF_BITS, Product
from asp_neuro.grid.operations import Operations
from asp_neuro.grid.sections import Affine, check, part
from asp_neuro.grid.softmax import margin_operations, probabilities
from asp_neuro.scenes.base import View


@dataclass(frozen=True)
class ClassifySpec:
    """One linear layer on the belief."""

    kind: ClassVar[str] = "classify"

    readout: Affine = part("C", "H")
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        sizes = check(self, "task")
        if sizes["C"] != len(self.classes):
            raise ConfigError(f"task: the read-out has {sizes['C']} rows, but there are {len(self.classes)} classes")

    @property
    def n_inputs(self) -> int:
        return int(self.readout.weight.shape[1])

    def task(self, belief_bound: np.ndarray) -> Classify:
        return Classify(self, belief_bound)

    def operations(self) -> Operations:
        return Operations(mac32=self.readout.weight.size, float64=margin_operations(len(self.classes)))


class Classify:
    """Ready to run."""

    def __init__(self, spec: ClassifySpec, belief_bound: np.ndarray) -> None:
        self.product = Product("task: readout", spec.readout, belief_bound, BELIEF_BITS)
        self.weight, self.bias = self.product.weight, self.product.bias

    def logits(self, belief: np.ndarray, view: View, rows: np.ndarray) -> np.ndarray:
        return self.linear(belief)[:, None, :]

    def linear(self, belief: np.ndarray) -> np.ndarray:
        """Beliefs [b, H] -> logits [b, C]."""
        return np.asarray(self.product(belief) + self.bias)

    def pool(self, margins: np.ndarray) -> np.ndarray:
        return np.asarray(margins[:, 0])

    def label(self, logits: np.ndarray) -> np.ndarray:
        return np.asarray(logits[:, 0].argmax(axis=1))

    def shares(self, logits: np.ndarray) -> np.ndarray:
        return probabilities(logits[:, 0])

    def loss(self, label: np.ndarray, truth: np.ndarray) -> np.ndarray:
        return np.asarray(label != truth, dtype=np.float64)
