"""The plain reference of a whole network (`model/reference.py`) as a machine: it joins `verify` for a few clouds."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from asp_neuro.model.exit import ExitRule
from asp_neuro.model.look import Answer, Look, answers
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.model.reference import Network, Seen
from asp_neuro.model.spec import ModelSpec
from asp_neuro.runtime.machine import Machine, OnAnswer

KNOWN = ("cloud or image", "classify or parts")  # scene, task; both forms of neuron
AT_MOST = 2  # clouds: each takes 0.4 s (compact) to 1.5 s (modelnet10)


def why_not(model: ModelSpec) -> str | None:
    """Why the reference takes no part; None: it does."""
    scene, task = model.scene.kind, model.task.kind
    known = all(kind in words.split(" or ") for kind, words in zip((scene, task), KNOWN, strict=True))
    return None if known else f"it knows {', '.join(KNOWN)}, this network is {scene}, {task}"


def episodes(perceiver: Perceiver, scenes: Any, rule: ExitRule) -> list[list[Seen]]:
    """What each scene leaves, observation by observation."""
    network = Network(perceiver.spec)
    most = rule.most(perceiver.budget)
    return [list(network.episode(scenes[i : i + 1], rule.tau, most)) for i in range(len(scenes))]


def looks(played: list[list[Seen]], most: int) -> list[Look]:
    """The same as the host leaves it: a look for all scenes under way."""
    found = []
    for t in range(1, 1 + max(map(len, played))):
        rows = np.array([row for row, seen in enumerate(played) if len(seen) >= t])
        here = [played[row][t - 1] for row in rows]
        place, scores, drive, membrane, belief, logits, gap, _, label, crossed = map(np.array, zip(*here))
        done = crossed | (t == most)
        found.append(
            Look(t, rows, place, scores, None, drive, membrane, None, belief / 2.0**24, logits, gap / 2.0**30,
                 label, crossed, done)
        )  # fmt: skip
    return found


def integer_looks(perceiver: Perceiver, scenes: Any) -> list[Look]:
    return looks(episodes(perceiver, scenes, ExitRule()), perceiver.budget)


def integer_answers(
    perceiver: Perceiver, scenes: Any, rule: ExitRule, batch: int = 1, on_answer: OnAnswer | None = None
) -> list[Answer]:
    played = episodes(perceiver, scenes, rule)
    told = []
    most = rule.most(perceiver.budget)
    for seen, answer in zip(played, answers(looks(played, most), perceiver.model.task, rule)):
        shares = np.array(seen[-1].probabilities) / 2.0**30
        told.append(dataclasses.replace(answer, probabilities=shares, probability=float(shares[answer.label])))
        if on_answer is not None:
            on_answer(len(told) - 1, told[-1])
    return told


INTEGERS = Machine("integers", None, integer_answers, any_head=False, looks=integer_looks, at_most=AT_MOST)
