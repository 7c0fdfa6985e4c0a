"""What a report shows: objects with their looks, accuracy, exits, promise, robustness, audits, energy, fit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np

from asp_neuro.certify import Certificate
from asp_neuro.certify.part_promise import PartPromise
from asp_neuro.errors import InputError, MissingError
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.look import Look
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.model.rules import fps_orders, image_orders, random_orders
from asp_neuro.runtime import deployment, hardware, parts
from asp_neuro.runtime.deployment import Deployed
from asp_neuro.runtime.energy import Estimate
from asp_neuro.scenes.image_encoder import ImageSpec
from asp_neuro.studies import robustness
from asp_neuro.studies.audits.record import Exits, Record, exits, record
from asp_neuro.studies.page.pictures import SCENES, TASKS, many_targets
from asp_neuro.studies.subjects import subjects
from asp_neuro.tasks.parts import Parts, PartsSpec

EACH = 4  # objects of each kind
AT_HAND = 12  # objects whose classes nobody knows
GOOD = 0.8  # what counts as right where the loss is a share
ROBUST = 200  # clouds that are corrupted


@dataclass(frozen=True)
class Subject:
    """Which clouds, and the words of the command line that chose them and the exit."""

    split: str
    source: str
    n: int
    options: str = ""
    exit_options: str = ""
    at_hand: bool = False  # clouds of `run`, not a whole report


def placeless(source: str, split: str) -> str:
    """What was read, without the folders of the machine that it was read on: a page is made to be passed on."""
    what, found, rest = source.partition(f", {split} split")
    return (
        re.sub(r"(\(\w+\)) in .*", r"\1", PurePath(what).name if PurePath(what).is_absolute() else what) + found + rest
    )


@dataclass(frozen=True, eq=False)
class Contents:
    """All that the page is made of; what a kind cannot have is None."""

    name: str
    sha256: str
    classes: tuple[str, ...]
    scene: str
    task: str
    budget: int
    about: Subject
    exit: str  # a sentence
    rule: ExitRule
    objects: list[dict[str, Any]]
    certificate: Certificate | None
    energy: Estimate | None
    fit: hardware.FitReport
    record: Record | None = None  # None: nobody knows the classes
    stops: Exits | None = None
    measure: str = "right"  # what the score is
    rivals: dict[str, Record] = field(default_factory=dict)  # the same clouds in other orders
    audit: dict[str, Any] | None = None
    robust: list[dict[str, Any]] = field(default_factory=list)
    points: PartPromise | None = None  # of a task that labels points

    @property
    def thing(self) -> str:
        """What it looks at, in a word."""
        return self.scene if self.scene in SCENES else "scene"


def stops_of(margins: np.ndarray, rule: ExitRule) -> Exits:
    """Where the rule stops each scene, margins [T, n]; without a threshold at the budget's end."""
    if rule.tau is not None:
        return exits(margins, rule.tau, rule.patience)
    n_steps, n = margins[: rule.patience].shape
    return Exits(1.0, np.full(n, n_steps - 1), np.zeros(n, dtype=bool))


def picked(seen: Record, stops: Exits, each: int = EACH) -> list[tuple[int, str]]:
    """Rows and why they are shown: a few right, of different classes; a few wrong; a few that spent the budget."""
    right = stops.at(seen.score) >= GOOD
    kinds = (("right", right & stops.crossed), ("wrong", ~right), ("budget spent", ~stops.crossed & right))
    chosen: list[tuple[int, str]] = []
    for why, which in kinds:
        rows = np.flatnonzero(which)
        truth = seen.truth[rows] if seen.truth.ndim == 1 else rows
        _, first = np.unique(truth, return_index=True)  # a class each, then whatever is left
        in_turn = [*rows[np.sort(first)], *np.delete(rows, first)]
        chosen += [(int(row), why) for row in in_turn[:each]]
    return chosen


def shown(
    perceiver: Perceiver, scenes: Any, names: tuple[str, ...], truth: np.ndarray, chosen: list[tuple[int, str]],
    rule: ExitRule,
) -> list[dict[str, Any]]:  # fmt: skip
    """Objects at full budget, in plain values for the page."""
    if not chosen:
        return []
    batch = scenes[np.array([row for row, _ in chosen])]
    looks = perceiver.played(batch, ExitRule()).looks
    margins = np.stack([look.margin for look in looks])
    stops, kind = stops_of(margins, rule), perceiver.spec.scene.kind
    found, points = [], labels_of_points(perceiver, batch, looks)
    for at, (row, why) in enumerate(chosen):
        place = np.array([look.place[at] for look in looks])
        each = points[:, at] if points is not None else None  # [T, P]
        draw = SCENES.get(kind)
        found.append({
            "name": names[row],
            "why": why,
            "truth": None if each is not None or np.ndim(truth[row]) or truth[row] < 0 else int(truth[row]),
            "stop": int(stops.step[at]) + 1,
            "crossed": bool(stops.crossed[at]),
            "order": place.tolist(),
            "margins": np.round(margins[:, at], 4).tolist(),
            "shares": np.round(beliefs(perceiver, looks, at, each), 4).tolist(),
            "picture": None if draw is None else draw(perceiver.spec.scene, batch, at, place, each),
        })  # fmt: skip
    return found


def beliefs(perceiver: Perceiver, looks: list[Look], at: int, each: np.ndarray | None) -> np.ndarray:
    """[T, C] a bar per class and look: probabilities, or the share of the targets that get each label."""
    if each is not None:
        return many_targets(each, len(bar_names(perceiver)))
    labels = np.stack([np.asarray(look.label[at]) for look in looks])
    shares = np.stack([perceiver.model.task.shares(look.logits[at : at + 1])[0] for look in looks])
    own = TASKS.get(perceiver.spec.task.kind)
    if own is not None:
        return own(labels, shares)
    return many_targets(labels, shares.shape[-1]) if labels.ndim > 1 else shares


def bar_names(perceiver: Perceiver) -> tuple[str, ...]:
    """What the bars are called."""
    task = perceiver.spec.task
    return task.part_names() if isinstance(task, PartsSpec) else perceiver.classes


def labels_of_points(perceiver: Perceiver, batch: Any, looks: list[Look]) -> np.ndarray | None:
    """[T, n, P] a label for every point of the clouds after each look, for a task that has one (`parts`)."""
    task = perceiver.model.task
    if not isinstance(task, Parts):
        return None
    view, everyone, told = perceiver.model.encoder.view(batch), np.arange(len(batch)), []
    for look in looks:
        view.embed(everyone, look.place)
        told.append([
            task.points(look.belief[i], view, i, batch.points[i], int(look.label[i])).argmax(axis=1) for i in everyone
        ])  # fmt: skip
    return np.array(told)


def gather(
    deployed: Deployed, samples: Any, about: Subject, rule: ExitRule, sentence: str,
    audit: dict[str, Any] | None = None, robust: bool = False, ends: Sequence[str] | None = None,
) -> Contents:  # fmt: skip
    """Play the scenes at full budget, and count what they cost. `ends`: what is said of each scene's stop."""
    if len(samples.names) == 0:
        raise InputError(f"{samples.source}: a report needs at least one cloud")
    scenes, perceiver = deployed.scenes(samples), deployed.perceiver
    truth = np.asarray(samples.labels)
    more: dict[str, Any] = {"audit": audit}
    if (truth.reshape(len(truth), -1) < 0).all(axis=1).any():
        chosen = [(row, "at hand") for row in range(min(AT_HAND, len(truth)))]
    else:
        seen, rivals = played(deployed, samples, scenes)
        more |= {"record": seen, "stops": stops_of(seen.margins, rule), "rivals": rivals}
        more["measure"] = "mean IoU" if isinstance(perceiver.spec.task, PartsSpec) else "right"
        chosen = picked(seen, more["stops"])
    if robust:
        more["robust"] = _robust(deployed, samples)
    names = tuple(PurePath(name).name if about.at_hand else name for name in samples.names)
    if isinstance(perceiver.spec.task, PartsSpec):
        more["points"] = parts.promise_of(deployed)
        names = tuple(_called(samples.classes, c, n) for c, n in zip(truth.tolist(), names, strict=True))
    objects = shown(perceiver, scenes, names, truth, chosen, rule)
    if more.get("measure") == "mean IoU":
        for (row, _), one in zip(chosen, objects, strict=True):
            one["ious"] = np.round(more["record"].score[:, row], 3).tolist()
    for (row, _), one in zip(chosen, objects, strict=True):
        one["end"] = None if ends is None else ends[row]
    bundle = deployed.bundle
    fit = hardware.check(
        bundle.head, bundle.model.mixer, hardware.chip("loihi2"), bundle.golden.membranes, bundle.golden.spikes
    )
    return Contents(
        deployed.name, deployed.sha256, bar_names(perceiver), bundle.model.scene.kind, bundle.model.task.kind,
        perceiver.budget, about, sentence, rule, objects, deployed.certificate, _energy(deployed, samples, rule), fit,
        **more,
    )  # fmt: skip


def _called(classes: tuple[str, ...], category: int, name: str) -> str:
    """A shape of a known category: its first letters tell it from others."""
    return name if category < 0 else f"{classes[category]} {PurePath(name).name[:8]}"


def played(deployed: Deployed, samples: Any, scenes: Any) -> tuple[Record, dict[str, Record]]:
    """The record in the learned order, and in others."""
    perceiver, truth = deployed.perceiver, np.asarray(samples.labels)
    budget, orders = perceiver.budget, rival_orders(perceiver, scenes, len(truth))
    if isinstance(perceiver.spec.task, PartsSpec):
        return _parts(deployed, samples, scenes, None), {
            name: _parts(deployed, samples, scenes, order[:, :budget]) for name, order in orders.items()
        }
    return record(perceiver, scenes, truth, label="looking"), {
        name: record(perceiver, scenes, truth, order[:, :budget], name) for name, order in orders.items()
    }


def rival_orders(perceiver: Perceiver, scenes: Any, n: int) -> dict[str, np.ndarray]:
    """[n, M] each: what a learned order is compared with, for this kind of scene."""
    scene = perceiver.spec.scene
    orders = {"random order": random_orders(n, scene.n_places, 0)}
    if isinstance(scene, ImageSpec):
        for rule, words in (("centre_out", "from the centre out"), ("brightest", "brightest first")):
            order = image_orders(rule, scenes, scene.gaze, 0)
            assert order is not None
            orders[words] = order
    else:
        words = "farthest-point order" if scene.kind == "cloud" else "as numbered"
        orders[words] = fps_orders(n, scene.n_places)
    return orders


def _parts(deployed: Deployed, samples: Any, scenes: Any, order: np.ndarray | None) -> Record:
    """Margins and IoUs after every look: what a page asks of a record."""
    margins, ious = parts.full_budget(deployed, samples, deployed.perceiver, scenes, order=order)
    none = np.zeros((*margins.shape, 0))
    return Record(samples.labels, margins.astype(int), None, none, none, none, pooled=margins, lost=1.0 - ious)


def _energy(deployed: Deployed, samples: Any, rule: ExitRule) -> Estimate | None:
    try:
        return Estimate(deployed.bundle.model, deployment.usage(deployed, samples, rule), hardware.prices())
    except (InputError, MissingError):
        return None


def _robust(deployed: Deployed, samples: Any) -> list[dict[str, Any]]:
    """What the certificate makes of corrupted clouds, or how right they are without one; of clouds only."""
    some = samples.subset(np.arange(min(ROBUST, len(samples.names))))
    rows, promises = robustness.measured(subjects([deployed.name]), some, 1, 0)
    whole = [
        {"corruption": r["corruption"], "accuracy": r["learned"]} for r in rows if r["k"] == deployed.perceiver.budget
    ]
    return promises or whole
