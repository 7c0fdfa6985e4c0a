"""ImageSet: labelled raw images; what every reader of images returns."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from asp_neuro.data.clouds import UNKNOWN, first_repeat, known
from asp_neuro.errors import InputError

Redraw = Callable[[np.ndarray, np.random.Generator], np.ndarray]  # which images, and chance -> their pixels, drawn anew


@dataclass(frozen=True)
class ImageSet:
    """Images of one size, as a model takes them."""

    pixels: np.ndarray  # [n, size, size] or [n, size, size, 3] uint8
    labels: np.ndarray  # [n] int64, index into classes, or UNKNOWN
    names: tuple[str, ...]  # unique
    classes: tuple[str, ...]
    source: str  # for people: what, and where from
    centres: np.ndarray | None = None  # [n, 2] x, y in pixels: where the object lies, where that is known
    redraw: Redraw | None = field(default=None, compare=False)  # of images that are made, not taken: to train on

    def __post_init__(self) -> None:
        n = len(self.names)
        if self.pixels.dtype != np.uint8 or self.pixels.ndim not in (3, 4) or len(self.pixels) != n:
            raise InputError(f"{self.source}: pixels are {self.pixels.dtype} {list(self.pixels.shape)} of {n} images")
        if self.labels.shape != (n,) or self.labels.dtype != np.int64:
            raise InputError(f"{self.source}: labels are {self.labels.dtype} {list(self.labels.shape)} of {n} images")
        if n and not UNKNOWN <= self.labels.min() <= self.labels.max() < len(self.classes):
            raise InputError(f"{self.source}: a label is outside the {len(self.classes)} classes")
        if len(set(self.names)) != n:
            raise InputError(f"{self.source}: two images are called '{first_repeat(self.names)}'")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def inputs(self) -> np.ndarray:
        """What a model looks at."""
        return self.pixels

    def subset(self, index: Iterable[int] | np.ndarray) -> ImageSet:
        """The images at `index` (integers or a mask), in that order."""
        wanted = index if isinstance(index, np.ndarray) else np.array(list(index), np.int64)
        chosen = np.arange(len(self))[wanted]
        again = self.redraw
        return replace(
            self,
            pixels=self.pixels[chosen],
            labels=self.labels[chosen],
            names=tuple(self.names[i] for i in chosen),
            centres=None if self.centres is None else self.centres[chosen],
            redraw=None if again is None else lambda some, rng: again(chosen[some], rng),
        )

    def joined(self, other: ImageSet) -> ImageSet:
        """These images, then the other ones, of the same classes; none of them is drawn anew."""
        if self.classes != other.classes:
            raise InputError(f"{other.source}: its classes are not those of {self.source}")
        pixels, labels = (np.concatenate(pair) for pair in ((self.pixels, other.pixels), (self.labels, other.labels)))
        names = self.names + other.names
        return replace(self, pixels=pixels, labels=labels, names=names, centres=None, redraw=None)

    def hashes(self) -> list[str]:
        """One hash for each image, of its pixels."""
        return [hashlib.sha256(np.ascontiguousarray(pixels).data).hexdigest() for pixels in self.pixels]

    def sha256(self) -> str:
        """One hash over shapes, pixels, labels, names and classes."""
        digest = hashlib.sha256(f"images {self.pixels.shape}".encode())
        digest.update(np.ascontiguousarray(self.pixels).data)
        digest.update(np.ascontiguousarray(self.labels, "<i8").data)
        for words in (self.names, self.classes):
            digest.update("".join(f"{len(w.encode())}:{w}" for w in (str(len(words)), *words)).encode())
        return digest.hexdigest()

    def relabelled(self, classes: tuple[str, ...]) -> ImageSet:
        """The same images, numbered by the `classes` of a model; a label without a place there is an error."""
        used = {self.classes[i] for i in np.unique(self.labels) if i != UNKNOWN}
        if foreign := sorted(used - set(classes)):
            raise InputError(f"{self.source}: labels outside the model's classes: {', '.join(foreign)}{known(classes)}")
        table = np.array([classes.index(c) if c in classes else UNKNOWN for c in self.classes] + [UNKNOWN], np.int64)
        return replace(self, labels=table[self.labels], classes=tuple(classes))
