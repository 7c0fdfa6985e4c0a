"""What the order of looking is worth (Table 2, S10, S11, J.3, J.11, J.13).

The study reads every model at full budget with the head as it is exported, and leaves report, tables and a picture in
its folder. A bundle is read in numpy alone. Without models it trains what it needs into that folder (torch): a model
that lies there already is used again, a training that was stopped goes on where it was, so a killed study is started
again with the same command.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asp_neuro import files
from asp_neuro.certify import Recording
from asp_neuro.model.rules import TRUTH
from asp_neuro.report import say, table
from asp_neuro.studies import plots
from asp_neuro.studies.comparison import THRESHOLDS, Stop, budgets, difference, headroom, measure
from asp_neuro.studies.results import gap, number, numbers, share, written
from asp_neuro.studies.subjects import clouds_of, cut, subjects

if TYPE_CHECKING:
    from asp_neuro.learn.recipe import Recipe

FULL = "full"  # the policy with everything to see; others are ablations (`trained.ABLATIONS`)
CALIBRATED = 0.30  # the threshold that the paper quotes


def run(
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
    if models:
        groups = {FULL: subjects(models, floating)}
        origin = groups[FULL][0].origin
        clouds = clouds_of(origin, data, up, split, limit)
        files.make_folder(out)
    else:
        from asp_neuro.studies import trained

        how = trained.wanted(recipe, epochs, floating)
        origin = trained.origin(how)
        clouds = clouds_of(origin, data, up, split, limit)  # before any training: what is missing is told at once
        paths = trained.trained(how, seeds, files.make_folder(out), data, up, ablations)
        groups = {policy: subjects(group, floating) for policy, group in paths.items()}
    examples = cut(clouds.relabelled(groups[FULL][0].classes), origin.scene)
    ways: dict[tuple[str, str], list[Recording]] = {}
    for policy, group in groups.items():
        for rule in examples.rules(origin.scene) if policy == FULL else ("learned",):
            say(f"reading {len(group)} model(s): {policy} policy, {rule}")
            ways[policy, rule] = [subject.read(examples, rule, average) for subject in group]
    report = {
        "recipe": origin.name,
        "epochs": origin.epochs,
        "seeds": [subject.origin.seed for subject in groups[FULL]],
        "models": [subject.name for subject in groups[FULL]],
        "split": split,
        "n": len(clouds),
        "budget": origin.scene.budget,
        "head": "float" if floating else "integer",
        **compared(ways),
    }
    return written(out, "order", report, {"": _cells(report), "_differences": report["paired"]}, plots.order_study)


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
            **numbers(difference(learned, recordings, stop)),
        }
        for (policy, rule), recordings in ways.items()
        for stop in stops
        if (policy, rule) != (FULL, "learned")
    ]
    return {
        "rules": {rule: _described(recordings) for (policy, rule), recordings in ways.items() if policy == FULL},
        "headroom_captured": captured,
        "paired": paired,  # the full learned policy minus the named one
        "ablations": {policy: _described(recordings) for (policy, _), recordings in ways.items() if policy != FULL},
    }


def _described(recordings: Sequence[Recording]) -> dict[str, Any]:
    n_steps = len(recordings[0].margins)
    curve = [measure(recordings, Stop(k)) for k in range(1, n_steps + 1)]
    keys = {("M" if k == n_steps else str(k)): curve[k - 1] for k in budgets(n_steps)}
    return {
        "accuracy_at": {key: measured.accuracy for key, measured in keys.items()},
        "spread_at": {key: number(measured.spread) for key, measured in keys.items()},
        "sweep": [{"threshold": tau, **numbers(measure(recordings, Stop(tau=tau)))} for tau in THRESHOLDS],
        "curve": [measured.accuracy for measured in curve],
        "curve_spread": [number(measured.spread) for measured in curve],
    }


def _cells(report: dict[str, Any]) -> list[dict[str, Any]]:
    """A row per policy, rule and stop: everything that the tables show."""
    ways = [(FULL, rule, described) for rule, described in report["rules"].items()]
    ways += [(policy, "learned", described) for policy, described in report["ablations"].items()]
    rows: list[dict[str, Any]] = []
    for policy, rule, described in ways:
        way = {"policy": policy, "rule": rule}
        for key, accuracy in described["accuracy_at"].items():
            k = report["budget"] if key == "M" else int(key)
            seen = {"observations": k, "observations_spread": None}
            rows.append(
                {**way, "k": k, "threshold": None, "accuracy": accuracy, "spread": described["spread_at"][key], **seen}
            )
        rows += [{**way, "k": None, **step} for step in described["sweep"]]
    return rows


def text(report: dict[str, Any]) -> str:
    """Table 2, S10 and S11, the paired differences and the ablations, for people."""
    rules, ablations = report["rules"], report["ablations"]
    keys, what = list(rules["learned"]["accuracy_at"]), "images" if "centre_out" in rules else "clouds"
    heads = [f"k={report['budget'] if key == 'M' else key}" for key in keys]
    of = f"{len(report['seeds'])} model(s), seeds {', '.join(map(str, report['seeds']))}, {report['head']} head"
    rows = [[rule, *(share(f["accuracy_at"][k], f["spread_at"][k]) for k in keys)] for rule, f in rules.items()]
    lines = [f"accuracy in % on the {report['split']} split, {report['n']} {what}, recipe '{report['recipe']}', {of}"]
    lines += [table(rows, ("rule", *heads)), "", "exit at a margin: observations on average / accuracy in %"]
    rows = [
        [f"{tau:.2f}", *(f"{f['sweep'][i]['observations']:.2f} / {_sweep(f, i)}" for f in rules.values())]
        for i, tau in enumerate(THRESHOLDS)
    ]
    lines += [
        table(rows, ("margin", *rules)),
        "",
        f"learned minus rival in points (standard error, paired over {what})",
    ]
    rivals = [rule for rule in rules if rule != "learned" and rule not in TRUTH]
    names = [*heads, *(f"margin {tau:.2f}" for tau in THRESHOLDS)]
    gaps = [[gap(row) for row in report["paired"] if (row["policy"], row["rule"]) == (FULL, r)] for r in rivals]
    lines += [table(zip(names, *gaps), ("at", *rivals)), ""]
    for where, value in zip(("k=1", f"margin {CALIBRATED:.2f}"), report["headroom_captured"].values()):
        said = "the oracle leaves none" if value is None else f"{100.0 * value:.0f} %"
        lines.append(f"of the oracle-over-random headroom at {where} the learned policy captures: {said}")
    if ablations:
        lines += ["", "the learned rule with less to see, and what the full policy is ahead (paired standard error)"]
        at = [i for i, name in enumerate(names) if name in (*heads, f"margin {CALIBRATED:.2f}")]
        rows = [[FULL, *_ablated(rules["learned"], keys)]]
        for policy, described in ablations.items():
            ahead = [gap(row) for row in report["paired"] if row["policy"] == policy]
            rows.append([policy, *(f"{a}, {ahead[i]}" for a, i in zip(_ablated(described, keys), at))])
        lines.append(table(rows, ("policy", *(names[i] for i in at))))
    return "\n".join([*lines, "", f"written: {', '.join(report['files'])}"])


def _ablated(described: dict[str, Any], keys: list[str]) -> list[str]:
    at_margin = described["sweep"][THRESHOLDS.index(CALIBRATED)]["accuracy"]
    return [*(share(described["accuracy_at"][key]) for key in keys), share(at_margin)]


def _sweep(described: dict[str, Any], place: int) -> str:
    return share(described["sweep"][place]["accuracy"], described["sweep"][place]["spread"])
