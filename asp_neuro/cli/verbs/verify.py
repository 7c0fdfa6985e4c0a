"""asp-neuro verify"""

from __future__ import annotations

import argparse
from pathlib import Path

from asp_neuro.cli.verbs.base import Result, bundle_argument, bundle_name, data_arguments, whole
from asp_neuro.errors import MissingError
from asp_neuro.report import say


def verify_arguments(parser: argparse.ArgumentParser) -> None:
    bundle_argument(parser)
    data_arguments(parser)
    parser.add_argument("--checkpoint", type=Path, metavar="model.pt", help="the trained module joins the comparison")
    parser.add_argument("--limit", type=whole(1), default=8, metavar="N", help="real clouds to take (default 8)")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of the random heads (default 0)")
    parser.add_argument("--no-lava", action="store_true", help="leave the Lava simulator out")


def why_no_lava(asked: bool) -> str | None:
    """Why Lava takes no part; None: it does."""
    from asp_neuro.libraries import install, is_there

    if asked:
        return "as asked"
    return None if is_there("lava.magma") else f"it is not installed; {install('lava')}"


def verify(args: argparse.Namespace) -> Result:
    """Golden vectors, random heads and real clouds through every engine; exit code 1 on any difference."""
    import dataclasses

    from asp_neuro.cli.machines import machine
    from asp_neuro.heads.spec import STOCK
    from asp_neuro.runtime import deployment, integers, verification

    deployed = deployment.open_bundle(bundle_name(args))
    rule, _ = deployment.exit_rule(deployed, uncertified=True)
    scenes, ids = None, []
    try:
        clouds = deployment.clouds_of(deployed, args.data, "validation", args.up, args.limit)
        scenes, ids = deployed.scenes(clouds, keep=False), list(clouds.names)
    except MissingError as error:
        if args.data is not None:
            raise
        say(f"no real clouds: {str(error).splitlines()[0]}")
    machines = {"fast": machine("fast")}
    why_not = integers.why_not(deployed.bundle.model)
    if why_not is not None:
        say(f"the plain reference in integers is left out: {why_not}")
    elif scenes is not None:
        machines["integers"] = integers.INTEGERS
        if len(scenes) > integers.AT_MOST:
            say(f"the plain reference in integers, which is slow, takes {integers.AT_MOST} of {len(scenes)} clouds")
    left_out = why_no_lava(args.no_lava)
    if left_out is None:
        from asp_neuro.chip.machines import netx, why_not_netx

        machines["lava"] = machine("sim")
        not_netx = why_not_netx(deployed.bundle.head)
        if not_netx is None:
            machines["netx"] = netx(deployed.path)
        elif deployed.bundle.head.form == STOCK:
            say(f"stock NetX is left out: {not_netx}")
    else:
        say(f"the Lava simulator is left out: {left_out}")
    if args.checkpoint is not None:
        from asp_neuro.learn.machine import trained

        machines["torch"] = trained(args.checkpoint, deployed.bundle.model)
    found = verification.verify(
        deployed.bundle,
        scenes,
        ids,
        rule,
        machines,
        args.seed,
    )
    report = {**dataclasses.asdict(found), "sha256": deployed.sha256, "without_lava": left_out}
    return Result(report, verification.text(found), exit_code=1 if found.mismatches else 0)
