"""Calibration clouds that have been used: a promise that is picked from several on the same clouds is none.

Every level (alpha, delta) that is tried on a calibration set has its own chance, delta, to be wrong; whoever tries
until one passes has the sum of them. So a model keeps which clouds were used at which levels. The same levels again
give the same certificate and are no new try; others are refused. Several levels in one call share delta.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from asp_neuro import plain
from asp_neuro.certify.bounds import percent
from asp_neuro.errors import InputError

MARK = 5  # bytes of a cloud's hash: 1,200 clouds take 8 KB


@dataclass(frozen=True)
class Level:
    alpha: float
    delta: float
    exit_threshold: float | None = None
    patience: int | None = plain.later(None)

    @property
    def text(self) -> str:
        at = "" if self.exit_threshold is None else f" at exit threshold {self.exit_threshold:g}"
        looks = "" if self.patience is None else f" and patience {self.patience}"
        return f"alpha {percent(self.alpha)} with delta {percent(self.delta)}{at}{looks}"


@dataclass(frozen=True)
class Used:
    """Clouds, and the levels that were tried on them."""

    clouds: str  # MARK bytes of each one's hash, in base64
    levels: tuple[Level, ...]

    def __post_init__(self) -> None:
        marks_in(self.clouds)


def marks_in(clouds: str) -> set[bytes]:
    try:
        raw = base64.b64decode(clouds, validate=True)
    except ValueError:
        raw = b"?"
    if len(raw) % MARK:
        raise InputError(f"used calibration clouds: {len(raw)} bytes, expected {MARK} each")
    return {raw[i : i + MARK] for i in range(0, len(raw), MARK)}


def _marks(hashes: Iterable[str]) -> list[bytes]:
    return sorted({hashlib.sha256(one.encode()).digest()[:MARK] for one in hashes})


def refuse_again(used: Sequence[Used], hashes: Sequence[str], levels: Sequence[Level]) -> None:
    """Refuse levels that were not tried before on clouds of which some were used at others."""
    marks = set(_marks(hashes))
    for before in used:
        shared = marks & marks_in(before.clouds)
        if shared and not (set(levels) <= set(before.levels) and shared == marks):
            raise InputError(again(len(shared), len(hashes), before.levels, levels))


def again(shared: int, n: int, before: Sequence[Level], asked: Sequence[Level]) -> str:
    """Why another level is refused."""
    tried, wanted = (", ".join(level.text for level in levels) for levels in (before, asked))
    return (
        f"{shared} of {n} calibration clouds were used for this model before ({tried}; asked for: {wanted}). Every "
        "further try on them has its own chance to be wrong, and a promise that is picked from several is none. Take "
        "clouds that were not used (--data FOLDER), or the same levels; several levels in one first call share delta: "
        "--alpha 0.05,0.1"
    )


def with_use(used: Sequence[Used], hashes: Sequence[str], levels: Sequence[Level]) -> tuple[Used, ...]:
    """The record with one more use; of the same clouds there is one entry."""
    clouds = base64.b64encode(b"".join(_marks(hashes))).decode("ascii")
    known = [level for entry in used if entry.clouds == clouds for level in entry.levels]
    others = [entry for entry in used if entry.clouds != clouds]
    return (*others, Used(clouds, tuple(dict.fromkeys([*known, *levels]))))
