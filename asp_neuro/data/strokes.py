"""Built-in digits, drawn with a pen: the task of MNIST without a file.

A digit is a few strokes through control points in a unit square. Control points are moved, the digit is stretched,
slanted and shifted, the pen is thin or thick; all uniformly at random. A pixel's brightness falls with its distance
from the nearest stroke. Only + - * / and square root, element by element: the same digits on every machine.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

SIDE = 28
MARGIN = 5.0  # pixels of a digit's box from the border, at least
MOVED = 0.05  # largest move of a control point, of the box
SLANT = 0.25
BOX = ((11.0, 17.0), (15.0, 19.0))  # smallest and largest width and height in pixels
PEN = (1.0, 1.9)  # half its width in pixels
ARC = 6  # segments of a curve between three control points

# Strokes through control points "x,y" of a unit square, y down. "-" is a line, "~" bends (Bezier: every second point).
DIGITS = (
    ("~ 0.5,0 1.05,0 1,0.5 1,1 0.5,1 0,1 0,0.5 0,0 0.5,0",),
    ("- 0.25,0.22 0.55,0 0.55,1",),
    (
        "~ 0.05,0.25 0.1,0 0.5,0 1,0 0.95,0.3 0.9,0.55 0,1",
        "- 0,1 1,1",
    ),
    (
        "~ 0.05,0.1 0.5,-0.1 0.85,0.15 1,0.45 0.4,0.48",
        "~ 0.4,0.48 1.1,0.5 0.95,0.8 0.6,1.15 0,0.9",
    ),
    ("- 0.7,1 0.7,0 0,0.65 1,0.65",),
    (
        "- 0.9,0 0.2,0 0.12,0.45",
        "~ 0.12,0.45 0.6,0.3 0.9,0.6 1,0.95 0.45,1 0.2,1 0,0.88",
    ),
    ("~ 0.8,0 0.2,0.1 0.05,0.6 0.05,1 0.5,1 1,1 0.95,0.7 0.8,0.4 0.1,0.6",),
    ("- 0,0 1,0 0.35,1",),
    (
        "~ 0.5,0.46 0.05,0.4 0.1,0.2 0.2,0 0.5,0 0.85,0 0.9,0.2 0.9,0.4 0.5,0.46",
        "~ 0.5,0.46 0,0.55 0.05,0.78 0.1,1 0.5,1 0.95,1 0.95,0.78 0.95,0.55 0.5,0.46",
    ),
    (
        "~ 0.9,0.3 0.85,0 0.5,0 0.05,0 0.05,0.28 0.1,0.55 0.5,0.52 0.85,0.5 0.9,0.2",
        "- 0.9,0.25 0.8,1",
    ),
)


def strokes(n: int, stream: int) -> tuple[np.ndarray, np.ndarray]:
    """n digits [n, 28, 28] uint8 and their labels [n]; another `stream`, other digits."""
    rng = np.random.default_rng([2611, stream])
    labels = rng.integers(0, len(DIGITS), n)
    return np.stack([draw(int(label), rng) for label in labels]), labels


def draw(label: int, rng: np.random.Generator) -> np.ndarray:
    """One digit [28, 28] uint8."""
    size = np.array([rng.uniform(*limits) for limits in BOX])
    slant, pen = rng.uniform(-SLANT, SLANT), rng.uniform(*PEN)
    corner = MARGIN + rng.uniform(0.0, 1.0, 2) * (SIDE - 2.0 * MARGIN - size)
    nearest = np.full((SIDE, SIDE), np.inf)
    for stroke in DIGITS[label]:
        kind, *points = stroke.split()
        at = np.array([[float(number) for number in point.split(",")] for point in points])
        at += rng.uniform(-MOVED, MOVED, at.shape)
        at[:, 0] -= slant * (at[:, 1] - 0.5)
        at = corner + at * size
        line = at if kind == "-" else bent(at)
        for start, end in pairwise(line):
            np.minimum(nearest, squared_distance(start, end), out=nearest)
    light = np.clip((pen + 0.5 - np.sqrt(nearest)) * 255.0, 0.0, 255.0)
    return np.asarray(np.rint(light).astype(np.uint8))


def bent(points: np.ndarray) -> np.ndarray:
    """Control points [2 k + 1, 2] -> points along k curves, one after the other."""
    t = (np.arange(ARC) / ARC)[:, None]
    parts = [
        (1.0 - t) * (1.0 - t) * a + 2.0 * t * (1.0 - t) * b + t * t * c
        for a, b, c in zip(points[0:-2:2], points[1:-1:2], points[2::2])
    ]
    return np.concatenate([*parts, points[-1:]])


def squared_distance(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """[28, 28] of every pixel's middle from a segment."""
    x, y = np.arange(SIDE)[None, :] + 0.5 - start[0], np.arange(SIDE)[:, None] + 0.5 - start[1]
    along = end - start
    length = along[0] * along[0] + along[1] * along[1]
    share = np.clip((x * along[0] + y * along[1]) / max(length, 1e-12), 0.0, 1.0)
    dx, dy = x - share * along[0], y - share * along[1]
    return np.asarray(dx * dx + dy * dy)
