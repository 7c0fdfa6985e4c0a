"""What spike preservation costs, and how much of a model's answers it proves. Prints tables.

    python benchmarks/guard.py                                  cost, on random networks of the shipped sizes
    python benchmarks/guard.py --bundle model.net [--data ...]  and the preserved share at state scales 2^12 .. 2^18

The head alone is timed with and without guard bands; the whole fast engine with and without verdicts; the exact replay
for each cloud. Times are the best of several runs, alternating, one thread. Another state scale re-rounds bias and
thresholds of every layer; what no longer fits 24 bits saturates and counts as not proven.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro.cloud import Chunking, Chunks, cut
from asp_neuro.episode import Answer, episodes
from asp_neuro.errors import ConfigError
from asp_neuro.exact import run_exact
from asp_neuro.exit import ExitRule
from asp_neuro.head_spec import STATE_BITS_MAX, STATE_BITS_MIN, HeadSpec, LayerSpec
from asp_neuro.heads.fast import FastHead
from asp_neuro.perceiver import Perceiver, drive, really_equal
from asp_neuro.report import table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import specs  # small random networks

COMPACT = Chunking(n_points=512, n_groups=64, group_size=16, n_chunks=16)
REPEATS = 25


def alternate(*runs: Callable[[], Any]) -> list[float]:
    """Best seconds of each, taken in turns so that other work on the machine meets all of them."""
    best = [float("inf")] * len(runs)
    for _ in range(REPEATS):
        for place, run in enumerate(runs):
            start = time.perf_counter()
            run()
            best[place] = min(best[place], time.perf_counter() - start)
    return best


def head_cost(width: int, batch: int, n_steps: int = 16) -> dict[str, Any]:
    """The head alone, drives of LayerNorm's size."""
    rng = np.random.default_rng(0)
    spec = specs.random_head(rng, width, width, 2)
    drives = specs.random_drives(rng, n_steps, batch, width).astype(np.float64)
    bound = np.abs(drives).max(axis=(0, 1))

    def run(head: FastHead) -> None:
        head.start(batch)
        for x in drives:
            head.observe(x)

    plain, guarded = FastHead(spec, bound), FastHead(spec, bound, n_steps)
    without, with_guard = alternate(lambda: run(plain), lambda: run(guarded))
    return cost_row(f"head, {width} wide, batch {batch}", without, with_guard, n_steps * batch)


def engine_cost(perceiver: Perceiver, chunks: Chunks, rule: ExitRule) -> dict[str, Any]:
    """Encoder, mixer, head, policy and exit, with and without a verdict per answer."""

    plain = FastHead(perceiver.head, perceiver.host.drive_bound())

    def unwatched() -> list[Answer]:
        return drive(episodes(perceiver._host, perceiver.units, chunks, rule), plain.fresh())

    without, with_verdict = alternate(unwatched, lambda: perceiver.answers(chunks, rule))
    looks = sum(answer.observations for answer in perceiver.answers(chunks, rule))
    return cost_row(f"whole engine, batch {len(chunks)}", without, with_verdict, looks)


def cost_row(what: str, without: float, with_guard: float, n_looks: int) -> dict[str, Any]:
    return {
        "what": what,
        "us_per_observation": 1e6 * without / n_looks,
        "us_with_guard": 1e6 * with_guard / n_looks,
        "overhead": with_guard / without - 1.0,
    }


def replay_cost(perceiver: Perceiver, chunks: Chunks, rule: ExitRule) -> float:
    """Milliseconds an episode of the exact replay, host included."""
    return 1e3 * alternate(lambda: [perceiver.recompute(chunks[i : i + 1], rule) for i in range(8)])[0] / 8


def exact_head_cost(width: int = 64, n_steps: int = 16) -> float:
    """Milliseconds an episode of the exact head alone, two layers."""
    rng = np.random.default_rng(0)
    spec, drives = specs.random_head(rng, width, width, 2), specs.random_drives(rng, n_steps, 1, width)
    return 1e3 * alternate(lambda: run_exact(spec, drives))[0]


def at_scale(head: HeadSpec, state_bits: int) -> HeadSpec:
    """The same head with every layer's state at 2^state_bits."""
    return HeadSpec(tuple(_layer_at(layer, state_bits) for layer in head.layers))


def _layer_at(layer: LayerSpec, state_bits: int) -> LayerSpec:
    ratio = 2.0 ** (state_bits - layer.state_bits)
    return replace(
        layer,
        bias_int=np.rint(layer.bias_int * ratio).astype(np.int64),
        theta_int=np.rint(layer.theta_int * ratio).astype(np.int64),
        theta_fire_int=np.floor(layer.theta_fire_int * ratio).astype(np.int64),
        state_bits=state_bits,
    )


def preserved_shares(perceiver: Perceiver, chunks: Chunks, rule: ExitRule, batch: int = 256) -> list[dict[str, Any]]:
    """For every state scale that the thresholds fit: share proven, share really equal, and the doubts."""
    rows = []
    for bits in [None, *range(STATE_BITS_MIN, STATE_BITS_MAX + 1)]:
        try:
            model = perceiver if bits is None else replace(perceiver, head=at_scale(perceiver.head, bits))
        except ConfigError:
            continue
        answers, sure = [], []
        for start in range(0, len(chunks), batch):
            part = chunks[start : start + batch]
            answers += model.answers(part, rule)
            sure += model.replay(part, rule)
        rows.append({"f": "as exported" if bits is None else bits, **shares(answers, sure)})
    return rows


def shares(answers: list[Answer], sure: list[Answer]) -> dict[str, Any]:
    verdicts = [answer.verdict for answer in answers if answer.verdict is not None]
    doubts = Counter(v.decision or "spike" for v in verdicts if not v.preserved)
    equal = [really_equal(*pair) for pair in zip(answers, sure, strict=True)]
    wrong = sum(v.preserved and not same for v, same in zip(verdicts, equal, strict=True))
    return {
        "proven": sum(v.preserved for v in verdicts) / len(verdicts),
        "really_equal": sum(equal) / len(equal),
        **{kind: doubts[kind] / len(verdicts) for kind in ("spike", "chunk", "exit", "class")},
        "counterexamples": wrong,
    }


def random_model() -> tuple[Perceiver, Chunks]:
    rng = np.random.default_rng(0)
    head = specs.random_head(rng, 64, 64, 2)
    host = specs.random_host(rng, 64, 64, n_classes=10, policy_width=32, edge_widths=(32, 64))
    perceiver = Perceiver(head, host, COMPACT, tuple("0123456789"))
    return perceiver, cut(specs.random_clouds(rng, 64, COMPACT.n_points), COMPACT)


def bundle_model(name: str, data: str | None, split: str, limit: int | None) -> tuple[Perceiver, Chunks]:
    from asp_neuro.deployment import clouds_of, load_perceiver, open_bundle

    clouds = clouds_of(open_bundle(name), data, split, None, limit)
    perceiver = load_perceiver(name)
    return perceiver, cut(clouds.points, perceiver.chunking)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", help="a bundle, by file or by name")
    parser.add_argument("--data", help="where the bundle's data are")
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int, help="take the first clouds only")
    parser.add_argument("--threshold", type=float, help="exit at this margin (default: the certificate's)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.bundle:
        perceiver, chunks = bundle_model(args.bundle, args.data, args.split, args.limit)
    else:
        perceiver, chunks = random_model()
    rule = perceiver.exit_rule if args.threshold is None else ExitRule(args.threshold)
    costs = [head_cost(width, batch) for width in (64, 128) for batch in (1, 64, 256)]
    costs += [engine_cost(perceiver, chunks[:n], rule) for n in (1, 64)]
    found: dict[str, Any] = {"cost": costs, "exact_head_ms": exact_head_cost()}
    found["replay_ms"] = replay_cost(perceiver, chunks, rule)
    if args.bundle:
        found["preserved"] = preserved_shares(perceiver, chunks, rule)
    print(json.dumps(found) if args.json else as_text(found))


def as_text(found: dict[str, Any]) -> str:
    rows = [
        (row["what"], f"{row['us_per_observation']:.1f}", f"{row['us_with_guard']:.1f}", f"{row['overhead']:+.1%}")
        for row in found["cost"]
    ]
    parts = [table(rows, ("", "us/observation", "with guard", "overhead"))]
    parts.append(
        f"Exact head, 64 wide, 2 layers: {found['exact_head_ms']:.1f} ms an episode of 16 observations; "
        f"exact replay with the host: {found['replay_ms']:.1f} ms."
    )
    if "preserved" in found:
        heads = list(found["preserved"][0])
        lines = [[_cell(row[key]) for key in heads] for row in found["preserved"]]
        parts.append(table(lines, heads))
    return "\n\n".join(parts)


def _cell(value: Any) -> str:
    return f"{value:.1%}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
