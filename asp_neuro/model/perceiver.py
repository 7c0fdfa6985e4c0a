"""Perceiver: a deployed model. Clouds in, answers out, on the fast engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from asp_neuro.errors import UsageError
from asp_neuro.heads.soft.exact import ExactHead
from asp_neuro.heads.soft.fast import FastHead
from asp_neuro.heads.soft.guard import Verdict, hit_place, hit_words
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model.episode import Answer, Episodes, Observation, Response, episodes
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.host import Host, HostSpec
from asp_neuro.model.stability import Stability
from asp_neuro.scenes.cloud import Chunking, Chunks, cut


@dataclass(frozen=True)
class Perceiver:
    """The frozen parts of a model, ready to run: `perceiver(points)` answers for one cloud."""

    head: HeadSpec
    host: HostSpec
    chunking: Chunking
    classes: tuple[str, ...]
    exit_rule: ExitRule = field(default_factory=ExitRule)
    _host: Host = field(init=False, repr=False, compare=False)
    _stability: Stability = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_host", Host(self.host))
        object.__setattr__(self, "_stability", Stability(self.host, self.head.layers[-1]))

    @property
    def units(self) -> np.ndarray:
        return self.head.layers[-1].units

    def __call__(self, points: np.ndarray) -> Answer:
        """Points [n, 3] of one cloud, y up -> its answer."""
        return self.answers(cut(np.asarray(points)[None], self.chunking))[0]

    def answers(
        self, chunks: Chunks, exit_rule: ExitRule | None = None, order: np.ndarray | None = None
    ) -> list[Answer]:
        """The answers of a batch of clouds, cut into chunks."""
        return drive(self.play(chunks, exit_rule, order), self.new_head())

    def episode(self, points: np.ndarray) -> Iterator[Observation]:
        """One cloud, one observation at a time: for a loop that wants to look, act, and stop by itself."""
        seen: list[Observation] = []
        chunks = cut(np.asarray(points)[None], self.chunking)
        story = episodes(
            self._host,
            self.units,
            chunks,
            self.exit_rule,
            on_observation=lambda _, observation: seen.append(observation),
        )
        head, request = self.new_head(), next(story)
        head.start(1)
        while True:
            try:
                request = story.send(Response(head.observe(request.drive_int), head.hit))
            except StopIteration:
                yield seen[-1]
                return
            yield seen[-1]

    def play(self, chunks: Chunks, exit_rule: ExitRule | None = None, order: np.ndarray | None = None) -> Episodes:
        """The host's part alone: a generator that yields drives and is sent membranes and guard hits."""
        rule = self.exit_rule if exit_rule is None else exit_rule
        return episodes(self._host, self.units, chunks, rule, order, self._stability)

    def drives(self, chunks: Chunks) -> np.ndarray:
        """Drives [T, b, n] int64 that clouds bring at full budget: for golden vectors and `verify`."""
        seen: list[np.ndarray] = []
        drive(self.play(chunks, ExitRule()), self.new_head(), on_drive=lambda x: seen.append(x.astype(np.int64)))
        return np.stack(seen)

    def new_head(self) -> FastHead:
        return self._engine.fresh()

    @cached_property
    def _engine(self) -> FastHead:
        return FastHead(self.head, self.host.drive_bound(), self.chunking.n_chunks)

    def recompute(
        self, cloud: np.ndarray | Chunks, exit_rule: ExitRule | None = None, order: np.ndarray | None = None
    ) -> Answer:
        """The answer for one cloud (points [n, 3], or a row of chunks) in exact arithmetic; see `replay`."""
        chunks = cloud if isinstance(cloud, Chunks) else cut(np.asarray(cloud)[None], self.chunking)
        if len(chunks) != 1:
            raise UsageError(f"recompute takes one cloud, got {len(chunks)}")
        return self.replay(chunks, exit_rule, order)[0]

    def replay(
        self, chunks: Chunks, exit_rule: ExitRule | None = None, order: np.ndarray | None = None
    ) -> list[Answer]:
        """The answers with the head in exact arithmetic, neither truncated nor clipped, on the same host.

        The fast engine runs alongside on the same drives: the verdict of an answer says whether it fired the same.
        `membrane` is cut to whole numbers in the record only.
        """
        rule = self.exit_rule if exit_rule is None else exit_rule
        both = _Alongside(ExactHead(self.head), self.new_head(), len(chunks))
        answers = drive(episodes(self._host, self.units, chunks, rule, order), both)
        return [replace(answer, verdict=verdict) for answer, verdict in zip(answers, both.verdicts, strict=True)]


class _Alongside:
    """Answers with the exact head and notes, for each cloud, where the fast one first fires differently."""

    hit = None

    def __init__(self, exact: ExactHead, fast: FastHead, n_clouds: int) -> None:
        self.exact, self.fast = exact, fast
        self.rows = np.arange(n_clouds)
        self.verdicts = [Verdict(True, "Exact arithmetic fires the same spikes.")] * n_clouds

    def start(self, batch: int) -> None:
        self.exact.start(batch)
        self.fast.start(batch)

    def keep(self, rows: np.ndarray) -> None:
        self.rows = self.rows[rows]
        self.exact.keep(rows)
        self.fast.keep(rows)

    def observe(self, drive_int: np.ndarray) -> np.ndarray:
        membrane = self.exact.observe(drive_int)
        self.fast.observe(drive_int)
        for layer, (sure, carried) in enumerate(zip(self.exact.spikes, self.fast.spikes, strict=True)):
            words = hit_words(sure != carried, layer)
            for at in np.flatnonzero(words):
                if self.verdicts[self.rows[at]].preserved:
                    self.verdicts[self.rows[at]] = _moved_spike(self.exact.t, int(words[at]))
        return membrane


def _moved_spike(t: int, word: int) -> Verdict:
    layer, neuron = hit_place(word)
    text = f"At observation {t} neuron {neuron} of layer {layer + 1} fires differently in exact arithmetic."
    return Verdict(False, text, step=t, layer=layer + 1, neuron=neuron)


def really_equal(answer: Answer, exact: Answer) -> bool:
    """Whether an answer is what exact arithmetic gives (`Perceiver.recompute`): spikes, chunks, exit and class."""
    if exact.verdict is None:
        raise UsageError("really_equal needs an answer of Perceiver.recompute to compare with")
    same = (answer.order, answer.exit, answer.label) == (exact.order, exact.exit, exact.label)
    return same and exact.verdict.preserved


def drive(
    story: Episodes, head: FastHead | _Alongside, on_drive: Callable[[np.ndarray], None] | None = None
) -> list[Answer]:
    """Let a head on this machine answer a batch of episodes."""
    try:
        request = next(story)
        while True:
            if request.keep is None:
                head.start(len(request.drive_int))
            else:
                head.keep(request.keep)
            if on_drive is not None:
                on_drive(request.drive_int)
            request = story.send(Response(head.observe(request.drive_int), head.hit))
    except StopIteration as finished:
        return finished.value
