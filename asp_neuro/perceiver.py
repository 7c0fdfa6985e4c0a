"""Perceiver: a deployed model. Clouds in, answers out, on the fast engine."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from asp_neuro.cloud import Chunking, Chunks, cut
from asp_neuro.episode import Answer, Episodes, Response, episodes
from asp_neuro.exit import ExitRule
from asp_neuro.head_spec import HeadSpec
from asp_neuro.heads.fast import FastHead
from asp_neuro.host import Host, HostSpec


@dataclass(frozen=True)
class Perceiver:
    """The frozen parts of a model, ready to run: `perceiver(points)` answers for one cloud."""

    head: HeadSpec
    host: HostSpec
    chunking: Chunking
    classes: tuple[str, ...]
    exit_rule: ExitRule = field(default_factory=ExitRule)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_host", Host(self.host))

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

    def play(self, chunks: Chunks, exit_rule: ExitRule | None = None, order: np.ndarray | None = None) -> Episodes:
        """The host's part alone: a generator that yields drives and is sent membranes."""
        return episodes(self._host, self.units, chunks, self.exit_rule if exit_rule is None else exit_rule, order)

    def new_head(self) -> FastHead:
        return FastHead(self.head, self.host.drive_bound())


def drive(story: Episodes, head: FastHead) -> list[Answer]:
    """Let the fast engine answer a batch of episodes."""
    try:
        request = next(story)
        while True:
            if request.keep is None:
                head.start(len(request.drive_int))
            else:
                head.keep(request.keep)
            request = story.send(Response(head.observe(request.drive_int)))
    except StopIteration as finished:
        return finished.value
