"""ShapeNetPart: 16 categories, 50 parts, from any of the three forms in which people keep it. y is up in all of them.

    form   what lies in the folder
    npz    shapenetpart_train.npz, shapenetpart_val.npz, shapenetpart_test.npz
    text   shapenetcore_partanno_segmentation_benchmark_v0_normal: synsetoffset2category.txt, train_test_split/*.json,
           SYNSET/ID.txt with x y z nx ny nz part
    hdf5   hdf5_data of the PointNet release: {train,val,test}_hdf5_file_list.txt, ply_data_*.h5 with data, label, pid;
           its shapes have no names

Splits: the official test split is test. Of the rest, "far" holds out shapes without near copies in train (`far`);
"official" validates with the official val split and calibrates with nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro.data import far
from asp_neuro.data.axes import check_up, to_y_up
from asp_neuro.data.clouds import check_numbers, check_split
from asp_neuro.data.files import MAX_BYTES, Npz, check_file, reason
from asp_neuro.data.folder import visible
from asp_neuro.data.intake import check_coordinates, rounded
from asp_neuro.data.parts import Catalogue, PartSet, check_parts, pick
from asp_neuro.errors import InputError, MissingError, UsageError, nearest
from asp_neuro.report import progress

SYNSETS = {
    "02691156": ("Airplane", 4), "02773838": ("Bag", 2), "02954340": ("Cap", 2), "02958343": ("Car", 4),
    "03001627": ("Chair", 4), "03261776": ("Earphone", 3), "03467517": ("Guitar", 3), "03624134": ("Knife", 2),
    "03636649": ("Lamp", 4), "03642806": ("Laptop", 2), "03790512": ("Motorbike", 6), "03797390": ("Mug", 2),
    "03948459": ("Pistol", 3), "04099429": ("Rocket", 3), "04225987": ("Skateboard", 3), "04379243": ("Table", 3),
}  # fmt: skip
CATALOGUE = Catalogue(tuple(name for name, _ in SYNSETS.values()), tuple(n for _, n in SYNSETS.values()))
FAR, OFFICIAL = CARVES = ("far", "official")
HALVES = {"train": ("train",), "validation": ("val",), "test": ("test",)}  # official lists of each official split
STEPS = 32_000.0  # of the npz form, per unit length
TEXT_LISTS = "train_test_split"
TEXT_NAMES = "synsetoffset2category.txt"
H5_NAMES = "all_object_categories.txt"
NPZ_KEYS = ("points", "parts", "category", "names", "classes", "part_first", "part_count")


def form_of(path: Path) -> str | None:
    """'npz', 'text' or 'hdf5' if the path holds ShapeNetPart, else None."""
    if path.is_file():
        return "npz" if path.suffix == ".npz" and path.name.startswith("shapenetpart_") else None
    if not path.is_dir():
        return None
    names = {p.name for p in visible(path)}
    if any(n.startswith("shapenetpart_") and n.endswith(".npz") for n in names):
        return "npz"
    if TEXT_NAMES in names and TEXT_LISTS in names:
        return "text"
    return "hdf5" if H5_NAMES in names and any(n.endswith("_hdf5_file_list.txt") for n in names) else None


def read_shapenetpart(
    path: Path, split: str, n_points: int = 1024, *, up: str = "y", seed: int = 0, splits: str = FAR
) -> PartSet:
    """One split from the folder or npz file at `path`."""
    check_split(split)
    check_numbers(n_points, seed)
    check_up(up)
    if splits not in CARVES:
        raise UsageError(f"unknown splits '{splits}' of shapenetpart{nearest(splits, CARVES)}")
    form = form_of(path)
    if form is None:
        raise InputError(
            f"{path}: no ShapeNetPart there: neither its npz files, nor {TEXT_NAMES} with {TEXT_LISTS}, nor its HDF5 "
            "files with their lists"
        )
    if splits == OFFICIAL and split == "calibration":
        raise UsageError("shapenetpart has no official calibration split; splits = 'far' carves one")
    if form == "hdf5" and splits == FAR and split != "test":
        raise InputError(
            f"{path}: the shapes of the HDF5 form have no names, so the split 'far' cannot be told; read them with "
            "splits = 'official', or take the npz or text form"
        )
    lists = ("train", "val") if splits == FAR and split != "test" else HALVES[split]
    read = {"npz": _read_npz, "text": _read_text, "hdf5": _read_hdf5}[form]
    points, parts, labels, names = read(path, lists, split, n_points, seed, splits)
    source = f"shapenetpart ({form}) in {path}, {split} split, {up} up"
    points = points if up == "y" else to_y_up(points, up)
    return PartSet(points, parts, labels, names, CATALOGUE, source)


Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, tuple[str, ...]]  # points, parts, categories, names


def _chosen(names: list[str], split: str, splits: str, where: object) -> np.ndarray:
    """Which shapes of the lists at hand belong to the split."""
    if splits == OFFICIAL or split == "test":
        return np.arange(len(names))
    return far.in_split(names, split, where)


# npz


def _read_npz(path: Path, lists: tuple[str, ...], split: str, n_points: int, seed: int, splits: str) -> Arrays:
    folder = path.parent if path.is_file() else path
    found = []
    for half in lists:
        file = folder / f"shapenetpart_{half}.npz"
        if not file.is_file():
            raise MissingError(f"{folder}: no shapenetpart_{half}.npz, which holds the official {half} list")
        found.append(_npz_half(file, n_points, lambda names, where: _chosen(names, split, splits, where)))
    points, parts, labels = (np.concatenate([one[k] for one in found]) for k in range(3))
    names = tuple(name for one in found for name in one[3])
    if not names:
        raise InputError(f"{folder}: no shape of the split '{split}'")
    return points, parts, labels, names


def _npz_half(file: Path, n_points: int, chosen: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    with Npz(file) as archive:
        if missing := [key for key in NPZ_KEYS if key not in archive]:
            raise InputError(f"{file}: no array {', '.join(missing)}; found {', '.join(sorted(archive.keys()))}")
        _npz_catalogue(file, archive)
        raw, labels, parts = archive["names"], archive["category"], archive["parts"]
        if raw.dtype.kind not in "SU" or raw.ndim != 1:
            raise InputError(f"{file}: names must be a list of texts, got {raw.dtype} {raw.shape}")
        names = [str(name) for name in raw.astype(str)]
        points, n = archive["points"], len(names)
        if points.ndim != 3 or points.shape[0] != n or points.shape[1] < 1 or points.shape[2] != 3:
            raise InputError(f"{file}: points have shape {points.shape}, expected ({n}, points, 3)")
        if parts.shape != points.shape[:2] or labels.shape != (n,) or {parts.dtype.kind, labels.dtype.kind} - {*"iu"}:
            raise InputError(
                f"{file}: parts {parts.dtype} {parts.shape} and category {labels.dtype} {labels.shape} do not fit "
                f"points {points.shape}: one whole number a point, one a shape"
            )
        check_parts(parts.astype(np.int64), labels.astype(np.int64), CATALOGUE, file, names)
        keep = chosen(names, file)
        take = np.arange(n_points) % points.shape[1]  # stored in random order: the first ones are a draw
        picked = points[keep][:, take]
    scale = 1.0 / STEPS if picked.dtype.kind in "iu" else 1.0
    out = (picked * scale).astype(np.float32)
    bad = ~np.isfinite(out).all(axis=(1, 2))
    if bad.any():
        raise InputError(f"{file}: shape '{names[keep[bad.argmax()]]}' is not finite (NaN or inf)")
    return out, parts[keep][:, take].astype(np.int64), labels[keep].astype(np.int64), [names[i] for i in keep]


def _npz_catalogue(file: Path, archive: Npz) -> None:
    """The numbers of categories and parts are those of this program."""
    classes = tuple(str(name) for name in archive["classes"].astype(str))
    first, count = archive["part_first"].tolist(), archive["part_count"].tolist()
    if classes != CATALOGUE.categories or tuple(count) != CATALOGUE.count or first != CATALOGUE.first.tolist():
        raise InputError(f"{file}: its categories or parts are not the 16 and 50 of ShapeNetPart in official order")


# text


def _read_text(path: Path, lists: tuple[str, ...], split: str, n_points: int, seed: int, splits: str) -> Arrays:
    _text_categories(path)
    listed = sorted(name for half in lists for name in _text_list(path, half))
    names = [listed[i] for i in _chosen(listed, split, splits, path)]
    if not names:
        raise InputError(f"{path}: no shape of the split '{split}'")
    points = np.empty((len(names), n_points, 3), np.float32)
    parts, labels = np.empty((len(names), n_points), np.int64), np.empty(len(names), np.int64)
    order = list(SYNSETS)
    for i, name in enumerate(progress(names, label="reading shapes")):
        labels[i] = order.index(name.split("/")[0])
        points[i], parts[i] = _text_shape(path / f"{name}.txt", int(labels[i]), n_points, seed)
    return points, parts, labels, tuple(names)


def _text_categories(path: Path) -> None:
    """Every line a category and its synset; what is there must be what we know."""
    for number, line in enumerate(_text(path / TEXT_NAMES).splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2 or SYNSETS.get(words[1], ("",))[0] != words[0]:
            raise InputError(
                f"{path / TEXT_NAMES}: line {number}: '{line[:60]}' is no category of ShapeNetPart, "
                "as 'Airplane 02691156' would be"
            )


def _text_list(path: Path, half: str) -> list[str]:
    """Names SYNSET/ID of an official list."""
    file = path / TEXT_LISTS / f"shuffled_{half}_file_list.json"
    try:
        entries = json.loads(_text(file))
    except ValueError as error:
        raise InputError(f"{file}: no JSON: {reason(error)}") from None
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise InputError(f"{file}: expected a list of names like 'shape_data/02691156/1a04e3eab45ca15dd86060f189eb133'")
    names = []
    for entry in entries:
        pieces = entry.split("/")
        if len(pieces) < 2 or pieces[-2] not in SYNSETS or pieces[-1] in ("", ".", ".."):
            raise InputError(f"{file}: '{entry[:60]}' is no shape of a known category")
        names.append("/".join(pieces[-2:]))
    return names


def _text(file: Path) -> str:
    check_file(file)
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read as text: {reason(error)}") from None


def _text_shape(file: Path, label: int, n_points: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One file of x y z nx ny nz part -> points [n_points, 3] and their parts."""
    text = _text(file)
    try:
        table = np.loadtxt(text.splitlines(), np.float64, ndmin=2)
    except ValueError as error:
        raise InputError(f"{file}: not a table of numbers: {reason(error)}") from None
    if table.size == 0 or table.shape[1] != 7:
        raise InputError(f"{file}: {table.shape[1]} columns, expected 7: x y z nx ny nz part")
    check_coordinates(table[:, :3], str(file))
    parts = table[:, 6]
    if not (np.isfinite(parts).all() and (parts == np.rint(parts)).all()):
        raise InputError(f"{file}: line {int((parts != np.rint(parts)).argmax()) + 1}: the part is no whole number")
    whole = parts.astype(np.int64)
    check_parts(whole[None], np.array([label]), CATALOGUE, file, (file.stem,))
    rows = pick(table[:, :3], n_points, seed)
    return rounded(table[rows, :3]), whole[rows]


# HDF5


def _read_hdf5(path: Path, lists: tuple[str, ...], split: str, n_points: int, seed: int, splits: str) -> Arrays:
    _hdf5_categories(path)
    points, parts, labels, names = [], [], [], []
    for half in lists:
        for file in _hdf5_files(path, half):
            data, label, part = _hdf5_file(file)
            for i in range(len(data)):
                rows = pick(data[i], n_points, seed)
                points.append(rounded(data[i][rows]))
                parts.append(part[i][rows])
            labels.append(label)
            names += [f"{file.stem}/{i:04d}" for i in range(len(data))]
    return np.stack(points), np.stack(parts), np.concatenate(labels), tuple(names)


def _hdf5_categories(path: Path) -> None:
    found = [line.split() for line in _text(path / H5_NAMES).splitlines() if line.strip()]
    if [words[0] for words in found] != list(CATALOGUE.categories):
        raise InputError(f"{path / H5_NAMES}: its categories are not the 16 of ShapeNetPart in official order")


def _hdf5_files(path: Path, half: str) -> list[Path]:
    listed = path / f"{half}_hdf5_file_list.txt"
    names = [Path(line.strip()).name for line in _text(listed).splitlines() if line.strip()]
    if not names:
        raise InputError(f"{listed}: no files in it")
    return [path / name for name in names]


def _hdf5_file(file: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """data [n, P, 3], label [n], pid [n, P], checked."""
    import h5py

    check_file(file)
    try:
        with h5py.File(file, "r") as store:
            data, label, part = (_hdf5_array(file, store, key) for key in ("data", "label", "pid"))
    except OSError as error:
        raise InputError(f"{file}: not a readable HDF5 file: {reason(error)}") from None
    label = label.reshape(len(label), -1)[:, 0] if label.size else label
    if data.ndim != 3 or data.shape[2] != 3 or label.shape != (len(data),) or part.shape != data.shape[:2]:
        raise InputError(
            f"{file}: data {data.shape}, label {label.shape}, pid {part.shape}: expected (n, P, 3), (n, 1), (n, P)"
        )
    if data.dtype.kind != "f" or label.dtype.kind not in "iu" or part.dtype.kind not in "iu":
        raise InputError(f"{file}: data must be floats, label and pid whole numbers")
    for i, cloud in enumerate(data):
        check_coordinates(cloud, f"{file}: shape {i}")
    wide = part.astype(np.int64)
    names = [f"{file.stem}/{i:04d}" for i in range(len(data))]
    check_parts(wide, label.astype(np.int64), CATALOGUE, file, names)
    return data.astype(np.float64), label.astype(np.int64), wide


def _hdf5_array(file: Path, store: Any, key: str) -> np.ndarray:
    import h5py

    held = store.get(key) if store.get(key, getlink=True).__class__ is h5py.HardLink else None
    if not isinstance(held, h5py.Dataset):
        raise InputError(f"{file}: no array '{key}'; found {', '.join(sorted(store)) or 'nothing'}")
    if held.nbytes > MAX_BYTES:
        raise InputError(f"{file}: array '{key}' needs {held.nbytes} bytes, the limit is {MAX_BYTES}")
    return np.asarray(held[()])
