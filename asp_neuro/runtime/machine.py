"""Machine: who runs a head, and who answers. The rooms above hand theirs in: nothing here knows Lava or torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.look import Answer, Look
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.report import progress

BATCH = 256

OnAnswer = Callable[[int, Answer], None]
RunHead = Callable[[HeadSpec, np.ndarray], tuple[np.ndarray, np.ndarray]]  # drives [T, b, n] -> membranes, spikes
Looks = Callable[[Perceiver, Any], list[Look]]  # scenes at full budget
Answers = Callable[[Perceiver, Any, ExitRule, int, OnAnswer], list[Answer]]  # scenes, rule, batch size, listener


@dataclass(frozen=True)
class Machine:
    """A name (`--backend`), and what the machine can do; None: it cannot."""

    name: str
    run_head: RunHead | None = None
    answers: Answers | None = None
    any_head: bool = True  # False: it has weights of its own, and runs that head only
    looks: Looks | None = None  # with a host of its own
    at_most: int | None = None  # scenes that `verify` gives it: it is slow; None: all


def fast_head(spec: HeadSpec, drives_int: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The fast engine on given drives [T, b, n]: membranes and spikes [T, L, b, H]."""
    head = spec.engine(np.abs(drives_int).max(axis=(0, 1)).astype(np.float64))
    head.start(drives_int.shape[1])
    membranes, spikes = [], []
    for step in drives_int:
        head.observe(step.astype(np.float64))
        membranes.append(np.stack(head.membranes))
        spikes.append(np.stack(head.spikes))
    return np.stack(membranes).astype(np.int64), np.stack(spikes).astype(np.int64)


def fast_answers(
    perceiver: Perceiver, scenes: Any, rule: ExitRule, batch: int = BATCH, on_answer: OnAnswer | None = None
) -> list[Answer]:
    """All scenes in batches on the fast engine; `on_answer(index, answer)` is called as they come."""
    told = []
    for start in progress(range(0, len(scenes), batch), label="answering"):
        for place, answer in enumerate(perceiver.answers(scenes[start : start + batch], rule)):
            if on_answer is not None:
                on_answer(start + place, answer)
            told.append(answer)
    return told


FAST = Machine("fast", fast_head, fast_answers)
