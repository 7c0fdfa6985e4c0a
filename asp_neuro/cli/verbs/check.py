"""asp-neuro check"""

from __future__ import annotations

import argparse

from asp_neuro.cli.verbs.base import Result, bundle_argument, bundle_name


def check_arguments(parser: argparse.ArgumentParser) -> None:
    bundle_argument(parser)
    parser.add_argument("--hw", default="loihi2", metavar="NAME", help="a hardware description (default loihi2)")


def check(args: argparse.Namespace) -> Result:
    """Design rules and an estimate of the cores needed; exit code 1 when a rule is broken."""
    from asp_neuro.runtime import deployment, hardware

    deployed = deployment.open_bundle(bundle_name(args))
    golden = deployed.bundle.golden
    hw = hardware.chip(args.hw)
    fit = hardware.check(deployed.bundle.head, deployed.bundle.model.mixer, hw, golden.membranes, golden.spikes)
    return Result(fit.as_dict(), fit.text(), exit_code=0 if fit.fits else 1)
