"""What a model is given, and what a certificate's promise covers of it: clouds with as many points as it was made with.

A model stops at the same observation for a sparse cloud, but it is wrong more often, and no calibration cloud was like
it. So the stop keeps its threshold and loses its promise, and a note says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from asp_neuro.data.intake import Intake, left_out, n_strays, n_used, take_all
from asp_neuro.errors import UsageError
from asp_neuro.model import familiarity
from asp_neuro.model.exit import ExitReason, ExitRule
from asp_neuro.model.familiarity import Familiarity
from asp_neuro.model.look import Answer
from asp_neuro.model.spec import ModelSpec
from asp_neuro.scenes.base import SceneSpec
from asp_neuro.scenes.cloud_encoder import CloudSpec

STRAYS = 8  # one point in so many may be a stray, and left out, before the promise is withdrawn


def take_inputs(
    given: Any, scene: SceneSpec, up: str = "y", drop_invalid: bool = False, every: bool = False
) -> tuple[list[Intake], bool]:
    """What a user passes to a model, taken in, and whether it was one input; only clouds have an intake."""
    if isinstance(scene, CloudSpec):
        return take_all(given, scene.chunking, up=up, drop_invalid=drop_invalid, every=every)
    if up != "y" or drop_invalid:
        raise UsageError(f"up and drop_invalid are for clouds; this model looks at scenes of kind '{scene.kind}'")
    return [Intake(np.asarray(given))], True


def covered(
    answers: Sequence[Answer],
    scenes: Any,
    spec: ModelSpec,
    rule: ExitRule,
    taken: Sequence[Intake],
    known: Familiarity | None = None,
) -> list[Answer]:
    """Answers with what is known of their clouds; the promise is withdrawn where a cloud is short or unfamiliar."""
    short = Shortness(np.stack([intake.points for intake in taken]), scenes, spec, rule)
    all_told = [short.told(i, answer, intake) for i, (answer, intake) in enumerate(zip(answers, taken, strict=True))]
    return familiarity.told(all_told, scenes, spec, rule, known)


class Shortness:
    """Which clouds of a batch are short of points, and what that means for their answers."""

    def __init__(self, inputs: Any, scenes: Any, spec: ModelSpec, rule: ExitRule) -> None:
        self.rule, self.classes = rule, spec.classes
        self.n_points = spec.scene.chunking.n_points if isinstance(spec.scene, CloudSpec) else 0
        self.n_points = min(self.n_points, rule.fewest or self.n_points)
        self.strays = [0] * len(inputs)
        self.used: list[int] | None = None  # distinct points
        if isinstance(spec.scene, CloudSpec):
            self.strays = n_strays(inputs, scenes, spec.scene.chunking.strays)
            self.used = n_used(inputs, scenes, self.strays)

    def told(self, index: int, answer: Answer, taken: Intake | None = None) -> Answer:
        """The answer of one of the clouds; `taken` is how it came in, None: from a data set."""
        notes = () if taken is None else taken.notes
        n = None if self.used is None else self.used[index]
        if gone := self.strays[index]:
            notes = (*notes, left_out(gone))
        if n is not None and self._short(index):
            notes = (*notes, self._note(n))
            answer = replace(answer, exit=without_promise(answer, self.rule))
        dropped, removed = (0, gone) if taken is None else (taken.dropped, taken.removed + gone)
        name = self.classes[answer.label] if np.ndim(answer.label) == 0 else None
        return replace(answer, points=n, dropped=dropped, removed=removed, notes=notes, class_name=name)

    def share(self) -> float | None:
        """Of the clouds that are short; None: these are no clouds."""
        return None if self.used is None else float(np.mean([self._short(i) for i in range(len(self.used))]))

    def _short(self, index: int) -> bool:
        """A few strays less do not make a cloud short: calibration clouds lose theirs too."""
        assert self.used is not None
        return self.used[index] + min(self.strays[index], self.n_points // STRAYS) < self.n_points

    def _note(self, n: int) -> str:
        what = f"{n} distinct points, fewer than the {self.n_points} of the clouds that"
        if self.rule.certified:
            return f"{what} the certificate was made with: no promise covers this answer."
        return f"{what} the model was trained with: expect more errors."


def without_promise(answer: Answer, rule: ExitRule) -> ExitReason:
    """Why an episode ended, had no certificate stood behind its rule."""
    crossed = bool(rule.crossed(np.array(answer.margin)))  # the margin at the stop; else the budget made it stop
    return replace(rule, certified=False).reason(answer.margin, crossed)
