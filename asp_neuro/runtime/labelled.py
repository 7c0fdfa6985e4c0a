"""Labelled points as a file: x, y, z, part, margin, accepted, a row for every row that was given (ply, npz, csv)."""

from __future__ import annotations

import colorsys
from pathlib import Path

import numpy as np

from asp_neuro import files
from asp_neuro.errors import UsageError
from asp_neuro.model.points import NONE, PartAnswer

KINDS = (".ply", ".npz", ".csv")
COLUMNS = ("x", "y", "z", "label", "margin", "accepted")
GREY = (128, 128, 128)


def check_kind(path: Path) -> None:
    """Refuse a name that tells no kind, before anything is computed."""
    if path.suffix.lower() not in KINDS:
        raise UsageError(f"--out {path}: unknown kind of file '{path.suffix}'; known: {' '.join(KINDS)}")
    files.demand_place(path)


def colour(part: int) -> tuple[int, int, int]:
    """Of a part; neighbours in number lie far apart on the wheel."""
    if part == NONE:
        return GREY
    red, green, blue = colorsys.hsv_to_rgb((part * 0.61803398875) % 1.0, 0.65, 0.9)
    return round(255 * red), round(255 * green), round(255 * blue)


def write(path: Path, points: np.ndarray, answer: PartAnswer) -> Path:
    """Points [P, 3] float64 as they came, with what was answered of each."""
    with files.writing(path) as file:
        match path.suffix.lower():
            case ".npz":
                np.savez_compressed(
                    file, points=points, labels=answer.labels.astype(np.int16),
                    margins=answer.point_margins, accepted=answer.accepted, accepted_each=answer.accepted_each,
                )  # fmt: skip
            case ".csv":
                rows = zip(points.tolist(), answer.labels.tolist(), answer.point_margins.tolist(),
                           answer.accepted.tolist(), strict=True)  # fmt: skip
                text = [",".join(COLUMNS)]
                text += [f"{x!r},{y!r},{z!r},{part},{gap!r},{int(ok)}" for (x, y, z), part, gap, ok in rows]
                file.write(("\n".join(text) + "\n").encode())
            case _:
                file.write(_ply(points, answer))
    return path


def _ply(points: np.ndarray, answer: PartAnswer) -> bytes:
    kinds = [("x", "<f8", "double"), ("y", "<f8", "double"), ("z", "<f8", "double"), ("red", "u1", "uchar"),
             ("green", "u1", "uchar"), ("blue", "u1", "uchar"), ("label", "<i2", "short"), ("margin", "<f4", "float"),
             ("accepted", "u1", "uchar")]  # fmt: skip
    record = np.empty(len(points), dtype=[(name, kind) for name, kind, _ in kinds])
    record["x"], record["y"], record["z"] = points.T
    shade = {part: colour(part) for part in np.unique(answer.labels).tolist()}
    record["red"], record["green"], record["blue"] = np.array([shade[part] for part in answer.labels.tolist()]).T
    record["label"], record["margin"], record["accepted"] = answer.labels, answer.point_margins, answer.accepted
    head = ["ply", "format binary_little_endian 1.0", f"element vertex {len(points)}"]
    head += [f"property {word} {name}" for name, _, word in kinds] + ["end_header", ""]
    return "\n".join(head).encode() + record.tobytes()
