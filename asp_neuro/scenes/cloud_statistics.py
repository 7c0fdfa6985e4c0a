"""What kind of cloud is this? Parameter-free statistics of a cut cloud, for familiarity (`certify/familiarity.py`).

    profile       quantiles of x, y, z, of the distance from the centre and from the upright axis
    spread        second moments of the points, how far they fill space (0: all in one plane), length and width of the
                  plan along its longest direction
    storeys       six slices of the height: the share of the points in each, and their distance from the axis
    directions    of 24 parts of the sphere of directions: how many are empty, and the share in the fullest
    groups        how far groups reach, and how far their middle lies from their centre (1 at an edge)
    level         how far groups lean (0 where they lie level or stand upright), and the share of the points in thin
                  layers: the fullest, the lowest and the highest one, and the fullest along x and z

Fine spacing (the nearest neighbour) is left out on purpose: another sampling of the same surface changes it tenfold,
and does not mislead the network. Everything follows from whole grid steps by exact sums, elementwise divisions and
square roots, so the order of the points, the batch and the machine change no bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asp_neuro import compiled
from asp_neuro.scenes.cloud import GRID, MOMENT_PAIRS, Chunks

SHARES = {"lowest": 0.0, "10 %": 0.1, "middle": 0.5, "90 %": 0.9, "highest": 1.0}
RADII = {"1 %": 0.01, "10 %": 0.1, "25 %": 0.25, "middle": 0.5, "75 %": 0.75, "90 %": 0.9}
SIDES = {"10 %": 0.1, "middle": 0.5, "90 %": 0.9, "highest": 1.0}
STOREYS = 6
LEANS = {"10 %": 0.1, "25 %": 0.25, "middle": 0.5, "75 %": 0.75, "90 %": 0.9}
LAYERS = {"thin": 0.04, "thicker": 0.08}  # of the radius
AT_ONCE = 8  # clouds: their arrays stay in the processor's cache
EMPTY = 0.002  # a part of the sphere of directions with a smaller share of the points is empty


class Statistic(NamedTuple):
    """A name for records, and what it is for people."""

    name: str
    words: str


def _names() -> tuple[Statistic, ...]:
    found = [Statistic(f"{axis} {at}", f"{words} ({at})") for axis, words in _AXES for at in SHARES]
    found += [Statistic(f"{kind} {at}", f"{words} ({at})") for kind, words in _RADII for at in RADII]
    found += [Statistic("moment " + "xyz"[i] + "xyz"[j], "the spread of the points") for i, j in zip(*MOMENT_PAIRS)]
    found += [Statistic("filling", "how far the points fill space (0: a plane)")]
    found += [Statistic("breadth", "the larger horizontal spread"), Statistic("depth", "the smaller horizontal spread")]
    found += [Statistic("tilt", "how far the points lean")]
    found += [Statistic(f"{side} {at}", f"the {side} ({at})") for side in ("length", "width") for at in SIDES]
    found += [Statistic(f"storey {i + 1} share", f"the share of points in storey {i + 1} of 6") for i in range(STOREYS)]
    found += [Statistic(f"storey {i + 1} width", f"the width of storey {i + 1} of 6") for i in range(STOREYS)]
    found += [Statistic("empty directions", "the share of directions without points")]
    found += [Statistic("fullest direction", "the share of points in one direction")]
    found += [Statistic(f"reach {at}", f"how far apart neighbours are ({at})") for at in SHARES]
    found += [Statistic(f"edge {at}", f"how far groups lie to one side ({at})") for at in SHARES]
    found += [Statistic(f"lean {at}", f"how far groups lean ({at})") for at in LEANS]
    found += [
        Statistic(f"{which} {how} layer", f"the share of points in the {which} {how} layer")
        for how in LAYERS
        for which in ("fullest", "lowest", "highest")
    ]
    found += [
        Statistic(f"fullest {axis} layer", f"the share of points in one thin layer along {axis}") for axis in "xz"
    ]
    return tuple(found)


_AXES = (("x", "the left-right profile"), ("y", "the height profile"), ("z", "the front-back profile"))
_RADII = (("radius", "the distance from the centre"), ("axis", "the distance from the upright axis"))
STATISTICS = _names()
N_APART = 69  # the first ones say how far clouds are apart; what is level, which noise blurs, only what they are like


def statistics(chunks: Chunks) -> np.ndarray:
    """[n, S] float64, in the order of STATISTICS."""
    if compiled.kernels is not None:
        return _compiled(chunks)
    starts = range(0, len(chunks), AT_ONCE)
    parts = [_some(chunks[start : start + AT_ONCE]) for start in starts]
    return np.concatenate(parts) if parts else np.empty((0, len(STATISTICS)))


def _some(chunks: Chunks) -> np.ndarray:
    """All clouds with the same number of distinct points at once."""
    count = n_distinct(chunks.points)
    out = np.empty((len(chunks), len(STATISTICS)))
    for n in np.unique(count):
        rows = count == n
        points = np.ascontiguousarray(chunks.points[rows, :n].transpose(2, 0, 1), dtype=np.int32)  # [3, b, n]
        parts = [_shape(points), *_groups(points, chunks.members[rows]), _layers(points)]
        out[rows] = np.concatenate(parts, axis=1)
    return out


def _compiled(chunks: Chunks) -> np.ndarray:
    out = np.empty((len(chunks), len(STATISTICS)))
    sizes = *chunks.members.shape[1:], *(int(share * GRID) for share in LAYERS.values())
    points, members, count = *chunks.plain()[:2], n_distinct(chunks.points)
    assert compiled.kernels is not None
    for i, one in enumerate(out):
        compiled.kernels.statistics(points[i], members[i], one, int(count[i]), *sizes)
    return out


def n_distinct(points: np.ndarray) -> np.ndarray:
    """Sorted points [n, P, 3], distinct first -> [n] how many."""
    if (points[:, -1] != points[:, 0]).any(axis=1).all():  # as nearly always: no row is spare
        return np.full(len(points), points.shape[1])
    repeats = (points[:, 1:] == points[:, :1]).all(axis=2)
    return np.asarray(points.shape[1] - repeats.sum(axis=1))


def _quantiles(values: np.ndarray, at: dict[str, float]) -> np.ndarray:
    """[b, n] -> [b, q]: values that are there, the lower of two."""
    return np.sort(values, axis=1)[:, [int(share * (values.shape[1] - 1)) for share in at.values()]]


def _shape(points: np.ndarray) -> np.ndarray:
    """Distinct points [3, b, n] in grid steps -> statistics that ask for no groups."""
    x, y, z = points
    n = points.shape[2]
    flat = x * x + z * z  # below 2^29
    profile = [_quantiles(axis, SHARES) / GRID for axis in points.astype(np.int16)]
    radii = [np.sqrt(_quantiles(square, RADII)) / GRID for square in (flat + y * y, flat)]
    moments = np.stack([_dot(points[i], points[j]) for i, j in zip(*MOMENT_PAIRS)], axis=1) / (n * GRID**2)
    xx, yy, zz, xy, xz, yz = moments.T
    volume = xx * (yy * zz - yz * yz) - xy * (xy * zz - yz * xz) + xz * (xy * yz - yy * xz)
    size = (xx + yy + zz) / 3.0
    filling = np.sqrt(np.sqrt(np.maximum(volume, 0.0) / (size * size * size)))
    middle, apart = (xx + zz) / 2.0, np.sqrt(((xx - zz) / 2.0) ** 2 + xz * xz)
    spreads = [np.sqrt(middle + apart), np.sqrt(np.maximum(middle - apart, 0.0))]
    singles = np.stack([filling, *spreads, np.sqrt(xy * xy + yz * yz)], axis=1)
    sides = _sides(points, (xx - zz) / 2.0, xz, apart)
    return np.concatenate([*profile, *radii, moments, singles, *sides, _storeys(y, flat), _directions(points)], axis=1)


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[b, n] twice -> [b], exact."""
    return np.asarray((a * b).sum(axis=1, dtype=np.int64))


def _sides(points: np.ndarray, across: np.ndarray, xz: np.ndarray, apart: np.ndarray) -> list[np.ndarray]:
    """[3, b, n] -> [b, q] twice: distances from the middle along and across the plan's longest direction.

    That direction is (across + apart, xz), or a multiple; where there is none it is x.
    """
    x, _, z = points.astype(np.float64)
    along, aside = np.where(across >= 0, across + apart, np.abs(xz)), np.where(across >= 0, xz, apart - across)
    aside = np.where((across < 0) & (xz < 0), -aside, aside)
    length = np.sqrt(along * along + aside * aside)
    some = length > 0.0
    cos = np.where(some, along, 1.0) / np.where(some, length, 1.0)
    sin = np.where(some, aside, 0.0) / np.where(some, length, 1.0)
    cos, sin = cos[:, None], sin[:, None]
    return [
        _quantiles(np.abs(part).astype(np.float32), SIDES) / GRID for part in (cos * x + sin * z, cos * z - sin * x)
    ]


def _storeys(height: np.ndarray, flat: np.ndarray) -> np.ndarray:
    """[b, n] heights and squared distances from the axis -> [b, 2 * STOREYS] shares and widths."""
    low = height.min(axis=1, keepdims=True)
    tall = np.maximum(height.max(axis=1, keepdims=True) - low, 1)
    storey = np.minimum((height - low) * STOREYS // tall, STOREYS - 1)
    count = np.stack([(storey == i).sum(axis=1) for i in range(STOREYS)], axis=1)
    square = np.stack([_dot(storey == i, flat) for i in range(STOREYS)], axis=1)
    return np.concatenate([count / height.shape[1], np.sqrt(square / np.maximum(count, 1)) / GRID], axis=1)


def _directions(points: np.ndarray) -> np.ndarray:
    """[3, b, n] -> [b, 2]: by the largest axis and the three signs a point lies in one of 24 parts."""
    signs = points > 0
    part = np.abs(points).argmax(axis=0) * 8 + signs[0] * 4 + signs[1] * 2 + signs[2]
    part += np.arange(len(part))[:, None] * 24
    share = np.bincount(part.reshape(-1), minlength=24 * len(part)).reshape(-1, 24) / points.shape[2]
    return np.stack([(share < EMPTY).sum(axis=1) / 24.0, share.max(axis=1)], axis=1)


def _groups(points: np.ndarray, members: np.ndarray) -> list[np.ndarray]:
    """[3, b, n] and groups [b, G, K] -> quantiles of their reach, of how far they lie to one side, and lean."""
    reach, side, lean = _spans(points, members)
    return [np.sqrt(_quantiles(reach, SHARES)) / GRID, np.sqrt(_quantiles(side, SHARES)), _quantiles(lean, LEANS)]


def _spans(points: np.ndarray, members: np.ndarray) -> np.ndarray:
    """[3, b, n] and groups [b, G, K] -> [3, b, G]: squared reach, how far the middle lies to one side, squared, and how
    height goes with the way across, against the spread in all directions."""
    at = members.astype(np.int64) + (np.arange(len(members)) * points.shape[2])[:, None, None]
    where = points.reshape(3, -1)[:, at]  # [3, b, G, K]
    x, y, z = offset = (where - where[..., :1]).astype(np.float64)  # whole, below 2^16
    k, middle = members.shape[2], offset.sum(axis=3)  # middle: times K
    reach, square = np.square(offset[..., -1]).sum(axis=0), np.square(middle).sum(axis=0)
    side = square / (k**2 * np.maximum(reach, 1.0))
    along, across = (k * (a * y).sum(axis=2) - mean * middle[1] for a, mean in ((x, middle[0]), (z, middle[2])))
    every = k * np.square(offset).sum(axis=(0, 3)) - square
    return np.stack([reach, side, np.sqrt(along * along + across * across) / np.maximum(every, 1.0)])


def _layers(points: np.ndarray) -> np.ndarray:
    """[3, b, n] -> [b, 8] shares of the points in layers."""
    x, y, z = np.sort(points, axis=2)
    found = []
    for width in (int(share * GRID) for share in LAYERS.values()):
        ends = [(y <= y[:, :1] + width).sum(axis=1), (y >= y[:, -1:] - width).sum(axis=1)]
        found += [_fullest(y, width), *ends]
    thin = int(min(LAYERS.values()) * GRID)
    return np.stack([*found, _fullest(x, thin), _fullest(z, thin)], axis=1) / points.shape[2]


def _fullest(values: np.ndarray, width: int) -> np.ndarray:
    """Sorted whole numbers [b, n] -> [b]: the most of them within one width."""
    return np.array([(row.searchsorted(row + width, side="right") - np.arange(len(row))).max() for row in values])
