"""What is studied: models of one recipe, deployed (bundles, numpy alone) or as trained (checkpoints, torch), and the
clouds that they are read on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asp_neuro import bundle as bundles
from asp_neuro.certify import Recording
from asp_neuro.data import RANDOM
from asp_neuro.data.own import OwnData, recall
from asp_neuro.data.pictures import ImageSet
from asp_neuro.data.samples import SampleSet, Settings, load_samples, locate_samples
from asp_neuro.errors import InputError, UsageError
from asp_neuro.model.rules import IMAGE_RULES, RULES
from asp_neuro.report import say
from asp_neuro.scenes.cache import chunks_of
from asp_neuro.scenes.cloud import Chunking
from asp_neuro.scenes.image import Gaze, images


@dataclass(frozen=True)
class Origin:
    """What a study asks of a model's recipe."""

    recipe: dict[str, Any]  # as stored
    scene: Settings
    own: OwnData | None = None

    @property
    def chunking(self) -> Chunking:
        """How clouds are cut, for a study that is about clouds alone."""
        if not isinstance(self.scene, Chunking):
            raise UsageError(
                f"recipe '{self.name}' looks at images; this study changes clouds. Of images there are: "
                "asp-neuro study order, asp-neuro study fovea"
            )
        return self.scene

    @property
    def name(self) -> str:
        return str(self.recipe["name"])

    @property
    def seed(self) -> int:
        return int(self.recipe["seed"])

    @property
    def splits(self) -> str:
        """The rule that its data are split by."""
        return str(self.recipe["data"].get("splits", RANDOM))

    @property
    def epochs(self) -> int:
        return int(self.recipe["train"]["epochs"])

    @property
    def data(self) -> str:
        return str(self.recipe["data"]["name"])

    @property
    def also(self) -> tuple[str, ...]:
        """Splits trained on besides "train"."""
        return tuple(self.recipe["data"].get("also", ()))

    def differs_in_seed_alone(self, other: Origin) -> bool:
        return {**self.recipe, "seed": 0} == {**other.recipe, "seed": 0}


@dataclass(frozen=True)
class Examples:
    """Clouds, cut, or images, with their classes."""

    chunks: Any  # the scenes
    labels: np.ndarray  # [n]
    objects: np.ndarray | None = None  # [n, 2] where they lie in images, where that is known

    def rules(self, scene: Settings) -> tuple[str, ...]:
        """The rules that are compared on them."""
        if not isinstance(scene, Gaze):
            return RULES
        return tuple(rule for rule in IMAGE_RULES if rule != "nearest" or self.objects is not None)


class Promised(NamedTuple):
    """What became of clouds under a certificate: [n] bool each. Clouds that are short of points count like others."""

    unfamiliar: np.ndarray
    certified: np.ndarray
    wrong: np.ndarray

    def shares(self) -> dict[str, float | None]:
        some = bool(self.certified.any())
        return {
            "unfamiliar_share": float(self.unfamiliar.mean()),
            "certified_share": float(self.certified.mean()),
            "wrong_among_certified": float(self.wrong[self.certified].mean()) if some else None,
        }


def joined(parts: Sequence[Promised]) -> Promised:
    """Of all models and draws together."""
    return Promised(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


@dataclass(frozen=True)
class Subject(ABC):
    """A model under study, the head as it is exported unless asked otherwise."""

    name: str
    origin: Origin
    classes: tuple[str, ...]

    @abstractmethod
    def read(self, examples: Examples, rule: str, average: bool = False) -> Recording:
        """Every cloud at full budget, its chunks taken by a rule of `rules.RULES`; `average`: from the mean logits."""

    def promised(self, examples: Examples) -> Promised | None:
        """What the certificate makes of the clouds; None: there is none that holds."""
        return None


def subjects(names: Sequence[str | Path], floating: bool = False) -> list[Subject]:
    """Bundles or checkpoints of one recipe with different seeds; `floating` asks for a trained head before rounding."""
    group = [_open(name, floating) for name in names]
    demand_alike([(one.name, one.origin, one.classes) for one in group])
    return group


def demand_alike(models: Sequence[tuple[str, Origin, tuple[str, ...]]]) -> None:
    """Name, origin and classes of each: one recipe, different seeds, or a refusal that names two of them."""
    for place, (name, origin, classes) in enumerate(models):
        for other, its, theirs in models[:place]:
            if its.seed == origin.seed:
                raise UsageError(f"'{other}' and '{name}' have the same seed {origin.seed}: give one of them")
            if not its.differs_in_seed_alone(origin) or theirs != classes:
                raise UsageError(f"'{other}' and '{name}' differ in more than the seed: study them one by one")


def _open(name: str | Path, floating: bool) -> Subject:
    if is_bundle(name) and not floating:
        from asp_neuro.studies.deployed import DeployedSubject

        return DeployedSubject.open(name)
    from asp_neuro.studies.trained import opened

    return opened(name, floating)


def is_bundle(name: str | Path) -> bool:
    """A file that ends in .net, or the name of a shipped bundle, as for every other verb."""
    return Path(name).suffix == ".net" or str(name) in bundles.shipped()


def clouds_of(origin: Origin, data: str | Path | None, up: str | None, split: str, limit: int | None) -> Any:
    """The clouds (or images) that the models are read on, all of a known class."""
    data, up = recall(origin.own, data, up)
    place = locate_samples(origin.scene, origin.data, data)
    clouds: Any = load_samples(origin.scene, place, split, up=up, splits=origin.splits)
    clouds = clouds if limit is None else clouds.subset(np.arange(min(limit, len(clouds))))
    if len(clouds) == 0 or (clouds.labels < 0).any():
        raise InputError(f"{clouds.source}: a study needs clouds of known classes, at least one")
    if split == "train" or split in origin.also:
        say(f"recipe '{origin.name}' trains on the {split} split: what is read there says nothing about other clouds")
    if split == "test":
        say(f"this reads the test split ({len(clouds)} of {clouds.source}); log it, with what for")
    return clouds


def cut(clouds: SampleSet, how: Settings, cache: bool = True) -> Examples:
    if isinstance(clouds, ImageSet):
        assert isinstance(how, Gaze)
        return Examples(images(clouds.pixels, how), clouds.labels, clouds.centres)
    assert isinstance(how, Chunking)
    return Examples(chunks_of(clouds.points, how, clouds.names, cache), clouds.labels)
