"""Head forward + backward: ours, the same soft-reset head in snnTorch, and SLAYER's CUBA block, in one run.

`python benchmarks/head_training.py [--json] [--quick]`: T=16, batch 32, two layers of 64 and of 128, one thread.

- ours: `SpikingHead.run` over the whole sequence, fold of weight norm and affine included
- snnTorch and SLAYER: see `rivals.py`
- ours, integer grid: the same in deploy mode, the last part of a training; float64, rounding and clipping included

Wanted: ours at least as fast as the faster of the two.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from rivals import SnnTorchHead, slayer_head
from timing import Row, alternate, arguments, compared, one_thread, tell

from asp_neuro.learn.soft_head import SpikingHead

STEPS, BATCH, LAYERS = 16, 32, 2
WIDTHS = (64, 128)
WANTED = dict.fromkeys(("snnTorch Leaky", "SLAYER CUBA"), "at least 1")


def trials(width: int) -> dict[str, Callable[[], None]]:
    """What is timed: forward, a loss on membranes and spikes, backward."""
    torch.manual_seed(0)
    drive = torch.randn(STEPS, BATCH, width, requires_grad=True)
    batch_first = drive.detach().permute(1, 2, 0).contiguous().requires_grad_()
    ours, theirs, block = SpikingHead(width, width, LAYERS), SnnTorchHead(width), slayer_head(width)
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
        "our head": run_ours,
        "our head, integer grid": lambda: run_ours(deploy=True),
        "snnTorch Leaky": run_theirs,
        "SLAYER CUBA": run_block,
    }


def measure(widths: tuple[int, ...], rounds: int) -> list[Row]:
    rows: list[Row] = []
    for width in widths:
        found = alternate(trials(width), rounds)
        rows += compared(found, "our head", "s/batch", f", {width} wide", WANTED)
    return rows


def main() -> None:
    asked = arguments(__doc__).parse_args()
    one_thread()
    torch.set_num_threads(1)
    rows = measure(WIDTHS[:1], 3) if asked.quick else measure(WIDTHS, 60)
    tell("Head in training, forward and backward", rows, asked)


if __name__ == "__main__":
    main()
