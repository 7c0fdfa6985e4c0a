"""Embedding to drive through a carried state: a token-local selective scan (paper Thm. S16), deployed.

    h <- A(e) . h + B(e) . V(e)          x = LayerNorm(C(e) . h + skip(e))

A, B, C, V and skip depend on the current embedding alone, so one step from the carried h equals running the whole
prefix again. Whole numbers throughout (docs/integers.md), held in float64 once the product is done:

    a, b           -127 .. 127, in steps of 2^-4; A and B follow from a table of 12-bit fractions
    v, c, skip     -2047 .. 2047, each in a unit of its own
    h              in sixteenths of v's unit; A < 1 keeps it below 2^23, however long an episode is
    c h + skip     brought to at most 19 bits, row by row, by a shift: LayerNorm does not mind

`learn/mixer.py` is the trained twin.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from asp_neuro import compiled
from asp_neuro.errors import ConfigError
from asp_neuro.grid.arithmetic import (
    EPSILON,
    SIGNED_MAX,
    Linear,
    gate,
    norm_operations,
    normalise_int,
    panels,
    rounded_shift,
    to_range,
    within,
)
from asp_neuro.grid.operations import Operations
from asp_neuro.grid.sections import Affine, Norm, check, part
from asp_neuro.heads.bits import DRIVE_MAX

GATE_STEP = 2.0**-4  # of a and b
FRACTION_BITS = 12  # of A and B
CARRY_BITS = 4  # what the carry has beyond v's unit
VALUE_MAX = 2.0**11 - 1.0  # of v, c and skip
SKIP_SHIFT_MAX = 24
FEW = 8  # scenes up to which a compiled step is quicker than products of all of them at once
GATES = np.rint(gate(np.arange(-128, 128) * GATE_STEP) * 2.0**FRACTION_BITS)  # of a + 128
_GATES_BY_STEP = np.roll(GATES, -128)  # of a: what is below 0 stands at the end, where a negative index looks


@dataclass(frozen=True)
class MixerSpec:
    """D is the width of carry and drive, w that of an embedding."""

    embedding: Norm = part("w")  # in steps of 8 bits
    gates: Affine = part("5 D", "w")  # a, b, v, c, skip
    drive: Norm = part("D")  # in steps of the head's drive
    skip_shift: int = 0  # skip's unit is 2^skip_shift times that of c h

    def __post_init__(self) -> None:
        sizes = check(self, "mixer")
        if sizes["5 D"] != 5 * sizes["D"]:
            raise ConfigError(f"mixer: {sizes['5 D']} gates for a drive of width {sizes['D']}, expected 5 of each")
        if not 0 <= self.skip_shift <= SKIP_SHIFT_MAX:
            raise ConfigError(f"mixer: skip_shift = {self.skip_shift}, expected 0 to {SKIP_SHIFT_MAX}")

    @property
    def width(self) -> int:
        return len(self.drive.gain)

    @property
    def n_inputs(self) -> int:
        return len(self.embedding.gain)

    def drive_bound(self) -> np.ndarray:
        """[D] proven largest |drive_int|."""
        return np.minimum(np.ceil(self.drive.bound), DRIVE_MAX)

    def operations(self) -> Operations:
        """Of a step: the gates; keep . h + write and read . h + skip; LayerNorms, B v and the shifts between them."""
        between = norm_operations(self.n_inputs) + norm_operations(self.width) + 7 * self.width
        return Operations(mac8=self.gates.weight.size, mac32=2 * self.width, float64=between)


class Gates(NamedTuple):
    """What an embedding asks of the carry, [b, D] whole numbers each."""

    keep: np.ndarray  # A
    write: np.ndarray  # B v, in units of the carry
    read: np.ndarray  # c
    skip: np.ndarray


class Mixer:
    """Ready to run."""

    def __init__(self, spec: MixerSpec) -> None:
        self.spec = spec
        self.project = Linear("mixer: gates", spec.gates, SIGNED_MAX)
        self.embedding, self.drive_norm = spec.embedding.values, spec.drive.values
        self.limit = np.repeat([SIGNED_MAX, VALUE_MAX], [2 * spec.width, 3 * spec.width]).astype(
            np.float32
        )  # of each gate
        self.room = 26 - int(np.frexp(float(spec.width))[1])  # bits b with D^2 2^(2 b) < 2^53

    def start(self, batch: int) -> np.ndarray:
        """The carry before the first observation, [b, D]."""
        return np.zeros((batch, self.spec.width))

    def step(self, carry: np.ndarray, embedding: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Carry [b, D] and embeddings [b, w] -> drive_int [b, D] (whole numbers) and the carry after."""
        if compiled.kernels is not None and len(carry) <= FEW:
            return self._compiled_step(np.ascontiguousarray(carry), embedding)
        return self.advance(carry, self.gates(embedding))

    @cached_property
    def _packed(self) -> tuple[np.ndarray, ...]:
        """Norms, gates and table as the compiled step wants them."""
        weights = [panels(self.project.weight), panels(self.project.bias[None])]
        return np.stack(self.embedding), np.concatenate(weights), np.stack(self.drive_norm), GATES

    def _compiled_step(self, carry: np.ndarray, embedding: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        drive_int, after = np.empty(carry.shape), np.empty(carry.shape)
        assert compiled.kernels is not None
        sizes = (*embedding.shape, self.spec.width)
        more = (EPSILON * float(width) ** 2 for width in sizes[1:])
        compiled.kernels.step(
            carry, np.ascontiguousarray(embedding, dtype=np.float32), *self._packed, drive_int, after, *sizes,
            2.0**self.spec.skip_shift, self.room, *more, VALUE_MAX, DRIVE_MAX,
        )  # fmt: skip
        return drive_int, after

    def gates(self, embedding: np.ndarray) -> Gates:
        """Embeddings [b, w], whole numbers of 8 bits -> what they ask of the carry."""
        normed = normalise_int(embedding.astype(np.float64), *self.embedding, 0)
        within(np.rint(normed, out=normed), -SIGNED_MAX, SIGNED_MAX)
        out = self.project(normed.astype(np.float32))
        out += self.project.bias
        to_range(out, -self.limit, self.limit)
        d = self.spec.width
        keep, write = _split(_GATES_BY_STEP.take(out[:, : 2 * d].astype(np.intp)), 2)
        value, read, skip = _split(out[:, 2 * d :].astype(np.float64), 3)
        return Gates(keep, rounded_shift(write * value, FRACTION_BITS - CARRY_BITS), read, skip)

    def advance(self, carry: np.ndarray, gates: Gates) -> tuple[np.ndarray, np.ndarray]:
        """One step of the carry [b, D]: the drive and the carry after."""
        carry = rounded_shift(gates.keep * carry, FRACTION_BITS)
        carry += gates.write
        mixed = gates.skip * 2.0**self.spec.skip_shift
        mixed += gates.read * carry
        return self.drive(mixed), carry

    def drive(self, mixed: np.ndarray) -> np.ndarray:
        """What is read from the carry [b, D], whole numbers -> drive_int [b, D], whole numbers."""
        _, exponent = np.frexp(np.maximum.reduce(np.abs(mixed), axis=1, keepdims=True))  # largest < 2^exponent
        steps = np.ldexp(mixed, np.minimum(self.room - exponent, 0))
        steps += 0.5
        normed = normalise_int(np.floor(steps, out=steps), *self.drive_norm, 0)
        return within(np.rint(normed, out=normed), -DRIVE_MAX, DRIVE_MAX)


def _split(values: np.ndarray, n: int) -> np.ndarray:
    """[b, n D] -> n of [b, D]."""
    return values.reshape(len(values), n, -1).swapaxes(0, 1)
