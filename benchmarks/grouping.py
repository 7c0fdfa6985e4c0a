"""How long points take to become chunks: `python benchmarks/grouping.py [--json] [--quick]`, one thread, CPU time.

- one cloud alone, as an answer needs it: cut and described with the settings of modelnet10 (G=64, K=32, M=16), against
  the plain form of the same arithmetic (tests/plain_cloud.py), and what taking it in costs before. Clouds take turns:
  the processor learns the branches of a sort that it sees again. Wanted: 1 ms, and 1 ms more for finding strays.
- `cloud.cut` for clouds of 1024 points, G=128, K=32, M=16, in the batches of `cache.chunks_of`, against the plain form,
  and its parts. Wanted: 4.9 ms a cloud, which makes 60 s for the 12,311 clouds of ModelNet40.
- farthest-point sampling alone, 128 of 1024 points: ours (float64, exact ties, vectorised over the batch) against
  fpsample's compiled one (float32, one cloud at a time), the plain algorithm and its k-d tree variant.
"""

from __future__ import annotations

from collections.abc import Callable

import fpsample
import numpy as np
from timing import Row, alternate, arguments, compared, one_thread, row, specs, tell

from asp_neuro.data.intake import take_all
from asp_neuro.scenes.cache import BATCH
from asp_neuro.scenes.cloud import Chunking, cut, descriptors, farthest_points, normalise, to_grid
from asp_neuro.scenes.strays import strays

import plain_cloud  # isort: skip  (timing has put the folder of the tests on the path)

HOW = Chunking(n_points=1024, n_groups=128, group_size=32, n_chunks=16)
ALONE = Chunking(n_points=1024, n_groups=64, group_size=32, n_chunks=16)
WHOLE, PLAIN = "whole cut", "whole cut, plain form"
ONE, ONE_PLAIN, TAKEN = "one cloud alone, cut and described", "one cloud alone, plain form", "one cloud alone, taken in"
CLEANED = "one cloud alone, strays found"
SORTED, SAMPLING = "normalise and sort", "our farthest points"
Trials = dict[str, Callable[[], object]]


def described(raw: np.ndarray) -> np.ndarray:
    return descriptors(cut(raw, ALONE))


def described_plainly(raw: np.ndarray) -> np.ndarray:
    chunks = plain_cloud.cut(raw, ALONE)
    return plain_cloud.describe(chunks.coordinates(), plain_cloud.mask_of(chunks))


def alone(raw: np.ndarray) -> Trials:
    """Clouds one by one."""
    return {
        ONE: lambda: [described(cloud[None]) for cloud in raw],
        ONE_PLAIN: lambda: [described_plainly(cloud[None]) for cloud in raw],
        TAKEN: lambda: [take_all(cloud, ALONE) for cloud in raw],
        CLEANED: lambda: [strays(cloud, 2.5) for cloud in raw],
    }


def in_batches(raw: np.ndarray) -> Trials:
    return {
        WHOLE: lambda: cut(raw, HOW),
        PLAIN: lambda: plain_cloud.cut(raw, HOW),
        SORTED: lambda: to_grid(raw),
    }


def sampling(raw: np.ndarray) -> Trials:
    xyz, _ = normalise(raw)
    start = (xyz**2).sum(axis=2).argmax(axis=1)
    single, firsts = xyz.astype(np.float32), start.tolist()
    return {
        SAMPLING: lambda: farthest_points(xyz, HOW.n_groups, start),
        "fpsample, plain": lambda: [
            fpsample.fps_sampling(points, HOW.n_groups, start_idx=first) for points, first in zip(single, firsts)
        ],
        "fpsample, k-d tree": lambda: [
            fpsample.bucket_fps_kdline_sampling(points, HOW.n_groups, h=5, start_idx=first)
            for points, first in zip(single, firsts)
        ],
    }


def measure(rounds: int) -> list[Row]:
    raw = specs.random_clouds(np.random.default_rng(0), BATCH, HOW.n_points).astype(np.float32)
    kinds = alone(raw), in_batches(raw), sampling(raw)
    trials = {name: trial for kind in kinds for name, trial in kind.items()}
    each = {name: seconds / BATCH for name, seconds in alternate(trials, rounds).items()}
    wanted = {ONE: "at most 1 ms", WHOLE: "at most 4.9 ms"}
    return [
        *compared({name: each[name] for name in (ONE, ONE_PLAIN)}, ONE, "s/cloud", wanted=wanted),
        row(TAKEN, each[TAKEN], "s/cloud"),
        *compared({CLEANED: each[CLEANED]}, CLEANED, "s/cloud", wanted={CLEANED: "at most 1 ms"}),
        *compared({name: each[name] for name in (WHOLE, PLAIN)}, WHOLE, "s/cloud", wanted=wanted),
        row(SORTED, each[SORTED], "s/cloud"),
        *compared({name: each[name] for name in kinds[2]}, SAMPLING, "s/cloud"),
    ]


def main() -> None:
    asked = arguments(__doc__).parse_args()
    one_thread()
    tell("Grouping, 1024 points, G=128, K=32, M=16", measure(2 if asked.quick else 25), asked)


if __name__ == "__main__":
    main()
