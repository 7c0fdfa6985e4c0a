"""How every benchmark takes times and tells them.

Rivals take turns within one run, so that other work on the machine meets all of them alike, and the ratio is taken turn
by turn. A row holds a measured value and, where there is a rival, the ratio to it, each as median and quartiles.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from machine import description, sentence

from asp_neuro.report import table, to_json

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import specs as specs  # small random networks and clouds, shared with the tests

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
TURN_SECONDS = 0.004  # a shorter trial is repeated within its turn
ENOUGH_SECONDS = 0.2  # a longer trial is warm after one call
HEADERS = ("", "median (quartiles)", "ratio (quartiles)", "to", "limit", "met or missed")
LIMIT = re.compile(r"(at most|at least|under) ([\d.,]+) ?(ms|s|MB|%)?|([\d.]+) to ([\d.]+) %")
EXPECTED = "(t + 1) / 2"  # begins what theory expects of a ratio: no limit, so neither met nor missed
Row = dict[str, Any]


def arguments(doc: str) -> argparse.ArgumentParser:
    """What every script is asked: `--json`, and `--quick` for a run of seconds whose numbers mean little."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a few turns only: does it run?")
    return parser


def one_thread() -> None:
    """Start this script again with BLAS bound to one thread: the libraries read it when they are loaded."""
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.environ.update(ONE_THREAD)
        os.execv(sys.executable, [sys.executable, *sys.argv])


def alternate(
    trials: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.process_time
) -> dict[str, np.ndarray]:
    """Seconds [rounds] of each trial, in turns, after a call or two to warm up.

    CPU time of this process: on one thread and an idle machine that is the wall clock. Trials that work in other
    processes need `time.perf_counter`.
    """
    repeats = {name: _repeats(trial) for name, trial in trials.items()}
    seconds: dict[str, list[float]] = {name: [] for name in trials}
    for _ in range(rounds):
        for name, trial in trials.items():
            began = clock()
            for _ in range(repeats[name]):
                trial()
            seconds[name].append((clock() - began) / repeats[name])
    return {name: np.array(times) for name, times in seconds.items()}


def _repeats(trial: Callable[[], object]) -> int:
    """How often a trial fits into a turn; its first call may be much slower than the next."""
    seconds = 0.0
    for _ in range(2):
        began = time.perf_counter()
        trial()
        seconds = time.perf_counter() - began
        if seconds > ENOUGH_SECONDS:
            break
    return max(1, math.ceil(TURN_SECONDS / seconds))


def spread(values: Any) -> dict[str, float]:
    """Median and quartiles."""
    low, median, high = np.percentile(values, (25, 50, 75))
    return {name: float(f"{value:.5g}") for name, value in (("median", median), ("low", low), ("high", high))}


def row(what: str, values: Any, unit: str, ratios: Any = None, against: str = "", wanted: str = "") -> Row:
    """One measurement; `unit` may begin with s, for times that are shown in us, ms or s: `s/cloud`."""
    ratio = None if ratios is None else spread(ratios)
    return {"what": what, "value": spread(values), "unit": unit, "ratio": ratio, "against": against, "wanted": wanted}


def compared(
    found: dict[str, np.ndarray],
    against: str,
    unit: str = "s",
    setting: str = "",
    wanted: dict[str, str] | None = None,
) -> list[Row]:
    """A row per trial, each other one with its ratio to the trial `against`."""
    rows = []
    for name, seconds in found.items():
        ratios = None if name == against else seconds / found[against]
        goal = (wanted or {}).get(name, "")
        rows.append(row(name + setting, seconds, unit, ratios, "" if ratios is None else against, goal))
    return rows


def verdict(line: Row) -> str:
    """`met` or `missed`, by the median: the ratio where the limit has no unit and there is a rival, else the value."""
    wanted = line["wanted"]
    if not wanted or wanted.startswith(EXPECTED):
        return ""
    limit = LIMIT.fullmatch(wanted)
    if limit is None:
        raise ValueError(f"{line['what']}: no limit that can be checked: '{wanted}'")
    how, number, unit, low, high = limit.groups()
    value = line["value" if unit or low or line["ratio"] is None else "ratio"]["median"]
    if low:
        return "met" if float(low) <= value <= float(high) else "missed"
    bound = float(number.replace(",", "")) * (1e-3 if unit == "ms" else 1.0)
    within = {"at most": value <= bound, "at least": value >= bound, "under": value < bound}
    return "met" if within[how] else "missed"


def cells(line: Row) -> tuple[str, ...]:
    """A row as text, under HEADERS."""
    ratio = "" if line["ratio"] is None else _range(line["ratio"])
    return line["what"], _measured(line), ratio, line["against"], line["wanted"], verdict(line)


def _measured(line: Row) -> str:
    value, unit = line["value"], line["unit"]
    if unit != "s" and not unit.startswith("s/"):
        return f"{_range(value)} {unit}".rstrip()
    factor, prefix = next((f, p) for f, p in ((1.0, ""), (1e3, "m"), (1e6, "u")) if value["median"] * f >= 1 or f > 1e5)
    return f"{_range({name: factor * number for name, number in value.items()})} {prefix}{unit}"


def _range(value: dict[str, float]) -> str:
    """Median and quartiles; of a single number, the number."""
    median, low, high = (_number(value[name]) for name in ("median", "low", "high"))
    return median if low == median == high else f"{median} ({low} to {high})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def tell(title: str, rows: list[Row], asked: argparse.Namespace, text: str = "") -> None:
    """Print what a script found, with more text for a reader if it has any."""
    if asked.json:
        print(to_json({"title": title, "rows": rows}))
        return
    print(f"{title}\n{sentence(description())}\n\n{table(map(cells, rows), HEADERS)}")
    if text:
        print(f"\n{text}")
