"""Lava's machines: the CPU simulator, stock NetX on it, and Loihi 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro import bundle
from asp_neuro.chip import preflight, session
from asp_neuro.heads.spec import STOCK, HeadSpec
from asp_neuro.libraries import install, is_there
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


def netx(path: Path) -> Machine:
    """Stock NetX on the simulator, with a bundle of the stock form: it has the weights of that file."""

    def head(_: HeadSpec, drives_int: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = session.run_head(bundle.read(path).head, drives_int, net_config=path.read_bytes())
        return found.membranes, found.spikes

    return Machine("netx", head, any_head=False)


def why_not_netx(head: HeadSpec) -> str | None:
    """Why stock NetX cannot run a head; None: it can."""
    if head.form != STOCK:
        return f"it knows no neurons of the form '{head.form}'"
    exponents = [layer.weight_exp for layer in head.layers]
    if any(exponents):
        return f"it has no word for the exponents {exponents} of the synapses (head.weight_exp)"
    return None if is_there("lava.lib.dl") else f"lava-dl is not installed; {install('lava')}"


SIMULATOR = Machine("sim", simulator_head, simulator_answers)
LOIHI2 = Machine("loihi2", answers=chip_answers)
