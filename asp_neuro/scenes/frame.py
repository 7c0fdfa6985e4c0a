"""Frame: the unit sphere of a cloud as it was cut, for points that were not cut with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asp_neuro.scenes.cloud import GRID, Chunking, mean_of_distinct
from asp_neuro.scenes.interpolation import QUERY_MAX
from asp_neuro.scenes.strays import strays


@dataclass(frozen=True)
class Frame:
    """Grid steps are (point - mean) * factor, rounded."""

    mean: np.ndarray  # [3]
    factor: float

    def steps(self, points: np.ndarray) -> np.ndarray:
        """Raw points [q, 3] -> whole grid steps [q, 3] int16; what lies outside is brought to the edge."""
        steps = np.rint((np.asarray(points, dtype=np.float64) - self.mean) * self.factor)
        return np.clip(steps, -QUERY_MAX, QUERY_MAX).astype(np.int16)


def frame_of(cloud: np.ndarray, how: Chunking) -> Frame:
    """The frame that `cloud.cut` puts a raw cloud [P, 3] into (one that is not turned to its axes)."""
    raw = np.asarray(cloud, dtype=np.float64)
    if how.strays is not None:
        raw = raw[~strays(raw, how.strays)]
    mean = mean_of_distinct(raw)
    x, y, z = np.square(raw - mean).T
    return Frame(mean, GRID / float(np.sqrt((x + y + z).max())))
