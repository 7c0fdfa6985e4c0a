"""asp-neuro report"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from asp_neuro.cli.verbs.base import (
    Result,
    bundle_argument,
    bundle_name,
    data_arguments,
    exit_arguments,
    out_file,
    sample_arguments,
    whole,
)
from asp_neuro.errors import InputError
from asp_neuro.report import say


def report_arguments(parser: argparse.ArgumentParser) -> None:
    bundle_argument(parser)
    data_arguments(parser)
    sample_arguments(parser)
    exit_arguments(parser)
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of the audits (default 0)")
    parser.add_argument("--no-audit", action="store_true", help="leave the audits out: they take most of the time")
    parser.add_argument("--no-robust", action="store_true", help="leave the corrupted clouds out")
    parser.add_argument(
        "--out", type=out_file, default=Path("report.html"), metavar="FILE.html", help="default ./report.html"
    )


def _options(args: argparse.Namespace) -> tuple[str, str]:
    """What was typed to choose clouds and exit, for who wants the same numbers."""
    pairs = {"--split": args.split, "--data": args.data, "--up": args.up, "--limit": args.limit}
    words = [word for name, value in pairs.items() if value is not None for word in (name, str(value))]
    exits = ["--no-exit"] if args.no_exit else [] if args.threshold is None else ["--threshold", str(args.threshold)]
    return shlex.join(words), shlex.join(exits + ["--uncertified"] * args.uncertified)


def report(args: argparse.Namespace) -> Result:
    """A bundle as one HTML file to look at, offline: objects, curves, promise, robustness, audits, energy, fit."""
    from asp_neuro.data import CloudSet
    from asp_neuro.runtime import deployment, part_samples, parts
    from asp_neuro.scenes.cloud_encoder import CloudSpec
    from asp_neuro.studies.audits import run as audits
    from asp_neuro.studies.page import contents, html
    from asp_neuro.tasks.parts import PartsSpec

    deployed = deployment.open_bundle(bundle_name(args))
    asked = deployed, args.no_exit, args.threshold, args.uncertified
    if isinstance(deployed.bundle.model.task, PartsSpec):
        rule, _, sentence = parts.rules_of(*asked)
        clouds: Any = part_samples.samples_of(deployed, args.data, args.split, args.up, args.limit)
    else:
        rule, sentence = deployment.exit_rule(*asked)
        clouds = deployment.clouds_of(deployed, args.data, args.split, args.up, args.limit)
    say(sentence)
    if (clouds.labels < 0).any():
        raise InputError(f"{clouds.source}: a report needs clouds of known classes; for others: run --report FILE.html")
    audit = None
    if not args.no_audit:
        audit = audits.run(
            deployed.name, data=args.data, up=args.up, split=args.split, limit=args.limit, threshold=args.threshold,
            seed=args.seed,
        )  # fmt: skip
    source = contents.placeless(clouds.source, args.split)
    about = contents.Subject(args.split, source, len(clouds), *_options(args))
    robust = not args.no_robust and isinstance(deployed.bundle.model.scene, CloudSpec) and isinstance(clouds, CloudSet)
    told = html.write(args.out, contents.gather(deployed, clouds, about, rule, sentence, audit, robust))
    return Result(told, f"{told['out']}: {told['bytes']} bytes, opens offline in a browser")


def of_run(
    path: Path, args: argparse.Namespace, deployed: Any, clouds: Any, rule: Any, sentence: str, ends: list[str]
) -> dict[str, Any]:
    """The page of the clouds that `asp-neuro run` has at hand; `ends`: what is said of each answer's stop."""
    from asp_neuro.studies.page import contents, html

    words = shlex.join(word for name in args.input for word in ("--input", name)) if args.input else None
    options, exits = _options(args)
    if getattr(args, "category", None) is not None:
        exits = f"--category {shlex.quote(args.category)} {exits}".strip()
    source = "from files" if args.input else contents.placeless(clouds.source, args.split)
    about = contents.Subject(args.split, source, len(clouds), words or options, exits, at_hand=True)
    return html.write(path, contents.gather(deployed, clouds, about, rule, sentence, ends=ends))
