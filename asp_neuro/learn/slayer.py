"""The parts of SLAYER that the head is built of: lava-dl's own where it is installed, the same lines here where not.

What is used of lava-dl is small: a neuron's 8-bit grid for weights, a block that holds a synapse and a neuron, and a
synapse that is a 3-d convolution with a kernel of one. Names, state-dict keys, random draws and rounding are the same,
which a test holds together bit for bit (`tests/test_slayer.py`).
"""

from __future__ import annotations

import contextlib
import io
from typing import Any

import torch
from torch import Tensor, nn

from asp_neuro.libraries import is_there


class _Round(torch.autograd.Function):
    """Round half to even to multiples of `step`; the gradient passes straight through."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, step: float) -> Tensor:
        return torch.round(x / step) * step

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Clamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward((x >= low) & (x <= high))
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (inside,) = ctx.saved_tensors
        return torch.where(inside, gradient, 0.0), None, None


def clamp(x: Tensor, low: float, high: float) -> Tensor:
    """Tensor.clamp, whose gradient passes at the limits too.

    torch 2.3 and 2.9 let it pass; 2.15 stops it there, where the largest weight of every row stands.
    """
    return _Clamp.apply(x, low, high)


class OwnNeuron(nn.Module):
    """What a SLAYER neuron knows of its scales; `SoftReset` brings the rest."""

    def __init__(self, threshold: float, p_scale: int, w_scale: int, s_scale: int, shared_param: bool) -> None:
        super().__init__()
        self.p_scale, self.w_scale, self.s_scale = p_scale, w_scale, s_scale
        self.threshold = int(threshold * w_scale) / w_scale
        self.shared_param = shared_param

    def quantize_8bit(self, weight: Tensor, descale: bool = False) -> Tensor:
        """Weights on the chip's grid, even numbers from -256 to 254 over `w_scale`; `descale`: the integers."""
        on_grid = clamp(_Round.apply(weight, 2 / self.w_scale), -256 / self.w_scale, 254 / self.w_scale)
        return on_grid * self.w_scale if descale else on_grid


class OwnSynapse(nn.Conv3d):
    """A dense synapse: weights [H, n, 1, 1, 1] without a bias, drawn as a convolution draws them."""

    def __init__(self, in_neurons: int, out_neurons: int) -> None:
        super().__init__(in_neurons, out_neurons, (1, 1, 1), bias=False)


class OwnBlock(nn.Module):
    """A dense block: a synapse, then neurons."""

    def __init__(self, neuron_params: dict[str, Any], in_neurons: int, out_neurons: int, delay_shift: bool) -> None:
        super().__init__()
        self.neuron_params = neuron_params
        self.neuron: Any = None
        self.synapse: Any = None
        self.delay_shift = delay_shift


def parts() -> tuple[type, type, type]:
    """Neuron, dense synapse, dense block."""
    if not is_there("lava.lib.dl"):
        return OwnNeuron, OwnSynapse, OwnBlock
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        # lava-dl greets with notices about a DVS toolbox and CUDA that concern nobody here; errors still raise
        from lava.lib.dl.slayer.block.base import AbstractDense
        from lava.lib.dl.slayer.neuron.base import Neuron
        from lava.lib.dl.slayer.synapse import Dense
    return Neuron, Dense, AbstractDense


Neuron, Synapse, Block = parts()
