"""How fast the head runs on Lava's CPU simulator, as ratios within one run. `python benchmarks/simulator.py`, a minute.

- an observation (head, ticks, host's part; drives are given) against a bare Lava loop without work: at most 1.3. They
  take turns, and the median ratio of neighbouring runs counts, so that other work on the machine disturbs little
- an observation against the fast engine at batch 256
- compile and start: at most 4 s, imports not counted
- memory of the whole session over ten thousand time steps: no growth
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from asp_neuro.head_spec import HeadSpec, LayerSpec
from asp_neuro.heads.fast import FastHead
from asp_neuro.heads.wire import Job
from asp_neuro.report import say, table
from asp_neuro.session import members, run_session

LAYERS, WIDTH, OBSERVATIONS, BATCH = 2, 128, 16, 256
STEPS = 10_000
SHORT_STEPS = 2_000
TURNS = 5
BARE_LOOP = Path(__file__).parent / "bare_loop" / "loop.py"


def random_head(rng: np.random.Generator) -> HeadSpec:
    """Thresholds at about the spread of the synaptic sums, so that spikes flow."""

    def layer(index: int) -> LayerSpec:
        spread = np.sqrt(WIDTH) * 50 * (64 if index == 0 else 32)
        theta = np.rint(spread * rng.uniform(0.6, 1.4, WIDTH)).astype(np.int64)
        return LayerSpec(
            weight_int=2 * rng.integers(-60, 61, (WIDTH, WIDTH)),
            bias_int=np.rint(spread * rng.uniform(-0.2, 0.4, WIDTH)).astype(np.int64),
            lambda_int=rng.integers(3500, 4096, WIDTH),
            theta_int=theta,
            theta_fire_int=theta,
            factor=np.ones(WIDTH),
            state_bits=12,
        )

    return HeadSpec(tuple(layer(index) for index in range(LAYERS)))


def bare_seconds() -> float:
    """Seconds per time step of the bare loop."""
    command = [sys.executable, str(BARE_LOOP), str(LAYERS), str(WIDTH), str(SHORT_STEPS)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def session_megabytes() -> float:
    """Memory that belongs to the session's processes alone: leader, actors, helpers."""
    pages = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                for pid in members(int(stat.parent.name)):
                    resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
                    pages += int(resident) - int(shared)
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def simulated(head: HeadSpec, rng: np.random.Generator, n_steps: int) -> tuple[float, dict[str, float], list[float]]:
    """Seconds per observation (lower quartile over clouds), the session's times, and its memory early and late."""
    n_clouds = n_steps // (LAYERS * OBSERVATIONS) + 1
    drives = np.rint(rng.normal(0, 64, (OBSERVATIONS, n_clouds, WIDTH))).astype(np.int64)
    memory: list[float] = []

    def look(index: int, _: object) -> None:
        if index in (n_clouds // 10, n_clouds // 2, n_clouds * 9 // 10):
            memory.append(session_megabytes())

    outcome = run_session(Job(head, OBSERVATIONS, drives_int=drives), on_result=look)
    clocks = [result["clock"] for result in outcome.results]
    return float(np.quantile(np.diff(clocks), 0.25)) / OBSERVATIONS, outcome.seconds, memory


def fast_seconds(head: HeadSpec, rng: np.random.Generator) -> float:
    """Seconds per observation and cloud of the fast engine, guard included."""
    engine = FastHead(head, n_steps=OBSERVATIONS)
    drives = np.rint(rng.normal(0, 64, (OBSERVATIONS, BATCH, WIDTH)))
    rounds = []
    for _ in range(10):
        engine.start(BATCH)
        started = time.perf_counter()
        for drive in drives:
            engine.observe(drive)
        rounds.append(time.perf_counter() - started)
    return float(np.median(rounds)) / OBSERVATIONS / BATCH


def main() -> None:
    rng = np.random.default_rng(0)
    head = random_head(rng)
    say("bare Lava loop and head on Lava in turns")
    turns = []
    for _ in range(TURNS):
        loop = LAYERS * bare_seconds()  # L time steps per observation
        turns.append((simulated(head, rng, SHORT_STEPS)[0], loop))
    ratios = [observation / loop for observation, loop in turns]
    observation, loop = np.median(turns, axis=0)
    _, seconds, memory = simulated(head, rng, STEPS)
    fast = fast_seconds(head, rng)
    start = seconds["compile_seconds"] + seconds["start_seconds"]
    rows = [
        ("observation on Lava", f"{observation * 1e3:.2f} ms", ""),
        (
            "same time steps of a bare Lava loop",
            f"{loop * 1e3:.2f} ms",
            f"ratio {np.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f} (at most 1.3)",
        ),
        ("observation on the fast engine, batch 256", f"{fast * 1e6:.2f} us", f"ratio {observation / fast:.0f}"),
        ("compile and start", f"{start:.2f} s", f"at most 4 s; total {start + seconds['import_seconds']:.2f} s"),
        ("memory after 10 %, 50 %, 90 % of the run", f"{memory[-1]:.1f} MB", " -> ".join(f"{m:.1f}" for m in memory)),
    ]
    print(f"{LAYERS} layers of {WIDTH} neurons, one thread")
    print(table(rows, headers=("what", "measured", "compared")))


if __name__ == "__main__":
    main()
