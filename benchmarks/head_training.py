"""Head forward + backward: ours, the same soft-reset head in snnTorch, and SLAYER's CUBA block, in one run.

`python benchmarks/head_training.py [--json]`: T=16, batch 32, two layers of 64 and of 128 neurons, one thread.

- ours: `SpikingHead.run` over the whole sequence, fold of weight norm and affine included
- snnTorch: Linear + `Leaky` (reset by subtraction, leak and threshold learned, arctangent surrogate), step by step
- SLAYER: its CUBA Dense block on (batch, channel, time); a hard-reset neuron with a current of its own, so not the same
  function: it is there for the time. (Its compiled dynamics need CUDA; on a CPU they are a loop in Python.)
- ours, integer grid: the same in deploy mode, the last part of a training; float64, rounding and clipping included

The repetitions alternate, so that other work on the machine disturbs all three alike. Wanted: ours at least as fast as
the faster of the two.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable

import numpy as np
import snntorch
import torch
from machine import alternate, machine, spread
from snntorch import surrogate
from torch import Tensor, nn

from asp_neuro.heads.slayer import SpikingHead
from asp_neuro.report import table, to_json

STEPS, BATCH, LAYERS = 16, 32, 2
WIDTHS = (64, 128)
ROUNDS = 60


class SnnTorchHead(nn.Module):
    """The same head: layer 1 takes the drive, layer l the sum of the earlier layers' spikes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.ModuleList(nn.Linear(width, width) for _ in range(LAYERS))
        self.neurons = nn.ModuleList(
            snntorch.Leaky(
                beta=torch.full((width,), 0.9),
                threshold=torch.ones(width),
                learn_beta=True,
                learn_threshold=True,
                spike_grad=surrogate.atan(),
                reset_mechanism="subtract",
            )
            for _ in range(LAYERS)
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


def slayer_head(width: int) -> nn.Module:
    from lava.lib.dl import slayer  # after our own import of it, which keeps its greetings quiet

    neuron = {
        "threshold": 1.0,
        "current_decay": 1.0,
        "voltage_decay": 0.1,
        "requires_grad": True,
        "shared_param": False,
    }
    return nn.Sequential(*(slayer.block.cuba.Dense(neuron, width, width, weight_norm=True) for _ in range(LAYERS)))


def trials(width: int) -> dict[str, Callable[[], None]]:
    """What is timed: forward, a loss on membranes and spikes, backward."""
    torch.manual_seed(0)
    drive = torch.randn(STEPS, BATCH, width, requires_grad=True)
    batch_first = drive.detach().permute(1, 2, 0).contiguous().requires_grad_()
    ours, theirs = SpikingHead(width, width, LAYERS), SnnTorchHead(width)
    block = slayer_head(width)
    ours.fix_scales(np.full((LAYERS, width), 8.0))

    def run_ours(deploy: bool = False) -> None:
        ours.deploy = deploy
        ours.zero_grad()
        membranes, fired, _ = ours.run(drive, ours.start(BATCH), ours.fold())
        (membranes[-1].mean() + fired[-1].mean()).backward()

    def run_theirs() -> None:
        theirs.zero_grad()
        membranes, fired = theirs(drive)
        (membranes.mean() + fired.mean()).backward()

    def run_block() -> None:
        block.zero_grad()
        block(batch_first).mean().backward()

    return {
        "ours": run_ours,
        "snnTorch": run_theirs,
        "SLAYER CUBA": run_block,
        "ours, integer grid": lambda: run_ours(deploy=True),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*weight_norm is deprecated")
    found = {width: alternate(trials(width), asked.rounds) for width in WIDTHS}
    report: dict[str, object] = {"machine": machine(), "steps": STEPS, "batch": BATCH, "layers": LAYERS}
    rows = []
    for width, times in found.items():
        report[f"width {width}"] = {name: spread(seconds) for name, seconds in times.items()}
        middle = {name: spread(seconds)["median"] for name, seconds in times.items()}
        for name, seconds in times.items():
            s = spread(seconds)
            cells = (f"{1e3 * s[k]:.2f}" for k in ("median", "low", "high"))
            rows.append((width, name, *cells, f"{s['median'] / middle['ours']:.2f}"))
    if asked.json:
        print(to_json(report))
        return
    print(f"{machine()}; head forward + backward, T={STEPS}, batch {BATCH}, {LAYERS} layers, one thread, CPU time")
    print(table(rows, ("width", "head", "median ms", "10 %", "90 %", "times ours")))


if __name__ == "__main__":
    main()
