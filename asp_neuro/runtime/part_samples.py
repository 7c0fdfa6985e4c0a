"""PartSamples: clouds whose every point is to be labelled, thinned for the model, with all points in its frame."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro.data import Intake, sampling_of
from asp_neuro.data.files import take_file
from asp_neuro.data.intake import stacked
from asp_neuro.data.part_places import load_parts
from asp_neuro.data.parts import Catalogue, PartSet, pick
from asp_neuro.data.room_crops import ROOM_NAMES, Crops, load_rooms
from asp_neuro.errors import InputError
from asp_neuro.model.points import category_number, steps_in
from asp_neuro.scenes.cloud import Chunking

ALL_POINTS = 2048  # of a cloud of ShapeNetPart: what the standard protocol asks for


@dataclass(frozen=True)
class PartSamples:
    """What `deployment.run` takes, and the points."""

    inputs: np.ndarray  # [n, P, 3] float32, as the model is cut for
    every: tuple[np.ndarray, ...]  # of each cloud: all its points [Q, 3], NaN where a row is none
    labels: np.ndarray  # [n] the category, negative: nobody told
    names: tuple[str, ...]
    catalogue: Catalogue
    source: str
    chunking: Chunking
    given: np.ndarray | None = None  # [n] categories that the model is told; negative: not
    parts: np.ndarray | None = None  # [n, Q] true parts

    def __len__(self) -> int:
        return len(self.names)

    @property
    def points(self) -> np.ndarray:
        return self.inputs

    @property
    def classes(self) -> tuple[str, ...]:
        return self.catalogue.categories

    def hashes(self) -> list[str]:
        """One for each cloud, over all its points."""
        return [hashlib.sha256(np.ascontiguousarray(points, "<f8").data).hexdigest() for points in self.every]

    def sha256(self) -> str:
        told = b"" if self.parts is None else np.ascontiguousarray(self.parts, "<i8").tobytes()
        return hashlib.sha256("".join(self.hashes()).encode() + told).hexdigest()

    def subset(self, index: np.ndarray) -> PartSamples:
        chosen = np.arange(len(self))[index]
        return replace(
            self,
            inputs=self.inputs[chosen],
            every=tuple(self.every[i] for i in chosen),
            labels=self.labels[chosen],
            names=tuple(self.names[i] for i in chosen),
            given=None if self.given is None else self.given[chosen],
            parts=None if self.parts is None else self.parts[chosen],
        )

    def queries(self, index: int) -> np.ndarray:
        """[Q, 3] all points of a cloud in whole grid steps of its frame; NaN where a row is no point."""
        return steps_in(self.inputs[index], self.every[index], self.chunking)


def of_set(found: PartSet, how: Chunking, told: bool = True) -> PartSamples:
    """Labelled clouds; `told`: the model is told their category, as in the standard protocol."""
    inputs = np.stack([cloud[pick(cloud, how.n_points)] for cloud in found.points])
    every = tuple(cloud.astype(np.float64) for cloud in found.points)
    given = found.labels if told else None
    return PartSamples(inputs, every, found.labels, found.names, found.catalogue, found.source, how, given, found.parts)


def samples_of(
    deployed: Any, data: str | Path | None, split: str, up: str | None, limit: int | None = None, seed: int = 0,
    told: bool = True,
) -> PartSamples:  # fmt: skip
    """A split of the data that a bundle's recipe names, or of `data`."""
    return labelled_parts(deployed.bundle.model, deployed.bundle.recipe["data"], data, split, up, limit, seed, told)


def labelled_parts(
    spec: Any, trained: dict[str, Any], data: str | Path | None, split: str, up: str | None, limit: int | None = None,
    seed: int = 0, told: bool = True,
) -> PartSamples:  # fmt: skip
    """The same for a model (`ModelSpec`) and the [data] of its recipe."""
    task = spec.task
    found = _labelled_set(trained, data, split, up, seed)
    if found.catalogue.count != task.count:
        raise InputError(f"{found.source}: its categories have other parts than those of the model")
    some = found if limit is None else found.subset(np.arange(min(limit, len(found))))
    return of_set(some, spec.scene.chunking, told)


def _labelled_set(trained: dict[str, Any], data: str | Path | None, split: str, up: str | None, seed: int) -> PartSet:
    """Clouds of the kind that [data] of a recipe names."""
    name = trained["name"]
    if name in ROOM_NAMES:
        usual = Crops()
        keys = {"size": "crop", "n": "crops", "rare_share": "rare_share"}
        how = Crops(**{key: trained.get(own, getattr(usual, key)) for key, own in keys.items()})
        return load_rooms(name, data, split, how, ALL_POINTS, up, seed)
    return load_parts(data or name, split, n_points=ALL_POINTS, up=up, seed=seed, splits=trained["splits"])


def samples_in_files(
    deployed: Any, paths: Sequence[str | Path], up: str | None, seed: int, drop_invalid: bool, category: str | None
) -> tuple[PartSamples, list[Intake]]:
    """A cloud from each file, with all its rows; all are read before anything is answered."""
    task, how = deployed.bundle.model.task, deployed.chunking
    given = None if category is None else np.full(len(paths), category_number(category, deployed.bundle.model))
    taken, broken = [], []
    for path in map(str, paths):
        try:
            taken.append(
                take_file(path, sampling_of(how), up=up or "y", seed=seed, drop_invalid=drop_invalid, every=True)
            )
        except InputError as error:
            broken.append(str(error))
    if broken:
        lines = f"{len(broken)} of {len(paths)} inputs cannot be used, so none was answered:\n" + "\n".join(broken)
        raise InputError(broken[0] if len(paths) == 1 else lines)
    names = tuple(str(path) for path in paths)
    every = tuple(one.every for one in taken if one.every is not None)
    catalogue = Catalogue(task.classes, task.count)
    unknown = np.full(len(names), -1, dtype=np.int64)
    return PartSamples(stacked(taken), every, unknown, names, catalogue, ", ".join(names), how, given), taken
