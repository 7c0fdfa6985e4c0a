"""PartSet: labelled raw clouds whose points have labels too, y up; what the readers of parts return."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from asp_neuro.data.clouds import first_repeat
from asp_neuro.data.intake import draw
from asp_neuro.errors import ConfigError, InputError


@dataclass(frozen=True)
class Catalogue:
    """Which categories there are, and which parts each has: its own range of all part numbers."""

    categories: tuple[str, ...]
    count: tuple[int, ...]  # [C] parts of each category, numbered one after the other

    def __post_init__(self) -> None:
        if len(self.count) != len(self.categories) or not self.count or min(self.count) < 1:
            raise ConfigError(f"{len(self.categories)} categories with {list(self.count)} parts: at least one each")
        if len(set(self.categories)) != len(self.categories):
            raise ConfigError(f"two categories are called '{first_repeat(self.categories)}'")

    @property
    def n_parts(self) -> int:
        return sum(self.count)

    @property
    def first(self) -> np.ndarray:
        """[C] the first part of each category."""
        return np.cumsum((0, *self.count[:-1]))

    def own(self) -> np.ndarray:
        """[C, n_parts] bool: which parts a category has."""
        part, first = np.arange(self.n_parts), self.first[:, None]
        return np.asarray((part >= first) & (part < first + np.array(self.count)[:, None]))


@dataclass(frozen=True)
class PartSet:
    """Clouds as they were stored, apart from the turn to y-up and the number of points."""

    points: np.ndarray  # [n, P, 3] float32
    parts: np.ndarray  # [n, P] int64, of the point's own category
    labels: np.ndarray  # [n] int64, the category
    names: tuple[str, ...]  # unique
    catalogue: Catalogue
    source: str  # for people: what, and where from

    def __post_init__(self) -> None:
        n = len(self.names)
        if self.points.ndim != 3 or self.points.shape[0] != n or self.points.shape[2] != 3:
            raise InputError(f"{self.source}: points have shape {self.points.shape}, expected ({n}, n_points, 3)")
        if self.parts.shape != self.points.shape[:2] or self.labels.shape != (n,):
            raise InputError(
                f"{self.source}: parts {self.parts.shape} and categories {self.labels.shape} do not fit "
                f"points {self.points.shape}"
            )
        if len(set(self.names)) != n:
            raise InputError(f"{self.source}: two clouds are called '{first_repeat(self.names)}'")
        check_parts(self.parts, self.labels, self.catalogue, self.source, self.names)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def inputs(self) -> np.ndarray:
        """What a model looks at."""
        return self.points

    @property
    def classes(self) -> tuple[str, ...]:
        return self.catalogue.categories

    def subset(self, index: Iterable[int] | np.ndarray) -> PartSet:
        """The clouds at `index` (integers or a mask), in that order."""
        wanted = index if isinstance(index, np.ndarray) else np.array(list(index), np.int64)
        chosen = np.arange(len(self))[wanted]
        names = tuple(self.names[i] for i in chosen)
        return replace(
            self, points=self.points[chosen], parts=self.parts[chosen], labels=self.labels[chosen], names=names
        )

    def joined(self, other: PartSet) -> PartSet:
        """These clouds, then the other ones, of the same categories."""
        if self.catalogue != other.catalogue:
            raise InputError(f"{other.source}: its categories are not those of {self.source}")
        both = {
            name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in ("points", "parts", "labels")
        }
        return replace(self, **both, names=self.names + other.names)

    def sha256(self) -> str:
        """One hash over points, parts, categories and names (not over `source`: a place is no content)."""
        digest = hashlib.sha256(f"parts {self.points.shape}".encode())
        digest.update(np.ascontiguousarray(self.points, "<f4").data)
        for array in (self.parts, self.labels, np.array(self.catalogue.count)):
            digest.update(np.ascontiguousarray(array, "<i8").data)
        for words in (self.names, self.classes):
            digest.update("".join(f"{len(w.encode())}:{w}" for w in (str(len(words)), *words)).encode())
        return digest.hexdigest()

    def hashes(self) -> list[str]:
        """One hash for each cloud, of its points."""
        return [hashlib.sha256(np.ascontiguousarray(points).data).hexdigest() for points in self.points]


def check_parts(
    parts: np.ndarray, labels: np.ndarray, catalogue: Catalogue, where: object, names: Iterable[str]
) -> None:
    """Categories that exist [n], and parts [n, P] that their cloud's category has."""
    named = list(names)
    n = len(catalogue.categories)
    outside = (labels < 0) | (labels >= n)
    if outside.any():
        i = int(outside.argmax())
        raise InputError(f"{where}: '{named[i]}' has category {labels[i]}, outside the {n} categories")
    low = catalogue.first[labels][:, None]
    high = low + np.array(catalogue.count)[labels][:, None]
    wrong = (parts < low) | (parts >= high)
    if wrong.any():
        i, j = (int(k) for k in np.unravel_index(wrong.argmax(), wrong.shape))
        kind = catalogue.categories[labels[i]]
        raise InputError(
            f"{where}: point {j} of '{named[i]}' has part {parts[i, j]}; the parts of {kind} are "
            f"{low[i, 0]} to {high[i, 0] - 1}"
        )


def pick(points: np.ndarray, n_points: int, seed: int = 0) -> np.ndarray:
    """[P, 3] -> [n_points] rows to keep, as `intake.thin` keeps points: labels go along.

    More: a draw of the distinct ones. Fewer: all of them, again and again. Just as many: as they are.
    """
    if len(points) == n_points:
        return np.arange(n_points)
    distinct = np.unique(points, axis=0, return_index=True)[1]  # in lexicographic order
    if len(distinct) <= n_points:
        return np.asarray(distinct[np.arange(n_points) % len(distinct)])
    return np.asarray(distinct[draw(len(distinct), n_points, seed)])
