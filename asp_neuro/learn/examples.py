"""Examples: a data set cut into chunks, handed out as (augmented) batches of tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from asp_neuro.data import CloudSet
from asp_neuro.data.pictures import ImageSet
from asp_neuro.data.samples import SampleSet
from asp_neuro.learn.image_examples import ImageExamples
from asp_neuro.learn.image_examples import batch_of as image_batch_of
from asp_neuro.learn.image_model import ImageModel
from asp_neuro.learn.model import Batch, Model
from asp_neuro.learn.recipe import Recipe
from asp_neuro.scenes.augment import Augmentation, augment
from asp_neuro.scenes.cache import chunks_of, joined
from asp_neuro.scenes.cloud import GRID, Chunking, Chunks, describe
from asp_neuro.scenes.copies import copies
from asp_neuro.scenes.image import Gaze


@dataclass(frozen=True)
class Examples:
    """`chunks` and `lists` have a row for each of the n clouds, then n rows for every further cut of them."""

    chunks: Chunks
    lists: np.ndarray  # [n * cuts, M, S] groups of each chunk
    labels: np.ndarray  # [n] int64
    teacher: np.ndarray | None = None  # [n, C] float32 logits

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def scenes(self) -> Chunks:
        """The clouds themselves, cut."""
        return self.chunks[: len(self)] if len(self.chunks) > len(self) else self.chunks

    @property
    def n_places(self) -> int:
        return self.chunks.n_chunks

    @property
    def budget(self) -> int:
        return self.chunks.n_chunks

    @property
    def content(self) -> tuple[np.ndarray | None, ...]:
        """What a fingerprint is of."""
        return self.chunks.points, self.labels, self.teacher

    def batch(
        self, index: np.ndarray, how: Augmentation | None = None, rng: np.random.Generator | None = None
    ) -> Batch:
        """The clouds at `index`; changed by `how` if given, with descriptors of the changed points."""
        labels = self.labels[index]
        if how is not None and rng is not None and how.cuts > 0:
            index = index + len(self) * rng.integers(len(self.chunks) // len(self), size=len(index))
        part = self.chunks[index]
        points = part.points.astype(np.float32) / np.float32(GRID)
        if how is not None and rng is not None:
            points = augment(points, how, rng)
            if how.drop > 0.0:
                share = rng.uniform(0.0, how.drop, size=(len(points), 1))
                part = part.without(rng.random(points.shape[:2], dtype=np.float32) < share)
        lists = self.lists[index]
        if how is not None and rng is not None and how.hide > 0.0:
            share = rng.uniform(0.0, how.hide, size=(len(points), 1, 1))
            lists = np.where(rng.random(lists.shape, dtype=np.float32) < share, lists[..., :1], lists)
        exact = points.astype(np.float64) if how is None else points  # on the grid, as they are deployed
        descriptors = describe(exact, part.mask()).astype(np.float32)
        return Batch(
            torch.from_numpy(points),
            torch.from_numpy(part.members.astype(np.int64)),
            torch.from_numpy(lists.astype(np.int64)),
            torch.from_numpy(descriptors),
            torch.from_numpy(labels),
        )


def batch_of(chunks: Chunks) -> Batch:
    """Clouds as they are, without labels (all 0)."""
    return Examples(chunks, chunks.groups_of_chunks(), np.zeros(len(chunks), np.int64)).batch(np.arange(len(chunks)))


def examples_of(
    clouds: CloudSet, how: Chunking, cache: bool = True, change: Augmentation | None = None, seed: int = 0
) -> Examples:
    """The clouds, cut; with `change.cuts`, that many further cuts of changed copies, to train on."""
    parts = [chunks_of(clouds.points, how, clouds.names, cache)]
    for number in range(change.cuts if change is not None else 0):
        changed = copies(clouds.points, change, seed + number)
        parts.append(chunks_of(changed, how, clouds.names, cache=False))
    chunks = parts[0] if len(parts) == 1 else joined(parts)
    return Examples(chunks, chunks.groups_of_chunks(), clouds.labels)


def examples_for(
    samples: SampleSet, recipe: Recipe, cache: bool = True, change: Augmentation | None = None
) -> Examples | ImageExamples:
    """Labelled inputs, as the recipe's kind of scene takes them; with `change`, to train on."""
    if isinstance(samples, ImageSet):
        assert isinstance(recipe.scene, Gaze)
        return ImageExamples(samples, recipe.scene)
    return examples_of(samples, recipe.chunking, cache, change, recipe.seed)


def batch_for(scenes: Any, model: Model) -> Any:
    """Scenes as they are, as the model takes them, without labels (all 0)."""
    return image_batch_of(scenes, model.gaze) if isinstance(model, ImageModel) else batch_of(scenes)
