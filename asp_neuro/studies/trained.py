"""Checkpoints under study, and the trainings that a study asks for (torch)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from asp_neuro.certify import Recording
from asp_neuro.data.own import OwnData
from asp_neuro.errors import ConfigError, InputError, UsageError
from asp_neuro.learn import checkpoint, training, workshop
from asp_neuro.learn import examples as learn_examples
from asp_neuro.learn import recipe as recipes
from asp_neuro.learn.evaluation import evaluate
from asp_neuro.learn.model import Model
from asp_neuro.learn.recipe import Recipe
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.report import say
from asp_neuro.scenes.image import Gaze
from asp_neuro.studies.deployed import DeployedSubject
from asp_neuro.studies.subjects import Examples, Origin, Subject

FULL = "full"
ABLATIONS: dict[str, dict[str, Any]] = {  # what of the recipe's [model] each changes
    "geometry": {"scorer": "geometry"},  # W_u = 0 (J.3)
    "belief": {"scorer": "belief", "first_look": 0},  # W_g = 0 (J.11), and no other way to see geometry
    "additive": {"scorer": "additive"},  # both inputs, without their interaction (J.13)
    "no_mask": {"mask": False},  # a chunk may be taken again
}


@dataclass(frozen=True)
class TrainedSubject(Subject):
    model: Model

    @classmethod
    def open(cls, name: str | Path, floating: bool = False) -> TrainedSubject:
        """A checkpoint (a file, or a known name), its head as it is exported or in floating point."""
        import torch  # not above: asp_neuro.learn comes first, which demands it

        torch.set_num_threads(1)
        model, recipe, classes, stored = training.load_model(checkpoint.find(name))
        if not floating and not model.has_scales:
            raise InputError(f"'{name}': it never ran on the integer grid, so there is nothing deployed to study")
        model.deploy = not floating
        return cls(str(name), origin(recipe, training.own_of(stored, name)), classes, model)

    def read(self, examples: Examples, rule: str, average: bool = False) -> Recording:
        batches = learn_examples.Examples(examples.chunks, examples.chunks.groups_of_chunks(), examples.labels)
        return evaluate(self.model, batches, rule, self.origin.seed).recording(average)


def opened(name: str | Path, floating: bool = False) -> Subject:
    """A checkpoint under study; one that looks at images is read as it would be exported, in numpy."""
    recipe = recipes.from_dict(str(name), checkpoint.read(checkpoint.find(name))["recipe"])
    if not isinstance(recipe.scene, Gaze):
        return TrainedSubject.open(name, floating)
    if floating:
        raise UsageError(f"'{name}' looks at images: those are studied on the integer grid alone")
    perceiver, where = deployed_form(name)
    return DeployedSubject(str(name), where, perceiver.classes, perceiver)


def deployed_form(name: str | Path) -> tuple[Perceiver, Origin]:
    """A checkpoint as it would be exported: the same integers, nothing written."""
    model, recipe, classes, stored = training.load_model(checkpoint.find(name))
    if not model.has_scales:
        raise InputError(f"'{name}': it never ran on the integer grid; export it first (asp-neuro export {name})")
    model.deploy = True
    return Perceiver(model.spec(recipe.scene, classes)), origin(recipe, training.own_of(stored, name))


def origin(recipe: Recipe, own: OwnData | None = None) -> Origin:
    return Origin(recipe.as_dict(), recipe.scene, own)


def wanted(recipe: str | Recipe, epochs: int | None, floating: bool) -> Recipe:
    """The recipe that a study is to train."""
    how = workshop.adjusted(recipes.load(recipe) if isinstance(recipe, str) else recipe, epochs, None)
    if not how.train.qat_epochs and not floating:
        raise ConfigError(f"recipe '{how.name}': with train.qat_epochs = 0 there is no integer head to study")
    return how


class Job(NamedTuple):
    """A model that a study asks for."""

    name: str  # of the variant
    recipe: Recipe
    path: Path


def jobs(recipe: Recipe, changes: Mapping[str, dict[str, Any]], seeds: Sequence[int], folder: Path) -> list[Job]:
    """Every variant (what of which section it changes) with every seed; nothing else differs between them."""
    made = []
    for name, change in changes.items():
        for seed in seeds:
            how = dataclasses.replace(recipe.changed(**change), seed=seed)
            made.append(Job(name, how, folder / f"{name}_e{how.train.epochs}_s{seed}.pt"))
    return made


def finished(wanted: Sequence[Job], data: str | None, up: str | None) -> dict[str, list[Path]]:
    """variant -> a checkpoint per seed, trained where it is not there yet; one that was stopped goes on."""
    for _, how, path in wanted:
        for file in (path, training.unfinished(path)):
            if file.exists() and recipes.from_dict(str(file), checkpoint.read(file)["recipe"]) != how:
                raise ConfigError(f"'{file}' belongs to another recipe; give this study another --out")
    for place, (_, how, path) in enumerate(wanted, start=1):
        if path.exists():
            say(f"model {place} of {len(wanted)}: {path} is there")
        else:
            say(f"model {place} of {len(wanted)}: {path}{', goes on' if training.unfinished(path).exists() else ''}")
            epochs = how.train.epochs  # as asked, on a folder too
            resume = training.unfinished(path).exists()
            workshop.train(how, data=data, up=up, out=path, resume=resume, epochs=epochs)
    found: dict[str, list[Path]] = {}
    for name, _, path in wanted:
        found.setdefault(name, []).append(path)
    return found


def trained(
    recipe: Recipe, seeds: Sequence[int], folder: Path, data: str | None, up: str | None, ablations: bool
) -> dict[str, list[Path]]:
    """policy -> a checkpoint per seed. Between the policies of a seed nothing but the ablated key of the recipe
    differs."""
    changes = {FULL: {}, **(ABLATIONS if ablations else {})}
    return finished(jobs(recipe, {name: {"model": keys} for name, keys in changes.items()}, seeds, folder), data, up)
