"""Carve ModelNet's train split by number (asp_neuro/data/by_number.py) and store the lists that the data reader uses.

    python train/carve.py [--data DIR] [--out FILE]     some minutes on one core; the same data give the same file

Looks at the official train split alone, in its npz form.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from asp_neuro import files
from asp_neuro.data import CloudSet, by_number, load_clouds, locate
from asp_neuro.data.modelnet import MODELNET10
from asp_neuro.data.near import near_copies
from asp_neuro.errors import AspError
from asp_neuro.report import say, table

OUT = Path(by_number.__file__).with_name(by_number.FILE)


def official_train(data: str | None) -> CloudSet:
    """All of it, in the order of the names."""
    place = locate("modelnet40", data)
    parts = [load_clouds(place, split) for split in ("train", "validation", "calibration")]
    whole = parts[0].joined(parts[1]).joined(parts[2])
    return whole.subset(sorted(range(len(whole)), key=lambda i: whole.names[i]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="where ModelNet40 lies")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    clouds = official_train(asked.data)
    carved = by_number.carve(clouds.names, near_copies(clouds.points), MODELNET10)
    files.write_text(asked.out, by_number.text(carved))
    n_copies = sum(map(len, carved["copies"]))
    say(f"{asked.out}: {len(clouds)} shapes, {n_copies} of them in {len(carved['copies'])} groups of near copies")
    rows = []
    for kind, n in carved["shapes"].items():
        held = [len(carved[split].get(kind, [])) for split in ("validation", "calibration")]
        rows.append((kind, n, n - sum(held), *held))
    print(table([*rows, ("all", *(sum(row[k] for row in rows) for k in range(1, 5)))],
                ("class", "shapes", "train", "validation", "calibration")))  # fmt: skip


if __name__ == "__main__":
    try:
        main()
    except AspError as error:
        say(f"carve: error: {error}")
        sys.exit(error.exit_code)
