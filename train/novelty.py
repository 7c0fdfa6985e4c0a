"""How a checkpoint does on validation clouds that resemble its training clouds, and on those that do not.

    python train/novelty.py modelnet_far modelnet40 [--data DIR]

A cloud's novelty is its chamfer distance (256 points, the larger of the two directions) to the nearest training cloud
of its class; the far half of the validation split is above the median. Full budget, mean over the learned, random and
farthest-point order. NLL is the negative log-likelihood after temperature scaling, one temperature for the whole split.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from scipy.spatial import cKDTree

from asp_neuro.data import CloudSet, load_clouds, locate
from asp_neuro.learn import checkpoint
from asp_neuro.learn.evaluation import evaluate, temperature_scaled_nll
from asp_neuro.learn.examples import examples_of
from asp_neuro.learn.training import load_model
from asp_neuro.report import progress, table

POINTS = 256
RULES = ("learned", "random", "fps_order")


def novelty(train: CloudSet, clouds: CloudSet) -> np.ndarray:
    """[n] distance of each cloud to the nearest training cloud of its class."""
    known = [np.asarray(points[:POINTS], dtype=np.float64) for points in train.points]
    trees = [cKDTree(points) for points in known]
    distance = np.full(len(clouds.labels), np.inf)
    for at in progress(range(len(distance)), label="measuring novelty"):
        points = np.asarray(clouds.points[at][:POINTS], dtype=np.float64)
        own = cKDTree(points)
        for other in np.flatnonzero(train.labels == clouds.labels[at]):
            there = trees[other].query(points)[0].mean()
            if there < distance[at]:
                distance[at] = min(distance[at], max(there, own.query(known[other])[0].mean()))
    return distance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="+", help="files or shipped names, all of one data set")
    parser.add_argument("--data", help="where the data set lies")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows, far = [], None
    for name in asked.checkpoints:
        model, recipe, classes, _ = load_model(checkpoint.find(name))
        if "validation" in recipe.data.also:
            parser.error(f"'{name}' was trained on the validation clouds: none of them is new to it")
        how = {"n_points": recipe.chunking.n_points, "classes": classes, "splits": recipe.data.splits}
        clouds = load_clouds(locate(recipe.data.name, asked.data), "validation", **how)
        if far is None:
            distance = novelty(load_clouds(locate(recipe.data.name, asked.data), "train", **how), clouds)
            far = distance > np.median(distance)
        examples = examples_of(clouds, recipe.chunking)
        scores = []
        for rule in RULES:
            logits = evaluate(model, examples, rule).logits[-1]
            right, nll = logits.argmax(axis=1) == clouds.labels, temperature_scaled_nll(logits, clouds.labels)
            scores.append([100.0 * right[~far].mean(), 100.0 * right[far].mean(), nll.mean(), nll[far].mean()])
        near, away, whole, novel = np.mean(scores, axis=0)
        rows.append((name, f"{near:.1f} %", f"{away:.1f} %", f"{whole:.3f}", f"{novel:.3f}"))
    print(table(rows, ("checkpoint", "near half right", "far half right", "NLL", "NLL, far half")))


if __name__ == "__main__":
    main()
