"""Read trained checkpoints on one split, with every selection rule: `python train/evaluate.py model.pt [more.pt ...]`.

Several checkpoints of one recipe (seeds) are averaged; differences are paired over clouds. Every use of the test split
is to be logged in train/README.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from asp_neuro.data import SPLITS, load, locate
from asp_neuro.errors import AspError
from asp_neuro.evaluation import compare, evaluate
from asp_neuro.examples import examples_of
from asp_neuro.policy import RULES
from asp_neuro.report import say, table, to_json
from asp_neuro.training import load_model


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="model.pt")
    parser.add_argument("--split", choices=SPLITS, default="validation")
    parser.add_argument("--data", metavar="NAME|PATH")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--seed", type=int, default=0, help="of the random order")
    parser.add_argument(
        "--float", action="store_true", help="the head in floating point instead of on the integer grid"
    )
    parser.add_argument("--average", action="store_true", help="answers from the mean of the logits so far")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    records: dict[str, list] = {rule: [] for rule in args.rules}
    for path in args.checkpoints:
        model, recipe, classes, _ = load_model(path)
        model.head.deploy = model.head.has_scales and not args.float
        say(f"{path}: recipe '{recipe.name}', seed {recipe.seed}, {'integer' if model.head.deploy else 'float'} head")
        clouds = load(
            locate(recipe.data.name, args.data), args.split, n_points=recipe.chunking.n_points, classes=classes
        )
        examples = examples_of(clouds, recipe.chunking)
        for rule in args.rules:
            records[rule].append(evaluate(model, examples, rule, args.seed))
    steps = [k for k in (1, 2, 3, 4, 8, 16) if k <= len(records[args.rules[0]][0].logits)]
    curves = {rule: sum(r.accuracy(args.average) for r in found) / len(found) for rule, found in records.items()}
    report = {
        "split": args.split,
        "n": len(examples),
        "models": len(args.checkpoints),
        "rules": {rule: {str(k): float(curve[k - 1]) for k in steps} for rule, curve in curves.items()},
        "differences": [
            {"rule": c.rule, "k": c.k, "difference": c.difference, "standard_error": c.standard_error}
            for rule in args.rules
            if rule in ("random", "fps_order") and "learned" in records
            for c in (compare(records["learned"], records[rule], rule, k) for k in steps)
        ],
    }
    if args.json:
        print(to_json(report))
        return 0
    print(f"accuracy in % on the {args.split} split, {len(examples)} clouds, mean of {len(args.checkpoints)} model(s)")
    rows = [(rule, *(f"{100 * v:.1f}" for v in at.values())) for rule, at in report["rules"].items()]
    print(table(rows, ("rule", *(f"k={k}" for k in steps))))
    rows = [
        (d["rule"], d["k"], f"{100 * d['difference']:+.2f}", f"{100 * d['standard_error']:.2f}")
        for d in report["differences"]
    ]
    if rows:
        print("\nlearned minus rival, in points, with the paired standard error")
        print(table(rows, ("rival", "k", "difference", "standard error")))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AspError as error:
        say(f"evaluate: error: {error}")
        sys.exit(error.exit_code)
