"""The card of a model of parts: what it reaches on the test split, and what is promised of points."""

from __future__ import annotations

from typing import Any

import numpy as np

from asp_neuro.data.iou import instance_ious
from asp_neuro.runtime import deployment, hardware, parts
from asp_neuro.runtime.part_samples import PartSamples, samples_of
from asp_neuro.studies import part_order

LIMITS = (
    "No Loihi 2 chip has run it: the fit is an estimate.",
    "Upright clouds only (`--up` names the axis), turned by 10 degrees at most: ShapeNetPart stores them aligned.",
    "One object a cloud, without background, of one of 16 categories; another object gets one of them all the same.",
    "The promises are about shapes like those of the calibration split, and about shapes, not about single points.",
    "Parts have numbers, not words: the data name none.",
)


def results(name: str, data: str | None) -> tuple[dict[str, str], str]:
    """Rows of the table, and the tables below it; reads the test split."""
    deployed = deployment.open_bundle(name)
    samples = samples_of(deployed, data, "test", None)
    whole = full_budget(deployed, samples)
    rule, accept, _ = parts.rules_of(deployed)
    early, _ = parts.run(deployed, samples, rule, accept)
    compared = part_order.compared(deployed, samples)
    return assembled(deployed, whole, early, compared)


def full_budget(deployed: Any, samples: PartSamples) -> dict[str, Any]:
    """The report at full budget, with the standard error of its instance mIoU."""
    whole, answers = parts.run(deployed, samples, *parts.rules_of(deployed, no_exit=True)[:2])
    return {**whole, "error": _error(samples, answers)}


def assembled(
    deployed: Any, whole: dict[str, Any], early: dict[str, Any], compared: dict[str, Any]
) -> tuple[dict[str, str], str]:
    """The card of what was read."""
    found = parts.promise_of(deployed)
    assert found is not None
    each = early["wrong_shares_each"]
    above = sum(share > found.each.most for share in each) / max(1, len(each))
    b = deployed.bundle
    cores = hardware.check(b.head, b.model.mixer, hardware.chip("loihi2"), b.golden.membranes, b.golden.spikes)
    looks = f"{early['mean_observations']:.2f} of {early['budget']} chunks"
    rows = {
        "**test, full budget**": f"**{_percent(whole['instance_miou'], 2)}** instance mIoU, "
        f"{_percent(whole['class_miou'], 2)} class mIoU ({whole['n']} shapes, 2,048 points, category given); standard "
        f"error {_percent(whole['error'], 2)}",
        "without absent parts": f"{_percent(whole['instance_miou_skip_absent'], 2)} instance, "
        f"{_percent(whole['class_miou_skip_absent'], 2)} class mIoU",
        "**test, certified exit**": f"**{_percent(early['instance_miou'], 2)}** instance mIoU, "
        f"{_percent(early['class_miou'], 2)} class mIoU after {looks} "
        f"({_percent(early['mean_observations'] / early['budget'], 0)} of the budget)",
        "certified exits on test": f"{_percent(early['accepted_share'])} of the points accepted, "
        f"{_percent(early['wrong_among_accepted'])} of them wrong (mean over shapes)",
        "promise A": found.sentences[0],
        "promise B": found.sentences[1],
        "promise B on test": f"{_percent(early['accepted_each_share'])} of the points accepted, "
        f"{_percent(above)} of the shapes above {_percent(found.each.most, 0)} wrong",
        "spikes proven unmoved by rounding": f"{_percent(early['preserved_share'])} of the answers at the exit; "
        f"{_percent(early['proven_point_share'])} of the points proven",
        "fit on Loihi 2 (estimate)": f"{cores.cores} cores, {'fits' if cores.fits else 'does not fit'}",
    }
    return rows, "\n".join([*_categories(whole, early), "", *_orders(compared)])


def _error(samples: PartSamples, answers: Any) -> float:
    assert samples.parts is not None
    labels = np.stack([answer.labels for answer in answers])
    iou = instance_ious(labels, samples.parts, samples.labels, samples.catalogue)
    return float(iou.std(ddof=1) / np.sqrt(len(iou)))


def _percent(share: float | None, digits: int = 1) -> str:
    return "-" if share is None else f"{100.0 * share:.{digits}f} %"


def _categories(whole: dict[str, Any], early: dict[str, Any]) -> list[str]:
    names = list(whole["category_miou"])
    lines = ["mIoU in % by category, full budget and exit:", "", f"| | {' | '.join(names)} |"]
    lines.append("|---" * (len(names) + 1) + "|")
    for word, report in (("full budget", whole), ("exit", early)):
        cells = [f"{100.0 * report['category_miou'][n]:.1f}" for n in names]
        lines.append(f"| {word} | {' | '.join(cells)} |")
    return lines


def _orders(found: dict[str, Any]) -> list[str]:
    keys = list(found["rules"]["learned"]["miou_at"])
    lines = [
        f"Instance / class mIoU in % after k looks, {found['n']} test shapes, {found['points']} points of each:",
        "",
        f"| order | {' | '.join(f'k={k}' for k in keys)} |",
        "|---" * (len(keys) + 1) + "|",
    ]
    for rule, one in found["rules"].items():
        cells = [f"{100.0 * one['miou_at'][k]:.1f} / {100.0 * one['class_miou_at'][k]:.1f}" for k in keys]
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    lines += ["", "Learned minus rival, instance mIoU in points (paired standard error):", ""]
    for rule in part_order.RULES[1:]:
        own = [row for row in found["paired"] if row["rule"] == rule]
        told = [f"k={r['k']} {100.0 * r['difference']:+.2f} ({100.0 * r['standard_error']:.2f})" for r in own]
        lines.append(f"- {rule}: {', '.join(told)}")
    return lines
