"""The trained module in deploy mode as a machine: `verify --checkpoint` compares it with the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from asp_neuro.errors import InputError
from asp_neuro.grid.softmax import margin
from asp_neuro.learn import part_lessons
from asp_neuro.learn.examples import batch_for
from asp_neuro.learn.heads import set_steps
from asp_neuro.learn.integers import first_difference
from asp_neuro.learn.model import Episode, Model, learned
from asp_neuro.learn.training import load_model
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.look import Answer, Look, answers
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.model.spec import ModelSpec
from asp_neuro.runtime.machine import BATCH, Machine, OnAnswer


def trained(checkpoint: str | Path, deployed: ModelSpec) -> Machine:
    """The module of a checkpoint; refused unless it holds the very integers of the deployed network."""
    model, recipe, classes, _ = load_model(checkpoint)
    if deployed.head.steps > 1:
        set_steps(model.head, deployed.head.steps)
    if not model.has_scales:
        raise InputError(f"'{checkpoint}' never ran on the integer grid; there is no integer network to compare")
    apart = first_difference(deployed, model.spec(recipe.scene, classes))
    if apart is not None:
        raise InputError(f"'{checkpoint}' is not what this bundle was made of: they differ in {apart}")
    return machine(model)


def machine(model: Model) -> Machine:
    """A module that has its scales."""
    model.deploy = True
    return Machine(
        "torch",
        lambda spec, drives_int: run_head(model, drives_int),
        lambda perceiver, scenes, rule, batch, told: module_answers(model, perceiver, scenes, rule, batch, told),
        any_head=False,
        looks=lambda perceiver, scenes: module_looks(model, perceiver, scenes, ExitRule()),
    )


def run_head(model: Model, drives_int: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drives [T, b, n] through the module's own head: membranes and spikes [T, L, b, H]."""
    with torch.no_grad():
        drives = torch.from_numpy(drives_int.astype(np.float64) * 2.0**-model.mixer.drive_bits)
        membranes, spikes, _ = model.head.run(drives, model.head.start(drives.shape[1]), model.head.fold())
    return tuple(torch.stack(x, dim=1).round().to(torch.int64).numpy() for x in (membranes, spikes))


def module_answers(
    model: Model,
    perceiver: Perceiver,
    scenes: Any,
    rule: ExitRule,
    batch: int = BATCH,
    on_answer: OnAnswer | None = None,
) -> list[Answer]:
    """The module's own episodes, with exits."""
    told: list[Answer] = []
    for start in range(0, len(scenes), batch):
        looks = module_looks(model, perceiver, scenes[start : start + batch], rule)
        for answer in answers(looks, perceiver.model.task, rule):
            if on_answer is not None:
                on_answer(len(told), answer)
            told.append(answer)
    return told


@torch.no_grad()
def module_looks(model: Model, perceiver: Perceiver, scenes: Any, rule: ExitRule) -> list[Look]:
    """What the module sees, decides and believes: looks as the deployed network leaves them.

    All scenes of the batch run to the end of the budget; a look holds those that are still under way.
    """
    model.eval()
    episode = model.begin(model.look(batch_for(scenes, model)))
    asked = None if model.points is None else part_lessons.Asked(model, scenes, episode.sight)
    rows, found = np.arange(len(scenes)), []
    for t in range(1, perceiver.budget + 1):
        choice = learned(model.policy)(episode)
        model.observe(episode, choice)
        logits = model.logits(episode.belief, episode.sight.deployed).numpy()[:, None]
        if asked is not None:
            logits = asked.logits(episode, logits[:, 0])
        look = _look(model, perceiver, episode, choice.argmax(dim=1).numpy(), rule, t, rows, logits[rows])
        found.append(look)
        if look.done.all():
            break
        rows = rows[~look.done]
    return found


def _look(
    model: Model, perceiver: Perceiver, episode: Episode, place: np.ndarray, rule: ExitRule, t: int, rows: np.ndarray,
    logits: np.ndarray,
) -> Look:  # fmt: skip
    task = perceiver.model.task
    gap = task.pool(margin(logits))
    crossed = rule.crossed(gap)
    assert episode.drive is not None
    return Look(
        t, rows, place[rows], None, None, episode.drive.numpy()[rows] * 2.0**model.mixer.drive_bits,
        episode.state.membrane[-1].numpy()[rows], None, episode.belief.numpy()[rows], logits, gap, task.label(logits),
        crossed, crossed | (t == rule.most(perceiver.budget)),
    )  # fmt: skip
