"""Every point of a cloud answered, once its episode is over: a pure function of where was looked and of the membrane.

So an answer of any machine will do, and points may be asked for that the cloud was not cut with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asp_neuro.data.intake import Intake
from asp_neuro.errors import UsageError, nearest
from asp_neuro.grid.softmax import margin
from asp_neuro.model.exit import stops
from asp_neuro.model.look import Answer
from asp_neuro.model.spec import Model
from asp_neuro.model.stability import Stability
from asp_neuro.scenes.cloud import Chunking
from asp_neuro.scenes.frame import frame_of
from asp_neuro.tasks.parts import Parts, PartsSpec

NONE = -1  # the label of a row that is no point


def nothing() -> np.ndarray:
    return np.empty(0)


@dataclass(frozen=True)
class PointRule:
    """Which points are accepted: margins above these; None: nothing is promised, and none is."""

    mean: float | None = None  # promise A: on average over clouds
    each: float | None = None  # promise B: of each cloud


@dataclass(frozen=True)
class PartAnswer(Answer):
    """An answer with a label for every point; `label` is the category, `labels` are the parts of the points."""

    labels: Any = field(repr=False)  # [Q] part numbers, NONE for rows that are no points
    point_margins: np.ndarray = field(default_factory=nothing, repr=False)  # [Q]
    accepted: np.ndarray = field(default_factory=nothing, repr=False)  # [Q] bool, by promise A
    accepted_each: np.ndarray = field(default_factory=nothing, repr=False)  # [Q] bool, by promise B
    proven: np.ndarray = field(default_factory=nothing, repr=False)  # [Q] bool: exact arithmetic gives the same label
    given: bool = False  # whether the category was

    def to_dict(self, name: str | None = None) -> dict[str, Any]:
        """As for a class, and of the points what can be said in a line; the points themselves go into a file."""
        there = self.labels != NONE
        n = max(1, int(there.sum()))
        parts, count = np.unique(self.labels[there], return_counts=True)
        return {
            **super().to_dict(name),
            "category_given": self.given,
            "n_labelled": int(there.sum()),
            "parts": {str(part): int(k) for part, k in zip(parts, count, strict=True)},
            "accepted_share": float(self.accepted.sum() / n),
            "accepted_each_share": float(self.accepted_each.sum() / n),
            "proven_share": float(self.proven.sum() / n),
        }


def is_dense(spec: Any) -> bool:
    """Whether a model answers for points."""
    return isinstance(spec.task, PartsSpec)


def category_number(word: str, spec: Any) -> int:
    """A category by its name, whatever its capitals."""
    if not is_dense(spec):
        raise UsageError(f"a category is for models of parts; this one's task is '{spec.task.kind}'")
    plain = [name.lower() for name in spec.task.classes]
    if word.lower() not in plain:
        raise UsageError(f"no category '{word}'{nearest(word.lower(), plain)}; known: {', '.join(plain)}")
    return plain.index(word.lower())


def steps_in(points: np.ndarray, every: np.ndarray, how: Chunking) -> np.ndarray:
    """All rows [Q, 3] of a cloud in whole grid steps of what was cut of it [P, 3]; NaN where a row is no point."""
    frame, there = frame_of(points, how), np.isfinite(every).all(axis=1)
    if there.all():
        return frame.steps(every)
    out = np.full(every.shape, np.nan)
    out[there] = frame.steps(every[there])
    return out


def steps_of(taken: Intake, scene: Any) -> np.ndarray:
    """The same for a cloud that was taken in with every row."""
    assert taken.every is not None
    return steps_in(taken.points, taken.every, scene.chunking)


def answer_points(
    model: Model,
    stability: Stability,
    scenes: Any,
    answers: Sequence[Answer],
    queries: Sequence[np.ndarray],
    rule: PointRule,
) -> list[PartAnswer]:
    """Answers of scenes, and for each the points to label: [Q, 3] in whole grid steps, NaN where there is none."""
    task = model.task
    if not isinstance(task, Parts):
        raise UsageError(f"this model has no labels for points: its task is '{model.spec.task.kind}'")
    view = model.encoder.view(scenes)
    for t in range(max(answer.observations for answer in answers)):
        rows = np.array([i for i, answer in enumerate(answers) if answer.observations > t])
        view.embed(rows, np.array([answers[i].order[t] for i in rows]))
    given = scenes.categories >= 0
    return [
        _answered(model, stability, view, row, answer, asked, rule, bool(given[row]))
        for row, (answer, asked) in enumerate(zip(answers, queries, strict=True))
    ]


def _answered(
    model: Model, stability: Stability, view: Any, row: int, answer: Answer, asked: np.ndarray, rule: PointRule,
    given: bool,
) -> PartAnswer:  # fmt: skip
    task, membrane = model.task, answer.membrane[None].astype(np.float64)
    assert isinstance(task, Parts)
    there = np.isfinite(asked).all(axis=1) if asked.dtype.kind == "f" else np.ones(len(asked), dtype=bool)
    logits = task.points(model.belief(membrane)[0], view, row, asked[there], int(answer.label))
    labels, gap = np.full(len(asked), NONE), np.zeros(len(asked))
    labels[there], gap[there] = logits.argmax(axis=1), margin(logits)
    proven = np.zeros(len(asked), dtype=bool)
    if answer.verdict is not None and answer.verdict.preserved:
        box = stability.box(membrane, answer.observations)
        proven[there] = stability.points_proven(box, logits, gap[there])
    taken = [there & _above(gap, tau) for tau in (rule.mean, rule.each)]
    kept = {name: value for name, value in vars(answer).items() if name != "labels"}
    return PartAnswer(**kept, labels=labels, point_margins=gap, accepted=taken[0], accepted_each=taken[1],
                      proven=proven, given=given)  # fmt: skip


def _above(gap: np.ndarray, tau: float | None) -> np.ndarray:
    return np.zeros(len(gap), dtype=bool) if tau is None else stops(gap, tau)
