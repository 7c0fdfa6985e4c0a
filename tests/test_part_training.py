"""Parts, trained: a recipe to the end, and the module in deploy mode against the deployed network, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import specs

pytest.importorskip("torch")

from asp_neuro.data.parts import Catalogue, PartSet
from asp_neuro.errors import ConfigError
from asp_neuro.learn import recipe as recipes
from asp_neuro.learn import training
from asp_neuro.learn.machine import machine
from asp_neuro.learn.part_examples import PartExamples, part_examples_of
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.runtime.verification import Findings, compare_answers, compare_looks

KINDS = Catalogue(("kind 0", "kind 1"), (2, 3))
SCENE = {"n_points": 96, "n_groups": 16, "group_size": 8, "n_chunks": 6}
TASK = {"kind": "parts", "parts": [2, 3], "hidden": 12, "near": 4, "queries": 16, "asked": 8}
MODEL = {"width": 16, "neurons": 16, "edge_widths": [8, 12], "token_width": 16, "chunk_layer": True, "moments": True,
         "first_look": 8}  # fmt: skip
TRAIN = {"epochs": 2, "qat_epochs": 1, "batch_size": 8, "detach_belief": True, "imitation": 0.3, "ema_decay": 0.9}


def recipe(**model: object) -> recipes.Recipe:
    data = {"name": "shapenetpart", "splits": "far"}
    tables = {"data": data, "scene": SCENE, "task": TASK, "model": {**MODEL, **model}, "train": TRAIN}
    return recipes.from_dict("tiny", tables)


def examples(n: int, seed: int) -> PartExamples:
    """Clouds whose upper half is another part."""
    rng = np.random.default_rng(seed)
    points, labels = rng.normal(size=(n, 120, 3)).astype(np.float32), rng.integers(0, 2, n)
    parts = np.where(points[..., 1] > 0, 1, 0) + 2 * labels[:, None]
    names = tuple(f"cloud {i}" for i in range(n))
    return part_examples_of(PartSet(points, parts, labels, names, KINDS, "made"), specs.SMALL, cache=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("parts") / "model.pt"
    report = training.train(recipe(), KINDS.categories, examples(24, 0), examples(12, 1), out)
    return report, training.load_model(out)


def test_a_training_ends_on_the_grid_and_reports_miou(trained):
    report, (model, how, classes, _) = trained
    assert model.deploy
    assert report["measure"] == "instance mIoU"
    assert 0.0 < report["accuracy_at"]["M"] <= 1.0
    assert isinstance(how.task, recipes.PartsRecipe)
    assert classes == KINDS.categories


@pytest.mark.parametrize("given", [True, False])
def test_the_trained_module_looks_as_the_deployed_network_does(trained, given):
    model, how, classes, _ = trained[1]
    perceiver = Perceiver(model.spec(how.chunking, classes))
    held = examples(10, 2)
    scenes = held.chunks.asking(held.labels) if given else held.chunks
    found, names, module = Findings(), [str(i) for i in range(10)], machine(model)
    compare_looks(found, "torch", names, perceiver.played(scenes, ExitRule()).looks, module.looks(perceiver, scenes))
    rule = ExitRule(tau=float(np.median(perceiver.played(scenes).looks[2].margin)))
    answers = module.answers(perceiver, scenes, rule, 4, lambda index, answer: None)
    compare_answers(found, "torch", names, perceiver.answers(scenes, rule), answers)
    assert (found.mismatches, found.first) == (0, None)


def test_parts_need_a_chunk_layer_and_as_many_categories_as_the_data():
    with pytest.raises(ConfigError, match="chunk_layer"):
        training.build(recipe(chunk_layer=False), KINDS.categories)
    with pytest.raises(ConfigError, match="2 categories, the data have 3"):
        training.build(recipe(), ("a", "b", "c"))
