"""A trained model over a whole data set at full budget: logits after every observation, for each selection rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from asp_neuro.certify import Recording
from asp_neuro.grid.softmax import margin
from asp_neuro.learn.examples import Examples
from asp_neuro.learn.model import Choose, Model, follow, learned, oracle
from asp_neuro.model.rules import random_orders

BATCH = 64
INVERSE_TEMPERATURES = (0.8, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)


@dataclass(frozen=True)
class Record:
    """One full-budget run over n clouds: every exit rule can be read off it, cloud by cloud."""

    logits: np.ndarray  # [T, n, C] float32, or float64 on the integer grid
    order: np.ndarray  # [T, n]
    labels: np.ndarray  # [n]
    firing_rate: np.ndarray  # [L]
    max_membrane: np.ndarray  # [L, H] float units

    def answering(self, average: bool = False) -> np.ndarray:
        """[T, n, C] the logits that answer after k observations: the last ones, or the mean of those so far."""
        if not average:
            return self.logits
        return np.cumsum(self.logits, axis=0) / np.arange(1, len(self.logits) + 1)[:, None, None]

    def correct(self, average: bool = False) -> np.ndarray:
        """[T, n] bool: whether the answer after k observations is right."""
        return self.answering(average).argmax(axis=2) == self.labels

    def recording(self, average: bool = False) -> Recording:
        """Margin and correctness after every observation: what exits are read off."""
        return Recording(margin(self.answering(average)), self.correct(average))

    def accuracy(self, average: bool = False) -> np.ndarray:
        """[T] share of right answers after 1, 2, ... observations."""
        return self.correct(average).mean(axis=1)


def negative_log_likelihood(record: Record) -> float:
    """Of the true class, mean over clouds and steps: less noisy than accuracy when recipes are compared."""
    shifted = record.logits - record.logits.max(axis=2, keepdims=True)
    log = shifted - np.log(np.exp(shifted).sum(axis=2, keepdims=True))
    return float(-log[:, np.arange(len(record.labels)), record.labels].mean())


def temperature_scaled_nll(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Logits [n, C] -> [n] negative log-likelihood after temperature scaling, one temperature for all."""
    given, right = torch.from_numpy(logits), torch.from_numpy(labels)
    scaled = [torch.nn.functional.cross_entropy(given * by, right, reduction="none") for by in INVERSE_TEMPERATURES]
    return min(scaled, key=lambda losses: float(losses.mean())).numpy()


def accuracy_at(record: Record, at: Iterable[int] = (1, 2, 3, 4, 8)) -> dict[str, float]:
    """The share of right answers after some numbers of observations, and at full budget ("M")."""
    curve = record.accuracy()
    shares = {str(k): float(curve[k - 1]) for k in at if k <= len(curve)}
    return {**shares, "M": float(curve[-1])}


@torch.no_grad()
def evaluate(model: Model, examples: Examples, rule: str = "learned", seed: int = 0) -> Record:
    """Run every cloud at full budget with one selection rule; all else stays the same, byte for byte."""
    was_training = model.training
    model.eval()
    orders = random_orders(len(examples), examples.n_places, seed)
    logits, taken, rates, highest = [], [], [], []
    for start in range(0, len(examples), BATCH):
        index = np.arange(start, min(start + BATCH, len(examples)))
        batch = examples.batch(index)
        choose = _rule(rule, model, batch.labels, torch.from_numpy(orders[index]))
        played = model.rollout(model.look(batch), choose, examples.budget)
        logits.append(played.logits.numpy())
        taken.append(played.order.numpy())
        rates.append(played.firing_rate.numpy() * len(index))
        highest.append(played.max_membrane().double().numpy())
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


@torch.no_grad()
def whole_accuracy(model: Model, examples: Examples) -> float:
    """The share of images that the dense control, from whole maps, is right about."""
    was_training = model.training
    model.eval()
    right = 0
    for start in range(0, len(examples), BATCH):
        batch = examples.batch(np.arange(start, min(start + BATCH, len(examples))))
        whole = model.look(batch).whole
        assert whole is not None
        right += int((whole.argmax(dim=1) == batch.labels).sum())
    model.train(was_training)
    return right / len(examples)
