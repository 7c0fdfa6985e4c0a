"""The paper's prediction about beams (H.3), tested on the built-in rooms.

"Inside a crop of about 1 m a slice of beam is indistinguishable from a slice of ceiling": Beam IoU is near 0 there
whatever the weighting, and rises at 2 m. Column is the control: as rare, but told by its own shape. So: crops of 1 m
and 2 m, with and without what H.4 does for rare classes (rare anchors, weighted points, Lovász, both annealed), several
seeds; IoU over all points of all rooms, after the whole budget, on the deployed integers.

Beside it the premise: how many beam points lie in a crop that shows the ceiling too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asp_neuro import files
from asp_neuro.data.parts import pick
from asp_neuro.data.room_crops import Square, rooms_of, squares
from asp_neuro.data.rooms import CLASSES, Room
from asp_neuro.errors import UsageError
from asp_neuro.learn.recipe import PartsRecipe, Recipe
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.model.points import steps_in
from asp_neuro.report import progress, say, table
from asp_neuro.scenes.cloud import Chunking
from asp_neuro.studies import plots, trained
from asp_neuro.studies.results import share, written
from asp_neuro.tasks.parts import Parts

SIZES = (1.0, 2.0)  # m
WEIGHTINGS = ("plain", "reweighted")
PLAIN: dict[str, dict[str, Any]] = {
    "data": {"rare_share": 0.0},
    "task": {"lovasz": 0.0, "part_weight_power": 0.0, "exempt": ()},
}
CEILING, BEAM, COLUMN = (CLASSES.index(name) for name in ("ceiling", "beam", "column"))
FEW = 8  # points of ceiling that a crop must show
NOTHING = 0.01  # a Beam IoU below this is none
AT_ONCE = 32


class Crop(NamedTuple):
    """A square of a room, as a model is shown it, and the points that are asked for."""

    shown: np.ndarray  # [P, 3]
    asked: np.ndarray  # [Q, 3]
    truth: np.ndarray  # [Q]


def name_of(size: float, weighting: str) -> str:
    return f"{size:g}m_{weighting}"


def changes() -> dict[str, dict[str, Any]]:
    """What of the recipe each variant changes."""
    found = {}
    for size in SIZES:
        for weighting in WEIGHTINGS:
            change = PLAIN if weighting == "plain" else {"data": {}}
            found[name_of(size, weighting)] = {**change, "data": {**change["data"], "crop": size}}
    return found


def crops_of(rooms: Sequence[Room], found: Sequence[Square], how: Chunking) -> list[Crop]:
    made = []
    for room, inside, own in ((rooms[one.room], one.inside, one.own) for one in found):
        points = room.points[inside]
        made.append(Crop(points[pick(points, how.n_points)], room.points[own], room.labels[own]))
    return made


def premise(rooms: Sequence[Room], found: Sequence[Square]) -> float:
    """The share of beam points whose crop shows the ceiling too."""
    n, shown = 0, 0
    for one in found:
        labels = rooms[one.room].labels
        own = int((labels[one.own] == BEAM).sum())
        n += own
        shown += own * int((labels[one.inside] == CEILING).sum() >= FEW)
    return shown / n if n else float("nan")


def confusion(perceiver: Perceiver, scenes: Any, crops: Sequence[Crop], how: Chunking) -> np.ndarray:
    """[true, told] numbers of points, after the whole budget."""
    model, n = perceiver.model, len(CLASSES)
    assert isinstance(model.task, Parts)
    count = np.zeros(n * n, np.int64)
    for start in progress(range(0, len(crops), AT_ONCE), label="labelling"):
        some = crops[start : start + AT_ONCE]
        own, rows = scenes[start : start + AT_ONCE], np.arange(len(some))
        looks = perceiver.played(own, ExitRule()).looks
        view = model.encoder.view(own)
        for look in looks:
            view.embed(rows, look.place)
        for i, crop in enumerate(some):
            if len(crop.asked):
                steps = steps_in(crop.shown, crop.asked.astype(np.float64), how)
                told = model.task.points(looks[-1].belief[i], view, i, steps, 0).argmax(axis=1)
                count += np.bincount(crop.truth * n + told, minlength=n * n)
    return count.reshape(n, n)


def ious(count: np.ndarray) -> np.ndarray:
    """[true, told] -> IoU of each class; nan of those that are not there."""
    hit, true = np.diag(count), count.sum(axis=1)
    union = true + count.sum(axis=0) - hit
    return np.where(true > 0, hit / np.maximum(union, 1), np.nan)


def measured(count: np.ndarray) -> dict[str, float]:
    iou = ious(count)
    return {
        "beam": float(iou[BEAM]),
        "column": float(iou[COLUMN]),
        "beam_taken_for_ceiling": float(count[BEAM, CEILING] / max(1, count[BEAM].sum())),
        "miou": float(np.nanmean(iou)),
        "accuracy": float(np.diag(count).sum() / count.sum()),
    }


def verdict(rows: Sequence[dict[str, Any]]) -> str:
    """Whether Beam is none at 1 m, whatever the weighting, and some at 2 m."""
    beam = {size: [row["beam"] for row in rows if row["crop"] == size] for size in SIZES}
    near, far = max(beam[SIZES[0]]), max(beam[SIZES[1]])
    return "holds" if near < NOTHING <= far else "fails"


def summed(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and spread over the seeds of each variant."""
    found = []
    for size in SIZES:
        for weighting in WEIGHTINGS:
            own = [row for row in rows if row["crop"] == size and row["weighting"] == weighting]
            line: dict[str, Any] = {"crop": size, "weighting": weighting, "seeds": len(own)}
            for key in ("beam", "column", "beam_taken_for_ceiling", "miou", "accuracy"):
                values = [row[key] for row in own]
                line[key] = float(np.mean(values))
                line[f"{key}_spread"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
            found.append(line)
    return found


def demand_rooms(how: Recipe) -> None:
    if how.data.room_crops is None or not isinstance(how.task, PartsRecipe):
        raise UsageError(f"recipe '{how.name}' is not about rooms; `study beam` trains rooms or s3dis")


def run(
    recipe: str | Recipe = "rooms", *, seeds: Sequence[int] = (0, 1, 2), epochs: int | None = None,
    data: str | None = None, split: str = "test", limit: int | None = None, out: Path = Path("study-beam"),
) -> dict[str, Any]:  # fmt: skip
    """Train the variants (those that are there are read), answer all points, write table, picture and report."""
    how = trained.wanted(recipe, epochs, floating=False)
    demand_rooms(how)
    files.make_folder(out)
    models = trained.finished(trained.jobs(how, changes(), seeds, out), data, None)
    rooms = rooms_of(how.data.name, data, split)[:limit]
    if split == "test":
        say(f"this reads the test split ({len(rooms)} rooms); log it, with what for")
    rows, shown, classes = [], {}, []
    for size in SIZES:
        found = squares(rooms, size)
        shown[f"{size:g}"] = premise(rooms, found)
        crops, scenes = crops_of(rooms, found, how.chunking), None
        for weighting in WEIGHTINGS:
            for seed, path in zip(seeds, models[name_of(size, weighting)], strict=True):
                perceiver, _ = trained.deployed_form(path)
                if scenes is None:
                    scenes = perceiver.scenes(np.stack([crop.shown for crop in crops]))
                    scenes = scenes.asking(np.zeros(len(crops), np.int64))
                count = confusion(perceiver, scenes, crops, how.chunking)
                rows.append({"crop": size, "weighting": weighting, "seed": seed, **measured(count)})
                classes += [
                    {"crop": size, "weighting": weighting, "seed": seed, "class": kind, "iou": float(iou)}
                    for kind, iou in zip(CLASSES, ious(count), strict=True)
                    if np.isfinite(iou)
                ]
    report = {
        "recipe": how.name, "epochs": how.train.epochs, "seeds": list(seeds), "split": split, "rooms": len(rooms),
        "beam_points_with_ceiling": shown, "rows": summed(rows), "trainings": rows, "verdict": verdict(summed(rows)),
    }  # fmt: skip
    return written(out, "beam", report, {"": rows, "_classes": classes}, picture)


def picture(path: Path, report: dict[str, Any]) -> Path:
    """Beam and Column, a bar for each variant, a dot for each training."""
    figure, panels = plots.figure(2)
    for panel, key in zip(panels, ("beam", "column"), strict=True):
        for at, row in enumerate(report["rows"]):
            panel.bar(at, 100.0 * row[key], color="C0" if row["weighting"] == "plain" else "C1", width=0.7)
            own = [
                one for one in report["trainings"] if (one["crop"], one["weighting"]) == (row["crop"], row["weighting"])
            ]
            panel.plot([at] * len(own), [100.0 * one[key] for one in own], "k.", markersize=4)
        panel.set_xticks(range(len(report["rows"])))
        panel.set_xticklabels([f"{row['crop']:g} m\n{row['weighting']}" for row in report["rows"]])
        panel.set(ylabel=f"{key.capitalize()} IoU in %")
    return plots.saved(figure, path)


def text(report: dict[str, Any]) -> str:
    """For people."""
    rows = [
        (
            f"{row['crop']:g} m", row["weighting"],
            *(share(row[key], row[f"{key}_spread"]) for key in ("beam", "column", "beam_taken_for_ceiling", "miou")),
        )
        for row in report["rows"]
    ]  # fmt: skip
    shown = report["beam_points_with_ceiling"]
    seen = ", ".join(f"{100.0 * value:.1f} % at {size} m" for size, value in shown.items())
    lines = [
        f"IoU in %, {report['rooms']} rooms of the {report['split']} split, {len(report['seeds'])} trainings each "
        "(± their spread)",
        table(rows, ("crop", "weighting", "Beam", "Column", "beam taken for ceiling", "mIoU")),
        f"beam points whose crop shows the ceiling too: {seen}",
        f"the prediction (Beam none at 1 m whatever the weighting, some at 2 m) {report['verdict']}",
    ]
    return "\n".join(lines)
