"""Has a model seen this shape before, under another sampling? From a few bytes for each training cloud.

    frame     the 5 and 95 % quantiles of each axis: middle to the origin, half their diagonal to 1; strays do not count
    print     the distance to the FOURTH nearest point from each of 48 fixed places, in steps of 1/128, a byte each
    apart     the mean difference of two prints

The fourth, because one stray may lie anywhere. Two samples (1,024 points) of one built-in shape, noise, strays and all,
are mostly less than ALIKE apart, the nearest of many other shapes hardly ever; in ModelNet, which has near copies
(`near.py`), more often. So a few alike clouds are nothing, and many are shapes that were trained on.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from asp_neuro.data.intake import draw
from asp_neuro.errors import InputError

N_PROBES, REACH = 48, 1.3
NEIGHBOUR = 4
STEPS = 128.0  # of the unit
ALIKE = 0.017  # mean difference of two prints of one shape
ALIKE_BY_NAME = 3 * ALIKE  # where a training cloud has the same name
MARK = 4  # bytes of the hash of a name
MOST = 1024  # training clouds that are remembered: 72 KB
NOTABLE, NOTABLE_SHARE = 3, 0.1  # alike clouds that are worth a word: so many, and such a share


@dataclass(frozen=True)
class Alike:
    """Calibration clouds that look like training clouds."""

    by_shape: int
    by_name: int  # the same class and file name, and a similar shape
    n: int
    first: str  # one of them

    @property
    def text(self) -> str:
        named = f", {self.by_name} of them under the same name" if self.by_name else ""
        return (
            f"{self.by_shape} of {self.n} calibration clouds look like clouds that the model was trained on{named} "
            f"(for one: {self.first}). If these are the same objects, sampled again, the model knows them, and new "
            "objects will be answered wrongly more often than promised: calibrate on other objects"
        )


def probes() -> np.ndarray:
    """[N_PROBES, 3] fixed places, spread over a ball (a Fibonacci lattice)."""
    i = np.arange(N_PROBES) + 0.5
    z, turn = 1 - 2 * i / N_PROBES, np.pi * (1 + 5**0.5) * i
    flat = np.sqrt(1 - z * z)
    on_sphere = np.stack([flat * np.cos(turn), flat * np.sin(turn), z], axis=1)
    scrambled = (np.arange(N_PROBES) * 29 % N_PROBES + 0.5) / N_PROBES  # 29 and 48 have no divisor in common
    return np.asarray(REACH * scrambled[:, None] ** (1 / 3) * on_sphere)


def print_of(cloud: np.ndarray) -> np.ndarray:
    """[P, 3] -> [N_PROBES] uint8."""
    from scipy.spatial import cKDTree

    points = cloud.astype(np.float64)
    low, high = np.quantile(points, [0.05, 0.95], axis=0)
    half = float(np.linalg.norm(high - low)) / 2 or 1.0
    tree = cKDTree((points - (low + high) / 2) / half)
    distance = tree.query(probes(), min(NEIGHBOUR, len(points)))[0].reshape(N_PROBES, -1)[:, -1]
    return np.minimum(np.rint(distance * STEPS), 255).astype(np.uint8)


def mark(name: str) -> bytes:
    """Of a cloud's class and file name, whatever split folder it lies in and whatever kind of file it is."""
    parts = name.split("/")
    stem = parts[-1].rsplit(".", 1)[0]
    return hashlib.sha256(f"{parts[0]}/{stem}".encode()).digest()[:MARK]


def remember(points: np.ndarray, names: Sequence[str]) -> str:
    """Names and prints of training clouds [n, P, 3], MOST of them at most, as text."""
    chosen = draw(len(names), MOST) if len(names) > MOST else np.arange(len(names))
    rows = [mark(names[i]) + print_of(points[i]).tobytes() for i in chosen]
    return base64.b64encode(b"".join(rows)).decode("ascii")


def recalled(text: str) -> tuple[list[bytes], np.ndarray]:
    """Marks of the names, and prints [n, N_PROBES]."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        raise InputError("fingerprints: not in base64") from None
    size = MARK + N_PROBES
    if len(raw) % size or len(raw) > MOST * size:
        raise InputError(f"fingerprints: {len(raw)} bytes, expected {size} for each of at most {MOST} clouds")
    table = np.frombuffer(raw, np.uint8).reshape(-1, size)
    return [row[:MARK].tobytes() for row in table], table[:, MARK:]


def alike(text: str, n_train: int, points: np.ndarray, names: Sequence[str]) -> Alike | None:
    """Calibration clouds [n, P, 3] against remembered training clouds; None: not more than chance explains."""
    from scipy.spatial.distance import cdist

    marks, prints = recalled(text)
    if not marks or not len(names):
        return None
    own = np.stack([print_of(cloud) for cloud in points]).astype(np.float64)
    apart = cdist(own, prints.astype(np.float64), "cityblock") / (N_PROBES * STEPS)  # [n, n_train]
    where: dict[bytes, list[int]] = {}
    for place, one in enumerate(marks):
        where.setdefault(one, []).append(place)
    same = [apart[i, where.get(mark(name), [])].min(initial=np.inf) <= ALIKE_BY_NAME for i, name in enumerate(names)]
    by_name = np.array(same)
    found = np.flatnonzero((apart.min(axis=1) <= ALIKE) | by_name)
    share = len(marks) / max(n_train, len(marks))  # of the training clouds that are remembered
    if len(found) < max(NOTABLE, NOTABLE_SHARE * share * len(names)):
        return None
    return Alike(len(found), int(by_name.sum()), len(names), names[found[0]])
