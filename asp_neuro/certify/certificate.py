"""What the user calls: a certificate, when it holds, and what it promises."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asp_neuro import plain
from asp_neuro.certify.bounds import binomial_cdf, check_inside, check_levels, clopper_pearson, percent
from asp_neuro.certify.plan import N_GRID, Condition, Plan, Walk, check_enough, limits_of, make_plan, walk_all
from asp_neuro.certify.recording import Recording, Tallies, tallies
from asp_neuro.errors import InputError, UsageError
from asp_neuro.grid import ARITHMETIC
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.familiarity import Familiarity

PILOT_SHARE = 4  # one calibration sample in so many plans when there is no validation split


@dataclass(frozen=True)
class Row:
    """One threshold of the table; `bound` holds at the row's own level, so it is <= alpha iff the row passed."""

    threshold: float
    accepted: int
    errors: int
    risk: float | None  # None: nothing accepted
    bound: float
    coverage: float
    mean_observations: float
    p_value: float
    level: float
    passed: bool


@dataclass(frozen=True)
class Covered:
    """A condition that the promise covers too, and what was counted under it, threshold by threshold."""

    condition: Condition
    points: int | None  # fewest distinct points of a copy; None: nobody counted
    accepted: tuple[int, ...]
    errors: tuple[int, ...]


@dataclass(frozen=True)
class Certificate:
    """The outcome of one calibration, as plain data. `threshold` None: nothing is certified.

    `risk`, `bound`, `coverage` and `mean_observations` describe the calibration set; the promise is "risk <= alpha".
    Without a threshold every answer reads the whole budget: coverage 0, and no risk, level or bound.
    """

    certified: bool
    alpha: float
    delta: float
    threshold: float | None
    exit_threshold: float | None  # J.1: fixed beforehand, and `threshold` is the acceptance kappa
    n: int
    n_accepted: int
    n_errors: int
    level: float | None
    risk: float | None
    bound: float | None
    coverage: float
    mean_observations: float
    monotone: bool  # a diagnostic, it proves nothing
    largest_fall: float  # how far the risk falls on the way to looser thresholds; 0 if monotone
    split: str
    seed: int | None
    backend: str
    plan_sha256: str
    data_sha256: str
    model_sha256: str
    table: tuple[Row, ...]
    arithmetic: int | None = plain.later(None)  # of the host that was recorded; None: made before it was noted
    familiarity_sha256: str | None = plain.later(None)  # accepted is then: crossed, and familiar
    covers: tuple[Covered, ...] = plain.later(())  # conditions beside clouds as they are
    points: int | None = plain.later(None)  # fewest distinct points of a calibration cloud; None: nobody counted
    patience: int | None = plain.later(None)  # looks at most; None: the whole budget

    def __post_init__(self) -> None:
        for name in ("alpha", "delta"):
            check_inside(f"certificate: {name}", getattr(self, name), InputError)
        if self.certified != (self.threshold is not None):
            raise InputError(f"certificate: certified is {self.certified} and the threshold is {self.threshold}")
        if not 0 <= self.n_errors <= self.n_accepted <= self.n:
            raise InputError(f"certificate: {self.n_errors} errors, {self.n_accepted} accepted of {self.n} do not fit")
        for one in self.covers:
            if not len(one.accepted) == len(one.errors) == len(self.table):
                raise InputError(f"certificate: the counts under '{one.condition.name}' do not fit its table")
            if not all(0 <= k <= n <= self.n for k, n in zip(one.errors, one.accepted)):
                raise InputError(f"certificate: the counts under '{one.condition.name}' do not fit {self.n} samples")
        if self.threshold is not None and not 0 <= self.threshold < 1:
            raise InputError(f"certificate: threshold {self.threshold} is outside [0, 1)")

    @property
    def sha256(self) -> str:
        return plain.seal("certificate", self)

    def to_dict(self) -> dict[str, Any]:
        return plain.sealed("certificate", self)

    @classmethod
    def from_dict(cls, data: Any) -> Certificate:
        return plain.unsealed("certificate", cls, data)


def certify(
    calibration: Recording,
    made: Plan,
    *,
    model_sha256: str = "",
    data_sha256: str = "",
    split: str = "calibration",
    seed: int | None = None,
    backend: str = "fast",
    known: Familiarity | None = None,
    cover: Mapping[Condition, Recording] | None = None,
    points: Mapping[Condition, int] | None = None,
    fewest: int | None = None,
) -> Certificate:
    """The loosest threshold that passes the planned walk, or none. One call per calibration set.

    `known` and `cover` are those of the plan: the frozen familiarity, and the same samples under its conditions;
    `fewest` is the fewest distinct points of a calibration cloud, `points` those of a copy under each.
    """
    cover = cover or {}
    _check_pair(calibration, made, model_sha256, data_sha256)
    _check_conditions(made, known, tuple(cover))
    grid = np.array(made.grid)
    limits = limits_of(known, made.grid, made.exit_threshold)
    counts = [tallies(one, grid, limits) for one in (calibration, *cover.values())]
    tests = walk_all([(one.errors, one.accepted) for one in counts], made)
    table = _table(counts, tests, made, calibration.n)
    passed = [row for row in table if row.passed]
    chosen = passed[-1] if passed else None  # the loosest
    falls = _falls(table)
    assert calibration.observations is not None
    return Certificate(
        certified=chosen is not None,
        alpha=made.alpha,
        delta=made.delta,
        threshold=chosen.threshold if chosen else None,
        exit_threshold=made.exit_threshold,
        n=calibration.n,
        n_accepted=chosen.accepted if chosen else 0,
        n_errors=chosen.errors if chosen else 0,
        level=chosen.level if chosen else None,
        risk=chosen.risk if chosen else None,
        bound=chosen.bound if chosen else None,
        coverage=chosen.coverage if chosen else 0.0,
        mean_observations=chosen.mean_observations if chosen else float(calibration.observations[-1].mean()),
        monotone=falls == 0.0,
        largest_fall=falls,
        split=split,
        seed=seed,
        backend=backend,
        plan_sha256=made.sha256,
        data_sha256=data_sha256,
        model_sha256=model_sha256,
        table=table,
        arithmetic=ARITHMETIC,
        familiarity_sha256=made.familiarity_sha256,
        covers=tuple(
            Covered(what, (points or {}).get(what), tuple(one.accepted.tolist()), tuple(one.errors.tolist()))
            for what, one in zip(cover, counts[1:], strict=True)
        ),
        points=fewest,
        patience=made.patience,
    )


def certify_alone(
    calibration: Recording,
    alpha: float = 0.05,
    delta: float = 0.05,
    *,
    seed: int = 0,
    n_grid: int = N_GRID,
    model_sha256: str = "",
    data_sha256: str = "",
    split: str = "calibration",
    backend: str = "fast",
) -> tuple[Plan, Certificate]:
    """Without a validation split: a seeded quarter of the calibration samples plans, the others test."""
    pilot, rest = pilot_split(calibration, seed)
    hashes: dict[str, Any] = {"model_sha256": model_sha256, "data_sha256": data_sha256}
    made = make_plan(pilot, alpha, delta, rest.n, n_grid=n_grid, source="pilot", seed=seed, **hashes)
    return made, certify(rest, made, split=split, seed=seed, backend=backend, **hashes)


def pilot_split(calibration: Recording, seed: int) -> tuple[Recording, Recording]:
    """A random quarter of the samples, and the others."""
    first, rest = pilot_index(calibration.n, seed)
    return calibration.subset(first), calibration.subset(rest)


def pilot_index(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Which of n samples these are, and the others."""
    n_pilot = n // PILOT_SHARE
    if n_pilot == 0:
        raise InputError(f"{n} calibration samples: at least {PILOT_SHARE} are needed to plan on a share")
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[:n_pilot]), np.sort(order[n_pilot:])


def paper_rule(calibration: Recording, grid: Iterable[float], alpha: float = 0.05, delta: float = 0.05) -> float | None:
    """The paper's min{tau: UCB(tau) <= alpha} over a grid, strict to loose. For comparison only: it is not valid."""
    check_levels(alpha, delta)
    thresholds = np.array(list(grid), dtype=np.float64)
    found = tallies(calibration, thresholds)
    passed = thresholds[binomial_cdf(found.errors, found.accepted, alpha) <= delta]
    return float(passed[-1]) if passed.size else None


def _table(counts: Sequence[Tallies], tests: Walk, made: Plan, n: int) -> tuple[Row, ...]:
    """Counts of clouds as they are; p-value and bound are the largest of all conditions."""
    found = counts[0]
    bounds = np.max([clopper_pearson(one.errors, one.accepted, tests.level) for one in counts], axis=0)
    risks = np.divide(found.errors, found.accepted, out=np.zeros(len(bounds)), where=found.accepted > 0)
    columns = (found.accepted, found.errors, risks, bounds, found.accepted / n, found.mean_observations, *tests)
    rows = zip(made.grid, *(column.tolist() for column in columns))
    return tuple(
        Row(tau, accepted, errors, risk if accepted else None, *rest) for tau, accepted, errors, risk, *rest in rows
    )


def _falls(table: tuple[Row, ...]) -> float:
    """The largest drop of the empirical risk from a threshold to a looser one."""
    risks = np.array([row.risk for row in table if row.risk is not None])
    return float(np.max(np.maximum.accumulate(risks) - risks)) if risks.size else 0.0


def exit_rule(certificate: Certificate) -> ExitRule:
    """How to stop under a certificate; nothing certified: the whole budget, or what of it patience allows."""
    if certificate.threshold is None:
        return ExitRule(patience=certificate.patience)
    counted = (certificate.points, *(one.points for one in certificate.covers))
    fewest = min((n for n in counted if n), default=None)
    common: dict[str, Any] = {"certified": True, "fewest": fewest, "patience": certificate.patience}
    if certificate.exit_threshold is None:
        return ExitRule(certificate.threshold, **common)
    return ExitRule(certificate.exit_threshold, kappa=certificate.threshold, **common)


def why_void(
    certificate: Certificate, made: Plan, model_sha256: str, name: str = "FILE", known: Familiarity | None = None
) -> str | None:
    """Why a stored certificate does not hold for this model, and what to type then (for `name`); None: it holds."""
    reason = (
        _why_not_the_model(certificate, made, model_sha256)
        or _why_not_the_familiarity(certificate, made, model_sha256, known)
        or _why_not_the_arithmetic(certificate, made)
        or _why_not_the_walk(certificate, made)
    )
    return None if reason is None else f"{reason}; certify again: asp-neuro certify {name}"


def _why_not_the_model(certificate: Certificate, made: Plan, model_sha256: str) -> str | None:
    for name, stored in (("certificate", certificate.model_sha256), ("plan", made.model_sha256)):
        if stored != model_sha256:
            return f"the {name} was made for model {stored[:12] or '(none)'}, this one is {model_sha256[:12]}"
    if certificate.plan_sha256 != made.sha256:
        return (
            f"the certificate was made with plan {certificate.plan_sha256[:12]}, the stored one is {made.sha256[:12]}"
        )
    return None


def _why_not_the_familiarity(
    certificate: Certificate, made: Plan, model_sha256: str, known: Familiarity | None
) -> str | None:
    """The frozen rule that stood inside the calibration must be the one that is used."""
    found = None if known is None else known.sha256
    for name, stored in (("certificate", certificate.familiarity_sha256), ("plan", made.familiarity_sha256)):
        if stored != found:
            words = [value[:12] if value else "none" for value in (stored, found)]
            return f"the {name} was made with familiarity {words[0]}, the stored one is {words[1]}"
    if known is not None and known.model_sha256 != model_sha256:
        return f"the familiarity was made for model {known.model_sha256[:12]}, this one is {model_sha256[:12]}"
    if known is not None and known.arithmetic != ARITHMETIC:
        return f"the familiarity was made under arithmetic {known.arithmetic}, this program computes with {ARITHMETIC}"
    return None


def _why_not_the_arithmetic(certificate: Certificate, made: Plan) -> str | None:
    """Under another arithmetic margins and orders come out otherwise: what was counted is not what would run here."""
    for name, number in (("certificate", certificate.arithmetic), ("plan", made.arithmetic)):
        if number != ARITHMETIC:
            which = "an earlier arithmetic" if number is None else f"arithmetic {number}"
            return f"the {name} was made under {which}, this program computes with {ARITHMETIC}"
    return None


def _why_not_the_walk(certificate: Certificate, made: Plan) -> str | None:
    """The walk again from the stored counts: a certificate that does not follow from its own table is void."""
    thresholds = tuple(row.threshold for row in certificate.table)
    if thresholds != made.grid or (certificate.alpha, certificate.delta) != (made.alpha, made.delta):
        return "the certificate's table does not have the plan's thresholds, alpha and delta"
    if certificate.patience != made.patience:
        return f"the certificate has patience {certificate.patience}, its plan {made.patience}"
    if tuple(one.condition for one in certificate.covers) != made.cover:
        return "the certificate does not cover the conditions of its plan"
    counts = np.array([(row.errors, row.accepted) for row in certificate.table])
    others = [(np.array(one.errors), np.array(one.accepted)) for one in certificate.covers]
    passed = np.flatnonzero(walk_all([(counts[:, 0], counts[:, 1]), *others], made).passed)
    follows = made.grid[passed[-1]] if passed.size else None
    if follows != certificate.threshold:
        return f"the certificate says threshold {certificate.threshold}, its own table gives {follows}"
    return None


def promise(certificate: Certificate) -> str:
    """What is promised, in one plain sentence."""
    sure, risk = percent(1 - certificate.delta), percent(certificate.alpha)
    if certificate.threshold is None:
        return (
            f"Nothing is certified: on {certificate.n} calibration samples no threshold showed with {sure} confidence"
            f" that at most {risk} of the answers are wrong, so no answer carries a promise."
        )
    if certificate.exit_threshold is None:
        which = f"answers that stop with a margin above {certificate.threshold:.4f}"
        others = "an answer that spends the budget carries no promise"
        if certificate.patience is not None:
            others = f"an answer that has not crossed it after {certificate.patience} looks ends and carries no promise"
    else:
        which = f"answers whose margin at the stop is above {certificate.threshold:.4f}"
        others = "other answers carry no promise"
    ways = ", ".join(one.condition.name for one in certificate.covers)
    changed = f", as they are and under each of these conditions: {ways}" if ways else ""
    unlike = "" if certificate.familiarity_sha256 is None else "; nor does one whose cloud is unfamiliar"
    return (
        f"With {sure} confidence in this calibration, at most {risk} of the {which} are wrong in the long run, for new"
        f" clouds drawn independently from the same source{changed}; {others}{unlike}."
    )


def check_disjoint(calibration: Collection[str], other: Collection[str], name: str) -> None:
    """Refuse a calibration split that shares a sample (by hash) with data that the model has seen."""
    shared = set(calibration) & set(other)
    if shared:
        raise InputError(
            f"{len(shared)} of {len(calibration)} calibration samples are also in the {name} data (for one:"
            f" {min(shared)[:12]}); a certificate needs samples that nothing was fitted to"
        )


def _check_conditions(made: Plan, known: Familiarity | None, cover: tuple[Condition, ...]) -> None:
    if made.familiarity_sha256 != (None if known is None else known.sha256):
        raise UsageError("the plan was made with another familiarity than the one that is to be used")
    if made.cover != cover:
        names = [", ".join(one.name for one in which) or "none" for which in (made.cover, cover)]
        raise UsageError(f"the plan covers the conditions {names[0]}; the recordings are of {names[1]}")


def _check_pair(calibration: Recording, made: Plan, model_sha256: str, data_sha256: str) -> None:
    if calibration.exit_threshold != made.exit_threshold:
        raise UsageError(
            f"the plan is for exit threshold {made.exit_threshold}, the recording for {calibration.exit_threshold}"
        )
    if made.model_sha256 != model_sha256:
        raise UsageError(f"the plan is for model {made.model_sha256[:12]}, the recording for {model_sha256[:12]}")
    if made.arithmetic != ARITHMETIC:
        raise UsageError(f"the plan is for arithmetic {made.arithmetic}, this program computes with {ARITHMETIC}")
    if made.source == "validation" and data_sha256 and data_sha256 == made.data_sha256:
        raise UsageError(f"the plan was made from the calibration samples ({data_sha256[:12]}); it needs others")
    check_enough(calibration.n, made)
