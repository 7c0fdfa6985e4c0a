"""The prefix form of an episode, to hold against the streaming one (paper Thm. S16).

`episode.py` carries the mixer's state and the head's membranes from one observation to the next. Here nothing is
carried: after every choice the places chosen so far go through encoder, mixer and head again, from rest,

    observation t:    encoder(a_1 .. a_t) -> mixer from 0 -> head at rest, t drives -> belief -> exit, a_(t+1)

so observation t costs t times as much and an episode of M observations (M + 1) / 2 times. Both forms must give the same
drives, membranes, spikes, beliefs, choices and exits, bit for bit; `compare` says where they first differ.

Multiply-accumulates follow from the number of rows that really ran through each part.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asp_neuro.errors import CheckFailed
from asp_neuro.grid.softmax import margin
from asp_neuro.model.episode import Watched, episodes, play
from asp_neuro.model.exit import ExitReason, ExitRule
from asp_neuro.model.look import answers
from asp_neuro.model.perceiver import Perceiver

COMPONENTS = ("encoder", "mixer", "head")


@dataclass(frozen=True)
class State:
    """What one observation came to, in every layer, for the b scenes then under way."""

    rows: np.ndarray  # [b] scenes
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
    states: list[State] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)  # in the order of the scenes

    def count(self, perceiver: Perceiver, n_rows: int) -> None:
        """So many rows through mixer and head (every input counted; spikes make accumulates of them)."""
        self.macs["mixer"] += int(n_rows * perceiver.spec.mixer.operations().macs)
        self.macs["head"] += n_rows * sum(layer.weight_int.size for layer in perceiver.head.layers)


def streaming(perceiver: Perceiver, scenes: Any, rule: ExitRule) -> Trace:
    """The episodes as `episode.py` plays them, one observation from the carried state each, with a full record."""
    trace = Trace()
    layers: list[tuple[np.ndarray, np.ndarray]] = []
    engine = Watched(perceiver.new_head(), lambda e: layers.append((np.stack(e.membranes), np.stack(e.spikes))))
    began = time.perf_counter()
    played = play(episodes(perceiver.model, scenes, rule), engine)
    told = answers(played.looks, perceiver.model.task, rule)
    trace.seconds = time.perf_counter() - began
    trace.macs["encoder"] = played.macs
    for look, noted in zip(played.looks, layers, strict=True):
        trace.count(perceiver, len(look.rows))
        trace.states.append(State(look.rows, look.drive_int, *noted, look.belief))
    trace.ends = [End(answer.order, answer.labels, answer.margins, answer.exit) for answer in told]
    return trace


def from_rest(perceiver: Perceiver, scenes: Any, order: np.ndarray, trace: Trace) -> tuple[np.ndarray, Any, Any]:
    """Scenes and their choices so far [b, t] -> the last drive, a head that took all t of them, and what was seen."""
    model, engine = perceiver.model, perceiver.new_head()
    view, carry = model.encoder.view(scenes), model.mixer.start(len(scenes))
    engine.start(len(scenes))
    for place in order.T:
        drive_int, carry = model.mixer.step(carry, view.embed(np.arange(len(scenes)), place))
        engine.observe(drive_int)
    trace.count(perceiver, order.size)
    trace.macs["encoder"] += view.macs
    return drive_int, engine, view


def recomputing(perceiver: Perceiver, scenes: Any, rule: ExitRule) -> Trace:
    """The same episodes in prefix form."""
    trace, model = Trace(), perceiver.model
    began = time.perf_counter()
    n = len(scenes)
    outlook = model.policy.outlook(model.encoder.view(scenes).descriptors)
    rows, belief = np.arange(n), model.belief.start(n)
    order = labels = np.zeros((n, 0), dtype=np.intp)
    margins = np.zeros((n, 0))
    ends: list[End | None] = [None] * n
    while rows.size:
        visited = np.zeros((len(rows), model.spec.scene.n_places), dtype=bool)
        np.put_along_axis(visited, order, True, axis=1)
        choice = model.policy.choose(belief, outlook.of(rows), visited, order.shape[1] + 1)
        order = np.column_stack([order, choice.place])
        drive_int, engine, seen = from_rest(perceiver, scenes[rows], order, trace)
        belief = model.belief(engine.membranes[-1])
        trace.states.append(State(rows, drive_int, np.stack(engine.membranes), np.stack(engine.spikes), belief))
        logits = model.task.logits(belief, seen, np.arange(len(rows)))
        gap = model.task.pool(margin(logits))
        labels, margins = np.column_stack([labels, model.task.label(logits)]), np.column_stack([margins, gap])
        crossed = rule.crossed(gap)
        done = crossed | (order.shape[1] == rule.most(model.budget))
        for at in np.flatnonzero(done):
            reason = rule.reason(float(gap[at]), bool(crossed[at]))
            story = [tuple(table[at].tolist()) for table in (order, labels, margins)]
            ends[rows[at]] = End(story[0], story[1], story[2], reason)
        rows, belief = rows[~done], belief[~done]
        order, labels, margins = order[~done], labels[~done], margins[~done]
    trace.seconds = time.perf_counter() - began
    trace.ends = [end for end in ends if end is not None]
    return trace


def first_difference(one: Trace, other: Trace) -> str | None:
    """Where two records of the same clouds first differ in any bit, or None."""
    for t, (left, right) in enumerate(zip(one.states, other.states), start=1):
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


def compare(perceiver: Perceiver, parts: Iterable[Any], rule: ExitRule) -> dict[str, Any]:
    """Both forms over batches of clouds: equal bit for bit, or CheckFailed; the report of `run --prefix`."""
    both = {"streaming": Trace(), "prefix": Trace()}
    n_observations, n_clouds = 0, 0
    for scenes in parts:
        traces = {"streaming": streaming(perceiver, scenes, rule), "prefix": recomputing(perceiver, scenes, rule)}
        where = first_difference(traces["streaming"], traces["prefix"])
        if where is not None:
            raise CheckFailed(f"streaming and prefix form differ, in the batch from cloud {n_clouds}: {where}")
        for form, total in both.items():
            total.seconds += traces[form].seconds
            total.macs = {name: total.macs[name] + traces[form].macs[name] for name in COMPONENTS}
        n_clouds += len(scenes)
        n_observations += sum(len(end.order) for end in traces["prefix"].ends)
    costs = {form: {"macs": total.macs, "seconds": total.seconds} for form, total in both.items()}
    macs = {name: both["prefix"].macs[name] / both["streaming"].macs[name] for name in COMPONENTS}
    ratios = {**macs, "seconds": both["prefix"].seconds / both["streaming"].seconds}
    return {"equal": True, "n": n_clouds, "observations": n_observations, **costs, "ratio": ratios}
