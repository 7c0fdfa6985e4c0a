"""A promise over named conditions: valid by simulation, planned with reasons, told as it is."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from asp_neuro.certify import (
    Condition,
    Recording,
    Walk,
    binomial_cdf,
    certify,
    cover,
    exit_rule,
    make_plan,
    promise,
    tallies,
    walk,
    walk_all,
    why_void,
)
from asp_neuro.errors import UsageError
from asp_neuro.model.exit import ExitReason
from asp_neuro.runtime import deployment, takes
from asp_neuro.scenes.conditions import KINDS, named

FOG, RAIN = Condition("fog", "noise", 0.1, 0), Condition("rain", "strewn", 0.1, 0)


def pool(rng: np.random.Generator, n: int, risk: float) -> Recording:
    """One look; the margin says nothing about being right: the risk is the same at every threshold."""
    margins = rng.random((1, n))
    return Recording(margins, rng.random((1, n)) >= risk)


def test_a_test_passes_if_it_passes_under_each_condition():
    rng = np.random.default_rng(0)
    made = make_plan(pool(rng, 400, 0.01), n_calibration=400, n_grid=20)
    easy, hard = (tallies(pool(rng, 400, risk), np.array(made.grid)) for risk in (0.005, 0.03))
    both = walk_all([(easy.errors, easy.accepted), (hard.errors, hard.accepted)], made)
    alone = [walk(one.errors, one.accepted, made) for one in (easy, hard)]
    assert (both.p_value == np.maximum(alone[0].p_value, alone[1].p_value)).all()
    assert (both.passed <= (alone[0].passed & alone[1].passed)).all()
    again = walk_all([(easy.errors, easy.accepted)] * 2, made)
    assert all((a == b).all() for a, b in zip(again, alone[0]))


def smallest_p(counts, made):
    """Planted fault: a test passes if it passes under any condition."""
    p_value = np.min([binomial_cdf(errors, accepted, made.alpha) for errors, accepted in counts], axis=0)
    level = np.cumsum(np.array(made.shares))[:, None] * made.delta + np.zeros_like(p_value)
    return Walk(p_value, level, p_value <= level)


@pytest.mark.parametrize("shared", [False, True], ids=["independent copies", "copies of the same clouds"])
def test_the_promise_is_kept_under_every_condition(shared):
    """2,000 calibrations where clean clouds are easy and the copies have a risk just above alpha: at most delta."""
    rng = np.random.default_rng(7)
    n, repeats, delta = 600, 2000, 0.05
    made = make_plan(pool(rng, 500, 0.01), 0.05, delta, n, n_grid=20)
    grid = np.array(made.grid)

    def counts(risk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Errors and accepted [G, repeats] for samples [repeats, n] of margins and luck."""
        accepted = np.stack([(margins > tau).sum(axis=1) for tau in grid])
        wrong = luck < risk
        return np.stack([((margins > tau) & wrong).sum(axis=1) for tau in grid]), accepted

    margins, luck = rng.random((repeats, n)), rng.random((repeats, n))
    easy = counts(0.01)
    if not shared:
        margins, luck = rng.random((repeats, n)), rng.random((repeats, n))
    hard = counts(0.051)
    bound = delta + 3 * math.sqrt(delta * (1 - delta) / repeats)
    assert walk_all([easy, hard], made).passed.any(axis=0).mean() <= bound
    assert smallest_p([easy, hard], made).passed.any(axis=0).mean() > 0.9
    assert walk_all([easy, counts(0.02)], made).passed.any(axis=0).mean() > 0.9  # it can pass, too


def test_the_table_stands_for_the_hardest_condition():
    rng = np.random.default_rng(3)
    clean, fog = pool(rng, 800, 0.01), pool(rng, 800, 0.025)
    made = make_plan(clean, n_calibration=800, cover={FOG: fog})
    found = certify(clean, made, cover={FOG: fog}, points={FOG: 500})
    assert found.certified
    assert [one.condition for one in found.covers] == [FOG]
    for row, errors, accepted in zip(found.table, found.covers[0].errors, found.covers[0].accepted):
        worst = max(binomial_cdf(row.errors, row.accepted, 0.05), binomial_cdf(errors, accepted, 0.05))
        assert row.p_value == worst
        assert (row.bound <= 0.05) == row.passed
    assert "under each of these conditions: fog" in promise(found)
    assert exit_rule(found).fewest == 500
    assert exit_rule(certify(clean, make_plan(clean, n_calibration=800))).fewest is None
    assert exit_rule(certify(clean, make_plan(clean, n_calibration=800), fewest=700)).fewest == 700


def test_a_certificate_that_lost_a_condition_is_void():
    rng = np.random.default_rng(3)
    clean, fog = pool(rng, 800, 0.01), pool(rng, 800, 0.02)
    made = make_plan(clean, n_calibration=800, cover={FOG: fog})
    found = certify(clean, made, cover={FOG: fog})
    assert why_void(found, made, "") is None
    assert "does not cover the conditions" in why_void(dataclasses.replace(found, covers=()), made, "")
    worse = tuple(min(8 * k + 9, n) for k, n in zip(found.covers[0].errors, found.covers[0].accepted))
    edited = dataclasses.replace(found, covers=(dataclasses.replace(found.covers[0], errors=worse),))
    assert "its own table gives" in why_void(edited, made, "")
    with pytest.raises(UsageError, match="the plan covers the conditions fog; the recordings are of none"):
        certify(clean, made)


def test_conditions_are_left_out_for_a_reason():
    rng = np.random.default_rng(5)
    n = 600
    margins = rng.random((1, n))
    clean = Recording(margins, np.ones((1, n), dtype=bool))
    same = Recording(margins, rng.random((1, n)) > 0.005)
    hopeless = Recording(margins, rng.random((1, n)) > 0.4)
    timid = Recording(0.05 * margins, np.ones((1, n), dtype=bool))
    costly = Recording(margins, (rng.random((1, n)) > 0.2) | (margins > 0.5))
    kept, dropped = cover.choose(clean, {FOG: same, RAIN: hopeless}, 0.05, 0.05, n)
    assert kept == (FOG,)
    assert dropped == ("rain: no threshold is likely to keep the promise under it",)
    kept, dropped = cover.choose(clean, {FOG: costly, RAIN: same}, 0.05, 0.05, n)
    assert kept == (RAIN,)
    assert "would lose their certificate for it" in dropped[0]
    assert cover.choose(clean, {FOG: costly}, 0.05, 0.05, n, cost=0.9)[0] == (FOG,)
    strict = Recording(np.clip(margins, 0.3, 1.0), np.ones((1, n), dtype=bool))
    kept, dropped = cover.choose(strict, {FOG: timid}, 0.05, 0.05, n)
    assert kept == ()
    assert len(dropped) == 1


def test_what_a_user_types_is_a_condition_or_a_refusal():
    assert named("partial", 1024) == named("partial:0.5", 1024)
    assert (named("strewn:0.01", 1024).amount, named("thin", 1024).amount) == (0.01, 512)
    assert named("strewn:0.01", 1024).name == "1 % strewn points"
    assert len({named(kind, 1024).name for kind in KINDS}) == len(KINDS)
    for text, message in (
        ("fog", "there is no condition 'fog'.*known: partial"),
        ("strewm", "strewn"),
        ("turned:3", "takes no amount"),
        ("noise:much", "is not a number"),
        ("strewn:2", "outside 0 .. 1"),
        ("thin:5000", "outside 1 .. 1024"),
    ):
        with pytest.raises(UsageError, match=message):
            named(text, 1024)


@pytest.fixture(scope="module")
def compact():
    deployed = deployment.open_bundle("compact")
    sizes = {"train": 400, "validation": 120, "calibration": 300}
    return deployed, {name: deployment.clouds_of(deployed, None, name, None, n) for name, n in sizes.items()}


@pytest.fixture(scope="module")
def covering(compact, tmp_path_factory):
    deployed, splits = compact
    found = deployment.certify_on(deployed, splits, alpha=0.1, cover=("thin", "rotated"))
    return deployment.store(deployed, found, tmp_path_factory.mktemp("bundle") / "cover.net")


def test_a_bundle_says_what_it_covers_and_what_it_does_not(covering):
    found, plan = covering.certificate, covering.plan
    n = covering.chunking.n_points
    assert [one.condition.kind for one in found.covers] == ["thin"]
    assert found.covers[0].points == n // 2
    assert [line.split(":")[0] for line in plan.dropped] == ["turned in SO(3)"]
    rule, sentence = deployment.exit_rule(deployment.open_bundle(covering.path))
    assert f"{n // 2} points" in sentence
    assert rule.fewest == n // 2
    assert covering.familiarity.known == ("clean", f"{n // 2} points")


def test_clouds_with_as_few_points_as_are_covered_keep_the_promise(covering, compact):
    rule = deployment.exit_rule(covering)[0]
    thin, some = takes.condition("thin", covering.bundle.model), compact[1]["calibration"].subset(np.arange(30))
    few = takes.copies(some, thin, "train")
    report, answers = deployment.run(covering, few, rule)
    assert report["short_share"] == 0.0
    assert any(answer.exit is ExitReason.CERTIFIED for answer in answers)
    fewer = dataclasses.replace(few, points=few.points[:, ::2])
    report, answers = deployment.run(covering, fewer, rule)
    assert report["short_share"] == 1.0
    assert not any(answer.exit is ExitReason.CERTIFIED for answer in answers)


def test_copies_of_splits_are_drawn_apart_and_again_the_same(compact):
    deployed, splits = compact
    turn = takes.condition("turned", deployed.bundle.model)
    some = splits["validation"].subset(np.arange(4))
    one, two = (takes.copies(some, turn, split).points for split in ("validation", "calibration"))
    assert (one != two).any()
    assert (takes.copies(some, turn, "validation").points == one).all()
    assert takes.copies(some, takes.CLEAN, "train") is some


def test_a_condition_named_twice_is_refused(compact):
    deployed, splits = compact
    with pytest.raises(UsageError, match="'turned about up' twice"):
        deployment.certify_on(deployed, splits, cover=("turned", "turned"))
