"""asp-neuro show, asp-neuro models"""

from __future__ import annotations

import argparse

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
    }  # fmt: skip
    return Result(report, bundles.describe(b))


def models(args: argparse.Namespace) -> Result:
    """Bundles that come with the package."""
    from asp_neuro import bundle as bundles
    from asp_neuro.runtime import deployment

    rows = []
    for name in bundles.shipped():
        b = deployment.open_bundle(name).bundle
        measured = b.record.get("deployment", {})
        right = share(measured.get("deploy_accuracy")) if measured.get("unseen", True) else "trained on"
        rows.append((name, len(b.classes), b.model.budget, right, b.licence or "-"))
    header = ("name", "classes", "chunks", "validation accuracy", "licence of the data")
    keys = ("name", "classes", "chunks", "validation_accuracy", "licence")
    return Result({"models": [dict(zip(keys, row)) for row in rows]}, table(rows, header) if rows else "none shipped")
