"""What the stock form of neuron costs: rows for `head_engines.py` and `simulator.py`.

- fast engines, one observation at batch 256, two layers of 64 neurons, 12 time steps, guards included: compact_stock at
  most 3 times compact, both on the drives of built-in shapes. Random heads beside them, without a limit: theirs fire on
  for ten time steps where trained ones are silent after four.
- the Lava simulator, an observation against as many time steps of a bare Lava loop of the same processes: at most 1.3;
  and a loop of relays that do no work
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
from asp_neuro.data import load_clouds
from asp_neuro.heads.spec import STOCK, HeadSpec
from asp_neuro.heads.stock.layer import StockLayer
from asp_neuro.model.episode import host_drives
from asp_neuro.runtime.deployment import load_perceiver

WIDTH, STEPS, READ_AFTER, OBSERVATIONS, BATCH = 64, 12, 3, 16, 256
STEPS_PER_TURN = 15 * STEPS
FAST = ("fast engine, ticked", "fast engine, stock")
BARE = "the same processes, bare"
BARE_LOOP = Path(__file__).parent / "bare_loop" / "loop.py"


def stock_head(rng: np.random.Generator) -> HeadSpec:
    """Resets of about a threshold, so that a neuron fires once to thrice after a pulse."""

    def layer(n_inputs: int, spread: float) -> StockLayer:
        weight = np.clip(2 * np.rint(rng.normal(0.0, 12.0, (WIDTH, n_inputs))), -256, 254).astype(np.int64)
        threshold = 64 * np.rint(rng.uniform(0.4, 1.0, WIDTH) * spread).astype(np.int64)
        return StockLayer(weight, np.full(WIDTH, 250), threshold, 4050, np.ones(WIDTH))

    return HeadSpec((layer(WIDTH + 1, 600.0), layer(WIDTH, 200.0)), STOCK, STEPS, READ_AFTER)


def engines(rounds: int) -> list[Row]:
    """The two fast engines, in turns: on the shipped networks, and on random ones."""
    rng = np.random.default_rng(0)
    clouds = load_clouds("shapes", "validation").points[:BATCH]
    shipped = {name: load_perceiver(bundle) for name, bundle in zip(FAST, ("compact", "compact_stock"))}
    given = {
        name: (one.head, one.spec.drive_bound(), host_drives(one.model, one.scenes(clouds)))
        for name, one in shipped.items()
    }
    random = {}
    for name, head, scale in zip(FAST, (specs.random_head(rng, WIDTH, WIDTH, 2), stock_head(rng)), (64.0, 4.0)):
        drives = np.rint(rng.normal(0.0, scale, (OBSERVATIONS, BATCH, WIDTH)))
        random[name] = head, np.full(WIDTH, 30.0 * scale), drives
    rows = against_ticked(given, rounds, f", compact, {WIDTH} wide, batch {BATCH}", {FAST[1]: "at most 3"})
    return rows + against_ticked(random, rounds, f", random and lively, {WIDTH} wide, batch {BATCH}", {})


def against_ticked(
    heads: dict[str, tuple[HeadSpec, np.ndarray, np.ndarray]], rounds: int, setting: str, wanted: dict[str, str]
) -> list[Row]:
    """Seconds per observation and cloud; `heads` have a bound of their drives and drives, [T, b, n]."""
    trials = {}
    for name, (head, bound, drives) in heads.items():
        engine = head.engine(bound, OBSERVATIONS)
        trials[name] = lambda engine=engine, drives=drives: episode(engine, drives)
    found = alternate(trials, rounds)
    each = {name: seconds / OBSERVATIONS / BATCH for name, seconds in found.items()}
    return compared(each, FAST[0], "s/observation", setting, wanted)


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
    names = {"head": "stock head on Lava", "bare": BARE, "relays": "relays without work"}
    found = {name: STEPS * np.array(said[key]) for key, name in names.items()}
    setting, wanted = f", 2 layers of {WIDTH}, {STEPS} steps", {"stock head on Lava": "at most 1.3"}
    return compared(found, BARE, "s/observation", setting, wanted)
