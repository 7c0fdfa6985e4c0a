"""Which way is up, and how many points: the two things every reader brings to one convention."""

from __future__ import annotations

import hashlib

import numpy as np

from asp_neuro.errors import UsageError, nearest

UPS = ("x", "y", "z")
MANY = 20_000  # beyond this a seeded random part goes into the farthest-point choice


def check_up(up: str) -> str:
    if up not in UPS:
        raise UsageError(f"unknown up axis '{up}'{nearest(up, UPS)}")
    return up


def to_y_up(points: np.ndarray, up: str) -> np.ndarray:
    """[..., 3] with `up` as up -> y up: a permutation with one sign, so exact, and a proper rotation."""
    x, y, z = points[..., 0], points[..., 1], points[..., 2]
    turned = {"x": (-y, x, z), "y": (x, y, z), "z": (x, z, -y)}[check_up(up)]
    return np.stack(turned, axis=-1) + 0.0  # -0.0 becomes 0.0


def resample(points: np.ndarray, n_points: int, seed: int = 0) -> np.ndarray:
    """[P, 3] -> [n_points, 3]; whatever the order of the points, unless P == n_points already.

    More: farthest points first. Fewer: all of them, again and again, in lexicographic order.
    """
    if len(points) == n_points:
        return points
    points = points[np.lexsort(points.T[::-1])]
    if len(points) < n_points:
        return points[np.arange(n_points) % len(points)]
    if len(points) > MANY:
        chosen = np.random.default_rng(seed).choice(len(points), max(MANY, n_points), replace=False)
        points = points[np.sort(chosen)]
    return points[_farthest(points, n_points)]


def _farthest(points: np.ndarray, n: int) -> np.ndarray:
    from asp_neuro.scenes.cloud import farthest_points

    wide = points.astype(np.float64)
    start = ((wide - wide.mean(axis=0)) ** 2).sum(axis=1).argmax()  # the first, so lexicographically least, of equals
    return farthest_points(wide[None], n, np.array([start]))[0]


def seed_of(*parts: np.ndarray | int) -> int:
    """A seed from content: the same mesh gets the same random points under any name, in any folder."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(np.ascontiguousarray(part).tobytes())
    return int.from_bytes(digest.digest()[:8], "little")
