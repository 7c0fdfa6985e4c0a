"""Perceiver: a deployed model. Scenes in, answers out, on the fast engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from asp_neuro.data.intake import Intake, stacked
from asp_neuro.errors import UsageError
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.heads.verdict import Verdict, hit_place, hit_words
from asp_neuro.model.episode import Played, Story, episodes, observations, play
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.familiarity import Familiarity
from asp_neuro.model.look import Answer, Look, Observation, answers, observation
from asp_neuro.model.points import PartAnswer, PointRule, answer_points, category_number, is_dense, steps_of
from asp_neuro.model.promise import covered, take_inputs
from asp_neuro.model.spec import Model, ModelSpec
from asp_neuro.model.stability import Stability

AT_ONCE = 256  # clouds of a long list


@dataclass(frozen=True)
class Perceiver:
    """A model, ready to run: `perceiver(points)` answers for one cloud."""

    spec: ModelSpec
    exit_rule: ExitRule = field(default_factory=ExitRule)
    familiarity: Familiarity | None = None  # None: no cloud is called unfamiliar
    point_rule: PointRule = field(default_factory=PointRule)  # of a model of parts: which points are accepted

    def __repr__(self) -> str:
        what, rule = f"{self.spec.scene.kind}, {self.spec.task.kind}", self.exit_rule
        exits = "the whole budget" if rule.tau is None else f"exit at margin {rule.tau:.4f}"
        promise = ", certified" if rule.certified else ""
        return f"<Perceiver: {what}, {len(self.classes)} classes, {self.budget} looks at most, {exits}{promise}>"

    @cached_property
    def model(self) -> Model:
        return Model(self.spec)

    @cached_property
    def stability(self) -> Stability:
        return Stability(self.model)

    @property
    def head(self) -> HeadSpec:
        return self.spec.head

    @property
    def classes(self) -> tuple[str, ...]:
        return self.spec.classes

    @property
    def budget(self) -> int:
        return self.spec.budget

    def scenes(self, inputs: Any, names: Any = None, cache: bool = False) -> Any:
        """Raw inputs -> a batch of scenes."""
        return self.spec.scene.scenes(inputs, names, cache)

    def __call__(self, points: Any, *, up: str = "y", drop_invalid: bool = False, category: str | None = None) -> Any:
        """One cloud -> its Answer; several (a list of clouds of any sizes, or [n, P, 3]) -> a list of them.

        A cloud is [P, 3], with further columns, a structured array with x, y, z, or with `drop_invalid` (leave out
        what is NaN or inf) an organised [h, w, 3]; `up` is its up axis. See `data/intake.py`. A model of parts labels
        every row (`PartAnswer`); it can be told the `category` of the clouds.
        """
        dense = is_dense(self.spec)
        given = None if category is None else category_number(category, self.spec)
        taken, one = take_inputs(points, self.spec.scene, up, drop_invalid, every=dense)
        told: list[Answer] = []
        for start in range(0, len(taken), AT_ONCE):
            part = taken[start : start + AT_ONCE]
            scenes = self.scenes(stacked(part))
            if len(scenes) != len(part):
                raise UsageError(f"{len(part)} inputs became {len(scenes)} scenes; pass the inputs one by one")
            if given is not None:
                scenes = scenes.asking(np.full(len(scenes), given))
            found = covered(self.answers(scenes), scenes, self.spec, self.exit_rule, part, self.familiarity)
            told += self._labelled(scenes, found, part) if dense else found
        return told[0] if one else told

    def _labelled(self, scenes: Any, answers: list[Answer], taken: list[Intake]) -> list[PartAnswer]:
        """All points of each cloud."""
        asked = [steps_of(one, self.spec.scene) for one in taken]
        return answer_points(self.model, self.stability, scenes, answers, asked, self.point_rule)

    def _take_one(self, points: Any, up: str, drop_invalid: bool) -> list[Intake]:
        taken, one = take_inputs(points, self.spec.scene, up, drop_invalid)
        if not one:
            raise UsageError(f"{len(taken)} clouds, expected one: pass them one by one")
        return taken

    def answers(self, scenes: Any, exit_rule: ExitRule | None = None, order: np.ndarray | None = None) -> list[Answer]:
        """The answers of a batch of scenes, each with a verdict on spike preservation."""
        return play(self.story(scenes, exit_rule, order), self.new_head())

    def story(
        self, scenes: Any, exit_rule: ExitRule | None = None, order: np.ndarray | None = None
    ) -> Story[list[Answer]]:
        """The host's part alone: a generator that yields drives and is sent membranes and guard hits."""
        rule = self.exit_rule if exit_rule is None else exit_rule
        played = yield from episodes(self.model, scenes, rule, order)
        return answers(played.looks, self.model.task, rule, self.stability.verdicts(played, rule))

    def played(self, scenes: Any, exit_rule: ExitRule | None = None, order: np.ndarray | None = None) -> Played:
        """The looks themselves: the record of every observation of a batch."""
        rule = self.exit_rule if exit_rule is None else exit_rule
        return play(episodes(self.model, scenes, rule, order), self.new_head())

    def episode(self, points: Any, *, up: str = "y", drop_invalid: bool = False) -> Iterator[Observation]:
        """One cloud, one observation at a time: for a loop that wants to look, act, and stop by itself."""
        seen: list[Look] = []
        scenes = self.scenes(stacked(self._take_one(points, up, drop_invalid)))
        story = episodes(self.model, scenes, self.exit_rule, on_look=seen.append)
        for _ in observations(story, self.new_head()):
            yield observation(seen[-1], self.model.task)
        yield observation(seen[-1], self.model.task)

    def drives(self, scenes: Any) -> np.ndarray:
        """Drives [T, b, n] int64 that scenes bring at full budget: for golden vectors and `verify`."""
        return np.stack([look.drive_int for look in self.played(scenes, ExitRule()).looks]).astype(np.int64)

    def new_head(self) -> Any:
        return self._engine.fresh()

    @cached_property
    def _engine(self) -> Any:
        return self.head.engine(self.spec.drive_bound(), self.budget)

    def recompute(
        self, points: Any, exit_rule: ExitRule | None = None, *, up: str = "y", drop_invalid: bool = False
    ) -> Answer:
        """The answer for one cloud, as in a call, in exact arithmetic; see `replay`."""
        taken, rule = self._take_one(points, up, drop_invalid), self.exit_rule if exit_rule is None else exit_rule
        scenes = self.scenes(stacked(taken))
        return covered(self.replay(scenes, rule), scenes, self.spec, rule, taken, self.familiarity)[0]

    def replay(self, scenes: Any, exit_rule: ExitRule | None = None, order: np.ndarray | None = None) -> list[Answer]:
        """The answers with the head in exact arithmetic, neither truncated nor clipped, on the same host.

        The fast engine runs alongside on the same drives: the verdict of an answer says whether it fired the same.
        `membrane` is cut to whole numbers in the record only.
        """
        exact = self.head.neurons.exact(self.head)
        if exact is None:
            raise UsageError(f"heads of form '{self.head.form}' have no exact engine to compute again with")
        rule = self.exit_rule if exit_rule is None else exit_rule
        both = _Alongside(exact, self.new_head(), len(scenes))
        played = play(episodes(self.model, scenes, rule, order), both)
        return answers(played.looks, self.model.task, rule, [*both.verdicts])


class _Alongside:
    """Answers with the exact head and notes, for each scene, where the fast one first fires differently."""

    hit: np.ndarray | None = None

    def __init__(self, exact: Any, fast: Any, n_scenes: int) -> None:
        self.exact, self.fast = exact, fast
        self.rows = np.arange(n_scenes)
        self.verdicts = [Verdict(True, "Exact arithmetic fires the same spikes.")] * n_scenes

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
        for layer, (sure, carried) in enumerate(zip(self.exact.fired, self.fast.fired, strict=True)):
            words = hit_words((sure != carried).any(axis=0), layer)
            for at in np.flatnonzero(words):
                if self.verdicts[self.rows[at]].preserved:
                    self.verdicts[self.rows[at]] = _moved_spike(self.exact.t, int(words[at]))
        return np.asarray(membrane)


def _moved_spike(t: int, word: int) -> Verdict:
    layer, neuron = hit_place(word)
    text = f"At observation {t} neuron {neuron} of layer {layer + 1} fires differently in exact arithmetic."
    return Verdict(False, text, step=t, layer=layer + 1, neuron=neuron)


def really_equal(answer: Answer, exact: Answer) -> bool:
    """Whether an answer is what exact arithmetic gives (`Perceiver.recompute`): spikes, places, exit and label."""
    if exact.verdict is None:
        raise UsageError("really_equal needs an answer of Perceiver.recompute to compare with")
    same = (answer.order, answer.exit) == (exact.order, exact.exit) and np.array_equal(answer.label, exact.label)
    return same and exact.verdict.preserved
