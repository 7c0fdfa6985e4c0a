"""Images to train on, handed out as (changed) batches of tensors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from asp_neuro.data.pictures import ImageSet
from asp_neuro.learn.image_model import ImageBatch
from asp_neuro.scenes.augment import Augmentation
from asp_neuro.scenes.image import Gaze, Images, describe, images, maps

SHIFT = 16  # an image that is not drawn anew is shifted by up to one part in so many


@dataclass(frozen=True)
class ImageExamples:
    """Labelled images, as a model looks at them."""

    samples: ImageSet
    how: Gaze
    teacher: np.ndarray | None = None  # [n, C] float32 logits

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def labels(self) -> np.ndarray:
        return self.samples.labels

    @property
    def scenes(self) -> Images:
        return images(self.samples.pixels, self.how)

    @property
    def n_places(self) -> int:
        return self.how.n_places

    @property
    def budget(self) -> int:
        return self.how.budget

    @property
    def content(self) -> tuple[np.ndarray | None, ...]:
        """What a fingerprint is of."""
        return self.samples.pixels, self.labels, self.teacher

    def batch(
        self, index: np.ndarray, how: Augmentation | None = None, rng: np.random.Generator | None = None
    ) -> ImageBatch:
        """The images at `index`; to train on drawn anew where they can be, else shifted (and mirrored, if wished)."""
        pixels = self.samples.pixels[index]
        if how is not None and rng is not None:
            again = self.samples.redraw
            pixels = again(index, rng) if again is not None else changed(pixels, how, rng)
        return batch_of(images(pixels, self.how), self.how, self.labels[index])


def batch_of(scenes: Images, how: Gaze, labels: np.ndarray | None = None) -> ImageBatch:
    """Images as they are; without labels all are 0."""
    given = np.zeros(len(scenes), np.int64) if labels is None else labels
    descriptors = describe(scenes.pixels, how).astype(np.float32)
    found = [torch.from_numpy(one) for one in maps(scenes.pixels, how)]
    return ImageBatch(found, torch.from_numpy(descriptors), torch.from_numpy(given))


def changed(pixels: np.ndarray, how: Augmentation, rng: np.random.Generator) -> np.ndarray:
    """Images [n, size, size, ...], each shifted, its edge repeated; half of them mirrored, if `how` says so."""
    n, size = pixels.shape[:2]
    most = size // SHIFT
    shift = rng.integers(-most, most + 1, (n, 2))
    at = np.arange(size)
    rows, columns = (np.clip(at + shift[:, axis, None], 0, size - 1) for axis in (0, 1))
    if how.mirror:
        columns = np.where(rng.random((n, 1)) < 0.5, columns[:, ::-1], columns)
    return np.asarray(pixels[np.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]])
