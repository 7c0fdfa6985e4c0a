"""`asp-neuro train`: finds recipe and data, joins the processes of torchrun, shows progress, sums up."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from asp_neuro import files
from asp_neuro.data import Place
from asp_neuro.data.own import own_data
from asp_neuro.data.part_places import load_parts
from asp_neuro.data.parts import PartSet
from asp_neuro.data.room_crops import load_rooms
from asp_neuro.data.samples import SampleSet, load_samples, locate_samples, names_of
from asp_neuro.errors import AspError, ConfigError, InputError, MissingError, UsageError
from asp_neuro.learn import checkpoint, training
from asp_neuro.learn import recipe as recipes
from asp_neuro.learn.examples import examples_for
from asp_neuro.learn.part_examples import part_examples_of
from asp_neuro.learn.recipe import Recipe
from asp_neuro.learn.training import Progress
from asp_neuro.report import say, table

ALL_POINTS = 2048  # of a cloud of ShapeNetPart: what the standard protocol asks for
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # the numbers of these options in glibc's malloc.h


def train(
    recipe: str | Recipe,
    *,
    data: str | Path | None = None,
    up: str | None = None,
    out: str | Path = "model.pt",
    resume: bool = False,
    force: bool = False,
    epochs: int | None = None,
    seed: int | None = None,
    threads: int | None = None,
    teacher: Path | None = None,
    tensorboard: Path | None = None,
) -> dict[str, Any]:
    """Train and write `out`; returns the report. Under `torchrun` every process calls this.

    What a training has left at `out`, finished or not, is not overwritten unless `force` says so.
    """
    how = adjusted(recipes.load(recipe) if isinstance(recipe, str) else recipe, epochs, seed)
    out = files.demand_place(out)
    if (how.train.distillation > 0.0) != (teacher is not None):
        raise ConfigError("distillation needs both: train.distillation above 0 in the recipe and --teacher FILE")
    if teacher is not None and isinstance(how.task, recipes.PartsRecipe):
        raise ConfigError(f"recipe '{how.name}' labels points: a teacher's logits are of clouds; leave --teacher out")
    torch.set_num_threads(threads or 1)  # small tensors: a second thread gains nothing, and spins when cores are busy
    keep_memory()
    with _alone(how, out, resume, force), processes():
        main = training.world()[0] == 0
        if isinstance(how.task, recipes.PartsRecipe):
            return _train_parts(how, data, up, out, resume, tensorboard)
        clouds = training_clouds(how, data, up)
        _check_classes(how, clouds)
        _check_start(how, data, up)
        own = own_data(locate_samples(how.scene, how.data.name, data), up, clouds)
        if main:
            parts = f"{clouds.source}{''.join(f', with {split}' for split in how.data.also)}"
            say(f"training '{how.name}', seed {how.seed}, on {parts}: {len(clouds)} {how.scene_kind}s")
        if own is not None and epochs is None:
            how = long_enough(how, len(clouds), say if main else lambda text: None)
        examples = examples_for(clouds, how, change=how.augment)
        if teacher is not None:
            examples = dataclasses.replace(examples, teacher=teacher_logits(teacher, clouds))
        validation = examples_for(_split(how, "validation", data, up), how)
        with _shown(how, tensorboard) as show:
            report = training.train(
                how, clouds.classes, examples, validation, out, resume=resume, show=show if main else None, own=own
            )
        return {**report, "epochs": how.train.epochs, "data": None if own is None else {"path": own.path, "up": own.up}}


def _train_parts(
    how: Recipe, data: str | Path | None, up: str | None, out: Path, resume: bool, tensorboard: Path | None
) -> dict[str, Any]:
    """The same for a task of parts: data whose points have labels."""
    main = training.world()[0] == 0
    clouds = part_clouds(how, "train", data, up)
    for split in how.data.also:
        clouds = clouds.joined(part_clouds(how, split, data, up))
    if main:
        say(f"training '{how.name}', seed {how.seed}, on {clouds.source}: {len(clouds)} clouds")
    examples = part_examples_of(clouds, how.chunking, change=how.augment, seed=how.seed)
    validation = part_examples_of(part_clouds(how, "validation", data, up), how.chunking)
    with _shown(how, tensorboard) as show:
        report = training.train(
            how, clouds.classes, examples, validation, out, resume=resume, show=show if main else None
        )
    return {**report, "epochs": how.train.epochs, "data": None}


def part_clouds(how: Recipe, split: str, data: str | Path | None, up: str | None) -> PartSet:
    """A split of the recipe's data, all points of each cloud."""
    crops = how.data.room_crops
    if crops is not None:
        clouds = load_rooms(how.data.name, data, split, crops, ALL_POINTS, up)
    else:
        clouds = load_parts(data or how.data.name, split, n_points=ALL_POINTS, up=up, splits=how.data.splits)
    if isinstance(how.task, recipes.PartsRecipe) and clouds.catalogue.count != how.task.parts:
        raise ConfigError(
            f"task.parts = {list(how.task.parts)}, but the categories of the data have {list(clouds.catalogue.count)}"
        )
    return clouds


@contextlib.contextmanager
def _alone(recipe: Recipe, out: Path, resume: bool, force: bool) -> Iterator[None]:
    """Nothing that is worth keeping lies at `out`, and nobody else trains there. The first process looks, for all."""
    if int(os.environ.get("RANK", "0")) != 0:
        yield
        return
    with files.held(out, f"a training of '{recipe.name}'"):
        demand_free(out, resume, force)
        yield


def demand_free(out: Path, resume: bool, force: bool) -> None:
    """Refuse to train over what a training left there, and to go on where there is nothing to go on with."""
    part = training.unfinished(out)
    if resume and force:
        raise UsageError("--resume goes on with a training, --force starts it anew: give one of them")
    if resume and not part.exists():
        if out.exists():
            anew = "--force in place of --resume starts anew and overwrites it, or name another --out"
            raise UsageError(f"nothing to resume: '{out}' holds {left_by(out)}; {anew}")
        raise UsageError(
            f"nothing to resume: there is no '{part}'; without --resume a training starts at its first epoch"
        )
    if resume or force:
        return
    if part.exists():
        raise UsageError(
            f"'{part}' holds {left_by(part)}; --resume goes on with it, --force starts anew and overwrites it"
        )
    if out.exists():
        raise UsageError(f"'{out}' holds {left_by(out)}; name another --out, or overwrite it with --force")


def left_by(path: Path) -> str:
    """What a file holds, in words: a finished training, one that was stopped, or something else."""
    try:
        stored = checkpoint.read(path)
    except AspError:
        return "something that is no checkpoint"
    recipe = recipes.from_dict(str(path), stored["recipe"])
    what = f"recipe '{recipe.name}', seed {recipe.seed}"
    if "optimiser" in stored:
        return f"epoch {stored['epoch']} of {recipe.train.epochs} of a training that was stopped ({what})"
    return f"a finished training ({what})"


def keep_memory() -> None:
    """Let the C library keep what is freed, for the next step, instead of handing it back to the system.

    glibc maps tensors above 32 MB anew every time, and fresh pages cost more than the arithmetic in them: with batches
    of 64 ModelNet clouds a step takes a third longer without this, with 32 it makes no difference. Elsewhere than with
    glibc nothing happens.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_option is not None:
        set_option(M_MMAP_MAX, 0)
        set_option(M_TRIM_THRESHOLD, -1)


def adjusted(recipe: Recipe, epochs: int | None, seed: int | None) -> Recipe:
    """The recipe with another seed or number of epochs; the share of quantisation-aware epochs stays."""
    if epochs is not None:
        share = recipe.train.qat_epochs / recipe.train.epochs
        quantised = min(epochs, max(1, round(share * epochs))) if share else 0
        recipe = recipe.changed(train={"epochs": epochs, "qat_epochs": quantised})
    return recipe if seed is None else dataclasses.replace(recipe, seed=seed)


def long_enough(recipe: Recipe, n_clouds: int, tell: Callable[[str], None] = say) -> Recipe:
    """The recipe with as many epochs as `own_steps` steps take on so many clouds, where its own are fewer.

    A network learns from steps: 22 epochs of 2,000 clouds are 1,364 of them, of 300 clouds 198.
    """
    a_pass = n_clouds // recipe.train.batch_size or 1
    epochs = -(-recipe.train.own_steps // a_pass)
    if epochs <= recipe.train.epochs:
        return recipe
    tell(
        f"{n_clouds} clouds are few: {epochs} epochs instead of {recipe.train.epochs}, so that {a_pass * epochs} steps "
        "are made (another number: --epochs)"
    )
    return adjusted(recipe, epochs, None)


def training_clouds(recipe: Recipe, data: str | Path | None = None, up: str | None = None) -> Any:
    """The clouds that a recipe trains on: train and `data.also`, but none that a set of `data.without` judges with.

    ModelNet10 is a part of ModelNet40: weights that are to start a ModelNet10 training must not have seen its clouds.
    """
    clouds = _split(recipe, "train", data, up)
    for split in recipe.data.also:
        clouds = clouds.joined(_split(recipe, split, data, up))
    taken: set[str] = set()
    for entry in recipe.data.without:
        name, _, only = entry.partition("/")
        for split in (only,) if only else recipes.HELD_OUT:
            taken |= set(_read(recipe, _other(recipe, name, data), split, up).names)
    return clouds.subset(np.array([name not in taken for name in clouds.names])) if taken else clouds


def _other(recipe: Recipe, name: str, data: str | Path | None) -> Place:
    """Another data set than that of the recipe: `data` may be where it lies, but not what it is called."""
    return locate_samples(recipe.scene, name, None if str(data) in names_of(recipe.scene) else data)


def _split(recipe: Recipe, split: str, data: str | Path | None, up: str | None) -> SampleSet:
    return _read(recipe, locate_samples(recipe.scene, recipe.data.name, data), split, up)


def _read(recipe: Recipe, place: Place, split: str, up: str | None) -> SampleSet:
    return load_samples(recipe.scene, place, split, up=up, splits=recipe.data.splits)


def _check_start(recipe: Recipe, data: str | Path | None, up: str | None) -> None:
    """No cloud that this recipe holds out may be among those that the weights it starts from were trained on."""
    if not recipe.train.start:
        return
    held = [split for split in recipes.HELD_OUT if split not in recipe.data.also]
    own = {split: _split(recipe, split, data, up).hashes() for split in held}
    name = recipe.train.start
    while name:
        stored = checkpoint.read(checkpoint.find(name))
        before = recipes.from_dict(name, stored["recipe"])
        seen = _seen(dataclasses.replace(before, scene=recipe.scene), data, up)  # the same points of each cloud
        for split, hashes in own.items():
            if shared := seen & set(hashes):
                hint = ', or give them up here too: data.also = ["validation"]' if split == "validation" else ""
                raise ConfigError(
                    f"train.start = '{name}' was trained on {len(shared)} of the {len(hashes)} {split} clouds; "
                    f"start from weights that never saw them{hint}"
                )
        name = before.train.start


def _seen(recipe: Recipe, data: str | Path | None, up: str | None) -> set[str]:
    """Hashes of the clouds that a finished training has seen; none where its data are not at hand."""
    name = recipe.data.name
    try:
        place = _other(recipe, name, data)
    except MissingError:
        return set()
    if place.name == "folder" and name not in ("shapes", "strokes"):  # a person's own clouds, and weights from ModelNet
        return set()
    return set(training_clouds(recipe, None if str(data) in names_of(recipe.scene) else data, up).hashes())


def _check_classes(recipe: Recipe, clouds: SampleSet) -> None:
    wanted = recipe.data.classes or clouds.classes
    count = dict(zip(clouds.classes, np.bincount(clouds.labels, minlength=len(clouds.classes)), strict=True))
    empty = [name for name in wanted if not count.get(name)]
    if empty:
        raise InputError(f"{clouds.source}: no training clouds of the recipe's class '{empty[0]}'")


def teacher_logits(path: Path, clouds: SampleSet) -> np.ndarray:
    """A teacher's logits [n, C] in the order of the clouds, from an npz with `names` and `logits`."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            names, logits = stored["names"].astype(str), stored["logits"].astype(np.float32)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"'{path}' is no file of teacher logits ({error})") from None
    place = {name: row for row, name in enumerate(names)}
    missing = [name for name in clouds.names if name not in place]
    if missing or logits.shape != (len(names), len(clouds.classes)):
        raise InputError(
            f"'{path}': logits {list(logits.shape)} do not fit: no row for cloud '{(missing or ['-'])[0]}'"
        )
    return logits[[place[name] for name in clouds.names]]


@contextlib.contextmanager
def processes() -> Iterator[None]:
    """Join the other processes when started by `torchrun` (gloo for tensors on CPU, nccl for those on a GPU)."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield
        return
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def _shown(recipe: Recipe, tensorboard: Path | None) -> Iterator[Progress]:
    """A bar at a terminal, a line per epoch elsewhere; TensorBoard on request."""
    writer = _tensorboard(tensorboard)
    began, first = time.perf_counter(), [None]
    bar = None
    if sys.stderr.isatty():
        from tqdm import tqdm

        bar = tqdm(total=recipe.train.epochs, unit="epoch", file=sys.stderr, dynamic_ncols=True)

    def step(epoch: int, done: int, total: int, loss: float) -> None:
        if bar is not None:
            bar.n = epoch + done / total
            bar.bar_format = "{l_bar}{bar}| {elapsed}<{remaining}{postfix}"
            bar.refresh()

    def epoch(row: dict[str, Any]) -> None:
        first[0] = row["epoch"] - 1 if first[0] is None else first[0]
        spent = time.perf_counter() - began
        left = spent / (row["epoch"] - first[0]) * (recipe.train.epochs - row["epoch"])
        text = _epoch_text(row)
        if bar is not None:
            bar.n = row["epoch"]
            bar.set_postfix_str(text)
        else:
            say(f"epoch {row['epoch']}/{recipe.train.epochs}: {text}, {left / 60.0:.1f} min left")
        if writer is not None:
            for name in ("loss", "firing_rate", "negative_log_likelihood"):
                if name not in row:
                    continue
                writer.add_scalar(name, row[name], row["epoch"])
            writer.add_scalars("accuracy", row["accuracy_at"], row["epoch"])

    try:
        yield Progress(step, epoch, bar.write if bar is not None else say)
    finally:
        if bar is not None:
            bar.close()
        if writer is not None:
            writer.close()


def _epoch_text(row: dict[str, Any]) -> str:
    at = row["accuracy_at"]
    seen = ", ".join(f"k={k} {100.0 * at[k]:.1f} %" for k in ("1", "4", "M") if k in at)
    grid = ", integer grid" if row["deploy"] else ""
    return f"loss {row['loss']:.3f}, {seen}, firing {100.0 * row['firing_rate']:.0f} %{grid}"


def _tensorboard(folder: Path | None) -> Any:
    if folder is None:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingError("--tensorboard needs the package 'tensorboard'; pip install tensorboard") from None
    return SummaryWriter(str(folder))


def summary(report: dict[str, Any]) -> str:
    """What a person wants to know after a training."""
    at = report["accuracy_at"]
    rows = [(f"after {k} of M" if k != "M" else "full budget", f"{100.0 * v:.1f} %") for k, v in at.items()]
    lines = [
        f"{report['out']}: recipe '{report['recipe']}', seed {report['seed']}, {report['parameters']:,} parameters, "
        f"{report['seconds']:.0f} s",
        table(rows, ("observations", "validation accuracy" if report["unseen"] else "on validation, trained on")),
    ]
    if report["deploy_accuracy"] is not None:
        before = report["before_deploy"]
        float_share, integer_share = 100.0 * report["float_accuracy"], 100.0 * report["deploy_accuracy"]
        text = f"validation: {float_share:.1f} % in floating point, {integer_share:.1f} % on the integer grid"
        lines.append(text + (f" ({100.0 * before['M']:.1f} % before it)" if before else ""))
    else:
        lines.append("it never ran on the integer grid; export will have to discretise it")
    lines.append("firing rate per layer: " + ", ".join(f"{100.0 * rate:.0f} %" for rate in report["firing_rate"]))
    if report.get("data"):
        lines.append(f"remembered: data {report['data']['path']}, {report['data']['up']} up; later commands take them")
    lines.append(f"next: asp-neuro export {report['out']}")
    return "\n".join(lines)
