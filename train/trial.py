"""A short training to compare recipes by; the last shapes of each class of the train split are held out.

    python train/trial.py modelnet_base [--set model.moments=true chunking.n_groups=128] [--epochs 12] [--data DIR]

The official split of ModelNet goes by number: the shapes with the highest numbers of a class are the test split, and
neighbours in number often come from one source. A random validation split therefore has near copies of its clouds in
training, and hardly predicts the test split. Here the last 22 % (at most 100) of each class of the *train* split are
held out, which is the same kind of split. Only the classifier is trained: random orders, no imitation. The answers are
those of the averaged weights at full budget, mean over a random and the farthest-point order; surprise is the negative
log-likelihood at the best temperature.
"""

from __future__ import annotations

import argparse
import dataclasses

import numpy as np
import tomli
import torch
import torch.nn.functional as F

from asp_neuro import recipe as recipes
from asp_neuro import training
from asp_neuro.data import load, locate
from asp_neuro.evaluation import evaluate
from asp_neuro.examples import Examples, examples_of
from asp_neuro.report import say

SHARE, MOST = 0.22, 100
RULES = ("random", "fps_order")
SHARPER = (0.8, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)


def last_of_each_class(names: tuple[str, ...], labels: np.ndarray) -> np.ndarray:
    """[n] bool: the shapes with the highest numbers (`chair_0889`) of each class."""
    number = np.array([int(name.rsplit("_", 1)[1]) for name in names])
    held = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        n = min(MOST, max(3, round(SHARE * len(own))))
        held[own[np.argsort(number[own])[-n:]]] = True
    return held


def part(examples: Examples, keep: np.ndarray) -> Examples:
    """The chosen clouds, in all their cuts."""
    cuts = len(examples.chunks) // len(examples)
    rows = (np.flatnonzero(keep)[None] + len(keep) * np.arange(cuts)[:, None]).ravel()
    return Examples(examples.chunks[rows], examples.lists[rows], examples.labels[keep])


def score(model: training.Model, held: Examples) -> tuple[float, float]:
    """Share of right answers and surprise, mean over the rules."""
    labels, found = torch.from_numpy(held.labels), []
    for rule in RULES:
        logits = torch.from_numpy(evaluate(model, held, rule).logits[-1])
        right = (logits.argmax(dim=1) == labels).double().mean()
        found.append([float(right), min(float(F.cross_entropy(logits * by, labels)) for by in SHARPER)])
    right, surprise = np.mean(found, axis=0)
    return right, surprise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", help="a shipped name or a TOML file")
    parser.add_argument("--set", nargs="*", default=[], metavar="SECTION.KEY=VALUE", help="changes of the recipe")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--data", help="where the data set lies")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    plain = recipes.load(asked.recipe).as_dict()
    for change in asked.set:
        for section, values in tomli.loads(change).items():
            plain[section].update(values)
    how = recipes.from_dict(asked.recipe, plain)
    alone = {"random_share": 1.0, "imitation": 0.0, "start": "", "ema": 0.998}
    how = how.changed(train={"epochs": asked.epochs, "deploy_epochs": 0, **alone})
    clouds = load(locate(how.data.name, asked.data), "train", n_points=how.chunking.n_points)
    examples = examples_of(clouds, how.chunking, change=how.augment, seed=how.seed)
    out = last_of_each_class(clouds.names, clouds.labels)
    train = part(examples, ~out)
    held = part(dataclasses.replace(examples, chunks=examples.chunks[np.arange(len(out))]), out)
    run = training.start(how, clouds.classes, train)
    weights = sum(p.numel() for p in run.model.parameters())
    say(f"{len(train)} clouds to train on, {len(held)} held out, {weights} weights")
    for _ in range(asked.epochs):
        row = training.train_epoch(run, train, training.Progress())
        run.epoch += 1
        with training.Averaged(run) as model:
            right, surprise = score(model, held)
        say(f"epoch {run.epoch}: loss {row['loss']:.3f}, {100 * right:.1f} % right, surprise {surprise:.3f}")
    with training.Averaged(run) as model:
        for forgotten in range(1, 5):  # quarter by quarter
            training.forget_frequencies(model, train.labels, 0.25)
            say(f"with train.forget = {forgotten / 4}: {100 * score(model, held)[0]:.1f} % right")


if __name__ == "__main__":
    main()
