"""Bent copies of a cloud: a leg is moved, the seat is not, and nothing tears (PointWOLF, Kim et al. 2021).

A few anchors, far apart, each have a small turn, stretch and move of their own. A point goes where the anchors near it
would take it, by weights that fall off smoothly with the distance, measured along some of the axes only.
"""

from __future__ import annotations

import numpy as np

from asp_neuro.scenes.cloud import farthest_points

ANCHORS = 4
TURN = 12.0  # largest turn about each axis, in degrees
STRETCH = 1.6  # largest factor along each axis
MOVE = 0.2  # of the radius
REACH = 0.5  # of an anchor, likewise: one standard deviation


def bent(points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[P, 3] within the unit sphere -> [P, 3]."""
    first = rng.integers(len(points), size=1)
    anchors = points[farthest_points(points[None], min(ANCHORS, len(points)), first)[0]]  # [A, 3]
    offset = points - anchors[:, None]  # [A, P, 3]
    axes = _some_axes(rng)
    square = np.square(offset[..., axes]).sum(axis=2)  # [A, P]
    weight = np.exp((square.min(axis=0) - square) / (2.0 * REACH**2))  # the nearest has weight 1: none vanish
    taken = np.stack([_taken(part, rng) for part in offset]) + anchors[:, None]
    return np.asarray((weight[..., None] * taken).sum(axis=0) / weight.sum(axis=0)[:, None])


def _some_axes(rng: np.random.Generator) -> np.ndarray:
    """One, two or all of them."""
    return rng.permutation(3)[: rng.integers(1, 4)]


def _taken(offset: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Points about an anchor [P, 3] -> the same, stretched, turned and moved."""
    turn = np.deg2rad(rng.uniform(-TURN, TURN, size=3))
    log = np.log(STRETCH)
    stretched = offset * np.exp(rng.uniform(-log, log, size=3))
    return np.asarray(stretched @ _rotation(turn).T + rng.uniform(-MOVE, MOVE, size=3))


def _rotation(turn: np.ndarray) -> np.ndarray:
    """About x, then y, then z, in radians -> [3, 3]."""
    out = np.eye(3)
    for axis, angle in enumerate(turn):
        one, other = (axis + 1) % 3, (axis + 2) % 3
        about = np.eye(3)
        about[one, one] = about[other, other] = np.cos(angle)
        about[other, one] = np.sin(angle)
        about[one, other] = -about[other, one]
        out = about @ out
    return out
