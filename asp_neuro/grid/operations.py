"""What a part of the model computes, counted by kind. Everything that is run declares its own (`operations`); what a
kind costs is a matter of prices (`runtime/energy.py`).

A product of whole numbers is of the narrowest kind that holds both factors; weights have 8 bits. What is no product
with a weight (LayerNorm, moments, tanh, softmax, rounding between them) is done element by element in float64: there
every + - * / and square root counts one, also where the numbers happen to be whole.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Operations:
    """How many of each kind."""

    mac8: float = 0.0  # input of 8 bits, weight of 8 bits, added up in 32
    mac16: float = 0.0  # input of two bytes: drives, coordinates, moments
    mac32: float = 0.0  # wider: beliefs, tanh, descriptors, carries, membranes
    float64: float = 0.0  # element by element

    @property
    def macs(self) -> float:
        """Multiply-accumulates, whatever their width."""
        return self.mac8 + self.mac16 + self.mac32

    def __add__(self, other: Operations) -> Operations:
        return Operations(
            self.mac8 + other.mac8, self.mac16 + other.mac16, self.mac32 + other.mac32, self.float64 + other.float64
        )

    def __mul__(self, n: float) -> Operations:
        return Operations(n * self.mac8, n * self.mac16, n * self.mac32, n * self.float64)
