"""How fast a deployed model answers: `python benchmarks/episodes.py [--bundle FILE|NAME] [--json] [--quick]`.

- whole episodes at full budget on one thread, chunks already made, one by one and in batches of 256, these also
  without verdicts on spike preservation and at the certified exit. Wanted: 200 clouds a second in batches (three
  times the paper's 66.2 on an H100), 66 one by one, and in batches at most three times what the bare float32 products
  of the same shapes take.
- memory of a run over as many clouds as ModelNet40 has, in a process of its own. Wanted: under 2 GB.

The shipped bundles, on built-in shapes (for the ModelNet10 bundle they are clouds like any others; its certificate says
nothing about them).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable

import numpy as np
from machine import peak_megabytes
from timing import Row, alternate, arguments, compared, one_thread, row, tell

from asp_neuro.data import load_clouds
from asp_neuro.heads.spec import Engine
from asp_neuro.model.episode import episodes, play
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.look import Answer, answers
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.runtime.deployment import load_perceiver
from asp_neuro.scenes.cloud import Chunks

SHIPPED = ("compact", "modelnet10")
N_MODELNET40 = 2468  # its test split
BATCH, SINGLE = 256, 24
IN_BATCHES, ONE_BY_ONE, BARE = "batch of 256", "one by one", "bare float32 products"
WANTED = {IN_BATCHES: "at most 5 ms", ONE_BY_ONE: "at most 15 ms"}


def shapes(perceiver: Perceiver, n: int) -> Chunks:
    """The chunks of n test clouds."""
    return perceiver.scenes(load_clouds("shapes", "test").points[:n])


def unwatched(perceiver: Perceiver, chunks: Chunks, rule: ExitRule, engine: Engine) -> list[Answer]:
    """Answers without verdicts."""
    looks = play(episodes(perceiver.model, chunks, rule), engine).looks
    return answers(looks, perceiver.model.task, rule)


def whole_episodes(name: str, rounds: int) -> list[Row]:
    perceiver, full = load_perceiver(name), ExitRule()
    chunks = shapes(perceiver, BATCH)
    one = [chunks[i : i + 1] for i in range(SINGLE)]

    trials = {
        IN_BATCHES: lambda: perceiver.answers(chunks, full),
        "batch of 256, no verdicts": lambda: unwatched(perceiver, chunks, full, perceiver.new_head()),
        "batch of 256, certified exit": lambda: perceiver.answers(chunks),
        ONE_BY_ONE: lambda: [perceiver.answers(part, full) for part in one],
        BARE: bare_products(perceiver, chunks),
    }
    if perceiver.exit_rule == full:
        del trials["batch of 256, certified exit"]
    found = alternate(trials, rounds)
    each = {how: seconds / (SINGLE if how == ONE_BY_ONE else BATCH) for how, seconds in found.items()}
    bare = each.pop(BARE)
    whole = row(
        f"{IN_BATCHES} against {BARE}, {name}", each[IN_BATCHES], "s/cloud", each[IN_BATCHES] / bare, BARE, "at most 3"
    )
    return [*compared(each, IN_BATCHES, "s/cloud", f", {name}", WANTED), whole]


def bare_products(perceiver: Perceiver, chunks: Chunks) -> Callable[[], None]:
    """The products of a batch at full budget and nothing else, cloud by cloud where that keeps them in the cache."""
    scene, mixer, head = perceiver.spec.scene, perceiver.spec.mixer, perceiver.head
    groups, k = chunks.members.shape[1:]
    n, looks = len(chunks), perceiver.budget
    once = [(groups * n, scene.token_in), (groups * n, scene.geometry), (groups * n, scene.token_out)]
    chunk = [] if scene.chunk is None else [(n, scene.chunk)]
    shapes_of = {
        n: [(groups * k, one.weight.shape) for one in (scene.edge_in, scene.edge_out)],
        1: [(rows, one.weight.shape) for rows, one in once],
        looks: [(rows, one.weight.shape) for rows, one in (*chunk, (n, mixer.gates))]
        + [(n, layer.weight_int.shape) for layer in head.layers],
    }
    rng = np.random.default_rng(0)
    pairs = {
        times: [
            (rng.random((rows, n_in), np.float32), rng.random((n_in, n_out), np.float32))
            for rows, (n_out, n_in) in these
        ]
        for times, these in shapes_of.items()
    }

    def run() -> None:
        for times, these in pairs.items():
            for _ in range(times):
                for left, right in these:
                    left @ right

    return run


def memory(name: str) -> float:
    """Peak megabytes of a run over a set of ModelNet40's size."""
    perceiver = load_perceiver(name)
    chunks = shapes(perceiver, 64)[np.arange(N_MODELNET40) % 64]
    for start in range(0, len(chunks), BATCH):
        perceiver.answers(chunks[start : start + BATCH], ExitRule(0.9))
    return peak_megabytes()


def memory_in_child(name: str) -> float:
    command = [sys.executable, __file__, "--memory", "--bundle", name]
    return float(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--bundle", metavar="FILE|NAME", help="instead of the shipped ones")
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    one_thread()
    if asked.memory:
        print(json.dumps(memory(asked.bundle)))
        return
    names = (asked.bundle,) if asked.bundle else SHIPPED[:1] if asked.quick else SHIPPED
    rows = [line for name in names for line in whole_episodes(name, 2 if asked.quick else 9)]
    if not asked.quick:
        what = f"peak memory, {N_MODELNET40} clouds, {names[-1]}"
        rows.append(row(what, memory_in_child(names[-1]), "MB", wanted="under 2,048 MB"))
    tell("Whole episodes, full budget unless said", rows, asked)


if __name__ == "__main__":
    main()
