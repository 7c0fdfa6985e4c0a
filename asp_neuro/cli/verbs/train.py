"""asp-neuro train"""

from __future__ import annotations

import argparse
import os
import shlex
import time
from pathlib import Path

from asp_neuro.cli.verbs.base import Result, whole
from asp_neuro.errors import InputError


def train_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recipe", default="compact", metavar="NAME|FILE", help="what to train (default compact)")
    parser.add_argument("--data", metavar="NAME|PATH", help="where the recipe's data are")
    parser.add_argument("--up", choices=("x", "y", "z"), help="the up axis of a folder of clouds (default y)")
    parser.add_argument("--out", type=Path, default=Path("model.pt"), metavar="FILE", help="default ./model.pt")
    parser.add_argument("--resume", action="store_true", help="go on where a stopped training of the same recipe was")
    parser.add_argument("--force", action="store_true", help="overwrite what a training has left at --out")
    parser.add_argument("--epochs", type=whole(1), metavar="N", help="another number of epochs than the recipe's")
    parser.add_argument("--seed", type=whole(0), metavar="N", help="another seed than the recipe's")
    parser.add_argument("--threads", type=whole(1), metavar="N", help="default 1: on small tensors more gain nothing")
    parser.add_argument("--teacher", type=Path, metavar="FILE", help="teacher's logits, for a recipe that distils")
    parser.add_argument("--tensorboard", type=Path, metavar="DIR", help="also write TensorBoard logs there")


def train(args: argparse.Namespace) -> Result:
    """Train a recipe; the last epochs run on the integer grid, so that export copies and never converts."""
    from asp_neuro.learn import workshop

    began = time.time()
    try:
        report = workshop.train(
            args.recipe,
            data=args.data,
            up=args.up,
            out=args.out,
            resume=args.resume,
            force=args.force,
            epochs=args.epochs,
            seed=args.seed,
            threads=args.threads,
            teacher=args.teacher,
            tensorboard=args.tensorboard,
        )
    except InputError as error:  # a full disk, for one
        raise InputError("; ".join([str(error), *how_to_go_on(args, began)])) from None
    except (KeyboardInterrupt, SystemExit) as stop:
        stop.args = (*stop.args, *(how_to_go_on(args, began) or ["no epoch was finished, nothing is kept"]))
        raise
    return Result(report, workshop.summary(report))


def how_to_go_on(args: argparse.Namespace, began: float) -> list[str]:
    """A sentence with the command that goes on with a training that was stopped, where this one has left its state."""
    part = Path(f"{args.out}.resume")
    if not part.exists() or (part.stat().st_mtime < began and not args.resume):
        return []
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return [
            f"the last whole epoch is kept in '{part}'; the same torchrun goes on with --resume in place of --force"
        ]
    return [f"the last whole epoch is kept in '{part}'; go on with: {resume_command(args)}"]


def resume_command(args: argparse.Namespace) -> str:
    """The same training, as it is typed to go on."""
    names = ("recipe", "data", "up", "out", "epochs", "seed", "threads", "teacher", "tensorboard")
    given = [(f"--{name}", str(value)) for name in names if (value := getattr(args, name)) is not None]
    return shlex.join(["asp-neuro", "train", *(word for pair in given for word in pair), "--resume"])
