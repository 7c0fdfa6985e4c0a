"""Rooms as clouds with labelled points: square crops of them, from floor to ceiling (paper H.3, H.4).

train         crops about drawn anchors, some of them rare on purpose (`rooms.draw_anchor`)
test          squares side by side, so that each point of a room is in one; the last of a row end at the wall, so that
              all have the same size
validation    the same; of many squares some, evenly, because every epoch is judged by them
calibration   one drawn crop of each room: crops of one room depend on each other, and promises count what does not

There is one category, the room, and every class of a room is a part of it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asp_neuro.data.axes import check_up
from asp_neuro.data.built_rooms import built_rooms
from asp_neuro.data.clouds import check_numbers, check_split
from asp_neuro.data.parts import Catalogue, PartSet
from asp_neuro.data.rooms import CLASSES, RARE, Room, anchors, crop, draw_anchor
from asp_neuro.data.s3dis import is_s3dis, read_s3dis
from asp_neuro.errors import ConfigError, MissingError, UsageError

BUILT_IN, S3DIS = ROOM_NAMES = ("rooms", "s3dis")
ROOM = Catalogue(("room",), (len(CLASSES),))
FEWEST = 128  # points of a square that is looked at; with fewer it is left out
JUDGED = 150  # squares that an epoch is judged by, or a few more
INSIDE = ("", "s3dis", "S3DIS", "Stanford3dDataset_v1.2_Aligned_Version", "Stanford3dDataset_v1.2")


@dataclass(frozen=True)
class Crops:
    """How rooms are cropped."""

    size: float = 2.0  # m
    n: int = 1000  # crops to train on
    rare_share: float = 0.0  # of them, centred on a point of a rare class

    def __post_init__(self) -> None:
        if not 0.0 < self.size < np.inf:
            raise ConfigError(f"data.crop = {self.size}: a crop needs a side above 0, in metres")
        if self.n < 1:
            raise ConfigError(f"data.crops = {self.n}: at least 1 crop to train on")
        if not 0.0 <= self.rare_share <= 1.0:
            raise ConfigError(f"data.rare_share = {self.rare_share} must be between 0 and 1")


class Square(NamedTuple):
    """A crop of a room, and which of its points no square before it has."""

    room: int
    inside: np.ndarray
    own: np.ndarray


def squares(rooms: Sequence[Room], size: float, fewest: int = FEWEST) -> list[Square]:
    """Squares side by side over every room; each point is the own one of at most one of them."""
    found = []
    for number, room in enumerate(rooms):
        plan = room.points[:, [0, 2]].astype(np.float64)
        low, high = plan.min(axis=0), plan.max(axis=0)
        free = np.ones(len(room), dtype=bool)
        for x in _corners(low[0], high[0], size):
            for z in _corners(low[1], high[1], size):
                corner = np.array([x, z])
                inside = np.flatnonzero(((plan >= corner) & (plan <= corner + size)).all(axis=1))
                if len(inside) >= fewest:
                    found.append(Square(number, inside, inside[free[inside]]))
                    free[inside] = False
    return found


def _corners(low: float, high: float, size: float) -> np.ndarray:
    """From wall to wall; the last square ends at the wall."""
    n = max(1, int(np.ceil((high - low) / size - 1e-9)))
    return np.asarray(np.minimum(low + size * np.arange(n), max(low, high - size)))


def drawn(rooms: Sequence[Room], how: Crops, n_points: int, seed: int) -> list[tuple[int, np.ndarray]]:
    """(room, indices [n_points]) of crops to train on."""
    rng, rare = np.random.default_rng([seed, how.n]), anchors(rooms, RARE)
    found: list[tuple[int, np.ndarray]] = []
    for _ in range(20 * how.n):
        number, centre = draw_anchor(rooms, rare, rng, how.rare_share)
        taken = crop(rooms[number], centre.tolist(), how.size, n_points, int(rng.integers(2**31)))
        if len(np.unique(taken)) >= min(FEWEST, n_points):
            found.append((number, taken))
        if len(found) == how.n:
            return found
    least = min(FEWEST, n_points)
    raise UsageError(f"crops of {how.size} m rarely have {least} points: only {len(found)} of {how.n} were found")


def one_each(rooms: Sequence[Room], size: float, n_points: int, seed: int) -> list[tuple[int, np.ndarray]]:
    """One drawn crop of each room."""
    found = []
    for number in range(len(rooms)):
        own = drawn([rooms[number]], Crops(size, 1), n_points, seed + number)
        found.append((number, own[0][1]))
    return found


def thinned(square: Square, n_points: int, seed: int) -> np.ndarray:
    """[n_points] of the points inside; of fewer all, again and again."""
    rng = np.random.default_rng([seed, square.room, int(square.inside[0])])
    return np.resize(rng.permutation(square.inside), n_points)


def rooms_of(name: str, data: str | Path | None, split: str) -> list[Room]:
    """The rooms of a split: built in, or S3DIS as it lies on disk."""
    check_split(split)
    if name == BUILT_IN and (data is None or str(data) == BUILT_IN):
        return _built(split)
    return read_s3dis(locate_s3dis(data), split)


@functools.lru_cache(maxsize=1)
def _built(split: str) -> list[Room]:
    """Trainings in one process want them again and again."""
    return built_rooms(split)


def locate_s3dis(data: str | Path | None) -> Path:
    """Where S3DIS lies: `data` (its name or a path), else $ASP_NEURO_DATA, else ./data."""
    given = None if data is None or str(data) in ROOM_NAMES else Path(data).expanduser()
    variable = os.environ.get("ASP_NEURO_DATA")
    bases = [given] if given is not None else [Path(p).expanduser() for p in (variable, "data") if p]
    for base in bases:
        for path in (base / part for part in INSIDE):
            if is_s3dis(path):
                return path
    places = str(given) if given is not None else f"$ASP_NEURO_DATA ({variable or 'not set'}), ./data"
    raise MissingError(
        f"S3DIS not found; looked at {places}.\nSay where its folders Area_1 to Area_6 are with --data FOLDER, or take "
        "the built-in rooms: --recipe rooms"
    )


def load_rooms(
    name: str, data: str | Path | None, split: str, how: Crops, n_points: int, up: str | None = None, seed: int = 0
) -> PartSet:
    """Crops of a split as clouds whose points have labels."""
    check_numbers(n_points, seed)
    if check_up(up or "y") != "y":
        raise UsageError(f"--up {up}: rooms are read with y up; leave --up out")
    rooms = rooms_of(name, data, split)
    if split == "train":
        crops = drawn(rooms, how, n_points, seed)
    elif split == "calibration":
        crops = one_each(rooms, how.size, n_points, seed)
    else:
        found = squares(rooms, how.size)
        found = found[:: max(1, len(found) // JUDGED)] if split == "validation" else found
        crops = [(one.room, thinned(one, n_points, seed)) for one in found]
    return PartSet(
        np.stack([rooms[number].points[index] for number, index in crops]),
        np.stack([rooms[number].labels[index] for number, index in crops]),
        np.zeros(len(crops), np.int64),
        tuple(f"{rooms[number].name} crop {i}" for i, (number, _) in enumerate(crops)),
        ROOM,
        f"{name}, {split} split, {len(rooms)} rooms, crops of {how.size:g} m",
    )
