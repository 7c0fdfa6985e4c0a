"""How hard the two ways to carve ModelNet are: simple classifiers on the validation clouds of each.

    python train/compare_splits.py [--data DIR] [--name modelnet40]     some minutes; needs scikit-learn

Only validation clouds are judged with, and only train clouds learned from. For each way is printed
the share of validation clouds that have a near copy in train, and the median gap to the nearest train cloud (near.py);
the share that the nearest train cloud gets right, of all, of the near half and of the far half; the share that a random
forest gets right, and the mean of its shares over classes. It sees the distances from 81 fixed places to a cloud.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.ensemble import RandomForestClassifier

from asp_neuro.data import CARVES, load_clouds, locate
from asp_neuro.data.near import NEAR, Surfaces
from asp_neuro.errors import AspError
from asp_neuro.report import progress, say, table

CANDIDATES = 24  # train clouds, nearest by their probed distances, among which the nearest one is looked for
TREES = 300


def nearest_ones(surfaces: Surfaces, probed: np.ndarray, n_train: int) -> tuple[np.ndarray, np.ndarray]:
    """For each cloud behind the first n_train: its nearest one among them, and the gap to it."""
    apart = cdist(probed[n_train:], probed[:n_train], "cityblock")
    candidates = np.argsort(apart, axis=1, kind="stable")[:, :CANDIDATES]
    gaps = np.array(
        [
            [surfaces.gap(n_train + i, j) for j in row]
            for i, row in enumerate(progress(candidates.tolist(), label="looking for the nearest clouds"))
        ]
    )
    best = gaps.argmin(axis=1)
    rows = np.arange(len(best))
    return candidates[rows, best], gaps[rows, best]


def by_class(right: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean([right[labels == label].mean() for label in np.unique(labels)]))


def judged(name: str, splits: str, data: str | None) -> tuple[str, ...]:
    """One row of the table."""
    place = locate(name, data)
    train, held = (load_clouds(place, split, splits=splits) for split in ("train", "validation"))
    both = train.joined(held)
    surfaces, n = Surfaces(both.points), len(train)
    probed = surfaces.probed()
    nearest, gap = nearest_ones(surfaces, probed, n)
    right = train.labels[nearest] == held.labels
    far = gap > np.median(gap)
    forest = RandomForestClassifier(TREES, random_state=0, n_jobs=1).fit(probed[:n], train.labels)
    guessed = forest.predict(probed[n:]) == held.labels
    shares = [(gap <= NEAR).mean(), right.mean(), right[~far].mean(), right[far].mean(), guessed.mean()]
    words = [f"{100.0 * share:.1f} %" for share in [*shares, by_class(guessed, held.labels)]]
    return (splits, f"{n} | {len(held)}", words[0], f"{np.median(gap):.2f}", *words[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="where ModelNet lies")
    parser.add_argument("--name", choices=("modelnet10", "modelnet40"), default="modelnet40")
    asked = parser.parse_args()
    headers = ("splits", "train | validation", "near copy in train", "median gap", "1-NN", "near half", "far half",
               "forest", "forest, class mean")  # fmt: skip
    print(table([judged(asked.name, splits, asked.data) for splits in CARVES], headers))


if __name__ == "__main__":
    try:
        main()
    except AspError as error:
        say(f"compare_splits: error: {error}")
        sys.exit(error.exit_code)
