"""The same soft-reset head in other libraries, to measure against."""

from __future__ import annotations

import warnings

import snntorch
import torch
from snntorch import surrogate
from torch import Tensor, nn

import asp_neuro.learn.soft_head  # noqa: F401  imports lava-dl first, which keeps its greetings quiet

warnings.filterwarnings("ignore", message=".*weight_norm is deprecated")


class SnnTorchHead(nn.Module):
    """Linear + `Leaky` (reset by subtraction, leak and threshold learned, arctangent surrogate), step by step.

    Layer 1 takes the drive, layer l the sum of the earlier layers' spikes.
    """

    def __init__(self, width: int, layers: int = 2) -> None:
        super().__init__()
        self.linear = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.neurons = nn.ModuleList(
            snntorch.Leaky(
                beta=torch.full((width,), 0.9),
                threshold=torch.ones(width),
                learn_beta=True,
                learn_threshold=True,
                spike_grad=surrogate.atan(),
                reset_mechanism="subtract",
            )
            for _ in range(layers)
        )

    def forward(self, drive: Tensor) -> tuple[Tensor, Tensor]:
        """[T, b, n] -> last membranes and spikes."""
        held: list[Tensor] = [neuron.init_leaky() for neuron in self.neurons]
        membranes, fired = [], []
        for x in drive:
            z = x
            for index, (linear, neuron) in enumerate(zip(self.linear, self.neurons)):
                spikes, held[index] = neuron(torch.relu(linear(z)), held[index])
                z = spikes if index == 0 else z + spikes
            membranes.append(held[-1])
            fired.append(spikes)
        return torch.stack(membranes), torch.stack(fired)


def slayer_head(width: int, layers: int = 2) -> nn.Module:
    """SLAYER's CUBA Dense blocks on (batch, channel, time); the leak of 0.9.

    A hard-reset neuron with a current of its own, so not the same function: it is there for the time. Its compiled
    dynamics need CUDA; on a CPU they are a loop in Python.
    """
    from lava.lib.dl import slayer

    neuron = {
        "threshold": 1.0,
        "current_decay": 1.0,
        "voltage_decay": 0.1,
        "requires_grad": True,
        "shared_param": False,
    }
    return nn.Sequential(*(slayer.block.cuba.Dense(neuron, width, width, weight_norm=True) for _ in range(layers)))
