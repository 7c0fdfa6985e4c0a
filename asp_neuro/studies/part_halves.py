"""Do the promises for points hold on new shapes? Made again on random halves of a split, counted on the other halves.

Every shape is answered once, at the bundle's exit, all its points. The plan stays that of the bundle, which comes from
other shapes. Counted on the other half: for A the mean share of wrong points among a shape's accepted ones, for B the
share of shapes with more wrong points than promised. A count is an estimate: where the risk is just below what was
promised, many counts are above it by chance. So "beyond chance" is told too: by more than 1.64 standard errors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asp_neuro import files
from asp_neuro.certify.part_promise import PartPromise
from asp_neuro.certify.points import (
    NOTHING,
    PointPlan,
    PointRecording,
    conformal_threshold,
    counted_losses,
    shares,
    strictest_needed,
    walk_points,
)
from asp_neuro.errors import InputError, UsageError
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.points import PointRule
from asp_neuro.report import say, table
from asp_neuro.runtime import deployment, parts
from asp_neuro.runtime.part_samples import samples_of
from asp_neuro.studies.halves import random_halves
from asp_neuro.studies.part_plots import halves_curves
from asp_neuro.studies.results import written

SURE = 1.64  # standard errors: chance alone exceeds them in 5 % of the draws
NAME = "halves"


class Counted(NamedTuple):
    """What came of R calibrations, on the halves that did not calibrate."""

    risk: np.ndarray  # [R]
    error: np.ndarray  # [R] its standard error
    accepted: np.ndarray  # [R] mean share of a shape's points
    threshold: np.ndarray  # [R] NOTHING: nothing was promised


def mean_halves(recording: PointRecording, made: PointPlan, halves: np.ndarray) -> Counted:
    """Promise A on each half [R, n] bool, counted on the other."""
    found = shares(recording, np.array(made.grid))
    losses, counted = counted_losses(found, made.alpha, made.risk)
    told = []
    for half in halves:
        passed = walk_points(losses[:, None, half], counted[:, None, half], made).passed[:, 0]
        if not passed.any():
            told.append((0.0, 0.0, 0.0, NOTHING))
            continue
        at = len(passed) - 1 - int(passed[::-1].argmax())
        own = losses[at, ~half][counted[at, ~half]]
        told.append((own.mean(), own.std(ddof=1) / np.sqrt(len(own)), found.accepted[at, ~half].mean(), made.grid[at]))
    return Counted(*np.array(told).T)


def each_halves(recording: PointRecording, alpha: float, most: float, halves: np.ndarray) -> Counted:
    """Promise B on each half, counted on the other."""
    needed = strictest_needed(recording, most)
    threshold = np.array([conformal_threshold(needed[half], alpha) for half in halves])
    grid = np.unique(threshold)[::-1]
    found = shares(recording, grid)
    above = found.loss() > most
    told = []
    for half, tau in zip(halves, threshold, strict=True):
        at = int(np.flatnonzero(grid == tau)[0])
        risk, n = above[at, ~half].mean(), (~half).sum()
        told.append((risk, np.sqrt(alpha * (1.0 - alpha) / n), found.accepted[at, ~half].mean(), tau))
    return Counted(*np.array(told).T)


def row(promise: str, told: Counted, level: float) -> dict[str, Any]:
    """One promise, over all halves; `level` is what it allows."""
    some = told.threshold < NOTHING
    return {
        "promise": promise,
        "allowed": level,
        "halves": len(some),
        "promised": int(some.sum()),
        "held": float((told.risk <= level).mean()),
        "beyond_chance": float((told.risk > level + SURE * told.error).mean()),
        "risk_mean": float(told.risk[some].mean()) if some.any() else None,
        "risk_most": float(told.risk[some].max()) if some.any() else None,
        "accepted": float(told.accepted.mean()),
    }


def made_again(recording: PointRecording, found: PartPromise, repeats: int, seed: int) -> dict[str, Any]:
    """Both promises on random halves."""
    halves = random_halves(recording.n, repeats, seed)
    told = {
        "A": (mean_halves(recording, found.plan, halves), found.plan.alpha),
        "B": (each_halves(recording, found.each.alpha, found.each.most, halves), found.each.alpha),
    }
    lines = [
        {"promise": name, "half": at, "threshold": float(one.threshold[at]), "risk": float(one.risk[at]),
         "accepted": float(one.accepted[at])}
        for name, (one, _) in told.items()
        for at in range(repeats)
    ]  # fmt: skip
    return {"rows": [row(name, *one) for name, one in told.items()], "each": lines}


def run(
    name: str | Path | None, *, data: str | None = None, up: str | None = None, split: str = "test",
    limit: int | None = None, repeats: int = 200, seed: int = 0, out: Path = Path("study"),
) -> dict[str, Any]:  # fmt: skip
    """The study, as table, CSV and picture in `out`."""
    deployed = deployment.open_bundle(name)
    found = parts.promise_of(deployed)
    if found is None:
        raise InputError(f"'{deployed.name}' has no promise to repeat: asp-neuro certify {deployed.path}")
    samples = samples_of(deployed, data, split, up, limit)
    if len(samples) < 4:
        raise UsageError(f"{len(samples)} clouds: two halves need at least 4; give a larger --limit")
    if split == "test":
        say(f"this reads the test split ({len(samples)} of {samples.source}); log it, with what for")
    _, answers = parts.run(deployed, samples, ExitRule(tau=found.exit), PointRule())
    report = {
        "study": NAME, "model": deployed.name, "sha256": deployed.sha256, "split": split, "n": len(samples),
        "seed": seed, "alpha": found.plan.alpha, "delta": found.plan.delta, "each_alpha": found.each.alpha,
        "most": found.each.most, **made_again(parts.recording(samples, answers), found, repeats, seed),
    }  # fmt: skip
    return written(files.make_folder(out), NAME, report, {"": report["rows"], "_each": report["each"]}, halves_curves)


def text(report: dict[str, Any]) -> str:
    """For people."""
    said = {
        "A": f"A: at most {100 * report['alpha']:g} % wrong, mean over shapes",
        "B": f"B: at most {100 * report['each_alpha']:g} % of the shapes above {100 * report['most']:g} % wrong",
    }
    body = [
        (said[one["promise"]], f"{one['promised']} of {one['halves']}", *(_percent(one[key]) for key in
         ("held", "beyond_chance", "risk_mean", "risk_most", "accepted")))
        for one in report["rows"]
    ]  # fmt: skip
    heads = ("promise", "promised in", "held in", "beyond chance", "counted, mean", "most", "points accepted")
    first = (
        f"{report['model']}: made on one half of {report['n']} shapes ({report['split']} split), counted on the other"
    )
    return "\n".join([first, table(body, heads)])


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100.0 * value:.1f} %"
