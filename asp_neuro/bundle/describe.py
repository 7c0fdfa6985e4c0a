"""What is inside a bundle, for people (`asp-neuro show`)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from asp_neuro.bundle.layout import model_sha256, settings_text
from asp_neuro.bundle.origin import read_origin
from asp_neuro.bundle.records import FORMAT, Bundle, printable
from asp_neuro.certify import Certificate, Plan, percent, promise, why_void
from asp_neuro.certify.part_promise import PartPromise
from asp_neuro.certify.used import marks_in
from asp_neuro.grid.sections import n_parameters
from asp_neuro.heads.bits import STATE_MAX
from asp_neuro.model.familiarity import Familiarity
from asp_neuro.report import about, table


def describe(bundle: Bundle) -> str:
    """Everything but the numbers themselves."""
    model, golden = bundle.model, bundle.golden.drives_int.shape
    sections = [(name, getattr(model, name)) for name in ("scene", "mixer", "policy", "task")]
    lines = [
        f"model      {model_sha256(bundle)}",
        f"format     {FORMAT}",
        f"classes    {len(bundle.classes)}: {', '.join(bundle.classes)}",
        f"budget     {model.budget} of {model.scene.n_places} places",
        *(_section_line(name, section) for name, section in sections),
        f"host       {model.n_host_parameters} parameters",
        f"golden     {golden[1]} runs of {golden[0]} observations",
        f"versions   {', '.join(f'{name} {version}' for name, version in bundle.versions.items())}",
        "",
        f"head, {model.head.form} form (golden: measured on the golden vectors)",
        _layer_table(bundle),
        "",
        _promise(bundle),
        _familiarity(bundle),
        *_origin_lines(bundle),
        *(["", f"licence    {bundle.licence}"] if bundle.licence else []),
        *_section_lines("recipe", bundle.recipe),
        *_section_lines("record", bundle.record),
    ]
    return printable("\n".join(lines), also="\n")


def _section_line(name: str, section: Any) -> str:
    kind = f"{section.kind}, " if hasattr(section, "kind") else ""
    values = {key: value for key, value in settings_text(section).items() if key != "classes"}
    words = ", ".join(f"{key} {_word(value)}" for key, value in _flat(values))
    return f"{name:<11}{kind}{n_parameters(section)} parameters{'; ' if words else ''}{words}"


def _flat(values: dict[str, Any]) -> list[tuple[str, Any]]:
    """Inner tables one level up."""
    return [
        pair for key, value in values.items() for pair in (value.items() if isinstance(value, dict) else [(key, value)])
    ]


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _layer_table(bundle: Bundle) -> str:
    headers = ("layer", "inputs", "neurons", "weights", "range", "state scale", "factor", "golden firing", "headroom")
    rows = []
    for number, layer in enumerate(bundle.head.layers):
        peak = int(np.abs(bundle.golden.membranes[:, number]).max())
        rows.append(
            (
                number + 1,
                layer.weight_int.shape[1],
                layer.n_neurons,
                layer.weight_int.size,
                f"{layer.weight_int.min()}..{layer.weight_int.max()}",
                f"2^{layer.state_bits}",
                f"{layer.factor.min():.3g}..{layer.factor.max():.3g}",
                f"{100 * bundle.golden.spikes[:, number].mean():.1f}%",
                f"{STATE_MAX / peak:.1f}x" if peak else "-",
            )
        )
    return table(rows, headers)


def _promise(bundle: Bundle) -> str:
    if bundle.points is not None:
        found = PartPromise.from_dict(bundle.points)
        void = found.why_void(model_sha256(bundle), "FILE")
        return f"promise: void, {void}" if void else "promise: " + "\n         ".join(found.sentences)
    if bundle.certificate is None:
        return "certificate: none" + (" (a plan is stored)" if bundle.plan is not None else "")
    certificate = Certificate.from_dict(bundle.certificate)
    known = None if bundle.familiarity is None else Familiarity.from_dict(bundle.familiarity)
    plan = Plan.from_dict(bundle.plan)
    void = why_void(certificate, plan, model_sha256(bundle), known=known)
    left_out = f" Not covered, though asked for: {'; '.join(plan.dropped)}." if plan.dropped else ""
    return f"certificate: void, {void}" if void else f"certificate: {_said(bundle, promise(certificate))}{left_out}"


def _familiarity(bundle: Bundle) -> str:
    """What the model knows, or that it calls no cloud unfamiliar."""
    if bundle.familiarity is None:
        return _said(bundle, "familiarity: none, no cloud is called unfamiliar (asp-neuro certify adds it)")
    known = Familiarity.from_dict(bundle.familiarity)
    watched = f"; watched: {', '.join(known.odd)}" if known.odd else ""
    return _said(
        bundle,
        f"familiarity: {len(known.statistics)} statistics, {len(known.owners)} prototypes of {known.n_reference} known"
        f" clouds ({', '.join(known.known)}); limits from {known.n} others, so that at most {percent(known.level)} of"
        f" clouds like these are called unfamiliar{watched}; {known.sha256[:12]}",
    )


def _said(bundle: Bundle, text: str) -> str:
    """In words of the model's kind of scene."""
    return about(bundle.model.scene.kind, text)


def _origin_lines(bundle: Bundle) -> list[str]:
    """Own data, and the levels at which calibration clouds were used."""
    origin = read_origin(bundle.origin)
    lines = (
        [f"trained on {origin.own.text} ({origin.own.n_train} {origin.own.kind}s)"] if origin.own is not None else []
    )
    for used in origin.used:
        levels = ", ".join(level.text for level in used.levels)
        lines.append(_said(bundle, f"{len(marks_in(used.clouds))} calibration clouds were used at {levels}"))
    return lines


def _section_lines(title: str, values: dict[str, Any]) -> list[str]:
    """A nested table as `key = value` lines, values in JSON (so that nothing unprintable is printed)."""
    lines = [f"  {key} = {json.dumps(value)}" for key, value in values.items() if not isinstance(value, dict)]
    for key, value in values.items():
        if isinstance(value, dict):
            inner = ", ".join(f"{json.dumps(k)[1:-1]} = {json.dumps(v)}" for k, v in value.items())
            lines.append(f"  {json.dumps(key)[1:-1]}: {inner}")
    return ["", title, *lines] if lines else []
