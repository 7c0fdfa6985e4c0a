"""What a report shows: objects with their looks, accuracy, exits, promise, audits, energy, fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asp_neuro.certify import Certificate
from asp_neuro.data import CloudSet
from asp_neuro.errors import InputError
from asp_neuro.model.exit import ExitRule
from asp_neuro.runtime import deployment, hardware
from asp_neuro.runtime.deployment import Deployed
from asp_neuro.runtime.energy import Estimate
from asp_neuro.scenes.cloud import Chunks
from asp_neuro.studies.audits.record import Exits, Record, exits, record

EACH = 4  # objects of each kind
GRID = 1000  # coordinates of a page are whole numbers of so many steps a unit
MAX_POINTS = 2048


@dataclass(frozen=True, eq=False)
class Contents:
    """All that the page is made of."""

    name: str
    sha256: str
    classes: tuple[str, ...]
    split: str
    source: str
    options: str  # of the command line that chose these clouds
    exit_options: str  # and this exit
    exit: str  # a sentence
    rule: ExitRule
    record: Record
    stops: Exits
    objects: list[dict[str, Any]]
    certificate: Certificate | None
    audit: dict[str, Any] | None
    energy: Estimate
    fit: hardware.FitReport


def stops_of(seen: Record, rule: ExitRule) -> Exits:
    """Where the rule stops each scene; without a threshold at the budget's end."""
    if rule.tau is not None:
        return exits(seen.margins, rule.tau)
    return Exits(1.0, np.full(seen.n, seen.n_steps - 1), np.zeros(seen.n, dtype=bool))


def picked(seen: Record, stops: Exits, each: int = EACH) -> list[tuple[int, str]]:
    """Rows and why they are shown: a few right, of different classes; a few wrong; a few that spent the budget."""
    right = stops.at(seen.right)
    kinds = (("right", right & stops.crossed), ("wrong", ~right), ("budget spent", ~stops.crossed & right))
    chosen: list[tuple[int, str]] = []
    for why, which in kinds:
        rows = np.flatnonzero(which)
        _, first = np.unique(seen.truth[rows], return_index=True)  # a class each, then whatever is left
        in_turn = [*rows[np.sort(first)], *np.delete(rows, first)]
        chosen += [(int(row), why) for row in in_turn[:each]]
    return chosen


def seen_at(chunks: Chunks, row: int, place: np.ndarray) -> np.ndarray:
    """[P] the observation (1, 2, ...) that first sees each point; 0: none of these does."""
    mask = chunks[np.array([row])].mask()[0]  # [M, P]
    looked = mask[place]  # [T, P]
    return np.where(looked.any(axis=0), looked.argmax(axis=0) + 1, 0)


def shown(chunks: Chunks, seen: Record, stops: Exits, row: int, why: str, name: str) -> dict[str, Any]:
    """One object, in plain values for the page."""
    points = np.rint(chunks.coordinates()[row] * GRID).astype(int)
    at = seen_at(chunks, row, seen.place[:, row])
    _, first = np.unique(points, axis=0, return_index=True)  # unused rows repeat the first point
    keep = np.sort(first)
    keep = keep[:: max(1, -(-len(keep) // MAX_POINTS))]
    return {
        "name": name,
        "why": why,
        "truth": int(seen.truth[row]),
        "stop": int(stops.step[row]) + 1,
        "crossed": bool(stops.crossed[row]),
        "order": seen.place[:, row].tolist(),
        "points": points[keep].ravel().tolist(),
        "seen": at[keep].tolist(),
        "margins": np.round(seen.margins[:, row], 4).tolist(),
        "shares": np.round(seen.probabilities[:, row], 4).tolist(),
    }


def gather(
    deployed: Deployed, clouds: CloudSet, split: str, rule: ExitRule, sentence: str, audit: dict[str, Any] | None,
    options: str = "", exit_options: str = "",
) -> Contents:  # fmt: skip
    """Play the clouds at full budget, and count what they cost."""
    if len(clouds) == 0 or (clouds.labels < 0).any():
        raise InputError(f"{clouds.source}: a report needs clouds of known classes, at least one")
    scenes = deployed.scenes(clouds)
    seen = record(deployed.perceiver, scenes, clouds.labels, label="looking")
    stops = stops_of(seen, rule)
    objects = [shown(scenes, seen, stops, row, why, clouds.names[row]) for row, why in picked(seen, stops)]
    usage, bundle = deployment.usage(deployed, clouds, rule), deployed.bundle
    fit = hardware.check(
        bundle.head, bundle.model.mixer, hardware.chip("loihi2"), bundle.golden.membranes, bundle.golden.spikes
    )
    return Contents(
        deployed.name, deployed.sha256, bundle.classes, split, clouds.source, options, exit_options, sentence, rule,
        seen, stops, objects, deployed.certificate, audit, Estimate(bundle.model, usage, hardware.prices()), fit,
    )  # fmt: skip
