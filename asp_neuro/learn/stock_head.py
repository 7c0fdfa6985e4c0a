"""The head of the stock form: how it is trained. The equations stand in `heads/stock/membrane.py`.

Float first, then on the integer grid, where every number is a whole one (held exactly in float64) and the forward pass
is that of every other engine; gradients pass straight through the rounding, and through all N free-running time steps
of an observation. What is learned is the leak per observation, lambda^N: another N (`StockHead.steps`) is another
integer network that forgets as fast.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asp_neuro.heads.membrane import LEAK_BITS, LEAK_MAX, WEIGHT_BITS, WEIGHT_MAX, fires
from asp_neuro.heads.spec import STOCK, HeadSpec
from asp_neuro.heads.stock.layer import THRESHOLD_STEP, StockLayer
from asp_neuro.heads.stock.membrane import CONSTANT, DRIVE_BITS, TOP, gain_shift
from asp_neuro.learn.grid import round_through
from asp_neuro.learn.slayer import clamp
from asp_neuro.learn.soft_head import State

RESET_ROOM = 1.3  # how much a reset may grow after the scales are fixed
RANGE_ROOM = 1.25  # likewise the range that is proven at export
SUM_MAX = 2**15 - 1  # of a pulse's synaptic sum, as seen: what a chip's accumulator holds is not known


class Folded(NamedTuple):
    """A layer's constants for one forward pass, in state units (1 in float mode)."""

    weight: Tensor  # [H, n] to state units
    bias: Tensor | None  # [H] of layer 1, comes with the pulse
    lam: Tensor  # [] per time step
    rho: Tensor  # [H] what a spike takes
    threshold: Tensor  # [H]
    slope: Tensor  # [H] what makes the distance to the threshold the surrogate's argument
    units: Tensor  # [H] state units per float unit


class _FreeRun(torch.autograd.Function):
    """N time steps u' = leak(u) + a - rho s, s' = [u' > threshold], with the arctangent surrogate.

    `sums` [K, b, H] reach the first K steps. One hand-written backward pass: autograd would build ten nodes a step.
    """

    @staticmethod
    def forward(ctx, sums, membrane, spikes, lam, rho, threshold, slope, n_steps, read, integer):
        membranes, fired = [membrane], [spikes]
        for tau in range(n_steps):
            held = membranes[-1] * lam
            if integer:
                held.trunc_()
            if tau < len(sums):
                held += sums[tau]
            held.addcmul_(rho, fired[-1], value=-1.0)
            membranes.append(held)
            fired.append(fires(held, threshold).to(held.dtype))
        all_membranes, all_fired = torch.stack(membranes), torch.stack(fired)
        ctx.save_for_backward(lam, rho, threshold, slope, all_membranes, all_fired)
        ctx.n_sums, ctx.read = len(sums), read
        peak = all_membranes[1:].abs().amax(dim=0)
        ctx.mark_non_differentiable(peak)
        return membranes[read + 1].clone(), membranes[-1].clone(), all_fired[1:], peak

    @staticmethod
    def backward(ctx, grad_read, grad_last, grad_fired, _):
        lam, rho, threshold, slope, membranes, fired = ctx.saved_tensors
        distance = ((membranes[1:] - threshold) * slope).float()
        surrogate = (slope / (1.0 + (math.pi * distance) ** 2)).to(membranes.dtype)  # d spike / d membrane
        n_steps = len(surrogate)
        total: list[Tensor] = []  # gradient at each membrane, all paths, last step first
        at_spike: list[Tensor] = []
        for tau in range(n_steps - 1, -1, -1):
            now, spike = (grad_last, grad_fired[tau]) if tau == n_steps - 1 else (lam * total[-1], grad_fired[tau])
            if total:
                spike = torch.addcmul(spike, rho, total[-1], value=-1.0)
            if tau == ctx.read:
                now = now + grad_read
            at_spike.append(spike)
            total.append(torch.addcmul(now, spike, surrogate[tau]))
        whole = torch.stack(total[::-1])
        first = total[-1]
        return (
            whole[: ctx.n_sums],
            first * lam,
            -first * rho,
            (whole * membranes[:-1]).sum(),
            -(whole * fired[:-1]).sum(dim=(0, 1)),
            -(torch.stack(at_spike[::-1]) * surrogate).sum(dim=(0, 1)),
            None,
            None,
            None,
            None,
        )


class StockDense(nn.Module):
    """Weight-normalised synapses, one leak, and a reset and a threshold for each neuron. Layer 1 has a bias."""

    def __init__(self, n_inputs: int, n_neurons: int, first_layer: bool, weight_exp: int) -> None:
        super().__init__()
        self.weight_raw = nn.Parameter(torch.randn(n_neurons, n_inputs))
        self.scale = nn.Parameter(torch.ones(n_neurons))
        self.bias = nn.Parameter(torch.zeros(n_neurons)) if first_layer else None
        self.raw_leak = nn.Parameter(torch.tensor(math.log(0.9 / 0.1)))
        self.raw_theta = nn.Parameter(torch.full((n_neurons,), math.log(math.expm1(1.0))))
        self.raw_rho = nn.Parameter(torch.full((n_neurons,), math.log(math.expm1(0.95))))
        self.weight_exp = weight_exp
        self.input_bits = DRIVE_BITS if first_layer else 0
        self.register_buffer("factor", torch.ones(n_neurons, dtype=torch.float64))
        self.register_buffer("state_bits", torch.tensor(0))

    def weight(self) -> Tensor:
        """[H, n] rows of length `scale`."""
        return self.weight_raw * (self.scale / self.weight_raw.norm(dim=1).clamp_min(1e-12))[:, None]

    def lam(self, n_steps: int) -> Tensor:
        """[] per time step."""
        return torch.sigmoid(self.raw_leak) ** (1.0 / n_steps)

    @property
    def theta(self) -> Tensor:
        return F.softplus(self.raw_theta)

    @property
    def rho(self) -> Tensor:
        return F.softplus(self.raw_rho)

    @property
    def synaptic_units(self) -> Tensor:
        """[H] units of the synaptic sum per float unit."""
        return self.factor * 2.0 ** (WEIGHT_BITS + self.input_bits)

    def integers(self, n_steps: int) -> dict[str, Tensor]:
        """The layer on the grid: weight, bias (a weight of the constant) and rho in units of the weights."""
        rows = self.weight().double() * self.factor[:, None]
        weight = clamp(round_through(rows * 2.0 ** (WEIGHT_BITS - 1)), -128, 127)
        rho = clamp(round_through(self.rho.double() * self.synaptic_units / 2.0), 0, WEIGHT_MAX // 2)
        threshold = round_through(self.theta.double() * self.synaptic_units * 2.0**self.weight_exp)
        made = {
            "weight": 2.0 * weight,
            "rho": 2.0 * rho,
            "threshold": threshold.clamp_min(0.0) * float(THRESHOLD_STEP),
            "lam": clamp(round_through(self.lam(n_steps).double() * 2.0**LEAK_BITS), 0, LEAK_MAX),
        }
        if self.bias is not None:
            bias = round_through(self.bias.double() * self.synaptic_units / (2.0 * CONSTANT))
            made["bias"] = 2.0 * clamp(bias, -128, 127)
        return made

    def fold(self, deploy: bool, n_steps: int) -> Folded:
        """The constants of one forward pass; in deploy mode on the integer grid, in float64."""
        one = torch.ones_like(self.scale)
        if not deploy:
            return Folded(self.weight(), self.bias, self.lam(n_steps), self.rho, self.theta, one, one)
        made, gain = self.integers(n_steps), 2.0 ** gain_shift(self.weight_exp)
        units = self.factor * 2.0 ** int(self.state_bits)
        return Folded(
            made["weight"] * gain,
            made["bias"] * (CONSTANT * gain) if self.bias is not None else None,
            made["lam"] / 2.0**LEAK_BITS,
            made["rho"] * gain,
            made["threshold"],
            1.0 / units,
            units,
        )

    def layer_spec(self, n_steps: int) -> StockLayer:
        """The integers of deploy mode, as plain data."""
        with torch.no_grad():
            made = {name: value.round().to(torch.int64).cpu().numpy() for name, value in self.integers(n_steps).items()}
        weight = made["weight"] if self.bias is None else np.column_stack([made["weight"], made["bias"]])
        return StockLayer(
            weight_int=weight,
            rho_int=made["rho"],
            threshold_int=made["threshold"],
            lambda_int=int(made["lam"]),
            factor=self.factor.cpu().numpy() * 2.0**self.input_bits,
            weight_exp=self.weight_exp,
        )

    @torch.no_grad()
    def fix_scales(self, moved: np.ndarray, headroom: float, n_steps: int) -> None:
        """Row factors: full rows, unless state, reset, sums or the range that export proves would not fit."""
        weight = self.weight().double().cpu().numpy()
        theta, rho = (x.double().cpu().numpy() for x in (self.theta, self.rho))
        seen = np.maximum(moved, np.maximum(theta / headroom, 1e-9))
        bits, sum_bits = 2 * WEIGHT_BITS + self.input_bits + self.weight_exp, WEIGHT_BITS + self.input_bits
        rooms = [
            WEIGHT_MAX / 2.0**WEIGHT_BITS / np.maximum(np.abs(weight).max(axis=1), 1e-9),
            (TOP - 1) / (headroom * seen * 2.0**bits),
            WEIGHT_MAX / (RESET_ROOM * np.maximum(rho, 1e-9) * 2.0**sum_bits),
        ]
        if self.input_bits:
            rooms.append(SUM_MAX / (RANGE_ROOM * seen * 2.0**sum_bits))
        else:
            most = np.maximum(np.maximum(weight, 0.0).sum(axis=1), np.maximum(-weight, 0.0).sum(axis=1))
            fades = 1.0 - float(self.lam(n_steps))  # every input firing in every time step
            rooms.append((TOP - 1) * fades / (RANGE_ROOM * np.maximum(most, 1e-9) * 2.0**bits))
        self.factor.copy_(torch.from_numpy(np.min(rooms, axis=0)))
        self.state_bits.fill_(bits)


class StockHead(nn.Module):
    """L layers, each on the spikes of the one before; layer 1 takes the drive as a pulse."""

    state_limit = TOP  # of a membrane in deploy mode

    def __init__(
        self,
        n_inputs: int,
        n_neurons: int,
        n_layers: int,
        steps: int,
        read_after: int,
        weight_exp: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        exps = [*weight_exp, *[0] * n_layers][:n_layers]
        self.layers = nn.ModuleList(
            StockDense(n_neurons if index else n_inputs, n_neurons, index == 0, exp) for index, exp in enumerate(exps)
        )
        self.n_neurons, self.steps, self.read_after = n_neurons, steps, read_after
        self.deploy = False

    @property
    def has_scales(self) -> bool:
        """Whether row factors are fixed, which deploy mode needs."""
        return all(int(layer.state_bits) > 0 for layer in self.layers)

    def fold(self) -> list[Folded]:
        return [layer.fold(self.deploy, self.steps) for layer in self.layers]

    def start(self, batch: int) -> State:
        """All membranes at rest. Membranes: the peaks of the last observation, those carried, the reading; spikes:
        the rates of the last observation, those carried."""
        weight = self.layers[0].weight_raw
        zero = torch.zeros(batch, self.n_neurons, dtype=torch.float64 if self.deploy else weight.dtype)
        return State((zero,) * (2 * len(self.layers) + 1), (zero,) * (2 * len(self.layers)))

    def observe(self, drive: Tensor, state: State, folded: list[Folded]) -> tuple[State, list[Tensor], list[Tensor]]:
        """One observation: drives [b, n] -> the state after; per layer the membrane read [b, H] and all spikes
        [N, b, H]."""
        n_layers = len(self.layers)
        carried, before = state.membrane[n_layers : 2 * n_layers], state.spikes[n_layers:]
        pulse = round_through(drive.double() * 2.0**DRIVE_BITS) if self.deploy else drive
        peaks, lasts, reads, trains = [], [], [], []
        for index, constants in enumerate(folded):
            heard = pulse.unsqueeze(0) if index == 0 else torch.cat([before[index - 1].unsqueeze(0), trains[-1][:-1]])
            sums = F.linear(heard, constants.weight, constants.bias)
            read, last, fired, peak = _FreeRun.apply(
                sums, carried[index], before[index], constants.lam, constants.rho, constants.threshold,
                constants.slope, self.steps, self.read_after, self.deploy,
            )  # fmt: skip
            for kept, value in ((peaks, peak), (lasts, last), (reads, read), (trains, fired)):
                kept.append(value)
        rates = [fired.mean(dim=0) for fired in trains]
        after = State((*peaks, *lasts, reads[-1]), (*rates, *(fired[-1] for fired in trains)))
        return after, reads, trains

    def step(self, drive: Tensor, state: State, folded: list[Folded]) -> State:
        """One observation: drives [batch, n] from a carried state -> the state after."""
        return self.observe(drive, state, folded)[0]

    def run(self, drive: Tensor, state: State, folded: list[Folded]) -> tuple[list[Tensor], list[Tensor], State]:
        """Drives [T, batch, n] from a carried state -> per layer membranes and spikes at the reading [T, batch, H]."""
        reads: list[list[Tensor]] = []
        spikes: list[list[Tensor]] = []
        for now in drive:
            state, read, trains = self.observe(now, state, folded)
            reads.append(read)
            spikes.append([fired[self.read_after] for fired in trains])
        return [torch.stack(x) for x in zip(*reads)], [torch.stack(x) for x in zip(*spikes)], state

    @torch.no_grad()
    def fix_scales(self, max_membrane: np.ndarray, headroom: float = 2.0) -> None:
        """Choose the row factors of every layer from the largest membranes seen, [L, H] in float units. Done once."""
        for layer, moved in zip(self.layers, max_membrane, strict=True):
            layer.fix_scales(moved, headroom, self.steps)

    def spec(self) -> HeadSpec:
        layers = tuple(layer.layer_spec(self.steps) for layer in self.layers)
        return HeadSpec(layers, STOCK, self.steps, self.read_after)

    def extra_repr(self) -> str:
        return f"steps={self.steps}, read_after={self.read_after}"
