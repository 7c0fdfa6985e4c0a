"""How fast the head runs on Lava's CPU simulator, as ratios within one run. `python benchmarks/simulator.py`, a minute.

- an observation (head, ticks, host's part; drives are given) against a bare Lava loop without work: at most 1.3. They
  take turns of a fraction of a second, and the median ratio of neighbouring turns counts
- an observation against the fast engine at batch 256
- compile and start: at most 4 s, imports not counted
- memory of the whole session over ten thousand time steps: no growth
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from asp_neuro.head_spec import HeadSpec, LayerSpec
from asp_neuro.heads.fast import FastHead
from asp_neuro.heads.wire import Job, write_job
from asp_neuro.report import say, table
from asp_neuro.session import members, run_session

LAYERS, WIDTH, OBSERVATIONS, BATCH = 2, 128, 16, 256
STEPS = 10_000
TURNS, STEPS_PER_TURN = 60, 160
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


def random_drives(rng: np.random.Generator, n_steps: int) -> np.ndarray:
    """[T, n, D]: drives for at least so many time steps."""
    n_clouds = n_steps // (LAYERS * OBSERVATIONS) + 1
    return np.rint(rng.normal(0, 64, (OBSERVATIONS, n_clouds, WIDTH))).astype(np.int64)


def turns(head: HeadSpec, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Seconds per observation of the head on Lava, and of as many time steps of the bare loop, turn by turn."""
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        write_job(file, Job(head, OBSERVATIONS, drives_int=random_drives(rng, (TURNS + 2) * STEPS_PER_TURN)))
        file.flush()
        command = [sys.executable, str(BARE_LOOP), file.name, str(TURNS)]
        said = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return LAYERS * np.array(said["head"]), LAYERS * np.array(said["bare"])


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


def long_session(head: HeadSpec, rng: np.random.Generator) -> tuple[dict[str, float], list[float]]:
    """The times of a session of ten thousand time steps, and its memory early, in the middle and late."""
    drives = random_drives(rng, STEPS)
    n_clouds = drives.shape[1]
    memory: list[float] = []

    def look(index: int, _: object) -> None:
        if index in (n_clouds // 10, n_clouds // 2, n_clouds * 9 // 10):
            memory.append(session_megabytes())

    outcome = run_session(Job(head, OBSERVATIONS, drives_int=drives), on_result=look)
    return outcome.seconds, memory


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
    say("head and bare loop on Lava, in turns")
    on_lava, on_bare = turns(head, rng)
    observation, loop = float(np.median(on_lava)), float(np.median(on_bare))
    ratios = np.quantile(on_lava / on_bare, [0.5, 0.25, 0.75])
    say(f"a session of {STEPS} time steps")
    seconds, memory = long_session(head, rng)
    fast = fast_seconds(head, rng)
    start = seconds["compile_seconds"] + seconds["start_seconds"]
    rows = [
        ("observation on Lava", f"{observation * 1e3:.2f} ms", ""),
        (
            "same time steps of a bare Lava loop",
            f"{loop * 1e3:.2f} ms",
            "ratio {:.2f}, quartiles {:.2f} and {:.2f} (at most 1.3)".format(*ratios),
        ),
        ("observation on the fast engine, batch 256", f"{fast * 1e6:.2f} us", f"ratio {observation / fast:.0f}"),
        ("compile and start", f"{start:.2f} s", f"at most 4 s; total {start + seconds['import_seconds']:.2f} s"),
        ("memory after 10 %, 50 %, 90 % of the run", f"{memory[-1]:.1f} MB", " -> ".join(f"{m:.1f}" for m in memory)),
    ]
    print(f"{LAYERS} layers of {WIDTH} neurons, one thread")
    print(table(rows, headers=("what", "measured", "compared")))


if __name__ == "__main__":
    main()
