"""Room: a labelled scene in metres, y up, and the square crops that a model is shown (paper H).

crop      all points of a square of the floor plan, from floor to ceiling; a draw of n_points of them
blocks    crops side by side, so that each point of a room is in one (or several, with a smaller stride)
anchor    where a training crop is centred: anywhere, or with some probability on a point of a rare class, the class
          drawn first and the point second, so that a class with many points does not crowd out another (H.4)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from asp_neuro.data.intake import draw
from asp_neuro.errors import InputError, UsageError

CLASSES = (
    "ceiling", "floor", "wall", "beam", "column", "window", "door", "table", "chair", "sofa", "bookcase", "board",
    "clutter",
)  # fmt: skip
RARE = ("beam", "column")
RARE_SHARE = 0.35  # of training crops that are centred on a rare anchor
N_FEATURES = 7


@dataclass(frozen=True)
class Room:
    """Points with colours and classes."""

    points: np.ndarray  # [N, 3] float32, metres, y up
    colours: np.ndarray  # [N, 3] uint8
    labels: np.ndarray  # [N] int64, index into CLASSES
    name: str

    def __post_init__(self) -> None:
        n = len(self.points)
        if n == 0:
            raise InputError(f"{self.name}: no points")
        if self.points.shape != (n, 3) or self.colours.shape != (n, 3) or self.labels.shape != (n,):
            raise InputError(
                f"{self.name}: points {self.points.shape}, colours {self.colours.shape}, labels {self.labels.shape} "
                "do not fit: expected (N, 3), (N, 3), (N,)"
            )
        if not 0 <= self.labels.min() <= self.labels.max() < len(CLASSES):
            raise InputError(f"{self.name}: a label outside the {len(CLASSES)} classes")

    def __len__(self) -> int:
        return len(self.points)

    @property
    def floor(self) -> float:
        """Height of the lowest point."""
        return float(self.points[:, 1].min())

    def counts(self) -> dict[str, int]:
        """Points of each class."""
        return dict(zip(CLASSES, np.bincount(self.labels, minlength=len(CLASSES)).tolist()))


def features(room: Room, index: np.ndarray) -> np.ndarray:
    """[n, 7] float32: x y z about the middle of the crop's floor plan, r g b in 0..1, height above the floor."""
    points = room.points[index].astype(np.float64)
    low, high = points.min(axis=0), points.max(axis=0)
    middle = np.array([(low[0] + high[0]) / 2, room.floor, (low[2] + high[2]) / 2])
    height = points[:, 1:2] - room.floor
    return np.concatenate([points - middle, room.colours[index] / 255.0, height], axis=1).astype(np.float32)


def crop(room: Room, centre: Sequence[float], size: float, n_points: int, seed: int = 0) -> np.ndarray:
    """[n_points] indices of the points in a square about (x, z); of fewer points all, again and again; none: empty."""
    if size <= 0.0:
        raise UsageError(f"a crop of {size} m must be larger than nothing")
    inside = (np.abs(room.points[:, [0, 2]] - np.asarray(centre)) <= size / 2).all(axis=1)
    found = np.flatnonzero(inside)
    if len(found) <= n_points:
        return found[np.arange(n_points) % len(found)] if len(found) else found
    return np.asarray(found[draw(len(found), n_points, seed)])


def blocks(room: Room, size: float, stride: float | None = None) -> list[np.ndarray]:
    """Indices of the points of each square of a lattice over the floor plan; squares without points are left out."""
    step = size if stride is None else stride
    if not 0.0 < step <= size:
        raise UsageError(f"stride {step} m must be above 0 and at most the size of a block, {size} m")
    plan = room.points[:, [0, 2]].astype(np.float64)
    low, span = plan.min(axis=0), np.ptp(plan, axis=0)
    n = np.maximum(1, np.ceil((span - size) / step - 1e-9).astype(int) + 1)
    found = []
    for i in range(n[0]):
        for k in range(n[1]):
            corner = low + step * np.array([i, k])
            last = np.array([i, k]) == n - 1  # the last ones keep their far edge
            inside = (plan >= corner) & ((plan < corner + size) | (last & (plan <= corner + size + 1e-6)))
            if inside.all(axis=1).any():
                found.append(np.flatnonzero(inside.all(axis=1)))
    return found


def anchors(rooms: Sequence[Room], classes: Sequence[str] = RARE) -> dict[str, np.ndarray]:
    """{class: [k, 2] room and point} of the classes that are there."""
    found = {}
    for kind in classes:
        label = CLASSES.index(kind)
        where = [np.flatnonzero(room.labels == label) for room in rooms]
        pairs = [np.stack([np.full(len(own), i), own], axis=1) for i, own in enumerate(where)]
        if len(joined := np.concatenate(pairs)):
            found[kind] = joined
    return found


def draw_anchor(
    rooms: Sequence[Room], rare: dict[str, np.ndarray], rng: np.random.Generator, share: float = RARE_SHARE
) -> tuple[int, np.ndarray]:
    """A room and the centre (x, z) of a training crop in it."""
    if rare and rng.random() < share:
        kind = sorted(rare)[rng.integers(len(rare))]
        number, point = rare[kind][rng.integers(len(rare[kind]))]
    else:
        number = int(rng.integers(len(rooms)))
        point = int(rng.integers(len(rooms[number])))
    return int(number), rooms[number].points[point, [0, 2]]
