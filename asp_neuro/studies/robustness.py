"""How the learned order holds up on corrupted clouds, against a fixed one (J.5, J.8)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asp_neuro import files
from asp_neuro.certify import Recording
from asp_neuro.report import say, table
from asp_neuro.studies import plots
from asp_neuro.studies.comparison import Stop, difference, measure
from asp_neuro.studies.corruption import corrupt, corruptions
from asp_neuro.studies.results import gap, number, share, written
from asp_neuro.studies.subjects import clouds_of, cut, subjects

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
    clouds = clouds_of(origin, data, up, split, limit).relabelled(group[0].classes)
    files.make_folder(out)
    n_steps = origin.chunking.n_chunks
    rows = []
    for what in corruptions(origin.chunking.n_points):
        recordings: dict[str, list[Recording]] = {"learned": [], "fps_order": []}
        for draw in range(draws if what.kind != "none" else 1):
            say(f"{what.name}: draw {draw + 1}")
            changed = dataclasses.replace(clouds, points=corrupt(clouds.points, what, seed, draw))
            examples = cut(changed, origin.chunking, cache=False)
            for rule, records in recordings.items():
                records += [subject.read(examples, rule) for subject in group]
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
    }
    return written(out, "robustness", report, {"": rows}, plots.robustness_study)


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
    return "\n".join([*lines, table(body, ("corruption", *heads)), "", f"written: {', '.join(report['files'])}"])
