"""What the command line can do: one function per verb.

A verb is a row of `VERBS`. Its function takes the parsed arguments and returns an `Outcome`: what `--json` prints,
what a person reads, and the exit code. It raises `AspError` for what the user can mend. Messages and progress go to
stderr (`report.say`, `report.progress`). Heavy libraries are imported inside the verb's function, never up here.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asp_neuro.errors import AspError, CheckFailed, MissingError, UsageError
from asp_neuro.report import say, table, to_json

PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Outcome:
    """What a verb came to: `report` for machines, `text` for people, and the exit code."""

    report: dict[str, Any]
    text: str
    exit_code: int = 0


@dataclass(frozen=True)
class Verb:
    name: str
    summary: str  # one line
    example: str  # a command that works as it stands
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Outcome]
    parts: tuple[Verb, ...] = ()  # verbs of its own: `asp-neuro study order`


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """For a verb that has only the options of every verb."""


def whole(low: int) -> Callable[[str], int]:
    """An argument type: a whole number of at least `low`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None
        if value < low:
            raise argparse.ArgumentTypeError(f"{value} is below {low}")
        return value

    return parse


def picture_file(text: str) -> Path:
    """An argument type: where a picture can be written, found out before the work and not after it."""
    path = Path(text)
    if path.suffix.lower() not in PICTURES:
        raise argparse.ArgumentTypeError(f"'{text}' does not end in {' or '.join(PICTURES)}")
    if not path.resolve().parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder of '{text}' does not exist; make it first")
    return path


def train_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recipe", default="compact", metavar="NAME|FILE", help="what to train (default compact)")
    parser.add_argument("--data", metavar="NAME|PATH", help="where the recipe's data are")
    parser.add_argument("--up", choices=("x", "y", "z"), help="the up axis of a folder of clouds (default y)")
    parser.add_argument("--out", type=Path, default=Path("model.pt"), metavar="FILE", help="default ./model.pt")
    parser.add_argument("--resume", action="store_true", help="go on where a stopped training of the same recipe was")
    parser.add_argument("--epochs", type=whole(1), metavar="N", help="another number of epochs than the recipe's")
    parser.add_argument("--seed", type=whole(0), metavar="N", help="another seed than the recipe's")
    parser.add_argument("--threads", type=whole(1), metavar="N", help="default 1: on small tensors more gain nothing")
    parser.add_argument("--teacher", type=Path, metavar="FILE", help="teacher's logits, for a recipe that distils")
    parser.add_argument("--tensorboard", type=Path, metavar="DIR", help="also write TensorBoard logs there")


def train(args: argparse.Namespace) -> Outcome:
    """Train a recipe; the last epochs run on the integer grid, so that export copies and never converts."""
    from asp_neuro import workshop

    report = workshop.train(
        args.recipe,
        data=args.data,
        up=args.up,
        out=args.out,
        resume=args.resume,
        epochs=args.epochs,
        seed=args.seed,
        threads=args.threads,
        teacher=args.teacher,
        tensorboard=args.tensorboard,
    )
    return Outcome(report, workshop.summary(report))


def bundle_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE|NAME", help="a bundle, or the name of a shipped one")
    parser.add_argument("--bundle", metavar="FILE|NAME", help="the same as an option (default ./model.net)")


def _bundle(args: argparse.Namespace) -> str | None:
    if args.file is not None and args.bundle is not None:
        raise UsageError(f"the bundle is given twice: '{args.file}' and --bundle '{args.bundle}'")
    return args.file if args.bundle is None else args.bundle


def data_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="NAME|PATH", help="where the data are (default: those of the recipe)")
    parser.add_argument("--up", choices=("x", "y", "z"), help="the up axis of a folder or a file (default y)")


def sample_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--split", choices=("train", "validation", "calibration", "test"), default="test", help="default test"
    )
    parser.add_argument("--limit", type=whole(1), metavar="N", help="only the first N clouds")


def exit_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-exit", action="store_true", help="read the whole budget")
    parser.add_argument("--threshold", type=float, metavar="X", help="exit at margin X, without a promise")
    parser.add_argument("--uncertified", action="store_true", help="use a stored threshold whose certificate is void")


def level_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--alpha", type=float, default=0.05, metavar="A", help="largest risk (default 0.05)")
    parser.add_argument("--delta", type=float, default=0.05, metavar="D", help="chance to be wrong (default 0.05)")


def one_thread(n: int | None) -> None:
    """Bind the BLAS libraries before they are loaded: on small products more threads only get in each other's way."""
    import os

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        if n is not None or name not in os.environ:
            os.environ[name] = str(n or 1)


def export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", nargs="?", type=Path, default=Path("model.pt"), help="default ./model.pt")
    parser.add_argument("--out", type=Path, default=Path("model.net"), metavar="FILE", help="default ./model.net")
    parser.add_argument("--hw", default="loihi2", metavar="NAME", help="hardware to check the fit for")
    parser.add_argument("--nir", type=Path, metavar="FILE", help="also write the head as a NIR file")
    parser.add_argument("--no-certificate", action="store_true", help="leave out the last step, the certificate")
    data_arguments(parser)
    level_arguments(parser)


def export(args: argparse.Namespace) -> Outcome:
    """Copy the integer network that training ended on into a bundle, measure it, certify it."""
    one_thread(None)
    from asp_neuro import bundle as bundles
    from asp_neuro import deployment, export, hardware

    hw = hardware.load(args.hw)
    made = export.export(args.checkpoint, args.data, args.up)
    fit = hardware.check(made.bundle.head, made.bundle.host, hw)
    if not fit.fits:
        raise CheckFailed(f"this head does not fit {args.hw}; nothing was written.\n{fit.text()}")
    bundles.write(args.out, made.bundle)
    if args.nir is not None:
        from asp_neuro import nir_file

        nir_file.write(args.nir, made.bundle.head)
    lines = [f"{args.out}: written, {args.out.stat().st_size / 1024.0:.0f} KB", made.text]
    deployed = deployment.open_bundle(args.out)
    certificate = None
    if made.deploy_accuracy is not None and not args.no_certificate:
        certificate, sentence = _certify(deployed, args)
        lines.append(sentence)
    report = {
        "out": str(args.out),
        "sha256": deployed.sha256,
        "layers": [
            {"neurons": layer.n_neurons, "inputs": layer.weight_int.shape[1], "state_bits": layer.state_bits}
            for layer in made.bundle.head.layers
        ],
        "float_accuracy": made.float_accuracy,
        "deploy_accuracy": made.deploy_accuracy,
        "agreement": None if made.agreement is None else made.agreement._asdict(),
        "certificate": certificate,
    }
    return Outcome(report, "\n".join([*lines, f"next: asp-neuro run {args.out}"]))


def _certify(deployed: Any, args: argparse.Namespace) -> tuple[dict[str, Any] | None, str]:
    """The last step of export: a certificate, or a warning; the bundle is usable either way."""
    from asp_neuro import deployment
    from asp_neuro.certificate import promise

    try:
        found = deployment.certify(deployed, args.data, args.up, args.alpha, args.delta)
    except AspError as error:
        say(f"warning: no certificate: {error}")
        return None, "no certificate; `asp-neuro run` will read the whole budget"
    deployment.store(deployed, found)
    return _certificate_report(found.certificate), promise(found.certificate)


def _certificate_report(found: Any) -> dict[str, Any]:
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
    parser.add_argument("--rule", choices=("planned", "paper"), default="planned", help="paper: to compare, not stored")


def certify(args: argparse.Namespace) -> Outcome:
    """Find the exit threshold whose promise holds, on the calibration split, and store it in the bundle."""
    one_thread(None)
    from asp_neuro import certificate as certificates
    from asp_neuro import deployment

    deployed = deployment.open_bundle(_bundle(args))
    made = deployment.certify(deployed, args.data, args.up, args.alpha, args.delta, args.exit_threshold)
    plan, found = made.plan, made.certificate
    rows = [
        (
            f"{row.threshold:.4f}",
            row.accepted,
            row.errors,
            _share(row.risk),
            _share(row.bound),
            _share(row.coverage),
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
    report = _certificate_report(found)
    if args.curve is not None:
        from asp_neuro import plots

        report["curve"] = str(plots.certificate_curve(args.curve, made.calibration, found))
        lines.append(f"curves: {report['curve']}")
    if args.rule == "paper":
        tau = certificates.paper_rule(made.calibration, plan.grid, args.alpha, args.delta)
        lines.append(
            f"the paper's rule would take {tau}; it does not keep its promise (docs/certificates.md), not stored"
        )
        return Outcome({**report, "rule": "paper", "threshold": tau, "certified": False}, "\n".join(lines))
    deployment.store(deployed, made)
    lines.append(certificates.promise(found))
    return Outcome(report, "\n".join(lines), exit_code=0 if found.certified else 1)


def _share(value: float | None) -> str | None:
    return None if value is None else f"{100.0 * value:.1f} %"


def run_arguments(parser: argparse.ArgumentParser) -> None:
    bundle_argument(parser)
    data_arguments(parser)
    parser.add_argument("--backend", choices=("fast", "sim", "loihi2"), default="fast", help="default fast")
    parser.add_argument("--input", metavar="FILE", help="one cloud instead of a data set")
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
    parser.add_argument("--jsonl", type=Path, metavar="FILE", help="write one JSON line per cloud there")
    parser.add_argument(
        "--picture", type=picture_file, metavar="FILE.png", help="draw the first cloud by the order of its chunks"
    )
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
        help="watch the risk of certified answers over labelled clouds (default file: beside the bundle)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> Outcome:
    """Answer for a data set or one cloud."""
    one_thread(args.threads)
    from asp_neuro import deployment

    deployed = deployment.open_bundle(_bundle(args))
    rule, sentence = deployment.exit_rule(deployed, args.no_exit, args.threshold, args.uncertified)
    say(sentence)
    if args.input is not None:
        clouds = deployment.one_cloud(deployed, args.input, args.up, args.seed)
    else:
        clouds = deployment.clouds_of(deployed, args.data, args.split, args.up, args.limit, args.seed)
    with jsonl(args.jsonl) as write:
        report, answers = deployment.run(
            deployed, clouds, rule, args.backend, args.batch, write, args.on_unproven == "recompute", args.exact
        )
    if args.picture is not None:
        report["picture"] = str(deployment.picture(deployed, clouds, answers[0], args.picture))
    if args.prefix:
        report["prefix"] = deployment.compare_forms(deployed, clouds, rule, args.batch)
    text, code = _run_text(report), 0
    text += f"\npicture: {args.picture}" if args.picture is not None else ""
    if args.feedback is not None:
        from asp_neuro import monitor

        path = Path(args.feedback) if args.feedback else deployed.path.with_suffix(".feedback.json")
        state = deployment.feedback(path, deployed, clouds, answers)
        report["monitor"] = {"file": str(path), "alarm": monitor.alarm(state), **state.to_dict()}
        text, code = f"{text}\n{monitor.message(state)}", 1 if monitor.alarm(state) else 0
    if args.input is not None:
        text = _answer_text(answers[0], deployed.bundle.classes) + "\n" + text
    return Outcome(report, text, exit_code=code)


@contextlib.contextmanager
def jsonl(path: Path | None) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """A writer of JSON lines, each flushed: what is answered is kept, whatever happens next."""
    if path is None:
        yield None
        return
    with open(path, "w", encoding="utf-8") as file:

        def write(row: dict[str, Any]) -> None:
            file.write(to_json(row) + "\n")
            file.flush()

        yield write


def _answer_text(answer: Any, classes: tuple[str, ...]) -> str:
    ranked = sorted(range(len(classes)), key=lambda i: -answer.probabilities[i])[:3]
    others = ", ".join(f"{classes[i]} {100.0 * answer.probabilities[i]:.1f} %" for i in ranked)
    order = " ".join(str(chunk) for chunk in answer.order)
    return f"{classes[answer.label]}  ({others})\nchunks looked at: {order}\n{answer.exit.sentence}"


def _run_text(report: dict[str, Any]) -> str:
    rows: list[tuple[str, str]] = [("backend", report["backend"]), ("clouds", str(report["n"]))]
    if report["accuracy"] is not None:
        rows.append(("accuracy", f"{100.0 * report['accuracy']:.2f} %"))
    rows.append(("observations", f"{report['mean_observations']:.2f} of {report['budget']} on average"))
    rows.append(("exits", ", ".join(f"{name} {n}" for name, n in report["exits"].items())))
    if report["certified_risk"] is not None:
        rows.append(("wrong among certified", f"{100.0 * report['certified_risk']:.2f} %"))
    rows.append(("spikes proven", f"{100.0 * report['preserved_share']:.1f} % of the answers"))
    if report["equal_share"] is not None:
        rows.append(("equal to exact arithmetic", f"{100.0 * report['equal_share']:.1f} % of the answers"))
    if report["recomputed"] is not None:
        rows.append(("computed again exactly", f"{report['recomputed']} answers"))
    rows.append(("time", f"{report['seconds']:.2f} s, {1e3 * report['seconds'] / report['n']:.2f} ms a cloud"))
    rows.append(("model", report["sha256"][:16]))
    return table(rows, ("", "")) + (_prefix_text(report["prefix"]) if "prefix" in report else "")


def _prefix_text(report: dict[str, Any]) -> str:
    parts, forms = ("encoder", "mixer", "head"), ("streaming", "prefix")
    rows = [(f"{part}, million MACs", *(f"{report[form]['macs'][part] / 1e6:.1f}" for form in forms)) for part in parts]
    rows.append(("seconds", *(f"{report[form]['seconds']:.3f}" for form in forms)))
    ratios = [f"{report['ratio'][name]:.2f}" for name in (*parts, "seconds")]
    said = f"\n\nwithout carried state the same bits in all {report['observations']} observations, at this cost:\n"
    body = [(*row, ratio) for row, ratio in zip(rows, ratios, strict=True)]
    return said + table(body, ("", "streaming", "prefix form", "ratio"))


def verify_arguments(parser: argparse.ArgumentParser) -> None:
    bundle_argument(parser)
    data_arguments(parser)
    parser.add_argument("--checkpoint", type=Path, metavar="model.pt", help="the trained module joins the comparison")
    parser.add_argument("--limit", type=whole(1), default=8, metavar="N", help="real clouds to take (default 8)")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of the random heads (default 0)")
    parser.add_argument("--no-lava", action="store_true", help="leave the Lava simulator out")


def verify(args: argparse.Namespace) -> Outcome:
    """Golden vectors, random heads and real clouds through every engine; exit code 1 on any difference."""
    one_thread(None)
    import dataclasses

    from asp_neuro import deployment, verification
    from asp_neuro.grouping import chunks_of

    deployed = deployment.open_bundle(_bundle(args))
    rule, _ = deployment.exit_rule(deployed, uncertified=True)
    chunks, ids = None, []
    try:
        clouds = deployment.clouds_of(deployed, args.data, "validation", args.up, args.limit)
        chunks, ids = chunks_of(clouds.points, deployed.bundle.chunking, clouds.names, cache=False), list(clouds.names)
    except MissingError as error:
        if args.data is not None:
            raise
        say(f"no real clouds: {str(error).splitlines()[0]}")
    found = verification.verify(
        deployed.bundle,
        chunks,
        ids,
        rule,
        args.checkpoint,
        args.seed,
        not args.no_lava,
    )
    report = {**dataclasses.asdict(found), "sha256": deployed.sha256}
    return Outcome(report, verification.text(found), exit_code=1 if found.mismatches else 0)


def check_arguments(parser: argparse.ArgumentParser) -> None:
    bundle_argument(parser)
    parser.add_argument("--hw", default="loihi2", metavar="NAME", help="a hardware description (default loihi2)")


def check(args: argparse.Namespace) -> Outcome:
    """Design rules and an estimate of the cores needed; exit code 1 when a rule is broken."""
    one_thread(None)
    from asp_neuro import deployment, hardware

    deployed = deployment.open_bundle(_bundle(args))
    golden = deployed.bundle.golden
    hw = hardware.load(args.hw)
    fit = hardware.check(deployed.bundle.head, deployed.bundle.host, hw, golden.membranes, golden.spikes)
    return Outcome(fit.as_dict(), fit.text(), exit_code=0 if fit.fits else 1)


def energy_arguments(parser: argparse.ArgumentParser) -> None:
    bundle_argument(parser)
    data_arguments(parser)
    sample_arguments(parser)
    exit_arguments(parser)
    parser.add_argument("--prices", default="prices", metavar="FILE", help="another price table than the shipped one")
    parser.add_argument("--plot", type=picture_file, metavar="FILE.png", help="draw energy and phase boundary")


def energy(args: argparse.Namespace) -> Outcome:
    """What an answer costs, by operations counted on the model and firing rates measured on its data. An estimate."""
    one_thread(None)
    from asp_neuro import deployment, hardware, plots
    from asp_neuro.energy import Estimate

    prices = hardware.prices(args.prices)
    deployed = deployment.open_bundle(_bundle(args))
    rule, sentence = deployment.exit_rule(deployed, args.no_exit, args.threshold, args.uncertified)
    say(sentence)
    try:
        clouds = deployment.clouds_of(deployed, args.data, args.split, args.up, args.limit)
        usage = deployment.usage(deployed, clouds, rule)
    except MissingError as error:
        if args.data is not None:
            raise
        usage = deployment.recorded_usage(deployed, rule, error)
        say(f"{str(error).splitlines()[0]}\nnothing is run: the firing rates stored in the bundle are used")
    b = deployed.bundle
    found = Estimate(b.host, b.head, b.chunking, usage, prices)
    report, text = {**found.as_dict(), "sha256": deployed.sha256}, found.text()
    if args.plot is not None:
        report["plot"] = str(plots.energy_curves(args.plot, found))
        text += f"\n\nplot: {report['plot']}"
    return Outcome(report, text)


def show(args: argparse.Namespace) -> Outcome:
    """What is inside a bundle."""
    from asp_neuro import bundle as bundles
    from asp_neuro import deployment

    deployed = deployment.open_bundle(_bundle(args))
    b = deployed.bundle
    report = {
        "path": str(deployed.path), "sha256": deployed.sha256, "classes": b.classes, "recipe": b.recipe,
        "record": b.record, "versions": b.versions, "licence": b.licence, "plan": b.plan, "certificate": b.certificate,
    }  # fmt: skip
    return Outcome(report, bundles.describe(b))


def models(args: argparse.Namespace) -> Outcome:
    """Bundles that come with the package."""
    from asp_neuro import bundle as bundles
    from asp_neuro import deployment

    rows = []
    for name in bundles.shipped():
        b = deployment.open_bundle(name).bundle
        measured = b.record.get("deployment", {})
        right = _share(measured.get("deploy_accuracy")) if measured.get("unseen", True) else "trained on"
        rows.append((name, len(b.classes), b.chunking.n_chunks, right, b.licence or "-"))
    header = ("name", "classes", "chunks", "validation accuracy", "licence of the data")
    keys = ("name", "classes", "chunks", "validation_accuracy", "licence")
    return Outcome({"models": [dict(zip(keys, row)) for row in rows]}, table(rows, header) if rows else "none shipped")


def seed_list(text: str) -> tuple[int, ...]:
    """An argument type: whole numbers with commas between them, none twice."""
    seeds = tuple(whole(0)(word.strip()) for word in text.split(","))
    if len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"'{text}' names a seed twice")
    return seeds


def study(args: argparse.Namespace) -> Outcome:
    """Without a part there is nothing to do."""
    raise UsageError(f"what to study: {' or '.join(part.name for part in STUDIES)}? (see: asp-neuro study --help)")


def read_arguments(parser: argparse.ArgumentParser) -> None:
    """What every study reads."""
    parser.add_argument("models", nargs="*", metavar="MODEL", help="checkpoints of one recipe, or a shipped name")
    data_arguments(parser)
    sample_arguments(parser)


def order_arguments(parser: argparse.ArgumentParser) -> None:
    read_arguments(parser)
    parser.add_argument("--recipe", metavar="NAME|FILE", help="without MODEL: what to train (default compact)")
    parser.add_argument("--seeds", type=seed_list, metavar="N,N,..", help="without MODEL: default 0,1,2")
    parser.add_argument("--epochs", type=whole(1), metavar="N", help="another number of epochs than the recipe's")
    parser.add_argument("--ablations", action="store_true", help="also train policies that see less (J.3, J.11, J.13)")
    parser.add_argument("--float", action="store_true", help="the head in floating point, not as it is exported")
    parser.add_argument("--average", action="store_true", help="answers from the mean of the logits so far")
    parser.add_argument(
        "--out", type=Path, default=Path("study-order"), metavar="DIR", help="models and results; default ./study-order"
    )


def order(args: argparse.Namespace) -> Outcome:
    """Learned, random, farthest-point and oracle order on the same weights."""
    one_thread(None)
    wanted = {"recipe": args.recipe, "seeds": args.seeds, "epochs": args.epochs, "ablations": args.ablations or None}
    given = {name: value for name, value in wanted.items() if value is not None}
    if args.models and given:
        raise UsageError(f"--{next(iter(given))} is for training; with checkpoints given there is none")
    from asp_neuro import study

    report = study.order(
        args.models, data=args.data, up=args.up, split=args.split, limit=args.limit, out=args.out,
        floating=args.float, average=args.average, **given,
    )  # fmt: skip
    return Outcome(report, study.order_text(report))


def robustness_arguments(parser: argparse.ArgumentParser) -> None:
    read_arguments(parser)
    parser.add_argument("--draws", type=whole(1), default=3, metavar="N", help="of every corruption (default 3)")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of the corruptions (default 0)")
    parser.add_argument(
        "--out", type=Path, default=Path("study-robustness"), metavar="DIR", help="default ./study-robustness"
    )


def robustness(args: argparse.Namespace) -> Outcome:
    """Learned against fixed order on clouds with fewer points, turned, jittered."""
    one_thread(None)
    from asp_neuro import study

    report = study.robustness(
        args.models or ["compact"], draws=args.draws, seed=args.seed, data=args.data, up=args.up, split=args.split,
        limit=args.limit, out=args.out,
    )  # fmt: skip
    return Outcome(report, study.robustness_text(report))


def doctor_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="leave out the self-test of the Lava simulator")


def doctor(args: argparse.Namespace) -> Outcome:
    """What is installed, what is missing, and the next step for each; exit code 1 when a needed thing is not there."""
    from asp_neuro.doctor import examine

    items = examine(args.quick)
    text = table([(item.status, item.name, item.hint) for item in items], headers=("status", "item", "what it says"))
    healthy = all(item.status == "ok" for item in items if item.needed)
    return Outcome({"items": items}, text, exit_code=0 if healthy else 1)


def demo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("demo-out"), metavar="DIR", help="default ./demo-out")
    parser.add_argument("--epochs", type=whole(1), metavar="N", help="fewer epochs, for a quick look")
    parser.add_argument("--limit", type=whole(1), default=60, metavar="N", help="clouds on the simulator (default 60)")


def demo(args: argparse.Namespace) -> Outcome:
    """The main job on built-in data, as the commands that a user would type."""
    import time

    args.out.mkdir(parents=True, exist_ok=True)
    checkpoint, bundle = str(args.out / "model.pt"), str(args.out / "model.net")
    shorter = () if args.epochs is None else ("--epochs", str(args.epochs))
    story = (
        ("train", "--out", checkpoint, *shorter),
        ("export", checkpoint, "--out", bundle),
        ("run", bundle, "--backend=fast"),
        ("run", bundle, "--backend=sim", "--limit", str(args.limit)),
        ("verify", bundle, "--checkpoint", checkpoint, "--limit", "6"),
    )
    steps: list[dict[str, Any]] = []
    code = 0
    for words in story:
        say(f"\n$ asp-neuro {' '.join(words)}")
        began = time.perf_counter()
        found = call(*words)
        seconds = time.perf_counter() - began
        say(found.text)
        steps.append({"command": " ".join(words), "seconds": seconds, "report": found.report})
        code = max(code, found.exit_code)
    rows = [(step["command"], f"{step['seconds']:.1f}", _in_short(step["report"])) for step in steps]
    text = table(rows, ("asp-neuro", "seconds", "result"))
    return Outcome({"steps": steps, "seconds": sum(step["seconds"] for step in steps)}, text, exit_code=code)


def call(*words: str) -> Outcome:
    """One verb, as if typed."""
    verb = next(verb for verb in VERBS if verb.name == words[0])
    parser = argparse.ArgumentParser(prog=f"asp-neuro {verb.name}", allow_abbrev=False)
    verb.add_arguments(parser)
    return verb.run(parser.parse_args(words[1:]))


def _in_short(report: dict[str, Any]) -> str:
    if "mismatches" in report:
        return f"{report['mismatches']} differences in {sum(report['compared'].values()):,} comparisons"
    if "mean_observations" in report:
        right, seen = 100.0 * report["accuracy"], report["mean_observations"]
        return f"{right:.1f} % right after {seen:.1f} of {report['budget']} chunks, on {report['n']} test clouds"
    if "certificate" in report:
        found = report["certificate"]
        certified = f"certified at margin {found['threshold']:.3f}" if found and found["certified"] else "not certified"
        return f"{100.0 * report['deploy_accuracy']:.1f} % on validation as integers, {certified}"
    return f"{100.0 * report['accuracy_at']['M']:.1f} % on validation, {report['parameters']:,} parameters"


STUDIES: tuple[Verb, ...] = (
    Verb("order", "what the order of looking is worth", "asp-neuro study order compact", order_arguments, order),
    Verb(
        "robustness", "what corrupted clouds cost, for learned and fixed order", "asp-neuro study robustness compact",
        robustness_arguments, robustness,
    ),
)  # fmt: skip

VERBS: tuple[Verb, ...] = (
    Verb("train", "train a model from a recipe", "asp-neuro train --recipe compact", train_arguments, train),
    Verb("export", "write a trained model as a bundle", "asp-neuro export model.pt", export_arguments, export),
    Verb("certify", "find and store the certified exit", "asp-neuro certify model.net", certify_arguments, certify),
    Verb("run", "answer for a data set or one cloud", "asp-neuro run --backend=sim --limit 5", run_arguments, run),
    Verb("verify", "compare every engine, bit for bit", "asp-neuro verify --limit 4", verify_arguments, verify),
    Verb("check", "design rules and fit on the chip", "asp-neuro check --hw loihi2", check_arguments, check),
    Verb("energy", "estimate what an answer costs", "asp-neuro energy compact", energy_arguments, energy),
    Verb("show", "print what is inside a bundle", "asp-neuro show model.net", bundle_argument, show),
    Verb("models", "list the bundles that are shipped", "asp-neuro models", no_arguments, models),
    Verb("study", "compare ways to look, on models of your own", STUDIES[0].example, no_arguments, study, STUDIES),
    Verb("demo", "train, export, certify, run and verify on built-in data", "asp-neuro demo", demo_arguments, demo),
    Verb("doctor", "say what is installed and what is missing", "asp-neuro doctor --json", doctor_arguments, doctor),
)
