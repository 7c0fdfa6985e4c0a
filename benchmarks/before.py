"""One cloud alone, from raw points to the certified answer, against version 0.1: `python benchmarks/before.py`.

Version 0.1, whose host computes in float64, is taken from this repository's history into a folder of its own; both
versions answer the same clouds in turns, each in a process of its own, on one thread. Its exit stops at other places,
so the number of observations is told too. It cleans nothing, so this version is asked twice, with and without looking
for strays. Wanted: at most 3 ms and one more for cleaning, and version 0.1 takes at least 2.4 times as long as the form
that does not clean.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from timing import ONE_THREAD, Row, arguments, one_thread, row, tell

from asp_neuro.data import load_clouds
from asp_neuro.errors import MissingError

ROOT = Path(__file__).parents[1]
VERSION_0_1 = "ca77d32"  # the last commit of version 0.1
NAME = "modelnet10"
N_CLOUDS, WARM = 60, 5
CHILD = """
import json, sys, time
import numpy as np
import asp_neuro
model, clouds = asp_neuro.load(sys.argv[1]), np.load(sys.argv[2])
if sys.argv[3] == "uncleaned":
    from asp_neuro.scenes import cloud
    cloud.strays = lambda points, factor: np.zeros(len(points), dtype=bool)
for line in sys.stdin:
    began = time.process_time()
    answer = model(clouds[int(line)])
    print(json.dumps([time.process_time() - began, answer.observations]), flush=True)
"""


def clouds(n: int) -> np.ndarray:
    """[n, 1024, 3]: ModelNet10's validation clouds; where they are not at hand, built-in shapes."""
    try:
        return load_clouds(NAME, "validation", n_points=1024).points[:n].astype(np.float64)
    except MissingError:
        return load_clouds("shapes", "validation", n_points=1024).points[:n].astype(np.float64)


def take_out(commit: str, folder: Path, *paths: str) -> None:
    """The package (or other paths) as it was, from the history."""
    command = ["git", "archive", commit, *(paths or ("asp_neuro",))]
    archive = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tree:
        tree.extractall(folder)


def child(package: Path, points: Path, form: str = "whole") -> subprocess.Popen[str]:
    environment = os.environ | ONE_THREAD | {"PYTHONPATH": str(package)}
    command = [sys.executable, "-c", CHILD, NAME, str(points), form]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=package
    )


def answer(process: subprocess.Popen[str], index: int) -> list[float]:
    """Seconds of CPU and observations of one cloud."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{index}\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def measured(n: int) -> dict[str, np.ndarray]:
    """version -> [n, 2] seconds and observations, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        before, points = Path(folder) / "before", Path(folder) / "clouds.npy"
        before.mkdir()
        take_out(VERSION_0_1, before)
        np.save(points, clouds(n + WARM))
        forms = {
            "version 0.1": child(before, points),
            "uncleaned": child(ROOT, points, "uncleaned"),
            "this version": child(ROOT, points),
        }
        try:
            told = [{name: answer(process, index) for name, process in forms.items()} for index in range(WARM + n)]
        finally:
            for process in forms.values():
                process.kill()
                process.wait()
    return {name: np.array([one[name] for one in told[WARM:]]) for name in forms}


def rows(found: dict[str, np.ndarray]) -> list[Row]:
    old, raw, new = found["version 0.1"], found["uncleaned"], found["this version"]
    what, unit = f"one cloud alone, {NAME}", "s/cloud"
    return [
        row(f"{what}, raw points to answer", new[:, 0], unit, wanted="at most 4 ms"),
        row(f"{what}, without cleaning", raw[:, 0], unit, wanted="at most 3 ms"),
        row(f"{what}, version 0.1", old[:, 0], unit, old[:, 0] / raw[:, 0], "without cleaning", "at least 2.4"),
        row("observations, this version", new[:, 1].mean(), ""),
        row("observations, version 0.1", old[:, 1].mean(), ""),
    ]


def main() -> None:
    asked = arguments(__doc__).parse_args()
    one_thread()
    tell("One cloud alone, against version 0.1", rows(measured(6 if asked.quick else N_CLOUDS)), asked)


if __name__ == "__main__":
    main()
