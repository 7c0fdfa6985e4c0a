"""A reading: a model's looks at the scenes of a split, at full budget, and where it stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from asp_neuro.model.perceiver import Perceiver
from asp_neuro.model.rules import fps_orders
from asp_neuro.studies.audits.record import Exits, Record, record
from asp_neuro.studies.audits.run import Audited, opened, samples_of
from asp_neuro.studies.comparison import spread
from asp_neuro.studies.subjects import demand_alike


@dataclass(frozen=True, eq=False)
class Reading:
    """One model on one split."""

    name: str
    seed: int
    perceiver: Perceiver
    scenes: Any
    seen: Record
    stops: Exits


@dataclass(frozen=True)
class Table:
    """What a study found: rows for a CSV file and for eyes, and a sentence for what stands beside them."""

    rows: list[dict[str, Any]]
    said: list[str] = field(default_factory=list)
    more: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # further CSV files, by suffix
    numbers: dict[str, Any] = field(default_factory=dict)  # further keys of the report


@dataclass(frozen=True)
class Where:
    """Which clouds are read, and the margin that stops; None: that of the certificate, or the paper's."""

    data: str | None = None
    up: str | None = None
    split: str = "test"
    limit: int | None = None
    threshold: float | None = None


def read(names: Sequence[str | Path], where: Where, order: str = "learned") -> tuple[list[Reading], Any]:
    """Models of one recipe with different seeds on the same scenes; `order` "fps_order": without their policy.

    Of parts the category is asked, as in an audit.
    """
    models = [opened(name, where.threshold) for name in names]
    demand_alike([(one.name, one.origin, one.perceiver.classes) for one in models])
    samples = samples_of(models[0], where.data, where.up, where.split, where.limit)
    scenes = models[0].perceiver.scenes(samples.inputs, samples.names, cache=True)
    return [_read(one, scenes, samples.labels, order) for one in models], samples


def _read(one: Audited, scenes: Any, truth: np.ndarray, order: str) -> Reading:
    perceiver, fixed = one.perceiver, None
    if order == "fps_order":
        fixed = fps_orders(len(truth), perceiver.spec.scene.n_places)[:, : perceiver.budget]
    seen = record(perceiver, scenes, truth, fixed, f"{one.name}, {order}")
    return Reading(one.name, one.origin.seed, perceiver, scenes, seen, one.stops(seen.margins))


def over(values: Sequence[float] | np.ndarray) -> tuple[float, float | None]:
    """Mean over models and its spread; None: there is one model."""
    found = np.asarray(values, dtype=np.float64)
    return float(found.mean()), spread(found) if len(found) > 1 else None
