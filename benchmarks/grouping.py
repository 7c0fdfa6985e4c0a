"""How long points take to become chunks: `python benchmarks/grouping.py [--json]`, one thread, CPU time.

- `cloud.cut` for clouds of 1024 points, G=128, K=32, M=16, in the batches of `grouping.chunks_of`, and what that makes
  for the 12,311 clouds of ModelNet40. Wanted: 60 s.
- farthest-point sampling alone, 128 of 1024 points: ours (float64, exact ties, vectorised over the batch) against
  fpsample's compiled one (float32, one cloud at a time), the plain algorithm and its k-d tree variant.
"""

from __future__ import annotations

import argparse

import fpsample
import numpy as np
from machine import alternate, machine, one_thread, spread

from asp_neuro.cloud import Chunking, assign_chunks, cut, farthest_points, nearest_points, normalise
from asp_neuro.grouping import BATCH
from asp_neuro.report import table, to_json

HOW = Chunking(n_points=1024, n_groups=128, group_size=32, n_chunks=16)
N_CLOUDS = 12_311
ROUNDS = 12


def clouds(n: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(n, HOW.n_points, 3)) * rng.uniform(0.3, 1.5, (n, 1, 3))
    return points / np.linalg.norm(points, axis=2).max(axis=1)[:, None, None]


def measured(rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds a cloud."""
    raw = clouds(BATCH)
    xyz, n_distinct = normalise(raw)
    start = (xyz**2).sum(axis=2).argmax(axis=1)
    centres = farthest_points(xyz, HOW.n_groups, start)
    at = np.take_along_axis(xyz, centres[..., None], axis=1)
    single = xyz.astype(np.float32)
    trials = {
        "whole cut": lambda: cut(raw, HOW),
        "  normalise and sort": lambda: normalise(raw),
        "  farthest points": lambda: farthest_points(xyz, HOW.n_groups, start),
        "  nearest points": lambda: nearest_points(xyz, n_distinct, centres, HOW.group_size),
        "  chunks": lambda: assign_chunks(at, HOW.n_chunks, HOW.overlap),
        "fpsample, plain": lambda: [
            fpsample.fps_sampling(points, HOW.n_groups, start_idx=int(first)) for points, first in zip(single, start)
        ],
        "fpsample, k-d tree": lambda: [
            fpsample.bucket_fps_kdline_sampling(points, HOW.n_groups, h=5, start_idx=int(first))
            for points, first in zip(single, start)
        ],
    }
    return {name: spread(1e3 * times / BATCH) for name, times in alternate(trials, rounds).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    one_thread()
    found = measured(asked.rounds)
    total = found["whole cut"]["median"] * N_CLOUDS / 1e3
    ours = found["  farthest points"]["median"]
    ratios = {name: times["median"] / ours for name, times in found.items() if name.startswith("fpsample")}
    if asked.json:
        parts = {name.strip(): times for name, times in found.items()}
        report = {"machine": machine(), "milliseconds": parts, "seconds_for_all": total, "fpsample_over_ours": ratios}
        print(to_json(report))
        return
    print(f"{machine()}; CPU time, one thread; 1024 points, G=128, K=32, M=16, batches of {BATCH}")
    rows = [(name, *(f"{times[k]:.3f}" for k in ("median", "low", "high"))) for name, times in found.items()]
    print(table(rows, ("ms a cloud", "median", "10 %", "90 %")))
    print(f"{N_CLOUDS:,} clouds: {total:.0f} s (60 wanted)")
    print("times our farthest points: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))


if __name__ == "__main__":
    main()
