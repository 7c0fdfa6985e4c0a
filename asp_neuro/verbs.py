"""What the command line can do: one function per verb.

A verb is a row of `VERBS`. Its function takes the parsed arguments and returns an `Outcome`: what `--json` prints,
what a person reads, and the exit code. It raises `AspError` for what the user can mend. Messages and progress go to
stderr (`report.say`, `report.progress`). Heavy libraries are imported inside the verb's function, never up here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asp_neuro.report import table


@dataclass(frozen=True)
class Outcome:
    """What a verb came to: `report` for machines, `text` for people, and the exit code."""

    report: dict[str, Any]
    text: str
    exit_code: int = 0


@dataclass(frozen=True)
class Verb:
    name: str
    summary: str  # one line
    example: str  # a command that works as it stands
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Outcome]


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """For a verb that has only the options of every verb."""


def whole(low: int) -> Callable[[str], int]:
    """An argument type: a whole number of at least `low`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None
        if value < low:
            raise argparse.ArgumentTypeError(f"{value} is below {low}")
        return value

    return parse


def train_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recipe", default="compact", metavar="NAME|FILE", help="what to train (default compact)")
    parser.add_argument("--data", metavar="NAME|PATH", help="where the recipe's data are")
    parser.add_argument("--up", choices=("x", "y", "z"), help="the up axis of a folder of clouds (default y)")
    parser.add_argument("--out", type=Path, default=Path("model.pt"), metavar="FILE", help="default ./model.pt")
    parser.add_argument("--resume", action="store_true", help="go on where a stopped training of the same recipe was")
    parser.add_argument("--epochs", type=whole(1), metavar="N", help="another number of epochs than the recipe's")
    parser.add_argument("--seed", type=whole(0), metavar="N", help="another seed than the recipe's")
    parser.add_argument("--threads", type=whole(1), metavar="N", help="threads of one process (default: all cores)")
    parser.add_argument("--teacher", type=Path, metavar="FILE", help="teacher's logits, for a recipe that distils")
    parser.add_argument("--tensorboard", type=Path, metavar="DIR", help="also write TensorBoard logs there")


def train(args: argparse.Namespace) -> Outcome:
    """Train a recipe; the last epochs run on the integer grid, so that export copies and never converts."""
    from asp_neuro import workshop

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
    return Outcome(report, workshop.summary(report))


def doctor(args: argparse.Namespace) -> Outcome:
    """What is installed, what is missing, and the next step for each; exit code 1 when a needed thing is not there."""
    from asp_neuro.doctor import examine

    items = examine()
    text = table([(item.status, item.name, item.hint) for item in items], headers=("status", "item", "what it says"))
    healthy = all(item.status == "ok" for item in items if item.needed)
    return Outcome({"items": items}, text, exit_code=0 if healthy else 1)


def demo(args: argparse.Namespace) -> Outcome:
    """The main job on built-in data, as far as it is built: every step that exists, in the order of the data flow."""
    from asp_neuro.demo import run_steps

    steps = run_steps(seed=args.seed)
    text = table([(step.name, f"{step.seconds:.1f}", step.summary) for step in steps], ("step", "seconds", "result"))
    return Outcome({"steps": steps, "seed": args.seed, "seconds": sum(step.seconds for step in steps)}, text)


def demo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the clouds (default 0)")


VERBS: tuple[Verb, ...] = (
    Verb("train", "train a model from a recipe", "asp-neuro train --recipe compact", train_arguments, train),
    Verb("demo", "run what exists of the main job on built-in data", "asp-neuro demo", demo_arguments, demo),
    Verb("doctor", "say what is installed and what is missing", "asp-neuro doctor --json", no_arguments, doctor),
)
