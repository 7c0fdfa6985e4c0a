"""When it stops (J.6): the distribution of exits, and how often the answers given then are right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro.studies import plots
from asp_neuro.studies.tables.reading import Reading, Table, over

EDGES = (4, 7, 10, 16)  # of 16: the paper's bins
PAPER = (0.27, 0.34, 0.24, 0.15)


def bins(budget: int) -> list[tuple[int, int]]:
    """First and last observation of each bin of the paper, for a budget of its own."""
    ends = [round(edge * budget / EDGES[-1]) for edge in EDGES]
    return [(low + 1, high) for low, high in zip([0, *ends], ends) if high > low]


def table(readings: Sequence[Reading]) -> Table:
    budget = readings[0].seen.n_steps
    known = bins(budget)
    rows = [_row(readings, low, high) for low, high in known]
    paper = PAPER if len(known) == len(PAPER) else (None,) * len(known)
    rows = [{**row, "paper": told} for row, told in zip(rows, paper, strict=True)]
    steps = [_row(readings, k, k) for k in range(1, budget + 1)]
    mean, deviation = over([float(one.stops.observations.mean()) for one in readings])
    crossed, _ = over([float(one.stops.crossed.mean()) for one in readings])
    shown = "" if deviation is None else f" ± {deviation:.2f}"
    said = [
        f"mean exit {mean:.2f}{shown} of {budget} (paper 6.81 of 16); {100 * crossed:.1f} % cross the threshold before "
        "the budget is spent"
    ]
    return Table(rows, said, {"_by_observation": steps}, {"mean_exit": mean, "mean_exit_spread": deviation})


def _row(readings: Sequence[Reading], low: int, high: int) -> dict[str, Any]:
    shares, right = [], []
    for one in readings:
        here = (one.stops.observations >= low) & (one.stops.observations <= high)
        shares.append(float(here.mean()))
        right += one.stops.at(one.seen.right)[here].tolist()
    share, deviation = over(shares)
    return {
        "observations": f"{low}" if low == high else f"{low}-{high}",
        "share": share,
        "spread": deviation,
        "accuracy": float(np.mean(right)) if right else None,
        "answers": len(right),
    }


def picture(path: Path, report: dict[str, Any]) -> Path:
    """Exits by observation, and the share of right answers among them."""
    figure, (left, right) = plots.figure(2)
    steps = report["by_observation"]
    k = np.arange(1, len(steps) + 1)
    left.bar(k, [100.0 * row["share"] for row in steps], color=plots.BLUE)
    left.axvline(report["mean_exit"], color=plots.ORANGE, linestyle="--", label=f"mean {report['mean_exit']:.2f}")
    left.set(xlabel="observations at the exit", ylabel="clouds in %")
    left.legend(frameon=False, fontsize=8)
    some = [(at, 100.0 * row["accuracy"], row["answers"]) for at, row in zip(k, steps) if row["accuracy"] is not None]
    right.scatter(*zip(*[(at, share) for at, share, _ in some]), s=[6 + n / 4 for *_, n in some], color=plots.BLUE)
    right.set(xlabel="observations at the exit", ylabel="right answers in % (area: how many)")
    return plots.saved(figure, path)
