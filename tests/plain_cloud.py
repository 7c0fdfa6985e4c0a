"""The plain form of `asp_neuro/scenes/cloud.py`: each step as one would write it first, for a whole batch at once.

What cuts clouds has to give the same bits (tests/test_cloud.py) in a third of the time (benchmarks/grouping.py). Clouds
are sound here: finite, and with as many distinct points as are needed.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from asp_neuro.grid.arithmetic import DESCRIPTOR_BITS, on_grid
from asp_neuro.scenes.cloud import GRID, MAX_POINTS, Chunking, Chunks


def normalise(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Raw clouds [n, P, 3] -> grid coordinates [n, P, 3] (float64, sorted, distinct first) and n_distinct [n]."""
    raw = np.asarray(points, dtype=np.float64)
    order = np.lexsort((raw[..., 2], raw[..., 1], raw[..., 0]), axis=-1)
    raw = np.take_along_axis(raw, order[..., None], axis=1)
    new = np.ones(raw.shape[:2], dtype=bool)
    new[:, 1:] = (raw[:, 1:] != raw[:, :-1]).any(axis=2)
    weight = new[..., None].astype(np.float64)
    centred = raw - (raw * weight).sum(axis=1, keepdims=True) / weight.sum(axis=1, keepdims=True)
    radius = np.sqrt((centred**2).sum(axis=2).max(axis=1))
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


def cut(points: np.ndarray, how: Chunking) -> Chunks:
    """Raw clouds [n, P, 3] -> Chunks. Every cloud stands alone: the batch it came in changes nothing."""
    xyz, n_distinct = normalise(points)
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


def mask_of(chunks: Chunks) -> np.ndarray:
    """[n, M, P] bool: the distinct points of each chunk's groups."""
    mask = np.zeros((len(chunks), chunks.n_chunks, chunks.points.shape[1]), dtype=bool)
    cloud = np.arange(len(chunks))[:, None, None]
    mask[cloud, chunks.first[:, :, None].astype(np.intp), chunks.members] = True
    b, g = np.nonzero(chunks.second >= 0)
    mask[b[:, None], chunks.second[b, g, None].astype(np.intp), chunks.members[b, g]] = True
    return mask


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
