"""Carve ShapeNetPart's train and val lists (asp_neuro/data/far.py) and store the lists that the data reader uses.

    python train/carve_parts.py DIR [--out FILE]     some minutes on one core; the same data give the same file

Looks at the official train and val lists alone, in their npz form; DIR is where it lies.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from asp_neuro import files
from asp_neuro.data import far
from asp_neuro.data.near import near_copies
from asp_neuro.data.parts import PartSet
from asp_neuro.data.shapenetpart import OFFICIAL, SYNSETS, read_shapenetpart
from asp_neuro.errors import AspError
from asp_neuro.report import say, table

OUT = Path(far.__file__).with_name(far.FILE)


def near_pairs(shapes: PartSet) -> np.ndarray:
    """[k, 2] near copies within each category."""
    found = []
    for label, kind in enumerate(shapes.classes):
        own = np.flatnonzero(shapes.labels == label)
        pairs = own[near_copies(shapes.points[own], far.NEAR, far.ALIKE)]
        say(f"{kind}: {len(own)} shapes, {len(pairs)} pairs of near copies")
        found.append(pairs)
    return np.concatenate(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="where ShapeNetPart lies")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    shapes = read_shapenetpart(asked.data, "train", splits=OFFICIAL)
    shapes = shapes.joined(read_shapenetpart(asked.data, "validation", splits=OFFICIAL))
    shapes = shapes.subset(sorted(range(len(shapes)), key=lambda i: shapes.names[i]))
    carved = far.carve(shapes.names, near_pairs(shapes))
    files.write_text(asked.out, far.text(carved))
    rows = []
    for synset, n in carved["shapes"].items():
        held = [len(carved[split].get(synset, [])) for split in ("validation", "calibration")]
        rows.append((SYNSETS[synset][0], n, n - sum(held), *held))
    print(table([*rows, ("all", *(sum(row[k] for row in rows) for k in range(1, 5)))],
                ("category", "shapes", "train", "validation", "calibration")))  # fmt: skip


if __name__ == "__main__":
    try:
        main()
    except AspError as error:
        say(f"carve: error: {error}")
        sys.exit(error.exit_code)
