"""asp-neuro audit"""

from __future__ import annotations

import argparse

from asp_neuro.cli.verbs.base import Result, bundle_argument, bundle_name, data_arguments, sample_arguments, whole


def audit_arguments(parser: argparse.ArgumentParser) -> None:
    bundle_argument(parser)
    data_arguments(parser)
    sample_arguments(parser)
    parser.add_argument("--threshold", type=float, metavar="X", help="read the rows at the exit at margin X")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of folds, draws and orders (default 0)")
    parser.add_argument(
        "--others",
        nargs="+",
        default=(),
        metavar="MODEL",
        help="trainings with other seeds: do they look there too?",
    )
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a row fails")


def audit(args: argparse.Namespace) -> Result:
    """Every claim of the theory, measured on a bundle or a checkpoint (.pt); a failing row is a finding, no error."""
    from asp_neuro.studies.audits import run as audits

    report = audits.run(
        bundle_name(args), data=args.data, up=args.up, split=args.split, limit=args.limit, threshold=args.threshold,
        seed=args.seed, others=args.others,
    )  # fmt: skip
    return Result(report, audits.told(report), exit_code=1 if args.strict and report["fails"] else 0)
