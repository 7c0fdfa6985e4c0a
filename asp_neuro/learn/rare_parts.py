"""Rare parts at training (paper H.4): points weighted by how rare their part is, Lovász-Softmax, both annealed.

Lovász-Softmax (Berman et al., 2018): for each part that is there, the errors of all points of a batch, sorted, weighted
by how much each would raise the Jaccard loss if it were the next to be wrong.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from asp_neuro.learn.recipe import PartsRecipe


class Emphasis(NamedTuple):
    """What counts how much at a moment of the training; None: nothing special."""

    weight: Tensor | None  # [parts] of a point's cross-entropy
    lovasz: Tensor | None  # [parts] of a part's Lovász loss


def part_weight(parts: np.ndarray, how: PartsRecipe) -> Tensor | None:
    """[parts] (share of the points)^-power, mean over points 1; a part that is not there counts 1."""
    if how.part_weight_power == 0.0:
        return None
    count = np.bincount(parts.ravel(), minlength=sum(how.parts)).astype(np.float64)
    there, share = count > 0, count / count.sum()
    weight = np.where(there, np.maximum(share, 1e-9) ** -how.part_weight_power, 1.0)
    return torch.from_numpy(np.where(there, weight / (weight * share)[there].sum(), 1.0).astype(np.float32))


def strength(how: PartsRecipe, share: float) -> float:
    """From 1 to the floor, in a straight line between the two ends; `share` of the run is done."""
    if share <= how.anneal_start:
        return 1.0
    if share >= how.anneal_end:
        return how.anneal_floor
    done = (share - how.anneal_start) / (how.anneal_end - how.anneal_start)
    return 1.0 + done * (how.anneal_floor - 1.0)


def emphasis(how: PartsRecipe, weight: Tensor | None, share: float) -> Emphasis:
    """Weights of this moment; exempt parts keep all of theirs."""
    left = torch.full((sum(how.parts),), strength(how, share))
    left[list(how.exempt)] = 1.0
    now = None if weight is None else 1.0 + (weight - 1.0) * left
    return Emphasis(now, how.lovasz * left if how.lovasz > 0.0 else None)


def lovasz_softmax(logits: Tensor, parts: Tensor, weight: Tensor) -> Tensor:
    """Logits [b, Q, n] and parts [b, Q] of a batch, taken together -> mean over the parts that are there."""
    share, truth = logits.softmax(dim=2).flatten(0, 1), parts.flatten()
    there = truth.unique()
    inside = truth[:, None] == there
    error = torch.where(inside, 1.0 - share[:, there], share[:, there])  # [b * Q, parts there]
    error, order = error.sort(dim=0, descending=True)
    steps = jaccard_steps(inside.gather(0, order).to(error.dtype))
    return ((error * steps).sum(dim=0) * weight[there]).mean()


def jaccard_steps(inside: Tensor) -> Tensor:
    """[m, k] 0 / 1, the worst errors first -> by how much each raises the Jaccard loss of those before it."""
    total = inside.sum(dim=0)
    intersection = total - inside.cumsum(dim=0)
    union = total + (1.0 - inside).cumsum(dim=0)
    loss = 1.0 - intersection / union
    return torch.cat([loss[:1], loss[1:] - loss[:-1]])
