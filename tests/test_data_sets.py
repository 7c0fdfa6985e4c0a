"""Sets of clouds: CloudSet, splits, folders, ModelNet in its three forms, and where data are looked for."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import real_modelnet

from asp_neuro.data import SPLITS, CloudSet, Place, load_clouds, locate
from asp_neuro.data.modelnet import MODELNET10, MODELNET40
from asp_neuro.data.splits import by_share, carve, last_of_each_class
from asp_neuro.errors import InputError, MissingError, UsageError

FACES = "3 0 2 1\n3 0 1 3\n3 0 3 2\n3 1 2 3\n"


def small_set(**changes: Any) -> CloudSet:
    parts: dict[str, Any] = {
        "points": np.arange(18, dtype=np.float32).reshape(3, 2, 3),
        "labels": np.array([0, 1, -1]),
        "names": ("a", "b", "c"),
        "classes": ("cat", "dog"),
        "source": "by hand",
    }
    return CloudSet(**{**parts, **changes})


def off(height: float = 1.0, header: str = "OFF\n") -> str:
    return f"{header}4 4 6\n0 0 0\n1 0 0\n0 1 0\n0 0 {height}\n{FACES}"


def write_clouds(root: Path, layout: dict[str, int]) -> Path:
    """n different clouds in each folder of the layout."""
    rng = np.random.default_rng(0)
    for folder, n in layout.items():
        (root / folder).mkdir(parents=True)
        for i in range(n):
            np.save(root / folder / f"{i:03d}.npy", rng.normal(size=(5, 3)))
    return root


def write_npz(folder: Path, n_train: int = 60, n_test: int = 20, **changes: np.ndarray) -> Path:
    """A small ModelNet of the stored form; every second cloud is in ModelNet10."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(1)
    for half, n in (("train", n_train), ("test", n_test)):
        labels = rng.integers(0, 40, n)
        labels[::2] = [MODELNET40.index(c) for c in rng.choice(MODELNET10, len(labels[::2]))]
        arrays: dict[str, Any] = {
            "points": rng.normal(size=(n, 8, 3)).astype(np.float16),
            "labels": labels.astype(np.uint8),
            "names": np.array([f"{MODELNET40[c]}_{half}{i}" for i, c in enumerate(labels)]),
            "classes": np.array(MODELNET40),
            "in_modelnet10": np.arange(n) % 2 == 0,
            "modelnet10_classes": np.array(MODELNET10),
        }
        arrays.update(changes)
        kept = {k: v for k, v in arrays.items() if v is not None}
        np.savez(folder / f"modelnet40_{half}_8.npz", **kept)
    return folder


def test_a_subset_keeps_clouds_labels_and_names_together() -> None:
    part = small_set().subset([2, 0])
    assert part.names == ("c", "a")
    assert part.labels.tolist() == [-1, 0]
    np.testing.assert_array_equal(part.points[1], small_set().points[0])
    assert small_set().subset(np.array([False, True, False])).names == ("b",)
    assert len(small_set().subset([])) == 0


def test_two_sets_of_the_same_classes_are_joined_one_after_the_other() -> None:
    clouds = load_clouds("shapes", "train", n_points=16).subset(range(6))
    both = clouds.subset([3, 1]).joined(clouds.subset([5]))
    assert both.names == clouds.subset([3, 1, 5]).names
    assert both.hashes() == clouds.subset([3, 1, 5]).hashes()
    assert len(set(clouds.hashes())) == 6
    with pytest.raises(InputError, match="its classes are not those of"):
        clouds.joined(replace(clouds.subset([5]), classes=clouds.classes[::-1]))


def test_the_hash_sees_every_part_but_the_source() -> None:
    base = small_set()
    assert base.sha256() == small_set(source="elsewhere").sha256()
    others = [
        small_set(points=base.points + np.float32(1)),
        small_set(points=base.points.reshape(3, 2, 3)[:, ::-1].copy()),
        small_set(labels=np.array([1, 1, -1])),
        small_set(names=("a", "b", "d")),
        small_set(names=("a", "bc", "")),
        small_set(classes=("cat", "dogs")),
        base.subset([0, 1]),
    ]
    assert len({s.sha256() for s in [base, *others]}) == len(others) + 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"points": np.zeros((3, 2), np.float32)}, "shape"),
        ({"points": np.zeros((3, 2, 3))}, "float32"),
        ({"labels": np.array([0, 1])}, "labels have shape"),
        ({"labels": np.array([0, 1, 2])}, "label 2 is outside"),
        ({"labels": np.array([0, 1, -2])}, "label -2 is outside"),
        ({"names": ("a", "b", "a")}, "called 'a'"),
    ],
)
def test_a_set_that_does_not_fit_together_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        small_set(**changes)


def test_labels_follow_the_classes_of_a_model() -> None:
    turned = small_set().relabelled(("dog", "bird", "cat"))
    assert turned.labels.tolist() == [2, 0, -1]
    assert turned.classes == ("dog", "bird", "cat")
    with pytest.raises(InputError, match="by hand: labels outside the model's classes: dog"):
        small_set().relabelled(("cat", "bird"))


def test_a_class_without_clouds_may_be_unknown_to_the_model() -> None:
    assert small_set(labels=np.array([0, 0, -1])).relabelled(("cat",)).labels.tolist() == [0, 0, -1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text("abc123", min_size=1, max_size=6), min_size=5, max_size=60, unique=True), st.randoms())
def test_splits_share_nothing_lose_nothing_and_ignore_the_order(names: list[str], random: Any) -> None:
    shares = {"validation": 0.1, "calibration": 0.15, "test": 0.15}
    parts = by_share(names, shares)
    assert sorted(i for part in parts.values() for i in part) == list(range(len(names)))
    mixed = names[:]
    random.shuffle(mixed)
    again = by_share(mixed, shares)
    assert {s: {names[i] for i in p} for s, p in parts.items()} == {s: {mixed[i] for i in p} for s, p in again.items()}
    assert all(len(p) for p in parts.values())


def test_carved_sizes_are_exact() -> None:
    parts = carve([f"{i}" for i in range(100)], {"calibration": 12, "validation": 5})
    assert {s: len(p) for s, p in parts.items()} == {"calibration": 12, "validation": 5, "train": 83}


def test_a_folder_of_classes_is_split_by_documented_shares(tmp_path: Path) -> None:
    root = write_clouds(tmp_path, {"cat": 60, "dog": 40})
    sets = {s: load_clouds(root, s, n_points=5) for s in SPLITS}
    assert {s: len(c) for s, c in sets.items()} == {"train": 60, "validation": 10, "calibration": 15, "test": 15}
    assert len({n for c in sets.values() for n in c.names}) == 100
    train = sets["train"]
    assert train.classes == ("cat", "dog")
    i = train.names.index(next(n for n in train.names if n.startswith("dog/")))
    assert train.labels[i] == 1
    np.testing.assert_array_equal(train.points[i], np.load(root / train.names[i]).astype(np.float32))
    assert load_clouds(root, "train", n_points=5).sha256() == train.sha256()


def test_given_split_folders_are_used_and_missing_ones_carved_out_of_train(tmp_path: Path) -> None:
    root = write_clouds(tmp_path, {"cat/train": 20, "cat/test": 3, "dog/train": 20, "dog/test": 2, "dog/val": 4})
    sets = {s: load_clouds(root, s, n_points=5) for s in SPLITS}
    assert {s: len(c) for s, c in sets.items()} == {"train": 34, "validation": 4, "calibration": 6, "test": 5}
    assert all("/train/" in n for n in sets["train"].names + sets["calibration"].names)
    assert not set(sets["train"].names) & set(sets["calibration"].names)


def test_folders_and_hidden_files_that_are_no_clouds_are_passed_over(tmp_path: Path) -> None:
    root = write_clouds(tmp_path, {"cat": 10, "dog": 10, ".git": 3})
    (root / "cat" / ".hidden.npy").write_text("x")
    (root / "cat" / "notes.md").write_text("x")
    (root / "README").write_text("x")
    assert load_clouds(root, "train", n_points=5).classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("layout", "split", "why"),
    [
        ({}, "train", "no class folders"),
        ({"cat": 3, "dog": 0}, "train", "dog: a class with no samples"),
        ({"cat/train": 3, "cat/holdout": 3}, "train", "holdout: not a split folder"),
        ({"cat/train": 3, "dog": 3}, "train", "outside of them"),
        ({"cat/train": 9}, "test", "no split 'test'"),
        ({"cat/test": 9}, "train", "no split 'train'"),
        ({"cat": 1}, "test", "too few"),
    ],
)
def test_a_folder_that_makes_no_sense_is_refused(tmp_path: Path, layout: dict[str, int], split: str, why: str) -> None:
    root = write_clouds(tmp_path / "data", layout) if layout else tmp_path
    with pytest.raises((InputError, MissingError), match=why) as caught:
        load_clouds(root, split)
    assert str(root) in str(caught.value)


def test_a_broken_cloud_in_a_folder_is_named(tmp_path: Path) -> None:
    root = write_clouds(tmp_path, {"cat/train": 3, "cat/test": 3})
    (root / "cat" / "test" / "bad.txt").write_text("1 2\n")
    with pytest.raises(InputError, match=r"cat/test/bad\.txt: 2 columns"):
        load_clouds(root, "test")


def test_classes_of_a_model_are_compared_with_a_folder(tmp_path: Path) -> None:
    root = write_clouds(tmp_path, {"cat": 10, "dog": 10})
    straight, turned = (
        load_clouds(root, "test", n_points=5),
        load_clouds(root, "test", n_points=5, classes=("dog", "cat")),
    )
    np.testing.assert_array_equal(turned.labels, 1 - straight.labels)
    with pytest.raises(InputError, match="outside the model's classes"):
        load_clouds(root, "train", n_points=5, classes=("cat", "bird"))


def test_modelnet_is_read_from_the_folder_or_from_either_file(tmp_path: Path) -> None:
    root = write_npz(tmp_path / "d")
    whole = {s: load_clouds(root, s, n_points=8) for s in SPLITS}
    assert {s: len(c) for s, c in whole.items()} == {"train": 50, "validation": 3, "calibration": 7, "test": 20}
    for file in root.iterdir():
        assert all(load_clouds(file, s, n_points=8).sha256() == whole[s].sha256() for s in SPLITS)
    assert len({n for c in whole.values() for n in c.names}) == 80


def test_modelnet10_is_the_marked_part_with_its_own_numbers(tmp_path: Path) -> None:
    root = write_npz(tmp_path / "d")
    ten = load_clouds(locate("modelnet10", root), "test", n_points=8)
    assert len(ten) == 10
    assert ten.classes == MODELNET10
    assert all(ten.classes[label] == name.rsplit("_", 1)[0] for label, name in zip(ten.labels, ten.names))
    by_classes = load_clouds(root, "test", n_points=8, classes=MODELNET10[::-1])
    assert by_classes.names == ten.names
    np.testing.assert_array_equal(by_classes.labels, 9 - ten.labels)


def test_the_stored_order_is_farthest_first_so_fewer_points_are_the_first(tmp_path: Path) -> None:
    root = write_npz(tmp_path / "d")
    full, few, many = (load_clouds(root, "test", n_points=n).points for n in (8, 3, 10))
    np.testing.assert_array_equal(few, full[:, :3])
    np.testing.assert_array_equal(many, np.concatenate([full, full[:, :2]], axis=1))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"labels": np.full(20, 40)}, "label 40 .* is outside the 40 classes"),
        ({"labels": np.zeros(20)}, "labels must be integers"),
        ({"labels": np.zeros(19, int)}, "do not agree"),
        ({"labels": None}, "no array labels"),
        ({"points": None}, "no array points"),
        ({"points": np.zeros((20, 8, 2), np.float32)}, "shape"),
        ({"points": np.zeros((19, 8, 3), np.float32)}, "shape"),
        ({"points": np.zeros((20, 8, 3), int)}, "expected floats"),
        ({"points": np.full((20, 8, 3), np.nan, np.float32)}, "not finite"),
        ({"points": np.full((20, 8, 3), None)}, "pickle"),
        ({"in_modelnet10": np.ones(20, int)}, "one bool"),
        ({"in_modelnet10": None}, "no array 'in_modelnet10'"),
        ({"modelnet10_classes": np.array(["bed"])}, "is not one of modelnet10_classes"),
    ],
)
def test_a_wrong_modelnet_file_is_refused(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    root = write_npz(tmp_path / "d", n_train=20, **changes)
    with pytest.raises(InputError, match=why) as caught:
        load_clouds(locate("modelnet10", root), "test", n_points=8)
    assert "modelnet40_test_8.npz" in str(caught.value)


def test_half_a_modelnet_says_which_half_is_missing(tmp_path: Path) -> None:
    root = write_npz(tmp_path / "d")
    (root / "modelnet40_train_8.npz").unlink()
    assert len(load_clouds(root, "test", n_points=8)) == 20
    with pytest.raises(MissingError, match="no modelnet40_train"):
        load_clouds(root, "train")


def write_meshes(root: Path, n_train: int = 12, n_test: int = 2) -> Path:
    for c, kind in enumerate(("chair", "table")):
        for half, n in (("train", n_train), ("test", n_test)):
            (root / kind / half).mkdir(parents=True)
            for i in range(n):
                header = "OFF" if i % 2 else "OFF\n"
                (root / kind / half / f"{kind}_{half}{i:04d}.off").write_text(off(2 + c + i / 100, header))
    return root


def test_official_meshes_are_turned_from_z_up_to_y_up(tmp_path: Path) -> None:
    test = load_clouds(write_meshes(tmp_path / "ModelNet"), "test", n_points=200)
    assert len(test) == 4
    assert test.classes == ("chair", "table")
    assert "z up" in test.source
    np.testing.assert_allclose(test.points[..., 1].max(axis=1), [2, 2, 3, 3], atol=0.3)  # height is along y now
    assert (test.points[..., 2] <= 0).all()  # and what was y points back
    lying = load_clouds(tmp_path / "ModelNet", "test", n_points=200, up="y")
    assert lying.points[..., 2].max() > 1.5


def test_official_meshes_are_carved_without_overlap(tmp_path: Path) -> None:
    root = write_meshes(tmp_path / "any_name")
    sets = {s: load_clouds(root, s, n_points=20) for s in SPLITS}
    assert {s: len(c) for s, c in sets.items()} == {"train": 20, "validation": 1, "calibration": 3, "test": 4}
    assert len({n for c in sets.values() for n in c.names}) == 28
    assert load_clouds(root, "train", n_points=20).sha256() == sets["train"].sha256()


def test_a_folder_with_the_ten_classes_is_modelnet10(tmp_path: Path) -> None:
    for kind in MODELNET10:
        (tmp_path / kind / "test").mkdir(parents=True)
        (tmp_path / kind / "test" / f"{kind}_0001.off").write_text(off())
    (tmp_path / "sofa" / "train").mkdir()
    test = load_clouds(tmp_path, "test", n_points=4)
    assert test.source.startswith("modelnet10 (off)")
    assert test.labels.tolist() == list(range(10))
    with pytest.raises(MissingError, match=r"no meshes Class/train/\*\.off"):
        load_clouds(tmp_path, "train")


def test_an_official_class_without_meshes_is_refused(tmp_path: Path) -> None:
    root = write_meshes(tmp_path / "ModelNet")
    (root / "bed" / "train").mkdir(parents=True)
    with pytest.raises(InputError, match="bed/train: a class with no samples"):
        load_clouds(root, "train")


def write_text(root: Path) -> Path:
    rng = np.random.default_rng(0)
    names = [f"{kind}_{i:04d}" for kind in ("chair", "night_stand") for i in range(1, 16)]
    for name in names:
        folder = root / name.rsplit("_", 1)[0]
        folder.mkdir(parents=True, exist_ok=True)
        np.savetxt(folder / f"{name}.txt", rng.normal(size=(9, 6)), delimiter=",")
    for family in ("modelnet10", "modelnet40"):
        (root / f"{family}_shape_names.txt").write_text("chair\nnight_stand\n")
        (root / f"{family}_train.txt").write_text("\n".join(names[:13] + names[15:28]) + "\n")
        (root / f"{family}_test.txt").write_text("\n".join(names[13:15] + names[28:]) + "\n")
    return root


def test_the_resampled_text_folders_are_read_through_their_lists(tmp_path: Path) -> None:
    root = write_text(tmp_path / "modelnet40_normal_resampled")
    test = load_clouds(tmp_path, "test", n_points=9)  # found one level down
    assert test.names == ("chair_0014", "chair_0015", "night_stand_0014", "night_stand_0015")
    assert test.labels.tolist() == [0, 0, 1, 1]
    stored = np.loadtxt(root / "chair" / "chair_0014.txt", delimiter=",")[:, :3].astype(np.float32)
    np.testing.assert_array_equal(test.points[0], stored)
    sets = [load_clouds(root, s, n_points=9) for s in SPLITS]
    assert len({n for c in sets for n in c.names}) == 30


def test_a_name_in_a_list_without_class_or_file_is_refused(tmp_path: Path) -> None:
    root = write_text(tmp_path / "r")
    (root / "chair" / "chair_0014.txt").unlink()
    with pytest.raises(InputError, match=r"chair_0014\.txt: no such file"):
        load_clouds(root, "test")
    (root / "modelnet40_test.txt").write_text("ghost_0001\n")
    with pytest.raises(InputError, match=r"modelnet40_test\.txt: 'ghost_0001' is of no class"):
        load_clouds(root, "test")


@pytest.mark.parametrize(
    ("name", "sizes"), [("modelnet40", (8143, 500, 1200, 2468)), ("modelnet10", (3191, 200, 600, 908))]
)
def test_the_real_modelnet_has_its_official_sizes(name: str, sizes: tuple[int, ...]) -> None:
    place = locate(name, real_modelnet())
    sets = [load_clouds(place, s, n_points=16) for s in SPLITS]
    assert tuple(len(c) for c in sets) == sizes
    assert len({n for c in sets for n in c.names}) == sum(sizes)
    assert sets[0].classes == {"modelnet10": MODELNET10, "modelnet40": MODELNET40}[name]


def test_data_are_looked_for_in_the_documented_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASP_NEURO_DATA", raising=False)
    with pytest.raises(MissingError, match=r"modelnet40 not found.*--data.*ASP_NEURO_DATA \(not set\).*\./data"):
        locate("modelnet40")
    write_npz(tmp_path / "data")
    assert locate("modelnet40") == Place("modelnet40", Path("data"))
    write_npz(tmp_path / "other")
    monkeypatch.setenv("ASP_NEURO_DATA", str(tmp_path / "other"))
    assert locate("modelnet10") == Place("modelnet10", tmp_path / "other")
    assert locate("modelnet40", tmp_path / "data").path == tmp_path / "data"
    assert load_clouds("modelnet10", "test", n_points=8).classes == MODELNET10
    assert locate("modelnet40", "shapes") == Place("shapes") == locate("shapes")


def test_unknown_words_come_back_with_the_nearest_known_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="unknown split 'tset'; did you mean 'test'"):
        load_clouds("shapes", "tset")
    with pytest.raises(MissingError, match="did you mean 'shapes'"):
        load_clouds("shape", "test")
    with pytest.raises(UsageError, match="unknown data 'modelnet'; did you mean 'modelnet"):
        locate("modelnet")
    with pytest.raises(UsageError, match="unknown up axis 'up'"):
        load_clouds("shapes", "test", up="up")
    with pytest.raises(UsageError, match="y up"):
        load_clouds("shapes", "test", up="z")
    (tmp_path / "one.txt").write_text("0 0 0\n1 1 1\n")
    with pytest.raises(UsageError, match="--input"):
        load_clouds(tmp_path / "one.txt", "test")


def test_importing_data_stays_light() -> None:
    heavy = ("torch", "lava", "trimesh", "scipy", "pypcd4", "laspy", "pye57")
    code = f"import sys, asp_neuro.data; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_last_of_each_class_have_the_highest_numbers() -> None:
    names = [f"{kind}_{number:04d}" for kind, n in (("chair", 20), ("night_stand", 4)) for number in range(n, 0, -1)]
    labels = np.array([0] * 20 + [1] * 4)
    chosen = {name for name, last in zip(names, last_of_each_class(names, labels, 0.25, 100), strict=True) if last}
    chairs = {f"chair_{number:04d}" for number in range(16, 21)}
    assert chosen == chairs | {f"night_stand_{number:04d}" for number in (2, 3, 4)}  # a quarter, at least three
    assert last_of_each_class(names, labels, 0.5, 4).sum() == 4 + 3
    with pytest.raises(InputError, match="does not end with a number"):
        last_of_each_class(["a chair"], np.array([0]), 0.5, 4)
