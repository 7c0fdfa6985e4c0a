"""asp-neuro run"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from asp_neuro import files
from asp_neuro.cli.verbs.base import (
    BACKENDS,
    Result,
    bundle_argument,
    bundle_name,
    data_arguments,
    exit_arguments,
    out_file,
    picture_file,
    sample_arguments,
    whole,
)
from asp_neuro.cli.verbs.report import of_run
from asp_neuro.errors import UsageError
from asp_neuro.report import about, say, table, to_json

STDOUT = Path("-")
PLACES = {"cloud": "chunks", "image": "fixation points"}


def run_arguments(parser: argparse.ArgumentParser) -> None:
    bundle_argument(parser)
    data_arguments(parser)
    parser.add_argument("--backend", choices=BACKENDS, default="fast", help="default fast")
    parser.add_argument(
        "--input", nargs="+", action="extend", metavar="FILE",
        help="clouds (or pictures) instead of a data set, a file each; '-' is standard input",
    )  # fmt: skip
    parser.add_argument(
        "--drop-invalid", action="store_true", help="leave out points of --input that are NaN or inf, and count them"
    )
    sample_arguments(parser)
    parser.add_argument("--batch", type=whole(1), default=256, metavar="N", help="clouds at once on fast (default 256)")
    parser.add_argument("--threads", type=whole(1), metavar="N", help="default 1; answers do not depend on it")
    parser.add_argument(
        "--seed",
        type=whole(0),
        default=0,
        metavar="N",
        help="of the data: another draw of shapes or of a mesh's points",
    )
    parser.add_argument(
        "--category", metavar="NAME", help="of parts: what the clouds of --input are (else answered too)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="of parts: write every point with label, margin, accepted (ply, npz, csv)",
    )
    parser.add_argument("--jsonl", type=Path, metavar="FILE", help="write one JSON line per cloud there ('-': stdout)")
    parser.add_argument(
        "--picture", type=picture_file, metavar="FILE.png",
        help="draw the first cloud by the order of its chunks, or the first image with its fixations",
    )  # fmt: skip
    parser.add_argument("--report", type=out_file, metavar="FILE.html", help="also write a page to look at, offline")
    exit_arguments(parser)
    parser.add_argument(
        "--prefix", action="store_true", help="also run without carried state: bit for bit the same? at what cost?"
    )
    parser.add_argument(
        "--on-unproven", choices=("report", "recompute"), default="report",
        help="recompute: answers whose spikes are not proven are computed again in exact arithmetic",
    )  # fmt: skip
    parser.add_argument("--exact", action="store_true", help="also count the answers that exact arithmetic gives too")
    parser.add_argument(
        "--feedback", nargs="?", const="", metavar="FILE",
        help="watch the risk of certified answers over labelled clouds (default file: beside the bundle, for a shipped "
        "one in this folder)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> Result:
    """Answer for a data set, or for clouds in files."""
    _check_words(args)
    from asp_neuro.cli.machines import machine
    from asp_neuro.cli.verbs.run_parts import run_parts
    from asp_neuro.model.points import is_dense
    from asp_neuro.runtime import deployment

    deployed = deployment.open_bundle(bundle_name(args))
    if is_dense(deployed.bundle.model):
        return run_parts(args, deployed)
    if args.category is not None or args.out is not None:
        raise UsageError(f"--category and --out are for models of parts; '{deployed.name}' answers with a class")
    rule, sentence = deployment.exit_rule(deployed, args.no_exit, args.threshold, args.uncertified)
    say(sentence)
    watch = None if args.feedback is None else feedback_file(args.feedback, deployed)
    clouds, taken = _clouds(args, deployed)
    again = args.on_unproven == "recompute"
    with jsonl(args.jsonl) as write:
        report, answers = deployment.run(
            deployed, clouds, rule, machine(args.backend), args.batch, write, again, args.exact, taken
        )
    if args.picture is not None:
        report["picture"] = str(draw(deployed, clouds, answers[0], args.picture, rule))
    if args.report is not None:
        ends = [" ".join([answer.exit.sentence, *answer.notes]) for answer in answers]
        report["page"] = of_run(args.report, args, deployed, clouds, rule, sentence, ends)
    if args.prefix:
        report["prefix"] = deployment.compare_forms(deployed, clouds, rule, args.batch)
    kind = deployed.bundle.model.scene.kind
    report["above_promise"] = above_promise(report, kind)
    text, code = _run_text(report, f"{kind}s"), 0
    text += f"\npicture: {args.picture}" if args.picture is not None else ""
    text += f"\npage: {args.report}" if args.report is not None else ""
    if watch is not None:
        report["monitor"], told = _feedback(watch, deployed, clouds, answers, args)
        text, code = f"{text}\n{told}", int(report["monitor"]["alarm"])
    if args.input is not None:
        report["answers"] = [answer.to_dict(name) for name, answer in zip(clouds.names, answers, strict=True)]
        told = _inputs_text(clouds.names, answers, deployed.bundle.classes, PLACES.get(kind, "places"))
        text = about(kind, told) + "\n" + text
    if args.jsonl == STDOUT:
        say(text)
        text = ""
    return Result(report, text, exit_code=code)


def _clouds(args: argparse.Namespace, deployed: Any) -> tuple[Any, Any]:
    """What is to be answered for, and how files were taken in (None for a data set)."""
    from asp_neuro.runtime import deployment

    if args.input is not None:
        return deployment.clouds_in_files(deployed, args.input, args.up, args.seed, args.drop_invalid)
    return deployment.clouds_of(deployed, args.data, args.split, args.up, args.limit, args.seed), None


def _feedback(path: Path, deployed: Any, clouds: Any, answers: Any, args: argparse.Namespace) -> tuple[Any, str]:
    """What the monitor says after these answers, for machines and for people; files come in the order of a stream."""
    from asp_neuro.runtime import watch

    found = watch.feedback(path, deployed, clouds, answers, args.seed, in_order=args.input is not None)
    return {"file": str(path), **found.report()}, found.message


def _check_words(args: argparse.Namespace) -> None:
    """What does not go together, and a bundle that stands where a cloud is expected."""
    if args.jsonl == STDOUT and args.json:
        raise UsageError("--jsonl - and --json both want stdout; name a file for --jsonl, or leave --json out")
    if args.input is None and args.drop_invalid:
        raise UsageError("--drop-invalid is for clouds of --input; the clouds of a data set must be finite")
    if args.input is not None and bundle_name(args) is None:
        from asp_neuro.bundle import shipped

        for name in args.input:
            if name.endswith(".net") or name in shipped():
                raise UsageError(
                    f"'{name}' was taken for a cloud; put the bundle first: asp-neuro run {name} --input ..."
                )


def feedback_file(given: str, deployed: Any) -> Path:
    """Where the monitor keeps its state: where it was told to, or by the name of the bundle."""
    from asp_neuro.runtime import deployment

    return files.demand_place(given or deployment.own_place(deployed, ".feedback.json"))


def draw(deployed: Any, clouds: Any, answer: Any, path: Path, rule: Any = None) -> Path:
    """Draw the first cloud, coloured by the order in which its chunks were looked at; or the fixations of an image."""
    from asp_neuro.scenes.image import Images
    from asp_neuro.studies import plots

    scene = deployed.bundle.model.scene
    scenes, title = scene.scenes(clouds.inputs[:1], clouds.names[:1]), Path(clouds.names[0]).name
    if isinstance(scenes, Images):
        return plots.fixations(path, scenes, scene.gaze, answer, deployed.bundle.classes, title, rule)
    return plots.visits(path, scenes, answer, deployed.bundle.classes, title, rule)


@contextlib.contextmanager
def jsonl(path: Path | None) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """A writer of JSON lines: what is answered is kept, whatever happens next."""
    if path is None:
        yield None
        return
    if path == STDOUT:
        yield lambda row: print(to_json(row), flush=True)
        return
    with files.lines(path) as write:
        yield lambda row: write(to_json(row))


def _inputs_text(names: tuple[str, ...], answers: list[Any], classes: tuple[str, ...], what: str) -> str:
    """One answer at length, or a line for each of several."""
    if len(answers) == 1:
        return "\n".join([_answer_text(answers[0], classes, what), *answers[0].notes])
    rows = [
        (name, classes[a.label], f"{100.0 * a.probability:.1f} %", a.observations, a.exit.value, told(a))
        for name, a in zip(names, answers, strict=True)
    ]
    return table(rows, ("file", "class", "probability", "observations", "exit", "notes"))


def told(answer: Any) -> str:
    """What is to be said about one of several answers."""
    return " ".join([*([] if answer.unfamiliar is None else [f"{answer.unfamiliar}."]), *answer.notes])


def _answer_text(answer: Any, classes: tuple[str, ...], what: str) -> str:
    ranked = sorted(range(len(classes)), key=lambda i: -answer.probabilities[i])[:3]
    others = ", ".join(f"{classes[i]} {100.0 * answer.probabilities[i]:.1f} %" for i in ranked)
    order = " ".join(str(chunk) for chunk in answer.order)
    why = "" if answer.unfamiliar is None else f"\n{answer.unfamiliar}"
    return f"{classes[answer.label]}  ({others})\n{what} looked at: {order}\n{answer.exit.sentence}{why}"


def _run_text(report: dict[str, Any], what: str = "clouds") -> str:
    rows: list[tuple[str, str]] = [("backend", report["backend"]), (what, str(report["n"]))]
    if report["accuracy"] is not None:
        rows.append(("accuracy", f"{100.0 * report['accuracy']:.2f} %"))
    rows.append(("observations", f"{report['mean_observations']:.2f} of {report['budget']} on average"))
    rows.append(("exits", ", ".join(f"{name} {n}" for name, n in report["exits"].items())))
    if report["certified_risk"] is not None:
        rows.append(("wrong among certified", f"{100.0 * report['certified_risk']:.2f} %"))
    if report["unfamiliar_share"] is not None:
        rows.append(("unfamiliar", f"{100.0 * report['unfamiliar_share']:.1f} % of the {what}"))
    if report["short_share"]:
        rows.append(("too few points for a promise", f"{100.0 * report['short_share']:.1f} % of the clouds"))
    rows.append(("spikes proven", f"{100.0 * report['preserved_share']:.1f} % of the answers"))
    if report["equal_share"] is not None:
        rows.append(("equal to exact arithmetic", f"{100.0 * report['equal_share']:.1f} % of the answers"))
    if report["recomputed"] is not None:
        rows.append(("computed again exactly", f"{report['recomputed']} answers"))
    rows.append(("time", f"{report['seconds']:.2f} s, {1e3 * report['seconds'] / report['n']:.2f} ms each"))
    rows.append(("model", report["sha256"][:16]))
    text = table(rows, ("", "")) + (_prefix_text(report["prefix"]) if "prefix" in report else "")
    return f"{text}\n{report['above_promise']}" if report["above_promise"] else text


def above_promise(report: dict[str, Any], kind: str = "cloud") -> str | None:
    """A sentence where more certified answers are wrong than was promised; None: not more, or nobody knows."""
    from asp_neuro.certify import excess

    wrong, promised, n = report["wrong_among_certified"], report["promised_risk"], report["exits"]["certified"]
    told = None if wrong is None or promised is None else excess.sentence(round(wrong * n), n, promised)
    return None if told is None else about(kind, told)


def _prefix_text(report: dict[str, Any]) -> str:
    parts, forms = ("encoder", "mixer", "head"), ("streaming", "prefix")
    rows = [(f"{part}, million MACs", *(f"{report[form]['macs'][part] / 1e6:.1f}" for form in forms)) for part in parts]
    rows.append(("seconds", *(f"{report[form]['seconds']:.3f}" for form in forms)))
    ratios = [f"{report['ratio'][name]:.2f}" for name in (*parts, "seconds")]
    said = f"\n\nwithout carried state the same bits in all {report['observations']} observations, at this cost:\n"
    body = [(*row, ratio) for row, ratio in zip(rows, ratios, strict=True)]
    return said + table(body, ("", "streaming", "prefix form", "ratio"))
