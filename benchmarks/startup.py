"""How long until something happens: `python benchmarks/startup.py [--json] [--quick]`, wall clock.

- whole processes, in turns: a bare Python interpreter, `asp-neuro --help`, `import torch`, and one answer of the
  compact bundle on one cloud, on the fast engine and on the Lava simulator
- a Lava session by itself: its imports, and compile and start. Wanted: at most 4 s for the latter.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from timing import Row, alternate, arguments, compared, one_thread, row, specs, tell

from asp_neuro.chip.session import run_session
from asp_neuro.chip.wire import Job
from asp_neuro.data import load_clouds

WIDTH, LAYERS, OBSERVATIONS = 128, 2, 16
PROGRAM = (sys.executable, "-m", "asp_neuro")
BARE, ANSWER = "bare Python", "asp-neuro run, one cloud"


def processes(rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        cloud = str(Path(folder) / "cloud.ply")
        Path(cloud).write_bytes(ply(load_clouds("shapes", "test").points[0]))
        answer = (*PROGRAM, "run", "compact", "--input", cloud, "--json")
        commands = {
            BARE: (sys.executable, "-c", "pass"),
            "asp-neuro --help": (*PROGRAM, "--help"),
            "import torch": (sys.executable, "-c", "import torch"),
            ANSWER: answer,
            "asp-neuro run --backend=sim, one cloud": (*answer, "--backend=sim"),
        }
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": True}
        trials = {name: lambda command=command: subprocess.run(command, **quiet) for name, command in commands.items()}
        return compared(alternate(trials, rounds, time.perf_counter), BARE, wanted={ANSWER: "at most 2 s"})


def ply(points: np.ndarray) -> bytes:
    """A cloud as a sensor would write it."""
    header = f"ply\nformat binary_little_endian 1.0\nelement vertex {len(points)}\n"
    columns = "".join(f"property float {axis}\n" for axis in "xyz")
    return f"{header}{columns}end_header\n".encode() + points.astype("<f4").tobytes()


def session(rounds: int) -> list[Row]:
    rng = np.random.default_rng(0)
    head = specs.random_head(rng, WIDTH, WIDTH, LAYERS)
    job = Job(head, OBSERVATIONS, drives_int=specs.random_drives(rng, OBSERVATIONS, 1, WIDTH))
    seconds = [run_session(job).seconds for _ in range(rounds)]
    start = [one["compile_seconds"] + one["start_seconds"] for one in seconds]
    return [
        row("Lava session: imports", [one["import_seconds"] for one in seconds], "s"),
        row(f"Lava session: compile and start, {LAYERS} layers of {WIDTH}", start, "s", wanted="at most 4 s"),
    ]


def main() -> None:
    asked = arguments(__doc__).parse_args()
    one_thread()
    rounds = 1 if asked.quick else 7
    tell("Start-up, whole processes", processes(rounds) + session(rounds), asked)


if __name__ == "__main__":
    main()
