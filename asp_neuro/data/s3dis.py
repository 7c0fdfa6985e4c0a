"""S3DIS in its official folder layout: Area_1/office_1/Annotations/chair_1.txt, lines of x y z r g b, z up.

split         rooms
test          Area_5, as the literature has it
validation    of the other areas, by name: a tenth
calibration   of the other areas, by name: 15 %
train         the rest
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from asp_neuro.data.axes import to_y_up
from asp_neuro.data.clouds import check_split
from asp_neuro.data.files import check_file, reason
from asp_neuro.data.folder import visible
from asp_neuro.data.intake import rounded
from asp_neuro.data.rooms import CLASSES, Room
from asp_neuro.data.splits import CARVED, by_share
from asp_neuro.errors import InputError, MissingError
from asp_neuro.report import progress

TEST_AREA = "Area_5"
OTHERS = {"stairs": "clutter"}  # classes of the files that the benchmark counts as another
N_COLUMNS = 6
MAX_BYTES = 2_000_000_000


def is_s3dis(path: Path) -> bool:
    return path.is_dir() and any(p.name.startswith("Area_") and p.is_dir() for p in visible(path))


def room_folders(root: Path, split: str) -> list[Path]:
    """The rooms of a split, by name."""
    check_split(split)
    if not is_s3dis(root):
        raise MissingError(f"{root}: no S3DIS there: expected folders Area_1 to Area_6 of rooms with Annotations")
    areas = [p for p in visible(root) if p.is_dir() and p.name.startswith("Area_")]
    rooms = [p for area in areas for p in visible(area) if p.is_dir()]
    test = [p for p in rooms if p.parent.name == TEST_AREA]
    rest = [p for p in rooms if p.parent.name != TEST_AREA]
    if split == "test":
        chosen = test
    else:
        parts = by_share([p.relative_to(root).as_posix() for p in rest], CARVED)
        chosen = [rest[i] for i in parts[split]]
    if not chosen:
        raise MissingError(f"{root}: no room of the split '{split}' ({len(areas)} areas, {len(rooms)} rooms)")
    return chosen


def read_s3dis(root: Path, split: str, limit: int | None = None) -> list[Room]:
    """The rooms of one split."""
    folders = room_folders(root, split)[:limit]
    return [read_room(folder) for folder in progress(folders, label="reading rooms")]


def read_room(folder: Path) -> Room:
    """One room from its Annotations, y up."""
    files = [p for p in visible(folder / "Annotations") if p.suffix == ".txt"] if folder.is_dir() else []
    if not files:
        raise InputError(f"{folder / 'Annotations'}: no files like chair_1.txt in it")
    points, colours, labels = [], [], []
    for file in files:
        table = _table(file)
        points.append(table[:, :3])
        colours.append(table[:, 3:].astype(np.uint8))
        labels.append(np.full(len(table), label_of(file), np.int64))
    whole = rounded(to_y_up(np.concatenate(points), "z"))
    name = f"{folder.parent.name}/{folder.name}"
    return Room(whole, np.concatenate(colours), np.concatenate(labels), name)


def label_of(file: Path) -> int:
    """chair_1.txt -> the number of 'chair'."""
    kind = file.stem.rsplit("_", 1)[0].lower()
    kind = OTHERS.get(kind, kind)
    if kind not in CLASSES:
        raise InputError(f"{file}: '{kind}' is none of the classes {', '.join(CLASSES)}")
    return CLASSES.index(kind)


def _table(file: Path) -> np.ndarray:
    """[N, 6] float64; a line that is wrong is named (the official release has some)."""
    check_file(file, MAX_BYTES)
    try:
        text = file.read_bytes().decode("latin-1")
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {reason(error)}") from None
    lines = text.split("\n")
    try:
        table = np.loadtxt(lines, np.float64, ndmin=2)
    except ValueError:
        raise InputError(f"{file}: {_first_bad(lines)}") from None
    if table.size == 0:
        raise InputError(f"{file}: no points")
    if table.shape[1] != N_COLUMNS:
        raise InputError(f"{file}: {table.shape[1]} columns, expected 6: x y z r g b")
    bad = ~np.isfinite(table).all(axis=1) | (table[:, 3:] < 0).any(axis=1) | (table[:, 3:] > 255).any(axis=1)
    if bad.any():
        row = int(bad.argmax())
        raise InputError(f"{file}: point {row + 1}: not finite, or a colour outside 0 to 255")
    return np.asarray(table)


def _first_bad(lines: list[str]) -> str:
    """Which line is no row of six numbers."""
    for number, line in enumerate(lines, start=1):
        words = line.split()
        try:
            right = not words or len([float(word) for word in words]) == N_COLUMNS
        except ValueError:
            right = False
        if not right:
            return f"line {number}: '{line[:60]}' is not x y z r g b; mend the line and read it again"
    return "not a table of x y z r g b"
