"""The whole story: scenes in, looks out, looking at as little of each as the evidence needs.

    scene -> places + descriptors -> encoder -> mixer -> head -> belief -> policy / exit -> answer + looks

`episodes` is a generator that plays the host's part for a batch of scenes: it yields drives and is sent what the head
made of them, so that the same code serves every backend, with a batch of one on Lava. A scene that exits leaves it.
`play` lets an engine on this machine answer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from asp_neuro.grid.softmax import margin
from asp_neuro.heads.spec import Engine
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.look import Look
from asp_neuro.model.policy import Choice
from asp_neuro.model.spec import Model

T = TypeVar("T")


class Request(NamedTuple):
    """What the head is asked: `keep` are the rows of the previous request that go on (None: a new batch, at rest)."""

    drive_int: np.ndarray  # [b, D] whole numbers, float64
    keep: np.ndarray | None


class Response(NamedTuple):
    """What the head answers, for the rows of the request."""

    membrane: np.ndarray  # [b, H] last layer
    hit: np.ndarray | None = None  # [b] first guard hit of this observation (`verdict.hit_words`), 0 for none


Story = Generator[Request, Response, T]


class Played(NamedTuple):
    """A batch of episodes that is over."""

    looks: list[Look]
    geometry: np.ndarray  # [n, M, d] what the policy saw of each place (`Outlook`)
    macs: int  # multiply-accumulates of the encoder


class Batch:
    """A batch of scenes: view and geometry of all of them, everything else of those that are under way."""

    def __init__(self, model: Model, scenes: Any) -> None:
        n = len(scenes)
        self.model = model
        self.view = model.encoder.view(scenes)
        self.outlook = model.policy.outlook(self.view.descriptors)
        self.geometry = self.outlook.geometry
        self.rows = self.all = np.arange(n)
        self.going: np.ndarray | None = None  # rows of the last look that go on
        self.visited = np.zeros((n, model.spec.scene.n_places), dtype=bool)
        self.carry = model.mixer.start(n)
        self.belief = model.belief.start(n)

    def choose(self, t: int, order: np.ndarray | None) -> Choice:
        """The next place of each scene, by the policy or of a given order [n, budget]; it counts as visited."""
        if order is not None:
            choice = Choice(order[self.rows, t - 1])
        else:
            choice = self.model.policy.choose(self.belief, self.outlook, self.visited, t)
        self.visited[self.all[: len(self.rows)], choice.place] = True
        return choice

    def look(
        self, t: int, choice: Choice, drive_int: np.ndarray, response: Response, logits: np.ndarray, rule: ExitRule
    ) -> Look:
        """The record of this observation, and whether it was the last."""
        task = self.model.task
        gap = task.pool(margin(logits))
        crossed = rule.crossed(gap)
        done = crossed if t < rule.most(self.model.budget) else np.ones(len(gap), dtype=bool)
        return Look(
            t, self.rows, *choice, drive_int, response.membrane, response.hit, self.belief, logits, gap,
            task.label(logits), crossed, done,
        )  # fmt: skip

    def go_on(self, going: np.ndarray) -> None:
        """Go on with these rows only."""
        self.going = going.nonzero()[0]
        if len(self.going) < len(going):
            self.rows, self.outlook, self.visited = self.rows[going], self.outlook.of(going), self.visited[going]
            self.carry, self.belief = self.carry[going], self.belief[going]


def episodes(
    model: Model,
    scenes: Any,
    rule: ExitRule,
    order: np.ndarray | None = None,
    on_look: Callable[[Look], None] | None = None,
) -> Story[Played]:
    """Play the episodes of a batch of scenes; `on_look` is told every look as it is made."""
    batch, looks = Batch(model, scenes), []
    for t in range(1, model.budget + 1):
        choice = batch.choose(t, order)
        embedding = batch.view.embed(batch.rows, choice.place)
        drive_int, batch.carry = model.mixer.step(batch.carry, embedding)
        response = yield Request(drive_int, batch.going)
        batch.belief = model.belief(response.membrane)
        logits = model.task.logits(batch.belief, batch.view, batch.rows)
        look = batch.look(t, choice, drive_int, response, logits, rule)
        looks.append(look)
        if on_look is not None:
            on_look(look)
        if look.done.all():
            break
        batch.go_on(~look.done)
    return Played(looks, batch.geometry, batch.view.macs)


def observations(story: Story[T], engine: Engine) -> Generator[None, None, T]:
    """Let an engine on this machine answer a story, one observation at a time: the one driver."""
    try:
        request = next(story)
        while True:
            if request.keep is None:
                engine.start(len(request.drive_int))
            else:
                engine.keep(request.keep)
            request = story.send(Response(engine.observe(request.drive_int), engine.hit))
            yield
    except StopIteration as finished:
        return finished.value


def play(story: Story[T], engine: Engine) -> T:
    """The same, to the story's end."""
    told = observations(story, engine)
    while True:
        try:
            next(told)
        except StopIteration as finished:
            return finished.value


class Watched:
    """An engine that shows itself to `note` after every observation: for counts and records of all layers."""

    def __init__(self, engine: Any, note: Callable[[Any], None]) -> None:
        self.engine, self.note = engine, note
        self.start, self.keep = engine.start, engine.keep

    @property
    def hit(self) -> np.ndarray | None:
        return self.engine.hit

    def observe(self, drive_int: np.ndarray) -> np.ndarray:
        membrane = self.engine.observe(drive_int)
        self.note(self.engine)
        return np.asarray(membrane)


def host_drives(model: Model, scenes: Any) -> np.ndarray:
    """Drives [budget, b, D] of the places in their own order: the host alone, without policy and head."""
    batch, drives = Batch(model, scenes), []
    for place in range(model.budget):
        embedding = batch.view.embed(batch.rows, np.full(len(batch.rows), place))
        drive_int, batch.carry = model.mixer.step(batch.carry, embedding)
        drives.append(drive_int)
    return np.stack(drives)
