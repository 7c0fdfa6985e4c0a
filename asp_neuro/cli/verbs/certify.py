"""asp-neuro certify"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from asp_neuro.cli.verbs.base import (
    Result,
    bundle_argument,
    bundle_name,
    data_arguments,
    familiarity_arguments,
    level_arguments,
    picture_file,
    share,
)
from asp_neuro.errors import UsageError
from asp_neuro.report import about, table


def certificate_report(found: Any) -> dict[str, Any]:
    """The keys that `certify --json` promises."""
    names = (
        "alpha", "delta", "n", "threshold", "risk", "bound", "coverage", "mean_observations", "monotone", "certified",
        "n_accepted", "n_errors", "level",
    )  # fmt: skip
    return {**{name: getattr(found, name) for name in names}, "cover": cover_report(found)}


def cover_report(found: Any) -> list[dict[str, Any]]:
    """What was counted at the certified threshold under each condition that the promise covers."""
    at = [row.threshold for row in found.table].index(found.threshold) if found.certified else None
    return [
        {
            "condition": one.condition.name,
            "kind": one.condition.kind,
            "amount": one.condition.amount,
            "n_accepted": 0 if at is None else one.accepted[at],
            "n_errors": 0 if at is None else one.errors[at],
            "coverage": 0.0 if at is None else one.accepted[at] / found.n,
            "risk": None if at is None or not one.accepted[at] else one.errors[at] / one.accepted[at],
        }
        for one in found.covers
    ]


def cover_lines(report: dict[str, Any], plan: Any, known: Any) -> list[str]:
    """What familiarity and cover came to, for people."""
    lines = []
    if known is not None:
        lines.append(
            f"familiarity: {len(known.owners)} prototypes of {known.n_reference} known clouds, limits from {known.n} "
            f"others: at most {100.0 * known.level:g} % of clouds like these are called unfamiliar"
        )
    if report["cover"]:
        rows = [("clean", share(report["coverage"]), share(report["risk"]))]
        rows += [(one["condition"], share(one["coverage"]), share(one["risk"])) for one in report["cover"]]
        lines.append(table(rows, ("condition", "certified", "wrong among them")))
    return lines + [f"not covered: {sentence}" for sentence in plan.dropped]


HEADER = ("threshold", "accepted", "errors", "risk", "bound", "coverage", "observations", "passed")


def chosen(tried: Sequence[Any]) -> Any:
    """Of several levels the first that is certified: that one is stored."""
    return next((made for made in tried if made.certificate.certified), tried[0])


def levels_report(tried: Sequence[Any]) -> dict[str, Any]:
    """The report of the level that is stored, and of all."""
    reports = [certificate_report(made.certificate) for made in tried]
    made = chosen(tried)
    known = None if made.familiarity is None else made.familiarity.level
    about = {"dropped": list(made.plan.dropped), "unfamiliar": known, "trained_alike": made.alike}
    return {**certificate_report(made.certificate), **about, "levels": reports}


def size_advice(made: Any) -> list[str]:
    """How many clouds a certificate takes, and a word on a split that is small."""
    from asp_neuro import certify as certificates

    advice = certificates.advice(made.certificate.n)
    return [certificates.sizes(made.plan), *([advice] if advice else [])]


def promises(tried: Sequence[Any]) -> list[str]:
    """What each level came to, in a sentence each; with several, which one is stored."""
    from asp_neuro import certify as certificates

    if len(tried) == 1:
        return [certificates.promise(tried[0].certificate)]
    stored = chosen(tried)
    lines = [
        f"alpha {certificates.percent(made.certificate.alpha)}{' (stored)' if made is stored else ''}: "
        f"{certificates.promise(made.certificate)}"
        for made in tried
    ]
    each = certificates.percent(stored.certificate.delta)
    return [f"{len(tried)} levels share delta, {each} each, so that all of these promises hold together:", *lines]


def certify_arguments(parser: argparse.ArgumentParser) -> None:
    bundle_argument(parser)
    data_arguments(parser)
    level_arguments(parser)
    familiarity_arguments(parser)
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
    from asp_neuro.model.points import is_dense
    from asp_neuro.runtime import deployment

    deployed = deployment.open_bundle(bundle_name(args))
    if is_dense(deployed.bundle.model):
        return _certify_parts(args, deployed)
    place = deployed.path if args.rule == "paper" else deployment.certified_place(deployed, args.out)
    paper = args.rule == "paper"
    tried = deployment.certify_all(
        deployed, args.data, args.up, args.alpha, args.delta, args.exit_threshold, args.unfamiliar or None, args.cover,
        args.patience, compare=paper,
    )  # fmt: skip
    made = chosen(tried)
    plan, found = made.plan, made.certificate
    lines = [table(_rows(found), HEADER), *size_advice(made)]
    monotone = "does not rise" if found.monotone else "rises somewhere"
    lines.append(
        f"diagnostic: the empirical risk {monotone} as the threshold gets stricter; the proof does not need it"
    )
    report = levels_report(tried)
    kind = deployed.bundle.model.scene.kind
    lines += [about(kind, line) for line in cover_lines(report, plan, made.familiarity)]
    if args.curve is not None:
        from asp_neuro.studies import plots

        report["curve"] = str(plots.certificate_curve(args.curve, made.calibration, found))
        lines.append(f"curves: {report['curve']}")
    if paper:
        tau = certificates.paper_rule(made.calibration, plan.grid, found.alpha, found.delta)
        lines.append(
            f"the paper's rule would take {tau}; it does not keep its promise (docs/certificates.md), not stored"
        )
        return Result({**report, "rule": "paper", "threshold": tau, "certified": False}, "\n".join(lines))
    deployment.store(deployed, made, place, tried)
    lines += [about(kind, line) for line in promises(tried)]
    if not place.samefile(deployed.path):
        lines.append(f"{place}: a copy with this certificate; '{deployed.path}' is as it was")
        lines.append(f"next: asp-neuro run {place}")
    return Result({**report, "out": str(place)}, "\n".join(lines), exit_code=0 if found.certified else 1)


def demand_class(words: Mapping[str, Any]) -> None:
    """Refuse words that were given, for a model that labels points."""
    given = ", ".join(word for word, value in words.items() if value)
    if given:
        raise UsageError(f"{given}: for models that answer with a class; this one labels points")


def parts_report(found: Any) -> dict[str, Any]:
    """The keys of `certify --json` for a bundle of parts."""
    return {
        "certified": found.mean.certified,
        "exit_threshold": found.exit,
        "mean_observations": found.mean_observations,
        "n": found.mean.n,
        "mean": {
            name: getattr(found.mean, name) for name in ("alpha", "delta", "threshold", "risk", "accepted", "none")
        },
        "each": {name: getattr(found.each, name) for name in ("alpha", "most", "threshold", "accepted")},
    }


def _certify_parts(args: argparse.Namespace, deployed: Any) -> Result:
    """Both promises about points, on the calibration split."""
    from asp_neuro.runtime import deployment, parts

    demand_class({
        "--cover": args.cover, "--rule": args.rule == "paper", "--curve": args.curve is not None,
        "--patience": args.patience, "several --alpha": len(args.alpha) > 1,
    })  # fmt: skip
    place = deployment.certified_place(deployed, args.out)
    found = parts.certify(deployed, args.data, args.up, args.alpha[0], args.delta, exit_threshold=args.exit_threshold)
    parts.store(deployed, found, place)
    rows = [
        (f"{row.threshold:.4f}", share(row.risk), share(row.accepted), share(row.none), f"{row.p_value:.3g}",
         "yes" if row.passed else "no")
        for row in found.mean.table
    ]  # fmt: skip
    lines = [table(rows, ("margin above", "wrong", "accepted", "shapes without", "p-value", "passed"))]
    stop = "the whole budget" if found.exit is None else f"exit at margin {found.exit:.4f}, chosen on validation"
    lines += [f"{stop}: {found.mean_observations:.2f} observations on average", *found.sentences]
    if not place.samefile(deployed.path):
        lines.append(f"{place}: a copy with these promises; '{deployed.path}' is as it was")
        lines.append(f"next: asp-neuro run {place}")
    code = 0 if found.mean.certified else 1
    return Result({**parts_report(found), "out": str(place)}, "\n".join(lines), exit_code=code)


def _rows(found: Any) -> list[tuple[object, ...]]:
    """The table of a certificate, a row for each threshold."""
    return [
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
