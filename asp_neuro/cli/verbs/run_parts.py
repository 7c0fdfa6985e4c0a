"""asp-neuro run, for a bundle of parts: every point gets a label."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro.cli.machines import machine
from asp_neuro.cli.verbs.base import Result
from asp_neuro.cli.verbs.report import of_run
from asp_neuro.errors import UsageError
from asp_neuro.report import say, table


def run_parts(args: argparse.Namespace, deployed: Any) -> Result:
    """Label the points of a data set, or of clouds in files."""
    from asp_neuro.runtime import labelled, part_samples, parts, watch

    _check_words(args)
    if args.out is not None:
        labelled.check_kind(args.out)
    from asp_neuro.cli.verbs.run import feedback_file, jsonl

    watched = None if args.feedback is None else feedback_file(args.feedback, deployed)
    rule, accept, sentence = parts.rules_of(deployed, args.no_exit, args.threshold, args.uncertified)
    say(sentence)
    taken = None
    if args.input is not None:
        samples, taken = part_samples.samples_in_files(
            deployed, args.input, args.up, args.seed, args.drop_invalid, args.category
        )
    else:
        samples = part_samples.samples_of(deployed, args.data, args.split, args.up, args.limit, args.seed)
    with jsonl(args.jsonl) as write:
        report, answers = parts.run(deployed, samples, rule, accept, machine(args.backend), args.batch, taken, write)
    each = report.pop("wrong_shares_each", [])
    most = None if (found := parts.promise_of(deployed)) is None else found.each.most
    report["shapes_above_most"] = None if most is None or not each else sum(x > most for x in each) / len(each)
    lines, code = [], 0
    if watched is not None:
        told = watch.point_feedback(watched, deployed, samples, answers, args.seed)
        report["monitor"], code = {"file": str(watched), **told.report()}, int(told.alarm)
        lines.append(told.message)
    if args.out is not None and taken is not None:  # `_check_words`
        report["out"] = str(labelled.write(args.out, np.asarray(taken[0].given), answers[0]))
        lines.append(f"labelled points: {args.out}")
    if args.picture is not None:
        report["picture"] = str(_draw(args.picture, deployed, samples, answers[0]))
        lines.append(f"picture: {args.picture}")
    if args.report is not None:
        ends = [f"{100.0 * one.accepted.mean():.0f} % of the points are accepted." for one in answers]
        report["page"] = of_run(args.report, args, deployed, samples, rule, sentence, ends)
        lines.append(f"page: {args.report}")
    text = _text(report)
    if args.input is not None:
        report["answers"] = [answer.to_dict(name) for name, answer in zip(samples.names, answers, strict=True)]
        names = deployed.bundle.model.task.part_names()
        text = "\n".join([*(_one(name, a, names) for name, a in zip(samples.names, answers, strict=True)), text])
    if str(args.jsonl) == "-":
        say("\n".join([text, *lines]))
        return Result(report, "", exit_code=code)
    return Result(report, "\n".join([text, *lines]), exit_code=code)


def _check_words(args: argparse.Namespace) -> None:
    if args.feedback is not None and (args.input is not None or args.no_exit or args.threshold is not None):
        raise UsageError(
            "--feedback needs points whose parts are known and a promise: give a data set, not --input, and neither "
            "--no-exit nor --threshold"
        )
    if args.out is not None and (args.input is None or len(args.input) != 1):
        raise UsageError("--out writes the points of one cloud; name it with --input FILE")
    if args.category is not None and args.input is None:
        raise UsageError("--category is for clouds of --input; those of a data set have theirs")
    for name in ("prefix", "exact"):
        if getattr(args, name):
            raise UsageError(f"--{name} is for models that answer with a class")
    if args.on_unproven == "recompute":
        raise UsageError("--on-unproven recompute is for models that answer with a class")


def _draw(path: Path, deployed: Any, samples: Any, answer: Any) -> Path:
    from asp_neuro.studies import part_plots

    names = deployed.bundle.model.task.part_names()
    return part_plots.labelled_cloud(path, deployed.scenes(samples)[:1], samples.queries(0), answer, names)


def _one(name: str, answer: Any, parts: tuple[str, ...]) -> str:
    """One cloud, for people."""
    there = answer.labels >= 0
    n = max(1, int(there.sum()))
    rows = []
    for part in sorted(set(answer.labels[there].tolist())):
        own = answer.labels == part
        rows.append((parts[part], int(own.sum()), f"{100.0 * own.sum() / n:.1f} %",
                     f"{100.0 * answer.accepted[own].mean():.1f} %"))  # fmt: skip
    said = "given" if answer.given else f"answered, probability {100.0 * answer.probability:.1f} %"
    order = " ".join(str(chunk) for chunk in answer.order)
    head = f"{name}: {answer.class_name} ({said})\nchunks looked at: {order}"
    return "\n".join([head, table(rows, ("part", "points", "share", "accepted")), *answer.notes])


def _text(report: dict[str, Any]) -> str:
    rows: list[tuple[str, str]] = [("backend", report["backend"]), ("clouds", str(report["n"]))]
    if report["instance_miou"] is not None:
        rows.append(("instance mIoU", f"{100.0 * report['instance_miou']:.2f} %"))
        rows.append(("class mIoU", f"{100.0 * report['class_miou']:.2f} %"))
        rows.append(("without absent parts", f"{100.0 * report['instance_miou_skip_absent']:.2f} % instance mIoU"))
    rows.append(("observations", f"{report['mean_observations']:.2f} of {report['budget']} on average"))
    rows.append(("points accepted", f"{100.0 * report['accepted_share']:.1f} %"))
    rows.append(("accepted, each shape", f"{100.0 * report['accepted_each_share']:.1f} %"))
    if report.get("wrong_among_accepted") is not None:
        rows.append(("wrong among accepted", f"{100.0 * report['wrong_among_accepted']:.2f} %, mean over shapes"))
    if report["shapes_above_most"] is not None:
        rows.append(("shapes above promise B", f"{100.0 * report['shapes_above_most']:.1f} %"))
    rows.append(("points proven", f"{100.0 * report['proven_point_share']:.1f} %"))
    rows.append(("time", f"{report['seconds']:.2f} s, {1e3 * report['seconds'] / report['n']:.2f} ms a cloud"))
    rows.append(("model", report["sha256"][:16]))
    return table(rows, ("", ""))
