"""Cluttered digits: a digit somewhere in a dark image, among pieces of other digits (Mnih et al. 2014, RAM).

    a digit of 28 x 28 pixels, anywhere in an image of 60 x 60; 4 pieces of 8 x 8 pixels, cut anywhere from other
    digits of the same split, anywhere; where they overlap the brighter pixel stays

Looking at the right place is the whole task. Images are generated: which digit, where, and which pieces follow from
seed, split and number alone. The digits are MNIST's (60,000 for train, validation and calibration, 10,000 for test), or
drawn by `strokes`, which needs no file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asp_neuro.data.clouds import SPLITS
from asp_neuro.data.pictures import ImageSet
from asp_neuro.data.splits import carve
from asp_neuro.data.strokes import strokes
from asp_neuro.errors import InputError, UsageError

DIGITS = tuple("0123456789")
DIGIT = 28  # pixels a side
HELD_OUT = {"validation": 3000, "calibration": 4000}  # of MNIST's 60,000; 53,000 train
DRAWN = {"train": 6000, "validation": 800, "calibration": 1200, "test": 1200}  # of the built-in digits


@dataclass(frozen=True)
class Rule:
    """How a scene is made."""

    size: int = 60
    pieces: int = 4
    piece: int = 8

    def __post_init__(self) -> None:
        if self.size < DIGIT:
            raise UsageError(f"images of {self.size} pixels are too small for digits of {DIGIT}")


def scatter(
    digits: np.ndarray, index: np.ndarray, rule: Rule, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Digits [N, 28, 28] and which of them [b] -> images [b, size, size] and the centres [b, 2] (x, y) of the digits.

    Pieces are cut from any of the N digits.
    """
    b, size, side, n = len(index), rule.size, rule.piece, rule.pieces
    out, row = np.zeros((b, size, size), dtype=np.uint8), np.arange(b)[:, None, None]
    which = rng.integers(0, len(digits), (b, n))
    cut = rng.integers(0, DIGIT - side + 1, (b, n, 2))
    put = rng.integers(0, size - side + 1, (b, n, 2))
    corner = rng.integers(0, size - DIGIT + 1, (b, 2))
    for number in range(n):
        y, x = _square(cut[:, number], side)
        _brighter(out, row, put[:, number], digits[which[:, number, None, None], y, x])
    _brighter(out, row, corner, digits[index])
    return out, corner[:, ::-1] + DIGIT // 2


def _square(corner: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Corners [b, 2] (y, x) -> rows [b, side, 1] and columns [b, 1, side]."""
    steps = np.arange(side)
    return corner[:, 0, None, None] + steps[:, None], corner[:, 1, None, None] + steps


def _brighter(out: np.ndarray, row: np.ndarray, corner: np.ndarray, patch: np.ndarray) -> None:
    y, x = _square(corner, patch.shape[1])
    out[row, y, x] = np.maximum(out[row, y, x], patch)


def cluttered(name: str, digits: np.ndarray, labels: np.ndarray, split: str, rule: Rule, seed: int) -> ImageSet:
    """One image for each digit of a split; to train on, they can be drawn anew."""
    index = np.arange(len(digits))
    pixels, centres = scatter(digits, index, rule, np.random.default_rng([seed, SPLITS.index(split)]))
    return ImageSet(
        pixels,
        labels.astype(np.int64),
        tuple(f"{split}_{i:05d}" for i in index),
        DIGITS,
        f"{name} ({split}, {rule.size} x {rule.size} pixels)",
        centres,
        lambda some, rng: scatter(digits, some, rule, rng)[0],
    )


def drawn_clutter(split: str, rule: Rule, seed: int = 0) -> ImageSet:
    """Built in: digits drawn by `strokes`."""
    digits, labels = strokes(DRAWN[split], SPLITS.index(split))
    return cluttered("strokes", digits, labels, split, rule, seed)


def mnist_clutter(folder: Path, split: str, rule: Rule, seed: int = 0) -> ImageSet:
    """From `mnist_train.npz` and `mnist_test.npz` (arrays images [n, 28, 28] uint8, labels)."""
    if split == "test":
        digits, labels = read_mnist(folder / "mnist_test.npz")
    else:
        digits, labels = read_mnist(folder / "mnist_train.npz")
        if len(digits) < 2 * sum(HELD_OUT.values()):
            raise InputError(f"{folder / 'mnist_train.npz'}: {len(digits)} digits are too few for the splits")
        chosen = carve([f"mnist_{i:05d}" for i in range(len(digits))], HELD_OUT)[split]
        digits, labels = digits[chosen], labels[chosen]
    return cluttered("clutter", digits, labels, split, rule, seed)


def read_mnist(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Digits [n, 28, 28] uint8 and labels [n]."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            digits, labels = stored["images"], stored["labels"]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: no MNIST with arrays 'images' and 'labels' ({error})") from None
    if digits.shape != (len(labels), DIGIT, DIGIT) or digits.dtype != np.uint8 or not np.isin(labels, range(10)).all():
        raise InputError(f"{path}: {digits.dtype} {list(digits.shape)}, expected uint8 [n, 28, 28] and labels 0 to 9")
    return digits, labels
