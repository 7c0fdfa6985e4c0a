"""The whole story: clouds in, answers out, looking at as little of each as the evidence needs.

    cloud -> chunks + descriptors -> encoder -> mixer -> head -> belief -> policy / exit -> answer + trace

`episodes` is a generator that plays the host's part for a batch of clouds: it yields drives and is sent what the head
made of them, so that the same code serves every backend, with a batch of one on Lava. A cloud that exits leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from asp_neuro.heads.soft.guard import Verdict
from asp_neuro.model.exit import ExitReason, ExitRule, margin, probabilities
from asp_neuro.model.host import Host
from asp_neuro.model.stability import Look, Stability, Watch
from asp_neuro.scenes.cloud import Chunks, describe


class Request(NamedTuple):
    """What the head is asked: `keep` are the rows of the previous request that go on (None: a new batch, at rest)."""

    drive_int: np.ndarray  # [b, D] whole numbers, float64
    keep: np.ndarray | None


class Response(NamedTuple):
    """What the head answers, for the rows of the request."""

    membrane: np.ndarray  # [b, H] last layer, whole numbers
    hit: np.ndarray | None = None  # [b] first guard hit of this observation (`guard.hit_words`), 0 for none


@dataclass(frozen=True)
class Answer:
    """One cloud's answer and how it came about."""

    label: int
    probability: float
    margin: float
    observations: int
    order: tuple[int, ...]
    exit: ExitReason
    margins: tuple[float, ...]  # after each observation
    labels: tuple[int, ...]  # after each observation
    probabilities: np.ndarray  # [C] at the stop
    membrane: np.ndarray  # [H] int64, last layer at the stop
    verdict: Verdict | None = None  # whether carrying the state is proven to change nothing; None: nobody looked


class Observation(NamedTuple):
    """One chunk taken, and what is believed after it: what a robot's own loop sees (`Perceiver.episode`)."""

    step: int  # from 1
    chunk: int
    label: int
    margin: float
    probabilities: np.ndarray  # [C]
    stops: bool  # whether the episode ends here


Episodes = Generator[Request, Response, list[Answer]]


class _Batch:
    """A batch of clouds; carry and belief have a row for each one under way, everything else for every cloud."""

    def __init__(self, host: Host, chunks: Chunks) -> None:
        n = len(chunks)
        self.rows = np.arange(n)  # those under way
        self.points = chunks.points.astype(np.float64)  # whole grid steps
        self.members = chunks.members.astype(np.intp)
        self.belongs = chunks.belongs()
        self.tokens = np.empty((n, self.belongs.shape[2], len(host.spec.token_out_bias)))  # of the groups seen so far
        self.known = np.zeros((n, self.belongs.shape[2]), dtype=bool)
        descriptors = describe(chunks.coordinates(), chunks.mask())
        self.geometry, self.first = host.geometry(descriptors), host.first_scores(descriptors)
        self.visited = np.zeros((n, chunks.n_chunks), dtype=bool)
        self.carry = np.zeros((n, host.spec.width))
        self.belief = host.belief(np.zeros((n, len(host.spec.belief_gain))))

    def keep(self, going: np.ndarray) -> None:
        self.rows, self.carry, self.belief = self.rows[going], self.carry[going], self.belief[going]


def encode(host: Host, batch: _Batch, chosen: np.ndarray) -> np.ndarray:
    """Gates [b, 4 D] of the chosen chunk of each cloud; only its groups are encoded, and those in two chunks once."""
    looked_at = batch.belongs[batch.rows, chosen]  # [b, G]
    at, group = np.nonzero(looked_at & ~batch.known[batch.rows])
    if len(at):
        row = batch.rows[at]
        batch.tokens[row, group] = host.tokens(batch.points[row[:, None], batch.members[row, group]])
        batch.known[row, group] = True
    at, group = np.nonzero(looked_at)  # sorted by cloud
    starts = np.searchsorted(at, np.arange(len(chosen)))
    return host.gates(np.maximum.reduceat(batch.tokens[batch.rows[at], group], starts, axis=0))


def host_drives(host: Host, chunks: Chunks) -> np.ndarray:
    """Drives [M, b, D] of all chunks in their own order: the host alone, without policy and head."""
    batch, seen = _Batch(host, chunks), []
    for chunk in range(chunks.n_chunks):
        drive_int, batch.carry = host.mix(batch.carry, encode(host, batch, np.full(len(chunks), chunk)))
        seen.append(drive_int)
    return np.stack(seen)


def choose(host: Host, batch: _Batch, order: np.ndarray | None, step: int, watch: Watch | None = None) -> np.ndarray:
    """The next chunk of each cloud: the best-scored one not yet visited, or the next of a given order [n, M]."""
    if order is not None:
        return order[batch.rows, step]
    if step == 0 and batch.first is not None:
        return batch.first.argmax(axis=1)
    scores, visited = host.scores(batch.belief, batch.geometry[batch.rows]), batch.visited[batch.rows]
    if watch is not None and step > 0:  # the first choice rests on no membrane
        watch.chose(scores, ~visited if host.spec.mask else np.ones_like(visited))
    if host.spec.mask:
        scores = np.where(visited, -1e9, scores)
    return scores.argmax(axis=1)


def episodes(
    host: Host,
    units: np.ndarray,
    chunks: Chunks,
    exit_rule: ExitRule,
    order: np.ndarray | None = None,
    stability: Stability | None = None,
    on_observation: Callable[[int, Observation], None] | None = None,
) -> Episodes:
    """Play the episodes of a batch of clouds; `units` [H] are the last layer's integer steps per float unit.

    With `stability`, and a head that reports guard hits, every answer carries a verdict on spike preservation.
    `on_observation(row, observation)` is told every step of every cloud.
    """
    batch = _Batch(host, chunks)
    watch = None if stability is None else Watch(stability, batch.geometry, exit_rule)
    traces: list[list[tuple[int, int, float]]] = [[] for _ in range(len(chunks))]
    answers: list[Answer | None] = [None] * len(chunks)
    going: np.ndarray | None = None
    for step in range(chunks.n_chunks):
        chosen = choose(host, batch, order, step, watch)
        batch.visited[batch.rows, chosen] = True
        drive_int, batch.carry = host.mix(batch.carry, encode(host, batch, chosen))
        response = yield Request(drive_int, going)
        membrane = response.membrane / units
        batch.belief = host.belief(membrane)
        logits = host.logits(batch.belief)
        gap, best = margin(logits), logits.argmax(axis=1)
        for row, chunk, label, value in zip(batch.rows, chosen, best, gap, strict=True):
            traces[row].append((int(chunk), int(label), float(value)))
        crossed = exit_rule.crossed(gap)
        done = crossed if step + 1 < chunks.n_chunks else np.ones(len(gap), dtype=bool)
        if watch is not None:
            watch.observed(Look(step + 1, batch.rows, membrane, batch.belief, logits, done, response.hit))
        if on_observation is not None:
            for at, row in enumerate(batch.rows):
                seen = (int(chosen[at]), int(best[at]), float(gap[at]), probabilities(logits[at]), bool(done[at]))
                on_observation(int(row), Observation(step + 1, *seen))
        if done.any():
            shares = probabilities(logits[done])
            for place, (at, row) in enumerate(zip(np.flatnonzero(done), batch.rows[done], strict=True)):
                reason = exit_rule.reason(float(gap[at]), bool(crossed[at]))
                answers[row] = _answer(traces[row], shares[place], reason, response.membrane[at])
        if done.all():
            break
        going = np.flatnonzero(~done)
        if done.any():
            batch.keep(going)
    told = [answer for answer in answers if answer is not None]
    if watch is None:
        return told
    return [replace(answer, verdict=verdict) for answer, verdict in zip(told, watch.verdicts(), strict=True)]


def _answer(
    trace: list[tuple[int, int, float]], shares: np.ndarray, reason: ExitReason, membrane: np.ndarray
) -> Answer:
    chunks, labels, margins = zip(*trace, strict=True)
    return Answer(
        label=labels[-1],
        probability=float(shares[labels[-1]]),
        margin=margins[-1],
        observations=len(trace),
        order=chunks,
        exit=reason,
        margins=margins,
        labels=labels,
        probabilities=shares,
        membrane=membrane.astype(np.int64),
    )
