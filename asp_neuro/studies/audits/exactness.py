"""Carrying the state changes nothing: bit for bit against the prefix, within a bound against exact arithmetic.

S16: an episode that carries mixer and membranes equals one that computes the prefix again, in every bit.
S17: without a moved spike a carried membrane is at most E_t from the exact one (`heads/membrane.py`).
S18: where no neuron came within the guard band of its threshold, the spikes are those of exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model.prefix import Trace
from asp_neuro.studies.audits import intervals
from asp_neuro.studies.audits.record import BATCH, Record
from asp_neuro.studies.audits.row import FAILS, HOLDS, UNCLEAR, Row, counted

STATES = ("rows", "drive_int", "membranes", "spikes", "belief")


class Bits(NamedTuple):
    differing: int
    compared: int

    def plus(self, other: Bits) -> Bits:
        return Bits(self.differing + other.differing, self.compared + other.compared)


def bits_of(one: np.ndarray, other: np.ndarray) -> Bits:
    """Bits in which two arrays differ; those that one of them does not have differ too."""
    left, right = (np.ascontiguousarray(values).view(np.uint8).ravel() for values in (one, other))
    common = min(len(left), len(right))
    differing = np.unpackbits(left[:common] ^ right[:common]).sum()
    return Bits(int(differing) + 8 * abs(len(left) - len(right)), 8 * max(len(left), len(right)))


def bits_between(one: Trace, other: Trace) -> Bits:
    """States of every observation, then order, labels and margins of every episode."""
    total, nothing = Bits(0, 0), np.empty(0)
    for left, right in zip_longest(one.states, other.states):
        for name in STATES:
            pair = [nothing if state is None else getattr(state, name) for state in (left, right)]
            total = total.plus(bits_of(*pair))
    for name in ("order", "labels", "margins"):
        ends = [np.array([value for end in trace.ends for value in getattr(end, name)]) for trace in (one, other)]
        total = total.plus(bits_of(*ends))
    return total


def streaming(pairs: Iterable[tuple[Trace, Trace]]) -> Row:
    """Batches of episodes, streaming and prefix form each."""
    total, n = Bits(0, 0), 0
    for one, other in pairs:
        total, n = total.plus(bits_between(one, other)), n + len(one.ends)
    return Row(
        "carrying the state = computing the prefix again", "S16", "0 differing bits", float(total.differing), None,
        None, None, None, counted(total.differing) if total.compared else UNCLEAR, n,
        f"{total.compared} bits of drives, membranes, spikes, beliefs, orders, labels and margins compared",
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Rounding:
    """The carried head against exact arithmetic, on the same drives."""

    apart: np.ndarray  # [T, n, H] |carried - exact| of the last layer, in units of the last place
    bound: np.ndarray  # [T, H] how much the theory allows
    same: np.ndarray  # [T, n] bool: all spikes so far are those of exact arithmetic
    proven: np.ndarray  # [T, n] bool: no guard hit so far


def rounding(head: HeadSpec, record: Record) -> Rounding | None:
    """Exact arithmetic on the recorded drives; None: the form of neuron has none, or no bound."""
    bounds = [head.neurons.drift(head, t) for t in range(1, record.n_steps + 1)]
    if record.hit is None or any(bound is None for bound in bounds) or head.neurons.exact(head) is None:
        return None
    parts = [_both(head, record, slice(i, i + BATCH)) for i in range(0, record.n, BATCH)]
    apart, same = (np.concatenate([part[i] for part in parts], axis=1) for i in (0, 1))
    proven = np.logical_and.accumulate(record.hit == 0, axis=0)
    return Rounding(apart, np.array(bounds), np.logical_and.accumulate(same, axis=0), proven)


def _both(head: HeadSpec, record: Record, part: slice) -> tuple[np.ndarray, np.ndarray]:
    """[T, b, H] distances of the last membranes and [T, b] whether the spikes of each observation are the same."""
    drives, exact = record.drive_int[:, part], head.neurons.exact(head)
    fast = head.engine(np.abs(record.drive_int).max(axis=(0, 1)).astype(np.float64))
    assert exact is not None
    for engine in (exact, fast):
        engine.start(drives.shape[1])
    apart, same = [], []
    for t, drive_int in enumerate(drives):
        apart.append(np.abs(exact.observe(drive_int) - record.membrane[t, part]))
        fast.observe(drive_int)
        pairs = zip(exact.fired, fast.fired, strict=True)  # type: ignore[attr-defined]
        same.append(np.all([(a == b).all(axis=(0, 2)) for a, b in pairs], axis=0))
    return np.stack(apart), np.stack(same)


def drift(found: Rounding) -> Row:
    """The largest distance as a share of its bound, among membranes whose spikes are the exact ones."""
    apart = np.where(found.same[..., None], found.apart, 0.0)
    shares = np.divide(apart, found.bound[:, None], out=np.zeros_like(apart), where=found.bound[:, None] > 0)
    shares = np.where((found.bound[:, None] == 0) & (apart > 0), np.inf, shares)
    worst = float(shares.max())
    t = int(shares.max(axis=(1, 2)).argmax()) + 1
    return Row(
        "a carried membrane stays within the drift bound", "S17", "at most 1 (of the bound)", worst, None, None, None,
        None, HOLDS if worst <= 1.0 else FAILS, int(found.same.size),
        f"largest distance {apart.max():.3g} units of the last place; nearest to its bound at observation {t}",
    )  # fmt: skip


def preservation(found: Rounding) -> Row:
    """Prefixes that the guard proves and whose spikes are not the exact ones: there must be none."""
    wrong, proven = int((found.proven & ~found.same).sum()), int(found.proven.sum())
    shown = intervals.share(wrong, proven)
    shares = [100.0 * float(values[-1].mean()) for values in (found.proven, found.same)]
    return Row(
        "spikes that are proven are those of exact arithmetic", "S18", "none of the proven differs",
        shown.value if proven else None, shown.low, shown.high, None, None,
        UNCLEAR if proven == 0 else counted(wrong), proven,
        f"share of the proven stretches that differ; whole budgets proven by the guard: {shares[0]:.1f} %, really "
        f"equal: {shares[1]:.1f} %",
    )  # fmt: skip
