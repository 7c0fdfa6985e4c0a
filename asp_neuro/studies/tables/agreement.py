"""Do trainings with other seeds look at the same places (J.2)?

same looks     what would the other choose, after the looks of the one? (the decisions alone differ)
same step      do both take the same place at step t, each on its own path? (differences pile up)
answers        do both give the same answer at the exit?
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro.errors import UsageError
from asp_neuro.studies import plots
from asp_neuro.studies.audits import intervals
from asp_neuro.studies.audits.choice import revisits
from asp_neuro.studies.audits.run import choices_along, n_free
from asp_neuro.studies.tables.reading import Reading, Table, over

PAPER = 0.773


def table(readings: Sequence[Reading]) -> Table:
    if len(readings) < 2:
        raise UsageError("agreement needs trainings with different seeds: name two or more, or none to train three")
    pairs = list(permutations(readings, 2))
    one = readings[0].seen
    free = n_free(one.place, readings[0].perceiver.spec.scene.n_places, readings[0].perceiver.spec.policy.mask)
    open_ = free > 1  # [T, n] where there is a choice
    looks = np.stack([choices_along(b.perceiver, b.scenes, a.seen.place) == a.seen.place for a, b in pairs])
    steps = np.stack([a.seen.place == b.seen.place for a, b in pairs])
    answers = np.stack([_answer(a) == _answer(b) for a, b in pairs])
    chance = float((1.0 / free[open_]).mean())
    used = np.stack([np.arange(one.n_steps)[:, None] <= a.stops.step for a, _ in pairs]) & open_  # before the exit
    rows = [
        _row("choices after the same looks", (looks & open_).sum(axis=(0, 1)) / (len(pairs) * open_.sum(axis=0)),
             chance, PAPER),
        _row("of these, before the exit", (looks & used).sum(axis=(0, 1)) / np.maximum(used.sum(axis=(0, 1)), 1),
             float((1.0 / np.broadcast_to(free, used.shape)[used]).mean()), None),
        _row("first choice", looks[:, 0].mean(axis=0), float(1.0 / free[0, 0]), None),
        _row("places at the same step, own paths", (steps & open_).sum(axis=(0, 1)) / (len(pairs) * open_.sum(axis=0)),
             chance, None),
        _row("answers at the exit", answers.mean(axis=0), None, None),
    ]  # fmt: skip
    by_step = [
        {"observation": t + 1, "same looks": float(looks[:, t].mean()), "own paths": float(steps[:, t].mean()),
         "chance": float((1.0 / free[t]).mean())}
        for t in range(one.n_steps)
    ]  # fmt: skip
    again = over([float(revisits(a.seen.place).mean()) for a in readings])[0]
    before = over([float(a.stops.observations.mean()) for a in readings])[0]
    said = [
        f"{len(readings)} trainings, {len(pairs)} ordered pairs; revisits {100 * again:.1f} % (paper 6.2 %), "
        f"{before:.2f} observations at the exit"
    ]
    return Table(rows, said, {"_by_observation": by_step})


def _answer(one: Reading) -> np.ndarray:
    return one.stops.at(one.seen.told.argmax(axis=-1))


def _row(what: str, share: np.ndarray, chance: float | None, paper: float | None) -> dict[str, Any]:
    found = intervals.mean(share)
    return {"what": what, "share": found.value, "low": found.low, "high": found.high, "chance": chance, "paper": paper}


def picture(path: Path, report: dict[str, Any]) -> Path:
    """Agreement against the observation."""
    figure, axis = plots.figure(1)
    rows = report["by_observation"]
    for key, colour in (("same looks", plots.BLUE), ("own paths", plots.ORANGE), ("chance", plots.GREY)):
        axis.plot([r["observation"] for r in rows], [100 * r[key] for r in rows], color=colour, marker=".", label=key)
    axis.set(xlabel="observation", ylabel="trainings choose the same place, in %", ylim=(0, 102))
    axis.legend(frameon=False, fontsize=8)
    return plots.saved(figure, path)
