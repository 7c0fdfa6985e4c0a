"""asp-neuro train"""

from __future__ import annotations

import argparse
from pathlib import Path

from asp_neuro.cli.verbs.base import Result, whole


def train_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recipe", default="compact", metavar="NAME|FILE", help="what to train (default compact)")
    parser.add_argument("--data", metavar="NAME|PATH", help="where the recipe's data are")
    parser.add_argument("--up", choices=("x", "y", "z"), help="the up axis of a folder of clouds (default y)")
    parser.add_argument("--out", type=Path, default=Path("model.pt"), metavar="FILE", help="default ./model.pt")
    parser.add_argument("--resume", action="store_true", help="go on where a stopped training of the same recipe was")
    parser.add_argument("--epochs", type=whole(1), metavar="N", help="another number of epochs than the recipe's")
    parser.add_argument("--seed", type=whole(0), metavar="N", help="another seed than the recipe's")
    parser.add_argument("--threads", type=whole(1), metavar="N", help="default 1: on small tensors more gain nothing")
    parser.add_argument("--teacher", type=Path, metavar="FILE", help="teacher's logits, for a recipe that distils")
    parser.add_argument("--tensorboard", type=Path, metavar="DIR", help="also write TensorBoard logs there")


def train(args: argparse.Namespace) -> Result:
    """Train a recipe; the last epochs run on the integer grid, so that export copies and never converts."""
    from asp_neuro.learn import workshop

    report = workshop.train(
        args.recipe,
        data=args.data,
        up=args.up,
        out=args.out,
        resume=args.resume,
        epochs=args.epochs,
        seed=args.seed,
        threads=args.threads,
        teacher=args.teacher,
        tensorboard=args.tensorboard,
    )
    return Result(report, workshop.summary(report))
