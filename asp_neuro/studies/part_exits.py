"""What an exit is worth for points: mIoU where it stops, against a fixed number of looks with the same mean.

Every cloud is read once at full budget; what an exit at any threshold, or after any number of looks, would give follows
from its margins [T, n] and IoUs [T, n]. A mean that is no whole number is a mixture of the two numbers beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro.report import table
from asp_neuro.runtime import parts
from asp_neuro.studies.part_plots import exit_curve
from asp_neuro.studies.part_subject import opened
from asp_neuro.studies.results import written

QUERIES = 256  # points of each cloud that are asked for after every look
EXITS = 24  # thresholds of the sweep
SHARE = 0.4  # of the budget: what is told beside


def stops(margins: np.ndarray, tau: float) -> np.ndarray:
    """Margins [T, n] -> [n] the look, from 0, after which each cloud stops."""
    crossed = margins > tau
    return np.where(crossed.any(axis=0), crossed.argmax(axis=0), len(margins) - 1)


def row(margins: np.ndarray, ious: np.ndarray, tau: float) -> dict[str, Any]:
    """An exit against a fixed number of looks with the same mean, paired cloud by cloud."""
    stop = stops(margins, tau)
    looks, own = float(stop.mean() + 1.0), ious[stop, np.arange(len(stop))]
    fixed = parts.at_fixed(ious, looks)
    ahead = own - fixed
    error = float(ahead.std(ddof=1) / np.sqrt(len(ahead))) if len(ahead) > 1 else None
    return {
        "threshold": tau, "looks": looks, "miou": float(own.mean()), "fixed_miou": float(fixed.mean()),
        "ahead": float(ahead.mean()), "standard_error": error,
    }  # fmt: skip


def sweep(margins: np.ndarray, ious: np.ndarray, certified: float | None) -> list[dict[str, Any]]:
    """Thresholds at quantiles of the margins, strict ones last, and the certified one."""
    taus = np.unique(np.quantile(margins[:-1], np.linspace(0.02, 0.995, EXITS)))
    told = [{**row(margins, ious, float(tau)), "certified": False} for tau in taus]
    if certified is not None:
        told.append({**row(margins, ious, certified), "certified": True})
    return sorted(told, key=lambda one: one["threshold"])


def at_share(margins: np.ndarray, ious: np.ndarray, share: float) -> dict[str, Any]:
    """mIoU after a share of the budget: of a fixed number of looks, and of the exit that takes as many on average."""
    looks = share * len(ious)
    taus = np.unique(margins)
    low, high = 0, len(taus) - 1
    while low < high:  # the strictest exit that takes no more
        middle = (low + high + 1) // 2
        low, high = (middle, high) if stops(margins, taus[middle]).mean() + 1.0 <= looks else (low, middle - 1)
    return {"share": share, "looks": looks, "fixed_miou": float(parts.at_fixed(ious, looks).mean()),
            "exit": row(margins, ious, float(taus[low]))}  # fmt: skip


def run(
    models: Sequence[str | Path], *, data: str | None, up: str | None, split: str, limit: int | None, out: Path
) -> dict[str, Any]:
    """The study of one bundle; writes into `out`."""
    deployed, samples = opened(models, data, up, split, limit, out)
    margins, ious = parts.full_budget(
        deployed, samples, deployed.perceiver, deployed.scenes(samples), None, None, QUERIES
    )
    promise = parts.promise_of(deployed)
    curve = [{"looks": k, "miou": float(own.mean())} for k, own in enumerate(ious, start=1)]
    report: dict[str, Any] = {
        "study": "exits", "models": [deployed.name], "split": split, "n": len(samples), "points": QUERIES,
        "measure": "mIoU", "fixed": curve, "at_share": at_share(margins, ious, SHARE),
        "sweep": sweep(margins, ious, None if promise is None else promise.exit),
    }  # fmt: skip
    return written(out, "exits", report, {"": report["sweep"], "_fixed": curve}, exit_curve)


def text(report: dict[str, Any]) -> str:
    """For people."""
    first = (
        f"instance mIoU in %, {report['split']} split, {report['n']} clouds, {report['points']} points of each; ahead: "
        "of a fixed number of looks with the same mean (paired standard error)"
    )
    body = [
        (f"{one['threshold']:.4f}", f"{one['looks']:.2f}", f"{100.0 * one['miou']:.2f}",
         f"{100.0 * one['fixed_miou']:.2f}", _ahead(one), "certified" if one["certified"] else "")
        for one in report["sweep"]
    ]  # fmt: skip
    share = report["at_share"]
    last = (
        f"at {100.0 * share['share']:.0f} % of the budget ({share['looks']:.1f} looks): "
        f"{100.0 * share['fixed_miou']:.2f} after a fixed number, {100.0 * share['exit']['miou']:.2f} by an exit after "
        f"{share['exit']['looks']:.2f} looks on average ({_ahead(share['exit'])})"
    )
    return "\n".join([first, table(body, ("threshold", "looks", "mIoU", "fixed", "ahead", "")), last])


def _ahead(one: dict[str, Any]) -> str:
    error = "-" if one["standard_error"] is None else f"{100.0 * one['standard_error']:.2f}"
    return f"{100.0 * one['ahead']:+.2f} ({error})"
