"""CloudSet: labelled raw clouds, y up; what every reader returns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from asp_neuro.errors import InputError, UsageError, nearest

SPLITS = ("train", "validation", "calibration", "test")
UNKNOWN = -1  # the label of a cloud whose class nobody told us


@dataclass(frozen=True)
class CloudSet:
    """Clouds as they were stored, apart from the turn to y-up and the number of points; `cloud.py` normalises."""

    points: np.ndarray  # [n, P, 3] float32
    labels: np.ndarray  # [n] int64, index into classes, or UNKNOWN
    names: tuple[str, ...]  # unique
    classes: tuple[str, ...]
    source: str  # for people: what, and where from

    def __post_init__(self) -> None:
        n = len(self.names)
        if self.points.ndim != 3 or self.points.shape[0] != n or self.points.shape[2] != 3:
            raise InputError(f"{self.source}: points have shape {self.points.shape}, expected ({n}, n_points, 3)")
        if self.labels.shape != (n,):
            raise InputError(f"{self.source}: labels have shape {self.labels.shape}, expected ({n},)")
        if self.points.dtype != np.float32 or self.labels.dtype != np.int64:
            raise InputError(f"{self.source}: points must be float32 and labels int64")
        if n and not UNKNOWN <= self.labels.min() <= self.labels.max() < len(self.classes):
            bad = self.labels[(self.labels < UNKNOWN) | (self.labels >= len(self.classes))][0]
            raise InputError(f"{self.source}: label {bad} is outside the {len(self.classes)} classes")
        if len(set(self.names)) != n:
            raise InputError(f"{self.source}: two clouds are called '{first_repeat(self.names)}'")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def inputs(self) -> np.ndarray:
        """What a model looks at."""
        return self.points

    def subset(self, index: Iterable[int] | np.ndarray) -> CloudSet:
        """The clouds at `index` (integers or a mask), in that order."""
        wanted = index if isinstance(index, np.ndarray) else np.array(list(index), np.int64)
        chosen = np.arange(len(self))[wanted]
        names = tuple(self.names[i] for i in chosen)
        return replace(self, points=self.points[chosen], labels=self.labels[chosen], names=names)

    def joined(self, other: CloudSet) -> CloudSet:
        """These clouds, then the other ones, of the same classes."""
        if self.classes != other.classes:
            raise InputError(f"{other.source}: its classes are not those of {self.source}")
        points, labels = (np.concatenate(pair) for pair in ((self.points, other.points), (self.labels, other.labels)))
        return replace(self, points=points, labels=labels, names=self.names + other.names)

    def sha256(self) -> str:
        """One hash over shapes, points, labels, names and classes (not over `source`: a place is no content)."""
        digest = hashlib.sha256(f"clouds {self.points.shape}".encode())
        digest.update(np.ascontiguousarray(self.points, "<f4").data)
        digest.update(np.ascontiguousarray(self.labels, "<i8").data)
        for words in (self.names, self.classes):
            digest.update("".join(f"{len(w.encode())}:{w}" for w in (str(len(words)), *words)).encode())
        return digest.hexdigest()

    def hashes(self) -> list[str]:
        """One hash for each cloud, of its points."""
        return [hashlib.sha256(np.ascontiguousarray(points).data).hexdigest() for points in self.points]

    def relabelled(self, classes: tuple[str, ...]) -> CloudSet:
        """The same clouds, numbered by the `classes` of a model; a label without a place there is an error."""
        used = {self.classes[i] for i in np.unique(self.labels) if i != UNKNOWN}
        if foreign := sorted(used - set(classes)):
            raise InputError(f"{self.source}: labels outside the model's classes: {', '.join(foreign)}{known(classes)}")
        table = np.array([classes.index(c) if c in classes else UNKNOWN for c in self.classes] + [UNKNOWN], np.int64)
        return replace(self, labels=table[self.labels], classes=tuple(classes))


def known(classes: Iterable[str]) -> str:
    return f" (the model knows {', '.join(classes)})"


def first_repeat(words: Iterable[str]) -> str:
    seen: set[str] = set()
    for word in words:
        if word in seen:
            return word
        seen.add(word)
    raise ValueError("no word repeats")


def check_numbers(n_points: int, seed: int) -> None:
    if n_points < 1:
        raise UsageError(f"n_points is {n_points}, it must be at least 1")
    if seed < 0:
        raise UsageError(f"seed is {seed}, it must not be negative")


def check_split(split: str) -> str:
    if split not in SPLITS:
        raise UsageError(f"unknown split '{split}'{nearest(split, SPLITS)}")
    return split
