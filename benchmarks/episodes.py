"""How fast a deployed model answers: `python benchmarks/episodes.py [--bundle FILE|NAME] [--json]`, one thread.

- the head alone (2 layers of 128, batch 256, guard included) against bare float32 products of the same size and, for
  scale, without the guard. Wanted: at most 3 times the products.
- whole episodes at full budget, chunks already made, in batches of 256 and one by one, with and without verdicts on
  spike preservation. Wanted: 200 clouds a second in batches (three times the paper's 66.2 on an H100), 66 one by one.
- cost against the number of observations, streaming and prefix form: the exponent of a fitted power law. Wanted: at
  most 1.1 for streaming. The prefix form costs (M + 1) / 2 times as much at M observations.
- memory of a run over as many clouds as ModelNet40 has, in a process of its own. Wanted: under 2 GB.

Without a bundle it takes the shipped ModelNet10 one, or random weights of that size. Clouds are made up.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from machine import alternate, machine, one_thread, peak_megabytes, spread

from asp_neuro import prefix
from asp_neuro.cloud import Chunking, Chunks, cut
from asp_neuro.deployment import open_bundle
from asp_neuro.episode import episodes
from asp_neuro.errors import MissingError
from asp_neuro.exit import ExitRule
from asp_neuro.grouping import chunks_of
from asp_neuro.head_spec import HeadSpec
from asp_neuro.heads.fast import FastHead
from asp_neuro.perceiver import Perceiver, drive
from asp_neuro.report import table, to_json

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from specs import random_clouds, random_drives, random_head, random_perceiver

SIZE = Chunking(n_points=1024, n_groups=64, group_size=32, n_chunks=16)  # ModelNet10's recipe
N_MODELNET40 = 2468  # its test split
BATCH, SINGLE = 256, 24
STEPS = 16


def model(bundle: str | None) -> tuple[str, Perceiver]:
    """A bundle, the shipped ModelNet10 one, or random weights of its size."""
    try:
        deployed = open_bundle(bundle or "modelnet10")
        return str(bundle or "modelnet10 (shipped)"), deployed.perceiver
    except MissingError:
        if bundle is not None:
            raise
    return "random weights", random_perceiver(np.random.default_rng(0), 128, 128, 2, 10, SIZE)


def head_alone(rounds: int) -> dict[str, Any]:
    """Seconds of 16 observations of 256 clouds."""
    rng = np.random.default_rng(0)
    spec: HeadSpec = random_head(rng, 128, 128, 2)
    drives = random_drives(rng, STEPS, BATCH, 128).astype(np.float64)
    bound = np.full(128, 2000.0)
    guarded, plain = FastHead(spec, bound, STEPS), FastHead(spec, bound)
    weights = [np.ascontiguousarray(layer.weight_int.T.astype(np.float32)) for layer in spec.layers]
    inputs = drives.astype(np.float32)

    def run(head: FastHead) -> None:
        head.start(BATCH)
        for drive_int in drives:
            head.observe(drive_int)

    def products() -> None:
        for x in inputs:
            for weight in weights:
                np.matmul(x, weight)

    found = alternate({"head": lambda: run(guarded), "no guard": lambda: run(plain), "products": products}, rounds)
    timed = {name: spread(seconds) for name, seconds in found.items()}
    ratios = {name: float(np.median(found[name] / found["products"])) for name in ("head", "no guard")}
    return {"seconds": timed, "ratio": ratios, "us_per_observation": 1e6 * timed["head"]["median"] / STEPS / BATCH}


def whole_episodes(perceiver: Perceiver, chunks: Chunks, rounds: int) -> dict[str, Any]:
    """Clouds a second at full budget."""
    rule = ExitRule()

    def bare(part: Chunks) -> None:
        drive(episodes(perceiver._host, perceiver.units, part, rule), perceiver.new_head())

    trials = {
        "batch of 256": lambda: perceiver.answers(chunks, rule),
        "batch of 256, no verdicts": lambda: bare(chunks),
        "one by one": lambda: [perceiver.answers(chunks[i : i + 1], rule) for i in range(SINGLE)],
        "one by one, no verdicts": lambda: [bare(chunks[i : i + 1]) for i in range(SINGLE)],
    }
    found = alternate(trials, rounds)
    return {name: spread((SINGLE if "one" in name else len(chunks)) / times) for name, times in found.items()}


def exponents(perceiver: Perceiver, chunks: Chunks, rounds: int) -> dict[str, Any]:
    """Seconds of the first t observations of one batch, and the fitted power of t."""
    lengths = [t for t in (2, 4, 8, 12, 16) if t <= chunks.n_chunks]
    trials = {}
    for t in lengths:
        for form, play in (("streaming", prefix.streaming), ("prefix", prefix.recomputing)):
            trials[f"{form} {t}"] = lambda play=play, t=t: play(perceiver, chunks, _AtMost(t))
    found = alternate(trials, rounds)
    report: dict[str, Any] = {}
    for form in ("streaming", "prefix"):
        seconds = [float(np.median(found[f"{form} {t}"])) for t in lengths]
        slope = float(np.polyfit(np.log(lengths), np.log(seconds), 1)[0])
        report[form] = {"observations": lengths, "seconds": seconds, "exponent": slope}
    costs = prefix.compare(perceiver, [chunks], ExitRule())
    return {**report, "ratio_at_full_budget": costs["ratio"], "expected_ratio": (chunks.n_chunks + 1) / 2}


class _AtMost(ExitRule):
    """Ends every episode after t observations, whatever the margin."""

    def __init__(self, t: int) -> None:
        super().__init__(tau=0.0)
        object.__setattr__(self, "left", [t])

    def crossed(self, margins: np.ndarray) -> np.ndarray:
        self.left[0] -= 1  # type: ignore[attr-defined]
        return np.full(np.shape(margins), self.left[0] <= 0)  # type: ignore[attr-defined]


def memory(bundle: str | None) -> float:
    """Peak megabytes of a run over a set of ModelNet40's size."""
    _, perceiver = model(bundle)
    n_points = perceiver.chunking.n_points
    clouds = random_clouds(np.random.default_rng(0), 64, n_points).astype(np.float32)
    points = clouds[np.arange(N_MODELNET40) % 64]
    chunks = chunks_of(points[:64], perceiver.chunking, cache=False)[np.arange(N_MODELNET40) % 64]
    for start in range(0, len(chunks), BATCH):
        perceiver.answers(chunks[start : start + BATCH], ExitRule(0.9))
    return peak_megabytes()


def memory_in_child(bundle: str | None) -> float:
    command = [sys.executable, __file__, "--memory", *(["--bundle", bundle] if bundle else [])]
    return float(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", metavar="FILE|NAME")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    one_thread()
    if asked.memory:
        print(json.dumps(memory(asked.bundle)))
        return
    name, perceiver = model(asked.bundle)
    chunks = cut(random_clouds(np.random.default_rng(0), BATCH, perceiver.chunking.n_points), perceiver.chunking)
    report = {
        "machine": machine(),
        "model": name,
        "head": head_alone(4 * asked.rounds),
        "clouds_per_second": whole_episodes(perceiver, chunks, asked.rounds),
        "observations": exponents(perceiver, chunks[:32], max(2, asked.rounds // 2)),
        "megabytes": memory_in_child(asked.bundle),
    }
    print(to_json(report) if asked.json else text(report))


def text(report: dict[str, Any]) -> str:
    head, cost = report["head"], report["observations"]
    rows = [
        (part, *(f"{1e3 * s[k]:.2f}" for k in ("median", "low", "high")), f"{head['ratio'].get(part, 1.0):.2f}")
        for part, s in head["seconds"].items()
    ]
    clouds = [
        (how, *(f"{s[k]:.0f}" for k in ("median", "low", "high"))) for how, s in report["clouds_per_second"].items()
    ]
    streaming, recomputed = cost["streaming"], cost["prefix"]
    grown = [
        (t, f"{1e3 * a:.0f}", f"{1e3 * b:.0f}", f"{b / a:.2f}")
        for t, a, b in zip(streaming["observations"], streaming["seconds"], recomputed["seconds"])
    ]
    macs = ", ".join(f"{name} {ratio:.2f}" for name, ratio in cost["ratio_at_full_budget"].items())
    return "\n".join(
        [
            f"{report['machine']}; CPU time, one thread; model: {report['model']}",
            "\nhead, 2 layers of 128, batch 256, 16 observations "
            f"({head['us_per_observation']:.2f} us an observation and cloud; at most 3 times the products wanted)",
            table(rows, ("", "median ms", "10 %", "90 %", "times the products")),
            "\nclouds a second at full budget (wanted: 200 in batches, 66 one by one)",
            table(clouds, ("", "median", "10 %", "90 %")),
            f"\n32 clouds, first t observations: exponent {streaming['exponent']:.2f} streaming (at most 1.1 wanted), "
            f"{recomputed['exponent']:.2f} prefix form",
            table(grown, ("t", "streaming ms", "prefix form ms", "ratio")),
            f"prefix form / streaming at full budget, MACs counted: {macs}; (M + 1) / 2 = {cost['expected_ratio']:.1f}",
            f"\nrun over {N_MODELNET40} clouds: peak {report['megabytes']:.0f} MB (under 2048 wanted)",
        ]
    )


if __name__ == "__main__":
    main()
