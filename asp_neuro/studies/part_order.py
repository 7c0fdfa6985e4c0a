"""What the order of looking is worth for points: mIoU after some looks, learned order against its rivals.

learned, random, fps_order   as for classes (`model/rules.py`)
biggest                      the chunk with the most points first
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro.data.iou import class_mean
from asp_neuro.model.rules import fps_orders, random_orders
from asp_neuro.report import say, table
from asp_neuro.runtime import parts
from asp_neuro.runtime.part_samples import PartSamples
from asp_neuro.scenes.cloud import Chunks
from asp_neuro.studies.part_plots import order_curves
from asp_neuro.studies.part_subject import opened
from asp_neuro.studies.results import written

RULES = ("learned", "random", "fps_order", "biggest")
AT = (1, 2, 4, 8, 16)
QUERIES = 512  # points of each cloud that are asked for: the study compares, the card has all of them


def biggest_first(scenes: Chunks) -> np.ndarray:
    """[n, M] chunks by how many points they have, most first; ties to the lower."""
    return np.argsort(-scenes.mask().sum(axis=2), axis=1, kind="stable")


def orders(rule: str, scenes: Chunks, seed: int) -> np.ndarray | None:
    """[n, M], or None: the policy chooses."""
    n, m = len(scenes), scenes.n_chunks
    made = {"random": lambda: random_orders(n, m, seed), "fps_order": lambda: fps_orders(n, m)}
    made["biggest"] = lambda: biggest_first(scenes)
    return made[rule]() if rule in made else None


def compared(deployed: Any, samples: PartSamples, seed: int = 0, n_queries: int | None = QUERIES) -> dict[str, Any]:
    """Instance and class mIoU of every rule after some looks, and what the learned order is ahead, paired."""
    perceiver, scenes = deployed.perceiver, deployed.scenes(samples)
    at = [k for k in AT if k <= deployed.bundle.model.budget]
    ious = {}
    for rule in RULES:
        say(f"looking by {rule}")
        own = orders(rule, scenes, seed)
        ious[rule] = parts.full_budget(deployed, samples, perceiver, scenes, at, own, n_queries)[1]
    rules = {
        rule: {
            "miou_at": {str(k): float(found[i].mean()) for i, k in enumerate(at)},
            "class_miou_at": {str(k): class_mean(found[i], samples.labels) for i, k in enumerate(at)},
        }
        for rule, found in ious.items()
    }
    paired = []
    for rule in RULES[1:]:
        for i, k in enumerate(at):
            ahead = ious["learned"][i] - ious[rule][i]
            error = float(ahead.std(ddof=1) / np.sqrt(len(ahead))) if len(ahead) > 1 else None
            paired.append({"rule": rule, "k": k, "difference": float(ahead.mean()), "standard_error": error})
    return {"rules": rules, "paired": paired, "n": len(samples), "points": n_queries}


def run(
    models: Sequence[str | Path], *, data: str | None, up: str | None, split: str, limit: int | None, out: Path
) -> dict[str, Any]:
    """The study of one bundle; writes into `out`."""
    deployed, samples = opened(models, data, up, split, limit, out)
    report = {"models": [deployed.name], "split": split, "measure": "mIoU", **compared(deployed, samples)}
    rows = [
        {"rule": rule, "k": int(k), "instance_miou": found["miou_at"][k], "class_miou": found["class_miou_at"][k]}
        for rule, found in report["rules"].items()
        for k in found["miou_at"]
    ]
    return written(out, "order", report, {"": rows, "_differences": report["paired"]}, order_curves)


def text(report: dict[str, Any]) -> str:
    """For people."""
    keys = list(report["rules"]["learned"]["miou_at"])
    rows = [
        [rule, *(f"{100.0 * f['miou_at'][k]:.1f} / {100.0 * f['class_miou_at'][k]:.1f}" for k in keys)]
        for rule, f in report["rules"].items()
    ]
    lines = [
        f"instance / class mIoU in % on the {report['split']} split, {report['n']} clouds, {report['points']} points"
    ]
    lines += [table(rows, ("rule", *(f"k={k}" for k in keys))), "", "learned minus rival in points (paired error)"]
    rivals = [rule for rule in report["rules"] if rule != "learned"]
    gaps = {(row["rule"], row["k"]): row for row in report["paired"]}
    body = [[f"k={k}", *(_gap(gaps[rule, int(k)]) for rule in rivals)] for k in keys]
    return "\n".join([*lines, table(body, ("at", *rivals))])


def _gap(row: dict[str, Any]) -> str:
    error = "-" if row["standard_error"] is None else f"{100.0 * row['standard_error']:.2f}"
    return f"{100.0 * row['difference']:+.2f} ({error})"
