"""What a study leaves: its report, CSV tables and a picture, and how its numbers are told."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asp_neuro import files
from asp_neuro.libraries import install, is_there
from asp_neuro.report import say, to_json


def numbers(record: Any) -> dict[str, float | None]:
    return {name: number(value) for name, value in vars(record).items()}


def number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def written(
    out: Path,
    name: str,
    report: dict[str, Any],
    tables: dict[str, list[dict[str, Any]]],
    draw: Callable[[Path, dict[str, Any]], Path],
) -> dict[str, Any]:
    """The report with the names of the files that were written: CSV tables, a picture, the report itself."""
    names = []
    for suffix, rows in tables.items():
        path = out / f"{name}{suffix}.csv"
        lines = io.StringIO()
        writer = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        files.write_text(path, lines.getvalue())
        names.append(str(path))
    if is_there("matplotlib"):
        names.append(str(draw(out / f"{name}.png", report)))
    else:
        say(f"no picture: matplotlib is not installed; {install('plots')}")
    names.append(str(out / f"{name}.json"))
    report = {**report, "files": names}
    files.write_text(out / f"{name}.json", to_json(report) + "\n")
    return report


def share(value: float, deviation: float | None = None) -> str:
    return f"{100.0 * value:.1f}" + ("" if deviation is None else f" ± {100.0 * deviation:.1f}")


def gap(row: dict[str, Any]) -> str:
    error = row["standard_error"]
    return f"{100.0 * row['difference']:+.1f}" + ("" if error is None else f" ({100.0 * error:.1f})")
