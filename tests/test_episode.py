"""Whole episodes: what a verdict promises, closed loop, against the exact replay."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import specs

from asp_neuro.errors import UsageError
from asp_neuro.heads.soft.guard import hit_place
from asp_neuro.heads.soft.layer import LayerSpec
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model import stability
from asp_neuro.model.episode import Response, episodes
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.perceiver import Perceiver, drive, really_equal
from asp_neuro.scenes.cloud import Chunks, cut


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
    perceiver = specs.random_perceiver(rng)
    host = specs.random_host(rng, scorer=scorer, mask=mask)
    layers = [coarser(layer, by if index == 0 else 1) for index, layer in enumerate(perceiver.head.layers)]
    layers[-1] = coarser(layers[-1], by)
    return replace(perceiver, head=HeadSpec(tuple(layers)), host=host)


def some_chunks(rng: np.random.Generator, perceiver: Perceiver, n: int) -> Chunks:
    return cut(specs.random_clouds(rng, n), perceiver.chunking)


def campaign(n_perceivers: int, n_clouds: int, seed: int) -> tuple[Counter, Counter]:
    """Counts of (preserved, really equal), and of what the first doubt was about."""
    rng = np.random.default_rng(seed)
    pairs, doubts = Counter(), Counter()
    for trial in range(n_perceivers):
        scorer = ("bilinear", "bilinear", "bilinear", "geometry", "additive", "belief")[trial % 6]
        perceiver = coarse_perceiver(rng, (1, 4, 16, 40)[trial % 4], scorer, mask=trial % 7 != 0)
        chunks = some_chunks(rng, perceiver, n_clouds)
        rule = ExitRule((None, 0.2, 0.5)[trial % 3], certified=trial % 2 == 0, kappa=0.3 if trial % 5 == 0 else None)
        answers, sure = perceiver.answers(chunks, rule), perceiver.replay(chunks, rule)
        for answer, exact in zip(answers, sure, strict=True):
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
    monkeypatch.setattr(stability.Watch, "_decisions", lambda *_: ())
    assert campaign(n_perceivers=84, n_clouds=50, seed=0)[0][True, False] > 0


def test_the_same_campaign_catches_spikes_that_are_not_looked_at(monkeypatch):
    observed = stability.Watch.observed
    blind = lambda watch, look: observed(watch, look._replace(hit=0 * look.hit))  # noqa: E731
    monkeypatch.setattr(stability.Watch, "observed", blind)
    assert campaign(n_perceivers=40, n_clouds=50, seed=0)[0][True, False] > 0


# What a verdict says


@pytest.fixture(scope="module")
def played():
    rng = np.random.default_rng(3)
    perceiver = coarse_perceiver(rng, 16)
    return perceiver, some_chunks(rng, perceiver, 40)


def test_a_verdict_does_not_depend_on_the_batch(played):
    perceiver, chunks = played
    together = perceiver.answers(chunks, ExitRule(0.3))
    alone = [perceiver.answers(chunks[i : i + 1], ExitRule(0.3))[0] for i in range(len(chunks))]
    assert [answer.verdict for answer in together] == [answer.verdict for answer in alone]
    assert {answer.verdict.preserved for answer in together} == {True, False}


def test_the_verdict_names_the_first_hit(played):
    perceiver, chunks = played
    story, head = perceiver.play(chunks, ExitRule()), perceiver.new_head()
    first: dict[int, tuple[int, int, int]] = {}
    request, step = next(story), 0
    head.start(len(chunks))
    try:
        while True:
            step += 1
            membrane = head.observe(request.drive_int)
            for row in np.flatnonzero(head.hit):
                first.setdefault(int(row), (step, *hit_place(head.hit[row])))
            request = story.send(Response(membrane, head.hit))
    except StopIteration as finished:
        answers = finished.value
    assert len(first) > 3
    for row, answer in enumerate(answers):
        verdict = answer.verdict
        if row in first and verdict.decision is None:
            assert (verdict.step, verdict.layer - 1, verdict.neuron) == first[row]
            assert f"neuron {verdict.neuron} of layer {verdict.layer}" in verdict.sentence
        elif row in first:
            assert verdict.step < first[row][0]
        assert verdict.preserved or row in first or verdict.decision is not None


def test_watching_changes_no_answer(played):
    perceiver, chunks = played
    plain = drive(episodes(perceiver._host, perceiver.units, chunks, ExitRule(0.3)), perceiver.new_head())
    watched = perceiver.answers(chunks, ExitRule(0.3))
    assert all(answer.verdict is None for answer in plain)
    for one, other in zip(plain, watched, strict=True):
        assert (one.order, one.exit, one.label, one.margins) == (other.order, other.exit, other.label, other.margins)


def test_a_head_without_guard_leaves_no_verdict(played):
    perceiver, chunks = played
    story, head = perceiver.play(chunks[:2], ExitRule()), perceiver.new_head()
    request = next(story)
    head.start(2)
    try:
        while True:
            request = story.send(Response(head.observe(request.drive_int)))
    except StopIteration as finished:
        answers = finished.value
    assert [answer.verdict for answer in answers] == [None, None]


def test_a_given_order_is_no_decision(played):
    perceiver, chunks = played
    order = np.tile(np.arange(perceiver.chunking.n_chunks), (len(chunks), 1))
    answers = perceiver.answers(chunks, ExitRule(), order)
    assert all(answer.verdict.decision != "chunk" for answer in answers)
    assert all(
        answer.order == tuple(range(perceiver.chunking.n_chunks)) for answer in perceiver.replay(chunks, None, order)
    )


# The exact replay


def test_recomputing_one_cloud_equals_the_replay_of_all(played):
    perceiver, chunks = played
    sure = perceiver.replay(chunks, ExitRule(0.3))
    for row in (0, 7, 39):
        one = perceiver.recompute(chunks[row : row + 1], ExitRule(0.3))
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


def test_recompute_is_for_one_cloud_and_equality_for_a_replay(played):
    perceiver, chunks = played
    with pytest.raises(UsageError, match="got 40"):
        perceiver.recompute(chunks)
    answer = perceiver.answers(chunks[:1])[0]
    with pytest.raises(UsageError, match="recompute"):
        really_equal(answer, replace(answer, verdict=None))


def test_a_moved_spike_is_not_equal_even_if_the_answer_is(played):
    perceiver, chunks = played
    answers, sure = perceiver.answers(chunks), perceiver.replay(chunks)
    moved = [exact for exact in sure if not exact.verdict.preserved]
    assert moved
    assert all("fires differently" in exact.verdict.sentence for exact in moved)
    assert not any(really_equal(exact, exact) for exact in moved)
    assert any(really_equal(answer, exact) for answer, exact in zip(answers, sure, strict=True))
