"""What training minimises (paper Eq. 4, and the options beside it)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(
    logits: Tensor,
    labels: Tensor,
    label_smoothing: float,
    n_total: int,
    weight: Tensor | None = None,
    step_weight_power: float = 0.0,
    mixed: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Cross-entropy, mean over steps; summed over the clouds at hand and divided by the whole batch's number.

    `weight` [C] counts a cloud by its class; step t counts t^step_weight_power (0: all alike, as in Eq. 4).
    `mixed`: the second labels [b] of mixup and their share [T, b] of the right answer.
    """
    steps = len(logits)

    def to(labels: Tensor) -> Tensor:
        loss = F.cross_entropy(
            logits.flatten(0, 1), labels.repeat(steps), label_smoothing=label_smoothing, reduction="none"
        ).view(steps, -1)
        return loss if weight is None else loss * weight[labels]

    loss = to(labels)
    if mixed is not None:
        loss = torch.lerp(loss, to(mixed[0]), mixed[1])
    if step_weight_power > 0.0:
        share = torch.arange(1, steps + 1, dtype=loss.dtype) ** step_weight_power
        loss = loss * (share * steps / share.sum())[:, None]
    return loss.sum() / (steps * n_total)


def tet(logits: Tensor, n_total: int) -> Tensor:
    """Temporal efficient training: squared distance of earlier logits to the last ones, detached (Eq. 4)."""
    if len(logits) < 2:
        return logits.new_zeros(())
    return ((logits[:-1] - logits[-1].detach()) ** 2).sum() / ((len(logits) - 1) * n_total)


def distillation(logits: Tensor, teacher: Tensor, temperature: float, n_total: int) -> Tensor:
    """Knowledge distillation: cross-entropy to the soft targets of a teacher [b, C], the same at every step."""
    target = F.softmax(teacher / temperature, dim=1)
    log = F.log_softmax(logits / temperature, dim=2)
    return -(target * log).sum() * temperature**2 / (len(logits) * n_total)


def imitation(scores: Tensor, likelihood: Tensor, temperature: float, n_total: int) -> Tensor:
    """Cross-entropy of the policy's scores [b, M] to the ranking of one-step likelihoods [b, M] (both masked)."""
    target = F.softmax(likelihood / temperature, dim=1)
    return -(target * F.log_softmax(scores, dim=1)).sum() / n_total


def lookahead(scores: Tensor, likelihood: Tensor, n_total: int) -> Tensor:
    """What a place drawn by the scores [b, M] leaves of the true class' probability (log-likelihoods masked).

    Imitation spreads over all good places; this asks for the one whose mean is best, which is what argmax takes.
    """
    return (1.0 - (F.softmax(scores, dim=1) * likelihood.exp()).sum(dim=1)).sum() / n_total


def firing_rate_penalty(firing_rate: Tensor, target: float) -> Tensor:
    """Squared excess of each layer's firing rate [L] over the target."""
    return torch.relu(firing_rate - target).pow(2).sum()


def whole(logits: Tensor | None, labels: Tensor, label_smoothing: float, n_total: int) -> Tensor:
    """Cross-entropy of the answers [b, C] that were found without an episode, already divided by the whole batch."""
    assert logits is not None
    return F.cross_entropy(logits, labels, label_smoothing=label_smoothing, reduction="sum") / n_total
