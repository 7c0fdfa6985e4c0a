"""A short training to compare recipes by; the last shapes of each class of the train split are held out.

    python train/trial.py modelnet_far [--set model.moments=false scene.n_groups=128] [--epochs 12] [--data DIR]

The official split of ModelNet goes by number: the highest numbers of a class are the test split. A random validation
split has near copies of its clouds in training, and hardly predicts the test split. Here the last 22 % (at most 100) of
each class of the *train* split are held out, which is the same kind of split. Only the classifier is trained: random
orders, no imitation. The answers are those of the averaged weights at full budget, mean over a random and the
farthest-point order; NLL is the negative log-likelihood after temperature scaling.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import torch

from asp_neuro import plain
from asp_neuro.data import load_clouds, locate
from asp_neuro.data.splits import last_of_each_class
from asp_neuro.errors import AspError, ConfigError
from asp_neuro.learn import recipe as recipes
from asp_neuro.learn import training
from asp_neuro.learn.evaluation import evaluate, temperature_scaled_nll
from asp_neuro.learn.examples import Examples, examples_of
from asp_neuro.learn.workshop import keep_memory
from asp_neuro.report import say

SHARE, MOST = 0.22, 100
RULES = ("random", "fps_order")


def score(model: training.Model, held: Examples) -> tuple[float, float]:
    """Share of right answers and mean NLL after temperature scaling, mean over the rules."""
    scores = []
    for rule in RULES:
        logits = evaluate(model, held, rule).logits[-1]
        nll = temperature_scaled_nll(logits, held.labels).mean()
        scores.append([(logits.argmax(axis=1) == held.labels).mean(), nll])
    right, nll = np.mean(scores, axis=0)
    return right, nll


def changes(text: str) -> dict[str, dict[str, Any]]:
    """SECTION.KEY=VALUE, the value as TOML has it."""
    try:
        sections = plain.toml(text.encode(), f"--set {text}")
    except ConfigError:
        raise ConfigError(f"--set {text}: not SECTION.KEY=VALUE as in TOML") from None
    if not all(isinstance(values, dict) for values in sections.values()):
        raise ConfigError(f"--set {text}: a section is missing, as in train.mixup=0.3")
    return recipes.translated(f"--set {text}", sections)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", help="a shipped name or a TOML file")
    parser.add_argument("--set", nargs="*", default=[], metavar="SECTION.KEY=VALUE", help="changes of the recipe")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--data", help="where the data set lies")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    tables = recipes.load(asked.recipe).as_dict()
    for change in asked.set:
        for section, values in changes(change).items():
            tables[section] = {**tables.get(section, {}), **values}
    how = recipes.from_dict(asked.recipe, tables)
    alone = {"random_share": 1.0, "imitation": 0.0, "start": "", "policy_only": False, "ema_decay": 0.998}
    how = how.changed(train={"epochs": asked.epochs, "qat_epochs": 0, **alone})
    place, rule = locate(how.data.name, asked.data), how.data.splits
    clouds = load_clouds(place, "train", n_points=how.chunking.n_points, splits=rule)
    last = last_of_each_class(clouds.names, clouds.labels, SHARE, MOST)
    train = examples_of(clouds.subset(~last), how.chunking, change=how.augment, seed=how.seed)
    held = examples_of(clouds.subset(last), how.chunking)
    run = training.start(how, clouds.classes, train)
    weights = sum(p.numel() for p in run.model.parameters())
    say(f"{len(train)} clouds to train on, {len(held)} held out, {weights} weights")
    for _ in range(asked.epochs):
        row = training.train_epoch(run, train, training.Progress())
        run.epoch += 1
        with training.Averaged(run) as model:
            right, nll = score(model, held)
        say(f"epoch {run.epoch}: loss {row['loss']:.3f}, {100 * right:.1f} % right, NLL {nll:.3f}")
    with training.Averaged(run) as model:
        for quarters in range(1, 5):  # each call adjusts by one more quarter
            training.adjust_logits(model, train.labels, 0.25)
            say(f"with train.logit_adjustment = {quarters / 4}: {100 * score(model, held)[0]:.1f} % right")


if __name__ == "__main__":
    try:
        main()
    except AspError as error:
        say(f"trial: error: {error}")
        sys.exit(error.exit_code)
