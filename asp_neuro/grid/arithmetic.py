"""Arithmetic that gives the same bits on every machine, in every batch, with any number of threads.

What a library may do in its own order (a product, a sum) is made of numbers on a grid, so few that float64 adds them
without rounding: an integer multiple of the smallest unit below 2^53 (`Linear`, `Product`; checked when they are built)
or below 2^63 in int64 (`normalise_int`). All else is done element by element with + - * / and square root, which IEEE
754 rounds the same everywhere; exp and tanh are made of these (library versions of them differ between machines).

    coordinates    whole steps of 2^-14      activations    of 2^-12, |a| < 2^6      weights     of 2^-20 or coarser
    membranes      of 2^-MEMBRANE or coarser (`membrane_bits`)                       beliefs     of 2^-24
    descriptors    of 2^-16                  tanh           of 2^-30                 exp         of 2^-40
    margins and probabilities                of 2^-30
"""

from __future__ import annotations

import math

import numpy as np

from asp_neuro.errors import ConfigError
from asp_neuro.grid.sections import Affine

STEP_BITS, LIMIT_BITS = 12, 18
STEP = 2.0**STEP_BITS  # activation steps per unit
LIMIT = 2.0**LIMIT_BITS - 1  # largest activation, in steps
WEIGHT_BITS, LEAST_WEIGHT_BITS = 20, 8
WEIGHT_STEP = 2.0**WEIGHT_BITS  # weight steps per unit
EXACT = 2.0**53  # whole numbers up to here are exact in float64
EPSILON = 1e-5  # of every LayerNorm

MEMBRANE_BITS_MAX = 20
BELIEF_BITS = 24
DESCRIPTOR_BITS = 16
TANH_BITS = 30
EXP_BITS = 40
MARGIN_BITS = 30


def on_grid(x: np.ndarray, bits: int) -> np.ndarray:
    """Rounded to multiples of 2^-bits, halves to even."""
    return np.asarray(np.rint(x * 2.0**bits) / 2.0**bits)


def to_steps(x: np.ndarray, low: float = -LIMIT) -> np.ndarray:
    """Round to whole activation steps and saturate, in place."""
    np.rint(x, out=x)
    return np.clip(x, low, LIMIT, out=x)


def row_steps(x: np.ndarray) -> np.ndarray:
    """Values [n, D] -> [n, 1] steps per unit with which each row fits: STEP, or a smaller power of two."""
    _, exponent = np.frexp(np.abs(x).max(axis=1, keepdims=True))  # largest < 2^exponent
    return np.ldexp(1.0, np.minimum(LIMIT_BITS - exponent, STEP_BITS))


class Linear:
    """An exact affine map before the head: inputs are integers (in `units` of 1 each), outputs in activation steps."""

    def __init__(self, name: str, affine: Affine, units: np.ndarray | float, largest: float) -> None:
        scaled = affine.weight.astype(np.float64) * (np.asarray(units) * STEP)
        self.weight = np.ascontiguousarray((np.rint(scaled * WEIGHT_STEP) / WEIGHT_STEP).T)  # [n, out]
        self.bias = np.rint(affine.bias.astype(np.float64) * STEP * WEIGHT_STEP) / WEIGHT_STEP
        reach = (np.abs(self.weight).sum(axis=0) * largest + np.abs(self.bias)).max() * WEIGHT_STEP
        if reach >= EXACT:
            raise ConfigError(f"{name}: sums can reach 2^{np.log2(reach):.1f} steps, exact float64 ends at 2^53")

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x @ self.weight


class Product:
    """x -> x W^T without rounding, for x of multiples of 2^-bits within +-largest [n].

    Weights [out, n] take the finest grid, 2^-20 or coarser, on which every sum is proven exact.
    """

    def __init__(self, name: str, weight: np.ndarray, largest: np.ndarray | float, bits: int) -> None:
        wide = weight.astype(np.float64)
        reach = float((np.abs(wide) * largest).sum(axis=-1).max())
        room = 52 - bits - math.frexp(reach)[1]  # reach < 2^exponent, and rounding the weights adds a little
        self.bits = min(WEIGHT_BITS, room)
        if self.bits < LEAST_WEIGHT_BITS:
            raise ConfigError(f"{name}: sums can reach {reach:.3g}; weights would keep {self.bits} bits only")
        self.weight = on_grid(wide, self.bits)  # [out, n]
        self._columns = np.ascontiguousarray(self.weight.T)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x @ self._columns


def normalise_steps(x: np.ndarray, gain: np.ndarray, bias: np.ndarray, steps: np.ndarray | float = STEP) -> np.ndarray:
    """LayerNorm of whole steps [..., D], exact up to the final division; returns units, not steps."""
    width = x.shape[-1]
    total = x.sum(axis=-1, keepdims=True)
    spread = width * (x * x).sum(axis=-1, keepdims=True) - total * total  # D^2 times the variance, in steps^2
    return np.asarray((width * x - total) / np.sqrt(spread + EPSILON * (width * steps) ** 2) * gain + bias)


def membrane_bits(largest: float, n_neurons: int) -> int:
    """How fine membranes up to `largest` can be for `normalise_int`: n^2 (largest 2^bits)^2 < 2^62."""
    return min(MEMBRANE_BITS_MAX, 31 - math.frexp(float(n_neurons))[1] - math.frexp(largest)[1])


def normalise_int(x: np.ndarray, gain: np.ndarray, bias: np.ndarray, bits: int) -> np.ndarray:
    """LayerNorm of int64 multiples of 2^-bits [n, H]: sums in int64, then one square root and one division."""
    width = x.shape[1]
    total = x.sum(axis=1, keepdims=True)
    spread = width * (x * x).sum(axis=1, keepdims=True) - total * total
    root = np.sqrt(spread.astype(np.float64) + EPSILON * (width * 2.0**bits) ** 2)
    return np.asarray((width * x - total).astype(np.float64) / root * gain + bias)


def gate(z: np.ndarray) -> np.ndarray:
    """A sigmoid between 0 and 1 without an exponential."""
    return np.asarray(0.5 + 0.5 * (z / np.sqrt(1.0 + z * z)))


LOG2_E = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01  # 33 bits: times a whole number below 2^20 it is exact
LN2_LOW = 1.90821492927058770002e-10
TAYLOR = tuple(1.0 / math.factorial(i) for i in range(11))  # |r| <= ln 2 / 2: the first term left out is below 2^-41
LEAST_EXPONENT = -60.0  # e^-60 is far below every grid here


def exp(x: np.ndarray) -> np.ndarray:
    """e^x for x <= 0, element by element, within 2^-41."""
    held = np.maximum(x, LEAST_EXPONENT)
    whole = np.rint(held * LOG2_E)
    held -= whole * LN2_HIGH
    held -= whole * LN2_LOW  # r = x - k ln 2
    out = np.full_like(held, TAYLOR[-1])
    for coefficient in TAYLOR[-2::-1]:
        out *= held
        out += coefficient
    return np.asarray(np.ldexp(out, whole.astype(np.int32)))


def tanh(z: np.ndarray) -> np.ndarray:
    """tanh, element by element, rounded to 2^-TANH_BITS."""
    decay = exp(-2.0 * np.abs(z))
    out = (1.0 - decay) / (1.0 + decay)
    np.rint(out * 2.0**TANH_BITS, out=out)
    out /= 2.0**TANH_BITS
    return np.asarray(np.copysign(out, z))
