"""Audits on recorded looks of the shipped compact model: a fault planted in the looks turns its row, and five rows are
what a plain computation of another kind gives."""

from __future__ import annotations

import copy
import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from asp_neuro.certify import Recording
from asp_neuro.model import prefix
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.rules import random_orders
from asp_neuro.runtime import deployment
from asp_neuro.studies.audits import choice, classes, exactness, host, information, selective, stopping
from asp_neuro.studies.audits.record import Record, exits, record
from asp_neuro.studies.audits.row import FAILS, HOLDS
from asp_neuro.studies.audits.run import leaks, n_free

N = 200


@pytest.fixture(scope="module")
def looked():
    """The model, scenes, what it looked at in its own order and in a random one, and the certified threshold."""
    deployed = deployment.open_bundle("compact")
    clouds = deployment.clouds_of(deployed, None, "validation", None, N)
    perceiver, scenes = deployed.perceiver, deployed.scenes(clouds)
    order = random_orders(N, 16, 0)
    seen = record(perceiver, scenes, clouds.labels)
    return perceiver, scenes, seen, record(perceiver, scenes, clouds.labels, order), deployed.certificate.threshold


def changed(seen: Record, **arrays: np.ndarray) -> Record:
    return dataclasses.replace(seen, **arrays)


# Exactness


def test_two_looks_in_the_other_order_are_not_the_same_prefix(looked):
    perceiver, scenes, *_ = looked
    one = prefix.streaming(perceiver, scenes[:8], ExitRule())
    other = copy.deepcopy(one)
    other.states[4], other.states[5] = other.states[5], other.states[4]
    assert exactness.streaming([(one, one)]).verdict == HOLDS
    assert exactness.streaming([(one, other)]).verdict == FAILS


def test_a_leak_that_is_forgotten_once_leaves_the_drift_bound(looked):
    """At one look of one scene the membrane keeps what it had before the leak: a hundredth of it."""
    perceiver, _, seen, *_ = looked
    membrane = seen.membrane.copy()
    membrane[9, 17] += membrane[8, 17] // 100
    found = exactness.rounding(perceiver.head, changed(seen, membrane=membrane))
    assert exactness.drift(exactness.rounding(perceiver.head, seen)).verdict == HOLDS
    assert exactness.drift(found).verdict == FAILS


def test_a_guard_that_sees_nothing_proves_what_is_not_so(looked):
    """Rounding moves a spike in a few of 200 clouds; a guard that misses all of them proves too much."""
    perceiver, _, seen, *_ = looked
    found = exactness.rounding(perceiver.head, seen)
    blind = exactness.rounding(perceiver.head, changed(seen, hit=np.zeros_like(seen.hit)))
    assert exactness.preservation(found).verdict == HOLDS
    assert not found.same.all()
    assert exactness.preservation(blind).verdict == FAILS


# Stopping


def test_margins_played_backwards_drift_down(looked):
    *_, seen, _, tau = looked
    solvable = seen.right[-1]
    assert stopping.drift(seen.margins, solvable, exits(seen.margins, tau)).verdict == HOLDS
    back = seen.margins[::-1]
    assert stopping.drift(back, solvable, exits(back, 0.9999)).verdict == FAILS


def test_scenes_that_stand_still_break_the_stopping_law(looked):
    """A third of the scenes that are judged never moves; those that the constants come from all rise."""
    *_, seen, _, tau = looked
    margins = seen.margins.copy()
    one, other = stopping.halves(N, 0)
    margins[:, one] = np.linspace(0.6, 0.9, 16)[:, None]
    margins[:, other[::3]] = 0.05 + 0.001 * np.arange(16)[:, None]
    assert stopping.law(margins, seen.right[-1], exits(margins, tau)).verdict == FAILS
    assert stopping.law(seen.margins, seen.right[-1], exits(seen.margins, tau)).verdict != FAILS


def test_a_threshold_that_nobody_reaches_spends_every_budget(looked):
    *_, seen, _, tau = looked
    strict = exits(seen.margins, 0.9999)
    assert stopping.censored(seen.right[-1], exits(seen.margins, tau)).verdict != FAILS
    assert stopping.censored(seen.right[-1], strict).verdict == FAILS
    assert stopping.mean_exit(strict, 16).verdict == FAILS


def test_exits_in_the_middle_have_one_mode(looked):
    *_, seen, _, tau = looked
    late = exits(seen.margins, tau)
    middle = dataclasses.replace(
        late, step=np.clip(np.random.default_rng(0).normal(7, 2, N).round(), 0, 15).astype(int)
    )
    assert stopping.two_modes(middle, 16).verdict == FAILS
    apart = dataclasses.replace(late, step=np.where(np.arange(N) % 3 == 0, 15, 1))
    assert stopping.two_modes(apart, 16).verdict == HOLDS


def test_looks_after_the_answer_is_known_are_more_than_needed(looked):
    *_, seen, _, _ = looked
    known = seen.right.copy()
    known[2:] = known[-1]  # from the third look on nothing changes
    assert stopping.capacity(known.astype(float), exits(seen.margins, 0.9999)).verdict == FAILS


# Promises and probabilities


def test_a_threshold_by_the_counted_risk_alone_breaks_promises(looked):
    """No bound and no walk: the loosest threshold whose errors on the drawn scenes are few enough."""
    rng = np.random.default_rng(0)
    margins = rng.random((1, 600))
    recording = Recording(margins, rng.random((1, 600)) >= 0.10 * (1.0 - margins))

    def counted(drawn: Recording, alpha: float, delta: float, seed: int) -> float | None:
        grid = np.unique(drawn.margins)[::-1]
        wrong = np.array([(~drawn.correct & (drawn.margins > tau)).sum() for tau in grid])
        taken = np.array([max((drawn.margins > tau).sum(), 1) for tau in grid])
        return float(grid[np.flatnonzero(wrong / taken <= alpha)[-1]])

    assert selective.risk(recording, counted, "by counting", 0.04, repeats=100).verdict == FAILS
    assert selective.risk(recording, selective.ours, "ours", 0.04, repeats=100).verdict != FAILS


def test_logits_that_are_sharpened_before_the_exit_boast(looked):
    *_, seen, _, tau = looked
    stop = exits(seen.margins, tau)
    sharp = seen.logits.copy()
    sharp[:-1] *= 6.0
    sharp[:-1, ::2] = np.roll(sharp[:-1, ::2], 1, axis=-1)  # and half of them is for another class
    loud = changed(seen, logits=sharp)
    rows = selective.calibration(loud.probabilities, seen.truth, stop)
    assert [row.verdict for row in rows] == [FAILS, FAILS, FAILS]


# Choices


def test_a_place_taken_again_at_the_last_look_is_seen(looked):
    *_, seen, _, _ = looked
    place = seen.place.copy()
    place[-1, -1] = place[-2, -1]
    assert choice.masked(seen.place).verdict == HOLDS
    assert choice.masked(place).verdict == FAILS
    assert choice.unmasked(seen.place, 16).verdict == FAILS  # a mask that could not be switched off


def test_a_mask_that_changes_nothing_is_no_dissociation(looked):
    *_, seen, _, tau = looked
    stop = exits(seen.margins, tau)
    same = choice.dissociation((seen.score, seen.score), (stop, stop))
    assert [row.verdict for row in same] == [FAILS, FAILS]


def test_scores_of_another_scene_do_not_explain_the_choices(looked):
    *_, seen, _, _ = looked
    assert choice.gumbel(seen.scores, seen.free, seen.place).verdict == HOLDS
    swapped = np.roll(seen.scores, 1, axis=1)
    assert choice.gumbel(swapped, seen.free, seen.place).verdict == FAILS


def test_an_order_behind_chance_is_not_ahead(looked):
    *_, seen, chance, _ = looked
    assert choice.ahead(seen.score, chance.score).verdict == HOLDS
    assert choice.ahead(chance.score, seen.score).verdict == FAILS


def test_a_training_that_shuns_what_the_other_takes_disagrees(looked):
    *_, seen, _, _ = looked
    free = n_free(seen.place, 16)
    shunning = np.where(np.arange(16)[:, None] == 15, seen.place, np.roll(seen.place, -1, axis=0))
    assert choice.agreement([seen.place], [shunning], [free]).verdict == FAILS


# What the beliefs know


def test_a_belief_that_lost_the_first_looks_is_not_sufficient(looked):
    """From the fourth look on the belief is that of another scene; the drives still know."""
    *_, seen, _, _ = looked
    belief = seen.belief.copy()
    belief[3] = belief[3][np.random.default_rng(0).permutation(N)]
    assert information.sufficiency(changed(seen, belief=belief)).verdict == FAILS
    assert information.sufficiency(seen).verdict != FAILS


def test_a_look_that_tells_all_at_last_breaks_diminishing_returns(looked):
    *_, seen, _, _ = looked
    belief = seen.belief.copy()
    belief[:5] = np.random.default_rng(0).normal(size=belief[:5].shape)
    assert information.returns(changed(seen, belief=belief)).verdict == FAILS


def test_orders_that_changed_names_break_the_amortisation(looked):
    *_, seen, chance, _ = looked
    assert information.amortisation({"learned": seen, "random": chance}, seen).verdict == HOLDS
    assert information.amortisation({"learned": chance, "random": seen}, seen).verdict == FAILS


def test_a_read_out_of_other_scenes_is_no_log_posterior(looked):
    *_, seen, _, _ = looked
    assert information.bayes(seen).verdict == HOLDS
    other = changed(seen, logits=np.roll(seen.logits, 1, axis=1))
    assert information.bayes(other).verdict != HOLDS
    meek = changed(seen, logits=seen.logits / np.abs(seen.logits).max(axis=-1, keepdims=True) ** 2)
    assert information.bayes(meek).verdict == FAILS  # the surer it should be, the less it says


def test_evidence_that_comes_in_any_order_fits_no_leak(looked):
    perceiver, _, seen, *_ = looked
    rng = np.random.default_rng(0)
    mixed = np.stack([seen.drive_int[:, rng.permutation(N)][t] for t in range(16)])
    assert information.leak(changed(seen, drive_int=mixed), leaks(perceiver.head)).verdict == FAILS
    kept = np.repeat(seen.drive_int[:1], 16, axis=0)  # and one that never ends
    assert information.leak(changed(seen, drive_int=kept), leaks(perceiver.head)).verdict == FAILS


# Host and classes


def test_places_taken_by_size_do_not_stand_for_all():
    """One place in sixteen lies far away, and is always taken first."""
    embeddings = np.random.default_rng(0).normal(0.0, 0.01, (N, 16, 4))
    embeddings[:, 5] += 1.0
    first = np.argsort(-embeddings[:, :, 0], axis=1)
    fair = random_orders(N, 16, 0)
    assert host.lazy(embeddings, fair, fair).verdict == HOLDS
    ranked = np.sort(np.random.default_rng(1).choice([0.0, 1.0], (400, 64, 1)), axis=1)[:, ::-1]
    assert host.lazy(ranked, np.tile(np.arange(64), (400, 1)), np.tile(np.arange(64), (400, 1))).verdict == FAILS
    assert host.deviations(embeddings, first)[0].min() > 0.9


def test_descriptors_that_were_better_before_are_a_failure(looked):
    *_, seen, chance, _ = looked
    assert host.descriptors(seen.score[3], chance.score[3], 4, "random order").verdict == HOLDS
    assert host.descriptors(chance.score[3], seen.score[3], 4, "turned").verdict == FAILS


def test_hard_classes_that_exit_first_and_beliefs_that_scatter_are_found(looked):
    *_, seen, _, tau = looked
    ease = classes.class_means(seen.right.mean(axis=0), seen.truth, 8)
    stop = exits(seen.margins, tau)
    upside = dataclasses.replace(stop, step=np.rint(15 * ease[seen.truth]).astype(int))
    row = classes.difficulty(seen.right, seen.truth, upside, 8)
    assert row.verdict == FAILS
    assert row.measured < -0.5
    assert classes.separation(seen.belief, seen.truth).verdict == HOLDS
    belief = seen.belief.copy()
    belief[4] = belief[4][np.random.default_rng(0).permutation(N)]
    assert classes.separation(belief, seen.truth).verdict == FAILS


# By another way


def test_five_rows_are_what_a_plain_computation_gives(looked):
    """Loops and other libraries, scene by scene: drift, mean exit, ECE and Brier score, revisits, silhouette."""
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    *_, seen, _, tau = looked
    stop = exits(seen.margins, tau)
    steps, looks, exact = [], [], []
    for i in range(N):
        path = [float(m) for m in seen.margins[:, i]]
        last = next((t for t, m in enumerate(path) if m > tau), 15)
        looks.append(last + 1)
        if seen.logits[-1, i].argmax() == seen.truth[i]:
            steps += [after - before for before, after in pairwise(path[: last + 1])]
        shifted = np.exp(seen.logits[last, i] - seen.logits[last, i].max())
        exact.append(shifted / shifted.sum())
    told = np.array(exact)
    assert stopping.drift(seen.margins, seen.right[-1], stop).measured == pytest.approx(np.mean(steps), abs=1e-12)
    assert stopping.mean_exit(stop, 16).measured == pytest.approx(np.mean(looks), abs=1e-12)
    ece, _, brier = selective.calibration(seen.probabilities, seen.truth, stop)
    sure, right = told.max(axis=1), told.argmax(axis=1) == seen.truth
    bins = [(sure >= b / 15) & ((sure < (b + 1) / 15) | (b == 14)) for b in range(15)]
    assert ece.measured == pytest.approx(sum(abs((sure - right)[at].sum()) for at in bins) / N, abs=1e-6)
    truth = np.eye(8)[seen.truth]
    assert brier.measured == pytest.approx(np.mean([((p - y) ** 2).sum() for p, y in zip(told, truth)]), abs=1e-6)
    again = [len(seen.place[:, i]) - len(set(seen.place[:, i].tolist())) for i in range(N)]
    assert choice.masked(seen.place).measured == sum(again)
    expected = metrics.silhouette_score(seen.belief[4], seen.truth)
    assert classes.separation(seen.belief, seen.truth).measured == pytest.approx(expected, abs=1e-9)
