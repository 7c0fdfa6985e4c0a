"""The certified exit as mathematics: tables worked out by hand, properties, plain data, and what is refused."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from asp_neuro import certify as module
from asp_neuro import plain
from asp_neuro.certify import (
    Certificate,
    Plan,
    Recording,
    accepted_for_power,
    advice,
    at_exit,
    binomial_cdf,
    certify,
    certify_alone,
    check_disjoint,
    clopper_pearson,
    exit_rule,
    make_plan,
    minimum_accepted,
    paper_rule,
    pilot_split,
    promise,
    sizes,
    tallies,
    tally_at,
    walk,
    why_void,
)
from asp_neuro.errors import InputError, UsageError
from asp_neuro.grid import ARITHMETIC
from asp_neuro.model.exit import NEVER, ExitRule, first_crossing

SHA = "ab" * 32
EIGHTHS = st.integers(0, 8).map(lambda k: k / 8)  # few values, so that margins meet thresholds exactly


def a_plan(grid=(0.5,), shares=(1.0,), alpha=0.05, delta=0.05, start=0, **others):
    fixed = {"n_calibration": 100, "n_validation": 50, "source": "validation", "seed": None, "exit_threshold": None}
    names = {"model_sha256": "", "data_sha256": "", "arithmetic": ARITHMETIC}
    return Plan(alpha=alpha, delta=delta, grid=grid, shares=shares, start=start, **(fixed | names | others))


def plausible(n, seed=0, n_steps=16):
    """Margins that grow and answers that are the better the surer."""
    rng = np.random.default_rng(seed)
    evidence = np.cumsum(rng.gamma(2.0, 0.35, n) + 0.8 * rng.standard_normal((n_steps, n)), axis=0)
    return Recording(np.tanh(np.abs(evidence) / 3), evidence > 0)


@st.composite
def recordings(draw, elements=EIGHTHS):
    shape = draw(st.tuples(st.integers(1, 4), st.integers(1, 12)))
    return Recording(draw(arrays(np.float64, shape, elements=elements)), draw(arrays(bool, shape)))


# By hand: four samples, two steps

SMALL = Recording(
    np.array([[0.2, 0.6, 0.1, 0.4], [0.8, 0.3, 0.3, 0.4]]),
    np.array([[False, True, False, True], [True, False, False, False]]),
)


@pytest.mark.parametrize(
    ("tau", "accepted", "errors", "mean_observations"),
    [
        (0.8, 0, 0, 2.0),  # strict: 0.8 does not cross 0.8
        (0.5, 2, 0, 1.75),  # 2, 1, budget, budget
        (0.25, 4, 1, 1.5),  # 2, 1, 2 (wrong), 1
        (0.15, 4, 2, 1.25),  # 1 (wrong), 1, 2 (wrong), 1
        (0.0, 4, 2, 1.0),
    ],
)
def test_tallies_by_hand(tau, accepted, errors, mean_observations):
    found = tally_at(SMALL, tau)
    assert (found.accepted, found.errors, found.mean_observations) == (accepted, errors, mean_observations)
    assert found.coverage == accepted / 4
    assert found.risk == (errors / accepted if accepted else None)


def test_a_plan_by_hand():
    # Highest margins 0.8 0.6 0.4 0.3; halfway to the next smaller recorded margin 0.6 0.4 0.3 0.2.
    made = make_plan(SMALL, 0.5, 0.5, 4, n_grid=4)
    assert made.grid == pytest.approx((0.7, 0.5, 0.35, 0.25))
    # accepted 1 2 3 4, errors 0 0 0 1: r = 1/3 1/4 1/5 1/3; (1/2 - r) sqrt(coverage) = 0.083 0.177 0.260 0.167
    assert made.start == 2
    assert made.shares == pytest.approx((0.05, 0.05, 0.85, 0.05))
    assert make_plan(SMALL, 0.5, 0.5, 4, n_grid=2).grid == pytest.approx((0.5, 0.25))


def test_one_lucky_sample_does_not_make_the_start():
    # accepted 1 2 3 4, errors 0 1 1 1: (1/2 - r) sqrt(coverage) = 0.083 0 0.087 0.167; unsmoothed 0.25 0 0.144 0.25
    lucky = Recording([[0.9, 0.7, 0.5, 0.3]], [[True, False, True, True]])
    assert make_plan(lucky, 0.5, 0.5, 4, n_grid=4).start == 3


def test_a_walk_by_hand():
    # alpha = delta = 1/2. p: Bin(1): 1/2; Bin(2): 1/4; 1 error in 4: 5/16; 2 errors in 5: 16/32
    margins = np.array([[0.9, 0.7, 0.5, 0.5, 0.3, 0.1]])
    correct = np.array([[True, True, True, False, False, True]])
    made = a_plan((0.8, 0.6, 0.4, 0.2), (0.1, 0.7, 0.1, 0.1), alpha=0.5, delta=0.5, start=1)
    found = certify(Recording(margins, correct), made)
    assert [(row.accepted, row.errors) for row in found.table] == [(1, 0), (2, 0), (4, 1), (5, 2)]
    assert [row.p_value for row in found.table] == pytest.approx([0.5, 0.25, 0.3125, 0.5])
    # own share 0.05; own 0.35; 0.05 + inherited 0.35; 0.05 + inherited 0.40
    assert [row.level for row in found.table] == pytest.approx([0.05, 0.35, 0.40, 0.45])
    assert [row.passed for row in found.table] == [False, True, True, False]
    assert (found.certified, found.threshold, found.n, found.n_accepted, found.n_errors) == (True, 0.4, 6, 4, 1)
    assert (found.risk, found.coverage, found.mean_observations) == (0.25, 4 / 6, 1.0)
    assert found.level == pytest.approx(0.4)
    # the bound solves (1-u)^3 (1+3u) = 0.40
    assert (1 - found.bound) ** 3 * (1 + 3 * found.bound) == pytest.approx(0.4)
    assert (found.monotone, found.largest_fall) == (True, 0.0)


def test_a_level_is_not_inherited_from_a_test_that_failed():
    made = a_plan((0.8, 0.6, 0.4), (0.5, 0.1, 0.4), alpha=0.5, delta=0.5)
    # 1/2 > 0.25 fails; 1/4 > 0.05 fails, though 0.25 + 0.05 would do; 1/8 <= 0.20 passes
    tests = walk(np.zeros(3, dtype=int), np.array([1, 2, 3]), made)
    assert tests.level.tolist() == pytest.approx([0.25, 0.05, 0.20])
    assert tests.passed.tolist() == [False, False, True]


def test_the_loosest_pass_counts_also_beyond_a_gap():
    made = a_plan((0.8, 0.6, 0.4), (0.4, 0.2, 0.4), alpha=0.5, delta=0.5)
    tests = walk(np.array([0, 3, 3]), np.array([3, 4, 12]), made)  # p = 1/8, 15/16, 299/4096
    assert tests.passed.tolist() == [True, False, True]
    assert tests.level.tolist() == pytest.approx([0.2, 0.3, 0.2])


def test_acceptance_at_a_fixed_exit_by_hand():
    stopped = at_exit(SMALL, 0.35)
    assert stopped.margins.tolist() == [[0.8, 0.6, 0.3, 0.4]]
    assert stopped.correct.tolist() == [[True, True, False, True]]
    assert stopped.observations.tolist() == [[2, 1, 2, 1]]
    for kappa, accepted, errors in ((0.7, 1, 0), (0.5, 2, 0), (0.25, 4, 1)):
        found = tally_at(stopped, kappa)  # kappa moves what is accepted, not when it stops
        assert (found.accepted, found.errors, found.mean_observations) == (accepted, errors, 1.5)


@pytest.mark.parametrize(
    ("errors", "accepted", "risk", "expected"),
    [
        (0, 2, 0.5, 0.25),
        (1, 3, 0.5, 0.5),
        (1, 2, 0.1, 0.99),
        (0, 3, 0.2, 0.512),
        (2, 2, 0.3, 1.0),
        (0, 0, 0.05, 1.0),  # nothing accepted: no evidence
        (0, 58, 0.05, 0.95**58),
    ],
)
def test_binomials_by_hand(errors, accepted, risk, expected):
    assert binomial_cdf(errors, accepted, risk) == pytest.approx(expected, rel=1e-12)


def test_clopper_pearson_by_hand():
    assert clopper_pearson(0, 59, 0.05) == pytest.approx(1 - 0.05 ** (1 / 59))
    assert clopper_pearson(19, 919, 0.05) == pytest.approx(0.030, abs=5e-4)  # J.1 prints 4.8 %
    assert clopper_pearson(3, 3, 0.05) == 1.0
    assert clopper_pearson(0, 0, 0.05) == 1.0


# Sizes


def test_sizes_of_a_single_test():
    single = a_plan()
    assert [minimum_accepted(single, k) for k in range(11)] == [59, 93, 124, 153, 181, 208, 234, 260, 286, 311, 336]
    for alpha, needed in ((0.01, 299), (0.02, 149), (0.10, 29)):
        assert minimum_accepted(replace(single, alpha=alpha)) == needed
    for risk, power, needed in ((0.01, 0.5, 93), (0.01, 0.9, 181), (0.02, 0.9, 361), (0.03, 0.9, 900)):
        assert accepted_for_power(single, risk, power) == needed


def test_sizes_of_the_usual_plan():
    usual = make_plan(plausible(500), 0.05, 0.05, 1200)
    assert len(usual.grid) == 100
    assert max(usual.shares) == usual.shares[usual.start] == pytest.approx(0.802)
    assert minimum_accepted(usual) == 63
    assert accepted_for_power(usual, 0.02, 0.9) == 395
    assert "63 accepted" in sizes(usual)
    assert "395 accepted" in sizes(usual)
    assert "2 %" in sizes(usual)


def test_from_the_stated_size_on_the_power_is_there_and_not_before():
    usual = make_plan(plausible(500), 0.05, 0.05, 1200)
    allowed = np.array([minimum_accepted(usual, k) for k in range(30)])

    def power(n):
        return float(binomial_cdf(int((allowed <= n).sum()) - 1, n, 0.02))

    assert power(394) < 0.9
    assert min(power(n) for n in range(395, 700)) >= 0.9


def test_an_impossible_size_is_refused_and_does_not_run_for_ever():
    with pytest.raises(UsageError, match="more than"):
        minimum_accepted(a_plan(alpha=1e-300))
    with pytest.raises(UsageError, match="below alpha"):
        accepted_for_power(a_plan(), 0.05)


def test_small_splits_are_warned_about():
    assert advice(300) is None
    assert "299" in advice(299)


# Properties


@given(recordings(), st.sets(EIGHTHS.filter(lambda t: t < 1), min_size=1))
def test_all_thresholds_at_once_equal_one_crossing_at_a_time(recording, taus):
    grid = np.array(sorted(taus, reverse=True))
    found = tallies(recording, grid)
    for j, tau in enumerate(grid):
        steps = first_crossing(recording.margins, tau)
        accepted = steps != NEVER
        wrong = ~recording.correct[np.maximum(steps, 0), np.arange(recording.n)]
        seen = np.where(accepted, steps + 1, len(recording.margins))
        assert found.accepted[j] == accepted.sum()
        assert found.errors[j] == (accepted & wrong).sum()
        assert found.mean_observations[j] == seen.mean()


@given(recordings(st.floats(0.001, 1)), st.integers(1, 30))
def test_a_grid_falls_covers_everything_and_hangs_on_no_last_bit(recording, n_grid):
    grid = np.array(make_plan(recording, 0.9, 0.9, 1000, n_grid=n_grid).grid)
    assert (np.diff(grid) < 0).all()
    assert tallies(recording, grid).accepted[-1] == recording.n
    gaps = np.abs(recording.margins.ravel()[:, None] - grid)
    nearest_two = np.diff(np.unique(np.append(recording.margins, 0.0)))
    if nearest_two.min() > 1e-12:
        assert gaps.min() > 1e-13
        bumped = Recording(np.nextafter(recording.margins, 0.0), recording.correct)
        np.testing.assert_equal(tallies(bumped, grid), tallies(recording, grid))


def test_neighbours_in_the_last_bit_still_make_a_grid():
    top = np.nextafter(0.5, 1.0)
    found = tallies(
        Recording([[0.5, top]], [[True, True]]),
        np.array(make_plan(Recording([[0.5, top]], [[True, True]]), 0.9, 0.9, 9).grid),
    )
    assert found.accepted.tolist() == [1, 2]


COUNTS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 200)), min_size=1, max_size=12)


@given(COUNTS, st.sampled_from([0.01, 0.05, 0.2]), st.sampled_from([0.01, 0.05, 0.3]), st.randoms())
def test_a_level_is_the_shares_since_the_last_failure_and_never_more_than_delta(counts, alpha, delta, random):
    weights = np.array([random.random() + 1e-3 for _ in counts])
    shares = weights / weights.sum() * (1 - 1e-9)
    grid = tuple((np.arange(len(counts), 0, -1) / 20).tolist())
    made = a_plan(grid, tuple(shares.tolist()), alpha, delta)
    errors, extra = np.array(counts).T
    tests = walk(errors, errors + extra, made)
    since = -1
    for j, passed in enumerate(tests.passed):
        assert tests.level[j] == pytest.approx(delta * shares[since + 1 : j + 1].sum())
        assert passed == (tests.p_value[j] <= tests.level[j])
        bound = clopper_pearson(errors[j], errors[j] + extra[j], tests.level[j])
        assert passed == (bound <= alpha) or bound == pytest.approx(alpha, rel=1e-6)
        since = since if passed else j
    assert tests.level.max() <= delta


@given(COUNTS, st.sampled_from([0.01, 0.05, 0.2]), st.floats(0.1, 1.0))
def test_a_smaller_delta_never_passes_more(counts, alpha, factor):
    shares = (1 / len(counts),) * len(counts)
    made = a_plan(tuple((np.arange(len(counts), 0, -1) / 20).tolist()), shares, alpha, 0.3)
    errors, extra = np.array(counts).T
    usual = walk(errors, errors + extra, made).passed
    careful = walk(errors, errors + extra, replace(made, delta=0.3 * factor)).passed
    assert not (careful & ~usual).any()


@given(st.integers(0, 20))
def test_the_order_of_the_samples_does_not_matter(seed):
    validation, calibration = plausible(100, seed), plausible(300, seed + 1)
    turned = np.random.default_rng(seed).permutation(300)
    made = make_plan(validation, 0.05, 0.05, 300)
    assert certify(calibration.subset(turned), made) == certify(calibration, made)


# The whole, once


def test_a_plausible_model_is_certified_and_what_it_says_is_consistent():
    made = make_plan(plausible(500, 1), 0.05, 0.05, 1232, model_sha256=SHA, data_sha256="v")
    found = certify(plausible(1232, 2), made, model_sha256=SHA, data_sha256="c", seed=7, backend="sim")
    assert found.certified
    assert found.bound <= 0.05
    assert found.risk == found.n_errors / found.n_accepted
    assert 1 <= found.mean_observations < 16
    assert (found.plan_sha256, found.split, found.seed, found.backend) == (made.sha256, "calibration", 7, "sim")
    assert why_void(found, made, SHA) is None
    assert exit_rule(found) == ExitRule(found.threshold, certified=True)
    said = promise(found)
    assert said.count(".") == 2  # the threshold's and the sentence's
    assert f"{found.threshold:.4f}" in said
    assert "95 % confidence" in said
    assert "at most 5 %" in said
    assert "budget carries no promise" in said


def test_nothing_certified_is_said_and_reads_the_whole_budget():
    rng = np.random.default_rng(3)
    coin = Recording(rng.random((16, 400)), rng.random((16, 400)) < 0.5)
    found = certify(coin, make_plan(plausible(500), 0.05, 0.05, 400))
    assert (found.certified, found.threshold, found.risk, found.bound, found.level) == (False, None, None, None, None)
    assert (found.coverage, found.mean_observations, found.n_accepted) == (0.0, 16.0, 0)
    assert promise(found).startswith("Nothing is certified")
    assert exit_rule(found) == ExitRule()
    assert Certificate.from_dict(found.to_dict()) == found


def test_acceptance_at_a_fixed_exit_is_certified_by_the_same_procedure():
    validation, calibration = at_exit(plausible(500, 1), 0.8), at_exit(plausible(1200, 2), 0.8)
    found = certify(calibration, make_plan(validation, 0.05, 0.05, 1200))
    assert found.certified
    assert found.exit_threshold == 0.8
    assert exit_rule(found) == ExitRule(0.8, certified=True, kappa=found.threshold)
    assert "margin at the stop is above" in promise(found)
    with pytest.raises(UsageError, match=r"exit threshold None, the recording for 0\.8"):
        certify(calibration, make_plan(plausible(500, 1), 0.05, 0.05, 1200))
    with pytest.raises(UsageError, match="already"):
        at_exit(calibration, 0.5)


def test_the_diagnostic_sees_a_risk_that_falls():
    margins = np.array([[0.9, 0.7, 0.5, 0.3]])
    correct = np.array([[False, True, True, True]])  # 1, 1/2, 1/3, 1/4
    found = certify(Recording(margins, correct), a_plan((0.8, 0.6, 0.4, 0.2), (0.25,) * 4, alpha=0.9, delta=0.9))
    assert not found.monotone
    assert found.largest_fall == pytest.approx(0.75)


def test_without_a_validation_split_a_seeded_quarter_plans_and_the_others_test():
    everything = plausible(1200, 4)
    made, found = certify_alone(everything, seed=11, model_sha256=SHA, data_sha256="c")
    assert (made.source, made.seed, made.n_validation, made.n_calibration, found.n) == ("pilot", 11, 300, 900, 900)
    assert found.certified
    assert (made, found) == certify_alone(everything, seed=11, model_sha256=SHA, data_sha256="c")
    assert found != certify_alone(everything, seed=12, model_sha256=SHA, data_sha256="c")[1]
    pilot, rest = pilot_split(everything, 11)
    both = np.concatenate([pilot.margins, rest.margins], axis=1)
    assert sorted(both[0]) == sorted(everything.margins[0])  # no sample twice, none lost


def test_the_papers_rule_takes_the_loosest_bound_below_alpha_and_is_looser():
    calibration, made = plausible(1200, 2), make_plan(plausible(500, 1), 0.05, 0.05, 1200)
    tau = paper_rule(calibration, made.grid)
    rows = [row for row in certify(calibration, made).table if clopper_pearson(row.errors, row.accepted, 0.05) <= 0.05]
    assert tau == rows[-1].threshold
    assert tau <= certify(calibration, made).threshold
    assert paper_rule(Recording(np.full((1, 70), 0.5), np.zeros((1, 70), bool)), [0.4]) is None


def test_a_thousand_thresholds_take_less_than_a_second():
    made = make_plan(plausible(5000, 1), 0.05, 0.05, 1232, n_grid=1000)
    calibration = plausible(1232, 2)
    assert len(made.grid) == 1000
    begin = time.process_time()
    certify(calibration, made)
    assert time.process_time() - begin < 1.0


# Plain data


def stored():
    made = make_plan(plausible(300, 1), 0.05, 0.05, 600, n_grid=7, model_sha256=SHA)
    return made, certify(plausible(600, 2), made, model_sha256=SHA)


@given(st.integers(0, 50), st.integers(1, 20))
def test_plan_and_certificate_survive_json_to_the_last_bit(seed, n_grid):
    made = make_plan(plausible(60, seed, 4), 0.05, 0.05, 300, n_grid=n_grid)
    found = certify(plausible(300, seed + 1, 4), made)
    for record in (made, found):
        again = type(record).from_dict(json.loads(json.dumps(record.to_dict())))
        assert again == record
        assert again.sha256 == record.sha256 == record.to_dict()["sha256"]


def test_the_hash_of_a_plan_is_pinned():
    # Canonical bytes are part of the file format: a change here breaks every stored certificate.
    assert a_plan(arithmetic=None).sha256 == "951e3b2c541aece955ca8678eee95ec0f2804e9da583a48bd7f6373b8f6b3fdc"
    assert a_plan(arithmetic=2).sha256 == "295a15dba673c3ea32b5b0810a27975f6c7003ebee011535ed85936d5a6feff6"


def test_every_field_of_a_plan_is_hashed():
    made = stored()[0]
    bumped = [
        replace(made, alpha=0.06),
        replace(made, delta=0.06),
        replace(made, grid=(np.nextafter(made.grid[0], 1.0).item(), *made.grid[1:])),
        replace(made, shares=(np.nextafter(made.shares[0], 0.0).item(), *made.shares[1:])),
        replace(made, start=(made.start + 1) % 7),
        replace(made, n_calibration=601),
        replace(made, n_validation=301),
        replace(made, source="pilot"),
        replace(made, seed=1),
        replace(made, exit_threshold=0.5),
        replace(made, model_sha256="other"),
        replace(made, data_sha256="other"),
        replace(made, arithmetic=1),
    ]
    assert len(bumped) == len(made.to_dict()) - 1
    assert len({made.sha256, *(one.sha256 for one in bumped)}) == len(bumped) + 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"alpha": 0.06}, "edited"),
        ({"alpha": 1.0}, "strictly between"),
        ({"alpha": True}, "finite number"),
        ({"alpha": "0.05"}, "finite number"),
        ({"delta": float("nan")}, "finite number"),
        ({"delta": 10**400}, "finite number"),
        ({"grid": 0.5}, "must be a list"),
        ({"grid": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]}, "fall strictly"),
        ({"grid": [1.5, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]}, "fall strictly"),
        ({"grid": []}, "0 thresholds"),
        ({"shares": [0.2] * 7}, "sum to at most 1"),
        ({"shares": [-0.2] * 7}, "negative"),
        ({"start": 7}, "start 7"),
        ({"start": 1.0}, "must be a whole number"),
        ({"source": "test"}, "neither"),
        ({"sha256": "0" * 64}, "edited"),
        ({"thresholds": []}, "unknown key 'thresholds'"),
        ({3: 4}, "unknown key '3'"),
    ],
)
def test_a_damaged_plan_is_refused(change, said):
    with pytest.raises(InputError, match=said):
        Plan.from_dict({**stored()[0].to_dict(), **change})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"threshold": 0.01}, "edited"),
        ({"threshold": None}, "certified is True"),
        ({"threshold": 2.0}, r"outside \[0, 1\)"),
        ({"certified": 1}, "must be true or false"),
        ({"n_errors": 10**6}, "do not fit"),
        ({"table": None}, "must be a list"),
        ({"table": [3]}, r"table\[0\] = 3 must be a table"),
        ({"table": [{"threshold": 1}]}, r"table\[0\].accepted is missing"),
        ({"bound": float("inf")}, "finite number"),
    ],
)
def test_a_damaged_certificate_is_refused(change, said):
    with pytest.raises(InputError, match=said):
        Certificate.from_dict({**stored()[1].to_dict(), **change})


@pytest.mark.parametrize("damaged", [None, [], "certificate", 3])
def test_what_is_no_object_is_refused(damaged):
    for kind in (Plan, Certificate):
        with pytest.raises(InputError, match="expected a table"):
            kind.from_dict(damaged)


def test_a_certificate_is_void_for_another_model_another_plan_or_another_threshold():
    made, found = stored()
    assert why_void(found, made, SHA) is None
    assert "model abababababab, this one is cdcdcdcdcdcd" in why_void(found, made, "cd" * 32)
    assert "plan" in why_void(found, replace(made, start=0, n_validation=1), SHA)
    looser = made.grid[-1]
    assert looser != found.threshold
    assert "its own table gives" in why_void(replace(found, threshold=looser), made, SHA)
    assert "thresholds, alpha" in why_void(replace(found, alpha=0.01), made, SHA)


def test_a_certificate_whose_model_has_no_name_does_not_hold_for_a_real_one():
    made = make_plan(plausible(300, 1), 0.05, 0.05, 600)
    assert "(none)" in why_void(certify(plausible(600, 2), made), made, SHA)


def made_before(record):
    """As it was stored before the arithmetic was noted: without the key, its hash over the rest."""
    kind = type(record).__name__.lower()
    old = {key: value for key, value in record.to_dict().items() if key not in ("arithmetic", "sha256")}
    return {**old, "sha256": plain.digest(kind, old)}


def test_a_certificate_of_another_arithmetic_is_read_and_void():
    made, found = stored()
    old_plan = Plan.from_dict(made_before(made))
    old = Certificate.from_dict(made_before(replace(found, plan_sha256=old_plan.sha256)))
    assert old.arithmetic is None
    assert old_plan.arithmetic is None
    assert old.to_dict() == made_before(replace(found, plan_sha256=old_plan.sha256))
    assert why_void(old, old_plan, SHA, "some.net") == (
        f"the certificate was made under an earlier arithmetic, this program computes with {ARITHMETIC};"
        " certify again: asp-neuro certify some.net"
    )
    assert "the certificate was made under arithmetic 1, this" in why_void(replace(found, arithmetic=1), made, SHA)
    one = replace(made, arithmetic=1)
    assert "the plan was made under arithmetic 1" in why_void(replace(found, plan_sha256=one.sha256), one, SHA)
    with pytest.raises(UsageError, match="the plan is for arithmetic 1, this program computes with"):
        certify(plausible(600, 2), one, model_sha256=SHA)


def test_the_arithmetic_cannot_be_edited_in():
    for record in stored():
        with pytest.raises(InputError, match="damaged or edited"):
            type(record).from_dict({**made_before(record), "arithmetic": ARITHMETIC})


# What is refused


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.05, 5, float("nan"), True, "0.05", None])
def test_alpha_and_delta_outside_the_unit_interval_are_refused(bad):
    for alpha, delta, name in ((bad, 0.05, "alpha"), (0.05, bad, "delta")):
        with pytest.raises(UsageError, match=f"{name} {bad!r} must lie strictly between 0 and 1"):
            make_plan(SMALL, alpha, delta, 1200)
        with pytest.raises(UsageError, match=name):
            paper_rule(SMALL, [0.5], alpha, delta)
        with pytest.raises(UsageError, match=name):
            certify_alone(plausible(100), alpha, delta)


def test_too_few_samples_are_refused_with_the_number_needed():
    with pytest.raises(InputError, match=r"62 calibration samples: .* alpha = 5 %, delta = 5 % needs at least 63"):
        make_plan(plausible(500), 0.05, 0.05, 62)
    made = make_plan(plausible(500), 0.05, 0.05, 63)
    with pytest.raises(InputError, match="62 calibration samples"):
        certify(plausible(62), made)
    certify(plausible(63), made)
    with pytest.raises(InputError, match="60 calibration samples"):
        certify_alone(plausible(80))
    with pytest.raises(InputError, match="3 calibration samples"):
        certify_alone(plausible(3))


@pytest.mark.parametrize(
    ("margins", "correct", "said"),
    [
        (np.zeros((16, 0)), np.zeros((16, 0), bool), "empty"),
        (np.zeros((0, 5)), np.zeros((0, 5), bool), "empty"),
        (np.zeros(5), np.zeros(5, bool), r"expected \[T, n\]"),
        (np.zeros((2, 5)), np.zeros((2, 4), bool), r"\(2, 4\)"),
        (np.full((2, 5), np.nan), np.zeros((2, 5), bool), "nan"),
        (np.full((2, 5), 1.5), np.zeros((2, 5), bool), "1.5"),
        (np.zeros((2, 5)), np.zeros((2, 5), int), "expected bool"),
    ],
)
def test_a_recording_that_makes_no_sense_is_refused(margins, correct, said):
    with pytest.raises(InputError, match=said):
        Recording(margins, correct)


def test_unlabelled_samples_are_refused_and_labelled_ones_compared():
    margins, predictions = np.full((2, 3), 0.5), np.array([[0, 1, 2], [0, 0, 0]])
    found = Recording.from_predictions(margins, predictions, np.array([0, 1, 0]))
    assert found.correct.tolist() == [[True, True, False], [True, False, True]]
    with pytest.raises(InputError, match=r"2 of 3 samples have no label \(the first is sample 1\)"):
        Recording.from_predictions(margins, predictions, np.array([0, -1, -1]))
    with pytest.raises(InputError, match="do not fit"):
        Recording.from_predictions(margins, predictions, np.array([0, 1]))
    with pytest.raises(InputError, match="empty"):
        Recording.from_predictions(np.zeros((2, 0)), np.zeros((2, 0), int), np.array([], dtype=int))


def test_a_recording_cannot_be_changed_from_outside():
    margins = np.full((1, 3), 0.5)
    found = Recording(margins, np.ones((1, 3), bool))
    margins[:] = 0.9
    assert found.margins.max() == 0.5
    with pytest.raises(ValueError, match="read-only"):
        found.correct[0, 0] = False


def test_margins_that_are_all_zero_make_no_plan():
    with pytest.raises(InputError, match="margin 0 at every step"):
        make_plan(Recording(np.zeros((2, 5)), np.ones((2, 5), bool)), 0.05, 0.05, 1200)


@pytest.mark.parametrize("n_grid", [0, -1, module.N_GRID_MAX + 1])
def test_a_grid_of_odd_size_is_refused(n_grid):
    with pytest.raises(UsageError, match=str(n_grid)):
        make_plan(plausible(100), n_grid=n_grid)


def test_planning_and_testing_on_the_same_samples_is_refused():
    samples = plausible(300)
    with pytest.raises(UsageError, match="made from the calibration samples"):
        certify(samples, make_plan(samples, 0.05, 0.05, 300, data_sha256="same"), data_sha256="same")


def test_a_plan_of_another_model_is_refused():
    with pytest.raises(UsageError, match="the plan is for model abababababab, the recording for cdcdcdcdcdcd"):
        certify(plausible(300), make_plan(plausible(300, 1), 0.05, 0.05, 300, model_sha256=SHA), model_sha256="cd" * 32)


def test_calibration_samples_that_the_model_was_trained_on_are_refused():
    check_disjoint(["a", "b"], ["c"], "training")
    with pytest.raises(InputError, match="1 of 2 calibration samples are also in the training data"):
        check_disjoint(["a", "b"], ["b", "c"], "training")
