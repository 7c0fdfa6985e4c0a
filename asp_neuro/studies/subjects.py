"""What is studied: trained models of one recipe, the head as it is exported, and the clouds that they are read on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asp_neuro.data import CloudSet, load, locate
from asp_neuro.errors import InputError, UsageError
from asp_neuro.learn import checkpoint, training
from asp_neuro.learn.model import Model
from asp_neuro.learn.recipe import Recipe
from asp_neuro.report import say


@dataclass(frozen=True)
class Subject:
    """A trained model under study."""

    name: str
    model: Model
    recipe: Recipe
    classes: tuple[str, ...]


def subjects(names: Sequence[str | Path], floating: bool = False) -> list[Subject]:
    """Checkpoints (files, or names of shipped ones) of one recipe with different seeds, the head as it is exported."""
    group: list[Subject] = []
    for name in names:
        model, recipe, classes, _ = training.load_model(checkpoint.find(name))
        if not floating and not model.head.has_scales:
            raise InputError(f"'{name}': its head never ran on the integer grid, so there is nothing deployed to study")
        model.head.deploy = not floating
        for other in group:
            if other.recipe.seed == recipe.seed:
                raise UsageError(f"'{other.name}' and '{name}' have the same seed {recipe.seed}: give one of them")
            if dataclasses.replace(other.recipe, seed=recipe.seed) != recipe or other.classes != classes:
                raise UsageError(f"'{other.name}' and '{name}' differ in more than the seed: study them one by one")
        group.append(Subject(str(name), model, recipe, classes))
    return group


def clouds_of(recipe: Recipe, data: str | None, up: str | None, split: str, limit: int | None) -> CloudSet:
    """The clouds that the models are read on, all of a known class."""
    clouds = load(locate(recipe.data.name, data), split, n_points=recipe.chunking.n_points, up=up)
    clouds = clouds if limit is None else clouds.subset(np.arange(min(limit, len(clouds))))
    if len(clouds) == 0 or (clouds.labels < 0).any():
        raise InputError(f"{clouds.source}: a study needs clouds of known classes, at least one")
    if split == "train" or split in recipe.data.also:
        say(f"recipe '{recipe.name}' trains on the {split} split: what is read there says nothing about other clouds")
    if split == "test":
        say(f"this reads the test split ({len(clouds)} clouds of {clouds.source}); log it, with what for")
    return clouds
