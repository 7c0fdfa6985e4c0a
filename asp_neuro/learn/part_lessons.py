"""What a model of parts is trained by, and judged by.

A step plays whole episodes and asks for a few points of every cloud after some looks and after all of them. The
policy imitates where the present loss lies: each unseen chunk's share of it. The category's read-out learns beside.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from asp_neuro.data.iou import class_mean, instance_ious
from asp_neuro.data.parts import Catalogue
from asp_neuro.learn import losses
from asp_neuro.learn.grid import instead
from asp_neuro.learn.model import Choose, Episode, Model, Sight, follow, learned, one_hot
from asp_neuro.learn.part_examples import PartBatch, PartExamples
from asp_neuro.learn.parts import Groups, Map, map_of
from asp_neuro.learn.policy import gumbel
from asp_neuro.learn.rare_parts import Emphasis, lovasz_softmax
from asp_neuro.learn.recipe import PartsRecipe, Recipe
from asp_neuro.scenes.cloud import Chunks
from asp_neuro.tasks.parts import NEVER

BATCH = 32
JUDGED = 256  # points of a validation cloud that an epoch is judged by
SOME = (0, 1, 1, 1, 2, 2, 3, 4, 5, 6, 8, 10)  # looks, one of them a step


def groups_of(model: Model, sight: Sight) -> Groups:
    """What groups and chunks give to contexts, on the grid or not."""
    points = model.points
    assert points is not None
    assert sight.tokens is not None
    assert sight.embedding is not None
    made = points.groups if sight.deployed is None else points.groups_on_grid
    return made(sight.tokens, sight.embedding)


def logits_of(
    model: Model, sight: Sight, groups: Groups, where: Map, visited: Tensor, belief: Tensor, category: Tensor
) -> Tensor:
    """[b, Q, n_parts] of the points of `where`."""
    points = model.points
    assert points is not None
    if sight.deployed is None:
        return points(groups, where, visited, belief, category)
    return points.on_grid(groups, where, visited, belief, category)


def where_of(model: Model, batch: PartBatch) -> Map:
    clouds, how = batch.clouds, model.task
    assert isinstance(how, PartsRecipe)
    return map_of(clouds.points, clouds.members, batch.first, batch.second, batch.queries, how.near)


def soft_jaccard(logits: Tensor, parts: Tensor) -> Tensor:
    """Logits [b, Q, n] and parts [b, Q] -> [b] one minus the mean soft IoU of the parts that are there."""
    share, truth = logits.softmax(dim=2), F.one_hot(parts, logits.shape[2]).to(logits.dtype)
    inside = (share * truth).sum(dim=1)
    union = share.sum(dim=1) + truth.sum(dim=1) - inside
    there = (truth.sum(dim=1) > 0).to(logits.dtype)
    return 1.0 - (inside / union.clamp_min(1e-6) * there).sum(dim=1) / there.sum(dim=1)


def part_loss(
    model: Model,
    recipe: Recipe,
    batch: PartBatch,
    temperature: float,
    noise: Tensor,
    random: Tensor,
    unknown: Tensor,
    looks: tuple[int, ...],
    n_total: int,
    weight: Tensor | None = None,
    stress: Emphasis | None = None,
) -> tuple[Tensor, Tensor]:
    """Loss of a (part of a) batch, already divided by the whole batch's number of clouds, and the firing rate.

    `noise` [T, b, M] and `random` [b, M + 1] as for classes; `unknown` [b] bool: the category is not told; `looks`:
    after how many the points are asked for.
    """
    how, task = recipe.train, recipe.task
    assert isinstance(task, PartsRecipe)
    assert model.points is not None
    steps, n, m = noise.shape
    told = torch.where(unknown, model.points.unknown, batch.clouds.labels)
    sight = model.look(batch.clouds)
    seen, choose = _sampling(model, noise, random, how.random_share, temperature)
    with torch.no_grad():
        start = model.begin(sight).belief
        played = model.rollout(sight, choose, steps)
    choices = one_hot(played.order, m, sight.gates)
    played = model.again(sight, choices, played)
    visited = torch.cat([torch.zeros_like(choices[:1]), choices.cumsum(dim=0).clamp_max(1.0)])  # [T + 1, b, M]
    where, groups = where_of(model, batch), groups_of(model, sight)
    by_cloud = torch.ones(n) if weight is None else weight[batch.clouds.labels]
    loss = noise.new_zeros(())
    for k in looks:
        belief = start if k == 0 else played.beliefs[k - 1]
        logits = logits_of(model, sight, groups, where, visited[k].float(), belief, told).float()
        wrong = F.cross_entropy(logits.flatten(0, 1), batch.parts.flatten(), reduction="none").view(n, -1)
        one = wrong.mean(dim=1)
        if stress is not None and stress.weight is not None:
            counts = stress.weight[batch.parts]
            one = (wrong * counts).sum(dim=1) / counts.sum(dim=1)
        if task.jaccard > 0.0:
            one = one + task.jaccard * soft_jaccard(logits, batch.parts)
        if stress is not None and stress.lovasz is not None:
            loss = loss + lovasz_softmax(logits, batch.parts, stress.lovasz) * n / (n_total * len(looks))
        loss = loss + (one * by_cloud).sum() / (n_total * len(looks))
        if k < steps and how.imitation > 0.0:
            target = _loss_shares(wrong.detach(), where, visited[k].float())
            scores = _scores(model, sight, *seen[k], k)
            loss = loss - how.imitation * (target * F.log_softmax(scores, dim=1)).sum() / (n_total * len(looks))
    loss = loss + task.category_loss * losses.cross_entropy(
        played.logits.float(), batch.clouds.labels, how.label_smoothing, n_total, weight
    )
    return loss, played.firing_rate.detach()


def _sampling(
    model: Model, noise: Tensor, random: Tensor, random_share: float, temperature: float
) -> tuple[list[tuple[Tensor, Tensor]], Choose]:
    """A rule that takes the policy's draw or a random order, and what it saw: scores and belief of each step."""
    seen: list[tuple[Tensor, Tensor]] = []
    free = random[:, -1] >= random_share
    order, drawn = random[:, :-1].argsort(dim=1), gumbel(noise)

    def choose(episode: Episode) -> Tensor:
        scores = episode.scores(model.policy, True)
        seen.append((scores, episode.belief))
        own = (scores / temperature + drawn[episode.step]).argmax(dim=1)
        return one_hot(torch.where(free, own, order[:, episode.step]), noise.shape[2], scores)

    return seen, choose


def _scores(model: Model, sight: Sight, values: Tensor, belief: Tensor, step: int) -> Tensor:
    """Scores [b, M] as they were, with the policy's gradient."""
    if step == 0 and sight.first is not None:
        return sight.first.float()
    smooth = model.policy(belief.float(), sight.geometry.float())
    return instead(smooth, values.float())


def _loss_shares(wrong: Tensor, where: Map, visited: Tensor) -> Tensor:
    """Losses of points [b, Q] -> each unseen chunk's share of them [b, M]."""
    chunk = where.first.gather(1, where.nearest)
    total = torch.zeros_like(visited).scatter_add_(1, chunk, wrong.to(visited.dtype))
    open_ones = (total + 1e-6) * (1.0 - visited)
    return open_ones / open_ones.sum(dim=1, keepdim=True)


def draw_looks(rng: np.random.Generator, budget: int) -> tuple[int, ...]:
    """After how many looks a step asks for points: some, and all."""
    return min(int(rng.choice(SOME)), budget - 1), budget


class Asked:
    """The points that an exit is decided on, as the trained module answers them."""

    def __init__(self, model: Model, scenes: Chunks, sight: Sight) -> None:
        assert isinstance(model.task, PartsRecipe)
        assert model.points is not None
        self.model, self.sight, self.groups = model, sight, groups_of(model, sight)
        centres = torch.from_numpy(scenes.centres())
        first, second = (torch.from_numpy(x.astype(np.int64)) for x in (scenes.first, scenes.second))
        self.where = map_of(
            torch.from_numpy(scenes.coordinates()),
            torch.from_numpy(scenes.members.astype(np.int64)),
            first,
            second,
            centres[:, : model.task.asked],
            model.task.near,
        )
        self.given = scenes.categories.astype(np.int64)
        self.told = torch.from_numpy(np.where(self.given < 0, model.points.unknown, self.given))

    def logits(self, episode: Episode, category: np.ndarray) -> np.ndarray:
        """[b, asked + 1, n_parts + C] as the deployed task gives them; `category` [b, C] of its read-out."""
        parts = logits_of(
            self.model, self.sight, self.groups, self.where, episode.visited.float(), episode.belief, self.told
        ).numpy()
        b, n_asked, n_parts = parts.shape
        out = np.full((b, n_asked + 1, n_parts + category.shape[1]), NEVER)
        out[:, :-1, :n_parts], out[:, -1, n_parts:] = parts, category
        known = (self.given >= 0).nonzero()[0]
        out[known, -1, n_parts:] = NEVER
        out[known, -1, n_parts + self.given[known]] = 0.0
        return out


@torch.no_grad()
def show_points(model: Model, examples: PartExamples, index: np.ndarray, seed: int) -> None:
    """Let the dense part see points after 1, a few and all looks, so that its ranges are noted."""
    rng = np.random.default_rng(seed)
    assert isinstance(model.task, PartsRecipe)
    assert model.points is not None
    for some in np.array_split(index, -(-len(index) // BATCH)):
        batch = examples.part_batch(some, model.task.queries, None, rng)
        sight = model.look(batch.clouds)
        where, groups = where_of(model, batch), groups_of(model, sight)
        m = sight.gates.shape[1]
        for k in (1, m // 4, m):
            order = torch.from_numpy(rng.random((len(some), m)).argsort(axis=1))
            visited = F.one_hot(order[:, :k], m).sum(dim=1).float()
            belief = model.rollout(sight, follow(order), k).beliefs[-1]
            logits_of(model, sight, groups, where, visited, belief, batch.clouds.labels)


@torch.no_grad()
def judge_parts(
    model: Model, examples: PartExamples, rule: str = "learned", n_queries: int = JUDGED, at: tuple[int, ...] = (1, 4)
) -> dict[str, Any]:
    """Instance and class mIoU after some looks and at full budget ("M"), the category given."""
    was_training = model.training
    model.eval()
    assert isinstance(model.task, PartsRecipe)
    catalogue = Catalogue(tuple(map(str, range(len(model.task.parts)))), model.task.parts)
    m = examples.chunks.n_chunks
    ks = [k for k in at if k < m] + [m]
    found: dict[int, list[np.ndarray]] = {k: [] for k in ks}
    right = []
    for start in range(0, len(examples), BATCH):
        index = np.arange(start, min(start + BATCH, len(examples)))
        batch = examples.part_batch(index, n_queries, None, np.random.default_rng(start))
        sight = model.look(batch.clouds)
        where, groups = where_of(model, batch), groups_of(model, sight)
        order = torch.from_numpy(np.random.default_rng(start).random((len(index), m)).argsort(axis=1))
        played = model.rollout(sight, learned(model.policy) if rule == "learned" else follow(order), m)
        right.append((played.logits[-1].argmax(dim=1) == batch.clouds.labels).numpy())
        visited = one_hot(played.order, m, batch.clouds.points).cumsum(dim=0)
        for k in ks:
            logits = logits_of(
                model, sight, groups, where, visited[k - 1].clamp_max(1.0), played.beliefs[k - 1], batch.clouds.labels
            )
            labels = logits.argmax(dim=2).numpy()
            found[k].append(instance_ious(labels, batch.parts.numpy(), examples.labels[index], catalogue))
    model.train(was_training)
    ious = {k: np.concatenate(rows) for k, rows in found.items()}
    names = {k: "M" if k == m else str(k) for k in ks}
    return {
        "miou_at": {names[k]: float(iou.mean()) for k, iou in ious.items()},
        "class_miou_at": {names[k]: class_mean(iou, examples.labels) for k, iou in ious.items()},
        "category_accuracy": float(np.concatenate(right).mean()),
    }
