"""Does the promise hold on new clouds? Certify on a random half of a split, count wrong answers on the other half.

The model looks at every cloud once, at full budget. What each threshold of the plan makes of each cloud follows from
that, so a calibration on a half is a sum over its clouds:

    accepted [K, G, n]   crosses threshold g and is familiar there, under condition k (the first: as they are)
    counts of R halves = accepted @ halves [n, R];    the planned walk over [G, R] counts, all halves at once

Plan and familiarity stay those of the bundle, which come from other clouds. A count on the other half is an estimate of
the risk: where the risk is just below alpha, close to half of the counts exceed it by chance. So beside "held" (counted
at most alpha) there is "beyond chance": an excess that a risk of alpha would give in at most 5 % of the draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asp_neuro import files
from asp_neuro.certify import Certificate, Plan, Recording, Walk, binomial_cdf, paper_walk, percent, walk_all, why_void
from asp_neuro.certify.plan import limits_of
from asp_neuro.errors import InputError, UsageError
from asp_neuro.model.exit import NEVER, first_crossing
from asp_neuro.model.familiarity import Familiarity
from asp_neuro.model.points import is_dense
from asp_neuro.report import say
from asp_neuro.report import table as aligned
from asp_neuro.runtime import deployment, takes
from asp_neuro.runtime.deployment import Deployed
from asp_neuro.studies import plots
from asp_neuro.studies.results import share, written

REPEATS = 200
SELDOM = 0.05  # how often chance may call a count too large
NAME = "halves"
OURS, PAPERS, SHIPPED = "planned walk (ours)", "the paper's rule", "the bundle's own threshold"
RULES = (OURS, PAPERS, SHIPPED)


class Outcomes(NamedTuple):
    """What every threshold makes of every cloud, under each condition."""

    accepted: np.ndarray  # [K, G, n] bool
    wrong: np.ndarray  # [K, G, n] bool, of the accepted
    observations: np.ndarray  # [G, n] of clouds as they are
    budget: float  # observations where nothing is certified


def outcomes(recordings: Sequence[Recording], grid: Sequence[float], limits: Sequence[float] | None) -> Outcomes:
    """Of the same clouds as they are, and under further conditions; `limits`: of familiarity, at each threshold."""
    found = [[_outcome(one, tau, None if limits is None else limits[g]) for g, tau in enumerate(grid)]
             for one in recordings]  # fmt: skip
    accepted, wrong, seen = (np.array([[at[i] for at in one] for one in found]) for i in range(3))
    assert recordings[0].observations is not None
    return Outcomes(accepted, wrong, seen[0], float(recordings[0].observations.max()))


def _outcome(one: Recording, tau: float, limit: float | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[n] accepted, wrong and accepted, observations taken."""
    assert one.observations is not None
    steps, who = first_crossing(one.margins, tau), np.arange(one.n)
    accepted = steps != NEVER
    if limit is not None:
        assert one.strange is not None
        accepted = accepted & (one.strange[steps, who] <= limit)
    stop = np.where(steps == NEVER, len(one.margins) - 1, steps)
    return accepted, accepted & ~one.correct[stop, who], one.observations[stop, who]


def random_halves(n: int, repeats: int, seed: int) -> np.ndarray:
    """[R, n] bool: which clouds calibrate; the others are counted."""
    places = np.argsort(np.random.default_rng(seed).random((repeats, n)), axis=1)
    return np.asarray(np.argsort(places, axis=1) < n // 2)


class Counted(NamedTuple):
    """What came of R calibrations, on the halves that did not calibrate."""

    chosen: np.ndarray  # [R] index of the threshold in the plan's grid; -1: nothing was certified
    accepted: np.ndarray  # [K, R]
    wrong: np.ndarray  # [K, R]
    observations: np.ndarray  # [R] mean; the budget where nothing was certified


def recalibrated(found: Outcomes, made: Plan, halves: np.ndarray, rule: str, own: float | None = None) -> Counted:
    """Certify on each half, count on the other. `own` is the threshold of SHIPPED, which calibrates nothing."""
    if rule == SHIPPED:
        index = np.full(len(halves), -1 if own is None else made.grid.index(own))
    else:
        index = _loosest(_walked(found, made, halves, rule))
    others, each = ~halves, np.arange(len(halves))
    counts = [(values @ others.T.astype(np.int64))[:, index, each] for values in (found.accepted, found.wrong)]
    accepted, wrong = (np.where(index >= 0, count, 0) for count in counts)
    seen = (found.observations @ others.T)[index, each] / others.sum(axis=1)
    return Counted(index, accepted, wrong, np.where(index >= 0, seen, found.budget))


def _walked(found: Outcomes, made: Plan, halves: np.ndarray, rule: str) -> Walk:
    """The walk over every half at once, [G, R]."""
    accepted, wrong = (values @ halves.T.astype(np.int64) for values in (found.accepted, found.wrong))  # [K, G, R]
    if rule == PAPERS:
        return paper_walk(wrong[0], accepted[0], made)
    return walk_all(list(zip(wrong, accepted, strict=True)), made)


def _loosest(walk: Walk) -> np.ndarray:
    """[G, R] -> [R] index of the last that passed, -1 for none."""
    n_grid = len(walk.passed)
    last = n_grid - 1 - walk.passed[::-1].argmax(axis=0)
    return np.where(walk.passed.any(axis=0), last, -1)


def row(rule: str, told: Counted, alpha: float, n: int) -> dict[str, Any]:
    """One rule, over all halves; n clouds are counted on in each."""
    some = told.chosen >= 0
    shares = wrong_shares(told)[:, some]
    worst = shares.max(axis=0) if some.any() else np.zeros(0)
    excess = 1.0 - binomial_cdf(told.wrong - 1, told.accepted, alpha)  # chance of as many wrong, or more
    beyond = ((excess <= SELDOM) & (told.wrong > 0)).any(axis=0)
    return {
        "rule": rule,
        "halves": len(told.chosen),
        "certified": int(some.sum()),
        "held": float(1.0 - (worst > alpha).sum() / len(told.chosen)),
        "beyond_chance": float(beyond.mean()),
        "wrong_mean": float(worst.mean()) if some.any() else None,
        "wrong_90": float(np.quantile(worst, 0.9)) if some.any() else None,
        "wrong_most": float(worst.max()) if some.any() else None,
        "certified_answers": float(told.accepted[0].mean() / n),
        "observations": float(told.observations.mean()),
    }


def wrong_shares(told: Counted) -> np.ndarray:
    """[K, R] of the accepted; 0 where there are none."""
    shares = np.zeros(told.wrong.shape)
    return np.divide(told.wrong, told.accepted, out=shares, where=told.accepted > 0)


def each_half(rule: str, told: Counted, made: Plan) -> list[dict[str, Any]]:
    """One line for each half."""
    worst = wrong_shares(told).max(axis=0)
    return [
        {
            "rule": rule,
            "half": at,
            "threshold": None if index < 0 else made.grid[index],
            "accepted": int(told.accepted[0, at]),
            "wrong": int(told.wrong[0, at]),
            "wrong_share": None if index < 0 else float(worst[at]),  # under the hardest condition
            "observations": float(told.observations[at]),
        }
        for at, index in enumerate(told.chosen.tolist())
    ]


def promised(deployed: Deployed) -> tuple[Certificate, Plan, Familiarity | None]:
    """Certificate, plan and familiarity of a bundle that answers with a class, or what to type to get one."""
    if is_dense(deployed.bundle.model):
        raise UsageError(f"'{deployed.name}' labels points; halves are for bundles that answer with a class")
    found, made = deployed.certificate, deployed.plan
    if found is None or made is None:
        raise InputError(f"'{deployed.name}' has no certificate to repeat: asp-neuro certify {deployed.path}")
    void = why_void(found, made, deployed.sha256, deployed.name, deployed.familiarity)
    if void is not None:
        raise InputError(f"the certificate of '{deployed.name}' is void: {void}")
    return found, made, deployed.familiarity


def recorded(deployed: Deployed, samples: Any, made: Plan, known: Familiarity | None) -> list[Recording]:
    """The clouds once, as they are, and once under each condition that the plan covers."""
    n_classes, told = len(deployed.bundle.model.classes), []
    for what in (takes.CLEAN, *made.cover):
        if what != takes.CLEAN:
            say(f"under {what.name}")
        copies = takes.copies(samples, what, "calibration")
        one = deployment.take(deployed, copies, keep=what == takes.CLEAN, patience=made.patience)
        told.append(one.judged(known, n_classes, made.exit_threshold))
    return told


def run(
    name: str | Path | None = None, *, data: str | None = None, up: str | None = None, split: str = "test",
    limit: int | None = None, repeats: int = REPEATS, seed: int = 0, out: Path = Path("study"),
) -> dict[str, Any]:  # fmt: skip
    """The study, as table, CSV and picture in `out`."""
    deployed = deployment.open_bundle(name)
    found, made, known = promised(deployed)
    samples = deployment.clouds_of(deployed, data, split, up, limit)
    n = len(samples.names)
    if n < 4:
        raise UsageError(f"{n} clouds: two halves need at least 4; give a larger --limit")
    if split == "test":
        say(f"this reads the test split ({n} of {samples.source}); log it, with what for")
    else:
        say(f"the {split} split has served the model or its plan: only clouds that did not say what new ones would")
    seen = outcomes(
        recorded(deployed, samples, made, known), made.grid, limits_of(known, made.grid, made.exit_threshold)
    )
    halves = random_halves(n, repeats, seed)
    told = {rule: recalibrated(seen, made, halves, rule, found.threshold) for rule in RULES}
    report: dict[str, Any] = {
        "study": NAME, "model": deployed.name, "sha256": deployed.sha256, "split": split, "n": n, "seed": seed,
        "alpha": made.alpha, "delta": made.delta, "conditions": [what.name for what in made.cover],
        "rows": [row(rule, one, made.alpha, n - n // 2) for rule, one in told.items()],
        "halves": [line for rule, one in told.items() for line in each_half(rule, one, made)],
    }  # fmt: skip
    return written(files.make_folder(out), NAME, report, {"": report["rows"], "_each": report["halves"]}, picture)


def text(report: dict[str, Any]) -> str:
    """For people."""
    heads = ("rule", "certified in", "held in", "beyond chance", "wrong, mean", "90 % below", "most", "certified",
             "looks")  # fmt: skip
    body = []
    for one in report["rows"]:
        wrong = [
            None if one[key] is None else f"{share(one[key])} %" for key in ("wrong_mean", "wrong_90", "wrong_most")
        ]
        body.append(
            (one["rule"], f"{one['certified']} of {one['halves']}", f"{share(one['held'])} %",
             f"{share(one['beyond_chance'])} %", *wrong, f"{share(one['certified_answers'])} %",
             f"{one['observations']:.2f}")
        )  # fmt: skip
    under = f", under the hardest of: as they are, {', '.join(report['conditions'])}" if report["conditions"] else ""
    head = (
        f"{report['model']}: certified on one half of {report['n']} clouds ({report['split']} split), wrong answers "
        f"counted among the certified of the other{under}; promised: at most {percent(report['alpha'])} with "
        f"{percent(1 - report['delta'])} confidence"
    )
    note = (
        "held: at most that share was counted (also where nothing was certified). beyond chance: more than a risk of "
        f"{percent(report['alpha'])} gives in all but {percent(SELDOM)} of draws."
    )
    return "\n".join([head, aligned(body, heads), note, "", f"written: {', '.join(report['files'])}"])


def picture(path: Path, report: dict[str, Any]) -> Path:
    """How many halves had how large a share of wrong answers, and how many looks that took."""
    figure, (left, right) = plots.figure(2)
    for rule, colour, marker in zip(RULES, (plots.BLUE, plots.ORANGE, plots.GREY), "ox."):
        lines = [line for line in report["halves"] if line["rule"] == rule and line["wrong_share"] is not None]
        wrong = np.sort([100.0 * line["wrong_share"] for line in lines])
        left.plot(wrong, np.arange(1, len(wrong) + 1) / max(len(wrong), 1) * 100.0, color=colour, label=rule)
        looks = [line["observations"] for line in lines]
        right.plot(looks, [100.0 * line["wrong_share"] for line in lines], marker, color=colour, alpha=0.5, label=rule)
    for axis, line in ((left, left.axvline), (right, right.axhline)):
        line(100.0 * report["alpha"], color=plots.GREY, linestyle="--", linewidth=0.8)
        axis.legend(frameon=False, fontsize=8)
    left.set(xlabel="wrong among the certified, in % (dashed: promised)", ylabel="halves below, in %", ylim=(0, 102))
    right.set(xlabel="mean observations", ylabel="wrong among the certified, in %")
    return plots.saved(figure, path)
