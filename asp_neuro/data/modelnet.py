"""ModelNet10 and ModelNet40, from any of the three forms in which people keep them.

    form     what lies in the folder                                              up
    npz      modelnet40_train*.npz and modelnet40_test*.npz                       y
    off      Class/train/*.off, Class/test/*.off: the official meshes             z
    text     modelnet40_normal_resampled: class/class_0001.txt and name lists     y

The official test split is the test split; calibration and validation are carved out of train by one of two rules
(see `splits`, `by_number`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from asp_neuro.data import by_number
from asp_neuro.data.axes import to_y_up
from asp_neuro.data.clouds import CloudSet
from asp_neuro.data.files import Npz, check_file
from asp_neuro.data.folder import class_folders, gather, visible
from asp_neuro.data.intake import Sampling, rounded
from asp_neuro.data.splits import BY_NUMBER, RANDOM, by_share, carve
from asp_neuro.errors import InputError, MissingError

MODELNET10 = ("bathtub", "bed", "chair", "desk", "dresser", "monitor", "night_stand", "sofa", "table", "toilet")
MODELNET40 = (
    "airplane", "bathtub", "bed", "bench", "bookshelf", "bottle", "bowl", "car", "chair", "cone", "cup", "curtain",
    "desk", "door", "dresser", "flower_pot", "glass_box", "guitar", "keyboard", "lamp", "laptop", "mantel", "monitor",
    "night_stand", "person", "piano", "plant", "radio", "range_hood", "sink", "sofa", "stairs", "stool", "table",
    "tent", "toilet", "tv_stand", "vase", "wardrobe", "xbox",
)  # fmt: skip
CLASSES = {"modelnet10": MODELNET10, "modelnet40": MODELNET40}
CARVED = {  # clouds of train that calibrate and validate
    "modelnet10": {"calibration": 600, "validation": 200},
    "modelnet40": {"calibration": 1200, "validation": 500},
}
UP = {"npz": "y", "off": "z", "text": "y"}
NPZ_KEYS = ("points", "labels", "names", "classes")


def form_of(path: Path) -> str | None:
    """'npz', 'off' or 'text' if the path holds ModelNet, else None."""
    if path.is_file():
        return "npz" if path.suffix == ".npz" and _official(path.name) else None
    if not path.is_dir():
        return None
    names = [p.name for p in visible(path)]
    if any(n.endswith(".npz") and _official(n) for n in names):
        return "npz"
    if any(n in ("modelnet40_shape_names.txt", "modelnet10_shape_names.txt") for n in names):
        return "text"
    return "off" if _has_meshes(path) else None


def _official(name: str) -> bool:
    return name.startswith(("modelnet40_train", "modelnet40_test"))


def _has_meshes(path: Path) -> bool:
    """Class/train or Class/test with .off meshes, all classes (or the folder itself) named as in ModelNet."""
    folders = [p for p in visible(path) if p.is_dir()]
    known = bool(folders) and ("modelnet" in path.name.lower() or all(p.name in MODELNET40 for p in folders))
    return known and any((p / s).is_dir() and any((p / s).glob("*.off")) for p in folders for s in ("train", "test"))


def read_modelnet(
    path: Path, name: str, split: str, how: Sampling, up: str | None, seed: int, splits: str = RANDOM
) -> CloudSet:
    """One split of `name` ('modelnet10' or 'modelnet40') from the folder or npz file at `path`."""
    form = form_of(path)
    if form is None:
        raise InputError(f"{path}: no ModelNet there: neither its npz files, nor its meshes, nor its text folders")
    if form == "off" and set(class_folders(path)) == set(MODELNET10):
        name = "modelnet10"  # whatever it was taken for: these meshes are no ModelNet40
    up = up or UP[form]
    source = f"{name} ({form}) in {path}, {split} split, {up} up"
    read = {"npz": _read_npz, "off": _read_off, "text": _read_text}[form]
    return read(path, name, split, how, up, seed, source, splits)


def official(split: str) -> str:
    return "test" if split == "test" else "train"


def in_split(name: str, names: list[str], split: str, where: Path, splits: str = RANDOM) -> np.ndarray:
    """Which names of an official split belong to `split`."""
    if split == "test":
        return np.arange(len(names))
    chosen = by_number.in_split(names, split, where) if splits == BY_NUMBER else _at_random(name, names, split)
    if not len(chosen):
        raise InputError(f"{where}: {len(names)} training shapes are too few for a split '{split}'")
    return chosen


def _at_random(name: str, names: list[str], split: str) -> np.ndarray:
    """An incomplete ModelNet is carved by the same shares."""
    sizes = CARVED[name]
    if 2 * sum(sizes.values()) <= len(names):
        parts = carve(names, sizes)
    else:
        full = {"modelnet10": 3991, "modelnet40": 9843}[name]
        parts = by_share(names, {s: size / full for s, size in sizes.items()})
    return parts[split]


def _read_npz(
    path: Path, name: str, split: str, how: Sampling, up: str, seed: int, source: str, splits: str
) -> CloudSet:
    file = _npz_file(path, official(split))
    with Npz(file) as archive:
        if missing := [k for k in NPZ_KEYS if k not in archive]:
            raise InputError(f"{file}: no array {', '.join(missing)}; found {', '.join(sorted(archive.keys()))}")
        labels, names, classes = _npz_labels(file, archive)
        keep = np.arange(len(names))
        if name == "modelnet10":
            keep, labels, classes = _npz_ten(file, archive, labels, classes)
        chosen = keep[in_split(name, [names[i] for i in keep], split, file, splits)]
        points = _npz_points(file, archive, len(names), chosen, how.n_points)
    if up != "y":
        points = to_y_up(points, up)
    return CloudSet(points, labels[chosen], tuple(names[i] for i in chosen), classes, source)


def _npz_file(path: Path, half: str) -> Path:
    """The train or test file: in the folder, or beside the file that was given."""
    folder = path.parent if path.is_file() else path
    found = sorted(folder.glob(f"modelnet40_{half}*.npz"))
    if path.is_file():
        same = path.with_name(path.name.replace("_train", f"_{half}", 1).replace("_test", f"_{half}", 1))
        found = [same] if same.is_file() else []
    if not found:
        raise MissingError(f"{folder}: no modelnet40_{half}*.npz, which holds the official {half} split")
    if len(found) > 1:
        raise InputError(f"{folder}: several files for the {half} split: {', '.join(p.name for p in found)}; name one")
    return found[0]


def _npz_labels(file: Path, archive: Npz) -> tuple[np.ndarray, list[str], tuple[str, ...]]:
    labels, names, classes = archive["labels"], archive["names"], archive["classes"]
    if labels.dtype.kind not in "iu" or names.dtype.kind != "U" or classes.dtype.kind != "U":
        raise InputError(f"{file}: labels must be integers, names and classes text")
    if labels.ndim != 1 or names.shape != labels.shape or classes.ndim != 1:
        raise InputError(f"{file}: {labels.shape} labels, {names.shape} names, {classes.shape} classes do not agree")
    labels = labels.astype(np.int64)
    outside = (labels < 0) | (labels >= len(classes))
    if outside.any():
        i = int(outside.argmax())
        raise InputError(f"{file}: label {labels[i]} of '{names[i]}' is outside the {len(classes)} classes")
    return labels, names.tolist(), tuple(classes.tolist())


def _npz_ten(
    file: Path, archive: Npz, labels: np.ndarray, classes: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Which clouds are in ModelNet10, and the labels in its own numbering."""
    mask, ten = archive["in_modelnet10"], archive["modelnet10_classes"]
    if mask.dtype != bool or mask.shape != labels.shape or ten.dtype.kind != "U" or ten.ndim != 1:
        raise InputError(f"{file}: in_modelnet10 must be one bool a cloud, modelnet10_classes text")
    order = tuple(ten.tolist())
    table = np.array([order.index(c) if c in order else -1 for c in classes], np.int64)
    keep = np.flatnonzero(mask)
    if (table[labels[keep]] < 0).any():
        wrong = classes[labels[keep][(table[labels[keep]] < 0).argmax()]]
        raise InputError(f"{file}: class '{wrong}' is marked in_modelnet10 but is not one of modelnet10_classes")
    return keep, table[labels], order


def _npz_points(file: Path, archive: Npz, n: int, chosen: np.ndarray, n_points: int) -> np.ndarray:
    """The chosen clouds as float32; stored in farthest-point order, so the first n_points are a good choice."""
    points = archive["points"]
    if points.dtype.kind != "f":
        raise InputError(f"{file}: points have type {points.dtype}, expected floats")
    if points.ndim != 3 or points.shape[0] != n or points.shape[2] != 3 or points.shape[1] == 0:
        raise InputError(f"{file}: points have shape {points.shape}, expected ({n}, points, 3)")
    picked = points[chosen][:, np.arange(n_points) % points.shape[1]]
    bad = ~np.isfinite(picked).all(axis=(1, 2))
    if bad.any():
        raise InputError(f"{file}: cloud {int(chosen[bad.argmax()])} is not finite (NaN or inf)")
    out = np.empty(picked.shape, np.float32)
    for start in range(0, len(out), 256):  # in parts: a whole ModelNet in float64 is large
        out[start : start + 256] = rounded(picked[start : start + 256])
    return out


def _read_off(
    path: Path, name: str, split: str, how: Sampling, up: str, seed: int, source: str, splits: str
) -> CloudSet:
    present = class_folders(path)
    classes = CLASSES[name] if set(present) >= set(CLASSES[name]) else present
    half = official(split)
    files = [(p.stem, label, p) for label, c in enumerate(classes) for p in _meshes(path / c / half)]
    if not files:
        raise MissingError(f"{path}: no meshes Class/{half}/*.off")
    if split != "test" and (hollow := [c for c in classes if not _meshes(path / c / half)]):
        raise InputError(f"{path / hollow[0] / half}: a class with no samples")
    files = sorted(files)
    chosen = in_split(name, [f[0] for f in files], split, path, splits)
    names, labels, paths = zip(*(files[i] for i in chosen))
    return gather(paths, names, labels, classes, source, how, up, seed)


def _meshes(folder: Path) -> list[Path]:
    return [p for p in visible(folder) if p.suffix.lower() == ".off"] if folder.is_dir() else []


def _read_text(
    path: Path, name: str, split: str, how: Sampling, up: str, seed: int, source: str, splits: str
) -> CloudSet:
    classes = tuple(_lines(path / f"{name}_shape_names.txt"))
    names = sorted(_lines(path / f"{name}_{official(split)}.txt"))
    if foreign := [n for n in names if n.rsplit("_", 1)[0] not in classes]:
        raise InputError(f"{path / f'{name}_{official(split)}.txt'}: '{foreign[0]}' is of no class in the shape names")
    chosen = [names[i] for i in in_split(name, names, split, path, splits)]
    kinds = [n.rsplit("_", 1)[0] for n in chosen]
    paths = [path / kind / f"{n}.txt" for kind, n in zip(kinds, chosen)]
    return gather(paths, chosen, [classes.index(k) for k in kinds], classes, source, how, up, seed)


def _lines(path: Path) -> list[str]:
    check_file(path)
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: binary content, expected a list of names") from error
