"""Who trains, who validates, who calibrates, who tests: fixed, the same for every training seed.

    "random"     simple random
    "by number"  ModelNet's last shapes of each class, near copies together (see `by_number`)

A choice depends on the names alone (sorted first), so the order of files does not matter, and the same shapes fall into
the same split whether they come as npz, meshes or text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asp_neuro.data.clouds import SPLITS
from asp_neuro.errors import InputError, UsageError, nearest

RANDOM, BY_NUMBER = CARVES = ("random", "by number")  # how ModelNet is carved; RANDOM where nothing else is said
SPLIT_SEED = 2611  # never the training seed: a certificate needs the same calibration clouds for every model
SHARES = {"train": 0.60, "validation": 0.10, "calibration": 0.15, "test": 0.15}  # of a folder without splits
CARVED = {"validation": 0.10, "calibration": 0.15}  # of a folder's train, for the splits that it lacks


def check_carve(splits: str) -> str:
    if splits not in CARVES:
        raise UsageError(f"unknown splits '{splits}'{nearest(splits, CARVES)}")
    return splits


def class_and_number(name: str) -> tuple[str, int]:
    """night_stand_0200 -> night_stand, 200."""
    kind, _, number = name.rpartition("_")
    if not kind or not (number.isascii() and number.isdigit()):
        raise InputError(f"'{name}' does not end with a number, like chair_0889")
    return kind, int(number)


def shuffled(names: Sequence[str]) -> np.ndarray:
    """The positions of `names` in an order that is random and depends on the sorted names only."""
    by_name = np.array(sorted(range(len(names)), key=lambda i: names[i]), dtype=np.int64)
    return by_name[np.random.default_rng(SPLIT_SEED).permutation(len(names))]


def carve(names: Sequence[str], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Positions in `names`, ascending: a piece of the given size for each key of `sizes`, and 'train', the rest."""
    order = shuffled(names)
    parts, start = {}, 0
    for split, size in sizes.items():
        parts[split] = np.sort(order[start : start + size])
        start += size
    parts["train"] = np.sort(order[start:])
    return parts


def by_share(names: Sequence[str], shares: dict[str, float]) -> dict[str, np.ndarray]:
    """As `carve`, with sizes as shares of the names, rounded, at least one each if there are enough names."""
    n = len(names)
    wanted = {s: shares[s] for s in SPLITS if s in shares and s != "train"}
    sizes = {s: max(round(share * n), 1 if n > len(wanted) else 0) for s, share in wanted.items()}
    return carve(names, sizes)


def last_of_each_class(names: Sequence[str], labels: np.ndarray, share: float, most: int) -> np.ndarray:
    """[n] bool: the shapes with the highest numbers (`chair_0889`) of each class, a share of them, 3 to `most`.

    ModelNet's official test split is made like that; see train/trial.py.
    """
    number = np.array([class_and_number(name)[1] for name in names])
    last = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        n = min(most, max(3, round(share * len(own))))
        last[own[np.argsort(number[own])[-n:]]] = True
    return last
