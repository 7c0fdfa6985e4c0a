"""Lava's machines: the CPU simulator and Loihi 2."""

from __future__ import annotations

from typing import Any

import numpy as np

from asp_neuro.chip import preflight, session
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.look import Answer
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.runtime.machine import Machine, OnAnswer


def simulator_head(spec: HeadSpec, drives_int: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The Lava process models on the CPU simulator."""
    found = session.run_head(spec, drives_int)
    return found.membranes, found.spikes


def simulator_answers(
    perceiver: Perceiver, scenes: Any, rule: ExitRule, batch: int, on_answer: OnAnswer
) -> list[Answer]:
    """One cloud after the other: a session has one head."""
    return session.simulate(perceiver, scenes, rule, on_answer=on_answer)


def chip_answers(perceiver: Perceiver, scenes: Any, rule: ExitRule, batch: int, on_answer: OnAnswer) -> list[Answer]:
    """On a Loihi 2 chip, or an error."""
    return preflight.answers_on_chip(perceiver, scenes, rule, on_answer)


SIMULATOR = Machine("sim", simulator_head, simulator_answers)
LOIHI2 = Machine("loihi2", answers=chip_answers)
