"""Changed clouds to train on: stretched, turned, mirrored, moved, jittered, thinned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asp_neuro.errors import ConfigError
from asp_neuro.plain import later


@dataclass(frozen=True)
class Augmentation:
    """Training-time changes of a cloud; the descriptors are computed from the changed points (Prop. S15)."""

    scale: float = 1.25  # each axis by a factor between 1/scale and scale
    shift: float = 0.1
    jitter: float = 0.01  # standard deviation, clipped at five of them
    turn: float = 0.0  # largest turn about the up axis, in degrees
    drop: float = 0.0  # largest share of the points dropped from their groups (see `Chunks.without`)
    hide: float = 0.0  # largest share of the groups hidden from their chunks (never a chunk's first)
    mirror: bool = False  # every second cloud left-right (x), which most objects survive
    cuts: int = 0  # other cuts of every cloud to draw from, each of a changed copy (see `copies.py`)
    turn_share: float = later(1.0)  # of the clouds that are turned, if any are
    partial: float = later(0.0)  # share of those copies that are seen from one side only
    uneven: float = later(0.0)  # share of them that are sampled anew, more densely on one side
    strewn: float = later(0.0)  # share of them in which some points lie anywhere
    crop: float = later(0.0)  # images: a side shows all of the picture, or less by up to this share
    colour: float = later(0.0)  # images: brightness and contrast change by up to this share, each colour by half of it
    mirror_across: bool = later(False)  # every second cloud along z: on principal axes, where x has a sign of its own
    bend: float = later(0.0)  # share of the copies that are bent (see `bend.py`)

    def __post_init__(self) -> None:
        for name, low, high in (
            ("scale", 1, 10),
            ("shift", 0, 10),
            ("jitter", 0, 1),
            ("turn", 0, 180),
            ("drop", 0, 1),
            ("hide", 0, 1),
            ("cuts", 0, 64),
            ("turn_share", 0, 1),
            ("partial", 0, 1),
            ("uneven", 0, 1),
            ("strewn", 0, 1),
            ("bend", 0, 1),
            ("crop", 0, 0.9),
            ("colour", 0, 0.9),
        ):
            if not low <= getattr(self, name) <= high:
                raise ConfigError(f"{name} = {getattr(self, name)} must be between {low} and {high}")
        if self.partial + self.uneven > 1:
            raise ConfigError(
                f"partial = {self.partial} and uneven = {self.uneven} are shares of the same copies: 1 at most"
            )
        if (named := self.partial or self.uneven or self.strewn or self.bend) and not self.cuts:
            raise ConfigError(f"partial, uneven, strewn and bend ({named}) change the copies that cuts = 0 has none of")


def augment(points: np.ndarray, how: Augmentation, rng: np.random.Generator) -> np.ndarray:
    """Coordinates [n, P, 3] -> changed coordinates, same shape and type. The groups keep their indices."""
    n = len(points)
    out = points
    if how.turn > 0.0:
        angle = np.deg2rad(rng.uniform(-how.turn, how.turn, size=n))
        if how.turn_share < 1.0:
            angle[rng.random(n) >= how.turn_share] = 0.0
        out = turn_about_up(out, angle)
    log = np.log(how.scale)
    factor = np.exp(rng.uniform(-log, log, size=(n, 1, 3)))
    if how.mirror:
        factor[:, 0, 0] *= rng.choice([-1.0, 1.0], size=n)
    if how.mirror_across:
        factor[:, 0, 2] *= rng.choice([-1.0, 1.0], size=n)
    move = rng.uniform(-how.shift, how.shift, size=(n, 1, 3))
    out = out * factor.astype(points.dtype) + move.astype(points.dtype)
    if how.jitter > 0.0:
        noise = rng.standard_normal(size=points.shape, dtype=np.float32) * np.float32(how.jitter)
        limit = np.float32(5.0 * how.jitter)
        out = out + np.clip(noise, -limit, limit).astype(points.dtype)
    return out


def turn_about_up(points: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Turn clouds [n, P, 3] about the y axis by `angle` [n] in radians."""
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    x, y, z = points[..., 0], points[..., 1], points[..., 2]
    return np.stack([cos * x + sin * z, y, cos * z - sin * x], axis=-1).astype(points.dtype)
