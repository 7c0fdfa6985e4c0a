"""asp-neuro show, asp-neuro models"""

from __future__ import annotations

import argparse
from typing import Any

from asp_neuro.cli.verbs.base import Result, bundle_name, share
from asp_neuro.report import table


def show(args: argparse.Namespace) -> Result:
    """What is inside a bundle."""
    from asp_neuro import bundle as bundles
    from asp_neuro.runtime import deployment

    deployed = deployment.open_bundle(bundle_name(args))
    b = deployed.bundle
    report = {
        "path": str(deployed.path), "sha256": deployed.sha256, "classes": b.classes, "recipe": b.recipe,
        "record": b.record, "versions": b.versions, "licence": b.licence, "plan": b.plan, "certificate": b.certificate,
        "familiarity": b.familiarity,
    }  # fmt: skip
    return Result(report, bundles.describe(b))


def models(args: argparse.Namespace) -> Result:
    """Bundles that come with the package."""
    from asp_neuro import bundle as bundles
    from asp_neuro.runtime import deployment

    found = [about(name, deployment.open_bundle(name).bundle) for name in bundles.shipped()]
    header = ("name", "asked for", "classes", "looks", "on validation", "licence of the data")
    rows = [
        (
            model["name"], f"{model['scene']}, {model['task']}", model["classes"], model["chunks"], _told(model),
            model["licence"],
        )
        for model in found
    ]  # fmt: skip
    return Result({"models": found}, table(rows, header) if found else "none shipped")


def _told(model: dict[str, Any]) -> str:
    if model["trained_on_validation"]:
        return "none (trained on it)"
    miou = model["validation_instance_miou"]
    return f"{share(model['validation_accuracy'])} right" if miou is None else f"{share(miou)} mIoU"


def about(name: str, bundle: Any) -> dict[str, Any]:
    """A row of `models --json`: shares are 0..1, what is not known is null."""
    measured = bundle.record.get("deployment", {})
    unseen = measured.get("unseen", True)
    return {
        "name": name,
        "scene": bundle.model.scene.kind,
        "task": bundle.model.task.kind,
        "classes": len(bundle.classes),
        "chunks": bundle.model.budget,
        "validation_accuracy": measured.get("deploy_accuracy") if unseen else None,
        "validation_instance_miou": measured.get("instance_miou") if unseen else None,
        "trained_on_validation": not unseen,
        "licence": bundle.licence or None,
    }
