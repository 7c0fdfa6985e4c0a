"""Two ways to be free of azimuth, compared by short trainings from one stage: turned copies, or principal axes.

    python train/azimuth.py [--start modelnet_far] [--epochs 5] [--share 2] [--data DIR]

`turned` trains on clouds turned about up by any angle. `axes` turns every cloud, before it is cut, so that the longer
principal axis of its plan lies along x, the heavier tail ahead; training and validation clouds alike. Both are scored
on the validation clouds turned at random, `turned` on those as they stand too; full budget, averaged weights.
"""

from __future__ import annotations

import argparse
import dataclasses

import numpy as np
import torch

from asp_neuro.data import CloudSet, load_clouds, locate
from asp_neuro.learn import recipe as recipes
from asp_neuro.learn import training
from asp_neuro.learn.evaluation import evaluate
from asp_neuro.learn.examples import Examples, examples_of
from asp_neuro.learn.workshop import keep_memory
from asp_neuro.report import say
from asp_neuro.scenes.augment import turn_about_up
from asp_neuro.scenes.cloud import normalise


def on_axes(points: np.ndarray) -> np.ndarray:
    """Clouds [n, P, 3] turned about up: the longer axis of the plan along x, its heavier tail ahead."""
    unit = normalise(points)[0]
    x, z = (unit[..., axis] - unit[..., axis].mean(axis=1, keepdims=True) for axis in (0, 2))
    angle = np.arctan2(2.0 * (x * z).mean(axis=1), (x * x - z * z).mean(axis=1)) / 2.0
    turned = turn_about_up(unit, angle)
    along = turned[..., 0] - turned[..., 0].mean(axis=1, keepdims=True)
    return turn_about_up(turned, np.where((along**3).mean(axis=1) < 0.0, np.pi, 0.0)).astype(points.dtype)


def changed(clouds: CloudSet, points: np.ndarray) -> CloudSet:
    return dataclasses.replace(clouds, points=points.astype(np.float32))


def right(model: training.Model, held: Examples) -> str:
    return f"{100 * evaluate(model, held).accuracy()[-1]:.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", default="modelnet_far", help="the checkpoint that both start from")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--share", type=int, default=2, help="train on every so-manieth cloud")
    parser.add_argument("--data", help="where the data set lies")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    recipe = recipes.load("modelnet_far")
    short = {"start": asked.start, "epochs": asked.epochs, "learning_rate": 1e-3, "ema_decay": 0.99}
    place = locate(recipe.data.name, asked.data)
    clouds, held = (load_clouds(place, split, splits=recipe.data.splits) for split in ("train", "validation"))
    clouds = clouds.subset(np.arange(0, len(clouds), asked.share))
    angle = np.random.default_rng(0).uniform(-np.pi, np.pi, size=len(held))
    anyhow = changed(held, turn_about_up(held.points, angle))
    for name, turn in (("turned", 180.0), ("axes", 0.0)):
        how = recipe.changed(train=short, augment={"turn": turn, "cuts": 0, "mirror": name == "turned"})
        first, tests = clouds, {"turned at random": anyhow, "as they stand": held}
        if name == "axes":
            first = changed(clouds, on_axes(clouds.points))
            tests = {"turned at random": changed(held, on_axes(anyhow.points))}
        examples = examples_of(first, how.chunking, cache=False)
        run = training.start(how, clouds.classes, examples)
        for _ in range(asked.epochs):
            training.train_epoch(run, examples, training.Progress())
            run.epoch += 1
        with training.Averaged(run) as model:
            found = {test: right(model, examples_of(those, how.chunking, cache=False)) for test, those in tests.items()}
        say(f"{name}: " + ", ".join(f"{test} {score}" for test, score in found.items()))


if __name__ == "__main__":
    main()
