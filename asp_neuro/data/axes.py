"""Which way is up, and a seed from content: what every reader brings to one convention."""

from __future__ import annotations

import hashlib

import numpy as np

from asp_neuro.errors import UsageError, nearest

UPS = ("x", "y", "z")


def check_up(up: str) -> str:
    if up not in UPS:
        raise UsageError(f"unknown up axis {up!r}{nearest(str(up), UPS)}")
    return up


def to_y_up(points: np.ndarray, up: str) -> np.ndarray:
    """[..., 3] with `up` as up -> y up: a permutation with one sign, so exact, and a proper rotation."""
    x, y, z = points[..., 0], points[..., 1], points[..., 2]
    turned = {"x": (-y, x, z), "y": (x, y, z), "z": (x, z, -y)}[check_up(up)]
    return np.stack(turned, axis=-1) + 0.0  # -0.0 becomes 0.0


def seed_of(*parts: np.ndarray | int) -> int:
    """A seed from content: the same mesh gets the same random points under any name, in any folder."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(np.ascontiguousarray(part).tobytes())
    return int.from_bytes(digest.digest()[:8], "little")
