"""From what a person types to images: as `places`, for data sets of pictures."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from asp_neuro.data.clouds import check_numbers, check_split
from asp_neuro.data.clutter import Rule, drawn_clutter, mnist_clutter
from asp_neuro.data.folder import files_of_split
from asp_neuro.data.imagenette import imagenette
from asp_neuro.data.photos import SUFFIXES, read_photo
from asp_neuro.data.pictures import ImageSet
from asp_neuro.data.places import Place
from asp_neuro.errors import InputError, MissingError, UsageError, nearest
from asp_neuro.report import progress, say
from asp_neuro.scenes.image import Gaze

STROKES = "strokes"  # built in
FILES = {"clutter": "mnist_train.npz", "imagenette": "imagenette128_train.npz"}  # what tells where a data set lies
IMAGE_NAMES = (STROKES, *FILES)


def locate_images(name: str, data: str | Path | None = None) -> Place:
    """Where the images of a recipe are: `data` (a name or a path), else $ASP_NEURO_DATA, else ./data.

    A path that does not hold the recipe's data set is a folder of pictures.
    """
    if data is not None and str(data) in IMAGE_NAMES:
        name, data = str(data), None
    if data is not None:
        path = Path(data).expanduser()
        if not os.path.exists(path):
            hint = nearest(str(path), IMAGE_NAMES) if path.parent == Path(".") else ""
            raise MissingError(f"{path}: no such folder or built-in name{hint}")
        if path.is_file():
            raise UsageError(f"{path}: one file is no data set; give a single picture as --input")
        return Place(name, path) if name in FILES and (path / FILES[name]).is_file() else Place("folder", path)
    if name == STROKES:
        return Place(STROKES)
    if name not in FILES:
        raise UsageError(f"unknown data '{name}'{nearest(name, IMAGE_NAMES)}")
    variable = os.environ.get("ASP_NEURO_DATA")
    for base in (Path(p).expanduser() for p in (variable, "data") if p):
        if (base / FILES[name]).is_file():
            return Place(name, base)
    places = f"--data (not given), $ASP_NEURO_DATA ({variable or 'not set'}), ./data"
    raise MissingError(f"{name} not found ({FILES[name]}); looked at {places}.\nSay where it is with --data FOLDER.")


def load_images(
    data: str | Path | Place, split: str, how: Gaze, *, seed: int = 0, classes: tuple[str, ...] | None = None
) -> ImageSet:
    """One split of a data set: a name of IMAGE_NAMES, a path, or a Place from `locate_images`.

    seed     of images that are generated: other places of the digits, other pieces; splits do not depend on it
    classes  a model's classes: labels are renumbered to them, and a label outside of them is an error
    """
    check_split(split)
    check_numbers(1, seed)
    place = data if isinstance(data, Place) else locate_images(STROKES, data)
    found = _read(place, split, how, seed)
    return found if classes is None else found.relabelled(tuple(classes))


def _read(place: Place, split: str, how: Gaze, seed: int) -> ImageSet:
    if place.name == "folder":
        assert place.path is not None
        return read_folder(place.path, split, how)
    if place.name == "imagenette":
        return imagenette(_folder(place), split, how)
    if how.channels != 1:
        raise UsageError(f"{place.name} has no colours, and this model looks at {how.channels} channels")
    rule = Rule(how.size)
    return (
        drawn_clutter(split, rule, seed) if place.name == STROKES else mnist_clutter(_folder(place), split, rule, seed)
    )


def _folder(place: Place) -> Path:
    path = place.path if place.path is not None else locate_images(place.name).path
    assert path is not None  # only what is built in has none
    return path


def read_folder(root: Path, split: str, how: Gaze) -> ImageSet:
    """The pictures of one split: class/split/file, or class/file with a seeded split."""
    paths, names, classes = files_of_split(root, split, SUFFIXES, "pictures")
    pixels = np.empty((len(paths), *how.shape), dtype=np.uint8)
    notes: dict[str, int] = {}
    for row, path in enumerate(progress(paths, label="reading pictures")):
        photo = read_photo(path, how)
        pixels[row] = photo.pixels
        for note in photo.notes:
            kind = note.split(" of ")[0] if note.startswith("Only") else note
            notes[kind.rstrip("0123456789 x")] = notes.get(kind.rstrip("0123456789 x"), 0) + 1
    source = f"{root}, {split} split"
    for note, n in notes.items():
        say(f"{source}: {n} of {len(paths)} pictures: {note}{'' if note.endswith('.') else ' square is looked at.'}")
    labels = np.array([classes.index(name.split("/")[0]) for name in names], np.int64)
    if not len(labels):
        raise InputError(f"{source}: no pictures")
    return ImageSet(pixels, labels, tuple(names), classes, source)
