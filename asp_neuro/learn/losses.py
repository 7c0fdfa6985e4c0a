"""What training minimises (paper Eq. 4, and the options beside it)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def answers(
    logits: Tensor,
    labels: Tensor,
    smoothing: float,
    n_total: int,
    weight: Tensor | None = None,
    late: float = 0.0,
    other: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Cross-entropy, mean over steps; summed over the clouds at hand and divided by the whole batch's number.

    `weight` [C] counts a cloud by its class; `late` > 0 weighs step t with t^late (0: all alike, as in Eq. 4).
    `other`: second labels [b] of mixed clouds and the share [T, b] with which they are the right answer.
    """
    steps = len(logits)

    def to(labels: Tensor) -> Tensor:
        loss = F.cross_entropy(
            logits.flatten(0, 1), labels.repeat(steps), label_smoothing=smoothing, reduction="none"
        ).view(steps, -1)
        return loss if weight is None else loss * weight[labels]

    loss = to(labels)
    if other is not None:
        loss = torch.lerp(loss, to(other[0]), other[1])
    if late > 0.0:
        share = torch.arange(1, steps + 1, dtype=loss.dtype) ** late
        loss = loss * (share * steps / share.sum())[:, None]
    return loss.sum() / (steps * n_total)


def agreement(logits: Tensor, n_total: int) -> Tensor:
    """Squared distance of the earlier logits to the stopped gradient of the last (TET, Eq. 4)."""
    if len(logits) < 2:
        return logits.new_zeros(())
    return ((logits[:-1] - logits[-1].detach()) ** 2).sum() / ((len(logits) - 1) * n_total)


def distillation(logits: Tensor, teacher: Tensor, temperature: float, n_total: int) -> Tensor:
    """Soft targets of a teacher [b, C], the same at every step."""
    target = F.softmax(teacher / temperature, dim=1)
    log = F.log_softmax(logits / temperature, dim=2)
    return -(target * log).sum() * temperature**2 / (len(logits) * n_total)


def imitation(scores: Tensor, likelihood: Tensor, temperature: float, n_total: int) -> Tensor:
    """Cross-entropy of the policy's scores [b, M] to the ranking of one-step likelihoods [b, M] (both masked)."""
    target = F.softmax(likelihood / temperature, dim=1)
    return -(target * F.log_softmax(scores, dim=1)).sum() / n_total


def rate(firing_rate: Tensor, target: float) -> Tensor:
    """Penalty on layers that fire more than the target."""
    return torch.relu(firing_rate - target).pow(2).sum()
