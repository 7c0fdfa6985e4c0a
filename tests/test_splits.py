"""ModelNet carved by number: which shapes are held out, near copies together, the same for every form and both sets."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import real_modelnet

from asp_neuro import plain
from asp_neuro.data import BY_NUMBER, CARVES, RANDOM, SPLITS, CloudSet, by_number, load_clouds, locate, samples
from asp_neuro.data.modelnet import MODELNET10, MODELNET40, in_split
from asp_neuro.data.near import NEAR, Surfaces, groups, near_copies
from asp_neuro.data.splits import class_and_number
from asp_neuro.errors import ConfigError, InputError, UsageError
from asp_neuro.learn import checkpoint, exporter, recipe, workshop
from asp_neuro.learn import teacher as teachers
from asp_neuro.learn.recipe import DataRecipe
from asp_neuro.runtime import deployment
from asp_neuro.scenes.cloud import farthest_points
from asp_neuro.studies import subjects, trained

NO_PAIRS = np.empty((0, 2), dtype=np.int64)
CHAIRS = [f"chair_{number:04d}" for number in range(1, 21)]  # 5 of 20 are held out: 4 calibrate, 1 validates


def carved(names: list[str], copies: list[tuple[str, str]], ten: tuple[str, ...] = MODELNET10) -> dict[str, Any]:
    pairs = [sorted((names.index(a), names.index(b))) for a, b in copies]
    return by_number.carve(names, np.array(pairs, np.int64).reshape(-1, 2), ten)


def chairs(*numbers: int) -> list[tuple[str, str]]:
    """Pairs of near copies: the first with each of the others."""
    return [(f"chair_{numbers[0]:04d}", f"chair_{other:04d}") for other in numbers[1:]]


@pytest.mark.parametrize(
    ("copies", "calibration", "validation"),
    [
        ([], [17, 18, 19, 20], [16]),
        (chairs(20, 17), [17, 18, 19, 20], [16]),
        (chairs(18, 3), [16, 17, 19, 20], [15]),  # a group stands at its median: 10.5
        (chairs(20, 19, 1), [1, 18, 19, 20], [17]),  # the median is 19: the first chair goes with the last ones
        (chairs(20, 19, 18, 17, 16), [12, 13, 14, 15], [11]),  # five have room nowhere and train
        (chairs(20, 19, 18) + chairs(17, 16), [15, 18, 19, 20], [14]),  # one place is left after three: no pair fits
    ],
)
def test_the_last_shapes_are_held_out_and_groups_stay_whole(
    copies: list[tuple[str, str]], calibration: list[int], validation: list[int]
) -> None:
    found = carved(CHAIRS, copies)
    assert found["calibration"] == {"chair": calibration}
    assert found["validation"] == {"chair": validation}


def test_a_group_of_two_classes_goes_to_one_side() -> None:
    names = CHAIRS + [f"stool_{number:04d}" for number in range(1, 26)]  # of 25 stools 4 are held out: 3 and 1
    found = carved(names, [("chair_0020", "stool_0001")])
    assert found["calibration"] == {"chair": [16, 17, 18, 19], "stool": [23, 24, 25]}  # their median is 0.52
    assert found["validation"] == {"chair": [15], "stool": [22]}
    assert found["copies"] == [["chair_0020", "stool_0001"]]


@pytest.mark.parametrize(
    ("kind", "n", "calibration", "validation"),
    [("chair", 889, 75, 25), ("desk", 200, 39, 13), ("airplane", 626, 67, 33), ("bowl", 64, 7, 3)],
)
def test_how_many_of_a_class_are_held_out(kind: str, n: int, calibration: int, validation: int) -> None:
    assert by_number.wanted({kind: n}, MODELNET10) == {
        "calibration": {kind: calibration},
        "validation": {kind: validation},
    }


def sides(found: dict[str, Any], group: list[str]) -> set[str]:
    """The splits in which the members of a group stand."""
    where = {(kind, n): split for split in by_number.HELD_OUT for kind, ns in found[split].items() for n in ns}
    return {where.get(class_and_number(name), "train") for name in group}


@settings(max_examples=60, deadline=None)
@given(
    st.integers(5, 60), st.integers(5, 60), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=40)
)
def test_no_group_is_cut_and_no_class_gives_more_than_its_share(
    n_chairs: int, n_bowls: int, wild: list[tuple[int, int]]
) -> None:
    names = [f"bowl_{i + 1:04d}" for i in range(n_bowls)] + [f"chair_{i + 1:04d}" for i in range(n_chairs)]
    pairs = [tuple(sorted((a % len(names), b % len(names)))) for a, b in wild]
    found = by_number.carve(names, np.array([p for p in pairs if p[0] < p[1]], np.int64).reshape(-1, 2), MODELNET10)
    assert all(len(sides(found, group)) == 1 for group in found["copies"])
    assert {name for a, b in pairs if a != b for name in (names[a], names[b])} == {
        n for g in found["copies"] for n in g
    }
    for split, room in by_number.wanted({"bowl": n_bowls, "chair": n_chairs}, MODELNET10).items():
        for kind, most in room.items():
            assert len(found[split].get(kind, [])) <= most


def test_groups_are_chains_of_pairs() -> None:
    assert groups(7, np.array([[5, 6], [2, 5], [0, 3]])).tolist() == [0, 1, 2, 0, 4, 2, 2]
    assert groups(3, NO_PAIRS).tolist() == [0, 1, 2]


def sheet(rng: np.random.Generator, height: float, right: float = 0.6) -> np.ndarray:
    """A sample of a bent square: 1,024 of many points, farthest first."""
    x, z = rng.uniform(-0.6, right, 4000), rng.uniform(-0.6, 0.6, 4000)
    points = np.stack([x, height * np.cos(2 * x), z], axis=1)
    return points[farthest_points(points[None], 1024, np.array([0]))[0]]


def test_two_samples_of_one_surface_are_near_copies_and_another_surface_is_not() -> None:
    rng = np.random.default_rng(0)
    points = np.stack([sheet(rng, 0.5), sheet(rng, 0.1), sheet(rng, 0.5), sheet(rng, 0.46), sheet(rng, 0.1)])
    assert near_copies(points).tolist() == [[0, 2], [1, 4]]
    surfaces = Surfaces(points)
    assert surfaces.gap(0, 2) == surfaces.gap(2, 0)
    assert 0.4 < surfaces.gap(0, 2) < 0.54 < NEAR < surfaces.gap(0, 1)
    small = near_copies(points * 0.5)  # in units of the spacing a small cloud is not nearer than a large one
    assert small.tolist() == [[0, 2], [1, 4]]


def test_a_part_more_makes_another_shape_in_one_direction_only() -> None:
    rng = np.random.default_rng(1)
    surfaces = Surfaces(np.stack([sheet(rng, 0.3), sheet(rng, 0.3, right=0.2)]))
    assert surfaces.way(1, 0) < NEAR < surfaces.way(0, 1) == surfaces.gap(0, 1)


def test_the_stored_carve_has_the_documented_sizes_and_cuts_no_group() -> None:
    found = by_number.stored()
    assert tuple(found["shapes"]) == MODELNET40
    assert sum(found["shapes"].values()) == 9843
    room = by_number.wanted(found["shapes"], MODELNET10)
    for split, numbers in ((s, found[s]) for s in by_number.HELD_OUT):
        assert {kind: len(ns) for kind, ns in numbers.items()} == room[split]  # every class has exactly its share
        assert all(ns == sorted(set(ns)) for ns in numbers.values())
    assert not any(set(found["calibration"][k]) & set(found["validation"][k]) for k in MODELNET40)
    assert {s: sum(map(len, found[s].values())) for s in by_number.HELD_OUT} == {"calibration": 1203, "validation": 506}
    assert found["near"] == NEAR
    assert [g for g in found["copies"] if len(sides(found, g)) > 1] == []


def test_a_shape_moved_in_the_stored_carve_would_be_seen() -> None:
    found = by_number.stored()
    group = next(g for g in found["copies"] if sides(found, g) == {"calibration"})
    kind, number = class_and_number(group[0])
    rest = {**found["calibration"], kind: [n for n in found["calibration"][kind] if n != number]}
    assert sides({**found, "calibration": rest}, group) == {"calibration", "train"}


def test_most_of_what_is_held_out_has_the_last_numbers_of_its_class() -> None:
    found, last, held = by_number.stored(), 0, 0
    for kind, n in found["shapes"].items():
        out = found["validation"][kind] + found["calibration"][kind]
        held += len(out)
        last += sum(number > n - len(out) for number in out)
    assert last / held > 0.8  # the others came with their group, or for one that has no room
    assert np.mean(found["validation"]["sofa"]) < np.mean(found["calibration"]["sofa"])


def test_the_file_is_what_its_writer_writes() -> None:
    file = resources.files("asp_neuro.data") / by_number.FILE
    assert file.read_text(encoding="utf-8") == by_number.text(by_number.stored())


@pytest.mark.slow
def test_the_rule_gives_the_stored_file_again() -> None:
    """Bit for bit; with it: no near copy of a held-out shape is on another side, whatever the file says of groups."""
    place = locate("modelnet40", real_modelnet())
    parts = [load_clouds(place, split) for split in ("train", "validation", "calibration")]
    whole = parts[0].joined(parts[1]).joined(parts[2])
    whole = whole.subset(sorted(range(len(whole)), key=lambda i: whole.names[i]))
    pairs = near_copies(whole.points)
    found = by_number.stored()
    assert [p for p in pairs if len(sides(found, [whole.names[i] for i in p])) > 1] == []
    assert by_number.text(by_number.carve(whole.names, pairs, MODELNET10)) == by_number.text(found)


def test_one_carve_serves_both_modelnets() -> None:
    root = real_modelnet()
    sets = {
        (name, split): set(load_clouds(locate(name, root), split, n_points=16, splits=BY_NUMBER).names)
        for name in ("modelnet10", "modelnet40")
        for split in SPLITS
    }
    assert {key: len(names) for key, names in sets.items() if key[1] != "test"} == {
        ("modelnet10", "train"): 3218, ("modelnet10", "validation"): 193, ("modelnet10", "calibration"): 580,
        ("modelnet40", "train"): 8134, ("modelnet40", "validation"): 506, ("modelnet40", "calibration"): 1203,
    }  # fmt: skip
    for split in SPLITS:
        ten = {name for name in sets["modelnet40", split] if name.rsplit("_", 1)[0] in MODELNET10}
        assert sets["modelnet10", split] == ten
    whole = [load_clouds(locate("modelnet40", root), s, n_points=16).names for s in SPLITS]  # at random, as by default
    assert {n for names in whole for n in names} == set().union(*(sets["modelnet40", s] for s in SPLITS))
    assert not set(whole[0]) & set(whole[2])
    assert set(whole[0]) & sets["modelnet40", "calibration"]  # a model of the random splits has seen some of these


@pytest.mark.parametrize("name", ["modelnet40", "modelnet10"])
def test_weights_from_random_splits_do_not_start_a_training_on_splits_by_number(name: str, tmp_path: Path) -> None:
    content = checkpoint.read(checkpoint.find("modelnet_far"))
    content["recipe"]["data"]["splits"] = RANDOM
    content["recipe"]["name"] = "random"
    checkpoint.save(tmp_path / "random.pt", {k: v for k, v in content.items() if k not in ("format", "version")})
    how = recipe.load(name).changed(train={"start": str(tmp_path / "random.pt")}, scene={"n_points": 64})
    with pytest.raises(ConfigError, match=r"was trained on \d+ of the \d+ validation clouds"):
        workshop._check_start(how, str(real_modelnet()), None)
    workshop._check_start(recipe.load(name).changed(scene={"n_points": 64}), str(real_modelnet()), None)


OFF = "OFF\n4 4 6\n0 0 0\n1 0 0\n0 1 0\n0 0 {}\n3 0 2 1\n3 0 1 3\n3 0 3 2\n3 1 2 3\n"


def some_names() -> dict[str, list[str]]:
    """Three bowls and three chairs of each split."""
    found = by_number.stored()
    names: dict[str, list[str]] = {"train": [], "validation": [], "calibration": []}
    for kind in ("bowl", "chair"):
        held = {s: found[s][kind] for s in by_number.HELD_OUT}
        numbers = {**held, "train": [n for n in range(1, 60) if all(n not in ns for ns in held.values())]}
        for split in names:
            names[split] += [f"{kind}_{n:04d}" for n in numbers[split][:3]]
    return names


def write_form(root: Path, form: str, names: list[str]) -> Path:
    """The same shapes as meshes, text or npz."""
    root.mkdir()
    if form == "npz":
        labels = np.array([MODELNET40.index(n.rsplit("_", 1)[0]) for n in names])
        points = np.random.default_rng(0).normal(size=(len(names), 8, 3)).astype(np.float32)
        np.savez(root / "modelnet40_train_8.npz", points=points, labels=labels, names=names, classes=MODELNET40)
    for name in names:
        kind = name.rsplit("_", 1)[0]
        if form == "off":
            (root / kind / "train").mkdir(parents=True, exist_ok=True)
            (root / kind / "train" / f"{name}.off").write_text(OFF.format(int(name[-4:])))
        elif form == "text":
            (root / kind).mkdir(exist_ok=True)
            points = np.random.default_rng(int(name[-4:])).normal(size=(9, 6))
            np.savetxt(root / kind / f"{name}.txt", points, delimiter=",")
    if form == "text":
        (root / "modelnet40_shape_names.txt").write_text("bowl\nchair\n")
        (root / "modelnet40_train.txt").write_text("\n".join(names))
    return root


@pytest.mark.parametrize("form", ["npz", "off", "text"])
def test_the_stored_lists_hold_for_every_form_and_for_a_part_of_modelnet(form: str, tmp_path: Path) -> None:
    wanted = some_names()
    root = write_form(tmp_path / "ModelNet40", form, sorted(n for names in wanted.values() for n in names)[::-1])
    for split, names in wanted.items():
        assert sorted(load_clouds(root, split, n_points=8, splits=BY_NUMBER).names) == sorted(names)


@pytest.mark.parametrize(
    "name", ["chair_0890", "chair_0000", "chair_12", "chair_00012", "chair_train0001", "throne_0001", "chair_²"]
)
def test_a_shape_that_is_not_of_the_official_train_split_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"here.*'{name}'|'{name}' does not end with a number"):
        in_split("modelnet40", ["chair_0001", name], "train", Path("here"), BY_NUMBER)


def test_a_part_of_modelnet_without_a_held_out_shape_says_so() -> None:
    assert in_split("modelnet40", ["chair_0002", "chair_0001"], "train", Path("here"), BY_NUMBER).tolist() == [0, 1]
    with pytest.raises(InputError, match="here: 2 training shapes are too few for a split 'validation'"):
        in_split("modelnet40", ["chair_0001", "chair_0002"], "validation", Path("here"), BY_NUMBER)


def test_other_data_have_splits_of_their_own() -> None:
    assert (
        load_clouds("shapes", "validation", n_points=8, splits=BY_NUMBER).names
        == load_clouds("shapes", "validation", n_points=8).names
    )


def test_an_unknown_way_to_carve_comes_back_with_the_nearest_known_one() -> None:
    with pytest.raises(UsageError, match="unknown splits 'by numbers'; did you mean 'by number'"):
        load_clouds("shapes", "train", splits="by numbers")
    with pytest.raises(ConfigError, match=r"mine\.toml: data\.splits = 'by-number'; did you mean 'by number'"):
        recipe.from_dict("mine.toml", {"data": {"splits": "by-number"}})
    with pytest.raises(ConfigError, match="must be a text"):
        recipe.from_dict("mine.toml", {"data": {"splits": 3}})


def test_a_recipe_without_the_key_is_random_and_stays_as_it_was_written() -> None:
    plain = recipe.from_dict("mine.toml", {"data": {"name": "modelnet40"}})
    assert plain.data.splits == RANDOM
    assert "splits" not in plain.as_dict()["data"]
    assert recipe.load("modelnet_far").as_dict()["data"]["splits"] == BY_NUMBER


class Asked(Exception):
    """What `load` was asked for."""


def ask(*_: Any, **how: Any) -> CloudSet:
    raise Asked(how["splits"])


@pytest.mark.parametrize("rule", CARVES)
def test_training_teachers_exports_studies_and_bundles_read_the_splits_of_their_recipe(
    rule: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    how = recipe.load("compact").changed(data={"splits": rule})
    monkeypatch.setattr(samples, "load_clouds", ask)
    deployed = deployment.open_bundle("compact")
    stored = {**deployed.bundle.recipe, "data": plain.of(DataRecipe(splits=rule))}
    deployed = replace(deployed, bundle=replace(deployed.bundle, recipe=stored))
    for reading in (
        lambda: workshop.training_clouds(how),
        lambda: teachers.teach(how, tmp_path / "logits.npz"),
        lambda: exporter._examples(how, ("a",), "validation", None, None),
        lambda: subjects.clouds_of(trained.origin(how), None, None, "validation", None),
        lambda: deployment.clouds_of(deployed, None, "validation", None, None),
    ):
        with pytest.raises(Asked, match=f"^{rule}$"):
            reading()


@pytest.mark.parametrize("name", ["compact", "modelnet10", "modelnet40"])
def test_a_bundle_that_says_nothing_about_splits_reads_the_random_ones(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "load_clouds", ask)
    monkeypatch.setattr(samples, "locate", lambda *_: None)
    deployed = deployment.open_bundle(name)
    stored = {
        **deployed.bundle.recipe,
        "data": {k: v for k, v in deployed.bundle.recipe["data"].items() if k != "splits"},
    }
    with pytest.raises(Asked, match="random"):
        deployment.clouds_of(
            replace(deployed, bundle=replace(deployed.bundle, recipe=stored)), None, "test", None, None
        )


def test_the_classes_of_a_part_keep_their_shares() -> None:
    """Of each of the ten classes 26 %, of the others 16 %, at most 100."""
    found = by_number.stored()
    held = Counter({k: len(found["validation"][k]) + len(found["calibration"][k]) for k in MODELNET40})
    for kind, n in found["shapes"].items():
        share = 0.26 if kind in MODELNET10 else 0.16
        assert abs(held[kind] - min(100, share * n)) <= 0.5, kind
