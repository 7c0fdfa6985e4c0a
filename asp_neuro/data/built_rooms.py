"""The built-in rooms: made from a seed, with all classes of S3DIS but the sofa; tests and demo need no download.

A room is a list of flat faces, each with a class and a colour: floor, ceiling, four walls with windows and a door in
them, boards on them, beams under the ceiling, columns, tables, chairs, bookcases, clutter. Points are spread evenly
over their area; what a scanner could not see behind or within a beam, a column, a board or a piece of furniture is
left out.

A beam is painted as the ceiling is and a column as the walls are, and rooms differ in height by more than a beam is
deep: by its own points alone the lower side of a beam is a ceiling (paper H.3), and only its surroundings tell.

Frozen: the rooms are bit for bit a function of (seed, split, number). Coordinates lie on a grid of 2^-10 m.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asp_neuro.data.clouds import SPLITS, check_numbers, check_split
from asp_neuro.data.rooms import CLASSES, Room
from asp_neuro.errors import UsageError

SIZES = {"train": 80, "validation": 16, "calibration": 32, "test": 32}
N_POINTS = 32_768  # of a room
GRID = 1024.0
NOISE = 0.004  # m
EDGE = 0.02  # m, by which what hides is larger than what it hides
CEILING, FLOOR, WALL, BEAM, COLUMN, WINDOW, DOOR, TABLE, CHAIR, _, BOOKCASE, BOARD, CLUTTER = range(len(CLASSES))


@dataclass(frozen=True)
class Face:
    """A parallelogram: corner and two edges [3], a class and a colour."""

    corner: tuple[float, ...]
    along: tuple[float, ...]
    across: tuple[float, ...]
    label: int
    colour: tuple[float, ...]


def built_rooms(split: str, n: int | None = None, seed: int = 0) -> list[Room]:
    """The built-in rooms of one split, or the first n of them."""
    check_split(split)
    check_numbers(1, seed)
    n = SIZES[split] if n is None else n
    if not 1 <= n <= SIZES[split]:
        raise UsageError(f"{n} rooms: the {split} split has 1 to {SIZES[split]}")
    stream = np.random.SeedSequence(entropy=(2025, seed), spawn_key=(SPLITS.index(split),))
    return [built_room(np.random.default_rng(child), f"{split}-{i:03d}") for i, child in enumerate(stream.spawn(n))]


def built_room(rng: np.random.Generator, name: str) -> Room:
    size = np.array([rng.uniform(3.5, 8.0), rng.uniform(2.5, 3.4), rng.uniform(3.5, 8.0)])  # x, y up, z
    paint = {"wall": _colour(rng, 190, 30), "ceiling": _colour(rng, 215, 20), "floor": _colour(rng, 130, 40)}
    faces = _shell(size, paint)
    boxes = []  # (low, high)
    for (corner, extent), label, colour in _structure(rng, size, paint) + _furniture(rng, size):
        faces += _box(corner, extent, label, colour)
        boxes.append((corner, corner + extent))
    points, labels, colours = _sampled(rng, faces)
    labels, colours = _openings(rng, size, points, labels, colours)
    kept = np.flatnonzero(_seen(points, labels, size, boxes))
    kept = np.sort(rng.permutation(kept)[:N_POINTS])
    noisy = points[kept] + rng.normal(scale=NOISE, size=(len(kept), 3))
    shade = np.clip(colours[kept] + rng.normal(scale=6.0, size=(len(kept), 3)), 0, 255)
    return Room((np.rint(noisy * GRID) / GRID).astype(np.float32), shade.astype(np.uint8), labels[kept], name)


def _seen(
    points: np.ndarray, labels: np.ndarray, size: np.ndarray, boxes: list[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """[n] bool: not within a box, no side of a box that lies on the shell, no shell behind a box."""
    shell = np.isin(labels, (CEILING, FLOOR, WALL, WINDOW, DOOR))
    on_shell = ((np.abs(points) < 1e-9) | (np.abs(points - size) < 1e-9)).any(axis=1)
    hidden = on_shell & ~shell
    order = np.argsort(points[:, 0])
    x = points[order, 0]
    for low, high in boxes:
        near = order[np.searchsorted(x, low[0] - EDGE) : np.searchsorted(x, high[0] + EDGE)]
        own, side = points[near], np.where(shell[near], -EDGE, 1e-9)[:, None]
        hidden[near] |= ((own > low + side) & (own < high - side)).all(axis=1)
    return np.asarray(~hidden)


def _colour(rng: np.random.Generator, mean: float, spread: float) -> np.ndarray:
    return np.clip(mean + rng.uniform(-spread, spread) + rng.uniform(-12, 12, size=3), 5, 250)


def _shell(size: np.ndarray, paint: dict[str, np.ndarray]) -> list[Face]:
    """Floor, ceiling, four walls."""
    x, y, z = size
    return [
        _face((0, 0, 0), (x, 0, 0), (0, 0, z), FLOOR, paint["floor"]),
        _face((0, y, 0), (x, 0, 0), (0, 0, z), CEILING, paint["ceiling"]),
        _face((0, 0, 0), (x, 0, 0), (0, y, 0), WALL, paint["wall"]),
        _face((0, 0, z), (x, 0, 0), (0, y, 0), WALL, paint["wall"]),
        _face((0, 0, 0), (0, 0, z), (0, y, 0), WALL, paint["wall"]),
        _face((x, 0, 0), (0, 0, z), (0, y, 0), WALL, paint["wall"]),
    ]


def _face(corner: object, along: object, across: object, label: int, colour: np.ndarray) -> Face:
    def plain(values: object) -> tuple[float, ...]:
        return tuple(float(v) for v in values)  # type: ignore[attr-defined]

    return Face(plain(corner), plain(along), plain(across), label, plain(colour))


Placed = tuple[tuple[np.ndarray, np.ndarray], int, np.ndarray]  # (corner, extent), class, colour


def _box(corner: np.ndarray, extent: np.ndarray, label: int, colour: np.ndarray) -> list[Face]:
    """The six sides of a box."""
    edges = np.diag(extent)
    found = []
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        for at in (corner, corner + edges[i]):
            found.append(_face(at, edges[j], edges[k], label, colour))
    return found


def _structure(rng: np.random.Generator, size: np.ndarray, paint: dict[str, np.ndarray]) -> list[Placed]:
    """Beams from wall to wall under the ceiling, columns from floor to ceiling, boards on the walls."""
    found: list[Placed] = []
    for _ in range(int(rng.integers(1, 3))):
        deep, wide = rng.uniform(0.15, 0.45), rng.uniform(0.2, 0.4)
        axis = int(rng.choice([0, 2]))
        extent, corner = np.zeros(3), np.zeros(3)
        extent[axis], extent[1], extent[2 - axis] = size[axis], deep, wide
        corner[1], corner[2 - axis] = size[1] - deep, rng.uniform(0.5, size[2 - axis] - wide - 0.5)
        found.append(((corner, extent), BEAM, paint["ceiling"]))
    for _ in range(int(rng.integers(1, 3))):
        extent = np.array([rng.uniform(0.25, 0.5), size[1], rng.uniform(0.25, 0.5)])
        corner = np.array([rng.uniform(0.0, size[0] - extent[0]), 0.0, rng.uniform(0.0, size[2] - extent[2])])
        if rng.random() < 0.6:  # against a wall
            corner[0] = rng.choice([0.0, size[0] - extent[0]])
        found.append(((corner, extent), COLUMN, paint["wall"]))
    for _ in range(int(rng.integers(1, 3))):
        wide, high = rng.uniform(1.0, 2.0), rng.uniform(0.7, 1.1)
        wall = int(rng.integers(4))
        found.append((_on_wall(size, wall, rng.random(), wide, high, 0.03, 0.9), BOARD, _colour(rng, 210, 40)))
    return found


def _on_wall(
    size: np.ndarray, wall: int, share: float, wide: float, high: float, deep: float, above: float
) -> tuple[np.ndarray, np.ndarray]:
    """A box against wall 0 (z = 0), 1 (z = end), 2 (x = 0), 3 (x = end)."""
    axis, end = (0, wall == 1) if wall < 2 else (2, wall == 3)
    extent, corner = np.zeros(3), np.zeros(3)
    extent[axis], extent[1], extent[2 - axis] = wide, high, deep
    corner[axis], corner[1] = share * (size[axis] - wide), above
    corner[2 - axis] = size[2 - axis] - deep if end else 0.0
    return corner, extent


def _at(corner: np.ndarray, *offset: float) -> np.ndarray:
    return np.asarray(corner + np.array(offset))


def _furniture(rng: np.random.Generator, size: np.ndarray) -> list[Placed]:
    found: list[Placed] = []
    for _ in range(int(rng.integers(1, 4))):
        found += _table(rng, size)
    for _ in range(int(rng.integers(2, 6))):
        found += _chair(rng, size)
    for _ in range(int(rng.integers(1, 3))):
        wide, high, deep = rng.uniform(0.8, 1.6), rng.uniform(1.2, 2.1), rng.uniform(0.25, 0.4)
        where = _on_wall(size, int(rng.integers(4)), rng.random(), wide, high, deep, 0.0)
        found.append((where, BOOKCASE, _colour(rng, 120, 40)))
    for _ in range(int(rng.integers(4, 10))):
        extent = rng.uniform(0.08, 0.4, size=3)
        corner = rng.uniform(0.1, 1.0, size=3) * (size - extent - 0.1)
        corner[1] = rng.choice([0.0, 0.75])
        found.append(((corner, extent), CLUTTER, _colour(rng, 120, 100)))
    return found


def _table(rng: np.random.Generator, size: np.ndarray) -> list[Placed]:
    """A top and four legs."""
    x, z, y = rng.uniform(0.9, 1.8), rng.uniform(0.6, 0.9), rng.uniform(0.68, 0.78)
    corner = np.array([rng.uniform(0.3, size[0] - x - 0.3), 0.0, rng.uniform(0.3, size[2] - z - 0.3)])
    colour = _colour(rng, 150, 50)
    found: list[Placed] = [((_at(corner, 0, y - 0.04, 0), np.array([x, 0.04, z])), TABLE, colour)]
    for i, k in ((0, 0), (0, 1), (1, 0), (1, 1)):
        leg = _at(corner, i * (x - 0.05), 0, k * (z - 0.05))
        found.append(((leg, np.array([0.05, y - 0.04, 0.05])), TABLE, colour))
    return found


def _chair(rng: np.random.Generator, size: np.ndarray) -> list[Placed]:
    """A seat, a back on one of its four sides, four legs."""
    w, y, back = rng.uniform(0.4, 0.5), rng.uniform(0.42, 0.48), rng.uniform(0.4, 0.55)
    corner = np.array([rng.uniform(0.2, size[0] - w - 0.2), 0.0, rng.uniform(0.2, size[2] - w - 0.2)])
    colour = _colour(rng, 80, 50)
    found: list[Placed] = [((_at(corner, 0, y - 0.05, 0), np.array([w, 0.05, w])), CHAIR, colour)]
    side = int(rng.integers(4))
    lean = _at(corner, w - 0.04 if side == 1 else 0.0, y, w - 0.04 if side == 3 else 0.0)
    found.append(((lean, np.array([0.04, back, w] if side < 2 else [w, back, 0.04])), CHAIR, colour))
    for i, k in ((0, 0), (0, 1), (1, 0), (1, 1)):
        leg = _at(corner, i * (w - 0.04), 0, k * (w - 0.04))
        found.append(((leg, np.array([0.04, y - 0.05, 0.04])), CHAIR, colour))
    return found


def _sampled(rng: np.random.Generator, faces: list[Face]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points spread evenly over the faces, more than are kept; their classes and colours."""
    corner, along, across = (np.array([getattr(f, k) for f in faces]) for k in ("corner", "along", "across"))
    area = np.sqrt((np.cross(along, across) ** 2).sum(axis=1))
    n = int(1.5 * N_POINTS)
    face = np.searchsorted(np.cumsum(area) / area.sum(), rng.random(n)).clip(0, len(faces) - 1)
    a, b = rng.random((n, 1)), rng.random((n, 1))
    labels = np.array([f.label for f in faces], np.int64)[face]
    return corner[face] + a * along[face] + b * across[face], labels, np.array([f.colour for f in faces])[face]


def _openings(
    rng: np.random.Generator, size: np.ndarray, points: np.ndarray, labels: np.ndarray, colours: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Windows and a door in the walls: wall points there are theirs."""
    labels, colours = labels.copy(), colours.copy()
    asked = [(DOOR, rng.uniform(0.8, 1.1), 2.05, 0.0), *[(WINDOW, rng.uniform(0.8, 1.8), 1.2, 0.9)] * 2]
    for wall, (label, wide, high, above) in zip(rng.permutation(4), asked):
        corner, extent = _on_wall(size, int(wall), rng.random(), wide, high, 0.0, above)
        inside = ((points >= corner - 1e-9) & (points <= corner + extent + 1e-9)).all(axis=1) & (labels == WALL)
        labels[inside] = label
        colours[inside] = _colour(rng, 110 if label == DOOR else 160, 50)
    return labels, colours
