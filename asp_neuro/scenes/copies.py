"""Changed copies of raw clouds, to be cut anew and trained on: stretched, thinned, bent, and as sensors give them.

`augment` keeps the groups of a cloud. With those alone a network sees each object cut in one way, and learns the cut by
heart; a stretched or thinned object is cut in another way, as an object that it never saw would be. So are partial
views, uneven samples and objects among strewn points (`conditions.py`).
"""

from __future__ import annotations

import numpy as np

from asp_neuro.scenes.augment import Augmentation
from asp_neuro.scenes.bend import bent
from asp_neuro.scenes.cloud import normalise
from asp_neuro.scenes.conditions import partial, sideways, strewn, uneven

THIN = 0.25  # largest share of the points that a copy lacks
SEEN = (0.4, 0.8)  # share of the points that a partial view keeps
RATIO = 6.0  # largest ratio of densities of an uneven sample
STREWN = 0.06  # largest share of strewn points


def copies(points: np.ndarray, how: Augmentation, seed: int) -> np.ndarray:
    """Raw clouds [n, P, 3] -> changed copies [n, P, 3]; a point that is gone is filled in by one that is not."""
    rng = np.random.default_rng([seed, len(points)])
    log = np.log(how.scale)
    out = points * np.exp(rng.uniform(-log, log, size=(len(points), 1, 3))).astype(points.dtype)
    if how.bend:
        out = np.stack([_bent(cloud, how.bend, [seed, i, len(points)]) for i, cloud in enumerate(out)])
    share = rng.uniform(0.0, THIN, size=(len(points), 1))
    gone = rng.random(points.shape[:2], dtype=np.float32) < share
    if how.partial or how.uneven or how.strewn:
        out = np.stack([_as_sensed(cloud, how, [seed, len(points), i]) for i, cloud in enumerate(out)])
    return np.where(gone[..., None], out[np.arange(len(out)), (~gone).argmax(axis=1)][:, None], out)


def _bent(cloud: np.ndarray, share: float, seed: list[int]) -> np.ndarray:
    """One cloud [P, 3] -> [P, 3], bent or not."""
    rng = np.random.default_rng(seed)
    if rng.random() >= share:
        return cloud
    middle = cloud.mean(axis=0)
    radius = np.sqrt(np.square(cloud - middle).sum(axis=1).max()) or 1.0
    return (bent((cloud - middle) / radius, rng) * radius + middle).astype(cloud.dtype)


def _as_sensed(cloud: np.ndarray, how: Augmentation, seed: list[int]) -> np.ndarray:
    """One cloud [P, 3] -> [P, 3], a partial view or an uneven sample or neither, and strewn points or none."""
    rng = np.random.default_rng(seed)
    kind, scattered = rng.random(2)
    if kind >= how.partial + how.uneven and scattered >= how.strewn:
        return cloud
    unit = normalise(cloud[None])[0][0]
    if kind < how.partial:
        unit = partial(unit, sideways(rng), rng.uniform(*SEEN))
    elif kind < how.partial + how.uneven:
        unit = uneven(unit, sideways(rng), rng.uniform(1.0, RATIO), rng)
    if scattered < how.strewn:
        unit = strewn(unit, rng.uniform(0.0, STREWN), rng)
    filled = rng.integers(len(unit), size=len(cloud) - len(unit))
    return np.concatenate([unit, unit[filled]]).astype(cloud.dtype)
