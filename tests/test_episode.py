"""Whole episodes: what a verdict promises, closed loop, against the exact replay."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import specs

from asp_neuro.errors import ConfigError, UsageError
from asp_neuro.heads.soft.layer import LayerSpec
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.heads.verdict import hit_place
from asp_neuro.model.episode import play
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.look import answers
from asp_neuro.model.perceiver import Perceiver, really_equal
from asp_neuro.model.stability import Stability
from asp_neuro.scenes.cloud import Chunks


def coarser(layer: LayerSpec, by: int) -> LayerSpec:
    """The same layer with a unit `by` times as large: rounding matters more."""

    def less(values: np.ndarray) -> np.ndarray:
        return np.rint(values / by).astype(np.int64)

    return replace(
        layer,
        weight_int=2 * less(layer.weight_int / 2),
        bias_int=less(layer.bias_int),
        theta_int=less(layer.theta_int),
        theta_fire_int=less(layer.theta_fire_int),
        factor=layer.factor / by,
    )


def coarse_perceiver(rng: np.random.Generator, by: int, scorer: str = "bilinear", mask: bool = True) -> Perceiver:
    spec = specs.random_model(rng, scorer=scorer, mask=mask)
    layers = [coarser(layer, by if index == 0 else 1) for index, layer in enumerate(spec.head.layers)]
    layers[-1] = coarser(layers[-1], by)
    return Perceiver(replace(spec, head=HeadSpec(tuple(layers))))


def some_chunks(rng: np.random.Generator, perceiver: Perceiver, n: int) -> Chunks:
    return perceiver.scenes(specs.random_clouds(rng, n))


def campaign(n_perceivers: int, n_clouds: int, seed: int) -> tuple[Counter, Counter]:
    """Counts of (preserved, really equal), and of what the first doubt was about."""
    rng = np.random.default_rng(seed)
    pairs, doubts = Counter(), Counter()
    for trial in range(n_perceivers):
        scorer = ("bilinear", "bilinear", "bilinear", "geometry", "additive", "belief")[trial % 6]
        perceiver = coarse_perceiver(rng, (1, 4, 16, 40)[trial % 4], scorer, mask=trial % 7 != 0)
        chunks = some_chunks(rng, perceiver, n_clouds)
        rule = ExitRule((None, 0.2, 0.5)[trial % 3], certified=trial % 2 == 0, kappa=0.3 if trial % 5 == 0 else None)
        told, sure = perceiver.answers(chunks, rule), perceiver.replay(chunks, rule)
        for answer, exact in zip(told, sure, strict=True):
            pairs[answer.verdict.preserved, really_equal(answer, exact)] += 1
            doubts[answer.verdict.decision or ("none" if answer.verdict.preserved else "spike")] += 1
    return pairs, doubts


def test_a_preserved_answer_is_the_exact_one():
    pairs, doubts = campaign(n_perceivers=84, n_clouds=50, seed=0)
    n = sum(pairs.values())
    assert pairs[True, False] == 0, pairs
    assert pairs[False, False] > 0.02 * n, pairs
    assert pairs[True, True] > 0.3 * n, pairs
    assert all(doubts[kind] > 0 for kind in ("spike", "chunk", "exit", "class")), doubts


@pytest.mark.soak
def test_a_preserved_answer_is_the_exact_one_in_a_long_campaign():
    pairs, _ = campaign(n_perceivers=840, n_clouds=60, seed=1)
    assert pairs[True, False] == 0, pairs


def test_the_same_campaign_catches_decisions_that_are_not_looked_at(monkeypatch):
    monkeypatch.setattr(Stability, "_decisions", lambda *_: ())
    assert campaign(n_perceivers=84, n_clouds=50, seed=0)[0][True, False] > 0


def test_the_same_campaign_catches_spikes_that_are_not_looked_at(monkeypatch):
    verdicts = Stability.verdicts

    def blind(stability: Stability, played, rule):
        return verdicts(
            stability, played._replace(looks=[look._replace(hit=0 * look.hit) for look in played.looks]), rule
        )

    monkeypatch.setattr(Stability, "verdicts", blind)
    assert campaign(n_perceivers=40, n_clouds=50, seed=0)[0][True, False] > 0


# What a verdict says


@pytest.fixture(scope="module")
def played():
    rng = np.random.default_rng(3)
    perceiver = coarse_perceiver(rng, 16)
    return perceiver, some_chunks(rng, perceiver, 80)


def test_a_verdict_does_not_depend_on_the_batch(played):
    perceiver, chunks = played
    together = perceiver.answers(chunks, ExitRule(0.9))
    alone = [perceiver.answers(chunks[i : i + 1], ExitRule(0.9))[0] for i in range(len(chunks))]
    assert [answer.verdict for answer in together] == [answer.verdict for answer in alone]
    assert {answer.verdict.preserved for answer in together} == {True, False}


def test_the_verdict_names_the_first_hit(played):
    perceiver, chunks = played
    first: dict[int, tuple[int, int, int]] = {}
    for look in perceiver.played(chunks, ExitRule()).looks:
        for at in np.flatnonzero(look.hit):
            first.setdefault(int(look.rows[at]), (look.t, *hit_place(look.hit[at])))
    assert len(first) > 3
    for row, answer in enumerate(perceiver.answers(chunks, ExitRule())):
        verdict = answer.verdict
        if row in first and verdict.decision is None:
            assert (verdict.step, verdict.layer - 1, verdict.neuron) == first[row]
            assert f"neuron {verdict.neuron} of layer {verdict.layer}" in verdict.sentence
        elif row in first:
            assert verdict.step < first[row][0]
        assert verdict.preserved or row in first or verdict.decision is not None


def test_watching_changes_no_answer(played):
    perceiver, chunks = played
    looks = perceiver.played(chunks, ExitRule(0.3)).looks
    plain = answers(looks, perceiver.model.task, ExitRule(0.3))
    watched = perceiver.answers(chunks, ExitRule(0.3))
    assert all(answer.verdict is None for answer in plain)
    for one, other in zip(plain, watched, strict=True):
        assert (one.order, one.exit, one.label, one.margins) == (other.order, other.exit, other.label, other.margins)


def test_a_head_without_guard_leaves_no_verdict(played):
    perceiver, chunks = played
    unguarded = perceiver.head.engine(perceiver.spec.drive_bound())
    told = play(perceiver.story(chunks[:2], ExitRule()), unguarded)
    assert [answer.verdict for answer in told] == [None, None]


def test_a_given_order_is_no_decision(played):
    perceiver, chunks = played
    order = np.tile(np.arange(perceiver.budget), (len(chunks), 1))
    told = perceiver.answers(chunks, ExitRule(), order)
    assert all(answer.verdict.decision != "chunk" for answer in told)
    assert all(answer.order == tuple(range(perceiver.budget)) for answer in perceiver.replay(chunks, None, order))


# The exact replay


def test_recomputing_one_cloud_equals_the_replay_of_all(played):
    perceiver, chunks = played
    sure = perceiver.replay(chunks, ExitRule(0.3))
    for row in (0, 7, 39):
        one = perceiver.replay(chunks[row : row + 1], ExitRule(0.3))[0]
        assert (one.order, one.exit, one.label, one.verdict) == (
            *(sure[row].order, sure[row].exit, sure[row].label),
            sure[row].verdict,
        )


def test_recompute_takes_points():
    rng = np.random.default_rng(5)
    perceiver = specs.random_perceiver(rng)
    cloud = specs.random_clouds(rng, 1)[0]
    answer, exact = perceiver(cloud), perceiver.recompute(cloud)
    assert answer.verdict.preserved
    assert really_equal(answer, exact)
    assert exact.verdict.preserved


def test_equality_is_for_a_replay(played):
    perceiver, chunks = played
    answer = perceiver.answers(chunks[:1])[0]
    with pytest.raises(UsageError, match="recompute"):
        really_equal(answer, replace(answer, verdict=None))


def test_a_moved_spike_is_not_equal_even_if_the_answer_is(played):
    perceiver, chunks = played
    sure = perceiver.replay(chunks)
    moved = [exact for exact in sure if not exact.verdict.preserved]
    assert moved
    assert all("fires differently" in exact.verdict.sentence for exact in moved)
    assert not any(really_equal(exact, exact) for exact in moved)
    assert any(really_equal(answer, exact) for answer, exact in zip(perceiver.answers(chunks), sure, strict=True))


# The budget is not the number of places


@pytest.mark.parametrize("budget", [1, 3])
def test_a_budget_below_the_number_of_places_ends_the_episode(budget):
    rng = np.random.default_rng(8)
    perceiver = specs.random_perceiver(rng, budget=budget)
    assert perceiver.spec.scene.n_places == 6
    scenes = some_chunks(rng, perceiver, 5)
    told = perceiver.answers(scenes)
    assert {answer.observations for answer in told} == {budget}
    whole = Perceiver(replace(perceiver.spec, budget=6)).answers(scenes)
    assert [answer.order for answer in told] == [answer.order[:budget] for answer in whole]
    assert [answer.margins for answer in told] == [answer.margins[:budget] for answer in whole]


def test_a_budget_beyond_the_places_needs_a_policy_that_may_return():
    rng = np.random.default_rng(8)
    with pytest.raises(ConfigError, match="budget 7, but there are 6 places"):
        specs.random_model(rng, budget=7)
    told = specs.random_perceiver(rng, budget=7, mask=False).answers
    assert told(specs.random_perceiver(rng).scenes(specs.random_clouds(rng, 2)))[0].observations == 7
