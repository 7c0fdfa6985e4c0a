"""Training, from a recipe to `model.pt`: float first, then quantisation-aware, on the integer grid.

Every random number of an epoch follows from (seed, epoch), and the state is saved at the end of each: a run that is
killed at any moment and resumed ends with the same weights, bit for bit, as one that was left alone. Under `torchrun`
each process takes its share of every batch and gradients are summed, so that one step equals that of one process.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from asp_neuro import files, plain
from asp_neuro.data.own import OwnData
from asp_neuro.errors import AspError, ConfigError, InputError
from asp_neuro.learn import checkpoint, integers, losses, score_function
from asp_neuro.learn import recipe as recipes
from asp_neuro.learn.cloud_encoder import over_processes
from asp_neuro.learn.evaluation import accuracy_at, evaluate, negative_log_likelihood, whole_accuracy
from asp_neuro.learn.examples import Examples
from asp_neuro.learn.grid import instead
from asp_neuro.learn.heads import taken_over
from asp_neuro.learn.image_model import ImageModel
from asp_neuro.learn.model import Batch, Episode, Model, Sight, one_hot, true_likelihood
from asp_neuro.learn.part_examples import PartExamples
from asp_neuro.learn.part_lessons import draw_looks, judge_parts, part_loss, show_points
from asp_neuro.learn.policy import gumbel, sample
from asp_neuro.learn.rare_parts import emphasis, part_weight
from asp_neuro.learn.recipe import PartsRecipe, Recipe
from asp_neuro.scenes.cloud import Chunking
from asp_neuro.scenes.image import Gaze

N_RANGES, RANGES_BATCH = 512, 32  # training clouds that the ranges of the host's activations are taken from
HEAD = "head."  # what the head's entries of a state dict begin with
OWN = "own"  # key of own data in a checkpoint
ANEW = "start anew with --force, or name another --out"


class DivergedError(AspError):
    """The loss is no longer a number."""

    kind = "diverged"
    exit_code = 1


@dataclass
class Progress:
    """What a training is told to show, step by step and epoch by epoch."""

    step: Callable[[int, int, int, float], None] = lambda epoch, done, total, loss: None
    epoch: Callable[[dict[str, Any]], None] = lambda row: None
    say: Callable[[str], None] = lambda text: None


@dataclass
class Run:
    """A training in progress: everything that a checkpoint must hold to go on."""

    recipe: Recipe
    classes: tuple[str, ...]
    model: Model
    optimiser: torch.optim.Optimizer
    average: dict[str, Tensor]  # exponential moving average of the weights
    epoch: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    before_deploy: dict[str, float] | None = None  # accuracy_at on validation, the moment before deploy mode
    seconds: float = 0.0
    data: str = ""  # fingerprint of what it is trained on
    class_weight: Tensor | None = None  # [C], follows from recipe and data
    part_weight: Tensor | None = None  # [parts], the same
    averaging: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # each average and what it is of


def world() -> tuple[int, int]:
    """This process' rank and the number of processes."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def build(recipe: Recipe, classes: tuple[str, ...]) -> Model:
    """A fresh model; its weights follow from the recipe's seed."""
    torch.manual_seed(recipe.seed)
    return new_model(recipe, len(classes))


def new_model(recipe: Recipe, n_classes: int) -> Model:
    """A model of the recipe's kind of scene."""
    if isinstance(recipe.scene, Gaze):
        model = ImageModel(recipe.model, n_classes, recipe.head, recipe.scene)
        model.encoder.bfloat16 = recipe.train.bfloat16
        return model
    return Model(recipe.model, n_classes, recipe.head, recipe.task)


def start(recipe: Recipe, classes: tuple[str, ...], examples: Examples) -> Run:
    model = build(recipe, classes)
    sample_index = np.random.default_rng(recipe.seed).permutation(len(examples))[:512]
    model.measure(examples.batch(np.sort(sample_index)))
    if recipe.train.start:
        _start_from(model, recipe.train.start, classes, recipe.train.policy_only)
    if recipe.train.policy_only:
        model.requires_grad_(False).policy.requires_grad_()
    average = {k: v.clone() for k, v in _averaged(model)}
    run = Run(recipe, classes, model, _optimiser(recipe, model), average, data=_fingerprint(examples))
    if recipe.train.class_weight_power > 0.0:
        run.class_weight = class_weight(examples.labels, len(classes), recipe.train.class_weight_power)
    if isinstance(examples, PartExamples) and isinstance(recipe.task, PartsRecipe):
        run.part_weight = part_weight(examples.parts, recipe.task)
    return run


def _start_from(model: Model, name: str, classes: tuple[str, ...], whole: bool = False) -> None:
    """Take over the weights of a checkpoint; the read-out class by class, a class that it does not know starts afresh.

    A fresh read-out would send large gradients into features that are good already. A policy of another width starts
    afresh, and so does a first look that the checkpoint lacks; a head of another form takes over the synapses only.
    `whole`: the head's integer scales are taken over too.
    """
    stored = checkpoint.read(checkpoint.find(name))
    if whole and list(classes) != list(stored["classes"]):
        raise ConfigError(f"train.policy_only: the data's classes are not those of train.start = '{name}'")
    own, given = model.state_dict(), stored["model"]
    known = {label: row for row, label in enumerate(stored["classes"])}
    for key in ("readout.weight", "readout.bias"):
        if key in given and given[key].shape[1:] == own[key].shape[1:]:
            rows = [given[key][known[label]] if label in known else own[key][at] for at, label in enumerate(classes)]
            given[key] = torch.stack(rows)
    head = taken_over(model.head, {key[len(HEAD) :]: value for key, value in given.items() if key.startswith(HEAD)})
    given = {**{k: v for k, v in given.items() if not k.startswith(HEAD)}, **{HEAD + k: v for k, v in head.items()}}
    policy = [key for key in own if key.startswith("policy.")]
    if any(key in given and given[key].shape != own[key].shape for key in policy):
        given.update({key: own[key] for key in policy})
    given.update({key: own[key] for key in policy if key.startswith("policy.first.") and key not in given})
    odd = [key for key in own if not is_scale(key) and (key not in given or given[key].shape != own[key].shape)]
    if odd:
        raise ConfigError(f"train.start = '{name}': its part '{odd[0]}' does not fit this recipe's [model]")
    kept = {k: given[k] for k in own if k in given and (whole or not is_scale(k))}  # or they are found again
    model.load_state_dict({**own, **kept})
    model.deploy = whole and bool(stored.get("deploy", False)) and model.has_scales
    if model.deploy:
        model.policy.fix_scales()  # it may be a new one


def is_scale(key: str) -> bool:
    """Whether an entry of a state dict is a scale of the integer grid: fixed when deploy mode begins, not trained."""
    return key.endswith((".factor", ".state_bits")) or ".grid" in f".{key}"


def class_weight(labels: np.ndarray, n_classes: int, power: float) -> Tensor:
    """[C] (number of clouds of the class)^-power, scaled so that the clouds have mean weight 1."""
    count = np.bincount(labels, minlength=n_classes)
    weight = np.maximum(count, 1.0) ** -power
    return torch.from_numpy((weight / weight[labels].mean()).astype(np.float32))


def _fingerprint(examples: Examples) -> str:
    digest = hashlib.sha256()
    for array in examples.content:
        digest.update(b"none" if array is None else np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _optimiser(recipe: Recipe, model: Model) -> torch.optim.Optimizer:
    """AdamW; biases, gains and the neurons' own parameters do not decay. The policy may learn at another rate."""
    how = recipe.train
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        pace = how.policy_learning_rate_factor if name.startswith("policy.") else 1.0
        groups.setdefault((how.weight_decay if parameter.ndim > 1 else 0.0, pace), []).append(parameter)
    shaped = [{"params": own, "weight_decay": decay, "pace": pace} for (decay, pace), own in groups.items()]
    return torch.optim.AdamW(shaped, lr=how.learning_rate, foreach=True)


def _averaged(model: Model) -> list[tuple[str, Tensor]]:
    """What the exponential moving average runs over: parameters and running statistics, not the fixed scales."""
    return [(k, v) for k, v in model.state_dict().items() if v.dtype == torch.float32]


def learning_rate(recipe: Recipe, share: float) -> float:
    """Linear warm-up, then cosine to nothing; `share` of the run is done."""
    how = recipe.train
    if share < how.warmup:
        return how.learning_rate * (0.05 + 0.95 * share / how.warmup)
    rest = (share - how.warmup) / (1.0 - how.warmup)
    return how.learning_rate * 0.5 * (1.0 + math.cos(math.pi * rest))


def temperature(recipe: Recipe, share: float) -> float:
    """Of the Gumbel-softmax: geometric from start to end; `share` of the run is done."""
    how = recipe.train
    return how.temperature_start * (how.temperature_end / how.temperature_start) ** share


class Mixup(NamedTuple):
    """Mixup by whole chunks: clouds 2i and 2i + 1 of a batch are partners, and one gets some chunks of the other."""

    partner: Tensor  # [b] int64
    mixed: Tensor  # [b] bool: whether this cloud has chunks of its partner
    foreign: Tensor  # [b, M] 0 / 1: which of its chunks those are


def draw_mixup(draw: Tensor, share: float) -> Mixup:
    """`draw` [b, M + 2] uniform: a number per chunk, one for how many are exchanged, one for whether it happens."""
    partner = torch.arange(len(draw)) ^ 1
    partner = torch.where(partner < len(draw), partner, partner - 1)  # the odd one out is its own partner
    mixed = draw[:, -1] < share
    return Mixup(partner, mixed, ((draw[:, :-2] < draw[:, -2:-1]) & mixed[:, None]).to(draw.dtype))


def mixed_sight(sight: Sight, mix: Mixup) -> Sight:
    """What a cloud with chunks of its partner would show: chunks stand alone, so theirs is simply taken over."""
    cloud, place = mix.foreign.nonzero(as_tuple=True)  # few: a copy of these rows alone, also backward
    n_places = mix.foreign.shape[1]
    own, theirs = cloud * n_places + place, mix.partner[cloud] * n_places + place

    def mixed(part: Tensor) -> Tensor:
        rows = part.flatten(0, 1)
        return rows.index_copy(0, own, rows.index_select(0, theirs)).view_as(part)

    first = None if sight.first is None else mixed(sight.first)
    return Sight(mixed(sight.gates), mixed(sight.geometry), first, sight.deployed)


class Seen(NamedTuple):
    """An episode before a choice, for a batch of clouds."""

    scores: Tensor  # [b, M]
    belief: Tensor  # [b, H]
    visited: Tensor  # [b, M]
    likelihood: Tensor | None  # [b, M] of the true class after each chunk, where the policy imitates


def scores_again(model: Model, sight: Sight, seen: list[Seen]) -> Tensor:
    """The scores [T, b, M] of all steps at once: the values seen, with the policy's gradients."""
    values = torch.stack([step.scores for step in seen])
    own = model.policy.weight.dtype
    beliefs, geometry = torch.stack([step.belief for step in seen]), sight.geometry
    smooth = model.policy(beliefs.to(own), geometry.to(own)).to(values.dtype)
    if sight.first is not None:
        smooth = torch.cat([sight.first[None], smooth[1:]])
    return instead(smooth, values)


def batch_loss(
    run: Run,
    batch: Batch,
    teacher: Tensor | None,
    share: float,
    noise: Tensor,
    random: Tensor,
    n_total: int,
    mix: Mixup | None = None,
) -> tuple[Tensor, Tensor]:
    """Loss of a (part of a) batch, already divided by the whole batch's number of clouds, and the firing rate.

    `noise` [T, b, M] feeds the Gumbel-softmax; `random` [b, M + 1] an order per cloud and whether to take it. Clouds
    under mixup take a random order; the weight of each label is the share of its cloud's chunks among those seen.
    """
    model, how = run.model, run.recipe.train
    gumbel_temperature = temperature(run.recipe, share)
    gumbel_noise = gumbel(noise)
    takes_random = (random[:, -1:] < how.random_share).to(noise.dtype)
    pure = slice(None) if mix is None else ~mix.mixed
    if mix is not None:
        takes_random = torch.maximum(takes_random, mix.mixed[:, None].to(noise.dtype))
    given = _given_order(random[:, :-1], how.given_order)[:, : len(noise)]
    random_choice = given.transpose(0, 1) * takes_random  # [T, b, M]
    free = 1.0 - takes_random
    seen: list[Seen] = []

    def choose(episode: Episode) -> Tensor:
        scores = episode.scores(model.policy, how.detach_belief)
        likelihood = None
        if how.imitation + how.lookahead > 0.0 and episode.step < min(how.imitation_steps, noise.shape[2] - 1):
            likelihood = true_likelihood(model, episode, batch.labels, None if mix is None else pure)
        seen.append(Seen(scores, episode.belief, episode.visited, likelihood))
        sampled = sample(scores, gumbel_temperature, gumbel_noise[episode.step])
        return torch.addcmul(random_choice[episode.step].to(scores.dtype), sampled, free.to(scores.dtype))

    sight, mixed = model.look(batch), None
    if share < how.whole_first:
        return how.whole * losses.whole(sight.whole, batch.labels, how.label_smoothing, n_total), torch.zeros(1)
    if mix is not None:
        sight = mixed_sight(sight, mix)
        mixed = batch.labels[mix.partner], foreign_share(random_choice, mix.foreign)
    if how.detach_belief:
        with torch.no_grad():
            played = model.rollout(sight, choose, noise.shape[0])
        scores = scores_again(model, sight, seen)
        sampled = sample(scores, gumbel_temperature, gumbel_noise)
        played = model.again(
            sight, torch.addcmul(random_choice.to(scores.dtype), sampled, free.to(scores.dtype)), played
        )
    else:
        played = model.rollout(sight, choose, noise.shape[0])
        scores = torch.stack([step.scores for step in seen])
    logits = played.logits.to(noise.dtype)
    loss = losses.cross_entropy(
        logits, batch.labels, how.label_smoothing, n_total, run.class_weight, how.step_weight_power, mixed
    )
    if how.whole > 0.0:
        loss = loss + how.whole * losses.whole(sight.whole, batch.labels, how.label_smoothing, n_total)
    if how.tet > 0.0:
        loss = loss + how.tet * losses.tet(logits, n_total)
    likelihoods = [step.likelihood for step in seen if step.likelihood is not None]
    if likelihoods:
        asked, told = (x[:, pure].flatten(0, 1) for x in (scores[: len(likelihoods)], torch.stack(likelihoods)))
        parts = n_total * len(likelihoods)
        loss = loss + how.imitation * losses.imitation(asked, told, how.imitation_temperature, parts)
        loss = loss + how.lookahead * losses.lookahead(asked, told, parts)
    if teacher is not None and how.distillation > 0.0:
        loss = loss + how.distillation * losses.distillation(
            logits[:, pure], teacher[pure], how.distillation_temperature, n_total
        )
    if how.firing_rate_penalty > 0.0:
        whole = over_processes(played.firing_rate * len(batch.labels)) / n_total  # the penalty is not linear in it
        loss = loss + how.firing_rate_penalty * losses.firing_rate_penalty(whole, how.firing_rate_target) / world()[1]
    return loss, played.firing_rate.detach()


def _given_order(random: Tensor, kind: str) -> Tensor:
    """Numbers [b, M] -> one-hot orders [b, T, M]: by these numbers, or as the chunks were found."""
    order = random.argsort(dim=1) if kind == "random" else torch.arange(random.shape[1]).expand_as(random)
    return one_hot(order, random.shape[1], random)


def share_start(n: int, rank: int, n_ranks: int, pairs: bool) -> int:
    """Where a process' share of a batch of n clouds begins; `pairs`: partners of mixup stay in one process."""
    start = rank * n // n_ranks
    return start - start % 2 if pairs and rank < n_ranks else start


def foreign_share(order: Tensor, foreign: Tensor) -> Tensor:
    """One-hot order [T, b, M] and foreign chunks [b, M] -> the share [T, b] of foreign ones among those seen."""
    seen = (order * foreign).sum(dim=2).cumsum(dim=0)
    return seen / torch.arange(1, len(order) + 1, dtype=seen.dtype)[:, None]


def train_epoch(run: Run, examples: Examples, show: Progress) -> dict[str, float]:
    """One pass over the training data."""
    recipe, model = run.recipe, run.model
    how = recipe.train
    rng = np.random.default_rng([recipe.seed, run.epoch])
    noise_source = torch.Generator().manual_seed(recipe.seed * 1_000_003 + run.epoch)
    order = rng.permutation(len(examples))
    n_batches = len(examples) // how.batch_size or 1
    n_batches = min(n_batches, how.epoch_steps or n_batches)
    total, rate = 0.0, 0.0
    model.train(not how.policy_only)  # what does not learn keeps its statistics too
    for number, index in enumerate(np.array_split(order[: n_batches * how.batch_size], n_batches)):
        share = (run.epoch + number / n_batches) / how.epochs
        lesson = _part_lesson if isinstance(examples, PartExamples) else _class_lesson
        loss, fired = lesson(run, examples, index, share, rng, noise_source)
        total += _update(run, loss, share, number)
        rate += float(fired.mean())
        show.step(run.epoch, number + 1, n_batches, total / (number + 1))
    return {"loss": total / n_batches, "firing_rate": rate / n_batches}


def _draws(n: int, scene: Chunking | Gaze, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noise [T, n, M] of the Gumbel-softmax, and [n, M + 1]: an order for each scene and whether to take it."""
    noise = torch.rand(scene.budget, n, scene.n_places, generator=source).clamp(1e-9, 1.0 - 1e-7)
    return noise, torch.rand(n, scene.n_places + 1, generator=source)


def _own_share(n: int, pairs: bool = False) -> slice:
    """What of a batch of n clouds this process takes."""
    rank, n_ranks = world()
    return slice(*(share_start(n, part, n_ranks, pairs) for part in (rank, rank + 1)))


def _class_lesson(
    run: Run, examples: Examples, index: np.ndarray, share: float, rng: np.random.Generator, source: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Loss and firing rate of the scenes at `index`, for classes."""
    how, scene = run.recipe.train, run.recipe.scene
    noise, random = _draws(len(index), scene, source)
    mine = _own_share(len(index), how.mixup > 0.0)
    batch = examples.batch(index, run.recipe.augment, rng).part(mine)
    teacher = None if examples.teacher is None else torch.from_numpy(examples.teacher[index[mine]])
    mix = None
    if how.mixup > 0.0:
        mix = draw_mixup(torch.rand(len(index), scene.n_places + 2, generator=source)[mine], how.mixup)
    if how.policy_gradient > 0.0:
        return score_function.batch_loss(run.model, how, batch, share, noise[:, mine], random[mine], len(index))
    return batch_loss(run, batch, teacher, share, noise[:, mine], random[mine], len(index), mix)


def _part_lesson(
    run: Run, examples: PartExamples, index: np.ndarray, share: float, rng: np.random.Generator, source: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The same, for parts."""
    recipe, n = run.recipe, len(index)
    assert isinstance(recipe.task, PartsRecipe)
    noise, random = _draws(n, recipe.scene, source)
    mine = _own_share(n)
    batch = examples.part_batch(index, recipe.task.queries, recipe.augment, rng).rows(mine)
    unknown = torch.from_numpy(rng.random(n) < recipe.task.unknown_share)[mine]
    looks = draw_looks(rng, recipe.scene.budget)
    heat, stress = temperature(recipe, share), emphasis(recipe.task, run.part_weight, share)
    return part_loss(
        run.model, recipe, batch, heat, noise[:, mine], random[mine], unknown, looks, n, run.class_weight, stress
    )


def _update(run: Run, loss: Tensor, share: float, number: int) -> float:
    """Backward, sum over processes, clip, step, average. Returns the whole batch's loss."""
    how = run.recipe.train
    parameters = [p for p in run.model.parameters() if p.requires_grad]
    run.optimiser.zero_grad(set_to_none=False)
    loss.backward()
    value = loss.detach().double()
    if world()[1] > 1:
        sum_gradients(parameters)
        dist.all_reduce(value)
    norm = torch.nn.utils.clip_grad_norm_(parameters, how.gradient_clip if how.gradient_clip > 0.0 else math.inf)
    for name, number_of in (("loss", value), ("length of the gradient", norm)):
        if not torch.isfinite(number_of):  # before the step: no weight is touched, no checkpoint spoilt
            raise DivergedError(
                f"the {name} is {number_of.item()} in epoch {run.epoch + 1}, step {number + 1}; the likely cause is a "
                f"learning rate that is too high ({learning_rate(run.recipe, share):.2g} at this step) or broken input"
            )
    for group in run.optimiser.param_groups:
        group["lr"] = learning_rate(run.recipe, share) * group["pace"]
    run.optimiser.step()
    if how.ema_decay > 0.0:
        if not run.averaging:  # all of them change in place
            run.averaging = [(run.average[name], now) for name, now in _averaged(run.model)]
        keep = min(how.ema_decay, 1.0 - 1.0 / (1.0 + share * 1e4))
        torch._foreach_lerp_(*map(list, zip(*run.averaging)), 1.0 - keep)
    return float(value)


def sum_gradients(parameters: list[Tensor]) -> None:
    """Sum the gradients of all processes, in one message."""
    flat = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
    dist.all_reduce(flat)
    offset = 0
    for p in parameters:
        if p.grad is not None:
            p.grad.copy_(flat[offset : offset + p.grad.numel()].view_as(p.grad))
            offset += p.grad.numel()


def enter_deploy(model: Model, examples: Examples, recipe: Recipe) -> None:
    """Fix all scales from the training data, and go on on the integer grid."""
    model.deploy = False
    some = np.sort(np.random.default_rng(recipe.seed).permutation(len(examples))[:N_RANGES])
    shown = None
    if isinstance(examples, PartExamples):
        shown = partial(show_points, examples=examples, index=some, seed=recipe.seed)
    model.fix_host_scales((examples.batch(part) for part in np.array_split(some, -(-len(some) // RANGES_BATCH))), shown)
    model.head.fix_scales(evaluate(model, examples, "learned").max_membrane, recipe.train.headroom)
    model.deploy = True


class Averaged:
    """Context: the model with the exponential moving average of its weights."""

    def __init__(self, run: Run) -> None:
        self.run, self.kept = run, None

    def __enter__(self) -> Model:
        if self.run.recipe.train.ema_decay > 0.0:
            self.kept = {k: v.clone() for k, v in _averaged(self.run.model)}
            self.run.model.load_state_dict(self.run.average, strict=False)
        return self.run.model

    def __exit__(self, *_: object) -> None:
        if self.kept is not None:
            self.run.model.load_state_dict(self.kept, strict=False)


def unfinished(out: Path) -> Path:
    """Where the state of a training lies until it is finished."""
    return out.with_name(out.name + ".resume")


def train(
    recipe: Recipe,
    classes: tuple[str, ...],
    examples: Examples,
    validation: Examples,
    out: Path,
    resume: bool = False,
    show: Progress | None = None,
    own: OwnData | None = None,
) -> dict[str, Any]:
    """Train to the end and write `out`; returns the report. The state lies in `out` + '.resume' until then.

    `own` is remembered in the file: whose data these are, for what comes after.
    """
    show = show or Progress()
    if len(examples) < 2:
        raise InputError(f"{len(examples)} clouds to train on, at least 2 are needed")
    smallest = min(recipe.train.batch_size, len(examples))
    if world()[1] * (2 if recipe.train.mixup > 0.0 else 1) > smallest:
        pairs = ", which train.mixup pairs" if recipe.train.mixup > 0.0 else ""
        raise ConfigError(f"{world()[1]} processes cannot share batches of {smallest} clouds{pairs}")
    part = unfinished(out)
    run = _resume(part, recipe, classes, examples) if resume and part.exists() else start(recipe, classes, examples)
    main = world()[0] == 0
    log = out.with_name(out.stem + ".log.jsonl")
    first_deploy = recipe.train.epochs - recipe.train.qat_epochs
    while run.epoch < recipe.train.epochs:
        began = time.perf_counter()
        if run.epoch == first_deploy and recipe.train.qat_epochs and not run.model.deploy:
            with Averaged(run) as model:
                run.before_deploy = judge(model, validation)["accuracy_at"]
            enter_deploy(run.model, examples, recipe)
            show.say(f"epoch {run.epoch + 1}: everything runs on the integer grid from here")
        try:
            row: dict[str, Any] = train_epoch(run, examples, show)
        except DivergedError as error:
            last = f"'{part}' holds epoch {run.epoch}" if part.exists() else "no epoch was finished"
            raise DivergedError(f"{error}; {last}") from None
        run.epoch += 1
        with Averaged(run) as model:
            judged = judge(model, validation)
        run.seconds += time.perf_counter() - began
        row.update(
            epoch=run.epoch,
            **judged,
            deploy=run.model.deploy,
            seconds=round(run.seconds, 2),
        )
        run.history.append(row)
        if main:
            checkpoint.save(part, _state(run))
            files.write_text(log, "".join(json.dumps(line) + "\n" for line in run.history))
        show.epoch(row)
    return _finish(run, examples.labels, validation, out, part, main, own)


def judge(model: Model, validation: Examples) -> dict[str, Any]:
    """What an epoch is judged by; `accuracy_at` of a model of parts is its instance mIoU."""
    if isinstance(validation, PartExamples):
        found = judge_parts(model, validation)
        return {"accuracy_at": found.pop("miou_at"), **found}
    record = evaluate(model, validation)
    found = {"accuracy_at": accuracy_at(record), "negative_log_likelihood": negative_log_likelihood(record)}
    if isinstance(model, ImageModel) and model.at_once:
        found["dense_accuracy"] = whole_accuracy(model, validation)
    return found


@torch.no_grad()
def adjust_logits(model: Model, labels: np.ndarray, share: float) -> None:
    """Logit adjustment: the read-out's bias loses `share` of the training labels' log class frequencies.

    With a share of 1 the answers are those for classes that are all equally frequent (Bayes' rule).
    """
    count = np.maximum(np.bincount(labels, minlength=len(model.readout.bias)), 1)
    model.readout.bias -= share * torch.from_numpy(np.log(count / count.sum())).to(model.readout.bias.dtype)


def _finish(
    run: Run, labels: np.ndarray, validation: Examples, out: Path, part: Path, main: bool, own: OwnData | None
) -> dict[str, Any]:
    with Averaged(run) as model:
        if run.recipe.train.logit_adjustment > 0.0:
            adjust_logits(model, labels, run.recipe.train.logit_adjustment)
        deployed, fired = judge(model, validation), evaluate(model, validation).firing_rate
        was = model.deploy
        model.deploy = False
        floating = judge(model, validation)
        model.deploy = was
        report = {
            "out": str(out),
            "recipe": run.recipe.name,
            "parameters": sum(p.numel() for p in model.parameters()),
            "seconds": run.seconds,
            "float_accuracy": floating["accuracy_at"]["M"],
            "deploy_accuracy": deployed["accuracy_at"]["M"] if was else None,
            "before_deploy": run.before_deploy,
            "accuracy_at": deployed["accuracy_at"],
            "measure": "instance mIoU" if isinstance(validation, PartExamples) else "accuracy",
            "firing_rate": [float(r) for r in fired],
            "split": "validation",
            "unseen": "validation" not in run.recipe.data.also,
            "seed": run.recipe.seed,
        }
        if "dense_accuracy" in deployed:
            report["dense_accuracy"] = deployed["dense_accuracy"]
        if main:
            content = {k: v for k, v in _state(run).items() if k in ("recipe", "classes", "deploy")}
            kept = {k: v for k, v in report.items() if k != "out"}  # a place on this machine is nobody else's business
            if was:
                content[integers.KEY] = integers.to_plain(model.spec(run.recipe.scene, run.classes))
            if own is not None:
                content[OWN] = plain.of(own)
            checkpoint.save(out, {**content, "model": model.state_dict(), "report": kept, "history": run.history})
            part.unlink(missing_ok=True)
    return report


def _state(run: Run) -> dict[str, Any]:
    return {
        "recipe": run.recipe.as_dict(),
        "classes": list(run.classes),
        "model": run.model.state_dict(),
        "deploy": run.model.deploy,
        "average": run.average,
        "optimiser": run.optimiser.state_dict(),
        "epoch": run.epoch,
        "history": run.history,
        "before_deploy": run.before_deploy,
        "seconds": run.seconds,
        "data": run.data,
    }


def _resume(part: Path, recipe: Recipe, classes: tuple[str, ...], examples: Examples) -> Run:
    stored = checkpoint.read(part, needs=("recipe", "classes", "model", "average", "optimiser", "epoch", "history"))
    if recipes.from_dict(str(part), stored["recipe"]) != recipe or tuple(stored["classes"]) != classes:
        raise ConfigError(f"'{part}' belongs to another recipe, seed or set of classes; {ANEW}")
    run = start(recipe, classes, examples)
    if stored.get("data", run.data) != run.data:
        raise ConfigError(f"'{part}' was trained on other data; {ANEW}")
    _load_weights(run.model, stored, part)
    run.average = stored["average"]
    run.optimiser.load_state_dict(stored["optimiser"])
    run.epoch, run.history = stored["epoch"], stored["history"]
    run.before_deploy, run.seconds = stored["before_deploy"], stored["seconds"]
    return run


def _load_weights(model: Model, stored: dict[str, Any], path: Path) -> None:
    try:
        given = stored["model"]
        own = {key: value for key, value in model.state_dict().items() if is_scale(key)}  # older files lack some
        model.load_state_dict({**own, **given})
    except (RuntimeError, AttributeError, TypeError) as error:
        raise InputError(f"'{path}': the weights do not fit the recipe ({str(error).splitlines()[0]})") from None
    model.deploy = bool(stored.get("deploy", False)) and model.has_scales


def own_of(stored: dict[str, Any], place: str | Path) -> OwnData | None:
    """The data of its owner that a checkpoint remembers."""
    return None if stored.get(OWN) is None else plain.read(OwnData, stored[OWN], str(place))


def load_model(path: str | Path) -> tuple[Model, Recipe, tuple[str, ...], dict[str, Any]]:
    """A trained model with its recipe, its classes and the whole checkpoint."""
    stored = checkpoint.read(path)
    recipe = recipes.from_dict(str(path), stored["recipe"])
    model = new_model(recipe, len(stored["classes"]))
    _load_weights(model, stored, Path(path))
    model.eval()
    if integers.KEY in stored and model.has_scales:
        model.policy.settle(integers.from_plain(stored[integers.KEY], str(path)).policy)
    return model, recipe, tuple(stored["classes"]), stored
