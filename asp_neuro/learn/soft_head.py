"""The spiking head as SLAYER blocks (`slayer.py`): how it is trained.

`SoftReset` is a SLAYER neuron, `Dense` a SLAYER block, `SpikingHead` the L residual layers. Two ways in, one result:
tensors (batch, channel, time) as SLAYER has them, or single observations with an explicit state. In deploy mode every
number is an integer (held exactly in float64) and the forward pass is the integer step of `membrane.step_int`;
gradients pass straight through the rounding. The equation itself stands in `membrane.py`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asp_neuro.grid.arithmetic import EXACT_SINGLE
from asp_neuro.heads.bits import DRIVE_BITS, STATE_MAX, STATE_MIN
from asp_neuro.heads.membrane import LEAK_BITS, LEAK_MAX, WEIGHT_BITS, fires
from asp_neuro.heads.soft.layer import LayerSpec, choose_scales
from asp_neuro.heads.soft.membrane import align_shift, rest
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.learn.grid import round_through
from asp_neuro.learn.slayer import Block, Neuron, Synapse, clamp


class Folded(NamedTuple):
    """A layer's constants for one forward pass, in state units (1 in float mode, c_k 2^f in deploy mode)."""

    weight: Tensor  # [H, n]
    align: float  # what the synaptic sum is multiplied with before the bias: 1, or 2^shift
    bias: Tensor  # [H]
    lam: Tensor  # [H]
    theta: Tensor  # [H]
    theta_fire: Tensor  # [H]
    slope: Tensor  # [H] what makes the distance to the threshold the surrogate's argument
    units: Tensor  # [H] state units per float unit
    reach: float = math.inf  # in deploy mode: what inputs of 1 can add up to at most


class State(NamedTuple):
    """Carried membranes and spikes, [batch, H] per layer."""

    membrane: tuple[Tensor, ...]
    spikes: tuple[Tensor, ...]


class _SoftResetRun(torch.autograd.Function):
    """T steps of u' = leak(u) + ReLU(pre) - theta s, s' = [u' > theta_fire], with the arctangent surrogate.

    One hand-written backward pass for the whole run: autograd would build some ten nodes a step.
    """

    @staticmethod
    def forward(ctx, pre, membrane, spikes, lam, theta, theta_fire, slope, integer):
        all_membranes, all_fired = _steps(pre, membrane, spikes, lam, theta, theta_fire, integer)
        ctx.save_for_backward(pre, lam, theta, theta_fire, slope, membrane, spikes, all_membranes, all_fired)
        return all_membranes, all_fired

    @staticmethod
    def backward(ctx, grad_membranes, grad_fired):
        pre, lam, theta, theta_fire, slope, membrane, spikes, membranes, fired = ctx.saved_tensors
        distance = ((membranes - theta_fire) * slope).float()
        surrogate = (slope / (1.0 + (math.pi * distance) ** 2)).to(pre.dtype)  # d spike / d membrane
        total: list[Tensor] = []  # gradient at each membrane, all paths, last step first
        at_spike: list[Tensor] = []
        for t in range(len(pre) - 1, -1, -1):
            now, spike = grad_membranes[t], grad_fired[t]
            if total:
                now = torch.addcmul(now, lam, total[-1])
                spike = torch.addcmul(spike, theta, total[-1], value=-1.0)
            at_spike.append(spike)
            total.append(torch.addcmul(now, spike, surrogate[t]))
        first = total[-1]
        all_total = _along_time(total[::-1])
        return (
            all_total * (pre > 0.0),
            first * lam,
            -first * theta,
            (all_total * torch.cat([membrane[None], membranes[:-1]])).sum(dim=(0, 1)),
            -(all_total * torch.cat([spikes[None], fired[:-1]])).sum(dim=(0, 1)),
            -(_along_time(at_spike[::-1]) * surrogate).sum(dim=(0, 1)),
            None,
            None,
        )


def _steps(
    pre: Tensor, membrane: Tensor, spikes: Tensor, lam: Tensor, theta: Tensor, theta_fire: Tensor, integer: bool
) -> tuple[Tensor, Tensor]:
    """Membranes and spikes [T, batch, H] of synaptic sums [T, batch, H], from a carried state."""
    drive = pre.clamp_min(0.0)
    membranes, fired = [membrane], [spikes]
    for t in range(len(pre)):
        leaked = membranes[-1] * lam
        if integer:
            held = rest(leaked.trunc_(), drive[t], theta, fired[-1]).clamp_(STATE_MIN, STATE_MAX)
        else:
            held = rest(leaked, drive[t], theta, fired[-1])
        membranes.append(held)
        fired.append(fires(held, theta_fire).to(held.dtype))
    return _along_time(membranes[1:]), _along_time(fired[1:])


def _along_time(steps: list[Tensor]) -> Tensor:
    return torch.stack(steps) if len(steps) > 1 else steps[0].unsqueeze(0)


def floor_through(x: Tensor) -> Tensor:
    """Round down; the gradient passes straight through."""
    return x + (x.floor() - x).detach()


def whole_sums(z: Tensor, folded: Folded) -> Tensor:
    """W z of whole numbers in float64, without rounding: in float32, twice as quick, where that holds every sum."""
    if folded.reach * float(torch.linalg.vector_norm(z.detach(), math.inf)) < EXACT_SINGLE:
        return F.linear(z.float(), folded.weight.float())
    return F.linear(z, folded.weight)


class SoftReset(Neuron):
    """Soft-reset LIF neurons with a leak, a threshold and a firing affine (gain > 0, shift) each."""

    def __init__(self, n_neurons: int, threshold: float = 1.0, leak: float = 0.9) -> None:
        super().__init__(
            threshold=threshold,
            p_scale=1 << LEAK_BITS,
            w_scale=1 << WEIGHT_BITS,
            s_scale=1 << (2 * WEIGHT_BITS),
            shared_param=False,
        )
        self.shape = torch.Size([n_neurons])
        self.num_neurons = n_neurons
        self.raw_leak = nn.Parameter(torch.full((n_neurons,), math.log(leak / (1.0 - leak))))
        self.raw_theta = nn.Parameter(torch.full((n_neurons,), math.log(math.expm1(threshold))))
        self.raw_gain = nn.Parameter(torch.zeros(n_neurons))
        self.shift = nn.Parameter(torch.zeros(n_neurons))

    @property
    def lam(self) -> Tensor:
        return torch.sigmoid(self.raw_leak)

    @property
    def theta(self) -> Tensor:
        return F.softplus(self.raw_theta)

    @property
    def gain(self) -> Tensor:
        """Always positive: with a negative gain the fold into theta_fire would turn the comparison round."""
        return torch.exp(self.raw_gain)

    @property
    def theta_fire(self) -> Tensor:
        return (self.theta - self.shift) / self.gain

    @property
    def device(self) -> torch.device:
        return self.raw_leak.device

    @property
    def device_params(self) -> dict[str, Any]:
        """What the bundle calls this neuron; stock netx does not know the type and refuses the file."""
        return {"type": "ASP_SOFT"}

    def forward(self, pre: Tensor, folded: Folded, membrane: Tensor, spikes: Tensor, integer: bool) -> Any:
        """Synaptic sums with bias [T, batch, H] from a carried state -> membranes and spikes, both [T, batch, H]."""
        own = (pre, membrane, spikes, folded.lam, folded.theta, folded.theta_fire)
        return _SoftResetRun.apply(*own, folded.slope, integer) if torch.is_grad_enabled() else _steps(*own, integer)


class Dense(Block):
    """SLAYER block: weight-normalised dense synapse with a learned affine, then `SoftReset` neurons.

    No batch statistics: what is folded into the chip must be the same function in training and at inference.
    """

    def __init__(self, n_inputs: int, n_neurons: int, first_layer: bool, threshold: float = 1.0, leak: float = 0.9):
        super().__init__({}, n_inputs, n_neurons, delay_shift=False)
        self.neuron = SoftReset(n_neurons, threshold, leak)
        self.synapse = Synapse(n_inputs, n_neurons)
        self.first_layer = first_layer
        with torch.no_grad():
            self.synapse.weight.normal_()
        self.scale = nn.Parameter(torch.ones(n_neurons))
        self.bias = nn.Parameter(torch.zeros(n_neurons))
        self.register_buffer("factor", torch.ones(n_neurons, dtype=torch.float64))
        self.register_buffer("state_bits", torch.tensor(0))

    def weight(self) -> Tensor:
        """[H, n] rows of length `scale`."""
        rows = self.synapse.weight.flatten(start_dim=1)
        return rows * (self.scale / rows.norm(dim=1).clamp_min(1e-12))[:, None]

    def fold(self, deploy: bool) -> Folded:
        """The constants of one forward pass; in deploy mode on the integer grid, in float64."""
        neuron = self.neuron
        weight, lam, theta = self.weight(), neuron.lam, neuron.theta
        if not deploy:
            units = torch.ones_like(lam)
            return Folded(weight, 1.0, self.bias, lam, theta, neuron.theta_fire, neuron.gain.detach(), units)
        bits = int(self.state_bits)
        units = self.factor * 2.0**bits
        whole = neuron.quantize_8bit(weight.double() * self.factor[:, None], descale=True)
        return Folded(
            whole,
            2.0 ** align_shift(bits, self.first_layer),
            round_through(self.bias.double() * units),
            clamp(round_through(lam.double() * 2.0**LEAK_BITS), 0, LEAK_MAX) / 2.0**LEAK_BITS,
            round_through(theta.double() * units),
            floor_through(neuron.theta_fire.double() * units),
            neuron.gain.detach().double() / units,
            units,
            float(whole.detach().abs().sum(dim=1).max()),
        )

    def run(self, z: Tensor, folded: Folded, membrane: Tensor, spikes: Tensor, deploy: bool) -> Any:
        """Inputs [T, batch, n] from a carried state -> membranes and spikes [T, batch, H]."""
        if deploy:
            pre = torch.add(folded.bias, whole_sums(z, folded), alpha=folded.align)
        else:
            pre = F.linear(z, folded.weight, folded.bias)
        return self.neuron(pre, folded, membrane, spikes, deploy)

    def forward(self, x: Tensor) -> Tensor:
        """SLAYER's call: (batch, channel, time) in, spikes out, from rest, in float mode."""
        folded = self.fold(deploy=False)
        rest_state = x.new_zeros(x.shape[0], len(self.bias))
        _, fired = self.run(x.permute(2, 0, 1), folded, rest_state, rest_state, deploy=False)
        return fired.permute(1, 2, 0)

    def layer_spec(self) -> LayerSpec:
        """The integers of deploy mode, as plain data."""
        with torch.no_grad():
            folded = self.fold(deploy=True)

        def whole(x: Tensor) -> np.ndarray:
            return x.round().to(torch.int64).cpu().numpy()

        return LayerSpec(
            weight_int=whole(folded.weight),
            bias_int=whole(folded.bias),
            lambda_int=whole(folded.lam * 2.0**LEAK_BITS),
            theta_int=whole(folded.theta),
            theta_fire_int=whole(folded.theta_fire),
            factor=self.factor.cpu().numpy().copy(),
            state_bits=int(self.state_bits),
        )


class SpikingHead(nn.Module):
    """L residual layers. Layer 1 takes the drive, layer l the sum of the spikes of all earlier layers."""

    state_limit = -STATE_MIN  # of a membrane in deploy mode

    def __init__(self, n_inputs: int, n_neurons: int, n_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            Dense(n_inputs if index == 0 else n_neurons, n_neurons, first_layer=index == 0) for index in range(n_layers)
        )
        self.n_neurons = n_neurons
        self.deploy = False

    @property
    def has_scales(self) -> bool:
        """Whether row factors and state scales are fixed, which deploy mode needs."""
        return all(int(layer.state_bits) > 0 for layer in self.layers)

    def fold(self) -> list[Folded]:
        return [layer.fold(self.deploy) for layer in self.layers]

    def start(self, batch: int) -> State:
        """All membranes at rest."""
        weight = self.layers[0].synapse.weight
        dtype = torch.float64 if self.deploy else weight.dtype
        zero = (torch.zeros(batch, self.n_neurons, dtype=dtype, device=weight.device),) * len(self.layers)
        return State(zero, zero)

    def run(self, drive: Tensor, state: State, folded: list[Folded]) -> tuple[list[Tensor], list[Tensor], State]:
        """Drives [T, batch, n] from a carried state -> per layer membranes and spikes [T, batch, H]; the state after.

        Membranes are in state units; `folded[l].units` brings them back.
        """
        z = round_through(drive.double() * 2.0**DRIVE_BITS) if self.deploy else drive
        membranes: list[Tensor] = []
        fired: list[Tensor] = []
        for layer, constants, u, s in zip(self.layers, folded, *state, strict=True):
            if fired:
                z = fired[-1] if len(fired) == 1 else fired[-1] + z
            u_all, s_all = layer.run(z, constants, u, s, self.deploy)
            membranes.append(u_all)
            fired.append(s_all)
        return membranes, fired, State(tuple(u[-1] for u in membranes), tuple(s[-1] for s in fired))

    def step(self, drive: Tensor, state: State, folded: list[Folded]) -> State:
        """One observation: drives [batch, n] from a carried state -> the state after."""
        return self.run(drive.unsqueeze(0), state, folded)[2]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """SLAYER's call: drives (batch, channel, time) -> last membranes (float units) and spikes, from rest."""
        folded = self.fold()
        membranes, fired, _ = self.run(x.permute(2, 0, 1), self.start(len(x)), folded)
        return (membranes[-1] / folded[-1].units).permute(1, 2, 0), fired[-1].permute(1, 2, 0)

    @torch.no_grad()
    def fix_scales(self, max_membrane: np.ndarray, headroom: float = 2.0) -> None:
        """Choose c_k and f of every layer from the largest membranes seen, [L, H] in float units. Done once.

        A neuron that hardly moved must still hold its own bias and thresholds.
        """
        for layer, moved in zip(self.layers, max_membrane, strict=True):
            own = torch.stack([layer.bias.abs(), layer.neuron.theta, layer.neuron.theta_fire.abs()]).amax(dim=0)
            seen = np.maximum(moved, own.double().cpu().numpy() / headroom)
            max_weight = layer.weight().abs().amax(dim=1).cpu().numpy()
            factor, state_bits = choose_scales(max_weight, seen, headroom)
            layer.factor.copy_(torch.from_numpy(factor))
            layer.state_bits.fill_(state_bits)

    def spec(self) -> HeadSpec:
        return HeadSpec(tuple(layer.layer_spec() for layer in self.layers))
