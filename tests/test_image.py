"""Images as scenes: glimpses and descriptors by hand, the encoder against plain integers, and the whole chain."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import specs

from asp_neuro import bundle as bundles
from asp_neuro.bundle import Bundle, make_golden
from asp_neuro.data.own import own_data, recall
from asp_neuro.data.pictures import ImageSet
from asp_neuro.data.places import Place
from asp_neuro.errors import ConfigError, InputError, MissingError, UsageError
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.model.prefix import compare
from asp_neuro.model.rules import image_orders
from asp_neuro.report import about
from asp_neuro.runtime import deployment, integers
from asp_neuro.runtime.machine import Machine
from asp_neuro.runtime.verification import verify
from asp_neuro.scenes.image import Gaze, all_glimpses, describe, images, maps
from asp_neuro.studies import plots, robustness

COLOUR = dataclasses.replace(specs.SMALL_GAZE, channels=3)
IDS = [f"image {i}" for i in range(6)]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def model(gaze: Gaze = specs.SMALL_GAZE, **parts):
    return specs.random_image_model(rng(1), gaze, **parts)


# Glimpses and descriptors


def test_the_fixation_points_of_clutter_lie_8_pixels_apart_about_the_middle():
    centres = Gaze().centres
    assert centres.shape == (49, 2)
    assert centres[0].tolist() == [6, 6]
    assert centres[1].tolist() == [14, 6]
    assert centres[24].tolist() == [30, 30]
    assert centres[48].tolist() == [54, 54]


def test_a_glimpse_is_the_rounded_mean_of_its_cells_and_dark_beyond_the_border():
    how = Gaze()
    image = rng(3).integers(0, 256, (1, 1, 60, 60)).astype(np.uint8)
    for one, scale in zip(maps(image, how), how.scales):
        glimpses = all_glimpses(one, scale, how)
        for place in (0, 10, 24, 48):
            x, y = how.centres[place] - 6 * scale
            wide = np.zeros((200, 200), dtype=np.int64)
            wide[50:110, 50:110] = image[0, 0]
            for i in range(12):
                for j in range(12):
                    top, left = 50 + y + i * scale, 50 + x + j * scale
                    mean = wide[top : top + scale, left : left + scale].sum() / scale**2
                    assert glimpses[0, 0, place // 7, place % 7, i, j] == int(mean + 0.5)


def test_descriptors_of_one_bright_cell_by_hand():
    how = Gaze()
    image = np.zeros((1, 1, 60, 60), dtype=np.uint8)
    image[0, 0, 28:32, 28:32] = 255  # the cell about the middle
    found = describe(image, how)[0]
    middle, beside, corner = found[24], found[25], found[0]
    np.testing.assert_allclose(middle[:3], 0.0)
    np.testing.assert_allclose(middle[3:], [1 / 9, np.sqrt(8) / 9, 1 / 49, np.sqrt(48) / 49, 1.0], atol=2**-16)
    np.testing.assert_allclose(beside[[0, 1, 3, 4]], [16 / 60, 0.0, 0.0, 0.0], atol=2**-16)
    np.testing.assert_allclose(beside[5:], middle[5:])
    np.testing.assert_allclose(corner, [-0.8, -0.8, 0.8 * np.sqrt(2), 0, 0, 0, 0, 0], atol=2**-16)


def test_descriptors_stay_within_their_bound_on_the_brightest_image():
    scene = model().scene
    image = np.full((1, 1, 36, 36), 255, dtype=np.uint8)
    assert (np.abs(describe(image, scene.gaze)) <= scene.descriptor_bound).all()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"channels": 2}, "channels = 2"),
        ({"size": 61}, "size = 61"),
        ({"budget": 10}, "budget = 10"),
        ({"scales": (2, 1)}, "scales"),
        ({"scales": (1, 3)}, "pitch = 8 must be a multiple of every scale"),
        ({"grid": 11}, "grid = 11"),
        ({"near": 16}, "near = 16"),
        ({"side": 6}, "no middle"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(change, word):
    with pytest.raises(ConfigError, match=word):
        dataclasses.replace(specs.SMALL_GAZE, **change)


def test_a_glimpse_whose_positions_cannot_be_halved_is_refused_by_its_grid():
    for grid, word in ((28, "2 more than a multiple of 4"), (22, "too small for 4")):
        with pytest.raises(ConfigError, match=f"grid = {grid}.*{word}"):
            specs.random_image_scene(rng(), dataclasses.replace(specs.DEEP_GAZE, grid=grid), deep=True)


def test_images_of_another_shape_type_or_range_are_refused():
    how = specs.SMALL_GAZE
    for wrong, word in (
        (np.zeros((2, 30, 36), np.uint8), r"\[2, 30, 36\], expected \[n, 36, 36\]"),
        (np.zeros((2, 36, 36)), "float64"),
        (np.full((2, 36, 36), 256), "pixels from 256 to 256"),
        (np.full((2, 36, 36), -1), "pixels from -1"),
        (np.zeros((0, 36, 36), np.uint8), "no images"),
    ):
        with pytest.raises(InputError, match=word):
            images(wrong, how)
    both = specs.random_images(rng(), 2, COLOUR)
    planes = both.transpose(0, 3, 1, 2).reshape(2, 3 * 36, 36)
    np.testing.assert_array_equal(images(both, COLOUR).pixels, images(planes, COLOUR).pixels)


# Episodes


@pytest.mark.parametrize("gaze", [specs.SMALL_GAZE, COLOUR, specs.DEEP_GAZE])
def test_the_host_equals_plain_integers_in_every_number(gaze):
    perceiver = Perceiver(model(gaze))
    scenes = perceiver.scenes(specs.random_images(rng(2), 6, gaze))
    found = integers.integer_looks(perceiver, scenes[:2])
    looks = perceiver.played(scenes[:2], ExitRule()).looks
    assert len(looks) == 4
    for ours, theirs in zip(looks, found, strict=True):
        for what in ("place", "scores", "drive_int", "membrane", "belief", "logits", "margin", "label"):
            np.testing.assert_array_equal(getattr(ours, what), getattr(theirs, what))
    assert len({look.place.tobytes() for look in looks}) > 1


def test_embeddings_do_not_depend_on_the_batch_and_are_lively():
    perceiver = Perceiver(model())
    scenes = perceiver.scenes(specs.random_images(rng(4), 20))
    view = perceiver.model.encoder.view(scenes)
    place = rng(5).integers(0, 9, 20)
    whole = view.embed(np.arange(20), place)
    alone = [
        perceiver.model.encoder.view(scenes[i : i + 1]).embed(np.array([0]), place[i : i + 1])[0] for i in range(20)
    ]
    np.testing.assert_array_equal(whole, np.array(alone))
    assert (whole == np.floor(whole)).all()
    assert np.abs(whole).max() <= 127
    assert whole.std() > 5
    assert view.macs == perceiver.spec.scene.operations(20).macs


@pytest.mark.parametrize("gaze", [specs.SMALL_GAZE, COLOUR])
def test_statistics_are_those_of_the_image_alone_and_have_names(gaze):
    scene = specs.random_image_scene(rng(), gaze)
    scenes = scene.scenes(specs.random_images(rng(3), 5, gaze))
    found = scene.statistics(scenes)
    assert found.shape == (5, len(scene.words))
    np.testing.assert_array_equal(found[2:3], scene.statistics(scenes[2:3]))
    white = dict(zip(scene.words, scene.statistics(scene.scenes(np.full((1, *gaze.shape), 255, np.uint8)))[0]))
    assert (white["mean"], white["spread"], white["above 240"], white["across"]) == (1.0, 0.0, 1.0, 0.0)


def test_streaming_equals_prefix_on_images():
    perceiver = Perceiver(model())
    assert compare(perceiver, [perceiver.scenes(specs.random_images(rng(6), 8))], ExitRule(0.3))["equal"]


def test_operations_are_those_that_a_loop_counts():
    scene = model().scene
    one = 10 * 10 * 4 * 9 + 8 * 8 * 5 * 36 + 2 * 2 * 6 * 45
    assert scene.operations(3.0).macs == 3 * (2 * one + 16 * 14)
    deep = model(specs.DEEP_GAZE).scene
    one = 24 * 24 * 4 * 27 + 10 * 10 * 5 * 36 + 3 * 3 * 7 * 45 + 6 * 63
    assert deep.operations(2.0).macs == 2 * (2 * one + 16 * 14)


def stored(path, gaze=specs.SMALL_GAZE) -> deployment.Deployed:
    spec = model(gaze)
    raw = specs.random_images(rng(7), 4, gaze)
    planes = raw.reshape(4, 36, 36, -1).transpose(0, 3, 1, 2).reshape(4, -1, 36)
    golden = make_golden(spec, Perceiver(spec).drives(spec.scene.scenes(raw[:2])), planes[2:].astype(np.int16))
    recipe = {"name": "own", "seed": 0, "data": {"name": "strokes"}, "train": {"epochs": 1}}
    bundles.write(path, Bundle(spec, recipe, golden))
    return deployment.open_bundle(path)


@pytest.mark.parametrize("gaze", [specs.SMALL_GAZE, COLOUR])
def test_a_bundle_of_images_is_verified_and_a_planted_fault_is_found(tmp_path, gaze):
    deployed = stored(tmp_path / "own.net", gaze)
    assert deployed.settings == gaze
    assert bundles.golden_mismatches(deployed.bundle) == 0
    scenes = deployed.bundle.model.scene.scenes(specs.random_images(rng(8), 6, gaze))
    found = verify(deployed.bundle, scenes, IDS, ExitRule(0.3), {"integers": integers.INTEGERS})
    assert found.mismatches == 0, found.first
    scene = deployed.bundle.model.scene
    weight = scene.second.weight.copy()
    weight[0, 0] += 9
    spoilt = dataclasses.replace(scene, second=dataclasses.replace(scene.second, weight=weight))
    other = Perceiver(dataclasses.replace(deployed.bundle.model, scene=spoilt))
    faulty = Machine("faulty", looks=lambda _, some: integers.integer_looks(other, some), at_most=2)
    assert verify(deployed.bundle, scenes, IDS, ExitRule(), {"faulty": faulty}).mismatches > 0


def test_one_array_in_one_answer_out(tmp_path):
    deployed = stored(tmp_path / "own.net")
    raw = specs.random_images(rng(9), 1)
    answer = deployed.perceiver(raw[0])
    assert answer.order == deployed.perceiver.answers(deployed.perceiver.scenes(raw))[0].order
    assert len(answer.order) == 4


@pytest.mark.slow
@pytest.mark.lava
def test_images_on_lava_give_the_same_answers(tmp_path):
    from asp_neuro.chip.machines import SIMULATOR

    deployed = stored(tmp_path / "own.net")
    scenes = deployed.bundle.model.scene.scenes(specs.random_images(rng(8), 3))
    assert verify(deployed.bundle, scenes, IDS[:3], ExitRule(0.3), {"lava": SIMULATOR}).mismatches == 0


# Rules to compare with, and the picture


def test_orders_of_the_rules_by_hand():
    how = Gaze()
    image = np.zeros((2, 60, 60), dtype=np.uint8)
    image[0, 42:58, 42:58] = 255
    image[1, 2:18, 26:34] = 255
    scenes = images(image, how)
    out = image_orders("centre_out", scenes, how, 0)
    assert out[0, 0] == 24
    assert set(out[0, 1:5]) == {17, 23, 25, 31}
    bright = image_orders("brightest", scenes, how, 0)
    assert bright[:, 0].tolist() == [40, 2]  # the first places around which the whole patch lies
    near = image_orders("nearest", scenes, how, 0, np.array([[53, 7], [30, 31]]))
    assert near[:, 0].tolist() == [6, 24]
    assert image_orders("nearest", scenes, how, 0) is None
    assert image_orders("learned", scenes, how, 0) is None
    for order in (out, bright, near, image_orders("random", scenes, how, 0)):
        assert (np.sort(order, axis=1) == np.arange(49)).all()


def test_what_was_seen_is_what_the_glimpses_cover(tmp_path):
    deployed = stored(tmp_path / "own.net")
    how, raw = specs.SMALL_GAZE, np.full((1, 36, 36), 200, dtype=np.uint8)
    scenes = deployed.bundle.model.scene.scenes(raw)
    answer = deployed.perceiver.answers(scenes)[0]
    first = dataclasses.replace(answer, order=(0,), labels=answer.labels[:1], margins=answer.margins[:1])
    seen = plots.seen_of(scenes, how, first)[..., 0]
    assert how.centres[0].tolist() == [10, 10]
    assert (seen[4:16, 4:16] == 200).all()  # at full resolution
    assert (seen[:22, :22] > 0).all()
    assert (seen[22:] == 0).all()
    assert (seen[:, 22:] == 0).all()
    path = plots.fixations(
        tmp_path / "seen.png", scenes, how, answer, deployed.bundle.classes, "a title", ExitRule(0.4)
    )
    assert path.read_bytes()[:4] == b"\x89PNG"


# Words


def test_what_is_written_about_clouds_is_said_about_images():
    assert (
        about("image", "Clouds: one cloud, two clouds; a cloudy day") == "Images: one image, two images; a cloudy day"
    )
    assert about("cloud", "Clouds: one cloud") == "Clouds: one cloud"


def test_no_sentence_about_the_shipped_images_speaks_of_clouds():
    shipped = deployment.open_bundle("clutter")
    sentence = deployment.exit_rule(shipped)[1]
    assert "for new images drawn" in sentence
    assert "whose image is unfamiliar" in sentence
    for word in ("cloud", "Cloud"):
        assert word not in sentence + bundles.describe(shipped.bundle)
    answers = deployment.load_perceiver("clutter")(np.full((60, 60), 200, np.uint8))
    assert "not like known images" in answers.unfamiliar


def test_a_folder_of_pictures_is_remembered_without_an_up_axis():
    pixels = specs.random_images(rng(), 2, COLOUR)
    pictures = ImageSet(pixels, np.array([0, 1]), ("a/1", "b/2"), ("a", "b"), "own")
    own = own_data(Place("folder", Path("/some/where")), None, pictures)
    assert own.text == "/some/where"
    assert own.kind == "image"
    with pytest.raises(MissingError, match=r"(?s)where, and that folder.*such images are"):
        recall(own, None, None)


def test_a_study_that_changes_clouds_says_so_before_it_reads_anything():
    with pytest.raises(UsageError, match=r"looks at images; this study changes clouds.*study fovea"):
        robustness.run(["clutter"])
