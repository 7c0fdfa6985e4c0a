"""The machine that the benchmarks run on, without its name or any path. Alone it prints the description."""

from __future__ import annotations

import datetime
import os
import platform
import resource
from importlib.metadata import version
from pathlib import Path
from typing import Any

LIBRARIES = ("numpy", "torch", "lava-nc", "lava-dl", "snntorch", "fpsample")
LOADED = 0.5  # load average at the start from which other work must have disturbed the times


def description() -> dict[str, Any]:
    """Processor, cores that this process may use, memory, versions, date, and the load average of the last minute."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name") or platform.machine() or "unknown processor",
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
        "date": datetime.date.today().isoformat(),
        "load": round(os.getloadavg()[0], 2),
    }


def sentence(machine: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {machine[name]}" for name in ("python", *LIBRARIES))
    sizes = f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']:.0f} GB"
    return f"{sizes}; {versions}; {machine['date']}; load average {machine['load']:.2f} at the start"


def peak_megabytes() -> float:
    """Largest resident size of this process so far (getrusage would also count the parent that started it)."""
    peak = _field("/proc/self/status", "VmHWM")
    kilobytes = int(peak.split()[0]) if peak else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / 1024.0


def _field(path: str, name: str) -> str:
    """What stands behind a name in one of Linux's files; empty where there is none."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


if __name__ == "__main__":
    print(sentence(description()))
