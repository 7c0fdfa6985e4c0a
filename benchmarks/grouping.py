"""How long points take to become chunks: `python benchmarks/grouping.py [--json] [--quick]`, one thread, CPU time.

- `cloud.cut` for clouds of 1024 points, G=128, K=32, M=16, in the batches of `grouping.chunks_of`, and its parts.
  Wanted: 4.9 ms a cloud, which makes 60 s for the 12,311 clouds of ModelNet40.
- farthest-point sampling alone, 128 of 1024 points: ours (float64, exact ties, vectorised over the batch) against
  fpsample's compiled one (float32, one cloud at a time), the plain algorithm and its k-d tree variant.
"""

from __future__ import annotations

import fpsample
import numpy as np
from timing import Row, alternate, arguments, compared, one_thread, row, specs, tell

from asp_neuro.scenes.cache import BATCH
from asp_neuro.scenes.cloud import Chunking, assign_chunks, cut, farthest_points, nearest_points, normalise

HOW = Chunking(n_points=1024, n_groups=128, group_size=32, n_chunks=16)
WHOLE, SAMPLING = "whole cut", "our farthest points"


def measure(rounds: int) -> list[Row]:
    raw = specs.random_clouds(np.random.default_rng(0), BATCH, HOW.n_points)
    xyz, n_distinct = normalise(raw)
    start = (xyz**2).sum(axis=2).argmax(axis=1)
    centres = farthest_points(xyz, HOW.n_groups, start)
    at = np.take_along_axis(xyz, centres[..., None], axis=1)
    single = xyz.astype(np.float32)
    firsts = start.tolist()
    trials = {
        WHOLE: lambda: cut(raw, HOW),
        "normalise and sort": lambda: normalise(raw),
        "nearest points": lambda: nearest_points(xyz, n_distinct, centres, HOW.group_size),
        "chunks": lambda: assign_chunks(at, HOW.n_chunks, HOW.overlap),
        SAMPLING: lambda: farthest_points(xyz, HOW.n_groups, start),
        "fpsample, plain": lambda: [
            fpsample.fps_sampling(points, HOW.n_groups, start_idx=first) for points, first in zip(single, firsts)
        ],
        "fpsample, k-d tree": lambda: [
            fpsample.bucket_fps_kdline_sampling(points, HOW.n_groups, h=5, start_idx=first)
            for points, first in zip(single, firsts)
        ],
    }
    each = {name: seconds / BATCH for name, seconds in alternate(trials, rounds).items()}
    sampling = {name: seconds for name, seconds in each.items() if name == SAMPLING or name.startswith("fpsample")}
    wanted = {WHOLE: "at most 4.9 ms"}
    parts = [row(name, each[name], "s/cloud", wanted=wanted.get(name, "")) for name in each if name not in sampling]
    return parts + compared(sampling, SAMPLING, "s/cloud")


def main() -> None:
    asked = arguments(__doc__).parse_args()
    one_thread()
    tell("Grouping, 1024 points, G=128, K=32, M=16", measure(2 if asked.quick else 25), asked)


if __name__ == "__main__":
    main()
