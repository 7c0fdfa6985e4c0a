"""From what a person types (`--data shapes`, `--data ~/clouds`, nothing) to clouds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from asp_neuro.data.axes import check_up
from asp_neuro.data.clouds import CloudSet, check_numbers, check_split
from asp_neuro.data.folder import read_folder
from asp_neuro.data.intake import Sampling
from asp_neuro.data.modelnet import MODELNET10, form_of, read_modelnet
from asp_neuro.data.shapes import shapes
from asp_neuro.data.splits import RANDOM, check_carve
from asp_neuro.errors import MissingError, UsageError, nearest

NAMES = ("shapes", "modelnet10", "modelnet40")
INSIDE = ("", "ModelNet40", "modelnet40", "modelnet40_normal_resampled")  # where ModelNet may lie in a data folder
INSIDE_TEN = ("ModelNet10", "modelnet10")


@dataclass(frozen=True)
class Place:
    """Where data are, and what they are: a name of NAMES, or 'folder'."""

    name: str
    path: Path | None = None  # None: built in


def locate(name: str, data: str | Path | None = None) -> Place:
    """Where the data of a recipe are: `data` (a name or a path), else $ASP_NEURO_DATA, else ./data.

    `name` is what the recipe calls its data; a `data` that is itself a name takes its place. A path that holds no
    ModelNet is a folder of clouds.
    """
    if data is not None and str(data) in NAMES:
        name, data = str(data), None
    if data is not None:
        return _at(name, Path(data).expanduser())
    if name not in NAMES:
        raise UsageError(f"unknown data '{name}'{nearest(name, NAMES)}")
    return Place("shapes") if name == "shapes" else _search(name)


def _at(name: str, path: Path) -> Place:
    """What lies at a path that the user gave."""
    if not os.path.exists(path):  # False, not an error, where a parent may not be read
        hint = nearest(str(path), NAMES) if path.parent == Path(".") else ""
        raise MissingError(f"{path}: no such folder, file or built-in name{hint}")
    wanted = name if name in ("modelnet10", "modelnet40") else "modelnet40"
    for inner in _candidates(wanted, path):
        if form_of(inner):
            return Place(wanted, inner)
    if path.is_file():
        raise UsageError(f"{path}: one file is no data set; give a single cloud as --input, or a ModelNet npz here")
    return Place("folder", path)


def _search(name: str) -> Place:
    bases = [Path(p) for p in (os.environ.get("ASP_NEURO_DATA"), "data") if p]
    for base in bases:
        for path in _candidates(name, base.expanduser()):
            if form_of(path):
                return Place(name, path)
    places = ["--data (not given)", _words("$ASP_NEURO_DATA", os.environ.get("ASP_NEURO_DATA")), "./data"]
    raise MissingError(f"{name} not found; looked at {', '.join(places)}.\nSay where it is with --data FOLDER.")


def _words(variable: str, value: str | None) -> str:
    return f"{variable} ({value})" if value else f"{variable} (not set)"


def _candidates(name: str, base: Path) -> list[Path]:
    inside = INSIDE_TEN + INSIDE if name == "modelnet10" else INSIDE
    return [base / part for part in inside] if base.is_dir() else [base]


def load_clouds(
    data: str | Path | Place, split: str, *, n_points: int = 1024, up: str | None = None, seed: int = 0,
    classes: tuple[str, ...] | None = None, splits: str = RANDOM, sampling: Sampling | None = None,
) -> CloudSet:  # fmt: skip
    """One split of a data set: a name of NAMES, a path, or a Place from `locate`.

    up       the axis that points up in the files; None is what the format says (y; official ModelNet meshes: z)
    seed     of the data (which shapes, which points of a mesh), never of the training; splits do not depend on it
    classes  a model's classes: labels are renumbered to them, and a label outside of them is an error
    splits   how validation and calibration are carved out of ModelNet's train: a rule of CARVES; other data have splits
             of their own, which no rule changes
    sampling  how a model's scenes are sampled (`intake.sampling_of`), instead of n_points
    """
    check_split(split)
    how = sampling or Sampling(n_points)
    check_numbers(how.n_points, seed)
    check_carve(splits)
    if up is not None:
        check_up(up)
    place = data if isinstance(data, Place) else locate(_guess(classes), data)
    clouds = _read(place, split, how, up, seed, splits)
    return clouds if classes is None else clouds.relabelled(tuple(classes))


def _guess(classes: tuple[str, ...] | None) -> str:
    """A ModelNet of which we only know the path: ten-way if the model's classes are those ten."""
    return "modelnet10" if classes is not None and set(classes) == set(MODELNET10) else "modelnet40"


def _read(place: Place, split: str, how: Sampling, up: str | None, seed: int, splits: str) -> CloudSet:
    if place.name == "shapes":
        if up not in (None, "y"):
            raise UsageError(f"the built-in shapes are y up; up={up} does not apply to them")
        return shapes(split, how.n_points, seed)
    path = place.path if place.path is not None else locate(place.name).path
    assert path is not None  # only the built-in shapes have none
    if place.name == "folder":
        return read_folder(path, split, how, up or "y", seed)
    return read_modelnet(path, place.name, split, how, up, seed, splits)
