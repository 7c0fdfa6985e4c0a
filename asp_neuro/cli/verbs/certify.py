"""asp-neuro certify"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from asp_neuro.cli.verbs.base import (
    Result,
    bundle_argument,
    bundle_name,
    data_arguments,
    level_arguments,
    picture_file,
    share,
)
from asp_neuro.report import table


def certificate_report(found: Any) -> dict[str, Any]:
    """The keys that `certify --json` promises."""
    names = (
        "alpha", "delta", "n", "threshold", "risk", "bound", "coverage", "mean_observations", "monotone", "certified",
        "n_accepted", "n_errors", "level",
    )  # fmt: skip
    return {name: getattr(found, name) for name in names}


def certify_arguments(parser: argparse.ArgumentParser) -> None:
    bundle_argument(parser)
    data_arguments(parser)
    level_arguments(parser)
    parser.add_argument(
        "--curve", type=picture_file, metavar="FILE.png", help="draw risk, bound, coverage and observations"
    )
    parser.add_argument(
        "--exit-threshold", type=float, metavar="X", help="exit at margin X and certify which stops to accept (J.1)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the bundle with its certificate (default: its file; shipped: a copy)"
    )
    parser.add_argument("--rule", choices=("planned", "paper"), default="planned", help="paper: to compare, not stored")


def certify(args: argparse.Namespace) -> Result:
    """Find the exit threshold whose promise holds, on the calibration split, and store it in the bundle."""
    from asp_neuro import certify as certificates
    from asp_neuro.runtime import deployment

    deployed = deployment.open_bundle(bundle_name(args))
    place = deployed.path if args.rule == "paper" else deployment.certified_place(deployed, args.out)
    made = deployment.certify(deployed, args.data, args.up, args.alpha, args.delta, args.exit_threshold)
    plan, found = made.plan, made.certificate
    rows = [
        (
            f"{row.threshold:.4f}",
            row.accepted,
            row.errors,
            share(row.risk),
            share(row.bound),
            share(row.coverage),
            f"{row.mean_observations:.2f}",
            "yes" if row.passed else "no",
        )
        for row in found.table
    ]
    header = ("threshold", "accepted", "errors", "risk", "bound", "coverage", "observations", "passed")
    lines = [table(rows, header), certificates.sizes(plan)]
    advice = certificates.advice(found.n)
    monotone = "does not rise" if found.monotone else "rises somewhere"
    lines += [advice] if advice else []
    lines.append(
        f"diagnostic: the empirical risk {monotone} as the threshold gets stricter; the proof does not need it"
    )
    report = certificate_report(found)
    if args.curve is not None:
        from asp_neuro.studies import plots

        report["curve"] = str(plots.certificate_curve(args.curve, made.calibration, found))
        lines.append(f"curves: {report['curve']}")
    if args.rule == "paper":
        tau = certificates.paper_rule(made.calibration, plan.grid, args.alpha, args.delta)
        lines.append(
            f"the paper's rule would take {tau}; it does not keep its promise (docs/certificates.md), not stored"
        )
        return Result({**report, "rule": "paper", "threshold": tau, "certified": False}, "\n".join(lines))
    deployment.store(deployed, made, place)
    lines.append(certificates.promise(found))
    if not place.samefile(deployed.path):
        lines.append(f"{place}: a copy with this certificate; '{deployed.path}' is as it was")
        lines.append(f"next: asp-neuro run {place}")
    return Result({**report, "out": str(place)}, "\n".join(lines), exit_code=0 if found.certified else 1)
