"""What the stock form of neuron costs: rows for `head_engines.py` and `simulator.py`.

- fast engines, one observation at batch 256, two layers of 64 neurons, 12 time steps, guards included: at most 3 times
  the ticked one. Heads are random, made to fire as trained ones do: a third of the neurons at the pulse, few later.
- the Lava simulator, an observation against as many time steps of a bare Lava loop with the same processes: at most 1.3
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from timing import Row, alternate, compared, specs

from asp_neuro.chip.wire import Job, write_job
from asp_neuro.heads.spec import STOCK, HeadSpec
from asp_neuro.heads.stock.layer import StockLayer

WIDTH, STEPS, READ_AFTER, OBSERVATIONS, BATCH = 64, 12, 3, 16, 256
STEPS_PER_TURN = 15 * STEPS
BARE_LOOP = Path(__file__).parent / "bare_loop" / "loop.py"


def stock_head(rng: np.random.Generator) -> HeadSpec:
    """Resets of about a threshold, so that a neuron fires once to thrice after a pulse."""

    def layer(n_inputs: int, spread: float) -> StockLayer:
        weight = np.clip(2 * np.rint(rng.normal(0.0, 12.0, (WIDTH, n_inputs))), -256, 254).astype(np.int64)
        threshold = 64 * np.rint(rng.uniform(0.4, 1.0, WIDTH) * spread).astype(np.int64)
        return StockLayer(weight, np.full(WIDTH, 250), threshold, 4050, np.ones(WIDTH))

    return HeadSpec((layer(WIDTH + 1, 600.0), layer(WIDTH, 200.0)), STOCK, STEPS, READ_AFTER)


def engines(rounds: int) -> list[Row]:
    """The two fast engines, in turns."""
    rng = np.random.default_rng(0)
    soft, stock = specs.random_head(rng, WIDTH, WIDTH, 2), stock_head(rng)
    heads = {"fast engine, ticked": (soft, 64.0), "fast engine, stock": (stock, 4.0)}
    trials = {}
    for name, (head, scale) in heads.items():
        engine = head.engine(np.full(WIDTH, 30.0 * scale), OBSERVATIONS)
        drives = np.rint(rng.normal(0.0, scale, (OBSERVATIONS, BATCH, WIDTH)))
        trials[name] = lambda engine=engine, drives=drives: episode(engine, drives)
    found = alternate(trials, rounds)
    each = {name: seconds / OBSERVATIONS / BATCH for name, seconds in found.items()}
    wanted = {"fast engine, stock": "at most 3"}
    return compared(each, "fast engine, ticked", "s/observation", f", {WIDTH} wide, batch {BATCH}", wanted)


def episode(engine, drives: np.ndarray) -> None:
    engine.start(BATCH)
    for drive in drives:
        engine.observe(drive)


def simulator(rounds: int) -> list[Row]:
    """The head on Lava and a bare loop of as many processes, per observation."""
    rng = np.random.default_rng(0)
    n_clouds = (rounds + 2) * STEPS_PER_TURN // (STEPS * OBSERVATIONS) + 2
    drives = np.rint(rng.normal(0.0, 4.0, (OBSERVATIONS, n_clouds, WIDTH))).astype(np.int64)
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        write_job(file, Job(stock_head(rng), OBSERVATIONS, drives_int=drives))
        file.flush()
        command = [sys.executable, str(BARE_LOOP), file.name, str(rounds), str(STEPS_PER_TURN)]
        said = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    found = {"stock head on Lava": STEPS * np.array(said["head"]), "bare Lava loop": STEPS * np.array(said["bare"])}
    wanted = {"stock head on Lava": "at most 1.3"}
    return compared(found, "bare Lava loop", "s/observation", f", 2 layers of {WIDTH}, {STEPS} steps", wanted)
