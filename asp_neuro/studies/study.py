"""Studies of trained models: what the order of looking is worth (Table 2, S10, S11, J.3, J.11, J.13), and how it holds
up on corrupted clouds (J.5, J.8).

A study trains what it needs into its folder, reads every model at full budget with the head as it is exported, and
leaves report, tables and a picture there. A model that lies there already is used again, a training that was stopped
goes on where it was: a killed study is started again with the same words.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from asp_neuro import files
from asp_neuro.certify import Recording
from asp_neuro.data import CloudSet, load, locate
from asp_neuro.errors import ConfigError, InputError, UsageError
from asp_neuro.learn import checkpoint, training, workshop
from asp_neuro.learn import recipe as recipes
from asp_neuro.learn.evaluation import evaluate
from asp_neuro.learn.examples import examples_of
from asp_neuro.learn.model import Model
from asp_neuro.learn.policy import RULES
from asp_neuro.learn.recipe import Recipe
from asp_neuro.report import say, table, to_json
from asp_neuro.studies import plots
from asp_neuro.studies.comparison import THRESHOLDS, Stop, budgets, difference, headroom, measure
from asp_neuro.studies.corruption import corrupt, corruptions

FULL = "full"
ABLATIONS: dict[str, dict[str, Any]] = {  # what of the recipe's [model] each changes
    "geometry": {"scorer": "geometry"},  # W_u = 0 (J.3)
    "belief": {"scorer": "belief", "first_look": 0},  # W_g = 0 (J.11), and no other way to see geometry
    "additive": {"scorer": "additive"},  # both inputs, without their interaction (J.13)
    "no_mask": {"mask": False},  # a chunk may be taken again
}
ROBUST_AT = (1, 4)  # and the whole budget
CALIBRATED = 0.30  # the threshold that the paper quotes


@dataclass(frozen=True)
class Subject:
    """A trained model under study."""

    name: str
    model: Model
    recipe: Recipe
    classes: tuple[str, ...]


def subjects(names: Sequence[str | Path], floating: bool = False) -> list[Subject]:
    """Checkpoints (files, or names of shipped ones) of one recipe with different seeds, the head as it is exported."""
    found: list[Subject] = []
    for name in names:
        model, recipe, classes, _ = training.load_model(checkpoint.find(name))
        if not floating and not model.head.has_scales:
            raise InputError(f"'{name}': its head never ran on the integer grid, so there is nothing deployed to study")
        model.head.deploy = not floating
        for other in found:
            if other.recipe.seed == recipe.seed:
                raise UsageError(f"'{other.name}' and '{name}' have the same seed {recipe.seed}: give one of them")
            if dataclasses.replace(other.recipe, seed=recipe.seed) != recipe or other.classes != classes:
                raise UsageError(f"'{other.name}' and '{name}' differ in more than the seed: study them one by one")
        found.append(Subject(str(name), model, recipe, classes))
    return found


def clouds_of(recipe: Recipe, data: str | None, up: str | None, split: str, limit: int | None) -> CloudSet:
    """The clouds that the models are read on, all of a known class."""
    found = load(locate(recipe.data.name, data), split, n_points=recipe.chunking.n_points, up=up)
    found = found if limit is None else found.subset(np.arange(min(limit, len(found))))
    if len(found) == 0 or (found.labels < 0).any():
        raise InputError(f"{found.source}: a study needs clouds of known classes, at least one")
    if split == "train" or split in recipe.data.also:
        say(f"recipe '{recipe.name}' trains on the {split} split: what is read there says nothing about other clouds")
    if split == "test":
        say(f"this reads the test split ({len(found)} clouds of {found.source}); log it, with what for")
    return found


def trained(
    recipe: Recipe, seeds: Sequence[int], folder: Path, data: str | None, up: str | None, ablations: bool
) -> dict[str, list[Path]]:
    """policy -> a checkpoint per seed, trained where it is not there yet. Between the policies of a seed nothing but
    the ablated key of the recipe differs."""
    changes = {FULL: {}, **(ABLATIONS if ablations else {})}
    jobs: list[tuple[str, Recipe, Path]] = []
    for policy, change in changes.items():
        for seed in seeds:
            how = dataclasses.replace(recipe.changed(model=change), seed=seed)
            jobs.append((policy, how, folder / f"{policy}_e{how.train.epochs}_s{seed}.pt"))
    for _, how, path in jobs:
        for file in (path, _started(path)):
            if file.exists() and checkpoint.load(file)["recipe"] != how.as_dict():
                raise ConfigError(f"'{file}' belongs to another recipe; give this study another --out")
    for place, (_, how, path) in enumerate(jobs, start=1):
        if path.exists():
            say(f"model {place} of {len(jobs)}: {path} is there")
        else:
            say(f"model {place} of {len(jobs)}: {path}{', goes on' if _started(path).exists() else ''}")
            workshop.train(how, data=data, up=up, out=path, resume=True)
    return {policy: [path for name, _, path in jobs if name == policy] for policy in changes}


def _started(path: Path) -> Path:
    """Where `training.train` keeps the state of an unfinished training."""
    return path.with_name(path.name + ".resume")


def order(
    models: Sequence[str | Path] = (),
    *,
    recipe: str | Recipe = "compact",
    seeds: Sequence[int] = (0, 1, 2),
    epochs: int | None = None,
    ablations: bool = False,
    data: str | None = None,
    up: str | None = None,
    split: str = "test",
    limit: int | None = None,
    out: Path = Path("study-order"),
    floating: bool = False,
    average: bool = False,
) -> dict[str, Any]:
    """Every selection rule on the same weights, at fixed budgets and at margin thresholds; writes into `out`.

    With `models` it reads those, without it trains `recipe` once per seed. The random orders follow from the model's
    seed and the place of the cloud alone.
    """
    torch.set_num_threads(1)
    if models:
        how = subjects(models, floating)[0].recipe
    else:
        how = workshop.adjusted(recipes.load(recipe) if isinstance(recipe, str) else recipe, epochs, None)
        if not how.train.deploy_epochs and not floating:
            raise ConfigError(f"recipe '{how.name}': with train.deploy_epochs = 0 there is no integer head to study")
    clouds = clouds_of(how, data, up, split, limit)  # before any training: what is missing is told at once
    files.make_folder(out)
    paths = {FULL: models} if models else trained(how, seeds, out, data, up, ablations)
    groups = {policy: subjects(files, floating) for policy, files in paths.items()}
    examples = examples_of(clouds.relabelled(groups[FULL][0].classes), how.chunking)
    ways: dict[tuple[str, str], list[Recording]] = {}
    for policy, group in groups.items():
        for rule in RULES if policy == FULL else ("learned",):
            say(f"reading {len(group)} model(s): {policy} policy, {rule}")
            ways[policy, rule] = [evaluate(s.model, examples, rule, s.recipe.seed).recording(average) for s in group]
    report = {
        "recipe": how.name,
        "epochs": how.train.epochs,
        "seeds": [subject.recipe.seed for subject in groups[FULL]],
        "models": [subject.name for subject in groups[FULL]],
        "split": split,
        "n": len(clouds),
        "budget": how.chunking.n_chunks,
        "head": "float" if floating else "integer",
        **compared(ways),
    }
    return _written(out, "order", report, {"": _cells(report), "_differences": report["paired"]}, plots.order_study)


def compared(ways: dict[tuple[str, str], list[Recording]]) -> dict[str, Any]:
    """(policy, rule) -> a recording per model; returns what the report says about them."""
    learned = ways[FULL, "learned"]
    stops = [*(Stop(k) for k in budgets(len(learned[0].margins))), *(Stop(tau=tau) for tau in THRESHOLDS)]
    captured = {}
    for name, stop in (("k1", Stop(1)), (f"threshold_{CALIBRATED:.2f}", Stop(tau=CALIBRATED))):
        right = {rule: measure(ways[FULL, rule], stop).accuracy for rule in ("learned", "random", "oracle")}
        captured[name] = headroom(**right)
    paired = [
        {
            "policy": policy,
            "rule": rule,
            "k": stop.k or None,
            "threshold": stop.tau,
            **_numbers(difference(learned, found, stop)),
        }
        for (policy, rule), found in ways.items()
        for stop in stops
        if (policy, rule) != (FULL, "learned")
    ]
    return {
        "rules": {rule: _described(found) for (policy, rule), found in ways.items() if policy == FULL},
        "headroom_captured": captured,
        "paired": paired,  # the full learned policy minus the named one
        "ablations": {policy: _described(found) for (policy, _), found in ways.items() if policy != FULL},
    }


def _described(recordings: Sequence[Recording]) -> dict[str, Any]:
    n_steps = len(recordings[0].margins)
    curve = [measure(recordings, Stop(k)) for k in range(1, n_steps + 1)]
    keys = {("M" if k == n_steps else str(k)): curve[k - 1] for k in budgets(n_steps)}
    return {
        "accuracy_at": {key: found.accuracy for key, found in keys.items()},
        "spread_at": {key: _number(found.spread) for key, found in keys.items()},
        "sweep": [{"threshold": tau, **_numbers(measure(recordings, Stop(tau=tau)))} for tau in THRESHOLDS],
        "curve": [found.accuracy for found in curve],
        "curve_spread": [_number(found.spread) for found in curve],
    }


def _numbers(found: Any) -> dict[str, float | None]:
    return {name: _number(value) for name, value in vars(found).items()}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _cells(report: dict[str, Any]) -> list[dict[str, Any]]:
    """A row per policy, rule and stop: everything that the tables show."""
    ways = [(FULL, rule, found) for rule, found in report["rules"].items()]
    ways += [(policy, "learned", found) for policy, found in report["ablations"].items()]
    rows: list[dict[str, Any]] = []
    for policy, rule, found in ways:
        way = {"policy": policy, "rule": rule}
        for key, accuracy in found["accuracy_at"].items():
            k = report["budget"] if key == "M" else int(key)
            seen = {"observations": k, "observations_spread": None}
            rows.append(
                {**way, "k": k, "threshold": None, "accuracy": accuracy, "spread": found["spread_at"][key], **seen}
            )
        rows += [{**way, "k": None, **step} for step in found["sweep"]]
    return rows


def _written(
    out: Path,
    name: str,
    report: dict[str, Any],
    tables: dict[str, list[dict[str, Any]]],
    draw: Callable[[Path, dict[str, Any]], Path],
) -> dict[str, Any]:
    """The report with the names of the files that were written: CSV tables, a picture, the report itself."""
    written = []
    for suffix, rows in tables.items():
        path = out / f"{name}{suffix}.csv"
        lines = io.StringIO()
        writer = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        files.write_text(path, lines.getvalue())
        written.append(str(path))
    written += [str(draw(out / f"{name}.png", report)), str(out / f"{name}.json")]
    report = {**report, "files": written}
    files.write_text(out / f"{name}.json", to_json(report) + "\n")
    return report


def robustness(
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
    torch.set_num_threads(1)
    group = subjects(models)
    how = group[0].recipe
    clouds = clouds_of(how, data, up, split, limit).relabelled(group[0].classes)
    files.make_folder(out)
    n_steps = how.chunking.n_chunks
    rows = []
    for what in corruptions(how.chunking.n_points):
        found: dict[str, list[Recording]] = {"learned": [], "fps_order": []}
        for draw in range(draws if what.kind != "none" else 1):
            say(f"{what.name}: draw {draw + 1}")
            changed = dataclasses.replace(clouds, points=corrupt(clouds.points, what, seed, draw))
            examples = examples_of(changed, how.chunking, cache=False)
            for rule, records in found.items():
                records += [evaluate(s.model, examples, rule).recording() for s in group]
        for k in sorted({k for k in ROBUST_AT if k < n_steps} | {n_steps}):
            learned, fixed = (measure(records, Stop(k)) for records in found.values())
            gap = difference(found["learned"], found["fps_order"], Stop(k))
            rows.append(
                {
                    "corruption": what.name,
                    "k": k,
                    "learned": learned.accuracy,
                    "learned_spread": _number(learned.spread),
                    "fixed": fixed.accuracy,
                    "fixed_spread": _number(fixed.spread),
                    "difference": gap.difference,
                    "standard_error": _number(gap.standard_error),
                }
            )
    report = {
        "recipe": how.name,
        "seeds": [subject.recipe.seed for subject in group],
        "models": [subject.name for subject in group],
        "split": split,
        "n": len(clouds),
        "budget": n_steps,
        "draws": draws,
        "seed": seed,
        "corruptions": rows,
    }
    return _written(out, "robustness", report, {"": rows}, plots.robustness_study)


def robustness_text(report: dict[str, Any]) -> str:
    """J.5 and J.8, for people: a line per corruption."""
    of = f"{len(report['seeds'])} model(s), {report['draws']} draw(s)"
    lines = [f"accuracy in % on the {report['split']} split, {report['n']} clouds, recipe '{report['recipe']}', {of}"]
    lines.append("learned / fixed (farthest-point) order, learned minus fixed in points (paired standard error)")
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in report["corruptions"]:
        by_name.setdefault(row["corruption"], []).append(row)
    body = [
        [name, *(f"{_share(row['learned'])} / {_share(row['fixed'])}, {_gap(row)}" for row in rows)]
        for name, rows in by_name.items()
    ]
    heads = [f"k={row['k']}" for row in by_name["clean"]]
    return "\n".join([*lines, table(body, ("corruption", *heads)), "", f"written: {', '.join(report['files'])}"])


def order_text(report: dict[str, Any]) -> str:
    """Table 2, S10 and S11, the paired differences and the ablations, for people."""
    rules, ablations = report["rules"], report["ablations"]
    keys = list(rules["learned"]["accuracy_at"])
    heads = [f"k={report['budget'] if key == 'M' else key}" for key in keys]
    of = f"{len(report['seeds'])} model(s), seeds {', '.join(map(str, report['seeds']))}, {report['head']} head"
    rows = [[rule, *(_share(f["accuracy_at"][k], f["spread_at"][k]) for k in keys)] for rule, f in rules.items()]
    lines = [f"accuracy in % on the {report['split']} split, {report['n']} clouds, recipe '{report['recipe']}', {of}"]
    lines += [table(rows, ("rule", *heads)), "", "exit at a margin: observations on average / accuracy in %"]
    rows = [
        [f"{tau:.2f}", *(f"{f['sweep'][i]['observations']:.2f} / {_sweep(f, i)}" for f in rules.values())]
        for i, tau in enumerate(THRESHOLDS)
    ]
    lines += [table(rows, ("margin", *rules)), "", "learned minus rival in points (standard error, paired over clouds)"]
    rivals = [rule for rule in rules if rule not in ("learned", "oracle")]
    names = [*heads, *(f"margin {tau:.2f}" for tau in THRESHOLDS)]
    gaps = [[_gap(row) for row in report["paired"] if (row["policy"], row["rule"]) == (FULL, r)] for r in rivals]
    lines += [table(zip(names, *gaps), ("at", *rivals)), ""]
    for where, value in zip(("k=1", f"margin {CALIBRATED:.2f}"), report["headroom_captured"].values()):
        said = "the oracle leaves none" if value is None else f"{100.0 * value:.0f} %"
        lines.append(f"of the oracle-over-random headroom at {where} the learned policy captures: {said}")
    if ablations:
        lines += ["", "the learned rule with less to see, and what the full policy is ahead (paired standard error)"]
        at = [i for i, name in enumerate(names) if name in (*heads, f"margin {CALIBRATED:.2f}")]
        rows = [[FULL, *_ablated(rules["learned"], keys)]]
        for policy, found in ablations.items():
            ahead = [_gap(row) for row in report["paired"] if row["policy"] == policy]
            rows.append([policy, *(f"{a}, {ahead[i]}" for a, i in zip(_ablated(found, keys), at))])
        lines.append(table(rows, ("policy", *(names[i] for i in at))))
    return "\n".join([*lines, "", f"written: {', '.join(report['files'])}"])


def _ablated(found: dict[str, Any], keys: list[str]) -> list[str]:
    at_margin = found["sweep"][THRESHOLDS.index(CALIBRATED)]["accuracy"]
    return [*(_share(found["accuracy_at"][key]) for key in keys), _share(at_margin)]


def _sweep(found: dict[str, Any], place: int) -> str:
    return _share(found["sweep"][place]["accuracy"], found["sweep"][place]["spread"])


def _share(value: float, deviation: float | None = None) -> str:
    return f"{100.0 * value:.1f}" + ("" if deviation is None else f" ± {100.0 * deviation:.1f}")


def _gap(row: dict[str, Any]) -> str:
    error = row["standard_error"]
    return f"{100.0 * row['difference']:+.1f}" + ("" if error is None else f" ({100.0 * error:.1f})")
