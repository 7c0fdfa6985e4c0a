"""Imagenette: ten easy classes of ImageNet (fastai), from `imagenette128_{train,test}.npz`.

Each file holds `data` (all WebP files one after the other, uint8), `offsets` [n + 1], `labels`, `classes`, `names`.
Validation and calibration are carved from train by name.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from asp_neuro.data.photos import decode
from asp_neuro.data.pictures import ImageSet
from asp_neuro.data.splits import carve
from asp_neuro.errors import InputError
from asp_neuro.report import progress
from asp_neuro.scenes.image import Gaze

HELD_OUT = {"validation": 800, "calibration": 1200}  # of 9,469; 7,469 train
KEYS = ("data", "offsets", "labels", "classes", "names")


def imagenette(folder: Path, split: str, how: Gaze) -> ImageSet:
    """One split, as a model looks at it."""
    path = folder / f"imagenette128_{'test' if split == 'test' else 'train'}.npz"
    try:
        with np.load(path, allow_pickle=False) as stored:
            data, offsets, labels, classes, names = (stored[key] for key in KEYS)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: no Imagenette with arrays {', '.join(KEYS)} ({error})") from None
    if len(offsets) != len(labels) + 1 or len(names) != len(labels) or int(offsets[-1]) > len(data):
        raise InputError(f"{path}: {len(offsets)} offsets, {len(names)} names and {len(labels)} labels do not fit")
    # carved by the names as they were first read, bytes and all: trained models rest on these splits
    chosen = np.arange(len(labels)) if split == "test" else carve([str(name) for name in names], HELD_OUT)[split]
    names = [name.decode() if isinstance(name, bytes) else str(name) for name in names]
    pixels = np.empty((len(chosen), *how.shape), dtype=np.uint8)
    for row, i in enumerate(progress(chosen, label="reading pictures")):
        pixels[row] = decode(data[int(offsets[i]) : int(offsets[i + 1])].tobytes(), how, names[i]).pixels
    source = f"imagenette ({split}, {how.size} x {how.size} pixels)"
    called = tuple(names[i] for i in chosen)
    return ImageSet(pixels, labels[chosen].astype(np.int64), called, tuple(map(str, classes)), source)
