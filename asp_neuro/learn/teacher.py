"""A teacher: a wider network without spikes that sees all groups of a cloud at once, to distil from.

    cloud -> tokens of all groups (our encoder, wider) -> largest and mean -> two-layer map -> logits

It is trained on the clouds that the student's recipe trains on (`workshop.training_clouds`) and on nothing else: no
calibration shape, which the certificate rests on, nor any other that the recipe holds out (`data.without`), reaches a
student through it. What it leaves behind are its logits for those clouds, by name (`workshop.teacher_logits`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asp_neuro import files
from asp_neuro.data import CloudSet
from asp_neuro.errors import ConfigError, InputError
from asp_neuro.learn.cloud_encoder import Encoder
from asp_neuro.learn.examples import Examples, examples_of
from asp_neuro.learn.model import Batch
from asp_neuro.learn.recipe import PartsRecipe, Recipe
from asp_neuro.learn.training import class_weight
from asp_neuro.learn.workshop import training_clouds

BATCH = 64  # of the pass that leaves the logits


@dataclass(frozen=True)
class TeacherRecipe:
    epochs: int = 30
    batch_size: int = 32
    learning_rate: float = 2e-3
    weight_decay: float = 0.01
    label_smoothing: float = 0.1
    widen: int = 2  # times the student's widths
    dropout: float = 0.4

    def __post_init__(self) -> None:
        for name, low in (("epochs", 1), ("batch_size", 2), ("widen", 1)):
            if getattr(self, name) < low:
                raise ConfigError(f"teacher: {name} = {getattr(self, name)} must be at least {low}")


class Teacher(nn.Module):
    def __init__(self, recipe: Recipe, n_classes: int, how: TeacherRecipe) -> None:
        super().__init__()
        width = how.widen * recipe.model.width
        first, second = recipe.model.edge_widths
        self.encoder = Encoder((how.widen * first, how.widen * second), width)
        self.answer = nn.Sequential(
            nn.LayerNorm(2 * width),
            nn.Linear(2 * width, width),
            nn.ReLU(),
            nn.Dropout(how.dropout),
            nn.Linear(width, n_classes),
        )

    def forward(self, batch: Batch) -> Tensor:
        """Logits [b, C] from all groups."""
        tokens = self.encoder.tokens(batch.points, batch.members)  # [b, G, D]
        return self.answer(torch.cat([tokens.amax(dim=1), tokens.mean(dim=1)], dim=1))


OnEpoch = Callable[[int, float, float], None]  # epoch from 1, mean loss, share of right answers while training


def train_teacher(
    recipe: Recipe, examples: Examples, n_classes: int, how: TeacherRecipe, on_epoch: OnEpoch | None = None
) -> Teacher:
    """Train on the given clouds, with the recipe's augmentation and seed."""
    if len(examples) < 2:
        raise InputError(f"{len(examples)} clouds to train a teacher on, at least 2 are needed")
    torch.manual_seed(recipe.seed)
    rng = np.random.default_rng([recipe.seed, 4])
    teacher = Teacher(recipe, n_classes, how)
    with torch.no_grad():
        near = examples.batch(np.arange(min(512, len(examples))))
        teacher.encoder.reach.copy_(_reach(near))
    power = recipe.train.class_weight_power
    weight = class_weight(examples.labels, n_classes, power) if power > 0.0 else None
    optimiser = torch.optim.AdamW(teacher.parameters(), lr=how.learning_rate, weight_decay=how.weight_decay)
    n_batches = max(1, len(examples) // how.batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, how.learning_rate, total_steps=how.epochs * n_batches)
    teacher.train()
    for epoch in range(how.epochs):
        total, right, seen = 0.0, 0, 0
        for index in np.array_split(rng.permutation(len(examples))[: n_batches * how.batch_size], n_batches):
            batch = examples.batch(index, recipe.augment, rng)
            logits = teacher(batch)
            loss = F.cross_entropy(logits, batch.labels, weight=weight, label_smoothing=how.label_smoothing)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(teacher.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            total += float(loss.detach())
            right += int((logits.argmax(dim=1) == batch.labels).sum())
            seen += len(index)
        if on_epoch is not None:
            on_epoch(epoch + 1, total / n_batches, right / seen)
    return teacher.eval()


def _reach(batch: Batch) -> Tensor:
    """Twice the spread of x_j - x_i, as the student measures it."""
    near = batch.points.gather(1, batch.members.flatten(1).unsqueeze(2).expand(-1, -1, 3))
    near = near.view(*batch.members.shape, 3)
    return (near - near[:, :, :1]).std() * 2.0


@torch.no_grad()
def logits_of(teacher: Teacher, examples: Examples) -> np.ndarray:
    """[n, C] float32, clouds as they are."""
    parts = [np.arange(at, min(at + BATCH, len(examples))) for at in range(0, len(examples), BATCH)]
    return np.concatenate([teacher(examples.batch(index)).numpy() for index in parts])


def write_logits(path: Path, clouds: CloudSet, logits: np.ndarray) -> None:
    """For `training`; the names are the clouds' own."""
    with files.writing(path) as file:
        np.savez(file, names=np.array(clouds.names), logits=logits.astype(np.float32))


def teach(
    recipe: Recipe,
    out: Path,
    how: TeacherRecipe = TeacherRecipe(),
    data: str | Path | None = None,
    up: str | None = None,
    on_epoch: OnEpoch | None = None,
) -> dict[str, object]:
    """Train a teacher on the clouds that the recipe trains on, write its logits to `out`, return the report."""
    if isinstance(recipe.task, PartsRecipe):
        raise ConfigError(f"recipe '{recipe.name}' labels points: a teacher's logits are of clouds")
    how_cut = recipe.chunking
    clouds = training_clouds(recipe, data, up)
    examples = examples_of(clouds, how_cut)
    teacher = train_teacher(recipe, examples, len(clouds.classes), how, on_epoch)
    logits = logits_of(teacher, examples)
    write_logits(out, clouds, logits)
    return {
        "out": str(out),
        "recipe": recipe.name,
        "clouds": len(clouds),
        "parameters": sum(p.numel() for p in teacher.parameters()),
        "train_accuracy": float((logits.argmax(axis=1) == clouds.labels).mean()),
    }
