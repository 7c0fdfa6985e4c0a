"""Stray points of a raw cloud: dust, edges, cross-talk; what a sensor saw where nothing is.

A point is a stray if its 3rd nearest neighbour is more than `factor` times as far away as is usual in this cloud: the
median over a fixed sample of its points. Three, because strays come in pairs.

Distances are taken on a lattice of whole numbers about the cloud's median, so they are exact: the result depends
neither on the order of the points, nor on where the cloud lies, nor on the machine. A stray far away cannot make the
lattice coarse, as it could if that were scaled to the farthest point. Points are put in Morton order, in which 98 of
100 find three neighbours within reach among the eight next to them; only the others are looked up in a tree (or, where
that is compiled, among boxes of sixteen).
"""

from __future__ import annotations

import numpy as np

from asp_neuro import compiled

NEIGHBOUR = 3
FEWEST = 16  # distinct points: in a smaller cloud nothing is usual
SAMPLE = 128  # points that say what is usual
WITHIN = 0.75  # the share of the points whose distance from the middle is the lattice's unit
STEPS = 2.0**12  # of the lattice in that unit
FARTHEST = 2.0**18  # in steps; points beyond are moved there
WINDOW = 4  # places before and after it in Morton order where a point's neighbours are looked for first
MOST_COMPILED = 16_384  # points of a cloud: of more a tree is the faster way
# how 20 bits are spread to every third place: shift, then mask
SPREAD = (
    (32, 0x1F00000000FFFF),
    (16, 0x1F0000FF0000FF),
    (8, 0x100F00F00F00F00F),
    (4, 0x10C30C30C30C30C3),
    (2, 0x1249249249249249),
)


def lattice(points: np.ndarray) -> np.ndarray:
    """Raw coordinates [P, 3] -> whole numbers [P, 3], float64, about the cloud's middle."""
    planes = np.asarray(points, dtype=np.float64).T
    apart = planes - _middle(planes)
    reach = np.abs(apart).max(axis=0)
    at = int(WITHIN * (len(reach) - 1))
    unit = float(np.partition(reach, at)[at]) or float(reach.max()) or 1.0
    return np.clip(np.rint(apart * (STEPS / unit)), -FARTHEST, FARTHEST).T


def _middle(planes: np.ndarray) -> np.ndarray:
    """[3, P] -> [3, 1] of each axis the middle one, the lower of two."""
    at = (planes.shape[1] - 1) // 2
    return np.partition(planes, at, axis=1)[:, at : at + 1]


def strays(points: np.ndarray, factor: float) -> np.ndarray:
    """Raw coordinates [P, 3] -> [P] bool: points that stand alone. Repeated points count once."""
    steps = lattice(points)
    _, first, back = np.unique(_morton(steps), return_index=True, return_inverse=True)
    if len(first) < FEWEST:
        return np.zeros(len(points), dtype=bool)
    return _alone(steps[first], factor)[back]


def _alone(points: np.ndarray, factor: float) -> np.ndarray:
    """Distinct points [P, 3] in Morton order -> [P] bool."""
    if compiled.kernels is not None and len(points) <= MOST_COMPILED:
        out = np.empty(len(points), dtype=bool)
        compiled.kernels.alone(np.ascontiguousarray(points.T), out, len(points), factor)
        return out
    from scipy.spatial import cKDTree  # 0.1 s to import, which not every command needs

    tree = cKDTree(points, balanced_tree=False, compact_nodes=False)
    reach = factor * float(np.median(_to_neighbour(tree, points[:: -(-len(points) // SAMPLE)])))
    unsure = np.flatnonzero(~_surely_near(points, reach))
    alone = np.zeros(len(points), dtype=bool)
    alone[unsure] = _to_neighbour(tree, points[unsure]) > reach
    return alone


def _morton(steps: np.ndarray) -> np.ndarray:
    """Whole numbers [P, 3] -> one for each point, in whose order neighbours stand close; different ones for others."""
    bits = (steps + FARTHEST).astype(np.int64)
    for shift, mask in SPREAD:
        bits = (bits | (bits << shift)) & mask
    return (bits[:, 0] << 2) | (bits[:, 1] << 1) | bits[:, 2]


def _to_neighbour(tree: object, points: np.ndarray) -> np.ndarray:
    """[n, 3] of the tree's own points -> [n] the distance to the 3rd nearest other."""
    return np.asarray(tree.query(points, k=[NEIGHBOUR + 1])[0][:, 0])  # type: ignore[attr-defined]


def _surely_near(points: np.ndarray, reach: float) -> np.ndarray:
    """[P, 3] in Morton order -> [P] bool: whether three others are within reach among those next to it."""
    near, limit = np.zeros(len(points), dtype=np.int8), reach * reach
    for k in range(1, min(WINDOW, len(points) - 1) + 1):
        x, y, z = np.square(points[k:] - points[:-k]).T
        close = x + y + z <= limit
        near[k:] += close
        near[:-k] += close
    return near >= NEIGHBOUR
