"""Tables that need trainings: which variants of a recipe they compare, and what is told of each.

budget         M = 4, 8, 16, 32 chunks, everything else the same (J.11)
descriptors    the backbone frozen, the policy trained again without one of its descriptors (J.11)
fixed          the same network trained in farthest-point order, with and without the exit (J.4)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asp_neuro.scenes.cloud import DESCRIPTORS
from asp_neuro.studies import plots
from asp_neuro.studies.tables.reading import Reading, Table, over

BUDGETS = {4: 0.9062, 8: 0.9064, 16: 0.9061, 32: 0.9058}  # M -> the paper's accuracy
FULL, FIXED = "full", "fixed"
POLICY_EPOCHS = 6  # of a policy alone
NO_LOOP = {"given_order": "fps_order", "random_share": 1.0, "imitation": 0.0, "lookahead": 0.0}
FIXED_ORDER = {"train": NO_LOOP}
WITHOUT = {"mean": 0.8982, "variance": 0.9003, "radius": 0.8974, "norm": 0.8991}  # the paper's "distance to visited"


class Way(NamedTuple):
    """One line of a table: which models, and how they look and stop."""

    name: str
    variant: str
    order: str = "learned"
    exits: bool = True
    paper: str | None = None


def budget_changes(n_chunks: int, asked: Sequence[int] = tuple(BUDGETS)) -> dict[str, dict[str, Any]]:
    """Variants of a recipe with so many chunks: its own is the full one."""
    return {FULL if m == n_chunks else f"m{m}": {"scene": {"n_chunks": m}} for m in asked}


def policy_changes(start: Path) -> dict[str, dict[str, Any]]:
    """Policies that learn alone on a finished model, its answers adjusted already: all descriptors, and one hidden."""
    alone = {"start": str(start), "policy_only": True, "epochs": POLICY_EPOCHS, "qat_epochs": POLICY_EPOCHS}
    alone |= {"logit_adjustment": 0.0}
    found: dict[str, dict[str, Any]] = {"policy": {"train": alone}}
    for name in DESCRIPTORS:
        found[f"without_{name}"] = {"train": alone, "model": {"hidden": (name,)}}
    return found


def budget_ways(n_chunks: int, asked: Sequence[int] = tuple(BUDGETS)) -> list[Way]:
    return [
        Way(f"M = {m}", FULL if m == n_chunks else f"m{m}", paper=_told(BUDGETS.get(m), " at full budget"))
        for m in asked
    ]


def _told(paper: float | None, words: str) -> str | None:
    return None if paper is None else f"{paper:.4f}{words}"


DESCRIPTOR_WAYS = [
    Way("all descriptors", "policy", paper="0.9054"),
    *(Way(f"without {name}", f"without_{name}", paper=f"{paper:.4f}") for name, paper in WITHOUT.items()),
    Way("none (chunks as they were found)", FULL, "fps_order", paper="0.8886"),
]
FIXED_WAYS = [
    Way("learned order, exit", FULL, paper="0.9054 after 6.81"),
    Way("learned order, whole budget", FULL, exits=False),
    Way("trained in fixed order, whole budget", FIXED, "fps_order", exits=False, paper="0.8976"),
    Way("trained in fixed order, exit", FIXED, "fps_order", paper="0.8982 after 7.82"),
    Way("learned model, fixed order, exit", FULL, "fps_order"),
]


def table(ways: Sequence[Way], readings: Mapping[tuple[str, str], Sequence[Reading]], at: Sequence[int] = ()) -> Table:
    """(variant, order) -> a reading per seed; `at`: also right after so many observations."""
    rows, curves = [], []
    for way in ways:
        group = readings[way.variant, way.order]
        rows.append({"way": way.name, "models": len(group), **_measured(group, way.exits, at), "paper": way.paper})
        right = np.array([one.seen.right.mean(axis=1) for one in group])  # [models, T]
        curves += [
            {
                "way": way.name,
                "observation": t + 1,
                "accuracy": float(right[:, t].mean()),
                "spread": over(right[:, t])[1],
            }
            for t in range(right.shape[1])
        ]
    return Table(rows, [], {"_curves": curves})


def _measured(group: Sequence[Reading], exits: bool, at: Sequence[int]) -> dict[str, Any]:
    whole = over([one.seen.right[-1].mean() for one in group])
    right = over([one.stops.at(one.seen.right).mean() for one in group]) if exits else whole
    seen = over([one.stops.observations.mean() if exits else one.seen.n_steps for one in group])
    return {
        "accuracy": right[0], "spread": right[1], "observations": seen[0], "observations_spread": seen[1],
        "full_budget": whole[0], "full_budget_spread": whole[1],
        **{f"k={k}": over([one.seen.right[k - 1].mean() for one in group])[0] for k in at},
    }  # fmt: skip


def picture(path: Path, report: dict[str, Any]) -> Path:
    """Accuracy against observations, a line for each way; a star where it stops on average."""
    figure, axis = plots.figure(1, width=7.2)
    drawn: dict[str, Any] = {}
    for number, row in enumerate(report["rows"]):
        curve = [one for one in report["curves"] if one["way"] == row["way"]]
        y = [100.0 * one["accuracy"] for one in curve]
        key = str(y)  # ways that read the same models in the same order share a curve
        if key not in drawn:
            (drawn[key],) = axis.plot([one["observation"] for one in curve], y, color=f"C{number}", linewidth=1.2)
        colour = drawn[key].get_color()
        label = f"{row['way']}: {100 * row['accuracy']:.1f} % after {row['observations']:.2f}"
        axis.plot(
            row["observations"], 100 * row["accuracy"], color=colour, marker="*", markersize=11, linestyle="none",
            label=label,
        )  # fmt: skip
    axis.set(xlabel="observations", ylabel=f"right answers in %, {report['split']} split")
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    return plots.saved(figure, path)
