"""Where a training step spends its time, and what every recipe's step needs of memory.

`python benchmarks/training_step.py [--json] [--quick]`, one thread.

- time: the compact recipe, batch 32, float and on the integer grid, with and without imitation of the oracle. The whole
  step (batch, loss, backward, update) against its episode alone (`rollout` forward and backward, encoder left out) and
  against its head loop alone (every call of the head in that episode, on drives of the same size, forward and
  backward). Wanted: at most half of the step in the head loop.
- before: the same step of the version before (taken from this repository's history, with its recipes), both in turns,
  each in a process of its own. Wanted: for the ModelNet recipes it takes at least 1.6 times as long.
- memory: a float step, an integer step and an evaluation of each recipe in a process of its own, on made-up clouds in
  the number of its training split. Wanted: under 4 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from before import ROOT, take_out
from machine import peak_megabytes
from timing import ONE_THREAD, Row, alternate, arguments, compared, one_thread, row, specs, tell

from asp_neuro.learn import recipe as recipes
from asp_neuro.learn import training
from asp_neuro.learn.evaluation import evaluate
from asp_neuro.learn.examples import Examples
from asp_neuro.learn.model import follow
from asp_neuro.learn.recipe import Recipe
from asp_neuro.learn.training import Run, batch_loss
from asp_neuro.learn.workshop import keep_memory
from asp_neuro.scenes.cloud import cut

WHOLE = "whole step"
BEFORE = "6eebe53"  # the last commit whose edges run through the maps all at once
RATIO = {"modelnet_far": "at least 1.6", "modelnet40": "at least 1.6", "compact": ""}
WARM = 3
CHILD = """
import json, sys, time
import numpy as np, torch
from asp_neuro.learn import recipe as recipes, training
from asp_neuro.learn.examples import Examples
from asp_neuro.learn.workshop import keep_memory
from asp_neuro.scenes.cloud import cut
torch.set_num_threads(1)
keep_memory()
recipe = recipes.load(sys.argv[1]).changed(train={"start": ""}, augment={"cuts": 0})
rng, how, m = np.random.default_rng(0), recipe.train, recipe.chunking.n_chunks
chunks = cut(rng.standard_normal((how.batch_size, recipe.chunking.n_points, 3)), recipe.chunking)
examples = Examples(chunks, chunks.groups_of_chunks(), rng.integers(0, 8, how.batch_size))
run = training.start(recipe, tuple("abcdefgh"), examples)
if sys.argv[2] == "integer grid":
    run.model.fix_host_scales([examples.batch(np.arange(how.batch_size))])
    run.model.head.fix_scales(np.full((recipe.model.layers, recipe.model.neurons), 8.0))
    run.model.deploy = True
run.model.train()
for line in sys.stdin:
    began = time.process_time()
    noise = torch.rand(m, how.batch_size, m).clamp(1e-9, 1.0 - 1e-7)
    random, draw = torch.rand(how.batch_size, m + 1), torch.rand(how.batch_size, m + 2)
    mix = training.draw_mixup(draw, how.mixup) if how.mixup > 0.0 else None
    batch = examples.batch(np.arange(how.batch_size), recipe.augment, rng)
    loss, _ = training.batch_loss(run, batch, None, 0.5, noise, random, how.batch_size, mix)
    training._update(run, loss, 0.5, 0)
    print(json.dumps(time.process_time() - began), flush=True)
"""
# recipe: classes and training clouds
SIZES = {"compact": (8, 2000), "modelnet10": (10, 3191), "modelnet40": (40, 8143), "modelnet40_m4": (40, 8143)}


def made_up(recipe: Recipe, n_classes: int, n: int) -> Examples:
    """n examples that repeat 64 different random clouds."""
    rng = np.random.default_rng(0)
    chunks = cut(specs.random_clouds(rng, 64, recipe.chunking.n_points), recipe.chunking)
    again = np.arange(n) % 64
    return Examples(chunks[again], chunks.groups_of_chunks()[again], rng.integers(0, n_classes, n))


def start(recipe: Recipe, n_classes: int, examples: Examples, deploy: bool = False) -> Run:
    run = training.start(recipe, tuple(f"class {i}" for i in range(n_classes)), examples)
    if deploy:
        enter_grid(run, examples)
    run.model.train()
    return run


def enter_grid(run: Run, examples: Examples) -> None:
    run.model.fix_host_scales([examples.batch(np.arange(64))])
    run.model.head.fix_scales(np.full((run.recipe.model.layers, run.recipe.model.neurons), 8.0))
    run.model.deploy = True


def step(run: Run, examples: Examples, index: np.ndarray, rng: np.random.Generator) -> None:
    """One whole training step, as `training.train_epoch` makes it."""
    n_chunks, b = run.recipe.chunking.n_chunks, len(index)
    noise = torch.rand(n_chunks, b, n_chunks).clamp(1e-9, 1.0 - 1e-7)
    batch = examples.batch(index, run.recipe.augment, rng)
    loss, _ = batch_loss(run, batch, None, 0.5, noise, torch.rand(b, n_chunks + 1), b)
    training._update(run, loss, 0.5, 0)


def head_loop(run: Run, batch: int) -> Callable[[], None]:
    """Every call of the head in an episode: M single steps with gradients, and the oracle's looks ahead without."""
    how, head, n_chunks = run.recipe.train, run.model.head, run.recipe.chunking.n_chunks
    drives = torch.randn(n_chunks, batch, run.recipe.model.width, requires_grad=True)
    ahead = torch.randn(batch * n_chunks, run.recipe.model.width)
    n_ahead = min(how.imitation_steps, n_chunks - 1) if how.imitation > 0.0 else 0

    def loop() -> None:
        head.zero_grad()
        folded, state, total = head.fold(), head.start(batch), torch.zeros(())
        with torch.no_grad():
            for _ in range(n_ahead):
                head.step(ahead, head.start(len(ahead)), folded)
        for drive in drives:
            state = head.step(drive, state, folded)
            total = total + state.membrane[-1].mean()
        total.backward()

    return loop


def trials(run: Run, examples: Examples) -> dict[str, Callable[[], None]]:
    rng, b, n_chunks = np.random.default_rng(0), run.recipe.train.batch_size, run.recipe.chunking.n_chunks
    index = np.arange(b)
    with torch.no_grad():
        sight = run.model.look(examples.batch(index))
    sight = sight._replace(gates=sight.gates.requires_grad_(), geometry=sight.geometry.requires_grad_())
    order = torch.arange(n_chunks).expand(b, -1)

    def episode() -> None:
        run.model.zero_grad()
        run.model.rollout(sight, follow(order), n_chunks).logits.square().mean().backward()

    return {
        WHOLE: lambda: step(run, examples, index, rng),
        "episode, given order": episode,
        "head loop": head_loop(run, b),
    }


def times(modes: int, rounds: int) -> list[Row]:
    """The parts of a step, in the first so many modes."""
    recipe = recipes.load("compact")
    examples = made_up(recipe, 8, 64)
    rows: list[Row] = []
    table = (
        ("float", False, recipe.train.imitation),
        ("integer grid", True, recipe.train.imitation),
        ("float, no imitation", False, 0.0),
    )
    for name, deploy, imitation in table[:modes]:
        run = start(recipe.changed(train={"imitation": imitation}), 8, examples, deploy)
        found = alternate(trials(run, examples), rounds)
        rows += compared(found, WHOLE, "s", f", {name}", {"head loop": "at most 0.5"})
    return rows


def against_before(names: list[str], rounds: int) -> list[Row]:
    """Whole steps of this version and of the one before, in turns."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        take_out(BEFORE, Path(folder), "asp_neuro", "train/recipes")
        for name in names:
            for mode in ("float", "integer grid"):
                recipe = Path(folder) / "train" / "recipes" / f"{name}.toml"
                new, old = in_turns([ROOT, Path(folder)], [str(recipe), mode], rounds)
                rows.append(row(f"{WHOLE}, {name}, {mode}", new, "s"))
                what = f"{WHOLE} of the version before, {name}, {mode}"
                rows.append(row(what, old, "s", old / new, "this version", RATIO[name]))
    return rows


def in_turns(packages: list[Path], asked: list[str], rounds: int) -> np.ndarray:
    """[packages, rounds] seconds of CPU of a step."""
    both = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, *asked],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ONE_THREAD | {"PYTHONPATH": str(package)},
            cwd=package,
        )
        for package in packages
    ]
    try:
        told = [[one_step(process) for process in both] for _ in range(WARM + rounds)]
    finally:
        for process in both:
            process.kill()
            process.wait()
    return np.array(told[WARM:]).T


def one_step(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(json.loads(process.stdout.readline()))


def megabytes(name: str) -> float:
    """Largest resident size of this process after steps of a recipe."""
    recipe = recipes.load(name)
    n_classes, n = SIZES[name]
    examples = made_up(recipe, n_classes, n)
    run, rng = start(recipe, n_classes, examples), np.random.default_rng(0)
    step(run, examples, np.arange(recipe.train.batch_size), rng)
    enter_grid(run, examples)
    step(run, examples, np.arange(recipe.train.batch_size), rng)
    few = np.arange(64)
    evaluate(run.model, Examples(examples.chunks[few], examples.lists[few], examples.labels[few]))
    return peak_megabytes()


def in_child(name: str) -> float:
    command = [sys.executable, __file__, "--memory-of", name]
    return float(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--memory-of", choices=SIZES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    one_thread()
    torch.set_num_threads(1)
    keep_memory()  # as `asp-neuro train` does
    if asked.memory_of is not None:
        print(json.dumps(megabytes(asked.memory_of)))
        return
    rows = times(1, 2) if asked.quick else times(3, 9)
    rows += against_before(["compact"], 1) if asked.quick else against_before(list(RATIO), 9)
    if not asked.quick:
        peaks = {name: in_child(name) for name in SIZES}
        rows += [row(f"peak memory, {name}", peak, "MB") for name, peak in peaks.items()]
        rows.append(row("largest peak memory of all recipes", max(peaks.values()), "MB", wanted="under 4,096 MB"))
    tell("Training step, compact recipe, batch 32", rows, asked)


if __name__ == "__main__":
    main()
