"""What a kind of scene looks like on the page, and what a kind of task believes: the place where a kind brings its own.

    SCENES[kind](spec, scenes, row, places, labels) -> plain values, with a `kind` that `viewer.js` has a drawer for
    TASKS[kind](labels, shares) -> one bar per class and look, and what the classes are called

A kind of scene without an entry is passed over with a word; a kind of task without one shows, for many targets, the
share of them that gets each label. Drawers of `viewer.js`:

    cloud   points (x, y, z in whole steps), seen (the look that first saw each point), labels (per look, of each point)
    image   width, height, pixels (a data: address), fixations (x, y in pixels, per place looked at), windows (widths)
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from asp_neuro.scenes.cloud import Chunks
from asp_neuro.scenes.image import Images
from asp_neuro.scenes.image_encoder import ImageSpec

GRID = 1000  # coordinates of a page are whole numbers of so many steps a unit
MAX_POINTS = 2048


def seen_at(chunks: Chunks, row: int, place: np.ndarray) -> np.ndarray:
    """[P] the observation (1, 2, ...) that first sees each point; 0: none of these does."""
    mask = chunks[np.array([row])].mask()[0]  # [M, P]
    looked = mask[place]  # [T, P]
    return np.where(looked.any(axis=0), looked.argmax(axis=0) + 1, 0)


def cloud(spec: Any, chunks: Chunks, row: int, place: np.ndarray, labels: np.ndarray | None) -> dict[str, Any]:
    """A cut cloud; `labels` [T, P]: of its points after each look, where the task has one for each."""
    points = np.rint(chunks.coordinates()[row] * GRID).astype(int)
    at = seen_at(chunks, row, place)
    _, first = np.unique(points, axis=0, return_index=True)  # unused rows repeat the first point
    keep = np.sort(first)
    keep = keep[:: max(1, -(-len(keep) // MAX_POINTS))]
    found = {"kind": "cloud", "points": points[keep].ravel().tolist(), "seen": at[keep].tolist()}
    if labels is not None and labels.shape[1] == len(points):
        found["labels"] = labels[:, keep].tolist()
    return found


def image(spec: ImageSpec, batch: Images, row: int, place: np.ndarray, labels: np.ndarray | None) -> dict[str, Any]:
    """An image and where it was looked at, with the windows of a glimpse."""
    pixels, how = batch.pixels[row].transpose(1, 2, 0), spec.gaze  # [y, x, c]
    return {
        "kind": "image",
        "width": how.size,
        "height": how.size,
        "pixels": "data:image/png;base64," + base64.b64encode(png(pixels)).decode("ascii"),
        "fixations": how.centres[place].tolist(),
        "windows": [how.grid * scale for scale in how.scales],
    }


def png(pixels: np.ndarray) -> bytes:
    """[y, x, 1 or 3] uint8 -> a PNG file."""
    height, width, channels = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)  # 0: no filter

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def one_class(labels: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """[T] and [T, C] -> [T, C] probabilities."""
    return shares


def many_targets(labels: np.ndarray, n_labels: int) -> np.ndarray:
    """[T, R] -> [T, C] share of the targets that get each label."""
    return np.stack([(labels == label).mean(axis=1) for label in range(n_labels)], axis=1)


Draw = Callable[[Any, Any, int, np.ndarray, np.ndarray | None], dict[str, Any]]
SCENES: dict[str, Draw] = {"cloud": cloud, "image": image}
TASKS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {"classify": one_class}
