"""From what a person types to clouds with labelled points: as `places`, for data sets of parts."""

from __future__ import annotations

import os
from pathlib import Path

from asp_neuro.data.parts import PartSet
from asp_neuro.data.shapenetpart import CARVES, FAR, form_of, read_shapenetpart
from asp_neuro.errors import MissingError, UsageError, nearest

PART_NAMES = ("shapenetpart",)
PART_CARVES = CARVES
INSIDE = (
    "", "shapenetpart", "ShapeNetPart", "shapenetcore_partanno_segmentation_benchmark_v0_normal",
    "shapenet_part_seg_hdf5_data", "hdf5_data",
)  # fmt: skip


def locate_parts(data: str | Path | None = None) -> Path:
    """Where ShapeNetPart lies: `data` (its name or a path), else $ASP_NEURO_DATA, else ./data."""
    given = None if data is None or str(data) in PART_NAMES else Path(data).expanduser()
    if given is not None and not os.path.exists(given):
        raise MissingError(f"{given}: no such folder or file{nearest(str(given), PART_NAMES)}")
    variable = os.environ.get("ASP_NEURO_DATA")
    bases = [given] if given is not None else [Path(p).expanduser() for p in (variable, "data") if p]
    for base in bases:
        for path in [base / part for part in INSIDE] if base.is_dir() else [base]:
            if form_of(path):
                return path
    if given is not None:
        raise MissingError(f"{given}: no ShapeNetPart there, in none of its three forms (docs/data.md)")
    places = f"$ASP_NEURO_DATA ({variable or 'not set'}), ./data"
    raise MissingError(f"shapenetpart not found; looked at {places}.\nSay where it is with --data FOLDER.")


def load_parts(
    data: str | Path | None, split: str, *, n_points: int = 1024, up: str | None = None, seed: int = 0,
    splits: str = FAR,
) -> PartSet:  # fmt: skip
    """One split of a data set of parts: `data` is a name of PART_NAMES, a path, or None.

    splits   "far": validation and calibration have no near copies in train; "official": the official lists
    """
    if splits not in PART_CARVES:
        raise UsageError(f"unknown splits '{splits}' of shapenetpart{nearest(splits, PART_CARVES)}")
    return read_shapenetpart(locate_parts(data), split, n_points, up=up or "y", seed=seed, splits=splits)
