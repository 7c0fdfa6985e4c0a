"""A folder of clouds: class/split/file, or class/file with a seeded split."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from asp_neuro.data.clouds import CloudSet
from asp_neuro.data.files import READERS, reason, take_file
from asp_neuro.data.intake import CUT_FOR, Sampling
from asp_neuro.data.splits import CARVED, SHARES, by_share
from asp_neuro.errors import InputError, MissingError
from asp_neuro.report import progress, say

SPLIT_NAMES = {"train": "train", "validation": "validation", "val": "validation", "calibration": "calibration",
               "cal": "calibration", "test": "test"}  # fmt: skip


def files_of_split(
    root: Path, split: str, suffixes: Iterable[str] = READERS, what: str = "clouds"
) -> tuple[list[Path], list[str], tuple[str, ...]]:
    """The files of one split, in the order of their names (class/...), these names, and the classes."""
    classes = class_folders(root)
    paths = sorted(_choose(root, split, {c: _files_of(root / c, tuple(suffixes)) for c in classes}, what))
    return paths, [p.relative_to(root).as_posix() for p in paths], classes


def read_folder(root: Path, split: str, how: Sampling, up: str, seed: int) -> CloudSet:
    """The clouds of one split, in the order of their names."""
    paths, names, classes = files_of_split(root, split)
    labels = [classes.index(name.split("/")[0]) for name in names]
    source = f"{root}, {split} split, {up} up"
    return gather(paths, names, labels, classes, source, how, up, seed)


def gather(
    paths: Sequence[Path], names: Sequence[str], labels: Sequence[int], classes: Sequence[str], source: str,
    how: Sampling, up: str, seed: int,
) -> CloudSet:  # fmt: skip
    """Read the files one by one into one array; what was not taken as it came is said."""
    points = np.empty((len(paths), how.n_points, 3), np.float32)
    notes: list[tuple[str, str]] = []
    for i, path in enumerate(progress(paths, label="reading clouds")):
        taken = take_file(path, replace(how, least=2), up=up, seed=seed)
        points[i] = taken.points
        notes += [(names[i], note) for note in taken.notes if not note.endswith(CUT_FOR)]  # which is nothing unusual
    for line in _summed(notes, len(paths)):
        say(f"{source}: {line}")
    return CloudSet(points, np.array(labels, np.int64), tuple(names), tuple(classes), source)


def _summed(notes: Sequence[tuple[str, str]], n: int) -> list[str]:
    """Notes on clouds of a set, (name, note) each: a line for all that differ in their numbers alone."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for name, note in notes:
        kinds.setdefault(re.sub(r"\d[\d.e+-]*", "#", note), []).append((name, note))
    return [f"{len(told)} of {n} clouds, for one {told[0][0]}: {told[0][1]}" for told in kinds.values()]


def visible(folder: Path) -> list[Path]:
    """What a person sees in the folder, by name."""
    try:
        return sorted(p for p in folder.iterdir() if not p.name.startswith((".", "__")))
    except OSError as error:
        raise InputError(f"{folder}: cannot be read: {reason(error)}") from error


def class_folders(root: Path) -> tuple[str, ...]:
    classes = tuple(p.name for p in visible(root) if p.is_dir())
    if not classes:
        raise InputError(f"{root}: no class folders in it; expected class/split/file or class/file")
    return classes


def _files_in(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    return [p for p in visible(folder) if p.suffix.lower() in suffixes and not p.is_dir()]


def _files_of(folder: Path, suffixes: tuple[str, ...]) -> dict[str, list[Path]]:
    """The clouds of one class by split; the key '' holds those that lie in no split folder."""
    inside: dict[str, list[Path]] = {}
    for child in visible(folder):
        if child.is_dir():
            if child.name.lower() not in SPLIT_NAMES:
                raise InputError(f"{child}: not a split folder; expected {', '.join(SPLIT_NAMES)}")
            inside.setdefault(SPLIT_NAMES[child.name.lower()], []).extend(_files_in(child, suffixes))
    if loose := _files_in(folder, suffixes):
        inside[""] = loose
    if not any(inside.values()):
        raise InputError(f"{folder}: a class with no samples; known kinds of files: {' '.join(suffixes)}")
    return inside


def _choose(root: Path, split: str, files: dict[str, dict[str, list[Path]]], what: str) -> list[Path]:
    """The files of one split over all classes."""
    kinds = {s for inside in files.values() for s in inside}
    if "" in kinds and len(kinds) > 1:
        raise InputError(f"{root}: some classes have split folders and some files lie outside of them")
    if "" in kinds:
        return _part(root, [p for inside in files.values() for p in inside[""]], SHARES, split, what)
    given = [p for inside in files.values() for p in inside.get(split, [])]
    if split in kinds and split != "train":
        return given
    if split == "test" or "train" not in kinds:
        raise MissingError(f"{root}: no split '{split}'; found {', '.join(sorted(kinds))}")
    train = [p for inside in files.values() for p in inside.get("train", [])]
    return _part(root, train, {s: share for s, share in CARVED.items() if s not in kinds}, split, what)


def _part(root: Path, paths: list[Path], shares: dict[str, float], split: str, what: str) -> list[Path]:
    parts = by_share([p.relative_to(root).as_posix() for p in paths], shares)
    if not len(parts[split]):
        raise InputError(f"{root}: {len(paths)} {what} are too few for a split '{split}'")
    return [paths[i] for i in parts[split]]
