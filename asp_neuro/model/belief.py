"""Belief: the last layer's membrane, normalised. In float units it is rounded to a grid so coarse that the sums of
LayerNorm are exact in int64, and the belief to 2^-24, so that the products behind it are exact too.
"""

from __future__ import annotations

import numpy as np

from asp_neuro.grid.arithmetic import BELIEF_BITS, membrane_bits, norm_operations, normalise_int, on_grid
from asp_neuro.grid.operations import Operations
from asp_neuro.grid.sections import Norm


def operations(width: int) -> Operations:
    """Of a belief: to steps of the grid, LayerNorm, to steps again."""
    return Operations(float64=norm_operations(width) + 4 * width)


class Belief:
    """Ready to run: `units` [H] are integer steps per float unit, `largest` bounds a membrane in float units."""

    def __init__(self, norm: Norm, units: np.ndarray, largest: float) -> None:
        self.norm, self.units = norm, units
        self.bits = membrane_bits(largest, len(units))
        self.gain, self.bias = norm.values
        self._units_a_step = units * 2.0**-self.bits
        self._at_rest = self(np.zeros((1, len(units))))
        self.bound = norm.bound + 2.0**-BELIEF_BITS  # [H]

    @property
    def step(self) -> float:
        """Of the membranes' grid, in float units."""
        return 2.0**-self.bits

    def steps(self, membrane: np.ndarray) -> np.ndarray:
        """Membranes [b, H] as the head gives them -> int64 steps of the grid."""
        return np.asarray(np.rint(membrane / self._units_a_step).astype(np.int64))

    def __call__(self, membrane: np.ndarray) -> np.ndarray:
        """Membranes [b, H] as the head gives them -> beliefs [b, H], multiples of 2^-24."""
        return on_grid(normalise_int(self.steps(membrane), self.gain, self.bias, self.bits), BELIEF_BITS)

    def start(self, batch: int) -> np.ndarray:
        """The belief of a head at rest."""
        return np.repeat(self._at_rest, batch, axis=0)
