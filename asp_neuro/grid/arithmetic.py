"""Arithmetic that gives the same bits on every machine, in every batch, with any number of threads.

What a library may do in its own order (a product, a sum) is made of whole numbers, so few that none of its sums rounds:
below 2^24 in float32 before the head (`Linear`), below 2^53 in float64 behind it (`Product`), below 2^63 in int64
(`normalise_int`); proven from the stored weights when they are built. All else is done element by element with + - * /,
floor and square root, which IEEE 754 rounds the same everywhere; exp and tanh are made of these (library versions of
them differ between machines). docs/integers.md writes the whole arithmetic down.

    weights        8 bits, a power of two per row (`shift`)        activations    0 .. 255, or -127 .. 127
    coordinates    whole steps of 2^-14                            descriptors    of 2^-16
    membranes      of 2^-MEMBRANE or coarser (`membrane_bits`)     beliefs        of 2^-24
    tanh           of 2^-30       exp    of 2^-40                  margins and probabilities    of 2^-30
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from asp_neuro import compiled
from asp_neuro.errors import ConfigError
from asp_neuro.grid.sections import Affine, Matrix

EXACT_SINGLE = 2.0**24  # whole numbers up to here are exact in float32
EXACT = 2.0**53  # and in float64
EPSILON = 1e-5  # of every LayerNorm

WEIGHT_MAX = 127
SHIFT_MAX = 24
UNSIGNED_MAX = 255.0  # activations after a ReLU
SIGNED_MAX = 127.0  # and elsewhere

MEMBRANE_BITS_MAX = 20
BELIEF_BITS = 24
BIAS_BITS = 12  # behind the head a bias has finer steps than the weights
DESCRIPTOR_BITS = 16
TANH_BITS = 30
EXP_BITS = 40
MARGIN_BITS = 30

LANES = 16  # of compiled products


def on_grid(x: np.ndarray, bits: int) -> np.ndarray:
    """Rounded to multiples of 2^-bits, halves to even."""
    steps = np.multiply(x, 2.0**bits)
    return np.asarray(np.multiply(np.rint(steps), 2.0**-bits))


def rounded_shift(x: np.ndarray, bits: int) -> np.ndarray:
    """Whole numbers over 2^bits, rounded, halves up: (x + 2^(bits - 1)) >> bits."""
    return np.asarray(np.floor(x * 2.0**-bits + 0.5))


def to_range(x: np.ndarray, low: np.ndarray | float, high: np.ndarray | float) -> np.ndarray:
    """Down to whole numbers, within limits, in place."""
    return within(np.floor(x, out=x), low, high)


def within(x: np.ndarray, low: np.ndarray | float, high: np.ndarray | float) -> np.ndarray:
    """Limited, in place; many times as quick for few numbers as np.clip."""
    np.maximum(x, low, out=x)
    return np.minimum(x, high, out=x)


class Linear:
    """x -> (W x + b + half) / 2^shift for whole numbers: what `to_range` makes a rounded result of.

    Inputs are bounded by `largest` [in]; `extra` bounds what else is added to the sum. Scaling a row by a power of two
    changes no bit of a float32 product but its exponent.
    """

    def __init__(
        self, name: str, affine: Affine | Matrix, largest: np.ndarray | float, extra: np.ndarray | float = 0.0
    ) -> None:
        check_shift(name, affine.shift)
        weight, scale = affine.weight.astype(np.float64), 2.0 ** -affine.shift.astype(np.float64)
        bias = affine.bias.astype(np.float64) if isinstance(affine, Affine) else np.zeros(len(scale))
        bias = bias + np.floor(0.5 / scale)  # the half that makes rounding down rounding to the nearest
        reach = (np.abs(weight) * largest).sum(axis=1) + np.abs(bias) + extra
        self.reach = reach * scale  # [out] largest |result|
        check_exact(name, reach, EXACT_SINGLE, "float32")
        self.weight = np.ascontiguousarray((weight * scale[:, None]).T, dtype=np.float32)  # [in, out]
        self.bias = (bias * scale).astype(np.float32)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Without the bias: a maximum may come first."""
        return x @ self.weight


class Product:
    """x -> 2^-shift W x without rounding, in float64, for x of multiples of 2^-bits within +-largest [n].

    `exponents` [n] multiply the inputs by powers of two.
    """

    def __init__(
        self,
        name: str,
        matrix: Affine | Matrix,
        largest: np.ndarray | float,
        bits: int,
        exponents: np.ndarray | None = None,
    ) -> None:
        check_shift(name, matrix.shift)
        scale = 2.0 ** -matrix.shift.astype(np.float64)
        column = np.ones(matrix.weight.shape[1]) if exponents is None else 2.0 ** exponents.astype(np.float64)
        whole = matrix.weight * column
        bias = matrix.bias * 2.0**-BIAS_BITS if isinstance(matrix, Affine) else np.zeros(len(scale))
        smallest = min(2.0 ** -(bits - float(np.log2(column.min()))), 2.0**-BIAS_BITS)
        check_exact(name, ((np.abs(whole) * largest).sum(axis=1) + np.abs(bias)) / smallest, EXACT, "float64")
        self.weight: np.ndarray = whole * scale[:, None]  # [out, n]
        self.bias: np.ndarray = np.asarray(bias * scale)
        self._columns = np.ascontiguousarray(self.weight.T)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Without the bias."""
        return x @ self._columns


def panels(weight: np.ndarray) -> np.ndarray:
    """[in, out] -> [panels, in, LANES] in a row, as compiled products want it; the last is filled up with zeros."""
    n_in, n_out = weight.shape
    filled = np.pad(weight, ((0, 0), (0, -n_out % LANES)))
    return np.ascontiguousarray(filled.reshape(n_in, -1, LANES).swapaxes(0, 1), dtype=np.float32).reshape(-1)


def check_shift(name: str, shift: np.ndarray) -> None:
    """Shifts go to the right, and not too far."""
    for row in np.flatnonzero((shift < 0) | (shift > SHIFT_MAX))[:1]:
        raise ConfigError(f"{name}: row {row} is shifted by {shift[row]}, expected 0 to {SHIFT_MAX}")


def check_exact(name: str, reach: np.ndarray, limit: float, kind: str) -> None:
    """Refuse a map one of whose sums could leave the whole numbers that its type holds."""
    row = int(np.argmax(reach))
    if not reach[row] < limit:
        raise ConfigError(f"{name}: sums of row {row} can reach {reach[row]:,.0f}, {kind} is exact below {limit:,.0f}")


def membrane_bits(largest: float, n_neurons: int) -> int:
    """How fine membranes up to `largest` can be for `normalise_int`: n^2 (largest 2^bits)^2 < 2^62."""
    return min(MEMBRANE_BITS_MAX, 31 - math.frexp(float(n_neurons))[1] - math.frexp(largest)[1])


def norm_operations(width: int) -> int:
    """What `normalise_int` does to a row: 8 an element, 5 more."""
    return 8 * width + 5


def normalise_int(x: np.ndarray, gain: np.ndarray, bias: np.ndarray, bits: int) -> np.ndarray:
    """LayerNorm of multiples of 2^-bits [n, H]: exact sums, then one square root and one division.

    In int64, or in float64 where n^2 x^2 stays below 2^53.
    """
    width = x.shape[1]
    if compiled.kernels is not None:
        whole, out = np.ascontiguousarray(x, dtype=np.int64), np.empty(x.shape)
        compiled.kernels.normalise_int(whole, gain, bias, out, len(x), width, EPSILON * (width * 2.0**bits) ** 2)
        return out
    total = np.add.reduce(x, axis=1, keepdims=True)
    spread = width * np.add.reduce(x * x, axis=1, keepdims=True) - total * total
    root = np.sqrt(spread.astype(np.float64, copy=False) + EPSILON * (width * 2.0**bits) ** 2)
    centred = width * x
    centred -= total
    out = centred.astype(np.float64, copy=False)
    out /= root
    out *= gain
    out += bias
    return np.asarray(out)


def gate(z: np.ndarray) -> np.ndarray:
    """A sigmoid between 0 and 1 without an exponential."""
    return np.asarray(0.5 + 0.5 * (z / np.sqrt(1.0 + z * z)))


LOG2_E = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01  # 33 bits: times a whole number below 2^20 it is exact
LN2_LOW = 1.90821492927058770002e-10
TAYLOR = tuple(1.0 / math.factorial(i) for i in range(11))  # |r| <= ln 2 / 2: the first term left out is below 2^-41
LEAST_EXPONENT = -60.0  # e^-60 is far below every grid here
EXP_OPERATIONS = 5 + 2 * (len(TAYLOR) - 1)  # an element: k, r, and the polynomial
TANH_OPERATIONS = EXP_OPERATIONS + 6


def _by(kernel: Callable[[np.ndarray, np.ndarray], None], x: np.ndarray) -> np.ndarray:
    """A compiled function of each element."""
    x = np.asarray(x, dtype=np.float64, order="C")
    out = np.empty(x.shape)
    kernel(x, out)
    return out


def exp(x: np.ndarray) -> np.ndarray:
    """e^x for x <= 0, element by element, within 2^-41."""
    if compiled.kernels is not None:
        return _by(compiled.kernels.exp, x)
    held = np.maximum(x, LEAST_EXPONENT)
    whole = np.rint(held * LOG2_E)
    held -= whole * LN2_HIGH
    held -= whole * LN2_LOW  # r = x - k ln 2
    out = held * TAYLOR[-1]
    out += TAYLOR[-2]
    for coefficient in TAYLOR[-3::-1]:
        out *= held
        out += coefficient
    return np.asarray(np.ldexp(out, whole.astype(np.int32)))


def tanh(z: np.ndarray) -> np.ndarray:
    """tanh, element by element, rounded to 2^-TANH_BITS."""
    if compiled.kernels is not None:
        return _by(compiled.kernels.tanh, z)
    far = np.abs(z)
    far *= -2.0
    decay = exp(far)
    out = 1.0 - decay
    decay += 1.0
    out /= decay
    out *= 2.0**TANH_BITS
    np.rint(out, out=out)
    out *= 2.0**-TANH_BITS
    return np.asarray(np.copysign(out, z, out=out))
