"""Clouds as a bad sensor would give them (paper J.5, J.8), changed before they are cut into chunks.

    dropped     a share of the points is gone, at random: holes and clumps
    thinned     the first of a farthest-point sample from a random start: fewer points, evenly spread
    turned      about the up axis by any angle, or by any rotation at all (uniform on SO(3))
    jittered    Gaussian noise on every coordinate, in units of the cloud's radius, clipped at five deviations

A corrupted cloud is normalised and cut like any other, so groups, chunks and descriptors are those of what is left
(Prop. S15). Points that are gone stay gone: the cut takes any number of points from `Chunking.n_distinct` on and sees
through repeated ones, so filling up would change nothing; the deployed system treats a small cloud the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from asp_neuro.scenes.augment import turn_about_up
from asp_neuro.scenes.cloud import farthest_points, normalise


@dataclass(frozen=True)
class Corruption:
    """What happens to a cloud; `amount` is a share dropped, a number of points kept, or a standard deviation."""

    name: str
    kind: str  # none, dropped, thinned, turned, rotated, jittered
    amount: float = 0.0


def corruptions(n_points: int) -> tuple[Corruption, ...]:
    """The cells of the study, the clean one first; a half and a quarter of the points are 512 and 256 of 1,024."""
    half, quarter = n_points // 2, n_points // 4
    return (
        Corruption("clean", "none"),
        Corruption("25 % dropped", "dropped", 0.25),
        Corruption("50 % dropped", "dropped", 0.50),
        Corruption(f"{half} points", "thinned", half),
        Corruption(f"{quarter} points", "thinned", quarter),
        Corruption("turned about up", "turned"),
        Corruption("turned in SO(3)", "rotated"),
        Corruption("jitter 0.01", "jittered", 0.01),
        Corruption("jitter 0.02", "jittered", 0.02),
    )


def corrupt(points: np.ndarray, what: Corruption, seed: int, draw: int = 0) -> np.ndarray:
    """Clouds [n, P, 3] -> corrupted [n, Q, 3] float32; each follows from itself, its place, seed and draw alone."""
    if what.kind == "none":
        return points
    unit = normalise(points)[0]
    sources = [np.random.default_rng([seed, draw, place]) for place in range(len(points))]
    n_points = unit.shape[1]
    if what.kind == "dropped":
        kept = n_points - round(what.amount * n_points)
        index = np.stack([np.sort(rng.permutation(n_points)[:kept]) for rng in sources])
        changed = np.take_along_axis(unit, index[..., None], axis=1)
    elif what.kind == "thinned":
        start = np.array([rng.integers(n_points) for rng in sources])
        changed = np.take_along_axis(unit, farthest_points(unit, int(what.amount), start)[..., None], axis=1)
    elif what.kind == "turned":
        changed = turn_about_up(unit, np.array([rng.uniform(-np.pi, np.pi) for rng in sources]))
    elif what.kind == "rotated":
        quaternions = np.stack([rng.standard_normal(4) for rng in sources])  # their directions are uniform
        changed = unit @ Rotation.from_quat(quaternions).as_matrix().transpose(0, 2, 1)
    elif what.kind == "jittered":
        noise = np.stack([rng.standard_normal(unit.shape[1:]) for rng in sources])
        changed = unit + what.amount * np.clip(noise, -5.0, 5.0)
    else:
        raise ValueError(f"unknown corruption '{what.kind}'")
    return changed.astype(np.float32)
