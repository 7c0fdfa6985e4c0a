"""Embedding to drive through a carried state: a token-local selective scan (paper Thm. S16), deployed.

    h <- A(e) . h + B(e) . V(e)          x = LayerNorm(C(e) . h + skip(e))

A, B, C, V and skip depend on the current embedding alone, so one step from the carried h equals running the whole
prefix again. What is read from the carry has no bound (it grows with every observation, in trained models to
hundreds): a row that does not fit takes coarser steps of its own (`row_steps`). `learn/mixer.py` is the trained twin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asp_neuro.errors import ConfigError
from asp_neuro.grid.arithmetic import LIMIT, STEP, Linear, gate, normalise_steps, row_steps, to_steps
from asp_neuro.grid.sections import Affine, Norm, check, part
from asp_neuro.heads.bits import DRIVE_BITS, DRIVE_MAX


@dataclass(frozen=True)
class MixerSpec:
    """D is the width of carry and drive, w that of an embedding."""

    embedding: Norm = part("w")
    gates: Affine = part("5 D", "w")  # A, B, V, C, skip
    drive: Norm = part("D")

    def __post_init__(self) -> None:
        sizes = check(self, "mixer")
        if sizes["5 D"] != 5 * sizes["D"]:
            raise ConfigError(f"mixer: {sizes['5 D']} gates for a drive of width {sizes['D']}, expected 5 of each")

    @property
    def width(self) -> int:
        return len(self.drive.gain)

    @property
    def n_inputs(self) -> int:
        return len(self.embedding.gain)

    def drive_bound(self, drive_bits: int = DRIVE_BITS) -> np.ndarray:
        """[D] proven largest |drive_int|."""
        return np.minimum(np.ceil(self.drive.bound * 2.0**drive_bits), DRIVE_MAX)

    def macs(self) -> float:
        """Of a step: the gates, keep . h + write, read . h + skip."""
        return self.gates.weight.size + 2 * self.width


class Mixer:
    """Ready to run."""

    def __init__(self, spec: MixerSpec, drive_bits: int = DRIVE_BITS) -> None:
        self.spec, self.drive_bits = spec, drive_bits
        self.project = Linear("mixer: gates", spec.gates, 1.0 / STEP, LIMIT)
        self.embedding, self.drive_norm = (
            (norm.gain.astype(np.float64), norm.bias.astype(np.float64)) for norm in (spec.embedding, spec.drive)
        )

    def start(self, batch: int) -> np.ndarray:
        """The carry before the first observation, [b, D]."""
        return np.zeros((batch, self.spec.width))

    def step(self, carry: np.ndarray, embedding: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Carry [b, D] and embeddings [b, w] in steps -> drive_int [b, D] (whole numbers) and the carry after."""
        normed = normalise_steps(embedding, *self.embedding) * STEP
        out = (self.project(to_steps(normed)) + self.project.bias) / STEP
        keep, write, value, read, skip = np.split(out, 5, axis=1)
        carry = gate(keep) * carry + gate(write) * value
        return self.drive(read * carry + skip), carry

    def drive(self, mixed: np.ndarray) -> np.ndarray:
        """What is read from the carry [b, D] in units -> drive_int [b, D], whole numbers."""
        steps = row_steps(mixed)
        normed = normalise_steps(to_steps(mixed * steps), *self.drive_norm, steps)
        return np.asarray(np.clip(np.rint(normed * 2.0**self.drive_bits), -DRIVE_MAX, DRIVE_MAX))
