"""The certified exit: which threshold may promise a risk of at most alpha (paper Thm. S4, S19, J.1, put right).

    accepted(tau): Delta_t > tau at some t;    R(tau) = P(wrong at the first crossing | accepted)
    given n_acc accepted, the errors k are Bin(n_acc, R(tau)), so for the null "R(tau) > alpha"
        p(tau) = BinCDF(k; n_acc, alpha),   1 if none is accepted                             is a p-value
    plan     (from data independent of the calibration split; j = 1..G from strict to loose)
        r_j  = (errors_j + 1) / (accepted_j + 2);    s = argmax_j (alpha - r_j) sqrt(n coverage_j)
        share_j = 0.2 / G;    share_s += 0.8
    certify  level_j = delta share_j + (level_{j-1} if j-1 passed else 0);    j passes iff p_j <= level_j
        the certified tau is the loosest that passed

A true null has, before the first false pass, at most the sum of the shares since the true null before it; these are
fixed numbers that sum to delta at most. So with probability >= 1 - delta over the calibration draw nothing is
certified or R <= alpha: for any dependence between thresholds, any number of looks, and without monotonicity.

The paper takes min{tau : UCB(tau) <= alpha} and pays nothing for the search (`paper_rule`): that is not valid.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy import special

from asp_neuro.errors import AspError, InputError, UsageError, nearest
from asp_neuro.model.exit import NEVER, ExitRule, first_crossing, n_crossed

START_SHARE = 0.8  # of delta, at the planned start; the rest is spread over the grid
N_GRID = 100  # thresholds at validation coverage 1 %, 2 %, ..., 100 %
N_GRID_MAX = 100_000
PILOT_SHARE = 4  # one calibration sample in so many plans when there is no validation split
N_MAX = 2**53  # samples that a size may ask for
N_WARN, N_ADVISED, N_COMFORTABLE = 300, 600, 1200  # calibration samples

T = TypeVar("T")


# What is measured


@dataclass(frozen=True, eq=False)
class Recording:
    """The deployed system at full budget, once per sample; every threshold follows from it. All arrays [T, n].

    `observations` counts what was seen up to each row (1..T unless given). `exit_threshold` is set by `at_exit` only.
    """

    margins: np.ndarray
    correct: np.ndarray
    observations: np.ndarray | None = None
    exit_threshold: float | None = None

    def __post_init__(self) -> None:
        margins = np.array(self.margins, dtype=np.float64)
        if margins.ndim != 2:
            raise InputError(f"recording: margins have shape {margins.shape}, expected [T, n]")
        if margins.size == 0:
            raise InputError(f"recording: empty ({margins.shape[0]} steps, {margins.shape[1]} samples)")
        if not ((margins >= 0) & (margins <= 1)).all():
            bad = margins[~((margins >= 0) & (margins <= 1))][0]
            raise InputError(f"recording: margin {bad} is outside [0, 1]")
        correct = np.array(self.correct)
        if correct.dtype != np.bool_:
            raise InputError(f"recording: `correct` is {correct.dtype}, expected bool")
        seen = np.arange(1, len(margins) + 1)[:, None] if self.observations is None else self.observations
        observations = np.array(np.broadcast_to(seen, margins.shape) if self.observations is None else seen)
        for name, array in (("correct", correct), ("observations", observations)):
            if array.shape != margins.shape:
                raise InputError(f"recording: {name} has shape {array.shape}, margins {margins.shape}")
        for name, array in (("margins", margins), ("correct", correct), ("observations", observations)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @classmethod
    def from_predictions(cls, margins: np.ndarray, predictions: np.ndarray, labels: np.ndarray) -> Recording:
        """From predicted classes [T, n] and true classes [n]; a negative label is an unknown one."""
        labels = np.asarray(labels)
        unknown = np.flatnonzero(labels < 0) if labels.size else labels
        if unknown.size:
            raise InputError(
                f"recording: {unknown.size} of {labels.size} samples have no label (the first is sample {unknown[0]});"
                " a certificate needs all of them"
            )
        if np.ndim(predictions) != 2 or np.shape(predictions)[1:] != labels.shape:
            raise InputError(f"recording: predictions {np.shape(predictions)} do not fit labels {labels.shape}")
        return cls(margins, np.asarray(predictions) == labels)

    @property
    def n(self) -> int:
        return int(self.margins.shape[1])

    def subset(self, index: np.ndarray) -> Recording:
        """The samples at `index`, in that order, repeats allowed."""
        assert self.observations is not None
        return Recording(
            self.margins[:, index], self.correct[:, index], self.observations[:, index], self.exit_threshold
        )


def at_exit(recording: Recording, exit_threshold: float) -> Recording:
    """J.1: the one row [1, n] at the stop (first crossing of a threshold fixed beforehand, or the budget's end).

    Planned and certified like any recording, its threshold is the acceptance kappa on S = Delta at the stop.
    """
    if not 0.0 <= exit_threshold < 1.0:
        raise UsageError(f"exit threshold {exit_threshold} is outside [0, 1)")
    if recording.exit_threshold is not None:
        raise UsageError(f"the recording is cut at exit threshold {recording.exit_threshold} already")
    assert recording.observations is not None
    steps = first_crossing(recording.margins, exit_threshold)
    stop = np.where(steps == NEVER, len(recording.margins) - 1, steps)[None]  # [1, n]
    rows = [np.take_along_axis(a, stop, 0) for a in (recording.margins, recording.correct, recording.observations)]
    return Recording(rows[0], rows[1], rows[2], float(exit_threshold))


class Outcomes(NamedTuple):
    """What each threshold of a grid makes of a recording: [G] each, in the order of the grid."""

    accepted: np.ndarray
    errors: np.ndarray
    mean_observations: np.ndarray  # over all samples, those that spend the budget included


@dataclass(frozen=True)
class Outcome:
    """What one threshold makes of a recording."""

    threshold: float
    n: int
    accepted: int
    errors: int
    mean_observations: float

    @property
    def coverage(self) -> float:
        return self.accepted / self.n

    @property
    def risk(self) -> float | None:
        """Share of wrong answers among the accepted; None if there are none."""
        return self.errors / self.accepted if self.accepted else None


def outcomes(recording: Recording, grid: np.ndarray) -> Outcomes:
    """All thresholds of a strict-to-loose grid at once.

    With the running maximum of the margins, sample i stops at step t for exactly the thresholds that t crosses and t-1
    does not: a stretch of the sorted grid. Stretches are added up by their ends.
    """
    assert recording.observations is not None
    ascending = np.asarray(grid, dtype=np.float64)[::-1]
    if (np.diff(ascending) <= 0).any():
        raise UsageError("the grid of thresholds must fall strictly, from strict to loose")
    reach = n_crossed(np.maximum.accumulate(recording.margins, axis=0), ascending)  # [T, n], rising in t
    before = np.concatenate([np.zeros_like(reach[:1]), reach[:-1]])
    size = len(ascending)

    def total(weights: np.ndarray) -> np.ndarray:
        """[size] sum of weights [T, n] over the steps at which samples stop; whole numbers, so exact in float64."""
        weight = weights.ravel().astype(np.float64)
        ends = np.bincount(before.ravel(), weight, size + 1) - np.bincount(reach.ravel(), weight, size + 1)
        return np.asarray(np.cumsum(ends)[:size][::-1])

    accepted = total(np.ones_like(reach))
    whole_budget = recording.observations[-1].astype(np.float64)  # [n]
    spent = np.cumsum(np.bincount(reach[-1], whole_budget, size + 1))[:size][::-1]
    seen = total(recording.observations) + spent
    return Outcomes(accepted.astype(np.int64), total(~recording.correct).astype(np.int64), seen / recording.n)


def outcome_at(recording: Recording, tau: float) -> Outcome:
    """One threshold: how many are accepted, how many of these are wrong, how many observations all take."""
    found = outcomes(recording, np.array([tau]))
    return Outcome(
        float(tau), recording.n, int(found.accepted[0]), int(found.errors[0]), float(found.mean_observations[0])
    )


# How it is bounded


def binomial_cdf(errors: np.ndarray | int, accepted: np.ndarray | int, risk: float) -> np.ndarray:
    """P(Bin(accepted, risk) <= errors), elementwise; 1 where none is accepted."""
    k, n = np.broadcast_arrays(np.asarray(errors, dtype=np.float64), np.asarray(accepted, dtype=np.float64))
    some = k < n
    tail = special.betaincc(np.where(some, k + 1, 1.0), np.where(some, n - k, 1.0), risk)
    return np.where(some, tail, 1.0)


def clopper_pearson(errors: np.ndarray | int, accepted: np.ndarray | int, level: np.ndarray | float) -> np.ndarray:
    """The largest risk that `errors` of `accepted` do not refute at `level`; <= alpha iff the p-value is <= level."""
    k, n = np.broadcast_arrays(np.asarray(errors, dtype=np.float64), np.asarray(accepted, dtype=np.float64))
    some = k < n
    upper = special.betainccinv(np.where(some, k + 1, 1.0), np.where(some, n - k, 1.0), level)
    return np.where(some, upper, 1.0)


# How many tests are paid for


@dataclass(frozen=True)
class Plan:
    """Fixed before a calibration sample is seen: the thresholds, strict to loose, and the share of delta of each."""

    alpha: float
    delta: float
    grid: tuple[float, ...]
    shares: tuple[float, ...]
    start: int  # index of the planned start
    n_calibration: int  # the size planned for
    n_validation: int  # samples that planned
    source: str  # "validation", or "pilot": a share of the calibration samples that is not tested on
    seed: int | None  # of the pilot
    exit_threshold: float | None  # J.1: fixed, and `grid` holds acceptance thresholds
    model_sha256: str
    data_sha256: str

    def __post_init__(self) -> None:
        for name in ("alpha", "delta"):
            _check_inside(f"plan: {name}", getattr(self, name), InputError)
        n_grid = len(self.grid)
        if not 1 <= n_grid <= N_GRID_MAX or len(self.shares) != n_grid or not 0 <= self.start < n_grid:
            raise InputError(f"plan: {n_grid} thresholds, {len(self.shares)} shares, start {self.start} do not fit")
        if not (np.diff(self.grid) < 0).all() or not 0 <= self.grid[-1] <= self.grid[0] < 1:
            raise InputError("plan: thresholds must fall strictly within [0, 1)")
        if not min(self.shares) >= 0 or not math.fsum(self.shares) <= 1 + 1e-12:
            raise InputError(f"plan: shares must not be negative and sum to at most 1 (here {math.fsum(self.shares)})")
        if self.source not in ("validation", "pilot"):
            raise InputError(f"plan: source '{self.source}' is neither 'validation' nor 'pilot'")

    @property
    def sha256(self) -> str:
        return digest("plan", asdict(self))

    def to_dict(self) -> dict[str, Any]:
        return to_plain("plan", self)

    @classmethod
    def from_dict(cls, data: Any) -> Plan:
        return from_plain("plan", cls, data)


def plan(
    validation: Recording,
    alpha: float = 0.05,
    delta: float = 0.05,
    n_calibration: int = N_COMFORTABLE,
    *,
    n_grid: int = N_GRID,
    source: str = "validation",
    seed: int | None = None,
    model_sha256: str = "",
    data_sha256: str = "",
) -> Plan:
    """Thresholds and shares from samples that calibrate nothing; refused where n_calibration can certify nothing."""
    check_levels(alpha, delta)
    if not 1 <= n_grid <= N_GRID_MAX:
        raise UsageError(f"{n_grid} thresholds: the grid takes 1 to {N_GRID_MAX}")
    grid = _grid(validation, n_grid)
    found = outcomes(validation, grid)
    risk = (found.errors + 1) / (found.accepted + 2)
    start = int(np.argmax((alpha - risk) * np.sqrt(n_calibration * found.accepted / validation.n)))
    shares = np.full(len(grid), (1 - START_SHARE) / len(grid))
    shares[start] += START_SHARE
    made = Plan(
        alpha=float(alpha),
        delta=float(delta),
        grid=tuple(grid.tolist()),
        shares=tuple(shares.tolist()),
        start=start,
        n_calibration=int(n_calibration),
        n_validation=validation.n,
        source=source,
        seed=seed,
        exit_threshold=validation.exit_threshold,
        model_sha256=model_sha256,
        data_sha256=data_sha256,
    )
    _check_enough(n_calibration, made)
    return made


def _grid(validation: Recording, n_grid: int) -> np.ndarray:
    """Thresholds at validation coverage 1/n_grid, ..., 1: halfway between neighbouring recorded margins of any step."""
    highest = np.sort(validation.margins.max(axis=0))[::-1]  # [n]
    rank = (np.arange(1, n_grid + 1) * validation.n + n_grid - 1) // n_grid  # coverage j/n_grid, rounded up
    upper = highest[rank - 1]
    upper = np.unique(upper[upper > 0])[::-1]  # a margin of 0 crosses no threshold in [0, 1)
    if upper.size == 0:
        raise InputError(f"plan: all {validation.n} samples have margin 0 at every step")
    recorded = np.unique(np.append(validation.margins, 0.0))
    lower = recorded[np.searchsorted(recorded, upper) - 1]
    middle = lower + (upper - lower) / 2
    return np.asarray(np.where(middle < upper, middle, lower))  # neighbours in the last bit: the lower one


class Walk(NamedTuple):
    """The tests in order, strict to loose: [G, ...] each."""

    p_value: np.ndarray
    level: np.ndarray
    passed: np.ndarray


def walk(errors: np.ndarray, accepted: np.ndarray, made: Plan) -> Walk:
    """The planned fallback walk over [G, ...] counts: a level is handed on where the test before it passed."""
    p_value = binomial_cdf(errors, accepted, made.alpha)
    level, passed = np.empty_like(p_value), np.empty(p_value.shape, dtype=bool)
    carried = np.zeros(p_value.shape[1:])
    for j, share in enumerate(made.shares):
        level[j] = made.delta * share + carried
        passed[j] = p_value[j] <= level[j]
        carried = np.where(passed[j], level[j], 0.0)
    return Walk(p_value, level, passed)


def paper_walk(errors: np.ndarray, accepted: np.ndarray, made: Plan) -> Walk:
    """The paper's rule in the same form: every threshold is tested at the whole delta. Not valid."""
    p_value = binomial_cdf(errors, accepted, made.alpha)
    level = np.full_like(p_value, made.delta)
    return Walk(p_value, level, p_value <= level)


def minimum_accepted(made: Plan, errors: int = 0) -> int:
    """Fewest accepted samples that can pass the planned start with so many errors (none: 63 at 5 % / 5 %)."""
    return _fewest(lambda n: bool(binomial_cdf(errors, n, made.alpha) <= _best_level(made)), errors + 1)


def accepted_for_power(made: Plan, risk: float = 0.02, power: float = 0.9) -> int:
    """The number of accepted samples from which on the planned start passes with at least this probability.

    Power falls while samples are added and no further error is allowed, so it is asked for just before the next one is.
    """
    _check_inside("power", power, UsageError)
    if not 0.0 <= risk < made.alpha:
        raise UsageError(f"risk {risk} must be at least 0 and below alpha = {made.alpha}")

    def enough(errors: int) -> bool:
        return bool(binomial_cdf(errors, minimum_accepted(made, errors + 1) - 1, risk) >= power)

    return minimum_accepted(made, _fewest(enough, 0))


def _best_level(made: Plan) -> float:
    """The highest level that a first pass can have: nothing is inherited before it."""
    return made.delta * max(made.shares)


def _fewest(enough: Callable[[int], bool], low: int) -> int:
    """The smallest whole number from `low` on that is enough, by doubling and bisection."""
    high = max(low, 1)
    while not enough(high):
        low, high = high + 1, 2 * high
        if high > N_MAX:
            raise UsageError(f"more than {N_MAX} samples would be needed: alpha, delta or the power asks too much")
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


# What the user calls


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

    def __post_init__(self) -> None:
        for name in ("alpha", "delta"):
            _check_inside(f"certificate: {name}", getattr(self, name), InputError)
        if self.certified != (self.threshold is not None):
            raise InputError(f"certificate: certified is {self.certified} and the threshold is {self.threshold}")
        if not 0 <= self.n_errors <= self.n_accepted <= self.n:
            raise InputError(f"certificate: {self.n_errors} errors, {self.n_accepted} accepted of {self.n} do not fit")
        if self.threshold is not None and not 0 <= self.threshold < 1:
            raise InputError(f"certificate: threshold {self.threshold} is outside [0, 1)")

    @property
    def sha256(self) -> str:
        return digest("certificate", asdict(self))

    def to_dict(self) -> dict[str, Any]:
        return to_plain("certificate", self)

    @classmethod
    def from_dict(cls, data: Any) -> Certificate:
        return from_plain("certificate", cls, data)


def certify(
    calibration: Recording,
    made: Plan,
    *,
    model_sha256: str = "",
    data_sha256: str = "",
    split: str = "calibration",
    seed: int | None = None,
    backend: str = "fast",
) -> Certificate:
    """The loosest threshold that passes the planned walk, or none. One call per calibration set."""
    _check_pair(calibration, made, model_sha256, data_sha256)
    found = outcomes(calibration, np.array(made.grid))
    tests = walk(found.errors, found.accepted, made)
    table = _table(found, tests, made, calibration.n)
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
    hashes = {"model_sha256": model_sha256, "data_sha256": data_sha256}
    made = plan(pilot, alpha, delta, rest.n, n_grid=n_grid, source="pilot", seed=seed, **hashes)
    return made, certify(rest, made, split=split, seed=seed, backend=backend, **hashes)


def pilot_split(calibration: Recording, seed: int) -> tuple[Recording, Recording]:
    """A random quarter of the samples, and the others."""
    n_pilot = calibration.n // PILOT_SHARE
    if n_pilot == 0:
        raise InputError(f"{calibration.n} calibration samples: at least {PILOT_SHARE} are needed to plan on a share")
    order = np.random.default_rng(seed).permutation(calibration.n)
    return calibration.subset(np.sort(order[:n_pilot])), calibration.subset(np.sort(order[n_pilot:]))


def paper_rule(calibration: Recording, grid: Iterable[float], alpha: float = 0.05, delta: float = 0.05) -> float | None:
    """The paper's min{tau: UCB(tau) <= alpha} over a grid, strict to loose. For comparison only: it is not valid."""
    check_levels(alpha, delta)
    thresholds = np.array(list(grid), dtype=np.float64)
    found = outcomes(calibration, thresholds)
    passed = thresholds[binomial_cdf(found.errors, found.accepted, alpha) <= delta]
    return float(passed[-1]) if passed.size else None


def _table(found: Outcomes, tests: Walk, made: Plan, n: int) -> tuple[Row, ...]:
    bounds = clopper_pearson(found.errors, found.accepted, tests.level)
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
    """How to stop under a certificate; nothing certified: the whole budget."""
    if certificate.threshold is None:
        return ExitRule()
    if certificate.exit_threshold is None:
        return ExitRule(certificate.threshold, certified=True)
    return ExitRule(certificate.exit_threshold, certified=True, kappa=certificate.threshold)


def why_void(certificate: Certificate, made: Plan, model_sha256: str) -> str | None:
    """Why a stored certificate does not hold for this model, in one sentence; None: it holds."""
    for name, stored in (("certificate", certificate.model_sha256), ("plan", made.model_sha256)):
        if stored != model_sha256:
            return f"the {name} was made for model {stored[:12] or '(none)'}, this one is {model_sha256[:12]}"
    if certificate.plan_sha256 != made.sha256:
        return (
            f"the certificate was made with plan {certificate.plan_sha256[:12]}, the stored one is {made.sha256[:12]}"
        )
    return _why_not_the_walk(certificate, made)


def _why_not_the_walk(certificate: Certificate, made: Plan) -> str | None:
    """The walk again from the stored counts: a certificate that does not follow from its own table is void."""
    thresholds = tuple(row.threshold for row in certificate.table)
    if thresholds != made.grid or (certificate.alpha, certificate.delta) != (made.alpha, made.delta):
        return "the certificate's table does not have the plan's thresholds, alpha and delta"
    counts = np.array([(row.errors, row.accepted) for row in certificate.table])
    passed = np.flatnonzero(walk(counts[:, 0], counts[:, 1], made).passed)
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
    else:
        which = f"answers whose margin at the stop is above {certificate.threshold:.4f}"
        others = "other answers carry no promise"
    return (
        f"With {sure} confidence in this calibration, at most {risk} of the {which} are wrong in the long run, for new"
        f" clouds drawn independently from the same source; {others}."
    )


def percent(value: float) -> str:
    """0.05 -> "5 %"; digits as needed."""
    return f"{100 * value:.10g} %"


def sizes(made: Plan) -> str:
    """How many accepted samples a certificate takes under this plan, in one sentence."""
    risk = 0.4 * made.alpha
    return (
        f"A certificate needs at least {minimum_accepted(made)} accepted samples without error at the planned start;"
        f" from {accepted_for_power(made, risk, 0.9)} accepted on it passes there in 90 % of calibrations if the true"
        f" risk is {percent(risk)}."
    )


def advice(n: int) -> str | None:
    """A warning for a small calibration split, or None."""
    if n >= N_WARN:
        return None
    return f"only {n} calibration samples: {N_ADVISED} or more are advised, {N_COMFORTABLE} are comfortable"


# What is refused


def check_levels(alpha: float, delta: float) -> None:
    _check_inside("alpha", alpha, UsageError)
    _check_inside("delta", delta, UsageError)


def check_disjoint(calibration: Collection[str], other: Collection[str], name: str) -> None:
    """Refuse a calibration split that shares a sample (by hash) with data that the model has seen."""
    shared = set(calibration) & set(other)
    if shared:
        raise InputError(
            f"{len(shared)} of {len(calibration)} calibration samples are also in the {name} data (for one:"
            f" {min(shared)[:12]}); a certificate needs samples that nothing was fitted to"
        )


def _check_pair(calibration: Recording, made: Plan, model_sha256: str, data_sha256: str) -> None:
    if calibration.exit_threshold != made.exit_threshold:
        raise UsageError(
            f"the plan is for exit threshold {made.exit_threshold}, the recording for {calibration.exit_threshold}"
        )
    if made.model_sha256 != model_sha256:
        raise UsageError(f"the plan is for model {made.model_sha256[:12]}, the recording for {model_sha256[:12]}")
    if made.source == "validation" and data_sha256 and data_sha256 == made.data_sha256:
        raise UsageError(f"the plan was made from the calibration samples ({data_sha256[:12]}); it needs others")
    _check_enough(calibration.n, made)


def _check_enough(n: int, made: Plan) -> None:
    needed = minimum_accepted(made)
    if n < needed:
        raise InputError(
            f"{n} calibration samples: a certificate at alpha = {percent(made.alpha)}, delta = {percent(made.delta)}"
            f" needs at least {needed} that are accepted without error"
        )


def _check_inside(name: str, value: object, error: type[AspError]) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value < 1.0:
        raise error(f"{name} {value!r} must lie strictly between 0 and 1")


# Plain data: JSON-able, exact, hashed


def digest(kind: str, data: Mapping[str, Any]) -> str:
    """SHA-256 over canonical JSON: sorted keys, no spaces, floats in their shortest exact form."""
    text = json.dumps({"kind": kind, **data}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def to_plain(kind: str, record: Any) -> dict[str, Any]:
    """A frozen dataclass as lists, numbers, strings and its own hash."""
    data = asdict(record)
    plain = json.loads(json.dumps(data, allow_nan=False))
    return {**plain, "sha256": digest(kind, data)}


def from_plain(kind: str, cls: type[T], data: Any) -> T:
    """The record again: keys, types and hash are checked here, the rest by its class."""
    if not isinstance(data, Mapping):
        raise InputError(f"{kind}: a {type(data).__name__}, expected an object")
    values = dict(data)
    stored = values.pop("sha256", None)
    record = _read(kind, cls, values)
    found = digest(kind, asdict(record))  # type: ignore[call-overload]
    if stored != found:
        raise InputError(f"{kind}: damaged or edited (its hash is {found[:12]}, it says {str(stored)[:12]})")
    return record


def _read(kind: str, cls: type[T], data: Any) -> T:
    types = {field.name: str(field.type) for field in fields(cls)}  # type: ignore[arg-type]
    if not isinstance(data, Mapping) or not all(isinstance(key, str) for key in data):
        raise InputError(f"{kind}: expected an object with {', '.join(types)}")
    for key in data:
        if key not in types:
            raise InputError(f"{kind}: unknown key '{key}'{nearest(key, types)}")
    missing = [name for name in types if name not in data]
    if missing:
        raise InputError(f"{kind}: {missing[0]} is missing")
    return cls(**{name: _value(f"{kind}: {name}", annotation, data[name]) for name, annotation in types.items()})


def _value(place: str, annotation: str, value: Any) -> Any:
    """One value checked against its annotation: numbers are finite, and a bool is no number."""
    if annotation.endswith(" | None"):
        return None if value is None else _value(place, annotation[: -len(" | None")], value)
    if annotation.startswith("tuple["):
        if not isinstance(value, (list, tuple)):
            raise InputError(f"{place} is {value!r}, expected a list")
        inner = annotation[len("tuple[") : -len(", ...]")]
        return tuple(_value(f"{place} {i}", inner, item) for i, item in enumerate(value))
    if annotation == "Row":
        return _read(place, Row, value)
    if annotation == "float" and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    if type(value).__name__ == annotation and annotation != "float":
        return value
    raise InputError(f"{place} is {value!r}, expected {'a finite number' if annotation == 'float' else annotation}")
