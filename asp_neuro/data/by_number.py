"""ModelNet's train split, carved by number: the last shapes of each class validate and calibrate, near copies together.

    train < validation < calibration < test, by the number in the name (chair_0889)

The official split goes by number too: its test split has the highest numbers of each class, at most 100. Near copies
(`near`) never stand on both sides of a cut: a group of them stands where its median number puts it, and where it does
not fit as a whole, it stays on the side of train. One carve serves both ModelNets: what ModelNet10 holds out is what
ModelNet40 holds out of its ten classes, so weights trained on the train part of one have seen nothing that the other
holds out.

The result is stored (modelnet_splits.json, made by train/carve.py) and goes by name, so it is the same for every form
of ModelNet.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np

from asp_neuro.data.near import NEAR, groups
from asp_neuro.data.splits import class_and_number
from asp_neuro.errors import InputError

FILE = "modelnet_splits.json"
HELD_OUT = ("calibration", "validation")  # the last first
MOST = 100  # shapes of a class that are held out, as in the official test split
SHARE = {True: 0.26, False: 0.16}  # of a class that is held out; True: one of ModelNet10's, which has fewer shapes
CALIBRATION = {True: 3 / 4, False: 2 / 3}  # of what is held out


def wanted(counts: Mapping[str, int], ten: Iterable[str]) -> dict[str, dict[str, int]]:
    """{split: {class: shapes}} for classes of so many shapes."""
    ten = set(ten)
    held = {c: min(MOST, round(SHARE[c in ten] * n)) for c, n in counts.items()}
    calibration = {c: round(CALIBRATION[c in ten] * n) for c, n in held.items()}
    return {"calibration": calibration, "validation": {c: held[c] - calibration[c] for c in counts}}


def carve(names: Sequence[str], pairs: np.ndarray, ten: Iterable[str]) -> dict[str, Any]:
    """What the file holds, for the names of the official train split (sorted) and the pairs of near copies in it."""
    group = groups(len(names), pairs)
    kinds = [class_and_number(name)[0] for name in names]
    counts = dict(sorted(Counter(kinds).items()))
    members = [np.flatnonzero(group == first) for first in _from_the_last(names, kinds, group)]
    found: dict[str, Any] = {"near": NEAR, "shapes": counts}
    for split, room in wanted(counts, ten).items():
        taken = _fill(members, kinds, dict(room))
        members = [m for m in members if m[0] not in taken]
        found[split] = _numbers(names[i] for m in taken.values() for i in m)
    found["copies"] = [[names[i] for i in np.flatnonzero(group == g)] for g in np.flatnonzero(np.bincount(group) > 1)]
    return found


def _from_the_last(names: Sequence[str], kinds: Sequence[str], group: np.ndarray) -> list[int]:
    """Groups by the median of their members' numbers, each as a share of its class, the highest first."""
    numbers = np.array([class_and_number(name)[1] for name in names])
    most = {kind: numbers[[k == kind for k in kinds]].max() for kind in set(kinds)}
    place = numbers / np.array([most[kind] for kind in kinds])
    firsts = np.unique(group)
    median = np.array([np.median(place[group == first]) for first in firsts])
    return firsts[np.argsort(-median, kind="stable")].tolist()


def _fill(members: list[np.ndarray], kinds: Sequence[str], room: dict[str, int]) -> dict[int, np.ndarray]:
    """The groups, one after the other, for whose members of every class there is room."""
    taken = {}
    for group in members:
        needs = Counter(kinds[i] for i in group)
        if all(room[kind] >= n for kind, n in needs.items()):
            taken[int(group[0])] = group
            for kind, n in needs.items():
                room[kind] -= n
    return taken


def _numbers(names: Iterable[str]) -> dict[str, list[int]]:
    """{class: numbers}, both ascending."""
    found: dict[str, list[int]] = {}
    for kind, number in sorted(map(class_and_number, names)):
        found.setdefault(kind, []).append(number)
    return found


def text(carved: Mapping[str, Any]) -> str:
    """As JSON, a class or a group on each line, so that a change can be read."""
    parts = []
    for key, value in carved.items():
        rows = [json.dumps(row) for row in value] if isinstance(value, list) else []
        if isinstance(value, dict):
            rows = [f"{json.dumps(kind)}: {json.dumps(row)}" for kind, row in value.items()]
        first, last = ("[", "]") if isinstance(value, list) else ("{", "}")
        whole = f"{first}\n  " + ",\n  ".join(rows) + f"\n {last}" if rows else json.dumps(value)
        parts.append(f" {json.dumps(key)}: {whole}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


@functools.cache
def stored() -> dict[str, Any]:
    """The carve that comes with the package."""
    return json.loads((resources.files("asp_neuro.data") / FILE).read_text(encoding="utf-8"))


@functools.cache
def _held_out() -> dict[str, str]:
    """name -> split, of the shapes that are held out."""
    carved = stored()
    return {
        f"{kind}_{number:04d}": split
        for split in HELD_OUT
        for kind, numbers in carved[split].items()
        for number in numbers
    }


def in_split(names: Sequence[str], split: str, where: object) -> np.ndarray:
    """Positions, ascending, of the official train shapes that belong to `split`."""
    counts, held = stored()["shapes"], _held_out()
    for name in names:
        kind, number = class_and_number(name)
        if not 1 <= number <= counts.get(kind, 0) or name != f"{kind}_{number:04d}":
            raise InputError(
                f"{where}: '{name}' is not a shape of ModelNet40's official train split, which is all that "
                'splits = "by number" knows; data.splits = "random" divides any shapes'
            )
    return np.flatnonzero([held.get(name, "train") == split for name in names])
