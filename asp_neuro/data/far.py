"""ShapeNetPart's train and val lists, carved anew: validation and calibration shapes have no near copy in train.

Many shapes of ShapeNetPart are near copies of others (half of the airplanes are), so a model scores higher on the
official val list than on new shapes, and a promise calibrated there breaks on test. Here near copies (`near`, two
clouds of 1,024 points drawn at random: NEAR spacings apart at most) make groups, and a group goes to one split as a
whole. Groups come in a random order that depends on their names alone; each category gives the shares below, at least
LEAST shapes a split. A group that has no room, or would take more than a MOST-th of it, trains: the largest has half of
the airplanes.

The result is stored (shapenetpart_splits.json, made by train/carve_parts.py) and goes by name.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np

from asp_neuro.data.near import groups
from asp_neuro.data.splits import shuffled
from asp_neuro.errors import InputError

FILE = "shapenetpart_splits.json"
NEAR = 1.15  # spacings: two random samples of one surface are 0.94 to 1.12 apart
ALIKE = 0.02  # mean difference of distances to the probes of `near`, beyond which no pair is compared
SHARES = {"calibration": 0.09, "validation": 0.07}
LEAST = 3
MOST = 8


def wanted(counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """{split: {category: shapes}} for categories of so many shapes."""
    return {split: {c: max(LEAST, round(share * n)) for c, n in counts.items()} for split, share in SHARES.items()}


def carve(names: Sequence[str], pairs: np.ndarray) -> dict[str, Any]:
    """What the file holds, for names CATEGORY/ID of the train and val lists and the pairs of near copies in them."""
    group = groups(len(names), pairs)
    counts = dict(sorted(Counter(name.split("/")[0] for name in names).items()))
    members: dict[int, list[int]] = {}
    for i in shuffled(names):
        members.setdefault(int(group[i]), []).append(int(i))
    found: dict[str, Any] = {"near": NEAR, "shapes": counts}
    for split, room in wanted(counts).items():
        taken = _fill(members, names, dict(room))
        found[split] = _by_category(names[i] for g in taken for i in members.pop(g))
    return found


def _fill(members: Mapping[int, list[int]], names: Sequence[str], room: dict[str, int]) -> list[int]:
    """The groups, one after the other, for which there is room; all of a group are of one category."""
    taken = []
    largest = {kind: max(1, n // MOST) for kind, n in room.items()}
    for g, own in members.items():
        kind = names[own[0]].split("/")[0]
        if len(own) <= min(room[kind], largest[kind]):
            room[kind] -= len(own)
            taken.append(g)
    return taken


def _by_category(names: Iterable[str]) -> dict[str, list[str]]:
    """{category: ids}, both ascending."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        kind, _, shape = name.partition("/")
        found.setdefault(kind, []).append(shape)
    return found


def text(carved: Mapping[str, Any]) -> str:
    """As JSON, a category on each line."""
    parts = []
    for key, value in carved.items():
        rows = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()] if isinstance(value, dict) else []
        parts.append(f" {json.dumps(key)}: " + ("{\n  " + ",\n  ".join(rows) + "\n }" if rows else json.dumps(value)))
    return "{\n" + ",\n".join(parts) + "\n}\n"


@functools.cache
def stored() -> dict[str, Any]:
    """The carve that comes with the package."""
    return json.loads((resources.files("asp_neuro.data") / FILE).read_text(encoding="utf-8"))


@functools.cache
def _held_out() -> dict[str, str]:
    """name -> split, of the shapes that are held out."""
    carved = stored()
    return {f"{kind}/{shape}": split for split in SHARES for kind, own in carved[split].items() for shape in own}


def in_split(names: Sequence[str], split: str, where: object) -> np.ndarray:
    """Positions, ascending, of the shapes (train and val lists together) that belong to `split`."""
    known, held = stored()["shapes"], _held_out()
    for name in names:
        if name.split("/")[0] not in known:
            raise InputError(f"{where}: '{name}' is of no category of ShapeNetPart")
    return np.flatnonzero([held.get(name, "train") == split for name in names])
