"""From `model.pt` to a bundle: copy the integer network that training ended on, measure it, write it.

Nothing is converted here. A checkpoint that never ran on the integer grid is discretised with a warning, from ranges
on its training data, and its loss is shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from asp_neuro import bundle as bundles
from asp_neuro import plain
from asp_neuro.bundle import Bundle, make_golden
from asp_neuro.bundle.origin import Origin
from asp_neuro.data import load_clouds
from asp_neuro.data.image_places import STROKES, load_images
from asp_neuro.data.own import recall
from asp_neuro.data.samples import load_samples, locate_samples
from asp_neuro.errors import ConfigError, MissingError
from asp_neuro.heads.bits import STATE_MAX
from asp_neuro.learn import integers
from asp_neuro.learn.evaluation import accuracy_at, evaluate
from asp_neuro.learn.examples import Examples, examples_for
from asp_neuro.learn.heads import set_steps
from asp_neuro.learn.model import Model
from asp_neuro.learn.part_examples import PartExamples, part_examples_of
from asp_neuro.learn.part_lessons import JUDGED, judge_parts
from asp_neuro.learn.recipe import PartsRecipe, Recipe
from asp_neuro.learn.training import enter_deploy, load_model, own_of
from asp_neuro.learn.workshop import part_clouds
from asp_neuro.model.episode import Watched, episodes, play
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.model.spec import ModelSpec
from asp_neuro.report import say, table
from asp_neuro.scenes.cloud import Chunking
from asp_neuro.scenes.image import Gaze

MODELNET = "trained on ModelNet, which is offered for academic research only"
SHAPENET = "trained on ShapeNetPart, which is offered for non-commercial research and education only"
MNIST = "trained on digits of MNIST (CC BY-SA 3.0)"
IMAGENETTE = "trained on Imagenette, a part of ImageNet, which is offered for non-commercial research only"
LICENCES = {"modelnet": MODELNET, "shapenetpart": SHAPENET, "clutter": MNIST, "imagenette": IMAGENETTE}
TRAINED_ON = " (it was trained on them)"
BATCH = 256
N_GOLDEN = 2  # clouds: enough to tell a machine that computes otherwise, and a bundle stays small
FIRST = 4  # chunks


class Agreement(NamedTuple):
    """Shares of the validation clouds in which the exported network does as the trained module does."""

    answer: float
    first_chunks: float  # the first FIRST choices
    order: float  # all of them


@dataclass(frozen=True)
class Exported:
    bundle: Bundle
    float_accuracy: float | None
    deploy_accuracy: float | None
    agreement: Agreement | None
    text: str


def export(
    checkpoint: str | Path, data: str | Path | None = None, up: str | None = None, steps: int | None = None
) -> Exported:
    """A trained checkpoint -> a bundle (not yet written, not yet certified); `steps`: another N of the stock form."""
    torch.set_num_threads(1)  # so that the same checkpoint gives the same file
    model, recipe, classes, stored = load_model(checkpoint)
    if steps is not None:
        set_steps(model.head, steps)
    own = own_of(stored, checkpoint)
    try:
        data, up = recall(own, data, up)
    except MissingError as error:
        say(f"no accuracy and no certificate without data: {' '.join(str(error).split())}")
        data, validation = own.path if own is not None else None, None  # never other data than those it was trained on
    else:
        validation = _examples(recipe, classes, "validation", data, up)
    discretised = not model.deploy
    if discretised:
        _discretise(model, recipe, classes, data, up)
    spec = model.spec(recipe.scene, classes)
    perceiver = Perceiver(spec if discretised or steps is not None else _copied(stored, spec, str(checkpoint)))
    record: dict[str, Any] = {"training": stored.get("report", {}), "discretised_at_export": discretised}
    unseen = "validation" not in recipe.data.also
    measured, agreement = (None, None) if validation is None else _measure(model, perceiver, validation, unseen)
    scenes = None if validation is None else validation.scenes[:N_GOLDEN]
    golden = make_golden(perceiver.spec, _drives(perceiver, scenes), golden_inputs(recipe.scene))
    if measured is not None:
        record["deployment"] = measured
    made = Bundle(
        model=perceiver.spec,
        recipe={"data": recipe.as_dict()["data"], **stored["recipe"]},  # as it was trained: the hash covers its names
        golden=golden,
        record=record,
        versions=bundles.library_versions(),
        licence=next((text for name, text in LICENCES.items() if recipe.data.name.startswith(name)), ""),
        origin=None if own is None else plain.of(Origin(own=own)),
    )
    shares = measured or {}
    text = _text(made, measured, agreement)
    return Exported(made, shares.get("float_accuracy"), shares.get("deploy_accuracy"), agreement, text)


def _copied(stored: dict[str, Any], own: ModelSpec, place: str) -> ModelSpec:
    """The integers that training left in the checkpoint."""
    if integers.KEY not in stored:
        return own
    network = integers.from_plain(stored[integers.KEY], place)
    apart = integers.first_difference(network, own)
    if apart is not None:
        say(f"warning: the weights of '{place}' give other integers than it holds: {apart}; these are copied")
    return network


def _examples(
    recipe: Recipe, classes: tuple[str, ...], split: str, data: str | Path | None, up: str | None
) -> Examples | None:
    """The recipe's data, or None with a word about it when they are not at hand and were not asked for."""
    try:
        if isinstance(recipe.task, PartsRecipe):
            return part_examples_of(part_clouds(recipe, split, data, up), recipe.chunking)
        place = locate_samples(recipe.scene, recipe.data.name, data)
    except MissingError as error:
        if data is not None:
            raise
        say(f"no accuracy and no certificate without data: {str(error).splitlines()[0]}")
        return None
    samples = load_samples(recipe.scene, place, split, up=up, classes=classes, splits=recipe.data.splits)
    return examples_for(samples, recipe)


def _discretise(
    model: Model, recipe: Recipe, classes: tuple[str, ...], data: str | Path | None, up: str | None
) -> None:
    say("warning: this checkpoint never ran on the integer grid; it is discretised now, from its training data")
    train = _examples(recipe, classes, "train", data, up)
    if train is None:
        raise ConfigError("a checkpoint that never ran on the integer grid needs its training data; give --data")
    enter_deploy(model, train, recipe)


def _measure(model: Model, perceiver: Perceiver, examples: Examples, unseen: bool) -> tuple[dict[str, Any], Agreement]:
    """Float model, trained module and exported network side by side, at full budget, on the validation split."""
    trained = evaluate(model, examples)
    model.deploy = False
    floating = evaluate(model, examples)
    model.deploy = True
    count, looks = _Count(len(perceiver.head.layers)), []
    engine = Watched(perceiver.new_head(), count)
    scenes = examples.scenes
    for start in range(0, len(examples), BATCH):
        story = episodes(perceiver.model, scenes[start : start + BATCH], ExitRule())
        looks.append(play(story, engine).looks)
    labels = np.concatenate([part[-1].label for part in looks])
    order = np.concatenate([np.stack([look.place for look in part]) for part in looks], axis=1)  # [T, n]
    same = trained.order == order
    measured = {
        "split": "validation",
        "unseen": unseen,
        "n": len(examples),
        "float_accuracy": accuracy_at(floating)["M"],
        "deploy_accuracy": float((labels == examples.labels).mean()),
        "firing_rate": [n / count.n_updates for n in count.n_spikes],
        "largest_membrane": count.largest,
    }
    if isinstance(examples, PartExamples):
        found = judge_parts(model, examples)
        measured |= {"instance_miou": found["miou_at"]["M"], "class_miou": found["class_miou_at"]["M"]}
    same_answer = float((labels == trained.logits[-1].argmax(axis=1)).mean())
    return measured, Agreement(same_answer, float(same[:FIRST].all(axis=0).mean()), float(same.all(axis=0).mean()))


class _Count:
    """Spikes and the largest membranes of each layer, in whole numbers, so that an export repeats."""

    def __init__(self, n_layers: int) -> None:
        self.n_updates = 0  # of the neurons of a layer
        self.n_spikes, self.largest = [0] * n_layers, [0] * n_layers

    def __call__(self, engine: Any) -> None:
        self.n_updates += engine.fired[0].size
        for layer, (spikes, state) in enumerate(zip(engine.fired, engine.membranes, strict=True)):
            self.n_spikes[layer] += int(np.count_nonzero(spikes))
            self.largest[layer] = max(self.largest[layer], int(np.abs(state).max(initial=0.0)))


def _drives(perceiver: Perceiver, scenes: Any) -> np.ndarray:
    """Drives [T, b, n] for the golden vectors: of real scenes at full budget, or random ones within the bound."""
    if scenes is None:
        bound = perceiver.spec.drive_bound()
        shape = (perceiver.budget, N_GOLDEN, len(bound))
        return np.rint(np.random.default_rng(0).uniform(-0.25, 0.25, shape) * bound).astype(np.int64)
    return perceiver.drives(scenes)


def golden_inputs(how: Chunking | Gaze) -> np.ndarray:
    """Raw inputs of N_GOLDEN scenes that everybody has, as int16."""
    if isinstance(how, Chunking):
        return golden_points(how)
    drawn = load_images(STROKES, "test", replace(how, channels=1)).pixels[:N_GOLDEN]
    return np.tile(drawn, (1, how.channels, 1)).astype(np.int16)  # colours one below the other


def golden_points(how: Chunking) -> np.ndarray:
    """Built-in shapes of N_GOLDEN classes [c, P, 3] as int16: whoever has a bundle may have these."""
    clouds = load_clouds("shapes", "test", n_points=max(how.n_points // 2, how.n_distinct))
    first = [int(np.argmax(clouds.labels == label)) for label in range(N_GOLDEN)]
    points = clouds.points[first].astype(np.float64)
    return np.rint(points * (2.0**13 / np.abs(points).max())).astype(np.int16)


def _text(bundle: Bundle, measured: dict[str, Any] | None, agreement: Agreement | None) -> str:
    """The table of the layers, the two accuracies and how the exported network agrees with the trained module."""
    rows: list[tuple[object, ...]] = []
    for number, layer in enumerate(bundle.head.layers, start=1):
        seen = measured["largest_membrane"][number - 1] if measured else None
        rate = f"{100.0 * measured['firing_rate'][number - 1]:.0f} %" if measured else None
        rows.append(
            (
                number,
                layer.n_neurons,
                layer.weight_int.size,
                "8 / 12 / 24",
                f"2^{layer.state_bits}",
                seen,
                f"{STATE_MAX / seen:.1f}" if seen else None,
                rate,
            )
        )
    header = ("layer", "neurons", "weights", "bits w / leak / state", "scale", "largest membrane", "headroom", "firing")
    lines = [table(rows, header)]
    for number, rate in enumerate(measured["firing_rate"] if measured else [], start=1):
        if rate == 0.0:
            lines.append(f"warning: layer {number} is dead: no neuron fired on the validation split")
    if measured:
        float_share, deploy_share = 100.0 * measured["float_accuracy"], 100.0 * measured["deploy_accuracy"]
        what = f"{bundle.model.scene.kind}s{'' if measured['unseen'] else TRAINED_ON}"
        lines.append(
            f"accuracy at full budget on {measured['n']} validation {what}: "
            f"float model {float_share:.1f} %, exported network {deploy_share:.1f} %"
        )
    if measured and "instance_miou" in measured:
        lines.append(
            f"mIoU there, category given, {JUDGED} points of each: instance {100.0 * measured['instance_miou']:.1f} %, "
            f"class {100.0 * measured['class_miou']:.1f} % (the accuracy above is that of the category, not given)"
        )
    if agreement:
        lines.append(
            f"as the trained module on the integer grid: {100.0 * agreement.answer:.1f} % of the answers, "
            f"{100.0 * agreement.first_chunks:.1f} % of the first {FIRST} choices, "
            f"{100.0 * agreement.order:.1f} % of the whole orders"
        )
    return "\n".join(lines)
