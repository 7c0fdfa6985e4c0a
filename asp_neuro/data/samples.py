"""Labelled inputs of whatever a model looks at: clouds or images."""

from __future__ import annotations

from pathlib import Path

from asp_neuro.data.clouds import CloudSet
from asp_neuro.data.image_places import IMAGE_NAMES, load_images, locate_images
from asp_neuro.data.intake import sampling_of
from asp_neuro.data.pictures import ImageSet
from asp_neuro.data.places import NAMES, Place, load_clouds, locate
from asp_neuro.data.splits import RANDOM
from asp_neuro.errors import UsageError
from asp_neuro.scenes.cloud import Chunking
from asp_neuro.scenes.image import Gaze

Settings = Chunking | Gaze  # of a scene
SampleSet = CloudSet | ImageSet


def names_of(how: Settings) -> tuple[str, ...]:
    """The data sets that have a name."""
    return IMAGE_NAMES if isinstance(how, Gaze) else NAMES


def locate_samples(how: Settings, name: str, data: str | Path | None = None) -> Place:
    return locate_images(name, data) if isinstance(how, Gaze) else locate(name, data)


def load_samples(
    how: Settings,
    place: Place,
    split: str,
    *,
    up: str | None = None,
    seed: int = 0,
    classes: tuple[str, ...] | None = None,
    splits: str = RANDOM,
) -> SampleSet:
    """One split, as scenes with these settings take it."""
    if isinstance(how, Gaze):
        if up not in (None, "y"):
            raise UsageError(f"--up {up} is for clouds; this model looks at images")
        return load_images(place, split, how, seed=seed, classes=classes)
    sampling = sampling_of(how)
    return load_clouds(place, split, sampling=sampling, up=up, seed=seed, classes=classes, splits=splits)
