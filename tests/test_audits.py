"""Audits: every row holds where the theory does and fails where a violation is planted, on small records."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import specs

from asp_neuro.certify import Recording
from asp_neuro.errors import InputError
from asp_neuro.model import prefix
from asp_neuro.model.exit import ExitRule
from asp_neuro.report import to_json
from asp_neuro.studies.audits import (
    choice,
    classes,
    exactness,
    host,
    information,
    intervals,
    probes,
    selective,
    stopping,
)
from asp_neuro.studies.audits.record import Exits, Record, exits, record
from asp_neuro.studies.audits.row import FAILS, HOLDS, UNCLEAR, Row, above, at_most, text
from asp_neuro.studies.audits.run import (
    Audited,
    Pair,
    choices_along,
    leaks,
    n_free,
    quarter_turn,
    rows_of,
    told,
    with_descriptors_of,
)

N, T, C = 240, 8, 4
ROOT = Path(__file__).parents[1]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def stops(step: np.ndarray, crossed: np.ndarray | None = None, tau: float = 0.5) -> Exits:
    return Exits(tau, step, np.ones(len(step), dtype=bool) if crossed is None else crossed)


@pytest.fixture(scope="module")
def small():
    """A small random network, its scenes and its record at full budget."""
    perceiver = specs.random_perceiver(rng(3))
    scenes = perceiver.scenes(specs.random_clouds(rng(1), 24))
    return perceiver, scenes, record(perceiver, scenes, rng(2).integers(0, 4, 24))


# Rows and intervals


def test_verdicts_by_hand():
    assert [above(0.1, 0.2, 0.0), above(-0.2, -0.1, 0.0), above(-0.1, 0.1, 0.0)] == [HOLDS, FAILS, UNCLEAR]
    assert [at_most(0.0, 0.1, 0.1), at_most(0.2, 0.3, 0.1), at_most(0.0, 0.3, 0.1)] == [HOLDS, FAILS, UNCLEAR]


def test_intervals_by_hand():
    assert intervals.share(0, 59) == pytest.approx((0.0, 0.0, 1 - 0.025 ** (1 / 59)))
    assert intervals.share(59, 59)[1] == pytest.approx(0.025 ** (1 / 59))
    assert intervals.mean(np.array([0.0, 2.0])) == pytest.approx((1.0, 1.0 - 1.96, 1.0 + 1.96), abs=1e-3)
    assert intervals.ratio(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == (1.0, 1.0, 1.0)


def test_rank_correlation_is_that_of_scipy():
    from scipy.stats import spearmanr

    one, other = rng().integers(0, 9, 60), rng(1).integers(0, 9, 60)
    assert intervals.rank_correlation(one, other) == pytest.approx(spearmanr(one, other).statistic)
    assert intervals.rank_correlation(one, np.zeros(60)) == 0.0


def test_a_record_needs_known_classes(small):
    with pytest.raises(InputError, match="without a known class"):
        dataclasses.replace(small[2], truth=np.full(24, -1))


# Exactness


def test_streaming_equals_prefix_until_a_bit_is_turned(small):
    perceiver, scenes, _ = small
    pair = prefix.streaming(perceiver, scenes, ExitRule()), prefix.recomputing(perceiver, scenes, ExitRule())
    row = exactness.streaming([pair])
    assert (row.verdict, row.measured, row.n) == (HOLDS, 0.0, 24)
    other = copy.deepcopy(pair[1])
    other.states[3].belief.view(np.uint64)[5, 2] ^= np.uint64(1)
    row = exactness.streaming([pair, (pair[0], other)])
    assert (row.verdict, row.measured) == (FAILS, 1.0)


def test_a_missing_observation_differs_in_all_of_its_bits(small):
    perceiver, scenes, _ = small
    trace = prefix.streaming(perceiver, scenes, ExitRule())
    shorter = dataclasses.replace(trace, states=trace.states[:-1])
    assert exactness.bits_between(trace, shorter).differing > 64 * 24


def test_the_drift_bound_and_the_guard_hold_on_a_network(small):
    perceiver, _, seen = small
    found = exactness.rounding(perceiver.head, seen)
    assert exactness.drift(found).verdict == HOLDS
    assert 0.0 < exactness.drift(found).measured <= 1.0
    assert exactness.preservation(found).verdict == HOLDS


def test_a_membrane_beyond_its_bound_is_found(small):
    perceiver, _, seen = small
    moved = dataclasses.replace(seen, membrane=seen.membrane + 40 * (np.arange(seen.n_steps) == 2)[:, None, None])
    assert exactness.drift(exactness.rounding(perceiver.head, moved)).verdict == FAILS


def test_a_membrane_that_moves_before_the_first_leak_is_found(small):
    perceiver, _, seen = small
    moved = dataclasses.replace(seen, membrane=seen.membrane + (np.arange(seen.n_steps) == 0)[:, None, None])
    row = exactness.drift(exactness.rounding(perceiver.head, moved))
    assert (row.verdict, row.measured) == (FAILS, np.inf)


def test_a_proof_of_other_spikes_is_found(small):
    perceiver, _, seen = small
    found = exactness.rounding(perceiver.head, seen)
    same = found.same.copy()
    at = np.argwhere(found.proven)[0]
    same[tuple(at)] = False
    assert exactness.preservation(dataclasses.replace(found, same=same)).verdict == FAILS
    nothing = dataclasses.replace(found, proven=np.zeros_like(found.proven))
    assert exactness.preservation(nothing).verdict == UNCLEAR


# Stopping


def climbing(slope: float, n: int = N, noise: float = 0.05, seed: int = 0) -> np.ndarray:
    """[T, n] margins that rise by `slope` a step."""
    return np.clip(0.1 + slope * np.arange(T)[:, None] + rng(seed).normal(0, noise, (T, n)), 0.0, 1.0)


def test_drift_upwards_holds_and_downwards_fails():
    everyone = np.ones(N, dtype=bool)
    up, down = climbing(0.1), climbing(0.1)[::-1]
    row = stopping.drift(up, everyone, exits(up, 0.5))
    assert row.verdict == HOLDS
    assert row.measured == pytest.approx(0.1, abs=0.01)  # a little more: who rose by chance exits
    assert stopping.drift(down, everyone, exits(down, 0.99)).verdict == FAILS
    assert stopping.drift(up, everyone, stops(np.zeros(N, dtype=int))).verdict == UNCLEAR  # all exit at once


def test_the_stopping_law_holds_and_fails_where_half_of_the_scenes_drift_slower():
    everyone, margins = np.ones(N, dtype=bool), climbing(0.1)
    assert stopping.law(margins, everyone, exits(margins, 0.5)).verdict == HOLDS
    one, other = stopping.halves(N, 0)
    broken = climbing(0.4)
    broken[:, other] = climbing(0.01, len(other), 0.001)
    assert stopping.law(broken, everyone, exits(broken, 0.5)).verdict == FAILS


def test_censored_mass():
    solvable = np.arange(N) >= 40
    row = stopping.censored(solvable, stops(np.full(N, T - 1), np.arange(N) >= 20))
    assert (row.verdict, row.measured) == (HOLDS, 20 / N)
    assert stopping.censored(solvable, stops(np.full(N, T - 1), np.arange(N) >= 80)).verdict == FAILS


def test_one_mode_by_hand():
    assert stopping.one_mode(np.array([1.0, 4.0, 2.0])).tolist() == [1.0, 4.0, 2.0]
    assert stopping.one_mode(np.array([4.0, 1.0, 3.0])).tolist() == [4.0, 2.0, 2.0]
    assert stopping.second_mode(np.array([4.0, 1.0, 3.0])) == 1 / 8


def test_two_modes_are_seen_and_one_is_not():
    two = np.concatenate([rng().integers(0, 3, 160), np.full(80, T - 1)])
    one = np.minimum(rng().geometric(0.4, N) - 1, T - 1)
    assert stopping.two_modes(stops(two), T).verdict == HOLDS
    assert stopping.two_modes(stops(one), T).verdict == FAILS
    assert stopping.two_modes(stops(one[:50]), T).verdict == UNCLEAR


def test_the_mean_exit_is_below_the_budget_or_not():
    assert stopping.mean_exit(stops(rng().integers(0, 4, N)), T).verdict == HOLDS
    assert stopping.mean_exit(stops(np.full(N, T - 1)), T).verdict == FAILS


def anytime(shares: list[float], n: int = 4000) -> np.ndarray:
    """[T, n] bool with these shares right."""
    return np.arange(n) < np.array(shares)[:, None] * n


def test_capacity_by_hand():
    gamma, difficulty, looks = stopping.needed(anytime([0.90 - 0.4 * 0.5**k for k in range(7)] + [0.90], 40000))
    assert (round(gamma, 2), round(difficulty, 1)) == (0.69, 40.0)
    assert looks == np.ceil(np.log(40 / 0.05) / gamma)


def test_capacity_holds_and_fails_where_more_is_taken():
    right = anytime([0.5, 0.7, 0.8, 0.85, 0.875, 0.8875, 0.89, 0.9])
    assert stopping.capacity(right, stops(rng().integers(0, 3, 4000))).verdict == HOLDS
    quick = anytime([0.80, 0.895, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9])
    assert stopping.capacity(quick, stops(np.full(4000, T - 1))).verdict == FAILS
    assert stopping.capacity(anytime([0.9] * 8), stops(np.full(4000, 0))).measured == 1.0


# Promises and probabilities


def recorded(confident_errors: float, n: int = 600) -> Recording:
    """One look; margins are uniform, and so many answers are wrong at every margin."""
    margins = rng(5).random((1, n))
    return Recording(margins, rng(6).random((1, n)) >= confident_errors)


def test_our_promises_hold_where_the_papers_break():
    """Every 19th answer is wrong, the surest first: the risk is above 5 % at every threshold."""
    sure = np.linspace(0.99, 0.01, 1140)
    recording = Recording(sure[None], (np.arange(1140) % 19 != 0)[None])
    assert selective.largest_risk(recording) == 1.0
    ours = selective.risk(recording, selective.ours, "ours", repeats=60)
    papers = selective.risk(recording, selective.papers, "the paper's", repeats=200)
    assert ours.verdict != FAILS
    assert ours.measured < papers.measured
    assert papers.verdict == FAILS


def test_a_rule_that_always_certifies_is_caught():
    row = selective.risk(recorded(0.2), lambda *_: 0.0, "anything goes", repeats=40)
    assert (row.verdict, row.measured) == (FAILS, 1.0)
    kept = selective.risk(recorded(0.0), selective.ours, "ours", repeats=120)
    assert (kept.verdict, kept.measured) == (HOLDS, 0.0)
    assert "nothing could be broken" in kept.note


def test_too_few_scenes_for_a_certificate_are_unclear():
    assert selective.risk(recorded(0.0, 40), selective.ours, "ours", repeats=5).verdict == UNCLEAR


def test_calibration_errors_by_hand():
    confidence, right = np.array([0.95, 0.95, 0.55, 0.55]), np.array([True, False, True, False])
    ece, mce = selective.gaps(confidence, right, bins=10)
    assert (ece, mce) == pytest.approx((0.25, 0.45))
    assert selective.brier(np.array([[0.8, 0.2]]), np.array([1]))[0] == pytest.approx(1.28)


def told_shares(confidence: np.ndarray, right: np.ndarray) -> np.ndarray:
    """[n, 2] probabilities of class 0, which is the answer; the truth is 0 where it is right."""
    return np.stack([confidence, 1 - confidence], axis=1)


def test_calibration_at_the_exit_holds_and_fails_when_early_answers_boast():
    n = 2000
    confidence = rng().uniform(0.55, 1.0, n)
    truth = np.where(rng(1).random(n) < confidence, 0, 1)
    honest = told_shares(confidence, truth == 0)
    boasting = told_shares(np.full(n, 0.99), truth == 0)
    early = stops(np.zeros(n, dtype=int))
    rows = selective.calibration(np.stack([honest, honest]), truth, early)
    assert [row.verdict for row in rows] == [HOLDS, HOLDS, HOLDS]
    rows = selective.calibration(np.stack([boasting, honest]), truth, early)
    assert [row.verdict for row in rows] == [FAILS, FAILS, FAILS]


# Choices


def test_revisits_by_hand():
    place = np.array([[0, 1], [1, 1], [0, 1]])
    assert choice.revisits(place).tolist() == [[False, False], [False, True], [True, True]]
    assert choice.covered(place).tolist() == [2, 1]


def test_the_mask_row_finds_a_revisit():
    place = np.argsort(rng().random((T, N)), axis=0)
    assert choice.masked(place).verdict == HOLDS
    place[4, 7] = place[0, 7]
    assert choice.masked(place).verdict == FAILS
    assert choice.unmasked(np.zeros((T, N), dtype=int), T).verdict == HOLDS
    assert choice.unmasked(np.argsort(rng().random((T, N)), axis=0), T).verdict == FAILS


def test_the_dissociation_of_the_mask():
    good, bad = np.ones((T, N), dtype=bool), rng().random((T, N)) < 0.7
    soon, late = stops(np.full(N, 1) + rng().integers(0, 2, N)), stops(np.full(N, 4) + rng().integers(0, 2, N))
    assert [row.verdict for row in choice.dissociation((good, bad), (soon, late))] == [HOLDS, HOLDS]
    assert [row.verdict for row in choice.dissociation((bad, good), (late, soon))] == [FAILS, FAILS]


def test_sampled_choices_agree_as_the_softmax_says_and_not_if_another_place_was_taken():
    scores, free = rng().normal(size=(T, N, 6)), rng(1).random((T, N, 6)) < 0.8
    free[..., 0] = True
    place = np.where(free, scores, -np.inf).argmax(axis=-1)
    row = choice.gumbel(scores, free, place)
    assert row.verdict == HOLDS
    assert float(row.predicted) == pytest.approx(row.measured, abs=0.02)
    second = np.where(free & (np.arange(6) != place[..., None]), scores, -np.inf).argmax(axis=-1)
    assert choice.gumbel(scores, free, second).verdict == FAILS


def test_the_learned_order_is_ahead_or_not():
    good, bad = rng().random((T, N)) < 0.9, rng(1).random((T, N)) < 0.5
    row = choice.ahead(good, bad)
    assert (row.verdict, row.measured) == (HOLDS, pytest.approx(good[:2].mean() - bad[:2].mean()))
    assert choice.ahead(bad, good).verdict == FAILS
    assert choice.ahead(good, good[:, ::-1]).verdict == UNCLEAR


def test_trainings_agree_where_they_choose_alike_and_not_where_they_choose_by_chance():
    place = np.argsort(rng().random((T, N)), axis=0)
    free = n_free(place, T)
    row = choice.agreement([place], [place], [free])
    assert (row.verdict, row.measured) == (HOLDS, 1.0)
    assert row.null == pytest.approx(np.mean([1 / m for m in range(2, T + 1)]))  # the last place is no choice
    elsewhere = np.roll(place, 1, axis=0)
    assert choice.agreement([place], [elsewhere], [free]).verdict == FAILS
    assert choice.agreement([], [], []).verdict == UNCLEAR


def test_a_policy_along_its_own_path_chooses_that_path(small):
    perceiver, scenes, seen = small
    assert np.array_equal(choices_along(perceiver, scenes, seen.place), seen.place)
    other = specs.random_perceiver(rng(5))
    assert not np.array_equal(choices_along(other, scenes, seen.place), seen.place)


def test_an_audit_with_others_tells_their_agreement(small):
    perceiver, scenes, seen = small
    twin = Audited("small", perceiver, None, None, 0.3, 0.05, 0.05, "as asked", (perceiver,))
    row = next(row for row in rows_of(twin, scenes, seen.truth) if row.theorem == "J.2")
    assert (row.verdict, row.measured) == (HOLDS, 1.0)


# Probes and information


def clustered(spread: float, seed: int = 0, width: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """[N, width] features around a centre for each class, and the classes."""
    truth = rng(seed).integers(0, C, N)
    centres = rng(99).normal(size=(C, width))
    return centres[truth] + rng(seed + 1).normal(0, spread, (N, width)), truth


def test_the_probe_is_that_of_scikit_learn():
    linear = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is not installed")
    features, truth = clustered(1.0)
    other = linear.LogisticRegression(C=1.0 / 3.0, tol=1e-8, max_iter=1000).fit(features, truth)
    ours = probes.softmax(probes.applied(probes.fitted(features, truth, C, 3.0), features))[0]
    assert np.abs(ours - other.predict_proba(features)).max() < 1e-3


def test_information_is_large_for_features_that_tell_and_none_for_noise():
    features, truth = clustered(0.3)
    assert probes.information(features, truth, C, 0).mean() > 0.8 * np.log(C)
    assert probes.information(rng(8).normal(size=(N, 6)), truth, C, 0).mean() < 0.05


def made(belief: np.ndarray, truth: np.ndarray, drive: np.ndarray, logits: np.ndarray | None = None) -> Record:
    """A record of beliefs [T, n, H] and drives [T, n, D]."""
    told = np.zeros((*belief.shape[:2], C)) if logits is None else logits
    place = np.tile(np.arange(len(belief))[:, None], (1, len(truth)))
    return Record(truth, place, told, belief, belief, drive)


def test_a_belief_that_holds_the_evidence_is_sufficient_and_one_that_forgets_is_not():
    features, truth = clustered(0.3)
    drives = features + rng(4).normal(0, 0.3, (T, *features.shape))
    sums = np.cumsum(drives, axis=0)
    assert information.sufficiency(made(sums, truth, drives)).verdict == HOLDS
    forgetful = rng(5).normal(size=sums.shape)
    assert information.sufficiency(made(forgetful, truth, drives)).verdict == FAILS


def test_returns_diminish_and_do_not_where_the_last_look_tells_all():
    features, truth = clustered(0.3)
    known = np.stack([features] * T)
    assert information.returns(made(known, truth, known)).verdict == HOLDS
    late = np.concatenate([rng(6).normal(size=(5, N, 6)), known[5:]])
    assert information.returns(made(late, truth, late)).verdict == FAILS


def test_the_learned_order_is_nearer_to_the_greedy_one_or_not():
    features, truth = clustered(0.3)
    good, bad = np.stack([features] * T), np.stack([features + rng(7).normal(0, 2.0, features.shape)] * T)
    best, worse = made(good, truth, good), made(bad, truth, bad)
    assert information.amortisation({"learned": best, "random": worse}, best).verdict == HOLDS
    assert information.amortisation({"learned": worse, "random": best}, best).verdict == FAILS


def test_the_read_out_ranks_as_summed_evidence_does_or_not():
    features, truth = clustered(1.5)
    drives = np.stack([features + rng(s).normal(0, 0.5, features.shape) for s in range(T)])
    probe = probes.logits(np.cumsum(drives, axis=0)[1], truth, C, 3)
    logits = np.stack([probe] * T)
    assert information.bayes(made(drives, truth, drives, logits)).verdict == HOLDS
    noise = rng(1).normal(size=logits.shape)
    assert information.bayes(made(drives, truth, drives, noise)).verdict == FAILS


def test_the_matched_leak_is_the_correlation_of_the_evidence():
    told = np.empty((40, 400))
    told[0] = rng().normal(size=400)
    for t in range(1, 40):
        told[t] = 0.8 * told[t - 1] + 0.6 * rng(t).normal(size=400)
    assert information.matched_leak(told) == pytest.approx(0.8, abs=0.02)


def test_leaks_that_fit_the_evidence_hold_and_others_fail():
    features, truth = clustered(1.0)
    drives, noise = np.empty((T, *features.shape)), rng(2).normal(size=(T, *features.shape))
    drives[0] = noise[0]
    for t in range(1, T):
        drives[t] = 0.9 * drives[t - 1] + np.sqrt(1 - 0.81) * noise[t]
    seen = made(drives, truth, drives + clustered(0.01)[0] * 0.3)
    assert information.leak(seen, np.linspace(0.5, 0.99, 50)).verdict == HOLDS
    assert information.leak(seen, np.linspace(0.01, 0.2, 50)).verdict == FAILS


# Host and classes


def test_running_means_stay_within_the_bound_and_a_biased_order_does_not():
    embeddings = rng().normal(size=(60, 64, 5))
    order = np.argsort(rng(1).random((60, 64)), axis=1)
    assert host.lazy(embeddings, order[:, :16], order[:, :16]).measured == 0.0
    halves = np.where(np.arange(64) < 32, -1.0, 1.0)[None, :, None] * np.ones((60, 1, 5))
    biased = np.tile(np.arange(64), (60, 1))
    row = host.lazy(np.tile(halves, (4, 1, 1)), np.tile(biased, (4, 1)), np.tile(order, (4, 1)))
    assert row.verdict == FAILS
    shuffled = np.argsort(rng(2).random((240, 64)), axis=1)
    assert host.lazy(np.tile(halves, (4, 1, 1)), shuffled, shuffled).verdict == HOLDS


def test_stale_descriptors_cost_or_do_not():
    fresh, stale = rng().random(N) < 0.95, rng().random(N) < 0.5
    assert host.descriptors(fresh, stale, 4, "turned").verdict == HOLDS
    assert host.descriptors(stale, fresh, 4, "turned").verdict == FAILS


def test_four_quarter_turns_are_none(small):
    scenes = turned = small[1]
    for _ in range(4):
        assert len(turned) == len(scenes)
        turned = quarter_turn(turned)
    assert np.array_equal(turned.points, scenes.points)
    assert not np.array_equal(quarter_turn(scenes).points, scenes.points)


def test_descriptors_of_the_scene_itself_change_nothing(small):
    perceiver, scenes, seen = small
    same = record(with_descriptors_of(perceiver), Pair(scenes, scenes), seen.truth)
    other = record(with_descriptors_of(perceiver), Pair(scenes, quarter_turn(scenes)), seen.truth)
    assert np.array_equal(same.logits, seen.logits)
    assert not np.array_equal(other.place, seen.place)


def test_exits_follow_the_difficulty_of_classes_or_not():
    truth = np.arange(960) % 8
    right = rng().random((T, 960)) >= truth / 10
    late = np.minimum(truth + rng(1).integers(0, 2, 960), T - 1)
    assert classes.difficulty(right, truth, stops(late), 8).verdict == HOLDS
    assert classes.difficulty(right, truth, stops(T - 1 - late), 8).verdict == FAILS


def test_silhouettes_by_hand():
    points, names = np.array([[0.0], [1.0], [10.0], [11.0]]), np.array([0, 0, 1, 1])
    assert classes.silhouettes(points, names) == pytest.approx([1 - 1 / 10.5, 1 - 1 / 9.5, 1 - 1 / 9.5, 1 - 1 / 10.5])


def test_beliefs_come_together_or_fall_apart():
    tight, truth = clustered(0.2)
    loose = rng(3).normal(size=tight.shape)
    steps = np.stack([loose, loose, tight, tight, tight, tight])
    assert classes.separation(steps, truth).verdict == HOLDS
    assert classes.separation(steps[::-1], truth).verdict == FAILS


# The whole


def test_all_rows_of_a_small_network(small):
    perceiver, scenes, seen = small
    audited = Audited("small", perceiver, None, None, 0.3, 0.05, 0.05, "as asked")
    rows = rows_of(audited, scenes, seen.truth)
    assert len(rows) == 30
    assert len({row.claim for row in rows}) == 30
    assert {row.verdict for row in rows} <= {HOLDS, FAILS, UNCLEAR}
    assert all(np.isfinite(v) for row in rows for v in (row.measured, row.low, row.high, row.null) if v is not None)
    assert rows[0].verdict == rows[1].verdict == HOLDS
    assert "carrying the state" in text(rows)


def test_leaks_are_those_from_one_observation_to_the_next(small):
    head = small[0].head
    assert np.array_equal(leaks(head), head.layers[-1].lambda_int / 4096)


def test_the_verb_prints_rows_and_is_strict_when_asked(cli, monkeypatch):
    from asp_neuro.studies.audits import run as audits

    row = Row("a claim", "S0", "0", 1.0, None, None, None, None, FAILS, 4)
    monkeypatch.setattr(audits, "rows_of", lambda *_: [row])
    said = cli("audit", "compact", "--limit", "4", "--json")
    assert said.code == 0
    keys = {"claim", "theorem", "predicted", "measured", "low", "high", "null", "paper", "verdict"}
    assert keys <= said.json["rows"][0].keys()
    assert (said.json["n"], said.json["fails"], said.json["split"]) == (4, 1, "test")
    assert cli("audit", "compact", "--limit", "4", "--strict").code == 1
    assert cli("audit", "compact", "--limit", "3").code == 2
    assert "a claim" in told(said.json)
    assert to_json(said.json)


def test_a_checkpoint_is_audited_as_the_network_that_it_exports(monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed")
    from asp_neuro.learn import checkpoint
    from asp_neuro.studies.audits.run import opened

    bundle, trained = opened("compact"), opened(checkpoint.find("compact"))
    scenes = bundle.perceiver.scenes(specs.random_clouds(rng(), 3, 1024))
    one, other = (record(a.perceiver, scenes, np.zeros(3, dtype=int)) for a in (bundle, trained))
    assert np.array_equal(one.logits, other.logits)
    assert trained.tau == 0.3
    assert bundle.tau != 0.3


def test_a_checkpoint_of_images_is_audited_as_it_is():
    """Nothing has to be exported first; digits that the package draws stand in for data."""
    pytest.importorskip("torch", reason="torch is not installed")
    from asp_neuro.studies.audits.run import opened, samples_of

    audited = opened(ROOT / "train/checkpoints/clutter.pt")
    images = samples_of(audited, "strokes", None, "validation", 3)
    assert images.inputs.shape == (3, 60, 60)
    assert (images.labels >= 0).all()
    seen = record(audited.perceiver, audited.perceiver.scenes(images.inputs), images.labels)
    assert seen.right.shape == (6, 3)
