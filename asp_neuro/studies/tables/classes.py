"""Class by class (J.9): who exits early, who late, who is taken for whom; and how beliefs of a class come together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro.studies import plots
from asp_neuro.studies.audits.classes import AT_MOST, silhouettes
from asp_neuro.studies.audits.intervals import rank_correlation
from asp_neuro.studies.tables.reading import Reading, Table, over


def table(readings: Sequence[Reading]) -> Table:
    names, truth = readings[0].perceiver.classes, readings[0].seen.truth
    rows = [_row(readings, names, label) for label in np.unique(truth)]
    rows.sort(key=lambda row: (row["observations"], row["class"]))
    tracked = rank_correlation(*(np.array([row[key] for row in rows]) for key in ("wrong_so_far", "observations")))
    steps = sorted({1, min(5, readings[0].seen.n_steps), readings[0].seen.n_steps})
    apart = {k: over([_silhouette(one, k) for one in readings])[0] for k in steps}
    said = [
        f"rank correlation of observations at the exit with the share of wrong answers over all looks: {tracked:.2f}",
        "silhouette of the beliefs after " + ", ".join(f"{k}: {value:.2f}" for k, value in apart.items())
        + " looks (paper: 0.63 at 5, of a t-SNE)",
        "paper: 4.3 observations for easy classes, 7.1 for hard ones",
    ]  # fmt: skip
    return Table(rows, said, {}, {"rank_correlation": tracked, "silhouette": {str(k): v for k, v in apart.items()}})


def _row(readings: Sequence[Reading], names: Sequence[str], label: int) -> dict[str, Any]:
    here = readings[0].seen.truth == label
    seen = over([float(one.stops.observations[here].mean()) for one in readings])
    answers = np.concatenate([one.stops.at(one.seen.told.argmax(axis=-1))[here] for one in readings])
    others = np.bincount(answers[answers != label], minlength=len(names))
    return {
        "class": names[label],
        "clouds": int(here.sum()),
        "observations": seen[0],
        "spread": seen[1],
        "accuracy_at_exit": float((answers == label).mean()),
        "accuracy_at_full_budget": over([float(one.seen.right[-1, here].mean()) for one in readings])[0],
        "wrong_so_far": over([float(1.0 - one.seen.right[:, here].mean()) for one in readings])[0],
        "taken_for": names[int(others.argmax())] if others.any() else None,
    }


def _silhouette(one: Reading, k: int) -> float:
    index = np.sort(np.random.default_rng(0).permutation(one.seen.n)[:AT_MOST])
    return float(silhouettes(one.seen.belief[k - 1, index], one.seen.truth[index]).mean())


def _words(key: str) -> str:
    return key.replace("_", " ")


def picture(path: Path, report: dict[str, Any]) -> Path:
    """Observations and accuracy of each class, those that exit soonest on top."""
    rows = report["rows"][::-1]
    figure, (left, right) = plots.figure(2, height=max(3.9, 0.22 * len(rows) + 1.0))
    at = np.arange(len(rows))
    left.barh(at, [row["observations"] for row in rows], color=plots.BLUE)
    left.set_yticks(at, [row["class"] for row in rows], fontsize=8)
    left.set(xlabel="observations at the exit")
    keys = (("accuracy_at_exit", plots.BLUE, "o"), ("accuracy_at_full_budget", plots.ORANGE, "|"))
    for key, colour, marker in keys:
        right.plot(
            [100 * row[key] for row in rows],
            at,
            color=colour,
            marker=marker,
            linestyle="none",
            label=key.replace("_", " "),
        )
    right.set_yticks(at, [])
    right.set(xlabel="right answers in %")
    right.legend(frameon=False, fontsize=8)
    return plots.saved(figure, path)
