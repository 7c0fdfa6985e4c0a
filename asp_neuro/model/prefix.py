"""The prefix form of an episode, to hold against the streaming one (paper Thm. S16).

`episode.py` carries the mixer's state and the head's membranes from one observation to the next. Here nothing is
carried: after every choice the chunks chosen so far go through encoder, mixer and head again, from rest,

    observation t:    encoder(a_1 .. a_t) -> mixer from 0 -> head at rest, t drives -> belief -> exit, a_(t+1)

so observation t costs t times as much and an episode of M observations (M + 1) / 2 times. Both forms must give the same
drives, membranes, spikes, beliefs, choices and exits, bit for bit; `compare` says where they first differ.

Multiply-accumulates are counted where the products are made, from the number of rows that really ran through them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asp_neuro.errors import CheckFailed
from asp_neuro.heads.soft.fast import FastHead
from asp_neuro.model.episode import Response, episodes
from asp_neuro.model.exit import ExitReason, ExitRule, margin
from asp_neuro.model.host import Host, HostSpec
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.scenes.cloud import MOMENT_PAIRS, Chunks, describe

COMPONENTS = ("encoder", "mixer", "head")


@dataclass(frozen=True)
class Observation:
    """What one observation came to, for the b clouds then under way."""

    rows: np.ndarray  # [b] clouds
    drive_int: np.ndarray  # [b, D]
    membranes: np.ndarray  # [L, b, H] whole numbers
    spikes: np.ndarray  # [L, b, H]
    belief: np.ndarray  # [b, H]


@dataclass(frozen=True)
class End:
    """How an episode ended."""

    order: tuple[int, ...]
    labels: tuple[int, ...]  # after each observation
    margins: tuple[float, ...]
    exit: ExitReason


@dataclass
class Trace:
    """A batch of episodes in one of the two forms, with what it cost."""

    macs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COMPONENTS, 0))
    seconds: float = 0.0
    observations: list[Observation] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)  # in the order of the clouds


class CountingHost(Host):
    """A host that counts its products and notes its beliefs in a trace."""

    def __init__(self, spec: HostSpec, trace: Trace) -> None:
        super().__init__(spec)
        self.macs = trace.macs
        self.beliefs: list[np.ndarray] = []

    def tokens(self, groups: np.ndarray) -> np.ndarray:
        n, k = groups.shape[:2]
        edge = self.edge_in.weight.size + self.edge_out.weight.size
        if self.spec.moments:
            self.macs["encoder"] += n * k * len(MOMENT_PAIRS[0])
        self.macs["encoder"] += n * (k * edge + self.token_in.weight.size + self.token_out.weight.size)
        return super().tokens(groups)

    def gates(self, pooled: np.ndarray) -> np.ndarray:
        self.macs["encoder"] += len(pooled) * (0 if self.embedding_in is None else self.embedding_in.weight.size)
        self.macs["mixer"] += len(pooled) * self.project.weight.size
        return super().gates(pooled)

    def mix(self, carry: np.ndarray, gates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.count_mixing(len(gates))
        return super().mix(carry, gates)

    def count_mixing(self, n: int) -> None:
        """Two products an element: keep . h + write, read . h + skip."""
        self.macs["mixer"] += 2 * n * self.spec.width

    def belief(self, membrane: np.ndarray) -> np.ndarray:
        self.beliefs.append(super().belief(membrane))
        return self.beliefs[-1]


def head_macs(head: FastHead) -> int:
    """Of one observation of one cloud, every input counted (spikes make accumulates of them: see the energy model)."""
    return sum(layer.weight_int.size for layer in head.spec.layers)


def streaming(perceiver: Perceiver, chunks: Chunks, rule: ExitRule) -> Trace:
    """The episodes as `episode.py` plays them, one observation from the carried state each, with a full record."""
    trace = Trace()
    host, head = CountingHost(perceiver.host, trace), perceiver.new_head()
    rows, seen = np.arange(len(chunks)), []
    began = time.perf_counter()
    story = episodes(host, perceiver.units, chunks, rule)
    try:
        request = next(story)
        while True:
            if request.keep is None:
                head.start(len(request.drive_int))
            else:
                head.keep(request.keep)
                rows = rows[request.keep]
            membrane = head.observe(request.drive_int)
            trace.macs["head"] += len(rows) * head_macs(head)
            seen.append((rows, request.drive_int, np.stack(head.membranes), np.stack(head.spikes)))
            request = story.send(Response(membrane))
    except StopIteration as finished:
        trace.seconds = time.perf_counter() - began
        trace.ends = [End(a.order, a.labels, a.margins, a.exit) for a in finished.value]
    beliefs = host.beliefs[1:]  # the first is that of a head at rest
    trace.observations = [Observation(*one, belief) for one, belief in zip(seen, beliefs, strict=True)]
    return trace


class _Groups:
    """The groups of some clouds' chunks, to be encoded."""

    def __init__(self, chunks: Chunks) -> None:
        self.points = chunks.points.astype(np.float64)  # whole grid steps
        self.members = chunks.members.astype(np.intp)
        self.belongs = chunks.belongs()

    def gates(self, host: Host, rows: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Clouds [b] and a chunk of each [b] -> the mixer's gates [b, 4 D]."""
        at, group = np.nonzero(self.belongs[rows, chosen])  # sorted by cloud
        points = self.points[rows[at][:, None], self.members[rows[at], group]]  # [n, K, 3]
        starts = np.searchsorted(at, np.arange(len(rows)))
        return host.gates(np.maximum.reduceat(host.tokens(points), starts, axis=0))


def drives_from_rest(host: CountingHost, gates: list[np.ndarray]) -> list[np.ndarray]:
    """The mixer over a whole prefix: gates [b, 4 D] of each chunk in turn -> drive_int [b, D] of each."""
    state, drives = np.zeros((len(gates[0]), host.spec.width)), []
    for now in gates:
        keep, write, read, skip = np.split(now, 4, axis=1)
        state = keep * state + write
        drives.append(host.drive(read * state + skip))
        host.count_mixing(len(now))
    return drives


def look(host: CountingHost, head: FastHead, groups: _Groups, rows: np.ndarray, order: np.ndarray) -> tuple[Any, ...]:
    """One observation in prefix form: clouds [b] and their choices so far [b, t] -> last drive, membranes, spikes."""
    drives = drives_from_rest(host, [groups.gates(host, rows, chosen) for chosen in order.T])
    head.start(len(rows))
    for drive_int in drives:
        head.observe(drive_int)
    host.macs["head"] += len(drives) * len(rows) * head_macs(head)
    return drives[-1], np.stack(head.membranes), np.stack(head.spikes)


def recomputing(perceiver: Perceiver, chunks: Chunks, rule: ExitRule) -> Trace:
    """The same episodes in prefix form."""
    trace = Trace()
    host, head = CountingHost(perceiver.host, trace), perceiver.new_head()
    began = time.perf_counter()
    descriptors = describe(chunks.coordinates(), chunks.mask())
    groups, geometry, first = _Groups(chunks), host.geometry(descriptors), host.first_scores(descriptors)
    rows = np.arange(len(chunks))
    order = labels = np.zeros((len(chunks), 0), dtype=np.intp)
    margins = np.zeros((len(chunks), 0))
    belief = host.belief(np.zeros((len(chunks), perceiver.head.layers[-1].n_neurons)))
    ends: list[End | None] = [None] * len(chunks)
    while rows.size:
        scores = host.scores(belief, geometry[rows]) if order.size or first is None else first
        order = np.column_stack([order, _best(scores, order if host.spec.mask else None)])
        drive_int, membranes, spikes = look(host, head, groups, rows, order)
        belief = host.belief(membranes[-1] / perceiver.units)
        trace.observations.append(Observation(rows, drive_int, membranes, spikes, belief))
        logits = host.logits(belief)
        gap = margin(logits)
        labels, margins = np.column_stack([labels, logits.argmax(axis=1)]), np.column_stack([margins, gap])
        crossed = rule.crossed(gap)
        done = crossed | (order.shape[1] == chunks.n_chunks)
        for at in np.flatnonzero(done):
            reason = rule.reason(float(gap[at]), bool(crossed[at]))
            story = [tuple(table[at].tolist()) for table in (order, labels, margins)]
            ends[rows[at]] = End(story[0], story[1], story[2], reason)
        rows, belief = rows[~done], belief[~done]
        order, labels, margins = order[~done], labels[~done], margins[~done]
    trace.seconds = time.perf_counter() - began
    trace.ends = [end for end in ends if end is not None]
    return trace


def _best(scores: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    """The best-scored chunk [b] that is not among those chosen so far [b, t]."""
    if order is not None:
        np.put_along_axis(scores, order, -1e9, axis=1)
    return scores.argmax(axis=1)


def first_difference(one: Trace, other: Trace) -> str | None:
    """Where two records of the same clouds first differ in any bit, or None."""
    for t, (left, right) in enumerate(zip(one.observations, other.observations), start=1):
        if not np.array_equal(left.rows, right.rows):
            return f"observation {t}: {len(left.rows)} clouds against {len(right.rows)} other ones"
        for name in ("drive_int", "membranes", "spikes", "belief"):
            differs = np.argwhere(_bits(getattr(left, name)) != _bits(getattr(right, name)))
            if len(differs):
                row = left.rows[differs[0][-2]]
                return f"observation {t}, cloud {row}: {name} differs in {len(differs)} places of the batch"
    for row, (left_end, right_end) in enumerate(zip(one.ends, other.ends, strict=True)):
        if left_end != right_end:
            return f"cloud {row}: ends as {left_end} against {right_end}"
    return None


def _bits(values: np.ndarray) -> np.ndarray:
    """The bit patterns: 0.0 and -0.0 are equal as numbers, not here."""
    return np.ascontiguousarray(values).view(f"u{values.itemsize}")


def compare(perceiver: Perceiver, parts: Iterable[Chunks], rule: ExitRule) -> dict[str, Any]:
    """Both forms over batches of clouds: equal bit for bit, or CheckFailed; the report of `run --prefix`."""
    both = {"streaming": Trace(), "prefix": Trace()}
    n_observations, n_clouds = 0, 0
    for chunks in parts:
        found = {"streaming": streaming(perceiver, chunks, rule), "prefix": recomputing(perceiver, chunks, rule)}
        where = first_difference(found["streaming"], found["prefix"])
        if where is not None:
            raise CheckFailed(f"streaming and prefix form differ, in the batch from cloud {n_clouds}: {where}")
        for form, total in both.items():
            total.seconds += found[form].seconds
            total.macs = {name: total.macs[name] + found[form].macs[name] for name in COMPONENTS}
        n_clouds += len(chunks)
        n_observations += sum(len(end.order) for end in found["prefix"].ends)
    costs = {form: {"macs": total.macs, "seconds": total.seconds} for form, total in both.items()}
    macs = {name: both["prefix"].macs[name] / both["streaming"].macs[name] for name in COMPONENTS}
    ratios = {**macs, "seconds": both["prefix"].seconds / both["streaming"].seconds}
    return {"equal": True, "n": n_clouds, "observations": n_observations, **costs, "ratio": ratios}
