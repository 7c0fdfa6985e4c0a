"""The host's integer grid at training: which integers a weight is, and gradients that pass through the rounding.

A map of the host takes whole numbers, each in a unit of its own, and gives whole numbers in the unit of its output:

    weight_int = round(weight * unit of the input / row unit),    row unit = unit of the output / 2^shift

The shift of a row is the largest with which its weights fit 8 bits. Units and shifts are fixed once, when training goes
on on the grid; they are buffers, so that `model.pt` holds them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from asp_neuro.grid.arithmetic import BIAS_BITS, SHIFT_MAX, WEIGHT_MAX
from asp_neuro.grid.sections import NORM_BITS, Affine, Matrix, Norm
from asp_neuro.learn.slayer import clamp

BIAS_MAX = 2.0**22  # of a bias in units of its row's sum: leaves room for the sum itself below 2^24
BEHIND_BIAS_MAX = 2.0**30  # behind the head, where sums are float64
QUANTILE = 0.9999  # of the activations seen; what lies beyond saturates


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class _ToRange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float, high: float) -> Tensor:
        whole = x.floor()
        held = whole.clamp(low, high)
        ctx.save_for_backward(torch.eq(whole, held, out=whole))  # 0 / 1: several times as quick as bool
        return held

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (inside,) = ctx.saved_tensors
        return gradient * inside, None, None


class _Instead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, smooth: Tensor, exact: Tensor) -> Tensor:
        return exact

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def to_range(x: Tensor, low: float, high: float) -> Tensor:
    """Down to whole numbers within limits (`arithmetic.to_range`); the gradient passes inside the limits."""
    return _ToRange.apply(x, low, high)


def instead(smooth: Tensor, exact: np.ndarray | Tensor) -> Tensor:
    """The exact value forward, the gradient of the smooth one backward."""
    value = torch.from_numpy(exact) if isinstance(exact, np.ndarray) else exact
    return _Instead.apply(smooth, value.to(smooth.dtype).view(smooth.shape))


def round_through(x: Tensor) -> Tensor:
    """Round half to even; the gradient passes straight through."""
    return _Round.apply(x)


class Rows(NamedTuple):
    """A map on the grid, for one forward pass; whole numbers in float64."""

    weight: Tensor  # [out, in]
    bias: Tensor | None  # [out]
    shift: Tensor  # [out] int64

    def scaled(self) -> tuple[Tensor, Tensor]:
        """Weight and bias in float32 such that floor(W x + b) is the rounded result (`arithmetic.Linear`)."""
        scale = 2.0 ** -self.shift.double()
        bias = torch.zeros_like(scale) if self.bias is None else self.bias
        half = torch.floor(0.5 / scale)
        return (self.weight * scale[:, None]).float(), ((bias + half) * scale).float()

    def matrix(self) -> Matrix:
        return Matrix(_ints(self.weight, np.int8), _ints(self.shift, np.int8))

    def affine(self) -> Affine:
        assert self.bias is not None
        return Affine(_ints(self.weight, np.int8), _ints(self.bias, np.int32), _ints(self.shift, np.int8))


def _ints(x: Tensor, kind: Any) -> np.ndarray:
    return x.detach().cpu().numpy().astype(kind)


def norm_ints(gain: Tensor, bias: Tensor, per_unit: float = 1.0) -> Norm:
    """A LayerNorm's gain and bias on the grid; `per_unit` output steps are 1."""
    scale = per_unit * 2.0**NORM_BITS
    return Norm(_ints((gain.double() * scale).round(), np.int32), _ints((bias.double() * scale).round(), np.int32))


class GridRows(nn.Module):
    """Shifts of a map's rows and the units that its weights are seen in, once they are fixed."""

    def __init__(self, n_outputs: int, n_inputs: int, behind: bool = False) -> None:
        super().__init__()
        self.behind = behind  # behind the head: real results, the bias in finer steps
        self.register_buffer("shift", torch.zeros(n_outputs, dtype=torch.int64))
        self.register_buffer("units_in", torch.ones(n_inputs, dtype=torch.float64))
        self.register_buffer("unit_out", torch.ones(n_outputs, dtype=torch.float64))
        self.settled: Tensor | float = (
            0.0  # [out] what a finished model's bias has more than this machine's sum (`settle`)
        )

    @torch.no_grad()
    def fix(self, weight: Tensor, bias: Tensor | None, units_in: Tensor | float, unit_out: Tensor | float) -> None:
        """The largest shift of each row with which weights and bias fit."""
        self.units_in.copy_(torch.as_tensor(units_in, dtype=torch.float64).expand_as(self.units_in))
        self.unit_out.copy_(torch.as_tensor(unit_out, dtype=torch.float64).expand_as(self.unit_out))
        least = (weight.double().abs() * self.units_in).amax(dim=1) / WEIGHT_MAX
        if bias is not None:
            most = BEHIND_BIAS_MAX / 2.0**BIAS_BITS if self.behind else BIAS_MAX
            least = torch.maximum(least, bias.double().abs() / most)
        shift = torch.floor(torch.log2(self.unit_out / least.clamp_min(1e-30)))
        self.shift.copy_(shift.clamp(0, SHIFT_MAX).long())

    def rows(self, weight: Tensor, bias: Tensor | None = None) -> Rows:
        """The map on the grid; gradients pass through the rounding, and stop where a weight would not fit."""
        unit = self.unit_out * 2.0 ** -self.shift.double()  # [out]
        whole = clamp(round_through(weight.double() * self.units_in / unit[:, None]), -WEIGHT_MAX, WEIGHT_MAX)
        if bias is None:
            return Rows(whole, None, self.shift)
        finer, most = (2.0**BIAS_BITS, BEHIND_BIAS_MAX) if self.behind else (1.0, BIAS_MAX)
        steps = round_through(bias.double() * finer / unit) + self.settled
        return Rows(whole, clamp(steps, -most, most), self.shift)

    @torch.no_grad()
    def settle(self, weight: Tensor, bias: Tensor, stored: np.ndarray) -> None:
        """A bias that is a sum of products has the last bit of the library that added it: a finished model keeps the
        one that it was trained with, where this machine's is one step away. A larger difference stays one."""
        self.settled = 0.0
        own = self.rows(weight, bias).bias
        assert own is not None
        apart = torch.from_numpy(stored.astype(np.float64)) - own
        self.settled = apart * (apart.abs() <= 1.0)


class Ranges:
    """The largest activations seen, by name: all but the uppermost share of each batch."""

    def __init__(self) -> None:
        self.largest: dict[str, float] = {}

    def note(self, name: str, x: Tensor) -> None:
        flat = x.detach().abs().flatten()
        rank = max(1, int(np.ceil(QUANTILE * len(flat))))
        seen = float(torch.kthvalue(flat.float(), rank).values)
        self.largest[name] = max(self.largest.get(name, 0.0), seen)

    def unit(self, name: str, steps: float) -> float:
        """What one of so many steps stands for."""
        return max(self.largest[name], 1e-6) / steps
