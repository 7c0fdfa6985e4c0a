"""Promises for dense answers: what bets prove, the planned walk over them, split conformal over shapes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asp_neuro.certify import points as p
from asp_neuro.certify.betting import CAP, betting_p_value, point_weighted
from asp_neuro.errors import InputError, UsageError

ALPHA, DELTA, CALIBRATIONS = 0.05, 0.05, 2000
LIMIT = DELTA + 3 * math.sqrt(DELTA * (1 - DELTA) / CALIBRATIONS)  # 6.5 %


def recording(margins: list[list[float]], wrong: list[list[int]]) -> p.PointRecording:
    """Shapes of different sizes."""
    n = max(map(len, margins))
    full = np.array([row + [0.0] * (n - len(row)) for row in margins])
    bad = np.array([row + [0] * (n - len(row)) for row in wrong], dtype=bool)
    there = np.array([[True] * len(row) + [False] * (n - len(row)) for row in margins])
    return p.PointRecording(full, bad, there)


def pool(n: int, seed: int, hard: float = 0.15, n_points: int = 48) -> p.PointRecording:
    """Shapes of which some are hard as a whole: their points are wrong together."""
    rng = np.random.default_rng(seed)
    margins = rng.beta(3.0, 1.0, size=(n, n_points))
    level = np.where(rng.random((n, 1)) < hard, rng.uniform(0.0, 0.8, (n, 1)), rng.uniform(0.0, 0.15, (n, 1)))
    wrong = rng.random((n, n_points)) < level * (1.2 - margins)
    return p.PointRecording(margins, wrong, np.ones_like(wrong))


# Bets


def test_a_bet_by_hand() -> None:
    # one loss of 0: the stake is min(sqrt(2 ln 20 / 0.25), CAP / 0.95), the wealth 1 + stake * 0.05
    stake = min(math.sqrt(2 * math.log(20) / 0.25), CAP / 0.95)
    assert betting_p_value(np.array([0.0])) == pytest.approx(1 / (1 + stake * 0.05))
    # two: mean 1/4 after the first, variance (1/4 + 1/16) / 2, n = 2
    first = min(math.sqrt(2 * math.log(20) / (2 * 0.25)), CAP / 0.95)
    second = min(math.sqrt(2 * math.log(20) / (2 * (0.25 + 0.0625) / 2)), CAP / 0.95)
    assert betting_p_value(np.array([0.0, 0.0])) == pytest.approx(1 / ((1 + first * 0.05) * (1 + second * 0.05)))
    assert betting_p_value(np.array([1.0, 1.0])) == 1.0
    assert betting_p_value(np.array([0.5]), np.array([False])) == 1.0
    with pytest.raises(ValueError, match=r"from 0.0 to 1.5 must lie in \[0, 1\]"):
        betting_p_value(np.array([0.0, 1.5]))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30))
def test_samples_that_are_not_accepted_might_as_well_not_be_there(given_ones: list[tuple[float, bool]]) -> None:
    losses = np.array([loss for loss, _ in given_ones])
    there = np.array([yes for _, yes in given_ones])
    alone = betting_p_value(losses[there]) if there.any() else 1.0
    assert betting_p_value(losses, there) == pytest.approx(float(alone), rel=1e-12)


LAWS = {
    "rare and whole": lambda rng, shape: (rng.random(shape) < ALPHA).astype(float),
    "always alpha": lambda rng, shape: np.full(shape, ALPHA),
    "common and small": lambda rng, shape: 0.1 * rng.integers(2, size=shape),
    "skewed": lambda rng, shape: rng.beta(0.2, 0.2 * (1 - ALPHA) / ALPHA, size=shape),
}


@pytest.mark.parametrize("law", LAWS)
def test_at_a_mean_of_alpha_a_test_passes_with_at_most_its_level(law: str) -> None:
    found = betting_p_value(LAWS[law](np.random.default_rng(1), (CALIBRATIONS, 300)))
    assert (found <= DELTA).mean() <= LIMIT
    assert (found <= 0.01).mean() <= 0.01 + 3 * math.sqrt(0.01 * 0.99 / CALIBRATIONS)


def test_a_bet_that_sees_its_loss_first_is_caught() -> None:
    # planted fault: the stake follows the loss it is settled with
    losses = LAWS["rare and whole"](np.random.default_rng(1), (CALIBRATIONS, 300))
    stake = np.where(losses > 0.5, 0.0, 0.5)
    found = np.exp(-np.log1p(stake * (ALPHA - losses)).sum(axis=1))
    assert (found <= DELTA).mean() > LIMIT


def hoeffding_bentkus(mean: np.ndarray, n: int, alpha: float) -> np.ndarray:
    from scipy.stats import binom

    m = np.clip(mean, 1e-12, alpha)
    kl = m * np.log(m / alpha) + (1 - m) * np.log((1 - m) / (1 - alpha))
    return np.where(mean >= alpha, 1.0, np.minimum(np.exp(-n * kl), np.e * binom.cdf(np.ceil(n * mean), n, alpha)))


def test_bets_prove_what_a_bound_without_variance_cannot() -> None:
    losses = np.random.default_rng(2).beta(1.0, 1.0 * 0.97 / 0.03, size=(400, 600))  # mean 3 %
    assert (betting_p_value(losses) <= DELTA).mean() > 0.95
    assert (hoeffding_bentkus(losses.mean(axis=1), 600, ALPHA) <= DELTA).mean() < 0.7


def test_the_point_weighted_loss_is_at_most_alpha_where_the_ratio_is() -> None:
    rng = np.random.default_rng(3)
    accepted = rng.random(1000)
    wrong = accepted * rng.random(1000) * 0.2
    for alpha in (0.05, 0.1, 0.3):
        loss = point_weighted(wrong, accepted, alpha)
        assert 0.0 <= loss.min() <= loss.max() <= 1.0
        assert (loss.mean() <= alpha) == (wrong.sum() / accepted.sum() <= alpha)


# What is measured


def test_shares_by_hand() -> None:
    record = recording([[0.9, 0.5, 0.5, 0.1], [0.3]], [[0, 1, 0, 1], [0]])
    found = p.shares(record, np.array([0.95, 0.5, 0.4, 0.0]))
    assert found.accepted.T.tolist() == [[0.0, 0.25, 0.75, 1.0], [0.0, 0.0, 0.0, 1.0]]
    assert found.wrong.T.tolist() == [[0.0, 0.0, 0.25, 0.5], [0.0, 0.0, 0.0, 0.0]]
    assert found.loss()[:, 0].tolist() == [0.0, 0.0, pytest.approx(1 / 3), 0.5]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.05, 0.2, 0.5]))
def test_from_the_threshold_that_a_shape_needs_it_keeps_its_share(seed: int, most: float) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    record = recording([np.round(rng.random(n), 1).tolist()], [rng.integers(2, size=n).tolist()])  # with ties
    needed = float(p.strictest_needed(record, most)[0])
    grid = np.unique(np.append(record.margins, [needed, 0.0]))[::-1]
    loss = p.shares(record, grid).loss()[:, 0]
    stricter = grid >= needed
    assert (loss[stricter] <= most + 1e-12).all()
    if needed > 0.0:  # and any looser one breaks it
        looser = np.array([needed - 1e-6])
        assert p.shares(record, looser).loss()[0, 0] > most


def test_what_a_shape_needs_by_hand() -> None:
    right = recording([[0.9, 0.5]], [[0, 0]])
    assert p.strictest_needed(right, 0.0).tolist() == [0.0]
    late = recording([[0.9, 0.5, 0.4, 0.3]], [[0, 0, 1, 0]])
    assert p.strictest_needed(late, 0.25).tolist() == [0.4]  # 1 of 3 is too many, though 1 of 4 would not be
    assert p.strictest_needed(late, 0.34).tolist() == [0.0]
    with pytest.raises(UsageError, match="must be at least 0 and below 1"):
        p.strictest_needed(late, 1.0)


def test_the_rank_of_split_conformal() -> None:
    needed = np.arange(19) / 100
    assert p.conformal_threshold(needed, 0.05) == 0.18  # the 19th of 19
    assert p.conformal_threshold(needed[:18], 0.05) == p.NOTHING  # the 19th of 18
    assert p.conformal_threshold(needed, 0.5) == 0.09
    assert p.promise_shapes(pool(18, 0), 0.05).holds_nothing
    assert "too few" in p.sentence_b(p.promise_shapes(pool(18, 0), 0.05))


# Are the promises kept? Known truth, repeated calibrations.


def planned(truth: p.PointRecording, risk: str, seed: int, n_grid: int = 20) -> p.PointPlan:
    some = truth.subset(np.random.default_rng(seed).integers(truth.n, size=300))
    return p.plan_points(some, ALPHA, DELTA, 400, n_grid=n_grid, risk=risk)


def chosen(passed: np.ndarray) -> np.ndarray:
    """[G, c] -> the loosest that passed, or -1."""
    any_passed = passed.any(axis=0)
    return np.where(any_passed, len(passed) - 1 - passed[::-1].argmax(axis=0), -1)


def violations(
    truth: p.PointRecording, made: p.PointPlan, seed: int, n: int = 400, n_repeats: int = CALIBRATIONS
) -> tuple[float, float]:
    """Share of calibrations that certify a threshold of too high a risk, and the mean share accepted."""
    found = p.shares(truth, np.array(made.grid))
    losses, counted = p.counted_losses(found, made.alpha, made.risk)
    true_mean = (losses * counted).sum(axis=1) / np.maximum(counted.sum(axis=1), 1)
    rng, broken, accepted = np.random.default_rng(seed), 0, []
    for _ in range(0, n_repeats, 100):
        index = rng.integers(truth.n, size=(100, n))
        walked = p.walk_points(losses[:, index], counted[:, index], made)
        at = chosen(walked.passed)
        broken += int(((at >= 0) & (true_mean[at] > made.alpha)).sum())
        accepted += np.where(at >= 0, found.accepted.mean(axis=1)[at], 0.0).tolist()
    return broken / n_repeats, float(np.mean(accepted))


@pytest.mark.slow
@pytest.mark.parametrize("risk", p.RISKS)
def test_promise_a_is_kept_and_useful(risk: str) -> None:
    truth = pool(20_000, 5, hard=0.15 if risk == p.SHAPES else 0.02)
    broken, accepted = violations(truth, planned(truth, risk, 6), 7)
    assert broken <= LIMIT
    assert accepted > 0.3


@pytest.mark.slow
def test_promise_a_of_points_is_kept_where_little_can_be_proven() -> None:
    truth = pool(20_000, 5)
    assert violations(truth, planned(truth, p.POINTS, 6), 7)[0] <= LIMIT


@pytest.mark.slow
def test_promise_a_is_kept_where_every_threshold_is_just_too_risky_and_the_search_without_a_plan_is_not() -> None:
    rng = np.random.default_rng(8)
    margins = rng.random((20_000, 24))
    bad = rng.random((20_000, 1)) < 0.051  # whole shapes, whatever their margins
    truth = p.PointRecording(margins, np.broadcast_to(bad, margins.shape), np.ones(margins.shape, dtype=bool))
    made = planned(truth, p.SHAPES, 9)
    broken, _ = violations(truth, made, 10)
    assert broken <= LIMIT
    found = p.shares(truth, np.array(made.grid))
    index = np.random.default_rng(10).integers(truth.n, size=(500, 400))
    losses, counted = found.loss()[:, index], (found.accepted > 0.0)[:, index]
    at_any = (betting_p_value(losses, counted, ALPHA, DELTA) <= DELTA).any(axis=0)  # the paper's way
    assert at_any.mean() > LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_promise_b_is_kept(alpha: float) -> None:
    needed = p.strictest_needed(pool(20_000, 11), 0.05)
    rng = np.random.default_rng(12)
    kept = []
    for _ in range(CALIBRATIONS):
        threshold = p.conformal_threshold(needed[rng.integers(len(needed), size=100)], alpha)
        kept.append((needed <= threshold).mean())
    mean = float(np.mean(kept))
    assert mean >= 1 - alpha - 3 * np.std(kept) / math.sqrt(CALIBRATIONS)
    assert mean <= 1 - alpha + 0.06  # and not by accepting next to nothing: one rank in a hundred, and ties


def test_the_wrong_rank_is_caught() -> None:
    # planted fault: the floor of n (1 - alpha) instead of the ceiling of (n + 1)(1 - alpha)
    rng = np.random.default_rng(13)
    needed = rng.random(20_000)
    kept = [np.sort(needed[rng.integers(20_000, size=30)])[math.floor(30 * 0.9) - 1] for _ in range(CALIBRATIONS)]
    assert np.mean(kept) < 0.9 - 3 * np.std(kept) / math.sqrt(CALIBRATIONS)


# What is kept, and what is said


def test_a_plan_and_what_it_certifies_can_be_stored() -> None:
    made = p.plan_points(pool(300, 14), 0.1, DELTA, 600, seed=3)
    assert p.PointPlan.from_dict(made.to_dict()) == made
    found = p.certify_points(pool(600, 15), made)
    assert found.certified
    assert p.PointCertificate.from_dict(found.to_dict()) == found
    assert "on average over shapes" in p.sentence_a(found)
    assert found.risk is not None
    assert found.risk <= 0.1
    assert p.certify_points(pool(600, 15), made) == found  # the order of betting is the plan's
    each = p.promise_shapes(pool(600, 15), 0.2, 0.1)
    assert p.ShapePromise.from_dict(each.to_dict()) == each
    assert "With probability 80 %, at most 10 %" in p.sentence_b(each)
    edited = {**made.to_dict(), "alpha": 0.2}
    with pytest.raises(InputError, match="damaged or edited"):
        p.PointPlan.from_dict(edited)


def test_nothing_is_certified_where_all_is_wrong() -> None:
    bad = pool(300, 16)
    bad = replace(bad, wrong=np.ones_like(bad.wrong))
    found = p.certify_points(bad, p.plan_points(bad, 0.1))
    assert not found.certified
    assert found.threshold is None
    assert p.sentence_a(found) == "Nothing is certified at 10 %: no point is accepted."


def test_the_shapes_that_planned_do_not_certify() -> None:
    made = p.plan_points(pool(100, 17), data_sha256="abc")
    with pytest.raises(UsageError, match="are those that planned"):
        p.certify_points(pool(100, 17), made, data_sha256="abc")


def test_what_does_not_fit_is_refused() -> None:
    good = pool(5, 18)
    with pytest.raises(InputError, match="do not fit"):
        replace(good, wrong=good.wrong[:, :-1])
    with pytest.raises(InputError, match="shape 0 has none"):
        replace(good, there=np.zeros_like(good.there))
    with pytest.raises(InputError, match="margin outside"):
        replace(good, margins=good.margins + 1.0)
    with pytest.raises(InputError, match="all points of 5 shapes have margin 0"):
        p.plan_points(replace(good, margins=np.zeros_like(good.margins)))
    with pytest.raises(UsageError, match=r"risk 'shape'.*did you mean 'shapes'"):
        p.plan_points(good, risk="shape")
    made = p.plan_points(pool(100, 19))
    for change in ({"shares": (1.0,)}, {"start": 1000}, {"grid": made.grid[::-1]}, {"risk": "x"}, {"seed": -1}):
        with pytest.raises(InputError, match="plan: "):
            replace(made, **change)
