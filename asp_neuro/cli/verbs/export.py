"""asp-neuro export"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from asp_neuro import plain
from asp_neuro.cli.verbs.base import Result, data_arguments, familiarity_arguments, level_arguments, out_file
from asp_neuro.cli.verbs.certify import chosen, cover_lines, demand_class, levels_report, promises, size_advice
from asp_neuro.errors import AspError, CheckFailed, UsageError
from asp_neuro.report import about, say


def export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", nargs="?", type=Path, default=Path("model.pt"), help="default ./model.pt")
    parser.add_argument("--out", type=out_file, default="model.net", metavar="FILE", help="default ./model.net")
    parser.add_argument("--hw", default="loihi2", metavar="NAME", help="hardware to check the fit for")
    parser.add_argument("--steps", type=int, metavar="N", help="time steps an observation, of the stock form")
    parser.add_argument("--nir", type=out_file, metavar="FILE", help="also write the head as a NIR file")
    parser.add_argument("--no-certificate", action="store_true", help="leave out the last step, the certificate")
    data_arguments(parser)
    level_arguments(parser)
    familiarity_arguments(parser)


def export(args: argparse.Namespace) -> Result:
    """Copy the integer network that training ended on into a bundle, measure it, certify it."""
    from asp_neuro.libraries import demand

    if args.nir is not None:  # said before the work, not after it
        demand("nir", "--nir")
    from asp_neuro import bundle as bundles
    from asp_neuro.learn import exporter as export
    from asp_neuro.model.points import is_dense
    from asp_neuro.runtime import deployment, hardware

    _demand_checkpoint(args.checkpoint)
    hw = hardware.chip(args.hw)
    made = export.export(args.checkpoint, args.data, args.up, args.steps)
    if is_dense(made.bundle.model):
        demand_class({"--cover": args.cover, "--patience": args.patience, "several --alpha": len(args.alpha) > 1})
    deployment.check_patience(args.patience, made.bundle.model.budget)
    fit = hardware.check(made.bundle.head, made.bundle.model.mixer, hw)
    if not fit.fits:
        raise CheckFailed(f"this head does not fit {args.hw}; nothing was written.\n{fit.text()}")
    replaced = ", in place of the file that was there" if args.out.exists() else ""
    made = replace(made, bundle=carried(made.bundle, args.out))
    bundles.write(args.out, made.bundle)
    if args.nir is not None:
        from asp_neuro.runtime import nir_file

        nir_file.write(args.nir, made.bundle.head, bundles.model_sha256(made.bundle))
    lines = [f"{args.out}: written, {args.out.stat().st_size / 1024.0:.0f} KB{replaced}", made.text]
    deployed = deployment.open_bundle(args.out)
    certificate = None
    if made.deploy_accuracy is not None and not args.no_certificate:
        certificate, told = _certify(deployed, args)
        lines += told
    report = {
        "out": str(args.out),
        "sha256": deployed.sha256,
        "layers": [
            {"neurons": layer.n_neurons, "inputs": layer.weight_int.shape[1], "state_bits": layer.state_bits}
            for layer in made.bundle.head.layers
        ],
        "float_accuracy": made.float_accuracy,
        "deploy_accuracy": made.deploy_accuracy,
        "form": made.bundle.head.form,
        "steps": made.bundle.head.steps,
        "agreement": None if made.agreement is None else made.agreement._asdict(),
        "certificate": certificate,
    }
    own = deployed.origin.own
    if own is not None:
        report["data"] = {"path": own.path, "up": own.up}
        lines.append(f"remembered: data {own.text}; later commands take them")
    return Result(report, "\n".join([*lines, f"next: asp-neuro run {args.out}"]))


def carried(bundle: Any, place: Path) -> Any:
    """With what a file that is replaced knows of the same model: calibration clouds that were used, its certificate."""
    from asp_neuro import bundle as bundles
    from asp_neuro.bundle.origin import read_origin

    try:
        before = bundles.read(place)
    except AspError:  # nothing there, or something else
        return bundle
    if bundles.model_sha256(before) != bundles.model_sha256(bundle):
        return bundle
    origin = replace(read_origin(bundle.origin), used=read_origin(before.origin).used)
    kept = {name: getattr(before, name) for name in ("familiarity", "plan", "certificate", "points")}
    return replace(bundle, origin=plain.of(origin) or None, **kept)


def _demand_checkpoint(path: Path) -> None:
    """Refuse the name of a shipped bundle, which reads like the name of its checkpoint."""
    from asp_neuro.bundle import shipped

    if not path.exists() and str(path) in shipped():
        raise UsageError(
            f"'{path}' is a shipped bundle, exported already (asp-neuro run {path}); "
            f"its checkpoint is train/checkpoints/{path}.pt of the repository"
        )


def _certify(deployed: Any, args: argparse.Namespace) -> tuple[dict[str, Any] | None, list[str]]:
    """The last step of export: a certificate, or a warning; the bundle is usable either way."""
    from asp_neuro.model.points import is_dense
    from asp_neuro.runtime import deployment

    if is_dense(deployed.bundle.model):
        return _certify_parts(deployed, args)
    try:
        tried = deployment.certify_all(
            deployed,
            args.data,
            args.up,
            args.alpha,
            args.delta,
            None,
            args.unfamiliar or None,
            args.cover,
            args.patience,
        )
    except AspError as error:
        say(f"warning: no new certificate: {error}")
        if deployed.bundle.certificate is not None:
            return None, ["the certificate that was there is kept"]
        return None, ["no certificate; `asp-neuro run` will read the whole budget"]
    made = chosen(tried)
    deployment.store(deployed, made, tried=tried)
    report = levels_report(tried)
    lines = [*size_advice(made), *cover_lines(report, made.plan, made.familiarity)]
    return report, [about(deployed.bundle.model.scene.kind, line) for line in [*lines, *promises(tried)]]


def _certify_parts(deployed: Any, args: argparse.Namespace) -> tuple[dict[str, Any] | None, list[str]]:
    """The same for points."""
    from asp_neuro.cli.verbs.certify import parts_report
    from asp_neuro.runtime import parts

    try:
        found = parts.certify(deployed, args.data, args.up, args.alpha[0], args.delta)
    except AspError as error:
        say(f"warning: no promise: {error}")
        return None, ["no promise; `asp-neuro run` will read the whole budget and accept no point"]
    parts.store(deployed, found)
    return parts_report(found), found.sentences
