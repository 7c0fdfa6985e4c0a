"""What the benchmarks share: the machine they ran on, and how times are taken and told. Alone it prints the machine."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np


def machine() -> str:
    """Cores that this process may use, and the processor's name where Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown processor")
    return f"{len(os.sched_getaffinity(0))} cores, {name}, load {os.getloadavg()[0]:.1f}"


def one_thread() -> None:
    """Start this script again with BLAS bound to one thread: the libraries read it when they are loaded."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    if any(os.environ.get(name) != "1" for name in names):
        os.environ.update(dict.fromkeys(names, "1"))
        os.execv(sys.executable, [sys.executable, *sys.argv])


def alternate(trials: dict[str, Callable[[], object]], rounds: int) -> dict[str, np.ndarray]:
    """CPU seconds [rounds] of each trial, in turns, so that other work on the machine meets all of them alike.

    CPU time of this process, not the wall clock: on one thread the two are the same on an idle machine.
    """
    for trial in trials.values():  # warm up
        trial()
        trial()
    seconds: dict[str, list[float]] = {name: [] for name in trials}
    for _ in range(rounds):
        for name, trial in trials.items():
            began = time.process_time()
            trial()
            seconds[name].append(time.process_time() - began)
    return {name: np.array(times) for name, times in seconds.items()}


def spread(seconds: np.ndarray) -> dict[str, float]:
    """Median, and the tenth and ninetieth percentile."""
    low, median, high = np.percentile(seconds, (10, 50, 90))
    return {"median": float(median), "low": float(low), "high": float(high)}


def peak_megabytes() -> float:
    """Largest resident size of this process so far (getrusage would also count the parent that started it)."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024.0
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


if __name__ == "__main__":
    print(machine())
