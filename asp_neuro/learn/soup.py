"""Weight averages over trainings (model soups): trainings that start from one stage end near each other, so that the
mean of their weights is a network too, often a better one than each. Scales of the integer grid are not averaged: what
starts from a soup finds its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from asp_neuro.errors import ConfigError, UsageError
from asp_neuro.learn import checkpoint
from asp_neuro.learn.training import is_scale


def averaged(paths: Sequence[str | Path]) -> dict[str, Any]:
    """What a checkpoint of the mean holds: the first one's recipe and classes, weights in floating point."""
    if len(paths) < 2:
        raise UsageError("a soup is made of at least two checkpoints")
    found = [checkpoint.read(checkpoint.find(path)) for path in paths]
    first = found[0]
    for path, other in zip(paths[1:], found[1:]):
        _check_alike(first, other, str(path))
    states = [one["model"] for one in found]
    mean = {key: _mean([state[key] for state in states]) for key in states[0] if not is_scale(key)}
    return {"recipe": first["recipe"], "classes": first["classes"], "deploy": False, "model": mean, "history": []}


def _mean(alike: list[Tensor]) -> Tensor:
    return torch.stack([one.double() for one in alike]).mean(dim=0).to(alike[0].dtype)


def _check_alike(first: dict[str, Any], other: dict[str, Any], name: str) -> None:
    """Trainings of one recipe, but for its seed and name."""
    if first["classes"] != other["classes"]:
        raise ConfigError(f"'{name}' knows other classes than the first one")
    for section in ("data", "scene", "task", "model", "head"):
        if first["recipe"].get(section) != other["recipe"].get(section):
            raise ConfigError(f"'{name}' was trained by a recipe with another [{section}] than the first one's")
    if first["recipe"].get("train", {}).get("start") != other["recipe"].get("train", {}).get("start"):
        raise ConfigError(f"'{name}' did not start where the first one did: the mean of their weights means nothing")
