"""asp-neuro energy"""

from __future__ import annotations

import argparse
from typing import Any

from asp_neuro.cli.verbs.base import (
    Result,
    bundle_argument,
    bundle_name,
    data_arguments,
    exit_arguments,
    picture_file,
    sample_arguments,
)
from asp_neuro.errors import MissingError
from asp_neuro.report import say


def energy_arguments(parser: argparse.ArgumentParser) -> None:
    bundle_argument(parser)
    data_arguments(parser)
    sample_arguments(parser)
    exit_arguments(parser)
    parser.add_argument("--prices", default="prices", metavar="FILE", help="another price table than the shipped one")
    parser.add_argument("--plot", type=picture_file, metavar="FILE.png", help="draw energy and phase boundary, by both")


def energy(args: argparse.Namespace) -> Result:
    """What an answer costs, by operations counted on the model and firing rates measured on its data. An estimate, by
    the paper's float prices and by the integers that run."""
    from asp_neuro.runtime import deployment, hardware, neurobench
    from asp_neuro.runtime.energy import Estimate
    from asp_neuro.studies import plots

    prices = hardware.prices(args.prices)
    deployed = deployment.open_bundle(bundle_name(args))
    rule, sentence = deployment.exit_rule(deployed, args.no_exit, args.threshold, args.uncertified)
    say(sentence)
    parts: list[Any] = []
    try:
        clouds = deployment.clouds_of(deployed, args.data, args.split, args.up, args.limit)
        usage, parts = deployment.usage(deployed, clouds, rule), deployment.batches(deployed, clouds)
    except MissingError as error:
        if args.data is not None:
            raise
        usage = deployment.recorded_usage(deployed, rule, error)
        say(f"{str(error).splitlines()[0]}\nnothing is run: the firing rates stored in the bundle are used")
    b = deployed.bundle
    found = Estimate(b.model, usage, prices)
    named = neurobench.metrics(deployed.perceiver, parts, rule)
    report, text = {**found.as_dict(), "neurobench": named, "sha256": deployed.sha256}, found.text()
    if args.plot is not None:
        report["plot"] = str(plots.energy_curves(args.plot, found))
        text += f"\n\nplot: {report['plot']}"
    return Result(report, text)
