"""Learning to look at images: the trained module on the grid is the deployed network, a stopped training goes on."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import specs

torch = pytest.importorskip("torch")

from asp_neuro.bundle import Bundle, make_golden  # noqa: E402
from asp_neuro.data.clutter import Rule, cluttered  # noqa: E402
from asp_neuro.data.pictures import ImageSet  # noqa: E402
from asp_neuro.data.strokes import strokes  # noqa: E402
from asp_neuro.learn import checkpoint, score_function, training  # noqa: E402
from asp_neuro.learn import recipe as recipes  # noqa: E402
from asp_neuro.learn.evaluation import evaluate  # noqa: E402
from asp_neuro.learn.image_encoder import glimpses_at  # noqa: E402
from asp_neuro.learn.image_examples import ImageExamples, batch_of, changed  # noqa: E402
from asp_neuro.learn.machine import machine  # noqa: E402
from asp_neuro.learn.machine import trained as module_of  # noqa: E402
from asp_neuro.learn.recipe import ModelRecipe, Recipe, TrainRecipe  # noqa: E402
from asp_neuro.model.exit import ExitRule  # noqa: E402
from asp_neuro.model.perceiver import Perceiver  # noqa: E402
from asp_neuro.runtime.deployment import open_bundle  # noqa: E402
from asp_neuro.runtime.verification import verify  # noqa: E402
from asp_neuro.scenes.augment import Augmentation  # noqa: E402

GAZE = specs.SMALL_GAZE
TINY = Recipe(
    name="tiny",
    scene=GAZE,
    model=ModelRecipe(width=12, neurons=12, policy_width=6, first_look=5, conv_widths=(4, 5, 6)),
    train=TrainRecipe(
        epochs=3, qat_epochs=1, batch_size=16, policy_gradient=1.0, entropy=0.02, guided=0.3, random_share=0.2,
        label_smoothing=0.0, ema_decay=0.9,
    ),
)  # fmt: skip


DEEP = TINY.changed(
    model={"conv_widths": (4, 5, 6, 7), "at_once": True},
    train={"policy_gradient": 0.0, "guided": 0.0, "imitation": 0.5, "detach_belief": True, "whole": 1.0,
           "whole_first": 0.4, "epochs": 5, "qat_epochs": 2, "learning_rate": 1e-2, "warmup": 0.0},
)  # fmt: skip


def photos(n: int, seed: int) -> ImageExamples:
    """Light from one of two sides."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    pixels = specs.random_images(rng, n, specs.DEEP_GAZE)
    for image, label in zip(pixels, labels):
        image[:, 20 * label : 20 * label + 20, 0] |= 128
    found = ImageSet(pixels, labels.astype(np.int64), tuple(map(str, range(n))), ("left", "right"), "photos")
    return ImageExamples(found, specs.DEEP_GAZE)


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("photos") / "deep.pt"
    recipe = dataclasses.replace(DEEP, scene=specs.DEEP_GAZE)
    report = training.train(recipe, ("left", "right"), photos(96, 0), photos(32, 1), out)
    return out, report


def test_encoded_at_once_a_map_gives_the_embeddings_of_each_glimpse(deep):
    model = training.load_model(deep[0])[0]
    batch = batch_of(photos(5, 2).scenes, specs.DEEP_GAZE)
    place = torch.tensor([0, 3, 8, 4, 7])
    glimpses = glimpses_at(batch.maps, place, specs.DEEP_GAZE)
    rows = torch.arange(5)
    with torch.no_grad():
        assert torch.equal(
            model.encoder.on_grid(glimpses, place), model.encoder.over_maps_on_grid(batch.maps)[0][rows, place]
        )
        one, every = model.encoder(glimpses, place), model.encoder.over_maps(batch.maps)[0][rows, place]
    assert torch.allclose(one, every, atol=1e-5)
    assert one.std() > 0.01


def test_a_module_that_encodes_maps_is_the_deployed_network_that_encodes_glimpses(deep):
    model, recipe, classes, stored = training.load_model(deep[0])
    spec = model.spec(recipe.scene, classes)
    scenes = photos(12, 2).scenes
    planes = scenes.pixels[:2].reshape(2, -1, 40).astype(np.int16)
    bundle = Bundle(spec, {"name": "deep"}, make_golden(spec, Perceiver(spec).drives(scenes[:2]), planes))
    names = [str(i) for i in range(12)]
    found = verify(bundle, scenes, names, ExitRule(0.2), {"torch": machine(model)})
    assert found.mismatches == 0, found.first
    with torch.no_grad():
        model.encoder.between.gain[0] += 0.5
    assert verify(bundle, scenes, names, ExitRule(0.2), {"torch": machine(model)}).mismatches > 0


def test_the_dense_control_learns_first_and_is_reported(deep):
    report = deep[1]
    assert report["dense_accuracy"] > 0.8
    assert [row["firing_rate"] > 0.0 for row in training.load_model(deep[0])[3]["history"]] == [False] * 2 + [True] * 3


def test_maps_whose_glimpses_begin_between_maxima_cannot_be_encoded_at_once():
    gaze = dataclasses.replace(specs.DEEP_GAZE, scales=(1, 4))
    with pytest.raises(recipes.ConfigError, match="at scale 4 the points are 2 cells apart"):
        training.build(dataclasses.replace(DEEP, scene=gaze), ("a", "b"))


def examples(n: int, stream: int, split: str) -> ImageExamples:
    digits, labels = strokes(n, stream)
    return ImageExamples(cluttered("tiny", digits, labels, split, Rule(GAZE.size, pieces=1), 0), GAZE)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("images") / "tiny.pt"
    data = examples(64, 0, "train")
    report = training.train(TINY, data.samples.classes, data, examples(32, 1, "validation"), out)
    return out, report


def test_the_trained_module_is_the_deployed_network_bit_for_bit(trained):
    model, recipe, classes, _ = training.load_model(trained[0])
    assert recipe == TINY
    spec = model.spec(recipe.scene, classes)
    assert (spec.budget, spec.scene.n_places) == (4, 9)
    scenes = examples(12, 2, "test").scenes
    golden = make_golden(spec, Perceiver(spec).drives(scenes[:2]), scenes.pixels[:2, 0].astype(np.int16))
    bundle = Bundle(spec, {"name": "tiny"}, golden)
    found = verify(bundle, scenes, [str(i) for i in range(12)], ExitRule(0.2), {"torch": machine(model)})
    assert found.mismatches == 0, found.first
    assert found.compared["drives"] > 12 * 4 * 12
    with torch.no_grad():
        model.encoder.third.weight[0] += 0.5
    other = verify(bundle, scenes, [str(i) for i in range(12)], ExitRule(0.2), {"torch": machine(model)})
    assert other.mismatches > 0


def test_a_training_that_was_stopped_ends_with_the_same_weights(trained, tmp_path, monkeypatch):
    data, validation = examples(64, 0, "train"), examples(32, 1, "validation")

    class Stopped(Exception):
        pass

    def stop(row):
        if row["epoch"] == 2:
            raise Stopped

    out = tmp_path / "tiny.pt"
    with pytest.raises(Stopped):
        training.train(TINY, data.samples.classes, data, validation, out, show=training.Progress(epoch=stop))
    training.train(TINY, data.samples.classes, data, validation, out, resume=True)
    whole, again = (training.load_model(path)[0].state_dict() for path in (trained[0], out))
    assert all(torch.equal(whole[key], again[key]) for key in whole)


def test_in_floating_point_the_gates_of_one_place_are_those_of_all(trained):
    model = training.load_model(trained[0])[0]
    batch = batch_of(examples(5, 2, "test").scenes, GAZE)
    for model.deploy in (False, True):
        with torch.no_grad():
            sight = model.look(batch)
            every = sight.gates
            choice = torch.nn.functional.one_hot(torch.tensor([0, 3, 8, 4, 4]), 9).to(sight.geometry.dtype)
            assert torch.allclose(sight.at(choice), every[torch.arange(5), choice.argmax(1)], atol=1e-5)


def test_the_policy_learns_to_look_where_a_dot_tells_the_class():
    """Nine places, one is lit; without looking there nothing can be known."""
    rng = np.random.default_rng(0)
    n = 256
    labels, place = rng.integers(0, 2, n), rng.integers(0, 9, n)
    pixels = np.zeros((n, 36, 36), np.uint8)
    for image, label, (x, y) in zip(pixels, labels, GAZE.centres[place]):
        image[y - 4 : y + 4, x - 4 : x + 4] = 120
        image[y - 4 : y, x - 4 : x + 4] += 120 * np.uint8(label)
    names = tuple(map(str, range(n)))
    data = ImageExamples(ImageSet(pixels, labels.astype(np.int64), names, ("dark", "light"), "dots"), GAZE)
    recipe = TINY.changed(train={"epochs": 12, "qat_epochs": 0, "batch_size": 32, "learning_rate": 8e-3})
    run = training.start(recipe, ("dark", "light"), data)
    for run.epoch in range(12):
        training.train_epoch(run, data, training.Progress())
    record = evaluate(run.model, data)
    assert (record.order[0] == place).mean() > 0.5  # chance: 0.11
    assert record.accuracy()[-1] > 0.8


def test_reward_to_go_counts_this_step_and_those_to_come():
    logits = torch.tensor([[[0.0, 0.0]], [[1.0, 0.0]], [[0.0, 2.0]]])
    log = torch.log_softmax(logits, 2)[:, 0, 1] / 3
    found = score_function._to_go(logits, torch.tensor([1]))[:, 0]
    assert torch.allclose(found, torch.stack([log.sum(), log[1:].sum(), log[2]]))


def test_images_that_cannot_be_drawn_anew_are_shifted_and_mirrored():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (6, 32, 32, 3)).astype(np.uint8)
    found = changed(pixels, Augmentation(mirror=True), rng)
    assert found.shape == pixels.shape
    middle = pixels[:, 4:-4, 4:-4]
    shifts = [np.roll(found, (a, b), (1, 2))[:, 4:-4, 4:-4] for a in range(-2, 3) for b in range(-2, 3)]
    back = [np.roll(found[:, :, ::-1], (a, b), (1, 2))[:, 4:-4, 4:-4] for a in range(-2, 3) for b in range(-2, 3)]
    same = np.array([[(one[i] == middle[i]).all() for one in shifts + back] for i in range(6)])
    assert same.any(axis=1).all()
    assert same[:, 25:].any()


def test_a_cropped_image_shows_a_part_of_it_in_its_order():
    pixels = np.arange(64, dtype=np.uint8)[None, :, None].repeat(64, 2).repeat(20, 0)
    found = changed(pixels, Augmentation(crop=0.4), np.random.default_rng(0))[:, :, 0].astype(int)
    assert (np.diff(found, axis=1) >= 0).all()
    shown = found[:, -1] - found[:, 0]
    assert shown.min() >= 64 * 0.6 * 0.85 - 2
    assert shown.min() < 50 < shown.max()


@pytest.mark.parametrize("shape", [(40, 16, 16), (40, 16, 16, 3)])
def test_recoloured_images_have_other_light_and_the_same_order_of_brightness(shape):
    pixels = np.random.default_rng(0).integers(60, 120, shape).astype(np.uint8)
    found = changed(pixels, Augmentation(colour=0.3), np.random.default_rng(1))
    plain = changed(pixels, Augmentation(), np.random.default_rng(1))
    assert found.dtype == np.uint8
    assert found.shape == shape
    apart = found.reshape(40, -1).mean(axis=1) / plain.reshape(40, -1).mean(axis=1)
    assert apart.min() < 0.85
    assert apart.max() > 1.15
    for one, other in zip(found.reshape(40, 256, -1).astype(int), plain.reshape(40, 256, -1).astype(int)):
        for channel, was in zip(one.T, other.T):
            order = np.argsort(was, kind="stable")
            assert (np.diff(channel[order]) >= 0).all()


def test_half_the_digits_are_for_learning_alone(deep):
    model, recipe, _, _ = training.load_model(deep[0])
    model.deploy = False
    batch = photos(8, 2).batch(np.arange(8))
    found = {}
    for learning in (False, True):  # learning moves the statistics, which the other must not see
        model.train(learning)
        for half in (False, True):
            model.encoder.bfloat16 = half
            found[half, learning] = model.encoder.over_maps(batch.maps)[1].detach()
    assert torch.equal(found[True, False], found[False, False])  # what is judged and exported knows nothing of it
    assert found[True, True].dtype == torch.float32
    assert not torch.equal(found[True, True], found[False, True])
    torch.testing.assert_close(found[True, True], found[False, True], rtol=0.1, atol=0.1)


def test_a_stage_may_teach_the_dense_control_alone(tmp_path):
    recipe = dataclasses.replace(DEEP, scene=specs.DEEP_GAZE)
    recipe = recipe.changed(train={"whole_first": 1.0, "qat_epochs": 0, "bfloat16": True}, augment={"colour": 0.2})
    fresh = training.build(recipe, ("left", "right")).state_dict()
    report = training.train(recipe, ("left", "right"), photos(96, 0), photos(32, 1), tmp_path / "stage.pt")
    assert report["dense_accuracy"] > 0.7
    stored = checkpoint.read(tmp_path / "stage.pt")["model"]
    assert torch.equal(stored["readout.weight"], fresh["readout.weight"])  # no gradient ever came there
    with pytest.raises(recipes.ConfigError, match="whole_first"):
        recipe.changed(train={"whole_first": 1.5})


def test_recipes_of_images_are_read_and_wrong_ones_refused():
    how = recipes.load("clutter")
    assert how.scene_kind == "image"
    with pytest.raises(recipes.ConfigError, match="is not about clouds"):
        _ = how.chunking
    with pytest.raises(recipes.ConfigError, match="conv_widths"):
        dataclasses.replace(how.model, conv_widths=(1, 2))


@pytest.mark.parametrize("name", ["clutter", "imagenette"])
def test_a_shipped_model_of_images_is_its_checkpoint_bit_for_bit(name):
    """On images of no data set, so that no file is needed; whole splits: `asp-neuro verify NAME --checkpoint`."""
    shipped = open_bundle(name)
    raw = specs.random_images(np.random.default_rng(3), 6, shipped.settings)
    scenes = shipped.bundle.model.scene.scenes(raw)
    module = module_of(checkpoint.find(name), shipped.bundle.model)
    found = verify(shipped.bundle, scenes, [str(i) for i in range(6)], ExitRule(), {"torch": module})
    assert found.mismatches == 0, found.first
    assert found.compared["drives"] > 0
