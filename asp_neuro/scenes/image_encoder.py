"""Images as scenes: the deployed encoder of a glimpse, small convolutions and a maximum over positions.

    three    convolution, convolution, largest of 2 x 2, convolution, largest of all positions
    four     for photographs (`between` is there): the largest of 2 x 2 after the first too, one more before the last

No convolution looks beyond its map, so that a glimpse shows the same by itself and as a part of the whole map. Every
scale of a glimpse goes through the same convolutions; what scale it is stands in the last one's bias (the
embedding of the scale). The features of all scales and the place of the fixation make the embedding. Only glimpses that
are looked at are ever encoded. `learn/image_encoder.py` is the trained twin.

Everything is whole numbers, held in float32 (docs/integers.md): pixels and activations 0 .. 255, weights in 8 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from asp_neuro.errors import ConfigError
from asp_neuro.grid.arithmetic import SIGNED_MAX, UNSIGNED_MAX, Linear, to_range
from asp_neuro.grid.operations import Operations
from asp_neuro.grid.sections import Affine, Array, Matrix, check, leaf, part
from asp_neuro.scenes import image_statistics
from asp_neuro.scenes.image import N_DESCRIPTOR, Gaze, Images, all_glimpses, describe, images, maps, windows_of

KERNEL = 3  # cells a side of a convolution
BLOCK = 64  # glimpses that are encoded at once: what is between two maps stays in the processor's cache
BOUND = np.array([1.0, 1.0, 1.5, 1.0, 1.0, 1.0, 1.0, 1.0])  # of descriptors


@dataclass(frozen=True)
class ImageSpec:
    """How images are looked at, and the encoder of a glimpse; k scales, c channels."""

    kind: ClassVar[str] = "image"
    batch: ClassVar[type] = Images

    first: Affine = part("c1", "9 c")
    second: Affine = part("c2", "9 c1")  # then the largest of 2 x 2
    third: Matrix = part("c3", "third in")  # the last: then the largest of all positions
    scale: Array = leaf("i4", "k", "c3")  # the third's bias, one for each scale
    embedding: Affine = part("w", "k c3 + 2")  # on the features of all scales, and where the fixation point lies
    gaze: Gaze = Gaze()
    between: Affine | None = part("c4", "9 c2", default=None)  # before the third

    def __post_init__(self) -> None:
        sizes, how = check(self, "scene"), self.gaze
        c2 = sizes["c2"] if self.between is None else sizes["c4"]
        inner = KERNEL * KERNEL
        pairs = [
            ("first", sizes["9 c"], inner * how.channels),
            ("second", sizes["9 c1"], inner * sizes["c1"]),
            ("third", sizes["third in"], inner * c2),
            ("embedding", sizes["k c3 + 2"], sizes["k"] * sizes["c3"] + 2),
        ]
        if self.between is not None:
            pairs.append(("between", sizes["9 c2"], inner * sizes["c2"]))
        for name, given, expected in pairs:
            if given != expected:
                raise ConfigError(f"scene: {name} takes {given} inputs, expected {expected}")
        if sizes["k"] != len(how.scales):
            raise ConfigError(f"scene: scale has {sizes['k']} rows for {len(how.scales)} scales")
        sides(how.grid, self.between is not None)

    @property
    def n_places(self) -> int:
        return self.gaze.n_places

    @property
    def width(self) -> int:
        return self.embedding.n_outputs

    @property
    def descriptor_bound(self) -> np.ndarray:
        return BOUND

    def scenes(self, inputs: np.ndarray, names: Sequence[str] | None = None, cache: bool = False) -> Images:
        """Raw images [n, size, size] or [n, size, size, 3] -> a batch."""
        return images(inputs, self.gaze)

    def encoder(self) -> ImageEncoder:
        return ImageEncoder(self)

    def parts_of(self, scenes: Images) -> np.ndarray:
        """[n, M, M]: a glimpse is made of itself."""
        return np.tile(np.eye(self.n_places, dtype=bool), (len(scenes), 1, 1))

    def statistics(self, scenes: Images) -> np.ndarray:
        """[n, S] what kind of images these are, in the order of `words`."""
        return image_statistics.statistics(scenes, self.gaze)

    @property
    def words(self) -> dict[str, str]:
        """Statistic -> what it is, for people."""
        return image_statistics.words(self.gaze)

    def operations(self, parts: float) -> Operations:
        """Of an observation that encodes so many glimpses."""
        before = [self.first, self.second, *([] if self.between is None else [self.between])]
        inner = [one.weight.size for one in before] + [self.third.weight.size]
        convolved = sum(side * side * n for side, n in zip(sides(self.gaze.grid, self.between is not None), inner))
        return Operations(mac8=len(self.gaze.scales) * convolved + self.embedding.weight.size) * parts


def sides(grid: int, deep: bool) -> list[int]:
    """Positions a side of each convolution's result, before the largest of 2 x 2 is taken; `deep`: of four."""
    found, side, pooled = [], grid, (0, 1) if deep else (1,)
    for number in range(4 if deep else 3):
        side -= KERNEL - 1
        found.append(side)
        if number in pooled:
            if side % 2:
                fits = "2 more than a multiple of 4" if deep else "even"
                raise ConfigError(f"grid = {grid}: {side} positions have no half; with these convolutions it is {fits}")
            side //= 2
        if side < 1:
            raise ConfigError(f"grid = {grid} is too small for {4 if deep else 3} convolutions")
    return found


class ImageEncoder:
    """The encoder's arithmetic, ready to run."""

    def __init__(self, spec: ImageSpec) -> None:
        self.spec, how = spec, spec.gaze
        self.first = Linear("scene: first", spec.first, UNSIGNED_MAX)
        self.second = Linear("scene: second", spec.second, UNSIGNED_MAX)
        self.between = None if spec.between is None else Linear("scene: between", spec.between, UNSIGNED_MAX)
        biases = np.abs(spec.scale.astype(np.float64)).max(axis=0)
        self.third = Linear("scene: third", spec.third, UNSIGNED_MAX, biases)
        scaled = spec.scale * 2.0 ** -spec.third.shift.astype(np.float64)
        self.scale = scaled.astype(np.float32) + self.third.bias  # [k, c3]
        n_features = spec.scale.size
        largest = np.concatenate([np.full(n_features, UNSIGNED_MAX), np.full(2, float(how.size))])
        self.embedding = Linear("scene: embedding", spec.embedding, largest)
        self.where = (2 * how.centres - how.size).astype(np.float32)  # [M, 2] half pixels from the middle

    def view(self, scenes: Images) -> ImageView:
        return ImageView(self, scenes)

    def features(self, cells: np.ndarray, scale: int) -> np.ndarray:
        """Glimpses [m, c, grid, grid] of the scale with this number -> [m, c3] whole numbers from 0 to 255."""
        x = np.ascontiguousarray(cells.transpose(0, 2, 3, 1), dtype=np.float32)
        x = self.first(patches(x))
        if self.between is not None:
            x = largest_of_four(x)
        x += self.first.bias
        x = largest_of_four(self.second(patches(to_range(x, 0.0, UNSIGNED_MAX))))
        x += self.second.bias
        if self.between is not None:
            x = self.between(patches(to_range(x, 0.0, UNSIGNED_MAX)))
            x += self.between.bias
        x = self.third(patches(to_range(x, 0.0, UNSIGNED_MAX))).max(axis=(1, 2))
        x += self.scale[scale]
        return to_range(x, 0.0, UNSIGNED_MAX)

    def embed(self, features: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Features [m, k c3] of all scales and the places [m] -> embeddings, whole numbers of 8 bits."""
        out = self.embedding(np.concatenate([features, self.where[place]], axis=1))
        out += self.embedding.bias
        return to_range(out, -SIGNED_MAX, SIGNED_MAX)


def patches(x: np.ndarray) -> np.ndarray:
    """[m, h, w, c] -> [m, h - 2, w - 2, 9 c]: what a convolution sees at each position, channel by channel."""
    seen = windows_of(x, (KERNEL, KERNEL), axis=(1, 2))  # [m, h - 2, w - 2, c, 3, 3]
    return np.ascontiguousarray(seen).reshape(*seen.shape[:3], -1)


def largest_of_four(x: np.ndarray) -> np.ndarray:
    """[m, h, w, c] -> [m, h / 2, w / 2, c]: of every 2 x 2 positions."""
    m, h, w, c = x.shape
    return np.asarray(x.reshape(m, h // 2, 2, w // 2, 2, c).max(axis=(2, 4)))


class ImageView:
    """A batch of images under way."""

    def __init__(self, encoder: ImageEncoder, scenes: Images) -> None:
        self.encoder, self.images = encoder, scenes
        self.n_encoded = 0

    @property
    def macs(self) -> int:
        """Multiply-accumulates spent so far."""
        return int(self.encoder.spec.operations(self.n_encoded).macs)

    @cached_property
    def descriptors(self) -> np.ndarray:
        """[n, M, 8]"""
        return describe(self.images.pixels, self.encoder.spec.gaze)

    @cached_property
    def glimpses(self) -> list[np.ndarray]:
        """For each scale a view [n, c, side, side, grid, grid]."""
        how = self.encoder.spec.gaze
        return [all_glimpses(one, scale, how) for one, scale in zip(maps(self.images.pixels, how), how.scales)]

    def embed(self, rows: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Only the glimpses that are asked for are encoded."""
        self.n_encoded += len(rows)
        parts = [slice(start, start + BLOCK) for start in range(0, len(rows), BLOCK)]
        return np.concatenate([self._embed(rows[part], place[part]) for part in parts])

    def _embed(self, rows: np.ndarray, place: np.ndarray) -> np.ndarray:
        y, x = np.divmod(place, self.encoder.spec.gaze.side)
        seen = [cells[rows, :, y, x] for cells in self.glimpses]
        features = [self.encoder.features(cells, number) for number, cells in enumerate(seen)]
        return self.encoder.embed(np.concatenate(features, axis=1), place)


assert len(BOUND) == N_DESCRIPTOR
