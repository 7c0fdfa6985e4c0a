"""Recipes: the shipped ones load, and a mistake is answered with the place, the value and the nearest right word."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import pytest

from asp_neuro import bundle, scenes, tasks
from asp_neuro.errors import ConfigError, MissingError
from asp_neuro.learn import checkpoint, recipe
from asp_neuro.learn.recipe import OLD_KEYS, OLD_SECTIONS, ModelRecipe, Recipe, TrainRecipe, from_dict, load, names


@pytest.mark.parametrize("name", names())
def test_every_shipped_recipe_loads_and_is_called_like_its_file(name: str) -> None:
    found = load(name)
    assert found.name == name
    later = [load(other).train.start for other in names()]  # a stage before others may end in floating point
    assert name in later or found.train.qat_epochs > 0
    assert found.train.qat_epochs < found.train.epochs or found.train.policy_only


@pytest.mark.parametrize("name", names())
def test_a_recipe_survives_the_way_through_plain_data(name: str) -> None:
    found = load(name)
    assert from_dict("x", found.as_dict()) == found
    scene = {"radius": 0.2} if found.scene_kind == "cloud" else {"budget": 3}
    changed = found.changed(scene=scene, model={"edge_widths": (8, 9)}, train={"tet": 0.5})
    assert from_dict("x", changed.as_dict()) == changed
    assert changed != found


def test_the_default_recipe_is_there_and_is_compact() -> None:
    assert {"compact", "modelnet10"} <= set(names())
    assert load("compact").chunking.n_chunks == 16


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_a_file_without_a_name_is_called_like_the_file(tmp_path: Path) -> None:
    found = load(write(tmp_path, "seed = 3\n[train]\nlearning_rate = 1\n"))
    assert (found.name, found.seed, found.train.learning_rate) == ("mine", 3, 1.0)
    assert isinstance(found.train.learning_rate, float)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[train]\nepoch = 3", "unknown key 'train.epoch'; did you mean 'epochs'"),
        ("[train]\nforgett = 0.1", "unknown key 'train.forgett'; did you mean 'logit_adjustment'"),
        ("[train]\nbatchsize = 8", "unknown key 'train.batchsize'; did you mean 'batch_size'"),
        ("[train]\nmix = 0.1\nmixup = 0.1", "'train.mix' is the old name of 'train.mixup'; give one of them"),
        ("[chunkin]\nn_points = 64", "unknown key 'chunkin'; did you mean 'scene'"),
        ("[chunking]\nn_points = 64\n[scene]\nn_points = 64", "'chunking' is the old name of 'scene'; give one"),
        ("[scene]\nkind = 'clowd'", "scene.kind = 'clowd'; did you mean 'cloud'"),
        ("[scene]\nkind = 3", "scene.kind = 3; known: cloud"),
        ("[scene]\nkind = ['cloud']", "scene.kind = .*; did you mean 'cloud'"),
        ("[scene]\nn_poits = 64", "unknown key 'scene.n_poits'; did you mean 'n_points'"),
        ("[task]\nkind = 'clasify'", "task.kind = 'clasify'; did you mean 'classify'"),
        ("[task]\nclasses = 3", "unknown key 'task.classes'; known: kind"),
        ("[trian]\nepochs = 3", "unknown key 'trian'; did you mean 'train'"),
        ("sede = 3", "unknown key 'sede'; did you mean 'seed'"),
        ("[model]\nzzz = 3", "unknown key 'model.zzz'; known: .*edge_widths"),
        ("train = 3", "train = 3 must be a table"),
        ("scene = 3", "scene = 3 must be a table"),
        ("[scene]\nn_chunks = 65", "n_chunks = 65 must be between 1 and n_groups = 64"),
        ("[scene]\ngroup_size = 2000", "group_size = 2000 need at most n_points = 1024"),
        ("[scene]\nn_groups = 2000", "n_groups = 2000"),
        ("[scene]\nradius = -1.0", "radius = -1.0"),
        ("[train]\nepochs = 3\nqat_epochs = 4", "qat_epochs = 4 must be between 0 and epochs = 3"),
        ("[train]\nepochs = 0\nqat_epochs = 0", "train.epochs = 0 must be at least 1"),
        ("[train]\nbatch_size = 1", "train.batch_size = 1 must be at least 2"),
        ("[train]\nlearning_rate = 0.0", "train.learning_rate = 0.0 must be above 0"),
        ("[train]\nlearning_rate = nan", "train.learning_rate = nan"),
        ("[train]\nlearning_rate = inf", "train.learning_rate = inf must be a finite number"),
        ("[train]\nimitation = nan", "train.imitation = nan"),
        ("[train]\nimitation = -1.0", "train.imitation = -1.0 must be at least 0"),
        ("[train]\nstep_weight_power = -1.0", "train.step_weight_power = -1.0 must be at least 0"),
        ("[train]\ndistillation_temperature = 0.0", "train.distillation_temperature = 0.0 must be above 0"),
        ("[train]\nlabel_smoothing = 1.0", "train.label_smoothing = 1.0"),
        ("[train]\nema_decay = 1.0", "train.ema_decay = 1.0"),
        ("[train]\nwarmup = -0.1", "train.warmup = -0.1"),
        ("[train]\nheadroom = 0.5", "train.headroom = 0.5 must be at least 1"),
        ("[train]\nepochs = 3.0", "train.epochs = 3.0 must be a whole number"),
        ("[train]\nepochs = true", "train.epochs = True must be a whole number"),
        ("[train]\nepochs = '3'", "train.epochs = '3' must be a whole number"),
        ("[train]\nlearning_rate = true", "train.learning_rate = True must be a finite number"),
        ("[model]\nmask = 1", "model.mask = 1 must be true or false"),
        ("[model]\nscorer = 'bilinaer'", "model.scorer = 'bilinaer'; did you mean 'bilinear'"),
        ("[model]\nwidth = 0", "model.width = 0 must be at least 1"),
        ("[model]\nedge_widths = [1, 2, 3]", "model.edge_widths = .* must be a list of 2"),
        ("[model]\nedge_widths = [1, 'a']", "model.edge_widths.* = 'a' must be a whole number"),
        ("[model]\nedge_widths = 3", "model.edge_widths = 3 must be a list of 2"),
        ("[model]\nfirst_look = -1", "model.first_look = -1 must be at least 0"),
        ("[model]\nfirst_look = 4\nscorer = 'belief'", "model.first_look = 4 sees geometry"),
        ("[augment]\nscale = -1.0", "scale = -1.0 must be between 1 and 10"),
        ("[data]\nalso = ['test']", "data.also = 'test'; known: calibration, validation"),
        ("[data]\nalso = ['calibrate']", "data.also = 'calibrate'; did you mean 'calibration'"),
        ("[data]\nwithout = ['modelnet10/test']", "no split 'test'; known: calibration, validation"),
        ("seed = -1", "seed = -1 must be at least 0"),
        ("seed = 99999999999999999999", "seed = 99999999999999999999 must be"),
        ("name = 3", "name = 3 must be a text"),
        ("[train", "not a TOML file"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_the_file_the_key_and_the_value(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=said) as error:
        load(path)
    assert str(error.value).startswith(str(path))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not a TOML file"):
        load(path)


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown recipe 'compct'; did you mean 'compact'"):
        load("compct")
    with pytest.raises(ConfigError, match=r"unknown recipe ''; known: .*compact"):
        load("")


def test_a_missing_file_is_told_with_what_is_there() -> None:
    with pytest.raises(MissingError, match=r"recipe file 'nowhere\.toml' does not exist; shipped recipes: .*compact"):
        load("nowhere.toml")


def test_a_folder_called_like_a_recipe_is_not_in_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "compact").mkdir()
    assert load("compact").name == "compact"


def test_a_file_without_the_ending_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.write_text("seed = 4")
    assert load(path).seed == 4


def test_changing_a_recipe_checks_it_again() -> None:
    with pytest.raises(ConfigError, match="n_chunks = 99"):
        load("compact").changed(scene={"n_chunks": 99})
    with pytest.raises(ConfigError, match="seed = -2"):
        dataclasses.replace(load("compact"), seed=-2)


def test_recipes_are_frozen_and_their_defaults_are_sound() -> None:
    plain = Recipe("plain")
    assert (plain.model, plain.train) == (ModelRecipe(), TrainRecipe())
    with pytest.raises(dataclasses.FrozenInstanceError):
        plain.seed = 1  # type: ignore[misc]


def test_what_is_not_set_is_not_written() -> None:
    assert "radius" not in Recipe("plain").as_dict()["scene"]
    assert recipe.from_dict("plain", {}).chunking.radius is None


def test_scene_and_task_are_written_with_their_kind() -> None:
    plain = Recipe("plain").as_dict()
    assert plain["scene"]["kind"] == "cloud"
    assert plain["task"] == {"kind": "classify"}
    assert from_dict("plain", {"scene": {"kind": "cloud", "n_points": 512}}).chunking.n_points == 512


def test_what_a_recipe_can_ask_for_is_what_a_model_can_have() -> None:
    assert set(recipe.SCENES) <= set(scenes.KINDS)
    assert set(recipe.TASKS) <= set(tasks.KINDS)


def test_a_further_kind_of_scene_is_read_checked_and_written(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclasses.dataclass(frozen=True)
    class Line:
        n_places: int = 9

    monkeypatch.setitem(recipe.SCENES, "line", Line)
    asked = {"kind": "line", "n_places": 5}
    found = from_dict("x", {"scene": asked})
    assert found.scene == Line(5)
    assert found.as_dict()["scene"] == asked
    with pytest.raises(ConfigError, match=r"unknown key 'scene\.n_place'; did you mean 'n_places'"):
        from_dict("x", {"scene": {"kind": "line", "n_place": 5}})
    with pytest.raises(ConfigError, match=r"unknown key 'scene\.n_points'"):  # a cloud's
        from_dict("x", {"scene": {"kind": "line", "n_points": 5}})


OLD = [(section, old, new) for section, keys in OLD_KEYS.items() for old, new in keys.items()]


@pytest.mark.parametrize(("section", "old", "new"), OLD)
def test_an_old_key_reads_to_the_same_recipe(section: str, old: str, new: str) -> None:
    default = getattr(getattr(Recipe("x"), section), new)
    value = (not default) if isinstance(default, bool) else type(default)(0.5 * default or 0.5)
    by_old, by_new = ({"name": "x", section: {key: value}} for key in (old, new))
    assert from_dict("x", by_old) == from_dict("x", by_new)
    assert getattr(getattr(from_dict("x", by_old), section), new) == value != default


@pytest.mark.parametrize(("old", "new"), OLD_SECTIONS.items())
def test_an_old_section_reads_to_the_same_recipe(old: str, new: str) -> None:
    by_old, by_new = (from_dict("x", {"name": "x", key: {"n_points": 512}}) for key in (old, new))
    assert by_old == by_new != Recipe("x")


def test_no_old_name_is_a_name_of_today() -> None:
    today = {f.name for f in dataclasses.fields(Recipe)}
    assert not today & set(OLD_SECTIONS)
    assert set(OLD_SECTIONS.values()) <= today
    for section, keys in OLD_KEYS.items():
        own = {f.name for f in dataclasses.fields(getattr(Recipe("x"), section))}
        assert not own & set(keys)
        assert set(keys.values()) <= own


def test_a_change_by_an_old_name_is_the_same_change() -> None:
    plain = load("compact")
    assert plain.changed(chunking={"n_chunks": 8}, train={"mix": 0.5}) == plain.changed(
        scene={"n_chunks": 8}, train={"mixup": 0.5}
    )


@pytest.mark.parametrize("name", sorted(checkpoint.known()))
def test_the_recipe_in_a_shipped_checkpoint_is_the_shipped_recipe(name: str) -> None:
    """Stored under the names of its time; only what the comments of a recipe explain may differ: nothing."""
    stored = checkpoint.read(checkpoint.find(name))["recipe"]
    assert from_dict(name, stored) == load(name)


@pytest.mark.parametrize("name", sorted(bundle.shipped()))
def test_reading_the_recipe_of_a_bundle_leaves_it_as_it_is(name: str) -> None:
    """`model_sha256` covers it."""
    stored = bundle.read(bundle.shipped()[name]).recipe
    before = copy.deepcopy(stored)
    assert from_dict(name, stored).name == stored["name"]
    assert stored == before
