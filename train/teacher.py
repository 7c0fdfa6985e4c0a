"""Train a teacher and leave its logits for a student: `python train/teacher.py --recipe NAME|FILE --out teacher.npz`.

Then, with `distillation` above 0 in the `[train]` section of the student's recipe (0.5 is a start):

    asp-neuro train --recipe FILE --teacher teacher.npz

The teacher sees the clouds that the recipe trains on, and none that it holds out: calibration, test, `data.without`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

from asp_neuro.errors import AspError
from asp_neuro.learn import recipe as recipes
from asp_neuro.learn.teacher import TeacherRecipe, teach
from asp_neuro.learn.workshop import keep_memory
from asp_neuro.report import say, to_json


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="compact", metavar="NAME|FILE", help="the student's recipe")
    parser.add_argument("--data", metavar="NAME|PATH", help="where the recipe's data are")
    parser.add_argument("--up", choices=("x", "y", "z"), help="the up axis of a folder of clouds (default y)")
    parser.add_argument("--out", type=Path, default=Path("teacher.npz"), metavar="FILE")
    parser.add_argument("--epochs", type=int, default=TeacherRecipe.epochs, metavar="N")
    parser.add_argument(
        "--widen", type=int, default=TeacherRecipe.widen, metavar="N", help="times the student's widths"
    )
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_memory()
    began = time.perf_counter()

    def told(epoch: int, loss: float, right: float) -> None:
        spent = time.perf_counter() - began
        left = spent / epoch * (args.epochs - epoch) / 60.0
        say(f"epoch {epoch}/{args.epochs}: loss {loss:.3f}, {100.0 * right:.1f} % right, {left:.1f} min left")

    how = TeacherRecipe(epochs=args.epochs, widen=args.widen)
    report = teach(recipes.load(args.recipe), args.out, how, args.data, args.up, told)
    report["seconds"] = time.perf_counter() - began
    if args.json:
        print(to_json(report))
        return 0
    print(
        f"{args.out}: logits of {report['clouds']} training clouds, {100.0 * report['train_accuracy']:.1f} % of them "
        f"right, from a teacher of {report['parameters']:,} parameters, {report['seconds']:.0f} s"
    )
    print(f"next: asp-neuro train --recipe FILE --teacher {args.out}   (a recipe with train.distillation above 0)")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AspError as error:
        say(f"teacher: error: {error}")
        sys.exit(error.exit_code)
