"""Points to groups, chunks and descriptors (paper B.2, Eq. 3). Pure numpy, vectorised over a batch of clouds.

    normalise      centre on the mean, scale to the unit sphere, round to the grid, sort: order of the points is gone
    group          G farthest-point centres, each with its K nearest points
    chunk          the first M centres are seeds; a group goes to its nearest seed, and to the second when d2 <= 1.15 d1
    describe       per chunk: mean (3), variance (3), largest radius about the mean, norm of the mean

Every coordinate is a multiple of 2^-14. So differences, squares and sums of up to 2^20 of them are exact in float64:
the result cannot depend on the order of a sum, the batch size, the BLAS library or the number of threads, ties are real
ties, and they go to the lexicographically smaller point. (2^-14 is a tenth of the rounding that float16 data already
carry.) y is up.

Farthest-point sampling is written here because the libraries work in float32 with unspecified ties; over a batch the
twelve lines below take one to two times as long as the compiled ones, a fifth of a cut (`benchmarks/grouping.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from asp_neuro.errors import ConfigError, InputError
from asp_neuro.grid.arithmetic import DESCRIPTOR_BITS, on_grid
from asp_neuro.grid.sections import Array, leaf

GRID = 2.0**14  # grid steps per unit length
N_DESCRIPTOR = 8
N_OUTLINE = 3 * N_DESCRIPTOR  # a chunk's own, and the lowest and the highest of its cloud
N_MOMENTS = 30  # of a group's points: mean (3), covariance (6) and width, of the nearest quarter, half and all of them
MOMENT_PARTS = (4, 2, 1)  # a quarter, half, all
MOMENT_PAIRS = ([0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2])  # xx, yy, zz, xy, xz, yz
MAX_POINTS = 2**13  # what fits beside a squared distance in one exact float64 sort key (see `nearest_points`)
MAX_CHUNKS = 2**7  # chunks are numbered in int8


@dataclass(frozen=True)
class Chunking:
    """How a cloud is cut: G groups of K points, M chunks, the overlap ratio, an optional ball radius."""

    n_points: int = 1024
    n_groups: int = 64
    group_size: int = 16
    n_chunks: int = 16
    overlap: float = 1.15
    radius: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.n_chunks <= self.n_groups:
            raise ConfigError(f"n_chunks = {self.n_chunks} must be between 1 and n_groups = {self.n_groups}")
        if self.n_chunks > MAX_CHUNKS:
            raise ConfigError(f"n_chunks = {self.n_chunks} exceeds {MAX_CHUNKS}")
        if not max(self.n_groups, self.group_size) <= self.n_points <= MAX_POINTS:
            raise ConfigError(
                f"n_groups = {self.n_groups} and group_size = {self.group_size} need at most n_points = {self.n_points}"
                f" points, and n_points at most {MAX_POINTS}"
            )
        in_range = self.group_size >= 1 and 1.0 <= self.overlap < np.inf  # so that NaN is out of range too
        if not in_range or not (self.radius is None or self.radius > 0.0):
            raise ConfigError(
                f"group_size = {self.group_size} (at least 1), overlap = {self.overlap} (at least 1), "
                f"radius = {self.radius} (none, or above 0)"
            )
        for name, value in vars(self).items():  # Python's own numbers, one text of each in JSON
            if isinstance(value, np.generic):
                object.__setattr__(self, name, value.item())
        object.__setattr__(self, "overlap", float(self.overlap))
        object.__setattr__(self, "radius", None if self.radius is None else float(self.radius))

    @property
    def n_distinct(self) -> int:
        """Distinct points that a cloud needs."""
        return max(self.n_groups, self.group_size)


@dataclass(frozen=True)
class Chunks:
    """A batch of n clouds, cut. Indices point into `points`; rows past `n_distinct` repeat the first point, unused."""

    points: Array = leaf("i2", "n", "P", 3)  # coordinates in grid steps, sorted
    members: Array = leaf("u2", "n", "G", "K")  # the points of each group, nearest first (the centre itself)
    first: Array = leaf("i1", "n", "G")  # the chunk of each group
    second: Array = leaf("i1", "n", "G")  # its second chunk, or -1
    n_chunks: int = 0

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: slice | np.ndarray) -> Chunks:
        return Chunks(self.points[index], self.members[index], self.first[index], self.second[index], self.n_chunks)

    def coordinates(self) -> np.ndarray:
        """[n, P, 3] float64."""
        return self.points / GRID

    def mask(self) -> np.ndarray:
        """[n, M, P] bool: the distinct points of each chunk's groups."""
        n, n_points = self.points.shape[:2]
        mask = np.zeros((n, self.n_chunks, n_points), dtype=bool)
        cloud = np.arange(n)[:, None, None]
        mask[cloud, self.first[:, :, None].astype(np.intp), self.members] = True
        b, g = np.nonzero(self.second >= 0)
        mask[b[:, None], self.second[b, g, None].astype(np.intp), self.members[b, g]] = True
        return mask

    def without(self, gone: np.ndarray) -> Chunks:
        """The same chunks with the points of `gone` [n, P] dropped: a group has its centre in their place."""
        dropped = gone[np.arange(len(self))[:, None, None], self.members]
        members = np.where(dropped, self.members[..., :1], self.members)
        return Chunks(self.points, members, self.first, self.second, self.n_chunks)

    def belongs(self) -> np.ndarray:
        """[n, M, G] bool: which groups are in which chunk."""
        m = np.arange(self.n_chunks)[None, :, None]
        return (self.first[:, None, :] == m) | (self.second[:, None, :] == m)

    def groups_of_chunks(self) -> np.ndarray:
        """[n, M, S] uint8 (uint16 above 256 groups): each chunk's groups, padded by repeating its first one."""
        belongs = self.belongs()
        count = belongs.sum(axis=2)[..., None]  # [n, M, 1]
        order = np.argsort(~belongs, axis=2, kind="stable")[..., : int(count.max())]
        padded = np.where(np.arange(order.shape[2]) < count, order, order[..., :1])
        return padded.astype(np.uint8 if belongs.shape[2] <= 256 else np.uint16)


def normalise(points: np.ndarray, names: Sequence[str] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Raw clouds [n, P, 3] -> grid coordinates [n, P, 3] (float64, sorted, distinct first) and n_distinct [n]."""
    raw = np.asarray(points, dtype=np.float64)
    if raw.ndim != 3 or raw.shape[2] != 3:
        raise InputError(f"a batch of clouds has shape [n, points, 3], got {list(raw.shape)}")
    if raw.shape[1] > MAX_POINTS:
        raise InputError(
            f"{_name(names, 0)}: {raw.shape[1]} points, at most {MAX_POINTS} can be cut; take fewer of them"
        )
    finite = np.isfinite(raw).all(axis=(1, 2))
    if not finite.all():
        bad = int(np.argmin(finite))
        raise InputError(f"{_name(names, bad)}: has coordinates that are not finite (NaN or inf)")
    order = np.lexsort((raw[..., 2], raw[..., 1], raw[..., 0]), axis=-1)
    raw = np.take_along_axis(raw, order[..., None], axis=1)
    new = np.ones(raw.shape[:2], dtype=bool)
    new[:, 1:] = (raw[:, 1:] != raw[:, :-1]).any(axis=2)
    weight = new[..., None].astype(np.float64)
    centred = raw - (raw * weight).sum(axis=1, keepdims=True) / weight.sum(axis=1, keepdims=True)
    radius = np.sqrt((centred**2).sum(axis=2).max(axis=1))
    if not (radius > 0.0).all():
        bad = int(np.argmin(radius))
        raise InputError(f"{_name(names, bad)}: all points are the same, there is nothing to see")
    grid = np.rint(centred * (GRID / radius[:, None, None]))
    return _sorted_distinct(grid)


def _sorted_distinct(grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort each cloud lexicographically with repeated points moved to the end (as copies of the first point)."""
    shifted = grid.astype(np.int64) + (1 << 15)
    key = (shifted[..., 0] << 32) | (shifted[..., 1] << 16) | shifted[..., 2]
    key.sort(axis=1)
    repeated = np.zeros(key.shape, dtype=bool)
    repeated[:, 1:] = key[:, 1:] == key[:, :-1]
    n_distinct = key.shape[1] - repeated.sum(axis=1)
    if repeated.any():
        key[repeated] = np.iinfo(np.int64).max
        key.sort(axis=1)
        late = np.arange(key.shape[1]) >= n_distinct[:, None]
        key = np.where(late, key[:, :1], key)
    low = (1 << 16) - 1
    back = np.stack([key >> 32, (key >> 16) & low, key & low], axis=-1) - (1 << 15)
    return back.astype(np.float64) / GRID, n_distinct


def farthest_points(points: np.ndarray, n: int, start: np.ndarray) -> np.ndarray:
    """Farthest-point sampling: [b, P, 3] -> indices [b, n] from `start` [b]; ties to the lower index."""
    x, y, z = (np.ascontiguousarray(points[..., axis], dtype=np.float64) for axis in range(3))
    rows = np.arange(len(points))
    index = np.empty((len(points), n), dtype=np.intp)
    distance = np.full(x.shape, np.inf)
    current = np.asarray(start, dtype=np.intp)
    for step in range(n):
        index[:, step] = current
        square = (x - x[rows, current][:, None]) ** 2
        square += (y - y[rows, current][:, None]) ** 2
        square += (z - z[rows, current][:, None]) ** 2
        np.minimum(distance, square, out=distance)
        current = distance.argmax(axis=1)
    return index


def nearest_points(points: np.ndarray, n_distinct: np.ndarray, centres: np.ndarray, k: int) -> np.ndarray:
    """The k nearest points of each centre: indices [b, G, k], nearest first, ties to the lower index.

    Squared distances are integers below 2^34 in grid units, so distance * 2^13 + index is one exact float64 key.
    """
    steps = points * GRID
    late = np.arange(points.shape[1]) >= n_distinct[:, None]
    norm = (steps**2).sum(axis=2)
    scaled = np.where(late, np.inf, norm * MAX_POINTS + np.arange(points.shape[1]))
    one = np.ones_like(norm)
    right = np.concatenate([steps, np.stack([scaled, one], axis=2)], axis=2)  # [b, P, 5]
    left = np.concatenate([steps * (-2.0 * MAX_POINTS), np.stack([one, norm * MAX_POINTS], axis=2)], axis=2)
    left = np.take_along_axis(left, centres[..., None], axis=1)  # [b, G, 5]
    key = left @ right.transpose(0, 2, 1)  # [b, G, P]: (|c|^2 - 2 c.p + |p|^2) * 2^13 + index
    if k < points.shape[1]:
        key.partition(k - 1, axis=2)
        key = key[..., :k]
    key = np.sort(key, axis=2)
    return np.mod(key, float(MAX_POINTS)).astype(np.intp)


def assign_chunks(centres: np.ndarray, n_chunks: int, overlap: float) -> tuple[np.ndarray, np.ndarray]:
    """Centre coordinates [b, G, 3] -> first chunk [b, G] and second chunk [b, G] (-1: none).

    The seeds are the farthest-point sample of the centres; as the centres already stand in that order, they are the
    first M of them. The ratio is compared as a fraction of integers (1.15 is 23/20), so that equality is equality:
    in floating point half of the exact ties would fall on the wrong side.
    """
    ratio = Fraction(str(float(overlap))).limit_denominator(1000)  # denominator^2 times a squared distance stays exact
    steps = centres * GRID
    square = ((steps[:, :, None, :] - steps[:, None, :n_chunks, :]) ** 2).sum(axis=3)  # [b, G, M]
    first = square.argmin(axis=2)
    nearest = np.take_along_axis(square, first[..., None], axis=2)[..., 0]
    rest = square.copy()
    np.put_along_axis(rest, first[..., None], np.inf, axis=2)
    second = rest.argmin(axis=2)
    after = np.take_along_axis(rest, second[..., None], axis=2)[..., 0]
    shared = after * ratio.denominator**2 <= nearest * ratio.numerator**2
    return first.astype(np.int8), np.where(shared, second, -1).astype(np.int8)


def cut(points: np.ndarray, how: Chunking, names: Sequence[str] | None = None) -> Chunks:
    """Raw clouds [n, P, 3] -> Chunks. Every cloud stands alone: the batch it came in changes nothing."""
    xyz, n_distinct = normalise(points, names)
    if (n_distinct < how.n_distinct).any():
        bad = int(np.argmin(n_distinct))
        raise InputError(
            f"{_name(names, bad)}: {n_distinct[bad]} distinct points, at least {how.n_distinct} are needed "
            f"({how.n_groups} groups of {how.group_size})"
        )
    start = (xyz**2).sum(axis=2).argmax(axis=1)
    centres = farthest_points(xyz, how.n_groups, start)
    members = nearest_points(xyz, n_distinct, centres, how.group_size)
    at = np.take_along_axis(xyz, centres[..., None], axis=1)
    if how.radius is not None:
        reach = np.take_along_axis(xyz[:, None], members[..., None].reshape(len(xyz), 1, -1, 1), axis=2)
        reach = reach.reshape(*members.shape, 3) - at[:, :, None, :]
        members = np.where((reach**2).sum(axis=3) > how.radius**2, members[..., :1], members)
    first, second = assign_chunks(at, how.n_chunks, how.overlap)
    return Chunks(np.rint(xyz * GRID).astype(np.int16), members.astype(np.uint16), first, second, how.n_chunks)


def describe(points: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Coordinates [n, P, 3] and chunk masks [n, M, P] -> descriptors [n, M, 8] (Eq. 3), multiples of 2^-16.

    The mean is rounded before it is used, so that for coordinates on the grid every sum here is exact.
    """
    inside = mask.astype(points.dtype)
    count = inside.sum(axis=2)[..., None]  # [n, M, 1]
    mean = on_grid((inside @ points) / count, DESCRIPTOR_BITS)  # [n, M, 3]
    variance = np.maximum((inside @ points**2) / count - mean**2, 0.0)
    square = (points**2).sum(axis=2)[:, None, :] - 2.0 * (mean @ points.transpose(0, 2, 1))  # |x|^2 - 2 x.mean
    norm = (mean**2).sum(axis=2)
    radius = np.sqrt(np.maximum(np.where(mask, square, -np.inf).max(axis=2) + norm, 0.0))
    values = np.concatenate([mean, variance, radius[..., None], np.sqrt(norm)[..., None]], axis=2)
    return on_grid(values, DESCRIPTOR_BITS)


def _name(names: Sequence[str] | None, index: int) -> str:
    return f"cloud {index}" if names is None else f"cloud '{names[index]}'"
