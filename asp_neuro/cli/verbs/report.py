"""asp-neuro report"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

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
from asp_neuro.report import say


def report_arguments(parser: argparse.ArgumentParser) -> None:
    bundle_argument(parser)
    data_arguments(parser)
    sample_arguments(parser)
    exit_arguments(parser)
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of the audits (default 0)")
    parser.add_argument("--no-audit", action="store_true", help="leave the audits out: they take most of the time")
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
    """A bundle as one HTML file to look at, offline: objects, curves, promise, audits, energy, fit."""
    from asp_neuro import files
    from asp_neuro.errors import CheckFailed, UsageError
    from asp_neuro.runtime import deployment
    from asp_neuro.scenes.image import Gaze
    from asp_neuro.studies.audits import run as audits
    from asp_neuro.studies.page import contents, html

    deployed = deployment.open_bundle(bundle_name(args))
    if isinstance(deployed.settings, Gaze):
        raise UsageError(f"the page is of clouds; images are drawn by: asp-neuro run {deployed.name} --picture out.png")
    rule, sentence = deployment.exit_rule(deployed, args.no_exit, args.threshold, args.uncertified)
    say(sentence)
    clouds = deployment.clouds_of(deployed, args.data, args.split, args.up, args.limit)
    audit = None
    if not args.no_audit:
        audit = audits.run(
            deployed.name, data=args.data, up=args.up, split=args.split, limit=args.limit, threshold=rule.tau,
            seed=args.seed,
        )  # fmt: skip
    found = contents.gather(deployed, clouds, args.split, rule, sentence, audit, *_options(args))
    written = html.page(found)
    n_bytes = len(written.encode("utf-8"))
    if n_bytes > html.LARGEST:
        raise CheckFailed(f"the report would have {n_bytes} bytes, more than {html.LARGEST}")
    files.write_text(args.out, written)
    return Result({"out": str(args.out), "bytes": n_bytes}, f"{args.out}: {n_bytes} bytes, opens offline in a browser")
