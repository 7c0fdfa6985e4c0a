"""Pictures of labelled points: by part, and by the look that first showed them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro.model.points import PartAnswer
from asp_neuro.runtime.labelled import colour
from asp_neuro.scenes.cloud import GRID, Chunks
from asp_neuro.studies.plots import figure as figure_of
from asp_neuro.studies.plots import saved

MOST = 6000  # points that are drawn


def labelled_cloud(path: Path, chunks: Chunks, queries: np.ndarray, answer: PartAnswer, names: tuple[str, ...]) -> Path:
    """One cloud twice: coloured by part (faint where not accepted), and by the order of the looks."""
    figure, axes = figure_of(2)
    there = np.flatnonzero(np.isfinite(queries.astype(np.float64)).all(axis=1))
    some = there[:: max(1, len(there) // MOST)]
    points = queries[some].astype(np.float64) / GRID
    labels = answer.labels[some]
    left, right = (_solid(figure, axis) for axis in axes)
    for part in np.unique(labels):
        own = labels == part
        sure = answer.accepted[some][own] if answer.accepted.any() else np.ones(own.sum(), dtype=bool)
        shade = tuple(value / 255.0 for value in colour(int(part)))
        _scatter(left, points[own][sure], shade, names[part])
        _scatter(left, points[own][~sure], (*shade, 0.2), None)
    left.legend(loc="lower left", fontsize=7, frameon=False)
    left.set_title(f"{answer.class_name or ''}: parts (faint: not accepted)", fontsize=10)
    step = _steps(chunks, answer)[_nearest(points, chunks)]
    seen = step <= len(answer.order)
    _scatter(right, points[~seen], (0.8, 0.8, 0.8), None)
    ends = (0.5, len(answer.order) + 0.5)
    drawn = right.scatter(*_upright(points[seen]), c=step[seen], s=4, cmap="viridis", vmin=ends[0], vmax=ends[1])
    bar = figure.colorbar(drawn, ax=right, shrink=0.7, label="look (grey: not seen)")
    bar.set_ticks(np.unique(np.linspace(1, len(answer.order), 4).round()))
    right.set_title("order of the looks", fontsize=10)
    return saved(figure, path)


def order_curves(path: Path, report: dict[str, Any]) -> Path:
    """Instance mIoU after some looks, a line for each rule."""
    figure, axis = figure_of(1)
    for rule, found in report["rules"].items():
        at = [int(k) for k in found["miou_at"]]
        axis.plot(at, [100.0 * value for value in found["miou_at"].values()], marker="o", markersize=3, label=rule)
    axis.set_xlabel("looks")
    axis.set_ylabel("instance mIoU in %")
    axis.legend(frameon=False, fontsize=8)
    return saved(figure, path)


def robustness_bars(path: Path, report: dict[str, Any]) -> Path:
    """Instance mIoU at full budget, a bar for each corruption."""
    figure, axis = figure_of(1)
    rows = [row for row in report["corruptions"] if row["k"] == report["budget"]]
    axis.barh([row["corruption"] for row in rows], [100.0 * row["learned"] for row in rows])
    axis.invert_yaxis()
    axis.set_xlabel("instance mIoU in %, full budget")
    return saved(figure, path)


def exit_curve(path: Path, report: dict[str, Any]) -> Path:
    """Instance mIoU against looks: fixed numbers, and exits at all thresholds."""
    figure, axis = figure_of(1)
    fixed, exits = report["fixed"], report["sweep"]
    axis.plot([one["looks"] for one in fixed], [100.0 * one["miou"] for one in fixed], "k-", label="fixed")
    axis.plot([one["looks"] for one in exits], [100.0 * one["miou"] for one in exits], "C0.-", label="exit at a margin")
    for one in exits:
        if one["certified"]:
            axis.plot(one["looks"], 100.0 * one["miou"], "C1*", markersize=12, label="certified exit")
    axis.set_xlabel("looks, mean")
    axis.set_ylabel("instance mIoU in %")
    axis.legend(frameon=False, fontsize=8)
    return saved(figure, path)


def halves_curves(path: Path, report: dict[str, Any]) -> Path:
    """How many halves had how large a risk, for both promises."""
    figure, axes = figure_of(2)
    for axis, row in zip(axes, report["rows"], strict=True):
        risk = np.sort([100.0 * one["risk"] for one in report["each"] if one["promise"] == row["promise"]])
        axis.plot(risk, 100.0 * np.arange(1, len(risk) + 1) / len(risk), color="C0")
        axis.axvline(100.0 * row["allowed"], color="0.5", linestyle="--", linewidth=0.8)
        axis.set(xlabel=f"promise {row['promise']}: counted, in % (dashed: allowed)", ylabel="halves below, in %")
    return saved(figure, path)


def _solid(figure: Any, axis: Any) -> Any:
    place = axis.get_subplotspec()
    axis.remove()
    solid = figure.add_subplot(place, projection="3d")
    solid.set_axis_off()
    solid.set_box_aspect((1, 1, 1))
    return solid


def _upright(points: np.ndarray) -> tuple[np.ndarray, ...]:
    return points[:, 0], -points[:, 2], points[:, 1]


def _scatter(axis: Any, points: np.ndarray, shade: Any, name: str | None) -> None:
    if len(points):
        axis.scatter(*_upright(points), color=[shade], s=4, label=name)


def _nearest(points: np.ndarray, chunks: Chunks) -> np.ndarray:
    """The group of each point."""
    centres = chunks.centres()[0] / GRID
    return np.asarray(((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1))


def _steps(chunks: Chunks, answer: PartAnswer) -> np.ndarray:
    """[G] the look that first showed each group, from 1; one more than there were for those never seen."""
    at = np.full(chunks.n_chunks, len(answer.order) + 1)
    at[list(answer.order)] = np.arange(1, len(answer.order) + 1)
    second = np.where(chunks.second[0] >= 0, at[chunks.second[0]], len(answer.order) + 1)
    return np.minimum(at[chunks.first[0]], second)
