"""A bundle under study: every rule on the fast engine, in numpy alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro.certify import Recording
from asp_neuro.errors import InputError, UsageError, nearest
from asp_neuro.grid.softmax import margin
from asp_neuro.model.episode import Batch
from asp_neuro.model.exit import ExitReason, ExitRule
from asp_neuro.model.familiarity import told
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.model.rules import fps_orders, image_orders, random_orders
from asp_neuro.report import progress, say
from asp_neuro.runtime import deployment
from asp_neuro.runtime.machine import fast_answers
from asp_neuro.scenes.image import Gaze
from asp_neuro.studies.subjects import Examples, Origin, Promised, Subject
from asp_neuro.tasks.base import Task

BATCH = 64


@dataclass(frozen=True)
class DeployedSubject(Subject):
    perceiver: Perceiver

    @classmethod
    def open(cls, name: str | Path) -> DeployedSubject:
        deployed = deployment.open_bundle(name)
        origin = Origin(deployed.bundle.recipe, deployed.settings, deployed.origin.own)
        try:
            rule = deployment.exit_rule(deployed)[0]
        except InputError as void:  # a study of the model needs no promise
            say(str(void))
            rule = ExitRule()
        perceiver = Perceiver(deployed.bundle.model, rule, deployed.familiarity)
        return cls(str(name), origin, perceiver.classes, perceiver)

    def promised(self, examples: Examples) -> Promised | None:
        rule, spec = self.perceiver.exit_rule, self.perceiver.spec
        if not rule.certified:
            return None
        answers = fast_answers(self.perceiver, examples.chunks, rule)
        answers = told(answers, examples.chunks, spec, rule, self.perceiver.familiarity)
        reasons = np.array([answer.exit.value for answer in answers])
        wrong = np.array([answer.label for answer in answers]) != examples.labels
        unfamiliar, certified = (reasons == one.value for one in (ExitReason.UNFAMILIAR, ExitReason.CERTIFIED))
        return Promised(unfamiliar, certified, wrong)

    def read(self, examples: Examples, rule: str, average: bool = False) -> Recording:
        known = examples.rules(self.origin.scene)
        if rule not in known:
            raise UsageError(f"unknown rule '{rule}'{nearest(rule, known)}")
        parts = list(self._logits(examples, rule))
        logits = np.concatenate(parts, axis=1)  # [T, n, C]
        if average:
            logits = np.cumsum(logits, axis=0) / np.arange(1, len(logits) + 1)[:, None, None]
        return Recording.from_predictions(margin(logits), logits.argmax(axis=2), examples.labels)

    def _logits(self, examples: Examples, rule: str) -> Iterator[np.ndarray]:
        """[T, b, C] of batch after batch, at full budget."""
        orders = self._orders(examples, rule)
        for start in progress(range(0, len(examples.labels), BATCH), label=f"{self.name}, {rule}"):
            part = slice(start, start + BATCH)
            chunks = examples.chunks[part]
            order = None if orders is None else orders[part]
            if rule == "oracle":
                order = oracle_orders(self.perceiver, chunks, examples.labels[part])
            looks = self.perceiver.played(chunks, ExitRule(), order).looks
            yield np.stack([look.logits[:, 0] for look in looks])  # the one target: the cloud

    def _orders(self, examples: Examples, rule: str) -> np.ndarray | None:
        """[n, M], or None where what was seen decides."""
        if isinstance(self.origin.scene, Gaze):
            return image_orders(rule, examples.chunks, self.origin.scene, self.origin.seed, examples.objects)
        n, n_chunks = len(examples.labels), examples.chunks.n_chunks
        fixed = {"random": random_orders(n, n_chunks, self.origin.seed), "fps_order": fps_orders(n, n_chunks)}
        return fixed.get(rule)


def oracle_orders(perceiver: Perceiver, scenes: Any, labels: np.ndarray) -> np.ndarray:
    """[n, budget]: always the unvisited place whose observation gives the true class the largest log-likelihood."""
    model, head, n, n_places = perceiver.model, perceiver.new_head(), len(scenes), perceiver.spec.scene.n_places
    batch, everyone = Batch(model, scenes), np.arange(n)
    embeddings = np.stack([batch.view.embed(everyone, np.full(n, m)) for m in range(n_places)], axis=1)
    carry, free = batch.carry, np.ones((n, n_places), dtype=bool)
    head.start(n)
    taken = []
    for _ in range(perceiver.budget):
        row, place = np.nonzero(free)
        drive_int, _ = model.mixer.step(carry[row], embeddings[row, place])
        trial = copy.copy(head)
        trial.keep(row)  # copies of the states: the head itself stays where it is
        logits = model.task.logits(model.belief(trial.observe(drive_int)), batch.view, row)
        gain = np.full(free.shape, -np.inf)
        gain[row, place] = log_likelihood(log_shares(model.task, logits), labels[row])
        best = gain.argmax(axis=1)
        drive_int, carry = model.mixer.step(carry, embeddings[everyone, best])
        head.observe(drive_int)
        free[everyone, best] = False
        taken.append(best)
    return np.stack(taken, axis=1)


def log_shares(task: Task, logits: np.ndarray) -> np.ndarray:
    """Logits [b, R, C] of a task that gives a scene one class -> [b, C]: as they are, or log-probabilities."""
    if logits.shape[1] == 1:
        return np.asarray(logits[:, 0])
    return np.log(np.maximum(task.shares(logits), np.finfo(np.float64).tiny))


def log_likelihood(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Logits [b, C] -> [b] log of the probability of each true class."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted[np.arange(len(labels)), labels] - np.log(np.exp(shifted).sum(axis=1)))
