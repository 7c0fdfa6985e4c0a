"""Embedding to drive through a carried state: a token-local selective scan (paper Thm. S16).

    h <- A(e) . h + B(e) . V(e)          x = LayerNorm(C(e) . h + skip(e))

A, B, C, V and skip depend on the current embedding alone, so one step from the carried h equals running the whole
prefix again. The gates A and B are (1 + z / sqrt(1 + z^2)) / 2 instead of a logistic curve: made of operations that
IEEE 754 rounds exactly, so the deployed host gives the same bits on every machine. LayerNorm bounds the drive:
|x_j| <= |gain_j| sqrt(D - 1) + |bias_j|. `gates_on_grid` and `step_on_grid` are the deployed arithmetic, whose values
`model/mixer.py` itself computes, with the gradients of this one.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asp_neuro.grid.arithmetic import SIGNED_MAX
from asp_neuro.heads.bits import DRIVE_BITS
from asp_neuro.learn.grid import GridRows, Ranges, instead, norm_ints
from asp_neuro.model.mixer import CARRY_BITS, FRACTION_BITS, GATE_STEP, SKIP_SHIFT_MAX, VALUE_MAX, Gates, MixerSpec
from asp_neuro.model.mixer import Mixer as DeployedMixer


def gate(z: Tensor) -> Tensor:
    """A sigmoid between 0 and 1 without an exponential."""
    return 0.5 + 0.5 * z * torch.rsqrt(1.0 + z * z)


class Mixer(nn.Module):
    """`gates` is everything that depends on the embedding only; `step` advances the carry."""

    def __init__(self, n_inputs: int, width: int, drive_bits: int = DRIVE_BITS) -> None:
        super().__init__()
        self.embedding_norm = nn.LayerNorm(n_inputs)
        self.project = nn.Linear(n_inputs, 5 * width)
        self.drive_norm = nn.LayerNorm(width)
        self.width, self.drive_bits = width, drive_bits  # drives are integers at scale 2^drive_bits
        self.grid = GridRows(5 * width, n_inputs)
        self.register_buffer("grid_skip_shift", torch.tensor(0))
        self.ranges: Ranges | None = None
        with torch.no_grad():
            self.project.bias[:width].fill_(1.2)  # A starts near 0.88: remember

    def _projected(self, embedding: Tensor) -> tuple[Tensor, ...]:
        normed = self.embedding_norm(embedding)
        parts = self.project(normed).split(self.width, dim=-1)
        if self.ranges is not None:
            for name, x in zip(("normed", "value", "read", "skip"), (normed, *parts[2:])):
                self.ranges.note(name, x)
        return parts

    def gates(self, embedding: Tensor) -> Tensor:
        """[..., D] -> [..., 4 D]: keep A, input B.V, output C, skip."""
        a, b, v, c, skip = self._projected(embedding)
        return torch.cat([gate(a), gate(b) * v, c, skip], dim=-1)

    def step(self, carry: Tensor, gates: Tensor) -> tuple[Tensor, Tensor]:
        """Carry [..., D] and gates [..., 4 D] -> drive [..., D] and the carry after."""
        keep, write, read, skip = gates.split(self.width, dim=-1)
        carry = torch.addcmul(write, keep, carry)
        return self.drive_norm(torch.addcmul(skip, read, carry)), carry

    def scan(self, gates: Tensor) -> Tensor:
        """Gates [T, ..., 4 D] of all steps from the start -> drives [T, ..., D]."""
        keep, write, read, skip = gates.split(self.width, dim=-1)
        carries = [write[0]]
        for one_keep, one_write in zip(keep[1:].unbind(), write[1:].unbind()):
            carries.append(torch.addcmul(one_write, one_keep, carries[-1]))
        return self.drive_norm(torch.addcmul(skip, read, torch.stack(carries)))

    # On the integer grid

    @torch.no_grad()
    def fix_scales(self, seen: Ranges) -> None:
        """Units from the largest values seen; skip's is a power of two of what it is added to."""
        normed, value, read = (
            seen.unit("normed", SIGNED_MAX),
            seen.unit("value", VALUE_MAX),
            seen.unit("read", VALUE_MAX),
        )
        mixed = value * read * 2.0**-CARRY_BITS
        shift = min(max(math.ceil(math.log2(seen.unit("skip", VALUE_MAX) / mixed)), 0), SKIP_SHIFT_MAX)
        self.grid_skip_shift.fill_(shift)
        units = torch.tensor([GATE_STEP, GATE_STEP, value, read, mixed * 2.0**shift], dtype=torch.float64)
        self.grid.fix(self.project.weight, self.project.bias, normed, units.repeat_interleave(self.width))

    def spec(self) -> MixerSpec:
        """The integers."""
        return MixerSpec(
            norm_ints(self.embedding_norm.weight, self.embedding_norm.bias, 1.0 / float(self.grid.units_in[0])),
            self.grid.rows(self.project.weight, self.project.bias).affine(),
            norm_ints(self.drive_norm.weight, self.drive_norm.bias, 2.0**self.drive_bits),
            int(self.grid_skip_shift),
        )

    def gates_on_grid(self, embedding: Tensor, deployed: DeployedMixer) -> Tensor:
        """Embeddings [..., w], whole numbers -> [..., 4 D], whole numbers of at most 16 bits."""
        exact = deployed.gates(embedding.detach().flatten(0, -2).numpy())
        value = torch.from_numpy(np.concatenate(exact, axis=-1, dtype=np.float32)).view(*embedding.shape[:-1], -1)
        if not torch.is_grad_enabled():
            return value
        a, b, v, c, skip = self._projected(embedding)
        units = self.grid.unit_out.view(5, -1)[:, 0].tolist()
        fraction = 2.0**FRACTION_BITS
        parts = [gate(a) * fraction, gate(b) * v * (2.0**CARRY_BITS / units[2]), c / units[3], skip / units[4]]
        return instead(torch.cat(parts, dim=-1), value)

    def step_on_grid(self, carry: Tensor, gates: Tensor, deployed: DeployedMixer) -> tuple[Tensor, Tensor]:
        """Carry [..., D] and gates [..., 4 D], whole numbers -> drive [..., D] in units and the carry after."""
        keep, write, read, skip = gates.double().split(self.width, dim=-1)
        carry = carry.expand_as(keep)
        asked = Gates(*(part.detach().flatten(0, -2).numpy() for part in (keep, write, read, skip)))
        drive, after = deployed.advance(carry.detach().flatten(0, -2).numpy(), asked)
        exact = [torch.from_numpy(x).view(keep.shape) for x in (drive * 2.0**-self.drive_bits, after)]
        if not torch.is_grad_enabled():
            return exact[0], exact[1]
        smooth = instead(keep * 2.0**-FRACTION_BITS * carry + write, exact[1])
        return self._read_on_grid(smooth, read, skip, exact[0]), smooth

    def scan_on_grid(self, gates: Tensor, drives: Tensor, carries: Tensor) -> Tensor:
        """As `scan`; the values [T, ..., D] of drives and carries are at hand."""
        keep, write, read, skip = gates.split(self.width, dim=-1)
        smooth = [instead(write[0], carries[0])]
        steps = zip((keep[1:] * 2.0**-FRACTION_BITS).unbind(), write[1:].unbind(), carries[1:])
        for one_keep, one_write, exact in steps:
            smooth.append(instead(torch.addcmul(one_write, one_keep, smooth[-1]), exact))
        return self._read_on_grid(torch.stack(smooth), read, skip, drives)

    def _read_on_grid(self, carry: Tensor, read: Tensor, skip: Tensor, exact: Tensor) -> Tensor:
        """Drives: these values, with the gradient of what is read from the carry and normalised."""
        mixed = read * carry + skip * 2.0 ** int(self.grid_skip_shift)
        norm = self.drive_norm
        scaled = mixed / mixed.detach().abs().amax(dim=-1, keepdim=True).clamp_min(1.0)
        normed = F.layer_norm(scaled, (self.width,), norm.weight.to(mixed.dtype), norm.bias.to(mixed.dtype), 1e-12)
        return instead(normed, exact)
