"""PartPromise: what a bundle of parts promises: its exit, fixed on validation, and promises A and B of `points`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from asp_neuro import plain
from asp_neuro.certify.points import (
    PointCertificate,
    PointPlan,
    ShapePromise,
    sentence_a,
    sentence_b,
)
from asp_neuro.errors import InputError
from asp_neuro.grid import ARITHMETIC


@dataclass(frozen=True)
class PartPromise:
    """`exit` None: the whole budget is read."""

    exit: float | None
    plan: PointPlan
    mean: PointCertificate
    each: ShapePromise
    mean_observations: float

    def __post_init__(self) -> None:
        if self.exit is not None and not 0.0 <= self.exit < 1.0:
            raise InputError(f"promise: exit {self.exit} is outside [0, 1), the range of a margin")
        if self.mean.plan_sha256 != self.plan.sha256:
            raise InputError("promise: the certificate belongs to another plan")

    def to_dict(self) -> dict[str, Any]:
        return {
            "exit": self.exit,
            "plan": self.plan.to_dict(),
            "mean": self.mean.to_dict(),
            "each": self.each.to_dict(),
            "mean_observations": self.mean_observations,
        }

    @classmethod
    def from_dict(cls, data: Any) -> PartPromise:
        names = ("exit", "plan", "mean", "each", "mean_observations")
        if not isinstance(data, dict) or set(data) != set(names):
            raise InputError(f"promise: expected the keys {', '.join(names)}")
        exit_at, looks = (plain.value(kind, data[name], "promise", InputError, name) for name, kind in
                          (("exit", float | None), ("mean_observations", float)))  # fmt: skip
        return cls(
            exit_at,
            PointPlan.from_dict(data["plan"]),
            PointCertificate.from_dict(data["mean"]),
            ShapePromise.from_dict(data["each"]),
            looks,
        )

    def why_void(self, model_sha256: str, name: str) -> str | None:
        """Why it does not hold for this model on this machine; None: it does."""
        if self.mean.model_sha256 != model_sha256:
            return f"it was made for another model; certify this one: asp-neuro certify {name}"
        if self.mean.arithmetic != ARITHMETIC:
            return f"it was made under another arithmetic; certify again: asp-neuro certify {name}"
        return None

    @property
    def sentences(self) -> list[str]:
        return [sentence_a(self.mean), sentence_b(self.each)]
