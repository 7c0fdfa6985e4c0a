"""Scene segmentation: rooms as clouds with labelled points, the training of H.4, and the study of beams."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from asp_neuro.data.room_crops import Crops, drawn, load_rooms, locate_s3dis, squares
from asp_neuro.data.rooms import CLASSES, Room
from asp_neuro.errors import ConfigError, MissingError, UsageError

pytest.importorskip("torch")
import torch

from asp_neuro.learn import recipe as recipes
from asp_neuro.learn.rare_parts import emphasis, jaccard_steps, lovasz_softmax, part_weight, strength
from asp_neuro.studies import beam

CEILING, WALL, BEAM, COLUMN = (CLASSES.index(name) for name in ("ceiling", "wall", "beam", "column"))


def hall(n: int = 3000, seed: int = 0) -> Room:
    """4.3 m by 2.6 m; a beam across it, at one end a column."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(size=(n, 3)) * [4.3, 3.0, 2.6]
    labels = np.where(points[:, 1] > 2.5, CEILING, WALL)
    labels[(points[:, 1] > 2.5) & (abs(points[:, 0] - 2.0) < 0.2)] = BEAM
    labels[points[:, 0] < 0.2] = COLUMN
    return Room(points.astype(np.float32), np.full((n, 3), 100, np.uint8), labels, "hall")


# Crops


@pytest.mark.parametrize("size", [0.7, 1.0, 2.0, 9.0])
def test_squares_have_one_size_and_give_each_point_to_one_of_them(size):
    room = hall()
    found = squares([room], size, fewest=1)
    own = np.concatenate([one.own for one in found])
    assert sorted(own) == list(range(len(room)))
    width = [np.ptp(room.points[one.inside][:, 0]) for one in found]
    assert min(width) > 0.8 * min(size, 4.3)  # none is a sliver at the wall
    assert max(width) <= size + 1e-6


def test_a_third_of_the_training_crops_is_about_rare_points():
    room = hall()
    few = drawn([room], Crops(0.6, 300), 64, seed=1)
    many = drawn([room], Crops(0.6, 300, rare_share=0.9), 64, seed=1)
    shares = [np.mean([(room.labels[index] >= BEAM).mean() for _, index in crops]) for crops in (few, many)]
    assert shares[1] > 2 * shares[0] > 0


def test_calibration_has_one_crop_of_each_room_and_names_are_unique(monkeypatch):
    halls = [dataclasses.replace(hall(2000, i), name=f"hall-{i}") for i in range(5)]
    monkeypatch.setattr("asp_neuro.data.room_crops._built", lambda split: halls)
    found = load_rooms("rooms", None, "calibration", Crops(2.0, 10), 256)
    assert len({name.split(" ")[0] for name in found.names}) == len(found) == 5
    assert found.catalogue.count == (len(CLASSES),)


def test_what_cannot_be_cropped_is_said(tmp_path):
    for bad, key in (({"crop": 0.0}, "crop"), ({"crops": 0}, "crops"), ({"rare_share": 2.0}, "rare_share")):
        with pytest.raises(ConfigError, match=key):
            recipes.from_dict("made", {"data": {"name": "rooms", **bad}})
    with pytest.raises(UsageError, match="y up"):
        load_rooms("rooms", None, "train", Crops(), 64, up="z")
    with pytest.raises(MissingError, match="Area_1"):
        locate_s3dis(tmp_path)


# The training of H.4


def task(**keys):
    return recipes.PartsRecipe(parts=(13,), **keys)


def test_emphasis_falls_between_its_ends_but_not_for_exempt_parts():
    how = task(lovasz=0.3, part_weight_power=0.5, anneal_start=0.5, anneal_end=0.7, anneal_floor=0.35, exempt=(3, 4))
    assert [strength(how, share) for share in (0.0, 0.5, 0.6, 0.7, 1.0)] == pytest.approx([1, 1, 0.675, 0.35, 0.35])
    weight = torch.full((13,), 3.0)
    late = emphasis(how, weight, 0.9)
    assert late.lovasz[0] == pytest.approx(0.105)  # the paper's floor
    assert late.lovasz[3] == late.lovasz[4] == pytest.approx(0.3)
    assert late.weight.tolist() == pytest.approx([1.7] * 3 + [3.0] * 2 + [1.7] * 8)
    off = emphasis(task(), None, 0.9)
    assert off.weight is None
    assert off.lovasz is None


def test_rare_parts_weigh_more_and_points_one_on_average():
    parts = np.repeat([0, 3], [90, 10])[None]
    weight = part_weight(parts, task(part_weight_power=0.5))
    assert weight[3] / weight[0] == pytest.approx(3.0)
    assert 0.9 * weight[0] + 0.1 * weight[3] == pytest.approx(1.0)
    assert weight[5] == 1.0
    assert part_weight(parts, task()) is None


def test_lovasz_is_the_jaccard_loss_of_hard_answers():
    rng = np.random.default_rng(0)
    for _ in range(20):
        truth, told = (torch.from_numpy(rng.integers(0, 3, (2, 30))) for _ in range(2))
        logits = torch.nn.functional.one_hot(told, 3).float() * 200.0
        there = truth.unique()
        lost = [1 - ((truth == c) & (told == c)).sum() / ((truth == c) | (told == c)).sum() for c in there]
        found = lovasz_softmax(logits, truth, torch.ones(3))
        assert float(found) == pytest.approx(float(np.mean(lost)), abs=1e-5)
    assert jaccard_steps(torch.tensor([[1.0], [0.0], [1.0]])).flatten().tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 3])


def test_keys_of_the_training_are_checked():
    for bad, key in (({"anneal_start": 0.8, "anneal_end": 0.5}, "anneal"), ({"exempt": (13,)}, "exempt"),
                     ({"lovasz": -1.0}, "lovasz")):  # fmt: skip
        with pytest.raises(ConfigError, match=key):
            task(**bad)


def test_the_recipes_of_rooms_look_ten_times():
    for name in ("rooms", "s3dis"):
        how = recipes.load(name)
        assert how.scene.budget == 10
        assert how.data.room_crops.rare_share == 0.35


# The study


def test_iou_is_pooled_over_points_and_absent_classes_are_left_out():
    count = np.zeros((13, 13), np.int64)
    count[CEILING, CEILING], count[BEAM, CEILING], count[BEAM, BEAM] = 6, 3, 1
    found = beam.measured(count)
    assert found["beam"] == pytest.approx(1 / 4)
    assert found["beam_taken_for_ceiling"] == pytest.approx(3 / 4)
    assert found["miou"] == pytest.approx((6 / 9 + 1 / 4) / 2)
    assert np.isnan(found["column"])


@pytest.mark.parametrize(("near", "far", "said"), [(0.001, 0.2, "holds"), (0.1, 0.2, "fails"), (0.0, 0.0, "fails")])
def test_the_verdict_follows_the_prediction(near, far, said):
    rows = [{"crop": 1.0, "beam": near}, {"crop": 1.0, "beam": 0.0}, {"crop": 2.0, "beam": far}]
    assert beam.verdict(rows) == said


def test_the_premise_counts_beam_points_whose_crop_shows_ceiling():
    room = hall()
    assert beam.premise([room], squares([room], 1.0)) == 1.0
    alone = Room(room.points, room.colours, np.where(room.labels == CEILING, WALL, room.labels), "bare")
    assert beam.premise([alone], squares([alone], 1.0)) == 0.0


def test_variants_differ_in_crop_and_weighting_alone():
    how = recipes.load("rooms")
    made = {name: how.changed(**change) for name, change in beam.changes().items()}
    assert sorted(made) == ["1m_plain", "1m_reweighted", "2m_plain", "2m_reweighted"]
    assert made["2m_reweighted"] == how
    assert made["1m_reweighted"].task == how.task
    assert made["1m_plain"].data.rare_share == made["1m_plain"].task.lovasz == 0.0
    assert made["1m_plain"].train == how.train


def test_the_study_trains_answers_and_writes(tmp_path, monkeypatch):
    small = {
        "data": {"crops": 12}, "task": {"hidden": 8, "queries": 16, "asked": 8},
        "scene": {"n_points": 128, "n_groups": 16, "group_size": 8, "n_chunks": 4},
        "model": {"width": 12, "neurons": 12, "token_width": 12, "edge_widths": (6, 8), "first_look": 4},
        "train": {"epochs": 1, "qat_epochs": 1, "batch_size": 6}, "augment": {"cuts": 0},
    }  # fmt: skip
    monkeypatch.setattr("asp_neuro.data.room_crops._built", lambda split: [hall(4000, len(split))])
    report = beam.run(recipes.load("rooms").changed(**small), seeds=(0,), split="validation", out=tmp_path)
    assert {row["crop"] for row in report["rows"]} == {1.0, 2.0}
    assert (tmp_path / "beam.csv").read_text().count("\n") == 5
    assert (tmp_path / "beam.png").stat().st_size > 5000
    assert "whatever the weighting" in beam.text(report)
    with pytest.raises(UsageError, match="not about rooms"):
        beam.run("compact", out=tmp_path)


def test_the_command_hands_the_study_what_was_asked(cli, monkeypatch, tmp_path):
    asked = {}
    monkeypatch.setattr(beam, "run", lambda **words: asked.update(words) or {"rows": []})
    monkeypatch.setattr(beam, "text", lambda report: "done")
    assert cli("study", "beam", "--seeds", "0,1", "--out", str(tmp_path)).code == 0
    assert (asked["seeds"], asked["out"], asked["limit"]) == ((0, 1), tmp_path, None)
    assert "epochs" not in asked
