"""Points of corrupted clouds: mIoU of the learned and the fixed order, and what the promise makes of them.

The model sees the corrupted cloud and is asked for the points of the clean one, turned with it where it is turned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro.model.rules import fps_orders
from asp_neuro.report import say, table
from asp_neuro.runtime import parts
from asp_neuro.runtime.part_samples import PartSamples
from asp_neuro.scenes.cloud import GRID
from asp_neuro.scenes.conditions import CLEAN, Condition, change, changed, conditions
from asp_neuro.studies.part_plots import robustness_bars
from asp_neuro.studies.part_subject import opened
from asp_neuro.studies.results import written

AT = (1, 4)  # and the whole budget
QUERIES = 512
TURNS = ("turned", "rotated")


def corrupted(samples: PartSamples, what: Condition, seed: int, draw: int) -> PartSamples:
    """The same shapes, seen through a condition; what is asked for lies in the frame of the clean cloud."""
    if what.kind == CLEAN.kind:
        return samples
    every = []
    for place in range(len(samples)):
        unit = samples.queries(place)[:QUERIES] / GRID
        rng = np.random.default_rng([seed, draw, place])  # as `changed` draws
        every.append(change(unit, what, rng) if what.kind in TURNS else unit)
    assert samples.parts is not None
    return replace(
        samples,
        inputs=changed(samples.inputs, what, seed, draw),
        every=tuple(every),
        parts=samples.parts[:, :QUERIES],
    )


def run(
    models: Sequence[str | Path], *, draws: int, seed: int, data: str | None, up: str | None, split: str,
    limit: int | None, out: Path,
) -> dict[str, Any]:  # fmt: skip
    """The study of one bundle; writes into `out`."""
    deployed, samples = opened(models, data, up, split, limit, out)
    budget, rows = deployed.bundle.model.budget, []
    at = [*(k for k in AT if k < budget), budget]
    for what in conditions(deployed.chunking.n_points):
        learned, fixed, promised = [], [], []
        for draw in range(1 if what.kind == CLEAN.kind else draws):
            say(f"{what.name}: draw {draw + 1}")
            other = corrupted(samples, what, seed, draw)
            perceiver, scenes = deployed.perceiver, deployed.scenes(other, keep=False)
            order = fps_orders(len(scenes), scenes.n_chunks)
            learned.append(parts.full_budget(deployed, other, perceiver, scenes, at, None, QUERIES)[1])
            fixed.append(parts.full_budget(deployed, other, perceiver, scenes, at, order, QUERIES)[1])
            rule, accept, _ = parts.rules_of(deployed, uncertified=True)
            promised.append(parts.run(deployed, other, rule, accept)[0])
        rows += [_row(what, k, np.stack(learned)[:, i], np.stack(fixed)[:, i]) for i, k in enumerate(at)]
        rows[-1]["accepted_share"] = float(np.mean([one["accepted_share"] for one in promised]))
        wrong = [one["wrong_among_accepted"] for one in promised if one["wrong_among_accepted"] is not None]
        rows[-1]["wrong_among_accepted"] = float(np.mean(wrong)) if wrong else None
    report = {
        "models": [deployed.name], "split": split, "n": len(samples), "budget": budget, "draws": draws, "seed": seed,
        "measure": "mIoU", "points": QUERIES, "corruptions": rows,
    }  # fmt: skip
    return written(out, "robustness", report, {"": rows}, robustness_bars)


def _row(what: Condition, k: int, learned: np.ndarray, fixed: np.ndarray) -> dict[str, Any]:
    """IoUs [draws, n] of both orders."""
    ahead = (learned - fixed).mean(axis=0)
    error = float(ahead.std(ddof=1) / np.sqrt(len(ahead))) if len(ahead) > 1 else None
    return {
        "corruption": what.name, "k": k, "learned": float(learned.mean()), "fixed": float(fixed.mean()),
        "difference": float(ahead.mean()), "standard_error": error, "accepted_share": None,
        "wrong_among_accepted": None,
    }  # fmt: skip


def text(report: dict[str, Any]) -> str:
    """For people: a line per corruption."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in report["corruptions"]:
        by_name.setdefault(row["corruption"], []).append(row)
    body = []
    for name, rows in by_name.items():
        cells = [f"{100 * row['learned']:.1f} / {100 * row['fixed']:.1f}" for row in rows]
        wrong = rows[-1]["wrong_among_accepted"]
        told = "-" if wrong is None else f"{100 * wrong:.1f}"
        body.append([name, *cells, f"{100 * rows[-1]['accepted_share']:.1f}", told])
    heads = [f"k={row['k']}" for row in by_name["clean"]]
    first = f"instance mIoU in %, learned / fixed order, {report['split']} split, {report['n']} clouds"
    return "\n".join([first, table(body, ("corruption", *heads, "accepted %", "wrong among them %"))])
