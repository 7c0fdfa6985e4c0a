"""Points to groups, chunks and descriptors (paper B.2, Eq. 3). Pure numpy.

    strays         points that stand alone are left out, if wished (`strays.py`)
    axes           turned about up so that the longer axis of the plan lies along x, if wished
    normalise      centre on the mean, scale to the unit sphere, round to the grid, sort: order of the points is gone
    group          G farthest-point centres, each with its K nearest points
    chunk          the first M centres are seeds; a group goes to its nearest seed, and to the second when d2 <= 1.15 d1
    describe       per chunk: mean (3), variance (3), largest radius about the mean, norm of the mean

Every coordinate is a multiple of 2^-14. So differences, squares and sums of up to 2^20 of them are exact in float64:
the result cannot depend on the order of a sum, the batch size, the BLAS library or the number of threads, ties are real
ties, and they go to the lexicographically smaller point. (2^-14 is a tenth of the rounding that float16 data already
carry.) y is up.

Farthest-point sampling is written here because the libraries work in float32 with unspecified ties. One cloud is cut at
a time, also of a batch: its arrays stay in the processor's cache (`benchmarks/grouping.py`). `groups` and `descriptors`
have compiled twins (`asp_neuro/compiled`), which are taken where they are there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

import numpy as np

from asp_neuro import compiled
from asp_neuro.errors import ConfigError, InputError
from asp_neuro.grid.arithmetic import DESCRIPTOR_BITS, on_grid
from asp_neuro.grid.sections import Array, leaf, part
from asp_neuro.plain import later
from asp_neuro.scenes.strays import strays

GRID = 2.0**14  # grid steps per unit length
PLACES = 2.0 ** np.array([32, 16, 0])  # of x, y, z in one number, 16 bits each
MIDDLE = 2**15  # added to a coordinate in grid steps, so that none is negative
N_DESCRIPTOR = 8
DESCRIPTORS = {"mean": slice(0, 3), "variance": slice(3, 6), "radius": slice(6, 7), "norm": slice(7, 8)}
N_OUTLINE = 3 * N_DESCRIPTOR  # a chunk's own, and the lowest and the highest of its cloud
N_MOMENTS = 30  # of a group's points: mean (3), covariance (6) and width, of the nearest quarter, half and all of them
MOMENT_PARTS = (4, 2, 1)  # a quarter, half, all
MOMENT_PAIRS = ([0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2])  # xx, yy, zz, xy, xz, yz
MAX_POINTS = 2**13  # what fits beside group and squared distance in one sort key (see `nearest_points`)
MAX_CHUNKS = 2**7  # chunks are numbered in int8
DESCRIBED = 64  # clouds that are described at once


@dataclass(frozen=True)
class Chunking:
    """How a cloud is cut: G groups of K points, M chunks, the overlap ratio, an optional ball radius."""

    n_points: int = 1024
    n_groups: int = 64
    group_size: int = 16
    n_chunks: int = 16
    overlap: float = 1.15
    radius: float | None = None
    strays: float | None = later(None)  # how many times as far apart as usual makes a point a stray; None: all are kept
    even: bool = later(False)  # of a cloud with points to spare an even sample is taken, as of ModelNet, not any
    axes: bool = later(False)  # a cloud is first turned about up to the principal axes of its plan: its azimuth is gone

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
        if not (self.strays is None or 1.0 < self.strays < np.inf):
            raise ConfigError(f"strays = {self.strays} must be above 1 (2.5 is a good choice), or be left out")
        for name, value in vars(self).items():  # Python's own numbers, one text of each in JSON
            if isinstance(value, np.generic):
                object.__setattr__(self, name, value.item())
        object.__setattr__(self, "overlap", float(self.overlap))
        for name in ("radius", "strays"):
            object.__setattr__(self, name, None if getattr(self, name) is None else float(getattr(self, name)))

    @property
    def n_places(self) -> int:
        return self.n_chunks

    @property
    def budget(self) -> int:
        """Every chunk may be looked at."""
        return self.n_chunks

    @property
    def n_distinct(self) -> int:
        """Distinct points that a cloud needs."""
        return max(self.n_groups, self.group_size)


@dataclass(frozen=True)
class Asked:
    """What a cloud is asked for, by a task that can be told more than its points."""

    category: Array = leaf("i1", "n")  # negative: not given


@dataclass(frozen=True)
class Chunks:
    """A batch of n clouds, cut. Indices point into `points`; rows past `n_distinct` repeat the first point, unused."""

    points: Array = leaf("i2", "n", "P", 3)  # coordinates in grid steps, sorted
    members: Array = leaf("u2", "n", "G", "K")  # the points of each group, nearest first (the centre itself)
    first: Array = leaf("i1", "n", "G")  # the chunk of each group
    second: Array = leaf("i1", "n", "G")  # its second chunk, or -1
    n_chunks: int = 0
    asked: Asked | None = part("n", default=None)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: slice | np.ndarray) -> Chunks:
        asked = None if self.asked is None else Asked(self.asked.category[index])
        return Chunks(
            self.points[index], self.members[index], self.first[index], self.second[index], self.n_chunks, asked
        )

    def asking(self, category: np.ndarray) -> Chunks:
        """The same clouds, each with a category [n]; negative: not given."""
        return replace(self, asked=Asked(np.asarray(category, dtype=np.int8)))

    @property
    def categories(self) -> np.ndarray:
        """[n] the category of each cloud, negative where it was not given."""
        return np.full(len(self), -1, dtype=np.int8) if self.asked is None else self.asked.category

    def centres(self) -> np.ndarray:
        """[n, G, 3] float64, whole grid steps."""
        return np.take_along_axis(self.points, self.members[..., :1].astype(np.intp), axis=1).astype(np.float64)

    def plain(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Points, members, first and second as they are declared, each in one piece of memory."""
        return (
            np.ascontiguousarray(self.points, dtype=np.int16),
            np.ascontiguousarray(self.members, dtype=np.uint16),
            np.ascontiguousarray(self.first, dtype=np.int8),
            np.ascontiguousarray(self.second, dtype=np.int8),
        )

    def coordinates(self) -> np.ndarray:
        """[n, P, 3] float64."""
        return self.points / GRID

    def mask(self) -> np.ndarray:
        """[n, M, P] bool: the distinct points of each chunk's groups."""
        n, n_points = self.points.shape[:2]
        mask = np.zeros((n, self.n_chunks, n_points), dtype=bool)
        row = np.arange(0, n * self.n_chunks, self.n_chunks)[:, None]  # of mask, each cloud's first
        b, g = np.nonzero(self.second >= 0)
        for rows, members in (
            (row + self.first, self.members),
            (row[b, 0] + self.second[b, g], self.members[b, g]),
        ):
            mask.reshape(-1)[rows[..., None] * n_points + members] = True
        return mask

    def without(self, gone: np.ndarray) -> Chunks:
        """The same chunks with the points of `gone` [n, P] dropped: a group has its centre in their place."""
        dropped = gone[np.arange(len(self))[:, None, None], self.members]
        members = np.where(dropped, self.members[..., :1], self.members)
        return replace(self, members=members)

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
    steps, n_distinct = to_grid(points, names)
    return steps / GRID, n_distinct


def to_grid(
    points: np.ndarray, names: Sequence[str] | None = None, factor: float | None = None, axes: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Raw clouds [n, P, 3] -> whole grid steps [n, P, 3] int16, sorted, distinct first; and n_distinct [n].

    `factor`: of `strays`, which are left out; None: all points are kept. `axes`: see `on_axes`.
    """
    raw = np.asarray(points, dtype=np.float64)
    if raw.ndim != 3 or raw.shape[2] != 3:
        raise InputError(f"a batch of clouds has shape [n, points, 3], got {list(raw.shape)}")
    if raw.shape[1] > MAX_POINTS:
        raise InputError(
            f"{_name(names, 0)}: {raw.shape[1]} points, at most {MAX_POINTS} can be cut; take fewer of them"
        )
    if not np.isfinite(raw).all():
        bad = int(np.argmin(np.isfinite(raw).all(axis=(1, 2))))
        raise InputError(f"{_name(names, bad)}: has coordinates that are not finite (NaN or inf)")
    steps, n_distinct = np.empty(raw.shape, dtype=np.int16), np.empty(len(raw), dtype=np.intp)
    for i, cloud in enumerate(raw):
        if factor is not None:
            cloud = cloud[~strays(cloud, factor)]
        if not axes and len(cloud) == len(steps[i]) and _compiled_grid(cloud, steps[i]):
            n_distinct[i] = len(cloud)
            continue
        key = _distinct_keys(cloud, _name(names, i), axes)
        n_distinct[i] = len(key)
        steps[i, : len(key)] = _steps(key)
        steps[i, len(key) :] = steps[i, 0]
    return steps, n_distinct


def _compiled_grid(cloud: np.ndarray, steps: np.ndarray) -> bool:
    """Raw cloud [P, 3] -> sorted grid steps [P, 3], in place; whether that could be done (nearly always)."""
    if compiled.kernels is None:
        return False
    return bool(compiled.kernels.to_grid(np.ascontiguousarray(cloud), steps, len(cloud)))


def _distinct_keys(cloud: np.ndarray, name: str, axes: bool = False) -> np.ndarray:
    """The keys (`_keys`) of a raw cloud [P, 3], each once; `axes`: turned to the principal axes of its plan.

    Where a sum cannot round and no two points fall on one another, neither the order of the points nor a search for
    repeated ones can change the mean: that spares the sorting of raw points, a third of the time of a cut.
    """
    planes = np.ascontiguousarray(cloud.T)
    if adds_exactly(planes):
        mean = planes.sum(axis=1) / len(cloud)
        key = _keys(planes, mean, name)
        if (key[1:] != key[:-1]).all():
            return key if not axes else _on_axes(planes, mean, key, name)
    mean = mean_of_distinct(cloud)
    key = _once(_keys(planes, mean, name))
    return key if not axes else _on_axes(planes, mean, key, name)


def _once(key: np.ndarray) -> np.ndarray:
    """Sorted keys, each once."""
    return key[np.append(True, key[1:] != key[:-1])]


def _on_axes(planes: np.ndarray, mean: np.ndarray, key: np.ndarray, name: str) -> np.ndarray:
    """The keys of raw coordinates [3, P] turned as their keys tell; raw ones turn, so that nothing is rounded twice."""
    cos, sin = azimuth(_steps(key).astype(np.int16))
    x, y, z = planes - mean[:, None]
    return _once(_keys(np.stack([cos * x + sin * z, y, cos * z - sin * x]), np.zeros(3), name))


def azimuth(steps: np.ndarray) -> tuple[float, float]:
    """Whole grid steps [P, 3] -> cosine and sine of the turn about up that puts the longer principal axis of the plan
    along x, its heavier tail ahead. Sums are whole numbers; what follows is one operation after another on a few."""
    x, z = steps[:, 0].astype(np.int64), steps[:, 2].astype(np.int64)
    n, sx, sz = len(x), int(x.sum()), int(z.sum())
    across = float(2 * (n * int(x @ z) - sx * sz))
    apart = float(n * int(x @ x) - sx * sx - n * int(z @ z) + sz * sz)
    length = math.sqrt(apart * apart + across * across)
    if length == 0.0:  # a plan without a longer axis
        return 1.0, 0.0
    cos, sin = math.sqrt((1.0 + apart / length) / 2.0), math.sqrt((1.0 - apart / length) / 2.0)
    sin = math.copysign(sin, across)
    along = np.rint((cos * x + sin * z) - (cos * sx + sin * sz) / n).astype(np.int64)
    return (cos, sin) if int((along**3).sum()) >= 0 else (-cos, -sin)


def adds_exactly(planes: np.ndarray) -> bool:
    """Whether the numbers of each plane [3, P] add up without rounding, in any order.

    They do if all are multiples of a unit, and P times the largest is at most 2^53 units. The unit is the last bit of
    the anchor, so that any other number does not survive the sum with it.
    """
    _, exponent = math.frexp(np.abs(planes).max())  # largest < 2^exponent
    if abs(exponent) > 400:  # where squares and the anchor have no room
        return False
    anchor = math.ldexp(1.5, exponent + planes.shape[1].bit_length() - 1)
    return bool((planes + anchor - anchor == planes).all())


def mean_of_distinct(cloud: np.ndarray) -> np.ndarray:
    """[P, 3] -> [3]: of the points that differ, added in lexicographic order."""
    ordered = cloud[np.lexsort((cloud[:, 2], cloud[:, 1], cloud[:, 0]))]
    new = np.ones((len(cloud), 1))
    new[1:, 0] = (ordered[1:] != ordered[:-1]).any(axis=1)
    total = np.cumsum(ordered * new, axis=0)[-1]  # one by one: a sum would leave the order to the library
    return np.asarray(total / new.sum())


def _keys(planes: np.ndarray, mean: np.ndarray, name: str) -> np.ndarray:
    """Raw coordinates [3, P] -> a sorted 48-bit number for each point: x, y, z in grid steps, 16 bits each."""
    centred = planes - mean[:, None]
    x, y, z = centred * centred
    radius = math.sqrt((x + y + z).max())
    if not radius > 0.0:
        raise InputError(f"{name}: all points are the same, there is nothing to see")
    key = (PLACES @ np.rint(centred * (GRID / radius)) + PLACES.sum() * MIDDLE).astype("<i8")
    key.sort()
    return key


def _steps(key: np.ndarray) -> np.ndarray:
    """Keys [P] -> x, y, z [P, 3] in grid steps."""
    return key.view("<u2").reshape(-1, 4)[:, 2::-1] - np.uint16(MIDDLE)


def farthest_points(points: np.ndarray, n: int, start: np.ndarray) -> np.ndarray:
    """Farthest-point sampling: [b, P, 3] -> indices [b, n] from `start` [b]; ties to the lower index.

    Ties are ties where coordinates are on the grid; elsewhere distances round.
    """
    steps = np.ascontiguousarray(points.transpose(0, 2, 1), dtype=np.float64) * GRID
    rows = [np.empty(steps.shape[2])] * n  # one, written n times
    return np.array([_farthest(cloud, first, rows) for cloud, first in zip(steps, start, strict=True)], dtype=np.intp)


def _farthest(steps: np.ndarray, start: int | None, rows: Iterable[np.ndarray]) -> list[int]:
    """Whole grid steps [3, P] -> a farthest point for each of `rows` [P], which take the squared distances to it.

    Without a start, the first is the farthest from the origin.

    |p|^2 - 2 c.p + |c|^2 is a product of five numbers with [5, P]: exact, and one call instead of eight.
    """
    right = np.ones((5, steps.shape[1]))  # |p|^2, p, 1
    right[1:4] = steps
    np.square(steps).sum(axis=0, out=right[0])
    left = right.T[:, [4, 1, 2, 3, 0]]  # 1, -2 c, |c|^2
    left[:, 1:4] *= -2.0
    nearest, index, minimum = np.full(steps.shape[1], np.inf), [], np.minimum
    at = int(right[0].argmax()) if start is None else start
    for row in rows:
        index.append(at)
        left[at].dot(right, row)
        minimum(nearest, row, out=nearest)
        at = int(nearest.argmax())
    return index


def nearest_points(square: np.ndarray, k: int) -> np.ndarray:
    """Squared distances [G, P] in grid steps -> the k nearest points [G, k], nearest first, ties to the lower index.

    Group, distance and point make one key: a single sort of the points within reach puts all groups in order.
    """
    near = square.astype(np.int32)  # below 2^31: in the unit sphere no two points are 2^15.5 steps apart
    n_groups, n_points = square.shape
    at = (near <= _reach(near, k)).reshape(-1).nonzero()[0]
    first = np.arange(n_groups)
    starts = at.searchsorted(first * n_points)  # of each group
    first *= 2**44 - n_points
    key = near.reshape(-1)[at].astype(np.int64)
    key *= MAX_POINTS  # below 2^44
    key += at
    key += first.repeat(np.diff(starts, append=len(at)))  # group * 2^44 + distance * 2^13 + point
    key.sort()
    return np.asarray(key[starts[:, None] + np.arange(k)] & (MAX_POINTS - 1))


def _reach(square: np.ndarray, k: int) -> np.ndarray:
    """[G, P] -> [G, 1]: within it are at least k points, and seldom many more.

    Each of 2 k parts or more has a least distance; the k-th of these is the answer.
    """
    while (half := square.shape[1] // 2) >= 2 * k:
        square = np.minimum(square[:, :half], square[:, half : 2 * half])
    return np.partition(square, k - 1, axis=1)[:, k - 1 : k]


def assign_chunks(centres: np.ndarray, n_chunks: int, overlap: float) -> tuple[np.ndarray, np.ndarray]:
    """Centre coordinates [b, G, 3] -> first chunk [b, G] and second chunk [b, G] (-1: none).

    The seeds are the farthest-point sample of the centres; as the centres already stand in that order, they are the
    first M of them. The ratio is compared as a fraction of integers (1.15 is 23/20), so that equality is equality:
    in floating point half of the exact ties would fall on the wrong side.
    """
    steps = np.ascontiguousarray(centres.transpose(2, 0, 1)) * GRID  # [3, b, G]
    return _nearest_seeds(np.square(steps[:, :, :n_chunks, None] - steps[:, :, None]).sum(axis=0), overlap)


def _nearest_seeds(square: np.ndarray, overlap: float) -> tuple[np.ndarray, np.ndarray]:
    """Squared distances [b, M, G] of seeds to centres -> as `assign_chunks`."""
    over, under = _ratio(overlap)
    first, nearest = square.argmin(axis=1), np.minimum.reduce(square, axis=1)
    square[np.arange(square.shape[1])[:, None] == first[:, None]] = np.inf
    second, after = square.argmin(axis=1), np.minimum.reduce(square, axis=1)
    second[after * under**2 > nearest * over**2] = -1
    return first.astype(np.int8), second.astype(np.int8)


@cache
def _ratio(overlap: float) -> tuple[int, int]:
    """As a fraction whose denominator squared, times a squared distance, stays exact."""
    return Fraction(str(float(overlap))).limit_denominator(1000).as_integer_ratio()


def cut(points: np.ndarray, how: Chunking, names: Sequence[str] | None = None) -> Chunks:
    """Raw clouds [n, P, 3] -> Chunks. Every cloud stands alone: the batch it came in changes nothing."""
    steps, n_distinct = to_grid(points, names, how.strays, how.axes)
    if (n_distinct < how.n_distinct).any():
        bad = int(np.argmin(n_distinct))
        raise InputError(
            f"{_name(names, bad)}: {n_distinct[bad]} distinct points, at least {how.n_distinct} are needed "
            f"({how.n_groups} groups of {how.group_size})"
        )
    members = np.empty((len(steps), how.n_groups, how.group_size), dtype=np.uint16)
    first, second = (np.empty((len(steps), how.n_groups), dtype=np.int8) for _ in range(2))
    for i, n in enumerate(n_distinct):
        groups(steps[i, :n], how, members[i], first[i], second[i])
    return Chunks(steps, members, first, second, how.n_chunks)


def groups(steps: np.ndarray, how: Chunking, members: np.ndarray, first: np.ndarray, second: np.ndarray) -> None:
    """Distinct points [P, 3] int16 of a cloud -> its groups [G, K] and their chunks [G] twice, written in place."""
    if compiled.kernels is None or how.radius is not None:
        members[...], square = _groups(steps, how)
        first[...], second[...] = (chunk[0] for chunk in _nearest_seeds(square[None], how.overlap))
        return
    over, under = _ratio(how.overlap)
    sizes = len(steps), how.n_groups, how.group_size, how.n_chunks
    compiled.kernels.groups(steps, members, first, second, *sizes, over**2, under**2)


def _groups(steps: np.ndarray, how: Chunking) -> tuple[np.ndarray, np.ndarray]:
    """Distinct points [P, 3] of a cloud -> groups [G, K], squared distances [M, G] of seeds to their centres."""
    planes = np.ascontiguousarray(steps.T, dtype=np.float64)
    square = np.empty((how.n_groups, len(steps)))  # of every point to every centre
    centres = _farthest(planes, None, square)
    members = nearest_points(square, how.group_size)
    if how.radius is not None:
        far = np.take_along_axis(square, members, axis=1) / GRID**2 > how.radius**2
        members = np.where(far, members[:, :1], members)
    return members, square[: how.n_chunks, centres]


def descriptors(chunks: Chunks) -> np.ndarray:
    """The descriptors [n, M, 8] of cut clouds, float64."""
    if compiled.kernels is None:
        some = (chunks[start : start + DESCRIBED] for start in range(0, len(chunks), DESCRIBED))
        return np.concatenate([describe(part.coordinates(), part.mask()) for part in some])
    (n, n_points), sizes = chunks.points.shape[:2], chunks.members.shape[1:]
    out = np.empty((n, chunks.n_chunks, N_DESCRIPTOR))
    compiled.kernels.descriptors(*chunks.plain(), out, n, n_points, *sizes, chunks.n_chunks)
    return out


def describe(points: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Coordinates [n, P, 3] and chunk masks [n, M, P] -> descriptors [n, M, 8] (Eq. 3), multiples of 2^-16.

    The mean is rounded before it is used, so that for coordinates on the grid every sum here is exact.
    """
    inside = mask.astype(points.dtype)
    count = np.add.reduce(inside, axis=2, keepdims=True)  # [n, M, 1]
    mean = on_grid((inside @ points) / count, DESCRIPTOR_BITS)  # [n, M, 3]
    squares = points**2
    variance = np.maximum((inside @ squares) / count - mean**2, 0.0)
    length = squares[..., 0] + squares[..., 1] + squares[..., 2]
    square = (-2.0 * mean) @ points.transpose(0, 2, 1)
    square += length[:, None, :]
    norm = np.add.reduce(mean**2, axis=2, keepdims=True)
    square += norm  # |x|^2 - 2 x.mean + |mean|^2
    square *= inside  # outside there is no largest: none is negative but by rounding
    radius = np.sqrt(np.maximum.reduce(square, axis=2, initial=0.0, keepdims=True))
    values = np.concatenate([mean, variance, radius, np.sqrt(norm)], axis=2)
    return on_grid(values, DESCRIPTOR_BITS)


def _name(names: Sequence[str] | None, index: int) -> str:
    return f"cloud {index}" if names is None else f"cloud '{names[index]}'"
