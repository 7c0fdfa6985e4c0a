"""How the learned order holds up on corrupted clouds, against a fixed one (J.5, J.8)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asp_neuro import files
from asp_neuro.certify import Recording
from asp_neuro.data import CloudSet
from asp_neuro.report import say, table
from asp_neuro.scenes.conditions import changed, conditions
from asp_neuro.studies import plots
from asp_neuro.studies.comparison import Stop, difference, measure
from asp_neuro.studies.results import gap, number, share, written
from asp_neuro.studies.subjects import Promised, Subject, clouds_of, cut, joined, subjects

ROBUST_AT = (1, 4)  # and the whole budget


def run(
    models: Sequence[str | Path] = ("compact",),
    *,
    draws: int = 3,
    seed: int = 0,
    data: str | None = None,
    up: str | None = None,
    split: str = "test",
    limit: int | None = None,
    out: Path = Path("study-robustness"),
) -> dict[str, Any]:
    """The learned and the fixed (farthest-point) order on corrupted clouds, the same ones for both; writes into `out`.

    Every corruption is drawn `draws` times, clean clouds are read once; differences are means over models and draws.
    """
    group = subjects(models)
    origin = group[0].origin
    n_steps = origin.chunking.n_chunks
    clouds = clouds_of(origin, data, up, split, limit).relabelled(group[0].classes)
    files.make_folder(out)
    rows, promises = measured(group, clouds, draws, seed)
    report = {
        "recipe": origin.name,
        "seeds": [subject.origin.seed for subject in group],
        "models": [subject.name for subject in group],
        "split": split,
        "n": len(clouds),
        "budget": n_steps,
        "draws": draws,
        "seed": seed,
        "corruptions": rows,
        "promises": promises,
    }
    tables = {"": rows, "-promises": promises} if promises else {"": rows}
    return written(out, "robustness", report, tables, plots.robustness_study)


def measured(
    group: Sequence[Subject], clouds: CloudSet, draws: int, seed: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of accuracy per condition and budget, and what the certificates make of each condition."""
    how = group[0].origin.chunking
    n_steps = how.n_chunks
    rows: list[dict[str, Any]] = []
    promises: list[dict[str, Any]] = []
    for what in conditions(how.n_points):
        recordings: dict[str, list[Recording]] = {"learned": [], "fps_order": []}
        kept: list[Promised] = []
        for draw in range(draws if what.kind != "none" else 1):
            say(f"{what.name}: draw {draw + 1}")
            other = dataclasses.replace(clouds, points=changed(clouds.points, what, seed, draw))
            examples = cut(other, how, cache=False)
            for rule, records in recordings.items():
                records += [subject.read(examples, rule) for subject in group]
            kept += [found for subject in group if (found := subject.promised(examples)) is not None]
        if kept:
            accuracy = measure(recordings["learned"], Stop(n_steps)).accuracy
            promises.append({"corruption": what.name, "accuracy": accuracy, **joined(kept).shares()})
        for k in sorted({k for k in ROBUST_AT if k < n_steps} | {n_steps}):
            learned, fixed = (measure(records, Stop(k)) for records in recordings.values())
            ahead = difference(recordings["learned"], recordings["fps_order"], Stop(k))
            rows.append(
                {
                    "corruption": what.name,
                    "k": k,
                    "learned": learned.accuracy,
                    "learned_spread": number(learned.spread),
                    "fixed": fixed.accuracy,
                    "fixed_spread": number(fixed.spread),
                    "difference": ahead.difference,
                    "standard_error": number(ahead.standard_error),
                }
            )
    return rows, promises


def text(report: dict[str, Any]) -> str:
    """J.5 and J.8, for people: a line per corruption."""
    of = f"{len(report['seeds'])} model(s), {report['draws']} draw(s)"
    lines = [f"accuracy in % on the {report['split']} split, {report['n']} clouds, recipe '{report['recipe']}', {of}"]
    lines.append("learned / fixed (farthest-point) order, learned minus fixed in points (paired standard error)")
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in report["corruptions"]:
        by_name.setdefault(row["corruption"], []).append(row)
    body = [
        [name, *(f"{share(row['learned'])} / {share(row['fixed'])}, {gap(row)}" for row in rows)]
        for name, rows in by_name.items()
    ]
    heads = [f"k={row['k']}" for row in by_name["clean"]]
    lines.append(table(body, ("corruption", *heads)))
    if report["promises"]:
        lines += ["", "what the certificate makes of them, in % (clouds short of points count like others)"]
        lines.append(_promise_table(report["promises"]))
    return "\n".join([*lines, "", f"written: {', '.join(report['files'])}"])


def _promise_table(promises: list[dict[str, Any]]) -> str:
    keys = ("accuracy", "unfamiliar_share", "certified_share", "wrong_among_certified")
    body = [[row["corruption"], *("-" if row[key] is None else share(row[key]) for key in keys)] for row in promises]
    return table(body, ("corruption", "right at full budget", "unfamiliar", "certified", "wrong among certified"))
