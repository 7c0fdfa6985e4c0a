"""Does the certified exit keep its promise where the true risk is known, and how fast is it? Prints two tables.

    python benchmarks/certify.py [--calibrations 2000] [--seed 0] [--json] [--quick]

Samples are drawn with replacement from a finite pool, so the pool's risk is the true risk. A violation is a calibration
that certifies a threshold whose true risk exceeds alpha; at most delta of the calibrations may. Each plan is made from
500 fresh validation samples and serves 50 calibrations, all by the shipped `plan` and `walk`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from timing import Row, alternate, arguments, one_thread, row, tell

from asp_neuro.certify import (
    START_SHARE,
    Certificate,
    Plan,
    Recording,
    Walk,
    at_exit,
    certify,
    make_plan,
    monitor,
    paper_walk,
    walk,
)
from asp_neuro.model.exit import NEVER, first_crossing

ALPHA = DELTA = 0.05
POOL = 10_000
PER_PLAN = 50  # calibrations
RULES = {"ours": walk, "paper": paper_walk}
Rule = Callable[[np.ndarray, np.ndarray, Plan], Walk]


def from_risk(risk: Callable[[np.ndarray], np.ndarray]) -> Recording:
    """One look; the selective risk at coverage c is risk(c), rounded up to the next whole error."""
    coverage = np.arange(1, POOL + 1) / POOL
    errors = np.ceil(np.round(risk(coverage) * coverage * POOL, 6))
    wrong = np.diff(errors, prepend=0) > 0
    assert wrong.sum() == errors[-1], "c * risk(c) must rise, by less than 1 per sample"
    return Recording(1 - coverage[None] + 0.5 / POOL, ~wrong[None])


def flat() -> Recording:
    """5.1 % wrong at every coverage: nothing may be certified."""
    return from_risk(lambda c: np.full_like(c, 0.051))


def u_shaped() -> Recording:
    """Confident wrong answers at the strict end: 10 % at coverage 0, 3 % at one half, 10 % at 1."""
    return from_risk(lambda c: 0.03 + 0.28 * (c - 0.5) ** 2)


def well_behaved(seed: int = 1) -> Recording:
    """16 looks; margins grow as evidence comes in, and wrong answers are the unsure ones."""
    rng = np.random.default_rng(seed)
    ease = rng.gamma(2.0, 0.35, POOL)
    evidence = np.cumsum(ease + 0.8 * rng.standard_normal((16, POOL)), axis=0)  # [T, n], its sign is the answer
    return Recording(np.tanh(np.abs(evidence) / 3), evidence > 0)


def looks(n_looks: int, seed: int = 2) -> Recording:
    """Margin t/M for everybody, errors at different looks independent, exactly 5.1 % wrong at each."""
    rng = np.random.default_rng(seed)
    row = np.arange(POOL) >= 0.051 * POOL
    correct = np.stack([rng.permutation(row) for _ in range(n_looks)])
    margins = np.arange(1, n_looks + 1)[:, None] / n_looks
    return Recording(np.broadcast_to(margins, correct.shape), correct)


def looks_plan(n_looks: int, n: int) -> Plan:
    """Every look has its threshold; the start is in the middle."""
    grid = (np.arange(n_looks, 0, -1) - 0.5) / n_looks
    shares = np.full(n_looks, (1 - START_SHARE) / n_looks)
    shares[n_looks // 2] += START_SHARE
    fixed = {"n_validation": 0, "source": "validation", "seed": None, "exit_threshold": None}
    names = {"model_sha256": "", "data_sha256": ""}
    return Plan(ALPHA, DELTA, tuple(grid.tolist()), tuple(shares.tolist()), n_looks // 2, n, **fixed, **names)


def verdicts(pool: Recording, grid: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """[G, n] float32 each: accepted, and accepted but wrong, of every sample in the pool at every threshold."""
    steps = np.stack([first_crossing(pool.margins, tau) for tau in grid])
    right = np.take_along_axis(pool.correct, np.maximum(steps, 0), 0)
    accepted = steps != NEVER
    return accepted.astype(np.float32), (accepted & ~right).astype(np.float32)


@dataclass(frozen=True)
class Simulated:
    """Shares of the calibrations, the mean true coverage (0 if nothing is certified), and the best one possible."""

    violations: float
    none: float
    coverage: float
    oracle: float


def simulate(
    pool: Recording,
    n: int,
    calibrations: int = 2000,
    n_validation: int = 500,
    seed: int = 0,
    fixed: Plan | None = None,
    rules: dict[str, Rule] = RULES,
) -> dict[str, Simulated]:
    """Draw plans and calibrations; every rule sees the same ones."""
    rng = np.random.default_rng(seed)
    found: dict[str, list[np.ndarray]] = {name: [] for name in rules}
    oracle = []
    pair = verdicts(pool, fixed.grid) if fixed else None
    for _ in range(-(-calibrations // PER_PLAN)):
        made = fixed or make_plan(pool.subset(rng.integers(POOL, size=n_validation)), ALPHA, DELTA, n)
        accepted, wrong = pair or verdicts(pool, made.grid)  # [G, POOL]
        times = [np.bincount(rng.integers(POOL, size=n), minlength=POOL) for _ in range(PER_PLAN)]
        drawn = np.stack(times, axis=1).astype(np.float32)  # [POOL, PER_PLAN]
        counts = (wrong @ drawn).astype(int), (accepted @ drawn).astype(int)
        coverage = accepted.mean(axis=1, dtype=np.float64)
        risk = wrong.sum(axis=1) / np.maximum(accepted.sum(axis=1), 1)
        oracle.append(max(coverage[risk <= ALPHA], default=0.0))
        for name, rule in rules.items():
            found[name].append(_chosen(rule(*counts, made).passed, risk, coverage))
    columns = {name: np.concatenate(rows, axis=1) for name, rows in found.items()}  # violated, none, coverage
    return {name: Simulated(*rows.mean(axis=1).tolist(), float(np.mean(oracle))) for name, rows in columns.items()}


def _chosen(passed: np.ndarray, risk: np.ndarray, coverage: np.ndarray) -> np.ndarray:
    """[G, r] passes -> [3, r]: violated, nothing certified, true coverage, at the loosest threshold that passed."""
    some = passed.any(axis=0)
    loosest = len(passed) - 1 - passed[::-1].argmax(axis=0)
    return np.stack([some & (risk[loosest] > ALPHA), ~some, np.where(some, coverage[loosest], 0.0)])


def cases() -> dict[str, Callable[[int, int], dict[str, Simulated]]]:
    """Name -> (calibrations, seed) -> what was simulated."""
    table: dict[str, Callable[[int, int], dict[str, Simulated]]] = {
        "well-behaved, 16 looks": lambda r, s: simulate(well_behaved(), 1200, r, seed=s),
        "well-behaved, a quarter plans": lambda r, s: simulate(well_behaved(), 900, r, 300, seed=s),
        "well-behaved, acceptance at exit 0.7": lambda r, s: simulate(at_exit(well_behaved(), 0.7), 1200, r, seed=s),
        "U-shaped risk": lambda r, s: simulate(u_shaped(), 1200, r, seed=s),
        "flat risk of 5.1 %": lambda r, s: simulate(flat(), 1200, r, seed=s),
    }
    for m in (4, 16, 100):
        table[f"{m} independent looks, 5.1 %"] = lambda r, s, m=m: simulate(
            looks(m), 1000, r, seed=s, fixed=looks_plan(m, 1000)
        )
    return table


def alarm_times(risk: float, paths: int, labels: int, alpha: float = 0.05, level: float = 0.05, seed: int = 0):
    """[paths] the label at which each stream of independent errors raises the alarm; 0: never."""
    rng = np.random.default_rng(seed)
    state = monitor.Bet(*(np.full(paths, value) for value in monitor.OPENING))
    when = np.zeros(paths, dtype=int)
    for label in range(1, labels + 1):
        state = monitor.bet(state, rng.random(paths) < risk, alpha)
        when[(when == 0) & (state.log_wealth >= -np.log(level))] = label
    return when


def speeds(rounds: int) -> list[Row]:
    """1,232 samples of 16 steps, with the usual number of thresholds and with about 1,000."""
    rng = np.random.default_rng(3)
    pool = well_behaved()
    validation = pool.subset(rng.permutation(POOL)[:5000])
    calibration = pool.subset(rng.permutation(POOL)[:1232])
    wide = make_plan(validation, ALPHA, DELTA, 1232, n_grid=1000)
    usual = make_plan(validation, ALPHA, DELTA, 1232)
    stored = certify(calibration, wide).to_dict()
    trials = {
        f"certify, {len(wide.grid)} thresholds": lambda: certify(calibration, wide),
        f"certify, {len(usual.grid)} thresholds": lambda: certify(calibration, usual),
        "plan on 5000 samples, 1000 thresholds": lambda: make_plan(validation, n_grid=1000),
        f"read back {len(wide.grid)} rows": lambda: Certificate.from_dict(stored),
    }
    return [row(name, seconds, "s") for name, seconds in alternate(trials, rounds).items()]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--calibrations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    one_thread()
    calibrations = min(asked.calibrations, 200) if asked.quick else asked.calibrations
    simulated = {name: case(calibrations, asked.seed) for name, case in cases().items()}
    paths = 200 if asked.quick else 2000
    alarms = {risk: alarm_times(risk, paths, 6000, seed=asked.seed) for risk in (0.02, 0.05, 0.10)}
    rows: list[Row] = []
    for rule, whose in (("ours", "our rule"), ("paper", "the paper's rule")):
        worst = max(both[rule].violations for both in simulated.values())
        what = f"broken promises, worst of {len(simulated)} pools, {whose}"
        rows.append(row(what, 100 * worst, "%", wanted="at most 5 %"))
    false = 100.0 * (alarms[0.05] > 0).mean()
    rows.append(row("false alarms of the monitor, risk as promised", false, "%", wanted="at most 5 %"))
    rows += speeds(3 if asked.quick else 7)
    title = f"Certified exit, {calibrations} calibrations"
    tell(title, rows, asked, as_text(simulated, alarms))


def as_text(simulated: dict[str, dict[str, Simulated]], alarms: dict[float, np.ndarray]) -> str:
    lines = ["| pool | violations | nothing certified | coverage | best possible | the paper's rule: violations |"]
    lines.append("|---|---|---|---|---|---|")
    for name, both in simulated.items():
        ours, paper = both["ours"], both["paper"]
        cells = (ours.violations, ours.none, ours.coverage, ours.oracle, paper.violations)
        lines.append(f"| {name} | " + " | ".join(f"{100 * cell:.1f} %" for cell in cells) + " |")
    lines.append("\n| true risk (promise 5 %, level 5 %) | alarm within 6000 labels | median delay |\n|---|---|---|")
    for risk, when in alarms.items():
        raised = when[when > 0]
        delay = f"{np.median(raised):.0f} labels" if len(raised) > len(when) / 2 else "-"
        lines.append(f"| {100 * risk:.0f} % | {100 * len(raised) / len(when):.1f} % | {delay} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
