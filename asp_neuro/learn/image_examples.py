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
STRETCH = 0.85  # a cropped image's sides are at most so different


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
    """Images [n, size, size, ...], each shifted, its edge repeated, or cropped and enlarged again, if `how` says so;
    half of them mirrored, colours changed, likewise."""
    n, size = pixels.shape[:2]
    rows, columns = _shifted(n, size, rng) if how.crop == 0.0 else _cropped(n, size, how.crop, rng)
    if how.mirror:
        columns = np.where(rng.random((n, 1)) < 0.5, columns[:, ::-1], columns)
    taken = np.asarray(pixels[np.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]])
    return taken if how.colour == 0.0 else _recoloured(taken, how.colour, rng)


def _recoloured(pixels: np.ndarray, most: float, rng: np.random.Generator) -> np.ndarray:
    """Images [n, size, size, ...] in other light: contrast about their mean, brightness, and each colour by itself."""
    shape = (len(pixels), *[1] * (pixels.ndim - 1))
    contrast, bright = (rng.uniform(1.0 - most, 1.0 + most, shape).astype(np.float32) for _ in range(2))
    own = rng.uniform(1.0 - most / 2, 1.0 + most / 2, (*shape[:3], *pixels.shape[3:])).astype(np.float32)
    mean = pixels.mean(axis=tuple(range(1, pixels.ndim)), keepdims=True, dtype=np.float32)
    return np.clip(((pixels - mean) * contrast + mean) * (bright * own), 0.0, 255.0).astype(pixels.dtype)


def _shifted(n: int, size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Which row and which column [n, size] each pixel is taken from."""
    most = size // SHIFT
    shift = rng.integers(-most, most + 1, (n, 2))
    return [np.clip(np.arange(size) + shift[:, axis, None], 0, size - 1) for axis in (0, 1)]


def _cropped(n: int, size: int, crop: float, rng: np.random.Generator) -> list[np.ndarray]:
    """Likewise, of a crop whose sides differ a little."""
    kept = rng.uniform(1.0 - crop, 1.0, (n, 1)) * rng.uniform(STRETCH, 1.0, (n, 2))
    start = rng.random((n, 2)) * (1.0 - kept) * size
    middle = np.arange(size) + 0.5
    return [(start[:, axis, None] + kept[:, axis, None] * middle).astype(np.int64) for axis in (0, 1)]
