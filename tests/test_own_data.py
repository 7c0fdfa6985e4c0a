"""Data of one's own: remembered where a model was trained, which clouds were used, what looks like training clouds."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from asp_neuro import bundle as bundles
from asp_neuro import plain
from asp_neuro.bundle.origin import Origin, read_origin
from asp_neuro.certify.used import Level, Used, refuse_again, with_use
from asp_neuro.data import Place, load_clouds
from asp_neuro.data.fingerprints import ALIKE, MOST, N_PROBES, STEPS, alike, mark, print_of, recalled, remember
from asp_neuro.data.own import OwnData, own_data, recall, up_axis
from asp_neuro.errors import AspError, ConfigError, InputError, MissingError
from asp_neuro.learn import workshop
from asp_neuro.learn.recipe import load
from asp_neuro.runtime import deployment

N_EACH = {"train": 6, "validation": 3, "calibration": 12, "test": 3}
LEVEL, OTHER = Level(0.05, 0.05), Level(0.1, 0.05)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Built-in shapes as text files, z up, in split folders."""
    root = tmp_path_factory.mktemp("mine")
    clouds = load_clouds("shapes", "validation", n_points=256)
    start = 0
    for split, n in N_EACH.items():
        for label, name in enumerate(clouds.classes):
            (root / name / split).mkdir(parents=True)
            for place, i in enumerate(np.flatnonzero(clouds.labels == label)[start : start + n]):
                x, y, z = clouds.points[i].T
                np.savetxt(root / name / split / f"{name}_{split}_{place}.xyz", np.stack([x, -z, y], 1), fmt="%.5f")
        start += n
    return root


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory) -> Path:
    """A checkpoint of one short training on the folder, and its bundle beside it."""
    out = tmp_path_factory.mktemp("out") / "model.pt"
    small = load("compact").changed(
        scene={"n_points": 256, "n_groups": 16, "group_size": 8, "n_chunks": 4},
        model={"width": 16, "neurons": 16, "policy_width": 8},
        train={"epochs": 2, "qat_epochs": 1, "own_steps": 6, "batch_size": 16},
    )
    report = workshop.train(small, data=folder, up="z", out=out)
    assert report["epochs"] == 2  # 48 clouds, 3 steps an epoch
    assert report["data"] == {"path": str(folder), "up": "z"}
    assert f"remembered: data {folder}, z up" in workshop.summary(report)
    return out


@pytest.fixture
def exported(trained, tmp_path, cli) -> Path:
    """Without a certificate: a bundle that has used no clouds."""
    said = cli("export", str(trained), "--out", str(tmp_path / "mine.net"), "--no-certificate", "--json")
    assert said.code == 0, said
    return tmp_path / "mine.net"


# Remembered


def test_a_folder_and_its_up_axis_are_remembered_from_training_to_the_study(trained, exported, folder, cli, tmp_path):
    for words in (
        ("run", str(exported), "--limit", "4"),
        ("verify", str(exported), "--no-lava", "--limit", "2"),
        ("study", "order", str(exported), "--limit", "4", "--out", str(tmp_path / "order")),
        ("export", str(trained), "--out", str(tmp_path / "again.net"), "--no-certificate"),
    ):
        said = cli(*words)
        assert said.code == 0, said
        assert f"data: {folder}, z up (as the model was trained)" in said.err, words
    assert f"remembered: data {folder}, z up" in said.out
    assert f"trained on {folder}, z up (48 clouds)" in cli("show", str(exported)).out


def test_remembered_data_give_the_same_answers_as_told_ones(exported, folder, cli):
    known = cli("run", str(exported), "--json").json
    told = cli("run", str(exported), "--data", str(folder), "--up", "z", "--json").json
    assert {**known, "seconds": 0} == {**told, "seconds": 0}
    assert f"data: {folder}, y up, as asked" in cli("run", str(exported), "--up", "y", "--limit", "2").err


def test_other_clouds_are_taken_with_the_remembered_axis(exported, folder, cli):
    one = next((folder / "box/test").iterdir())
    known = cli("run", str(exported), "--input", str(one), "--json")
    assert "z is up, as in the clouds that the model was trained on" in known.err
    told = cli("run", str(exported), "--input", str(one), "--up", "z", "--json")
    assert "z is up" not in told.err
    assert known.json["answers"] == told.json["answers"]


def test_a_folder_that_is_not_here_is_told(exported, cli, tmp_path):
    bundle = bundles.read(exported)
    gone = OwnData(str(tmp_path / "gone"), "z", 48)
    bundles.write(exported, dataclasses.replace(bundle, origin=plain.of(Origin(own=gone))))
    said = cli("run", str(exported))
    assert said.code == 2
    assert f"trained on {tmp_path / 'gone'}, z up, and that folder is not here" in said.err
    assert cli("run", str(exported), "--data", "shapes").code in (0, 2)  # a name needs no folder
    with pytest.raises(MissingError, match="--data FOLDER"):
        recall(gone, None, None)


def test_where_a_model_was_trained_is_no_part_of_what_it_is(exported):
    bundle = bundles.read(exported)
    bare = dataclasses.replace(bundle, origin=None)
    assert bundles.model_sha256(bare) == bundles.model_sha256(bundle)
    assert read_origin(bare.origin) == Origin()
    assert bundles.from_bytes(bundles.to_bytes(bare)).origin is None
    with pytest.raises(ConfigError, match="unknown key 'owner'"):
        dataclasses.replace(bundle, origin={"owner": "me"})


def test_what_is_told_wins_over_what_is_remembered(folder, capsys):
    own = OwnData(str(folder), "z", 3)
    assert recall(None, None, None) == (None, None)
    assert recall(own, "shapes", None) == ("shapes", None)
    assert recall(own, "elsewhere", "x") == ("elsewhere", "x")
    assert recall(own, None, "x") == (str(folder), "x")
    assert up_axis(own, None) == "z"
    assert up_axis(None, None) is None
    assert own_data(Place("shapes"), None, None) is None


# Epochs


@pytest.mark.parametrize(("n", "epochs"), [(2000, 22), (2100, 22), (299, 156), (30, 1400), (5, 1400)])
def test_epochs_follow_the_number_of_clouds(n, epochs):
    found = workshop.long_enough(load("compact"), n, lambda text: None)
    assert found.train.epochs in (epochs, 23)  # 62 steps an epoch: 1,400 are 23 of them
    assert 0.2 < found.train.qat_epochs / found.train.epochs < 0.35


def test_more_epochs_are_said_and_may_be_turned_off():
    said: list[str] = []
    workshop.long_enough(load("compact"), 299, said.append)
    assert said == [
        "299 clouds are few: 156 epochs instead of 22, so that 1404 steps are made (another number: --epochs)"
    ]
    off = load("compact").changed(train={"own_steps": 0})
    assert workshop.long_enough(off, 299, said.append) == off


# Calibration clouds are used once


def test_clouds_are_known_again_at_any_other_level():
    used = with_use((), ["a", "b", "c"], [LEVEL])
    refuse_again(used, ["c", "b", "a"], [LEVEL])  # no new try
    refuse_again(used, ["x", "y"], [OTHER])
    for hashes, levels in ((["a", "b", "c"], [OTHER]), (["a", "b", "c"], [LEVEL, OTHER]), (["a", "x"], [LEVEL])):
        with pytest.raises(InputError, match="a promise that is picked from several is none"):
            refuse_again(used, hashes, levels)


def test_levels_that_were_tried_together_may_be_asked_for_in_any_order():
    used = with_use((), ["a", "b"], [LEVEL, OTHER])
    for levels in ([LEVEL], [OTHER], [OTHER, LEVEL]):
        refuse_again(used, ["a", "b"], levels)
    assert len(with_use(used, ["b", "a"], [LEVEL])) == 1
    assert len(with_use(used, ["c"], [LEVEL])) == 2
    with pytest.raises(InputError, match="3 bytes"):
        Used("AAAA", (LEVEL,))


def test_several_levels_share_delta_and_further_ones_are_refused(exported, cli):
    said = cli("certify", str(exported), "--alpha", "0.9,0.8", "--delta", "0.2", "--json")
    levels = said.json["levels"]
    assert [(level["alpha"], level["delta"]) for level in levels] == [(0.9, 0.1), (0.8, 0.1)]
    refused = cli("certify", str(exported), "--alpha", "0.7", "--json")
    assert refused.code == 2
    assert "96 of 96 calibration clouds were used" in refused.json["error"]["message"]
    again = cli("certify", str(exported), "--alpha", "0.8,0.9", "--delta", "0.2", "--json")
    assert again.json["levels"] == levels[::-1]
    text = cli("certify", str(exported), "--alpha", "0.9,0.8", "--delta", "0.2").out
    assert "2 levels share delta, 10 % each" in text
    assert "alpha 90 % (stored): " in text
    assert "96 calibration clouds were used at alpha 90 % with delta 10 %, alpha 80 %" in cli("show", str(exported)).out


def test_export_into_the_same_file_does_not_forget(trained, exported, cli):
    assert cli("certify", str(exported), "--alpha", "0.9").code in (0, 1)  # so short a training may earn no promise
    before = bundles.read(exported).certificate
    assert before is not None
    said = cli("export", str(trained), "--out", str(exported), "--alpha", "0.8")
    assert "no new certificate: 96 of 96 calibration clouds were used" in said.err
    assert bundles.read(exported).certificate == before


def test_export_gives_the_same_advice_as_certify(trained, cli, tmp_path):
    said = cli("export", str(trained), "--out", str(tmp_path / "a.net"), "--alpha", "0.9")
    assert "only 96 calibration samples: 600 or more are advised" in said.out
    assert "A certificate needs at least" in said.out


def test_a_shipped_certificate_has_used_its_clouds(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = cli("certify", "compact", "--alpha", "0.1", "--json")
    assert said.code == 2
    assert "alpha 5 % with delta 5 %; asked for: alpha 10 %" in said.json["error"]["message"]


@pytest.mark.parametrize("words", ["0.05,0.05", "a", "0.1,", ""])
def test_levels_are_numbers_and_differ(cli, words):
    assert cli("certify", "compact", "--alpha", words).code == 2


# Shapes that were trained on


@pytest.fixture(scope="module")
def samples() -> tuple[np.ndarray, np.ndarray]:
    """Two samples of the same 300 built-in shapes, [300, 1024, 3] each."""
    dense = load_clouds("shapes", "validation", n_points=2048).points[:300]
    order = np.random.default_rng(0).permutation(2048)
    return dense[:, order[:1024]], dense[:, order[1024:]]


def test_shapes_under_another_sampling_are_noticed_and_others_are_not(samples):
    one, two = (half[:150] for half in samples)
    names = [f"box/train/box_{i}.xyz" for i in range(150)]
    text = remember(one, names)
    found = alike(text, 150, two, [f"box/calibration/{i}.ply" for i in range(150)])
    assert found.by_shape > 100
    assert found.by_name == 0
    assert "look like clouds that the model was trained on" in found.text
    fresh = [f"box/calibration/{i}.ply" for i in range(150)]
    assert alike(text, 150, samples[1][150:], fresh) is None


def test_the_same_names_are_noticed_where_the_shapes_agree(samples):
    one, two = (half[:40] for half in samples)
    names = [f"box/train/box_{i}.xyz" for i in range(40)]
    text = remember(one, names)
    found = alike(text, 40, two, [f"box/calibration/box_{i}.las" for i in range(40)])
    assert found.by_name > 30
    assert "under the same name" in found.text
    again = alike(
        text,
        40,
        samples[0][200:240],
        [  # numbers that begin again are no sign
            f"box/calibration/box_{i}.xyz" for i in range(40)
        ],
    )
    assert again is None or again.by_name < 10


def test_a_print_forgets_place_size_and_order_of_the_points(samples):
    cloud = samples[0][0].astype(np.float64)
    moved = print_of((cloud * 1000 + 593000)[::-1])
    assert np.abs(moved.astype(int) - print_of(cloud)).max() <= 1
    assert print_of(cloud).shape == (N_PROBES,)
    assert ALIKE * STEPS > 1  # a step of the print is not what decides


def test_many_training_clouds_take_no_more_than_their_share():
    n = MOST + 300
    some = np.random.default_rng(0).normal(size=(n, 8, 3))
    text = remember(some, [f"a/{i}" for i in range(n)])
    assert len(recalled(text)[0]) == MOST
    assert len(text) < 100_000
    assert mark("a/train/b.xyz") == mark("a/b.las") != mark("c/b.las")
    with pytest.raises(InputError, match="base64"):
        recalled("?")
    with pytest.raises(InputError, match="3 bytes"):
        recalled("AAAA")


def test_certify_warns_of_shapes_that_were_trained_on(exported, folder, cli, tmp_path):
    other = tmp_path / "sampled again"
    for path in sorted(folder.glob("*/train/*.xyz")):
        for split in ("train", "validation", "calibration"):
            place = other / path.parent.parent.name / split / path.name
            place.parent.mkdir(parents=True, exist_ok=True)
            points = np.loadtxt(path)
            seed = {"train": 0, "validation": 1, "calibration": 2}[split]
            noise = np.random.default_rng(seed).normal(scale=0.002, size=points.shape)
            np.savetxt(place, points + noise)
    said = cli("certify", str(exported), "--data", str(other), "--alpha", "0.9", "--json")
    assert "warning: 48 of 48 calibration clouds look like clouds that the model was trained on, 48 of" in said.err
    assert said.json["trained_alike"].startswith("48 of 48")


def test_a_model_that_remembers_is_hardly_larger(exported):
    bundle = bundles.read(exported)
    grown = len(bundles.to_bytes(bundle)) - len(bundles.to_bytes(dataclasses.replace(bundle, origin=None)))
    assert 0 < grown < 10_000  # 48 clouds
    with pytest.raises(AspError, match="own data"):
        OwnData("a\nb", "z", 3)
    assert deployment.open_bundle(exported).origin.own.n_train == 48
