"""What the head adds to Lava's CPU simulator: `python benchmarks/simulator.py [--json] [--quick]`.

- an observation (head, ticks, host's part; drives are given) against as many time steps of a bare Lava loop without
  work: at most 1.3. They take turns of a fraction of a second within one interpreter (`bare_loop/loop.py`).
- memory of the whole session over ten thousand time steps: no growth

How Lava compares with the other engines is in `head_engines.py`, how long a session takes to start in `startup.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import stock_trials
from timing import Row, arguments, compared, one_thread, row, specs, tell

from asp_neuro.chip.session import members, run_session
from asp_neuro.chip.wire import Job, write_job

LAYERS, WIDTH, OBSERVATIONS = 2, 128, 16
STEPS = 10_000
STEPS_PER_TURN = 160
BARE_LOOP = Path(__file__).parent / "bare_loop" / "loop.py"
BARE = "bare Lava loop"


def job(n_steps: int) -> Job:
    """Drives for at least so many time steps."""
    rng = np.random.default_rng(0)
    head = specs.random_head(rng, WIDTH, WIDTH, LAYERS)
    n_clouds = n_steps // (LAYERS * OBSERVATIONS) + 1
    return Job(head, OBSERVATIONS, drives_int=specs.random_drives(rng, OBSERVATIONS, n_clouds, WIDTH))


def turns(rounds: int) -> list[Row]:
    """The head on Lava and the bare loop, per observation."""
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        write_job(file, job((rounds + 2) * STEPS_PER_TURN))
        file.flush()
        command = [sys.executable, str(BARE_LOOP), file.name, str(rounds), str(STEPS_PER_TURN)]
        said = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    found = {"head on Lava": LAYERS * np.array(said["head"]), BARE: LAYERS * np.array(said["bare"])}
    wanted = {"head on Lava": "at most 1.3"}
    return compared(found, BARE, "s/observation", f", {LAYERS} layers of {WIDTH}", wanted)


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


def memory(n_steps: int) -> list[Row]:
    """A long session's memory early and late."""
    long = job(n_steps)
    looks = (long.n_clouds // 10, long.n_clouds * 9 // 10)
    seen: list[float] = []

    def look(index: int, _: object) -> None:
        if index in looks:
            seen.append(session_megabytes())

    run_session(long, on_result=look)
    early, late = seen
    what = f"memory of a session after {9 * n_steps // 10:,} time steps"
    return [row(what, late, "MB", late / early, f"after {n_steps // 10:,}", "at most 1.01")]


def main() -> None:
    asked = arguments(__doc__).parse_args()
    one_thread()
    rounds, steps = (3, 1000) if asked.quick else (60, STEPS)
    rows = turns(rounds) + stock_trials.simulator(2 if asked.quick else 20) + memory(steps)
    tell("Head on the Lava simulator", rows, asked)


if __name__ == "__main__":
    main()
