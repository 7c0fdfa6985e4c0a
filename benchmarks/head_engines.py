"""One observation of the head, on every engine: `python benchmarks/head_engines.py [--json] [--quick]`, one thread.

Two layers of 64 and of 128 neurons, 16 observations, seconds per observation and cloud:

- fast engine: integers, guard bands included; the others are compared with it
- bare float32 products: the two matrix products of an observation and nothing else, a floor
- snnTorch and SLAYER: forward only, without gradients, the whole sequence at once (`rivals.py`)
- Lava simulator: head, ticks and host in their processes, one cloud at a time whatever the batch; wall clock, so all
  take the wall clock here

Wanted at batch 256 and 128 neurons: the fast engine takes at most 3 times the products. The stock form, 12 time steps
an observation: at most 3 times the ticked one (`stock_trials.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import stock_trials
from timing import Row, alternate, arguments, compared, one_thread, specs, tell

LAYERS, OBSERVATIONS = 2, 16
WIDTHS, BATCHES = (64, 128), (1, 256)
LAVA_CLOUDS = 5  # a turn on Lava
FAST, LAVA = "fast engine", "Lava simulator (one cloud at a time)"


@contextmanager
def lava_turns(head: specs.HeadSpec, rounds: int) -> Iterator[Callable[[], None]]:
    """A turn of LAVA_CLOUDS clouds on the simulator, in a network that runs on from turn to turn."""
    from lava.magma.core.run_conditions import RunSteps
    from lava.magma.core.run_configs import Loihi2SimCfg

    from asp_neuro.chip.simulator import network
    from asp_neuro.chip.wire import Job

    n_clouds = LAVA_CLOUDS * (rounds * len(BATCHES) + 8)  # more than all turns use: the host ends a run that is through
    drives = specs.random_drives(np.random.default_rng(0), OBSERVATIONS, n_clouds, head.n_inputs)
    net = network(Job(head, OBSERVATIONS, drives_int=drives), os.open(os.devnull, os.O_WRONLY), [])
    condition = RunSteps(num_steps=LAYERS * OBSERVATIONS * LAVA_CLOUDS)
    config = Loihi2SimCfg(select_tag="fixed_pt", select_sub_proc_model=True)
    try:
        yield lambda: net.run(condition, config)
    finally:
        net.stop()


def trials(head: specs.HeadSpec, width: int, batch: int) -> dict[str, Callable[[], object]]:
    """16 observations of a batch on every engine of this process."""
    import torch
    from rivals import SnnTorchHead, slayer_head

    from asp_neuro.heads.soft.fast import FastHead

    torch.set_num_threads(1)
    torch.manual_seed(0)
    drives = specs.random_drives(np.random.default_rng(0), OBSERVATIONS, batch, width).astype(np.float64)
    engine = FastHead(head, np.full(width, 2000.0), OBSERVATIONS)
    weights = [np.ascontiguousarray(layer.weight_int.T.astype(np.float32)) for layer in head.layers]
    single = drives.astype(np.float32)
    tensor = torch.from_numpy(single) / 64.0
    batch_first = tensor.permute(1, 2, 0).contiguous()
    stepwise, block = SnnTorchHead(width).eval(), slayer_head(width).eval()

    def fast() -> None:
        engine.start(batch)
        for drive_int in drives:
            engine.observe(drive_int)

    def products() -> None:
        for x in single:
            for weight in weights:
                np.matmul(x, weight)

    return {
        FAST: fast,
        "bare float32 products": products,
        "snnTorch Leaky": torch.no_grad()(lambda: stepwise(tensor)),
        "SLAYER CUBA": torch.no_grad()(lambda: block(batch_first)),
    }


def measure(widths: tuple[int, ...], rounds: int) -> list[Row]:
    rows: list[Row] = []
    for width in widths:
        head = specs.random_head(np.random.default_rng(0), width, width, LAYERS)
        with lava_turns(head, rounds) as on_lava:
            for batch in BATCHES:
                # warmed up before torch works in this process: Lava forks
                on_lava()
                all_trials = {**trials(head, width, batch), LAVA: on_lava}
                found = alternate(all_trials, rounds, time.perf_counter)
                clouds = {name: LAVA_CLOUDS if name == LAVA else batch for name in found}
                each = {name: seconds / OBSERVATIONS / clouds[name] for name, seconds in found.items()}
                wanted = {"bare float32 products": "at least 0.33"} if (width, batch) == (128, 256) else {}
                rows += compared(each, FAST, "s/observation", f", {width} wide, batch {batch}", wanted)
    return rows


def main() -> None:
    asked = arguments(__doc__).parse_args()
    one_thread()
    rows = measure(WIDTHS[1:], 3) if asked.quick else measure(WIDTHS, 40)
    rows += stock_trials.engines(3 if asked.quick else 40)
    tell("Head engines, one observation", rows, asked)


if __name__ == "__main__":
    main()
