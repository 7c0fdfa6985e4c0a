"""A bundle of parts at work: labels for every point, mIoU, and its promises."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro import bundle as bundles
from asp_neuro.certify.part_promise import PartPromise
from asp_neuro.certify.points import PointRecording, certify_points, plan_points, promise_shapes
from asp_neuro.data import Intake
from asp_neuro.data.iou import class_mean, instance_ious
from asp_neuro.errors import InputError
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.points import NONE, PartAnswer, PointRule, answer_points
from asp_neuro.report import progress, say
from asp_neuro.runtime import deployment
from asp_neuro.runtime.deployment import Deployed
from asp_neuro.runtime.machine import BATCH, FAST, Machine
from asp_neuro.runtime.part_samples import PartSamples, samples_of

POINTS_AT_ONCE = 32  # clouds whose points are answered together
EXITS = 40  # thresholds that validation chooses the exit among
CHOSEN_BY = 160  # points of each validation cloud that the exit is chosen by
KEEPS = 0.005  # of mIoU that an exit may cost on validation


def promise_of(deployed: Deployed) -> PartPromise | None:
    stored = deployed.bundle.points
    return None if stored is None else PartPromise.from_dict(stored)


def rules_of(
    deployed: Deployed, no_exit: bool = False, threshold: float | None = None, uncertified: bool = False
) -> tuple[ExitRule, PointRule, str]:
    """When to stop, which points to accept, and a sentence about it."""
    if no_exit:
        return ExitRule(), PointRule(), "the whole budget is read, as asked: no point is accepted"
    if threshold is not None:
        return ExitRule(tau=threshold), PointRule(), f"exit at margin {threshold:g}, as asked: no point is accepted"
    found = promise_of(deployed)
    if found is None:
        return ExitRule(), PointRule(), "no promise in the bundle: the whole budget is read, no point is accepted"
    void = found.why_void(deployed.sha256, deployed.name)
    if void is not None:
        if not uncertified:
            raise InputError(f"the promise is void: {void}; or run with --uncertified, --threshold or --no-exit")
        return ExitRule(tau=found.exit), PointRule(), f"the promise is void ({void}): no point is accepted"
    each = None if found.each.holds_nothing else found.each.threshold
    return ExitRule(tau=found.exit), PointRule(found.mean.threshold, each), " ".join(found.sentences)


def label(deployed: Deployed, samples: PartSamples, answers: Sequence[Any], rule: PointRule) -> list[PartAnswer]:
    """The points of all clouds."""
    perceiver, scenes = deployed.perceiver, deployed.scenes(samples)
    told: list[PartAnswer] = []
    for start in progress(range(0, len(samples), POINTS_AT_ONCE), label="labelling"):
        some = slice(start, start + POINTS_AT_ONCE)
        asked = [samples.queries(i) for i in range(start, min(start + POINTS_AT_ONCE, len(samples)))]
        told += answer_points(perceiver.model, perceiver.stability, scenes[some], answers[some], asked, rule)
    return told


def run(
    deployed: Deployed,
    samples: PartSamples,
    rule: ExitRule,
    points: PointRule,
    machine: Machine = FAST,
    batch: int = BATCH,
    taken: Sequence[Intake] | None = None,
    on_line: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[dict[str, Any], list[PartAnswer]]:
    """Run a bundle over clouds and label all their points: the report of `asp-neuro run`, and the answers."""
    report, first = deployment.run(deployed, samples, rule, machine, batch, taken=taken)
    began = time.perf_counter()
    answers = label(deployed, samples, first, points)
    report |= {"seconds": report["seconds"] + time.perf_counter() - began, **measures(samples, answers)}
    for name, answer in zip(samples.names, answers, strict=True):
        if on_line is not None:
            on_line(answer.to_dict(name))
    return report, answers


def measures(samples: PartSamples, answers: Sequence[PartAnswer]) -> dict[str, Any]:
    """What is counted over points; mIoU where their parts are known."""
    there = [answer.labels != NONE for answer in answers]
    out: dict[str, Any] = {
        "accepted_share": mean_share([a.accepted[t] for a, t in zip(answers, there, strict=True)]),
        "accepted_each_share": mean_share([a.accepted_each[t] for a, t in zip(answers, there, strict=True)]),
        "proven_point_share": mean_share([a.proven[t] for a, t in zip(answers, there, strict=True)]),
    }
    if samples.parts is None:
        return {**out, **dict.fromkeys(("instance_miou", "class_miou", "instance_miou_skip_absent"))}
    labels = np.stack([answer.labels for answer in answers])
    iou = instance_ious(labels, samples.parts, samples.labels, samples.catalogue)
    present = instance_ious(labels, samples.parts, samples.labels, samples.catalogue, skip_absent=True)
    wrong = [wrong_share(a.labels != p, a.accepted) for a, p in zip(answers, samples.parts, strict=True)]
    each = [wrong_share(a.labels != p, a.accepted_each) for a, p in zip(answers, samples.parts, strict=True)]
    counted = [share for share in wrong if share is not None]
    promised = [share for share in each if share is not None]
    return {
        **out,
        "instance_miou": float(iou.mean()),
        "class_miou": class_mean(iou, samples.labels),
        "instance_miou_skip_absent": float(present.mean()),
        "class_miou_skip_absent": class_mean(present, samples.labels),
        "wrong_among_accepted": float(np.mean(counted)) if counted else None,
        "wrong_shares_each": promised,
        "category_miou": {
            name: float(iou[samples.labels == c].mean())
            for c, name in enumerate(samples.classes)
            if (samples.labels == c).any()
        },
    }


def mean_share(flags: Sequence[np.ndarray]) -> float:
    """Mean over clouds of the share of their points."""
    return float(np.mean([own.mean() if len(own) else 0.0 for own in flags]))


def wrong_share(wrong: np.ndarray, accepted: np.ndarray) -> float | None:
    """Of the accepted points; None: none is."""
    return float(wrong[accepted].mean()) if accepted.any() else None


def recording(samples: PartSamples, answers: Sequence[PartAnswer]) -> PointRecording:
    """Margins and errors of all points at the exit: what promises are made of."""
    assert samples.parts is not None
    margins, labels = (np.stack([getattr(a, name) for a in answers]) for name in ("point_margins", "labels"))
    return PointRecording(margins, labels != samples.parts, np.ones(margins.shape, dtype=bool))


def choose_exit(deployed: Deployed, validation: PartSamples) -> tuple[float | None, list[dict[str, float]]]:
    """The exit that costs the fewest looks and at most KEEPS of mIoU, by one pass at full budget over validation."""
    perceiver, scenes = deployed.perceiver, deployed.scenes(validation)
    margins, ious = full_budget(deployed, validation, perceiver, scenes, n_queries=CHOSEN_BY)
    budget = len(margins)
    full = float(ious[-1].mean())
    rows, best = [], None
    for tau in np.unique(np.quantile(margins[:-1], np.linspace(0.01, 0.999, EXITS))):
        crossed = margins > tau
        stop = np.where(crossed.any(axis=0), crossed.argmax(axis=0), budget - 1)
        own = ious[stop, np.arange(len(stop))]
        iou, ahead = float(own.mean()), own - at_fixed(ious, float(stop.mean() + 1.0))
        error = float(ahead.std() / np.sqrt(len(ahead)))
        rows.append({"tau": float(tau), "looks": float(stop.mean() + 1.0), "miou": iou,
                     "ahead": float(ahead.mean()), "error": error})  # fmt: skip
        if iou >= full - KEEPS and (best is None or rows[-1]["looks"] < best["looks"]):
            best = rows[-1]
    if best is not None:
        say(
            f"exit on validation: {best['looks']:.2f} looks on average, mIoU {100.0 * best['miou']:.2f} % "
            f"(full budget {100.0 * full:.2f} %); ahead of a fixed number of looks by {100.0 * best['ahead']:.2f} "
            f"(paired standard error {100.0 * best['error']:.2f})"
        )
    return (None if best is None else best["tau"]), rows


def at_fixed(ious: np.ndarray, looks: float) -> np.ndarray:
    """IoUs [T, n] -> [n] after a fixed number of looks; between two whole ones, a mixture of both."""
    low = int(looks)
    rest = looks - low
    return np.asarray((1.0 - rest) * ious[low - 1] + rest * ious[min(low, len(ious) - 1)])


def full_budget(
    deployed: Deployed, samples: PartSamples, perceiver: Any, scenes: Any, at: Sequence[int] | None = None,
    order: np.ndarray | None = None, n_queries: int | None = 512,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Margins [T, n] of the scenes and the IoUs [T, n] of their clouds after every look (or those in `at`, from 1)."""
    assert samples.parts is not None
    budget = deployed.bundle.model.budget
    ks = list(range(1, budget + 1)) if at is None else list(at)
    n, task, model = len(samples), perceiver.model.task, perceiver.model
    margins, ious = np.zeros((budget, n)), np.zeros((len(ks), n))
    for start in progress(range(0, n, POINTS_AT_ONCE), label="looking"):
        rows = np.arange(start, min(start + POINTS_AT_ONCE, n))
        own = None if order is None else order[rows]
        looks = perceiver.played(scenes[rows], ExitRule(), own).looks
        margins[:, rows] = np.stack([look.margin for look in looks])
        view, asked = model.encoder.view(scenes[rows]), [samples.queries(i)[: n_queries or None] for i in rows]
        for t, look in enumerate(looks, start=1):
            view.embed(np.arange(len(rows)), look.place)
            if t not in ks:
                continue
            labels = np.stack(
                [task.points(look.belief[i], view, i, asked[i], int(look.label[i])).argmax(axis=1)
                 for i in range(len(rows))]
            )  # fmt: skip
            truth = samples.parts[rows][:, : labels.shape[1]]
            ious[ks.index(t), rows] = instance_ious(labels, truth, samples.labels[rows], samples.catalogue)
    return margins, ious


def certify(
    deployed: Deployed,
    data: str | Path | None = None,
    up: str | None = None,
    alpha: float = 0.05,
    delta: float = 0.05,
    each_alpha: float = 0.1,
    most: float = 0.05,
    exit_threshold: float | None = None,
) -> PartPromise:
    """Exit and plan from validation, both promises from calibration, once. Nothing is stored here."""
    splits = {name: samples_of(deployed, data, name, up) for name in ("validation", "calibration")}
    shared = set(splits["validation"].hashes()) & set(splits["calibration"].hashes())
    if shared:
        raise InputError(f"{len(shared)} calibration clouds are validation clouds too: the promise would be void")
    return certify_on(deployed, splits, alpha, delta, each_alpha, most, exit_threshold)


def certify_on(
    deployed: Deployed, splits: dict[str, PartSamples], alpha: float = 0.05, delta: float = 0.05,
    each_alpha: float = 0.1, most: float = 0.05, exit_threshold: float | None = None,
) -> PartPromise:  # fmt: skip
    """The same on given splits."""
    tau = exit_threshold
    if tau is None:
        tau, _ = choose_exit(deployed, splits["validation"])
    told = {name: run(deployed, samples, ExitRule(tau=tau), PointRule()) for name, samples in splits.items()}
    seen = {name: recording(samples, told[name][1]) for name, samples in splits.items()}
    planned, n = splits["validation"].sha256(), seen["calibration"].n
    plan = plan_points(seen["validation"], alpha, delta, n, model_sha256=deployed.sha256, data_sha256=planned)
    own = splits["calibration"].sha256()
    mean = certify_points(seen["calibration"], plan, own)
    each = promise_shapes(seen["calibration"], each_alpha, most, deployed.sha256, own)
    return PartPromise(tau, plan, mean, each, told["calibration"][0]["mean_observations"])


def store(deployed: Deployed, found: PartPromise, place: Path | None = None) -> Deployed:
    """Write the promise into the bundle's file, or into a copy."""
    changed = replace(deployed.bundle, points=found.to_dict())
    place = place or deployed.path
    bundles.write(place, changed)
    return Deployed(place, changed, deployed.sha256)
