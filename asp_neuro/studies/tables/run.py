"""The tables as commands: read or train, tabulate, and write table, CSV, picture and report into a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from asp_neuro import files
from asp_neuro.report import table as aligned
from asp_neuro.studies.results import written
from asp_neuro.studies.tables import agreement, calibration, classes, exits, variants
from asp_neuro.studies.tables.reading import Reading, Table, Where, read

if TYPE_CHECKING:
    from asp_neuro.learn.recipe import Recipe

OUT = Path("study")  # of all of them, so that what one has trained the others find


class Asked(NamedTuple):
    """What a training study was asked for."""

    recipe: str | Recipe = "compact"
    seeds: Sequence[int] = (0, 1, 2)
    epochs: int | None = None
    chunks: Sequence[int] = tuple(variants.BUDGETS)  # of `budget`


class Reader(NamedTuple):
    """A table of given models."""

    title: str
    make: Callable[[Sequence[Reading]], Table]
    draw: Callable[[Path, dict[str, Any]], Path]


READERS = {
    "exits": Reader("when it stops (J.6)", exits.table, exits.picture),
    "calibration": Reader("probabilities at the exit (J.7)", calibration.table, calibration.picture),
    "classes": Reader("class by class (J.9)", classes.table, classes.picture),
    "seeds": Reader("agreement of trainings (J.2)", agreement.table, agreement.picture),
}
TRAINERS = {
    "budget": "the number of chunks M (J.11)",
    "descriptors": "descriptors left out one by one, the backbone frozen (J.11)",
    "fixed": "learned against fixed order at equal capacity (J.4)",
}


def read_models(name: str, models: Sequence[str | Path], where: Where, out: Path = OUT) -> dict[str, Any]:
    """A table of READERS on models of one recipe."""
    title, make, draw = READERS[name]
    readings, clouds = read(models, where)
    about = {"models": [one.name for one in readings], "seeds": [one.seed for one in readings]}
    thresholds = sorted({one.stops.tau for one in readings})
    return _write(name, title, make(readings), {**about, "thresholds": thresholds}, where, len(clouds), out, draw)


def train_models(name: str, asked: Asked, where: Where, out: Path = OUT) -> dict[str, Any]:
    """A table of TRAINERS, or the agreement of trainings that are made first."""
    from asp_neuro.studies import trained
    from asp_neuro.studies.subjects import clouds_of

    recipe = trained.wanted(asked.recipe, asked.epochs, floating=False)
    clouds_of(trained.origin(recipe), where.data, where.up, where.split, where.limit)  # what is missing is told at once
    folder, seeds = files.make_folder(out), tuple(asked.seeds)

    def finished(changes: dict[str, dict[str, Any]], some: Sequence[int]) -> dict[str, list[Path]]:
        return trained.finished(trained.jobs(recipe, changes, some, folder), where.data, where.up)

    paths = {} if name == "budget" else finished({variants.FULL: {}}, seeds)
    if name == "seeds":
        return read_models(name, paths[variants.FULL], where, out)
    ways, at = variants.FIXED_WAYS, [1, 2, 4]
    if name == "budget":
        ways, at = variants.budget_ways(recipe.chunking.n_chunks, asked.chunks), []
        paths = finished(variants.budget_changes(recipe.chunking.n_chunks, asked.chunks), seeds)
    elif name == "fixed":
        paths |= finished({variants.FIXED: variants.FIXED_ORDER}, seeds)
    else:
        ways = variants.DESCRIPTOR_WAYS
        for seed, start in zip(seeds, paths[variants.FULL], strict=True):
            for variant, (path,) in finished(variants.policy_changes(start), [seed]).items():
                paths.setdefault(variant, []).append(path)
    return _compared(name, ways, paths, at, where, out, {"recipe": recipe.name, "seeds": list(seeds)})


def _compared(
    name: str, ways: Sequence[variants.Way], paths: dict[str, list[Path]], at: Sequence[int], where: Where, out: Path,
    about: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    readings: dict[tuple[str, str], list[Reading]] = {}
    n = 0
    for way in ways:
        if (way.variant, way.order) not in readings:
            found: list[Reading] = []
            for path in paths[way.variant]:  # one by one: policies that start from other files differ in that too
                group, clouds = read([path], where, way.order)
                found, n = [*found, *group], len(clouds)
            readings[way.variant, way.order] = found
    table = variants.table(ways, readings, at)
    about["thresholds"] = sorted({one.stops.tau for group in readings.values() for one in group})
    return _write(name, TRAINERS[name], table, about, where, n, out, variants.picture)


def _write(
    name: str, title: str, table: Table, about: dict[str, Any], where: Where, n: int, out: Path,
    draw: Callable[[Path, dict[str, Any]], Path],
) -> dict[str, Any]:  # fmt: skip
    more = {suffix.lstrip("_"): rows for suffix, rows in table.more.items()}
    report = {
        "study": name, "title": title, **about, **asdict(where), "n": n, "rows": table.rows, "said": table.said, **more,
        **table.numbers,
    }  # fmt: skip
    return written(files.make_folder(out), name, report, {"": table.rows, **table.more}, draw)


def text(report: dict[str, Any]) -> str:
    """For people."""
    heads = [key for key in report["rows"][0] if any(row[key] is not None for row in report["rows"])]
    body = [[_cell(row[key]) for key in heads] for row in report["rows"]]
    of = ", ".join(map(str, report["seeds"]))
    taus = ", ".join(f"{tau:.4g}" for tau in report["thresholds"])
    lines = [
        f"{report['title']}: {report['n']} scenes of the {report['split']} split, seeds {of}; exit at margin {taus}",
        aligned(body, tuple(heads)),
        *report["said"],
    ]
    return "\n".join([*lines, "", f"written: {', '.join(report['files'])}"])


def _cell(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value
