"""Look: the record of one observation, for the scenes then under way.

Answers, verdicts, usage, traces and studies are pure functions of looks; nothing else is noted during an episode.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from asp_neuro.heads.verdict import Verdict
from asp_neuro.model.exit import ExitReason, ExitRule
from asp_neuro.tasks.base import Task


class Look(NamedTuple):
    """Row i of every array belongs to scene rows[i] of the batch."""

    t: int  # from 1
    rows: np.ndarray  # [b]
    place: np.ndarray  # [b]
    scores: np.ndarray | None  # [b, M] that the place was chosen by; None: the order was given
    rivals: np.ndarray | None  # [b, M] bool: what could have been chosen; None: the choice rests on no membrane
    drive_int: np.ndarray  # [b, D]
    membrane: np.ndarray  # [b, H] last layer, as the head gave it
    hit: np.ndarray | None  # [b] first guard hit (`verdict.hit_words`), 0 for none; None: the head reports none
    belief: np.ndarray  # [b, H]
    logits: np.ndarray  # [b, R, C]
    margin: np.ndarray  # [b]
    label: np.ndarray  # [b], or [b, R]
    crossed: np.ndarray  # [b] bool: the margin crossed the exit threshold
    done: np.ndarray  # [b] bool: the episode ends here


@dataclass(frozen=True)
class Answer:
    """One scene's answer and how it came about."""

    label: Any  # a class number, or [R] of them for a task with many targets
    probability: Any  # of the label
    margin: float
    observations: int
    order: tuple[int, ...]
    exit: ExitReason
    margins: tuple[float, ...]  # after each observation
    labels: tuple[Any, ...]  # after each observation
    probabilities: np.ndarray = field(repr=False)  # [C] at the stop, or [R, C]
    membrane: np.ndarray = field(repr=False)  # [H] int64, last layer at the stop
    verdict: Verdict | None = None  # whether carrying the state is proven to change nothing; None: nobody looked
    points: int | None = None  # distinct points of a cloud that were seen; None: nobody counted (see `promise.py`)
    dropped: int = 0  # points that were NaN or inf
    removed: int = 0  # points that cleaning took for strays
    unfamiliar: str | None = None  # why the scene is not like those that the model knows; None: it is, or nobody asked
    notes: tuple[str, ...] = ()  # sentences about the cloud, and what they mean for the promise
    class_name: str | None = None  # None: nobody named it, or many targets

    def to_dict(self, name: str | None = None) -> dict[str, Any]:
        """Plain values for JSON; `name` becomes its `id`."""
        return {
            **({} if name is None else {"id": name}),
            "label": np.asarray(self.label).tolist(),
            "class": self.class_name,
            "probability": np.asarray(self.probability).tolist(),
            "margin": self.margin,
            "observations": self.observations,
            "order": list(self.order),
            "exit": self.exit.value,
            "preserved": None if self.verdict is None else self.verdict.preserved,
            "points": self.points,
            "dropped": self.dropped,
            "removed": self.removed,
            "unfamiliar": self.unfamiliar,
            "notes": list(self.notes),
        }


class Observation(NamedTuple):
    """One place taken, and what is believed after it: what a robot's own loop sees (`Perceiver.episode`)."""

    step: int  # from 1
    chunk: int
    label: Any
    margin: float
    probabilities: np.ndarray
    stops: bool  # whether the episode ends here


def observation(look: Look, task: Task, at: int = 0) -> Observation:
    """One row of a look, for people's own loops."""
    shares = task.shares(look.logits[at : at + 1])[0]
    return Observation(
        look.t, int(look.place[at]), plain(look.label[at]), float(look.margin[at]), shares, bool(look.done[at])
    )


def plain(label: Any) -> Any:
    """A single label as int, several as they are."""
    return int(label) if np.ndim(label) == 0 else label


def answers(
    looks: list[Look], task: Task, rule: ExitRule, verdicts: list[Verdict | None] | None = None
) -> list[Answer]:
    """The answers of a batch of episodes, in the order of its scenes."""
    n_scenes = len(looks[0].rows)
    traces: list[list[tuple[int, Any, float]]] = [[] for _ in range(n_scenes)]
    told: list[Answer | None] = [None] * n_scenes
    for look in looks:
        columns = (
            look.place.tolist(),
            look.label.tolist() if look.label.ndim == 1 else look.label,
            look.margin.tolist(),
        )
        for row, *seen in zip(look.rows.tolist(), *columns, strict=True):
            traces[row].append(tuple(seen))
        ends = look.done.nonzero()[0]
        if ends.size:
            shares = task.shares(look.logits[ends])
            for place, at in enumerate(ends):
                row = int(look.rows[at])
                reason = rule.reason(float(look.margin[at]), bool(look.crossed[at]))
                verdict = None if verdicts is None else verdicts[row]
                told[row] = _answer(traces[row], shares[place], reason, look.membrane[at], verdict)
    return [answer for answer in told if answer is not None]


def _answer(
    trace: list[tuple[int, Any, float]],
    shares: np.ndarray,
    reason: ExitReason,
    membrane: np.ndarray,
    verdict: Verdict | None,
) -> Answer:
    order, labels, margins = zip(*trace, strict=True)
    label = labels[-1]
    if shares.ndim == 1:
        probability = shares[label]
    else:
        probability = np.take_along_axis(shares, np.asarray(label)[..., None], axis=-1)[..., 0]
    return Answer(
        label=label,
        probability=float(probability) if probability.ndim == 0 else probability,
        margin=margins[-1],
        observations=len(trace),
        order=order,
        exit=reason,
        margins=margins,
        labels=labels,
        probabilities=shares,
        membrane=membrane.astype(np.int64),
        verdict=verdict,
    )
