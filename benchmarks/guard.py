"""What spike preservation costs, and how much of a model's answers it proves. Prints tables.

    python benchmarks/guard.py                                  cost, on random networks of the shipped sizes
    python benchmarks/guard.py --bundle model.net [--data ...]  and the preserved share at state scales 2^12 .. 2^18

The head alone is timed with and without guard bands; the whole fast engine with and without verdicts; the exact replay
for each cloud. One thread. Another state scale re-rounds bias and
thresholds of every layer; what no longer fits 24 bits saturates and counts as not proven.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from episodes import unwatched
from timing import Row, alternate, arguments, compared, one_thread, row, specs, tell

from asp_neuro.errors import ConfigError
from asp_neuro.heads.soft.exact import run_exact
from asp_neuro.heads.soft.fast import FastHead
from asp_neuro.heads.soft.layer import STATE_BITS_MAX, STATE_BITS_MIN, LayerSpec
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.look import Answer
from asp_neuro.model.perceiver import Perceiver, really_equal
from asp_neuro.model.spec import ModelSpec
from asp_neuro.report import table
from asp_neuro.scenes.cloud import Chunking, Chunks

COMPACT = Chunking(n_points=512, n_groups=64, group_size=16, n_chunks=16)
N_STEPS = 16
REPLAYED = 8  # clouds a turn


def head_cost(width: int, batch: int, rounds: int) -> list[Row]:
    """The head alone, drives of LayerNorm's size."""
    rng = np.random.default_rng(0)
    spec = specs.random_head(rng, width, width, 2)
    drives = specs.random_drives(rng, N_STEPS, batch, width).astype(np.float64)
    bound = np.abs(drives).max(axis=(0, 1))

    def run(head: FastHead) -> None:
        head.start(batch)
        for x in drives:
            head.observe(x)

    plain, guarded = FastHead(spec, bound), FastHead(spec, bound, N_STEPS)
    found = alternate({"head, no guard": lambda: run(plain), "head, guard": lambda: run(guarded)}, rounds)
    each = {name: seconds / N_STEPS / batch for name, seconds in found.items()}
    return compared(each, "head, no guard", "s/observation", f", {width} wide, batch {batch}")


def engine_cost(perceiver: Perceiver, chunks: Chunks, rule: ExitRule, rounds: int) -> list[Row]:
    """Encoder, mixer, head, policy and exit, with and without a verdict per answer."""

    plain = perceiver.head.engine(perceiver.spec.drive_bound())
    trials = {
        "engine, no verdicts": lambda: unwatched(perceiver, chunks, rule, plain.fresh()),
        "engine, verdicts": lambda: perceiver.answers(chunks, rule),
    }
    looks = sum(answer.observations for answer in unwatched(perceiver, chunks, rule, plain.fresh()))
    each = {name: seconds / looks for name, seconds in alternate(trials, rounds).items()}
    return compared(each, "engine, no verdicts", "s/observation", f", batch {len(chunks)}")


def exact_cost(perceiver: Perceiver, chunks: Chunks, rule: ExitRule, rounds: int, width: int = 64) -> list[Row]:
    """An episode of the exact head alone, two layers, and of the exact replay, host included."""
    rng = np.random.default_rng(0)
    spec, drives = specs.random_head(rng, width, width, 2), specs.random_drives(rng, N_STEPS, 1, width)
    few = [chunks[i : i + 1] for i in range(REPLAYED)]
    trials = {
        "exact head": lambda: run_exact(spec, drives),
        "exact replay": lambda: [perceiver.replay(one, rule) for one in few],
    }
    found = alternate(trials, rounds)
    return [
        row(f"exact head, {width} wide, {N_STEPS} observations", found["exact head"], "s/cloud"),
        row("exact replay with its host", found["exact replay"] / REPLAYED, "s/cloud"),
    ]


def at_scale(model: ModelSpec, state_bits: int) -> ModelSpec:
    """The same model with the state of every layer of its head at 2^state_bits."""
    return replace(model, head=HeadSpec(tuple(_layer_at(layer, state_bits) for layer in model.head.layers)))


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
            model = perceiver if bits is None else Perceiver(at_scale(perceiver.spec, bits))
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
    perceiver = specs.random_perceiver(
        rng, width=64, n_neurons=64, n_classes=10, policy_width=32, edge_widths=(32, 64), chunking=COMPACT
    )
    return perceiver, perceiver.scenes(specs.random_clouds(rng, 64, COMPACT.n_points))


def bundle_model(name: str, data: str | None, split: str, limit: int | None) -> tuple[Perceiver, Chunks]:
    from asp_neuro.runtime.deployment import clouds_of, load_perceiver, open_bundle

    deployed = open_bundle(name)
    return load_perceiver(name), deployed.scenes(clouds_of(deployed, data, split, None, limit))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--bundle", help="a bundle, by file or by name")
    parser.add_argument("--data", help="where the bundle's data are")
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int, help="take the first clouds only")
    parser.add_argument("--threshold", type=float, help="exit at this margin (default: the certificate's)")
    asked = parser.parse_args()
    one_thread()
    if asked.bundle:
        perceiver, chunks = bundle_model(asked.bundle, asked.data, asked.split, asked.limit)
    else:
        perceiver, chunks = random_model()
    rule = perceiver.exit_rule if asked.threshold is None else ExitRule(asked.threshold)
    rounds = 3 if asked.quick else 40
    rows = [line for width in (64, 128) for line in head_cost(width, 256, rounds)]
    rows += [line for n in (1, 64) for line in engine_cost(perceiver, chunks[:n], rule, rounds)]
    rows += exact_cost(perceiver, chunks, rule, rounds)
    preserved = preserved_shares(perceiver, chunks, rule) if asked.bundle else []
    for shares_at in preserved:
        proven, equal = 100.0 * shares_at["proven"], 100.0 * shares_at["really_equal"]
        rows.append(row(f"preserved, f = {shares_at['f']}", proven, "%"))
        rows.append(row(f"really equal, f = {shares_at['f']}", equal, "%"))
    tell("Cost of spike preservation", rows, asked, as_text(preserved))


def as_text(preserved: list[dict[str, Any]]) -> str:
    if not preserved:
        return ""
    lines = [[f"{value:.1%}" if isinstance(value, float) else value for value in one.values()] for one in preserved]
    return table(lines, list(preserved[0]))


if __name__ == "__main__":
    main()
