"""What a point hears of the groups that were seen: its three nearest ones, weighted, and where it lies among them.

    weight_j ~ 1 / (d_j^2 + NEARBY),    in steps of 2^-WEIGHT_BITS, the nearest takes what rounding leaves

Distances are whole numbers (squared grid steps), so ties are ties, and they go to the lower group. Everything else is
one IEEE operation after another on each point alone: the same bits in any batch. A point of a group that was not seen
hears the nearest that were.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asp_neuro.scenes.cloud import GRID

N_NEAREST = 3
WEIGHT_BITS = 12
NEARBY = 1e-4 * GRID**2  # squared grid steps: nearer than a hundredth of a unit, weights no longer rise
POSITION_SHIFT = 2  # positions are given in steps of 2^-12
OFFSET_MAX = 6552.0  # grid steps, 0.4: beyond it a point is simply far from its group
DISTANCE_HALF = 0.2 * GRID  # at this distance the feature `distance` is one half
FEATURE_BITS = 11
QUERY_MAX = 2.0**15 - 1.0  # grid steps: what lies farther out is taken to lie here
N_FEATURES = 8  # position (3), offset from the nearest seen centre (3), its distance, whether the own group was seen
FEATURE_MAX = np.array([2.0**13] * 3 + [OFFSET_MAX * 2.0**-POSITION_SHIFT] * 3 + [2.0**FEATURE_BITS] * 2)
FEATURE_UNITS = np.array([2.0**-12] * 3 + [5.0 * 2.0**-12] * 3 + [2.0**-FEATURE_BITS] * 2)  # what one step stands for


class Heard(NamedTuple):
    """For q points of each of b clouds."""

    group: np.ndarray  # [b, q, 3] the nearest seen ones, nearest first
    weight: np.ndarray  # [b, q, 3] whole numbers, float64, that add up to 2^WEIGHT_BITS
    features: np.ndarray  # [b, q, N_FEATURES] whole numbers, float64


def squares(queries: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Whole grid steps [..., q, 3] and [..., G, 3] -> squared distances [..., q, G] float64, exact."""
    own = np.square(queries).sum(axis=-1)[..., :, None] + np.square(centres).sum(axis=-1)[..., None, :]
    return np.asarray(own - 2.0 * (queries @ np.swapaxes(centres, -1, -2)))


def nearest_three(square: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Squared distances [..., G], inf where a group was not seen -> groups and distances [..., 3]; is overwritten."""
    flat = square.reshape(-1, square.shape[-1])
    rows = np.arange(len(flat))
    group, found = np.empty((len(flat), N_NEAREST), dtype=np.intp), np.empty((len(flat), N_NEAREST))
    for k in range(N_NEAREST):
        group[:, k] = flat.argmin(axis=1)
        found[:, k] = flat[rows, group[:, k]]
        flat[rows, group[:, k]] = np.inf
    return group.reshape(*square.shape[:-1], N_NEAREST), found.reshape(*square.shape[:-1], N_NEAREST)


def weights(square: np.ndarray) -> np.ndarray:
    """Squared distances [..., 3], nearest first, inf for none -> whole weights that add up to 2^WEIGHT_BITS."""
    pull = 1.0 / (square + NEARBY)
    total = pull[..., 0] + pull[..., 1] + pull[..., 2]
    out = np.rint(pull / total[..., None] * 2.0**WEIGHT_BITS)
    out[..., 0] = 2.0**WEIGHT_BITS - out[..., 1] - out[..., 2]
    return np.asarray(out)


def features(queries: np.ndarray, centre: np.ndarray, square: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Points [..., 3], their nearest seen centre [..., 3], its squared distance and whether their own group was seen
    [...] -> [..., N_FEATURES] whole numbers."""
    out = np.empty((*queries.shape[:-1], N_FEATURES))
    out[..., :3] = np.floor(queries * 2.0**-POSITION_SHIFT + 0.5)
    offset = np.clip(queries - centre, -OFFSET_MAX, OFFSET_MAX)
    out[..., 3:6] = np.floor(offset * 2.0**-POSITION_SHIFT + 0.5)
    far = np.sqrt(square)
    out[..., 6] = np.rint(far / (far + DISTANCE_HALF) * 2.0**FEATURE_BITS)
    out[..., 7] = observed * 2.0**FEATURE_BITS
    return out


def hear(queries: np.ndarray, centres: np.ndarray, seen: np.ndarray, square: np.ndarray) -> Heard:
    """Points [b, q, 3] and centres [b, G, 3] in whole grid steps, which groups were seen [b, G], and the squared
    distances [b, q, G] of both; at least one group of each cloud was seen."""
    rows = np.arange(len(queries))[:, None]
    observed = seen[rows, square.argmin(axis=2)]
    group, found = nearest_three(np.where(seen[:, None], square, np.inf))
    return Heard(group, weights(found), features(queries, centres[rows, group[..., 0]], found[..., 0], observed))


def neighbours(square: np.ndarray, n: int) -> np.ndarray:
    """Squared distances [..., G, G] of centres -> the n nearest groups of each [..., G, n], itself first, ties to the
    lower."""
    n_groups = square.shape[-1]
    key = square * n_groups + np.arange(n_groups)
    key[..., np.arange(n_groups), np.arange(n_groups)] = -1.0
    return np.argsort(key, axis=-1)[..., :n]
