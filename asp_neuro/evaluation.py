"""A trained model over a whole data set at full budget: what every rule answers after every observation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from asp_neuro.examples import Examples
from asp_neuro.model import Choose, Model, follow, learned, oracle

BATCH = 64


@dataclass(frozen=True)
class Record:
    """One full-budget run over n clouds: every exit rule can be read off it, cloud by cloud."""

    logits: np.ndarray  # [T, n, C] float32
    order: np.ndarray  # [T, n]
    labels: np.ndarray  # [n]
    firing_rate: np.ndarray  # [L]
    max_membrane: np.ndarray  # [L, H] float units

    def correct(self, average: bool = False) -> np.ndarray:
        """[T, n] bool: whether the answer after k observations is right; from the last logits, or their mean."""
        logits = self.logits
        if average:
            logits = np.cumsum(logits, axis=0) / np.arange(1, len(logits) + 1)[:, None, None]
        return logits.argmax(axis=2) == self.labels

    def accuracy(self, average: bool = False) -> np.ndarray:
        """[T] share of right answers after 1, 2, ... observations."""
        return self.correct(average).mean(axis=1)


def surprise(record: Record) -> float:
    """Mean negative log-likelihood of the true class, over all steps: less noisy than accuracy, for choices."""
    shifted = record.logits - record.logits.max(axis=2, keepdims=True)
    log = shifted - np.log(np.exp(shifted).sum(axis=2, keepdims=True))
    return float(-log[:, np.arange(len(record.labels)), record.labels].mean())


def accuracy_at(record: Record, at: Iterable[int] = (1, 2, 3, 4, 8)) -> dict[str, float]:
    """The share of right answers after some numbers of observations, and at full budget ("M")."""
    curve = record.accuracy()
    found = {str(k): float(curve[k - 1]) for k in at if k <= len(curve)}
    return {**found, "M": float(curve[-1])}


@dataclass(frozen=True)
class Comparison:
    """The learned policy against a rival after k observations, cloud by cloud, over one or more trained models."""

    rule: str
    k: int
    learned: float  # accuracy
    rival: float
    standard_error: float  # of the difference, paired over clouds (the mean over models of each cloud)

    @property
    def difference(self) -> float:
        return self.learned - self.rival


def compare(learned_records: list[Record], rival_records: list[Record], rule: str, k: int) -> Comparison:
    """Paired comparison: same clouds, same weights, another rule."""
    ours = np.mean([r.correct()[k - 1] for r in learned_records], axis=0)
    theirs = np.mean([r.correct()[k - 1] for r in rival_records], axis=0)
    error = float(np.std(ours - theirs, ddof=1) / np.sqrt(len(ours)))
    return Comparison(rule, k, float(ours.mean()), float(theirs.mean()), error)


@torch.no_grad()
def evaluate(model: Model, examples: Examples, rule: str = "learned", seed: int = 0) -> Record:
    """Run every cloud at full budget with one selection rule; all else stays the same, byte for byte."""
    was_training = model.training
    model.eval()
    n_chunks = examples.chunks.n_chunks
    orders = np.argsort(np.random.default_rng([seed, 77]).random((len(examples), n_chunks)), axis=1)
    logits, taken, rates, highest = [], [], [], []
    for start in range(0, len(examples), BATCH):
        index = np.arange(start, min(start + BATCH, len(examples)))
        batch = examples.batch(index)
        choose = _rule(rule, model, batch.labels, torch.from_numpy(orders[index]))
        played = model.rollout(model.look(batch), choose, n_chunks)
        logits.append(played.logits.float().numpy())
        taken.append(played.order.numpy())
        rates.append(played.firing_rate.numpy() * len(index))
        highest.append(played.max_membrane.double().numpy())
    model.train(was_training)
    return Record(
        np.concatenate(logits, axis=1),
        np.concatenate(taken, axis=1),
        examples.labels,
        np.sum(rates, axis=0) / len(examples),
        np.max(highest, axis=0),
    )


def _rule(name: str, model: Model, labels: torch.Tensor, random: torch.Tensor) -> Choose:
    if name == "learned":
        return learned(model.policy)
    if name == "oracle":
        return oracle(model, labels)
    if name == "random":
        return follow(random)
    if name == "fps_order":
        return follow(torch.arange(random.shape[1]).expand_as(random))
    raise ValueError(f"unknown rule '{name}'")
