"""The built-in data: eight kinds of bodies that differ at their ends and edges, made from a seed.

Every body is an upright profile (r, y) carried around the up axis, on a round or a square plan:

    class      plan    top     bottom        told from its neighbour by
    cylinder   round   flat    flat          box: the edges of the side
    box        square  flat    flat          obelisk: the top
    capsule    round   dome    dome          bullet: the bottom
    bullet     round   dome    flat          cylinder: the top
    pencil     round   point   flat          bullet: the very tip
    spindle    round   point   point         pencil: the bottom
    obelisk    square  point   flat          pencil: the edges of the side
    cup        round   hollow  flat          cylinder: the inside of the rim

Height, width, taper and bulge have one law for all classes, so that sizes and moments say little and the parts say a
lot: the top first, then the bottom or the side, depending on what the top showed. Then comes what a sensor does: uneven
scale, tilt, a cut-off side, stray points, a clump of clutter, noise. Labels are drawn independently and always true;
a hidden end is what makes a few clouds undecidable.

Frozen: the clouds are bit for bit a function of (seed, split, n_points). Coordinates lie on a grid of 2^-12, so the
last bit of a machine's sine cannot change them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asp_neuro.data.clouds import SPLITS, CloudSet, check_numbers, check_split

SIZES = {"train": 2000, "validation": 400, "calibration": 800, "test": 600}
CAP = 8  # straight pieces of a profile: each cap
SIDE = 4  # ... and the side
SPARE = 1.6  # points drawn per point kept; the rest is what the cut-off side takes away
BLOCK = 100  # clouds made at once: their points stay in the cache
GRID = 4096.0


@dataclass(frozen=True)
class Body:
    """One class: its plan (0 round, 1 square) and its ends, each 'flat', 'dome', 'point' or 'hollow'."""

    square: int
    top: str
    bottom: str


BODIES = {
    "cylinder": Body(0, "flat", "flat"),
    "box": Body(1, "flat", "flat"),
    "capsule": Body(0, "dome", "dome"),
    "bullet": Body(0, "dome", "flat"),
    "pencil": Body(0, "point", "flat"),
    "spindle": Body(0, "point", "point"),
    "obelisk": Body(1, "point", "flat"),
    "cup": Body(0, "hollow", "flat"),
}
CLASSES = tuple(BODIES)

# depth of an end in units of the radius: (least, most); flat ends are a little uneven, hollow ones go down
DEPTH = {"flat": (-0.08, 0.08), "dome": (0.5, 1.0), "point": (0.7, 1.2), "hollow": (-1.0, -0.4)}
ROUNDED = {"flat": 0.0, "dome": 1.0, "point": 0.0, "hollow": 1.0}


def shapes(split: str, n_points: int = 1024, seed: int = 0) -> CloudSet:
    """The built-in clouds of one split; another seed is another draw of the same kind."""
    check_split(split)
    check_numbers(n_points, seed)
    stream = np.random.SeedSequence(entropy=(2024, seed), spawn_key=(SPLITS.index(split),))
    n = SIZES[split]
    blocks = [
        _block(np.random.default_rng(child), min(BLOCK, n - k * BLOCK), n_points)
        for k, child in enumerate(stream.spawn(-(-n // BLOCK)))
    ]
    points, labels = (np.concatenate(part) for part in zip(*blocks))
    names = tuple(f"{split}-{i:04d}" for i in range(n))
    return CloudSet(points, labels, names, CLASSES, f"built-in shapes, {split} split, seed {seed}")


def _block(rng: np.random.Generator, n: int, n_points: int) -> tuple[np.ndarray, np.ndarray]:
    """n labelled clouds: points [n, n_points, 3] float32, labels [n]."""
    labels = rng.integers(len(CLASSES), size=n)
    r, y = _profiles(rng, labels)
    square = np.array([b.square for b in BODIES.values()])[labels]
    cloud = _surface(rng, r, y, square, int(SPARE * n_points))
    cloud = _hide_a_side(rng, _pose(rng, cloud), n_points)
    cloud = _sensor(rng, cloud)
    return (np.rint(cloud * GRID) / GRID).astype(np.float32), labels.astype(np.int64)


def _cap(rng: np.random.Generator, labels: np.ndarray, end: str) -> tuple[np.ndarray, np.ndarray]:
    """One end, from its rim to the axis: r and y in units of the rim's radius, [n, CAP + 1] each."""
    kinds = [getattr(b, end) for b in BODIES.values()]
    least, most = np.array([DEPTH[k] for k in kinds])[labels].T
    depth = rng.uniform(least, most)[:, None]
    dome = np.array([ROUNDED[k] for k in kinds])[labels][:, None]
    s = np.linspace(0.0, 1.0, CAP + 1)[None]
    r = dome * np.cos(s * np.pi / 2) + (1 - dome) * (1 - s)
    y = depth * (dome * np.sin(s * np.pi / 2) + (1 - dome) * s)
    r[:, -1] = 0.0
    return r, y


def _profiles(rng: np.random.Generator, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(r, y) of the knots from the middle of the bottom over the side to the middle of the top, [n, knots] each."""
    n = len(labels)
    height = rng.uniform(2.6, 4.2, (n, 1))  # in units of the middle radius, ends included
    taper = rng.uniform(-0.05, 0.15, (n, 1))
    bulge = rng.uniform(-0.05, 0.1, (n, 1))
    s = np.linspace(-1.0, 1.0, SIDE + 1)[None]
    side = 1 - taper * s + bulge * (1 - s * s)  # [n, SIDE + 1]
    top_r, top_y = (part * side[:, -1:] for part in _cap(rng, labels, "top"))
    low_r, low_y = (part * side[:, :1] for part in _cap(rng, labels, "bottom"))
    foot = -height / 2 + np.maximum(low_y[:, -1:], 0)  # the ends are part of the height
    head = height / 2 - np.maximum(top_y[:, -1:], 0)
    r = np.concatenate([low_r[:, :0:-1], side, top_r[:, 1:]], axis=1)
    y = np.concatenate([foot - low_y[:, :0:-1], foot + (head - foot) * (s + 1) / 2, head + top_y[:, 1:]], axis=1)
    return r, y


def _surface(rng: np.random.Generator, r: np.ndarray, y: np.ndarray, square: np.ndarray, n_points: int) -> np.ndarray:
    """Points spread evenly over the surface of each body, [n, n_points, 3]."""
    n, knots = r.shape
    area = np.cumsum((r[:, 1:] + r[:, :-1]) * np.hypot(np.diff(r), np.diff(y)), axis=1)
    u = rng.random((n, n_points)) * area[:, -1:]
    piece = np.minimum((u[:, :, None] >= area[:, None, :]).sum(axis=2), knots - 2)
    r0, r1 = np.take_along_axis(r, piece, 1), np.take_along_axis(r, piece + 1, 1)
    y0, y1 = np.take_along_axis(y, piece, 1), np.take_along_axis(y, piece + 1, 1)
    v = rng.random((n, n_points))
    t = v * (r0 + r1) / (r0 + np.sqrt(r0 * r0 + v * (r1 * r1 - r0 * r0)))  # density along a piece grows with r
    x, z = _plan(rng, square, (n, n_points))
    radius = r0 + (r1 - r0) * t
    return np.stack([radius * x, y0 + (y1 - y0) * t, radius * z], axis=2)


def _plan(rng: np.random.Generator, square: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Unit cross-sections of equal area; no circle is perfect and no corner is sharp."""
    turn = rng.random(shape) * 4.0
    corner = np.where(square == 1, rng.uniform(0.95, 1.0, shape[0]), rng.uniform(0.0, 0.05, shape[0]))[:, None]
    side, along = np.floor(turn), 2 * (turn % 1.0) - 1
    half = 1.05
    wall_x = np.choose(side.astype(int), [np.ones(shape), -along, -np.ones(shape), along]) * half
    wall_z = np.choose(side.astype(int), [along, np.ones(shape), -along, -np.ones(shape)]) * half
    angle = (side + along / 2) * np.pi / 2
    x = corner * wall_x + (1 - corner) * np.cos(angle)
    z = corner * wall_z + (1 - corner) * np.sin(angle)
    return x, z


def _pose(rng: np.random.Generator, cloud: np.ndarray) -> np.ndarray:
    """Uneven width, any turn about the up axis, a modest tilt."""
    n = len(cloud)
    squeeze = np.exp(rng.uniform(-0.1, 0.1, (n, 1)))
    x, y, z = cloud[..., 0] * squeeze, cloud[..., 1], cloud[..., 2] / squeeze
    x, z = _turn(x, z, rng.uniform(0, 2 * np.pi, (n, 1)))
    y, z = _turn(y, z, rng.normal(0, np.radians(5), (n, 1)))
    x, z = _turn(x, z, rng.uniform(0, 2 * np.pi, (n, 1)))
    return np.stack([x, y, z], axis=2)


def _turn(a: np.ndarray, b: np.ndarray, angle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    c, s = np.cos(angle), np.sin(angle)
    return c * a - s * b, s * a + c * b


def _hide_a_side(rng: np.random.Generator, cloud: np.ndarray, n_points: int) -> np.ndarray:
    """Cut off what lies farthest in a random direction (up to a quarter), keep the first n_points of the rest."""
    n, drawn, _ = cloud.shape
    d = rng.normal(size=(n, 1, 3))
    depth = (cloud * d).sum(axis=2) / np.sqrt((d * d).sum(axis=2))
    share = rng.uniform(0.0, 0.25, n)
    rank = np.argsort(np.argsort(-depth, axis=1, kind="stable"), axis=1, kind="stable")
    hidden = rank < np.floor(share[:, None] * drawn)
    keep = np.argsort(hidden, axis=1, kind="stable")[:, :n_points]
    return np.take_along_axis(cloud, keep[..., None], 1)


def _sensor(rng: np.random.Generator, cloud: np.ndarray) -> np.ndarray:
    """Noise, stray points, one clump of clutter; then any size and any place."""
    n, n_points, _ = cloud.shape
    noise = rng.uniform(0.01, 0.03, (n, 1, 1)) * rng.normal(size=cloud.shape)
    low, high = cloud.min(axis=1, keepdims=True), cloud.max(axis=1, keepdims=True)
    stray = low + (high - low) * rng.uniform(-0.1, 1.1, cloud.shape)
    clump = cloud[:, :1] + rng.uniform(0.1, 0.3, (n, 1, 1)) * rng.normal(size=cloud.shape)
    kind = rng.random((n, n_points, 1))
    n_stray, n_clump = rng.uniform(0.0, 0.03, (n, 1, 1)), rng.uniform(0.0, 0.05, (n, 1, 1))
    cloud = np.where(kind < n_stray, stray, np.where(kind > 1 - n_clump, clump, cloud + noise))
    return cloud * rng.uniform(0.5, 1.5, (n, 1, 1)) + rng.uniform(-0.5, 0.5, (n, 1, 3))
