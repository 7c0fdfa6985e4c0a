"""Are probabilities at the exit as honest as after the whole budget (J.7)? ECE, MCE, Brier score, reliability."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro.studies import plots
from asp_neuro.studies.audits.selective import BINS, brier, gaps
from asp_neuro.studies.tables.reading import Reading, Table, over

PAPER = {"ECE": 0.0173, "MCE": 0.0394, "Brier": 0.063}
WHEN = ("exit", "full budget")


def table(readings: Sequence[Reading]) -> Table:
    found = {when: [_measured(_shares(one, when), one.seen.truth) for one in readings] for when in WHEN}
    rows = []
    for name, paper in PAPER.items():
        row: dict[str, Any] = {"measure": name}
        for when in WHEN:
            key = when.replace(" ", "_")
            row[key], row[f"{key}_spread"] = over([one[name] for one in found[when]])
        rows.append({**row, "paper": paper})
    curves = [_reliability(readings, when, at) for when in WHEN for at in range(BINS)]
    told = {when: over([one["accuracy"] for one in found[when]])[0] for when in WHEN}
    sure = {when: over([one["confidence"] for one in found[when]])[0] for when in WHEN}
    said = [
        f"{when}: {100 * told[when]:.1f} % right at a mean confidence of {100 * sure[when]:.1f} %"
        f" ({'too modest' if sure[when] < told[when] else 'too sure'})"
        for when in WHEN
    ]
    return Table(rows, said, {"_reliability": [row for row in curves if row["answers"]]})


def _shares(one: Reading, when: str) -> np.ndarray:
    """[n, C]"""
    shares = one.seen.probabilities
    return one.stops.at(shares) if when == WHEN[0] else shares[-1]


def _measured(shares: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    confidence, right = shares.max(axis=1), shares.argmax(axis=1) == truth
    ece, mce = gaps(confidence, right)
    return {
        "ECE": ece, "MCE": mce, "Brier": float(brier(shares, truth).mean()), "accuracy": float(right.mean()),
        "confidence": float(confidence.mean()),
    }  # fmt: skip


def _reliability(readings: Sequence[Reading], when: str, at: int) -> dict[str, Any]:
    """Confidence and accuracy of one bin, all models together."""
    confidence, right = [], []
    for one in readings:
        shares = _shares(one, when)
        top = shares.max(axis=1)
        here = np.minimum((top * BINS).astype(int), BINS - 1) == at
        confidence += top[here].tolist()
        right += (shares.argmax(axis=1) == one.seen.truth)[here].tolist()
    mean = (float(np.mean(values)) if values else None for values in (confidence, right))
    return {"when": when, "bin": at, **dict(zip(("confidence", "accuracy"), mean)), "answers": len(right)}


def picture(path: Path, report: dict[str, Any]) -> Path:
    """Reliability: accuracy against confidence, and how many answers each point stands for."""
    figure, (left, right) = plots.figure(2)
    left.plot([0, 1], [0, 1], color=plots.GREY, linewidth=0.8, label="honest")
    for shift, when, colour in ((-0.2, WHEN[0], plots.BLUE), (0.2, WHEN[1], plots.ORANGE)):
        rows = [row for row in report["reliability"] if row["when"] == when]
        left.plot(*zip(*[(r["confidence"], r["accuracy"]) for r in rows]), color=colour, marker="o", label=when)
        right.bar([r["bin"] + shift for r in rows], [r["answers"] for r in rows], 0.4, color=colour, label=when)
    left.set(xlabel="confidence", ylabel="share right", xlim=(0, 1.02), ylim=(0, 1.02))
    right.set(xlabel=f"confidence, in bins of 1/{BINS}", ylabel="answers", yscale="log")
    for axis in (left, right):
        axis.legend(frameon=False, fontsize=8)
    return plots.saved(figure, path)
