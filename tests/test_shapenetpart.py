"""ShapeNetPart in its three forms, on folders made by hand; the split of shapes far from training; bad files, named."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from asp_neuro.data import PART_NAMES, Catalogue, PartSet, far, load_parts, locate_parts
from asp_neuro.data.parts import pick
from asp_neuro.data.shapenetpart import CATALOGUE, SYNSETS, form_of, read_shapenetpart
from asp_neuro.errors import AspError, ConfigError, InputError, MissingError, UsageError

MUG, KNIFE = "03797390", "03624134"
MUG_LABEL, KNIFE_LABEL = 11, 7
N = 40  # points of a hand-made shape


def shape(label: int, seed: int, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Points on a grid of 1/32000, as the npz form stores them, and parts of the category."""
    rng = np.random.default_rng(seed)
    points = rng.integers(-20_000, 20_000, size=(n, 3)).astype(np.int16)
    first, count = CATALOGUE.first[label], CATALOGUE.count[label]
    return points, (first + rng.integers(count, size=n)).astype(np.int64)


SHAPES = {  # list -> shapes: name, label, seed
    "train": [(f"{MUG}/a1", MUG_LABEL, 1), (f"{KNIFE}/b1", KNIFE_LABEL, 2), (f"{MUG}/a2", MUG_LABEL, 3)],
    "val": [(f"{MUG}/a3", MUG_LABEL, 4)],
    "test": [(f"{KNIFE}/b2", KNIFE_LABEL, 5)],
}


def as_npz(folder: Path, **changes: Any) -> Path:
    for half, shapes in SHAPES.items():
        made = [shape(label, seed) for _, label, seed in shapes]
        arrays = {
            "points": np.stack([p for p, _ in made]),
            "parts": np.stack([p for _, p in made]).astype(np.uint8),
            "category": np.array([label for _, label, _ in shapes], np.uint8),
            "names": np.array([name.encode() for name, _, _ in shapes]),
            "classes": np.array(CATALOGUE.categories),
            "part_first": CATALOGUE.first.astype(np.uint8),
            "part_count": np.array(CATALOGUE.count, np.uint8),
        }
        for key, change in changes.items():
            arrays[key] = change(arrays[key].copy())
        np.savez(folder / f"shapenetpart_{half}.npz", **arrays)
    return folder


def as_text(folder: Path) -> Path:
    (folder / "train_test_split").mkdir()
    lines = [f"{name}\t{synset}" for synset, (name, _) in SYNSETS.items()]
    (folder / "synsetoffset2category.txt").write_text("\n".join(lines) + "\n")
    for half, shapes in SHAPES.items():
        listed = [f"shape_data/{name}" for name, _, _ in shapes]
        (folder / "train_test_split" / f"shuffled_{half}_file_list.json").write_text(json.dumps(listed))
        for name, label, seed in shapes:
            points, parts = shape(label, seed)
            rows = [f"{x / 32000:.9f} {y / 32000:.9f} {z / 32000:.9f} 0.0 1.0 0.0 {p:.6f}"
                    for (x, y, z), p in zip(points.tolist(), parts.tolist())]  # fmt: skip
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / f"{name}.txt").write_text("\n".join(rows) + "\n")
    return folder


def as_hdf5(folder: Path) -> Path:
    (folder / "all_object_categories.txt").write_text("".join(f"{n}\t{s}\n" for s, (n, _) in SYNSETS.items()))
    for half, shapes in SHAPES.items():
        (folder / f"{half}_hdf5_file_list.txt").write_text(f"./hdf5_data/ply_data_{half}0.h5\n")
        made = [shape(label, seed) for _, label, seed in shapes]
        with h5py.File(folder / f"ply_data_{half}0.h5", "w") as store:
            store["data"] = (np.stack([p for p, _ in made]) / 32000.0).astype(np.float32)
            store["label"] = np.array([[label] for _, label, _ in shapes], np.uint8)
            store["pid"] = np.stack([p for _, p in made]).astype(np.uint8)
    return folder


FORMS = {"npz": as_npz, "text": as_text, "hdf5": as_hdf5}


def pairs(shapes: PartSet) -> list[set[tuple[Any, ...]]]:
    """Of each shape its labelled points, whatever their order."""
    return [
        {(*np.rint(p * 32000).astype(int).tolist(), int(part)) for p, part in zip(points, parts)}
        for points, parts in zip(shapes.points, shapes.parts)
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_every_form_gives_the_same_labelled_points(form: str, split: str, tmp_path: Path) -> None:
    folder = FORMS[form](tmp_path)
    assert form_of(folder) == form
    found = read_shapenetpart(folder, split, N, splits="official")
    wanted = SHAPES["val" if split == "validation" else split]
    made = [shape(label, seed) for _, label, seed in wanted]
    expected = {frozenset((*p.tolist(), int(part)) for p, part in zip(points, parts)) for points, parts in made}
    assert set(map(frozenset, pairs(found))) == expected
    assert sorted(found.labels.tolist()) == sorted(label for _, label, _ in wanted)
    if form != "hdf5":  # which has no names
        assert sorted(found.names) == sorted(name for name, _, _ in wanted)


def test_the_catalogue_numbers_parts_one_category_after_the_other() -> None:
    assert CATALOGUE.n_parts == 50
    assert CATALOGUE.first.tolist() == [0, 4, 6, 8, 12, 16, 19, 22, 24, 28, 30, 36, 38, 41, 44, 47]
    own = CATALOGUE.own()
    assert np.flatnonzero(own[MUG_LABEL]).tolist() == [36, 37]
    assert own.sum(axis=0).tolist() == [1] * 50
    with pytest.raises(ConfigError, match="at least one each"):
        Catalogue(("a", "b"), (1, 0))
    with pytest.raises(ConfigError, match="called 'a'"):
        Catalogue(("a", "a"), (1, 1))


def test_points_keep_their_parts_when_they_are_thinned_or_repeated(tmp_path: Path) -> None:
    folder = as_text(tmp_path)
    whole = pairs(read_shapenetpart(folder, "train", N, splits="official"))
    for n in (N // 2, 3 * N):
        found = read_shapenetpart(folder, "train", n, splits="official")
        assert found.points.shape[1] == n
        for few, all_of_it in zip(pairs(found), whole):
            assert few <= all_of_it
            assert len(few) == min(n, N)


def test_which_points_are_picked_does_not_depend_on_their_order() -> None:
    points = np.random.default_rng(0).normal(size=(100, 3))
    turned = points[::-1]
    assert (points[pick(points, 30)] == turned[pick(turned, 30)]).all()
    assert len(np.unique(pick(points, 30))) == 30
    assert (points[pick(points, 30, seed=1)] != points[pick(points, 30)]).any()


# The split "far"


def test_near_copies_stay_together_and_a_large_group_trains() -> None:
    names = [f"x/{i:03d}" for i in range(200)]  # 18 calibrate, 14 validate; a group of more than 2 or 1 is too large
    twins = [(0, 1), (2, 3), (2, 4), (2, 5)]
    found = far.carve(names, np.array(twins))
    held = {f"x/{own}": split for split in far.SHARES for own in found[split]["x"]}
    assert held.get("x/000") == held.get("x/001")
    assert not {"x/002", "x/003", "x/004", "x/005"} & set(held)
    assert len(found["calibration"]["x"]) == 18
    assert len(found["validation"]["x"]) == 14
    assert far.carve(names, np.array(twins)) == found


def test_the_stored_carve_holds_each_shape_once_and_so_many_of_each_category() -> None:
    stored = far.stored()
    assert list(stored["shapes"]) == list(SYNSETS)
    held = [f"{k}/{s}" for split in far.SHARES for k, own in stored[split].items() for s in own]
    assert len(held) == len(set(held)) == 977 + 1259
    wanted = far.wanted(stored["shapes"])
    for split in far.SHARES:
        assert {k: len(own) for k, own in stored[split].items()} == wanted[split]
    assert json.loads(far.text(stored)) == stored


def test_a_held_out_shape_is_in_its_split_whichever_list_it_stands_on() -> None:
    held = far.stored()["validation"][MUG][0]
    names = [f"{MUG}/{held}", f"{MUG}/nobody"]
    assert far.in_split(names, "validation", "here").tolist() == [0]
    assert far.in_split(names, "train", "here").tolist() == [1]
    with pytest.raises(InputError, match="'11/x' is of no category"):
        far.in_split(["11/x"], "train", "here")


DATA = os.environ.get("ASP_NEURO_DATA", "")


@pytest.mark.skipif(not (Path(DATA) / "shapenetpart_train.npz").is_file(), reason="needs ShapeNetPart")
def test_the_splits_of_the_real_set_are_disjoint_and_complete() -> None:
    parts = {split: load_parts(DATA, split) for split in ("train", "validation", "calibration")}
    assert {split: len(own) for split, own in parts.items()} == {
        "train": 11736, "validation": 977, "calibration": 1259,
    }  # fmt: skip
    names = [name for own in parts.values() for name in own.names]
    assert len(set(names)) == 13_972


# What is wrong is named


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"parts": lambda a: a + 1}, r"point \d+ of '03797390/a1' has part 38; the parts of Mug are 36 to 37"),
        ({"category": lambda a: a + 16}, r"'03797390/a1' has category 27, outside the 16"),
        ({"points": lambda a: a[..., :2]}, r"points have shape \(3, 40, 2\), expected \(3, points, 3\)"),
        ({"parts": lambda a: a[:, :-1]}, r"do not fit points \(3, 40, 3\)"),
        ({"classes": lambda a: a[::-1]}, "not the 16 and 50 of ShapeNetPart"),
        ({"points": lambda a: np.where(a == a[0, 0, 0], np.nan, a)}, "'03797390/a1' is not finite"),
        ({"names": lambda a: a[None]}, "names must be a list of texts"),
    ],
)
def test_a_bad_npz_is_named_with_the_reason(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        read_shapenetpart(as_npz(tmp_path, **changes), "train", N, splits="official")


def broken_text(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (f"{MUG}/a1.txt", "1 2 3 0 0 1\n", r"a1.txt: 6 columns, expected 7"),
        (f"{MUG}/a1.txt", "1 2 3 0 0 1 36\n1 2 x 0 0 1 36\n", "a1.txt: not a table of numbers"),
        (f"{MUG}/a1.txt", "1 2 3 0 0 1 36.5\n", "line 1: the part is no whole number"),
        (f"{MUG}/a1.txt", "1 2 3 0 0 1 12\n", "has part 12; the parts of Mug are 36 to 37"),
        (f"{MUG}/a1.txt", "1 nan 3 0 0 1 36\n", "a1.txt: point 0 is not finite"),
        (f"{MUG}/a1.txt", "", "a1.txt: the file is empty"),
        ("train_test_split/shuffled_train_file_list.json", "{", "shuffled_train_file_list.json: no JSON"),
        ("train_test_split/shuffled_train_file_list.json", "[1]", "expected a list of names"),
        ("train_test_split/shuffled_train_file_list.json", '["a/b/c"]', "'a/b/c' is no shape of a known category"),
        ("train_test_split/shuffled_train_file_list.json", f'["x/{MUG}/zz"]', "zz.txt: no such file"),
        ("synsetoffset2category.txt", "Boat\t123\n", "line 1: 'Boat\t123' is no category"),
    ],
)
def test_a_bad_text_file_is_named_with_the_reason(name: str, content: str, words: str, tmp_path: Path) -> None:
    folder = as_text(tmp_path)
    broken_text(folder, name, content)
    with pytest.raises(InputError, match=words):
        read_shapenetpart(folder, "train", N, splits="official")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("pid", np.zeros((3, N), np.uint8), "has part 0; the parts of Mug are 36 to 37"),
        ("pid", np.zeros((3, 4), np.uint8), r"data \(3, 40, 3\), label \(3,\), pid \(3, 4\)"),
        ("label", np.full((3, 1), 99, np.uint8), "has category 99"),
        ("data", np.full((3, N, 3), np.nan, np.float32), "shape 0: point 0 is not finite"),
        ("data", np.zeros((3, N, 3), np.int32), "data must be floats"),
        ("pid", None, "no array 'pid'; found data, label"),
    ],
)
def test_a_bad_hdf5_file_is_named_with_the_reason(key: str, value: Any, words: str, tmp_path: Path) -> None:
    folder = as_hdf5(tmp_path)
    with h5py.File(folder / "ply_data_train0.h5", "a") as store:
        del store[key]
        if value is not None:
            store[key] = value
    with pytest.raises(InputError, match=words):
        read_shapenetpart(folder, "train", N, splits="official")


def test_an_external_link_is_not_followed(tmp_path: Path) -> None:
    folder = as_hdf5(tmp_path)
    with h5py.File(folder / "ply_data_train0.h5", "a") as store:
        del store["pid"]
        store["pid"] = h5py.ExternalLink("ply_data_test0.h5", "/pid")
    with pytest.raises(InputError, match="no array 'pid'"):
        read_shapenetpart(folder, "train", N, splits="official")


def test_damaged_and_missing_files_are_named(tmp_path: Path) -> None:
    folder = as_hdf5(tmp_path)
    (folder / "ply_data_train0.h5").write_bytes(b"no hdf5")
    with pytest.raises(InputError, match=r"ply_data_train0.h5: not a readable HDF5 file"):
        read_shapenetpart(folder, "train", N, splits="official")
    (folder / "ply_data_train0.h5").unlink()
    with pytest.raises(InputError, match=r"ply_data_train0.h5: no such file"):
        read_shapenetpart(folder, "train", N, splits="official")


@pytest.mark.parametrize(
    ("form", "split", "splits", "kind", "words"),
    [
        ("npz", "calibration", "official", UsageError, "no official calibration split; splits = 'far' carves one"),
        ("hdf5", "train", "far", InputError, "have no names.*splits = 'official'"),
        ("npz", "train", "fa", UsageError, "unknown splits 'fa' of shapenetpart; did you mean 'far'"),
        ("npz", "valid", "far", UsageError, "unknown split 'valid'"),
        ("npz", "validation", "far", InputError, "no shape of the split 'validation'"),
    ],
)
def test_a_split_that_cannot_be_had_is_refused(
    form: str, split: str, splits: str, kind: type[AspError], words: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=words):
        read_shapenetpart(FORMS[form](tmp_path), split, N, splits=splits)


def test_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shapenetpart").mkdir()
    as_npz(tmp_path / "shapenetpart")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASP_NEURO_DATA", str(tmp_path))
    for given in (None, *PART_NAMES, tmp_path, tmp_path / "shapenetpart"):
        assert locate_parts(given) == tmp_path / "shapenetpart"
    assert len(load_parts("shapenetpart", "test", n_points=N)) == 1
    monkeypatch.delenv("ASP_NEURO_DATA")
    with pytest.raises(MissingError, match=r"looked at \$ASP_NEURO_DATA \(not set\), ./data"):
        locate_parts()
    with pytest.raises(MissingError, match="no such folder"):
        locate_parts(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingError, match="in none of its three forms"):
        locate_parts(tmp_path / "empty")


def test_a_set_of_parts_is_a_set_of_clouds(tmp_path: Path) -> None:
    train = read_shapenetpart(as_npz(tmp_path), "train", N, splits="official")
    some = train.subset(np.array([True, False, True]))
    assert some.names == (f"{MUG}/a1", f"{MUG}/a2")
    assert some.joined(train.subset([1])).sha256() == train.subset([0, 2, 1]).sha256() != train.sha256()
    assert train.classes == CATALOGUE.categories
    assert len(train.hashes()) == 3
    with pytest.raises(InputError, match="two clouds are called"):
        train.joined(train)
    turned = read_shapenetpart(tmp_path, "train", N, splits="official", up="z")
    assert (turned.points[..., 1] == train.points[..., 2]).all()
