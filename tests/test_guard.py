"""Guard bands: the width by hand, the rule by hand, and that no hit means the same spikes as exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, gcd

import numpy as np
import pytest
import specs
from hypothesis import given
from hypothesis import strategies as st

from asp_neuro.errors import UsageError
from asp_neuro.heads import membrane
from asp_neuro.heads.bits import STATE_MAX, STATE_MIN
from asp_neuro.heads.soft.exact import run_exact
from asp_neuro.heads.soft.fast import FastHead
from asp_neuro.heads.soft.guard import GuardBand, bands, drift, hits
from asp_neuro.heads.soft.layer import LayerSpec
from asp_neuro.heads.soft.reference import run_reference
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.heads.verdict import hit_place, hit_words

LEAKS = np.array([0, 1, 2, 512, 1024, 1365, 2048, 3072, 3686, 3840, 3891, 4055, 4080, 4087, 4094, 4095])


def layer_of(leaks, theta=100, theta_fire=100) -> LayerSpec:
    n = len(leaks)
    full = np.ones(n, dtype=np.int64)
    return LayerSpec(
        np.full((n, 1), 2), 0 * full, np.array(leaks), theta * full, theta_fire * full, np.ones(n), state_bits=12
    )


# Widths and the rule, by hand


@pytest.mark.parametrize(
    ("leak", "n_steps", "width"),
    [
        *[(0, 16, 0), (1, 16, 1), (2048, 16, 1), (3686, 16, 8), (3891, 16, 11), (4055, 16, 14), (4087, 16, 15)],
        *[(4095, 16, 15), (4095, 4, 3), (3686, 7, 5), (2048, 2, 1), (3686, 1, 0)],
    ],
)
def test_widths_by_hand(leak, n_steps, width):
    assert bands(layer_of([leak]), n_steps).width.tolist() == [width]


@given(st.integers(0, 4095), st.integers(1, 24))
def test_drift_is_the_sum_of_the_paper_and_never_whole(leak, t):
    share = Fraction(leak, 4096)
    exact = (1 - Fraction(gcd(leak, 4096), 4096)) * sum((share**i for i in range(t - 1)), Fraction(0)) if leak else 0
    assert bands(layer_of([leak]), t).width.tolist() == [ceil(exact)]
    rounded = Fraction(float(drift(np.array([leak]), t)[0]))
    assert exact <= rounded <= exact * (1 + Fraction(1, 2**50))
    if leak and t > 1:
        assert Fraction(exact).denominator > 1
        assert ceil(exact) <= t - 1


@pytest.mark.parametrize(
    ("t", "two_sided", "one_sided"),
    [
        *[(1, [], []), (2, [100], [100]), (3, [99, 100, 101], [99, 100])],
        *[(4, [98, 99, 100, 101, 102], [98, 99, 100]), (9, [98, 99, 100, 101, 102], [98, 99, 100])],
    ],
)
def test_which_membranes_are_hit_by_hand(t, two_sided, one_sided):
    band = GuardBand(np.array([3, 3]), np.array([False, True]))
    u = np.stack([np.arange(90, 111)] * 2, axis=1)  # threshold 100
    for kind in (np.int64, np.float64):
        hit = hits(u.astype(kind), np.array([100, 100]), band, t)
        assert u[hit[:, 0], 0].tolist() == two_sided
        assert u[hit[:, 1], 1].tolist() == one_sided


def test_a_saturated_membrane_is_hit_from_the_first_observation_on():
    band = GuardBand(np.array([0, 0, 0]), np.zeros(3, dtype=bool))
    u = np.array([[STATE_MAX, STATE_MIN, 5]])
    assert hits(u, np.array([0, 0, 0]), band, 1).tolist() == [[True, True, False]]


def test_observations_count_from_one():
    with pytest.raises(UsageError, match="observation 0"):
        hits(np.zeros((1, 1)), np.zeros(1), GuardBand(np.ones(1), np.ones(1, dtype=bool)), 0)


def test_one_side_where_the_leak_keeps_enough_for_the_reset():
    layer = replace(layer_of([4095, 4095, 2048, 2048]), theta_int=np.array([100, 100, 100, 100]))
    layer = replace(layer, theta_fire_int=np.array([99, 100, 198, 199]))
    # 100 * 4095 < 4096 * 100 <= 101 * 4095;  199 * 2048 < 4096 * 100 <= 200 * 2048
    assert bands(layer, 16).one_sided.tolist() == [False, True, False, True]


def test_hit_words_name_the_first_neuron():
    hit = np.array([[False, True, True], [False, False, False], [True, False, True]])
    assert hit_words(hit, 0).tolist() == [2, 0, 1]
    assert hit_words(hit, 2).tolist() == [8194, 0, 8193]
    assert [hit_place(word) for word in (2, 8194, 4096)] == [(0, 1), (2, 1), (0, 4095)]


# Soundness: whenever nothing is hit, exact arithmetic fires the same


def small_head(rng: np.random.Generator) -> HeadSpec:
    """Few, small numbers: bands are wide beside the thresholds, leaks of every kind, some neurons saturate."""
    n_inputs, width, n_layers = int(rng.integers(1, 4)), int(rng.integers(1, 5)), int(rng.integers(1, 4))
    coarse = 2.0 ** rng.uniform(5, 16)  # thresholds: rounding matters often at 2^5, hardly at 2^16
    huge = rng.random() < 0.2
    layers = []
    for index in range(n_layers):
        theta = np.rint(coarse * rng.uniform(0.3, 2.0, width)).astype(np.int64)
        bias = np.rint(coarse * rng.uniform(-0.8, 0.8, width)).astype(np.int64)
        fire = np.floor(theta * rng.uniform(0.05, 1.8, width)).astype(np.int64) + rng.integers(-2, 3, width)
        if huge:
            bias = np.where(rng.random(width) < 0.7, rng.integers(2**20, 2**22, width), bias)
            fire = np.where(rng.random(width) < 0.7, rng.integers(2**22, 2**23 - 1, width), fire)
        leak = np.where(rng.random(width) < 0.5, rng.choice(LEAKS, width), rng.integers(0, 4096, width))
        shape = (width, n_inputs if index == 0 else width)
        reach = max(1, min(127, int(coarse / (64 * 3 * 2))))
        weight = 2 * rng.integers(-reach, reach + 1, shape)
        layers.append(LayerSpec(weight, bias, leak, theta, fire, np.ones(width), state_bits=12))
    return HeadSpec(tuple(layers))


def sharpen(rng: np.random.Generator, spec: HeadSpec, drives: np.ndarray) -> HeadSpec:
    """Move each threshold to within a few units of a membrane that really occurs: near misses on purpose."""
    layers = list(spec.layers)
    for index, layer in enumerate(spec.layers):
        membranes = run_reference(HeadSpec(tuple(layers)), drives)[0][:, index]  # [T, b, H]
        seen = membranes[rng.integers(1, len(drives)), rng.integers(drives.shape[1])]
        near = np.clip(seen + rng.integers(-3, 4, layer.n_neurons), STATE_MIN, STATE_MAX)
        layers[index] = replace(
            layer, theta_fire_int=np.where(rng.random(layer.n_neurons) < 0.5, near, layer.theta_fire_int)
        )
    return HeadSpec(tuple(layers))


@dataclass
class Tally:
    """What a campaign saw."""

    episodes: int = 0
    proven: int = 0
    diverged: int = 0
    counterexamples: int = 0
    saturated: int = 0


Rule = Callable[[np.ndarray, LayerSpec, int, int], np.ndarray]


def the_rule(u: np.ndarray, layer: LayerSpec, n_steps: int, t: int) -> np.ndarray:
    return hits(u, layer.theta_fire_int, bands(layer, n_steps), t)


def campaign(n_episodes: int, seed: int, rule: Rule = the_rule, batch: int = 25) -> Tally:
    rng = np.random.default_rng(seed)
    tally = Tally()
    while tally.episodes < n_episodes:
        n_steps = int(rng.integers(2, 15))
        spec = small_head(rng)
        scale = 2.0 ** rng.uniform(0, 10)
        drives = np.rint(rng.normal(0.0, scale, (n_steps, batch, spec.n_inputs))).astype(np.int64)
        if rng.random() < 0.5:
            spec = sharpen(rng, spec, drives)
        membranes, spikes, _ = run_reference(spec, drives)
        _, sure = run_exact(spec, drives)
        hit = np.zeros(batch, dtype=bool)
        for t in range(n_steps):
            for index, layer in enumerate(spec.layers):
                hit |= rule(membranes[t, index], layer, n_steps, t + 1).any(axis=1)
        moved = (spikes != sure).any(axis=(0, 1, 3))
        limit = ((membranes >= STATE_MAX) | (membranes <= STATE_MIN)).any(axis=(0, 1, 3))
        tally.episodes += batch
        tally.proven += int((~hit).sum())
        tally.diverged += int(moved.sum())
        tally.counterexamples += int((moved & ~hit).sum())
        tally.saturated += int(limit.sum())
    return tally


def test_no_hit_means_the_same_spikes_in_20000_episodes():
    tally = campaign(20_000, seed=0)
    assert tally.counterexamples == 0, tally
    assert tally.episodes >= 20_000
    assert tally.diverged >= 1_000, tally
    assert tally.proven >= 0.3 * tally.episodes, tally
    assert tally.saturated >= 500, tally


@pytest.mark.soak
def test_no_hit_means_the_same_spikes_in_100000_episodes():
    tally = campaign(100_000, seed=1)
    assert tally.counterexamples == 0, tally
    assert tally.diverged >= 5_000, tally
    assert tally.proven >= 0.3 * tally.episodes, tally


def one_unit_narrower(u, layer, n_steps, t):
    band = bands(layer, n_steps)
    return hits(u, layer.theta_fire_int, replace(band, width=np.maximum(band.width - 1, 0)), t)


def one_observation_late(u, layer, n_steps, t):
    return hits(u, layer.theta_fire_int, bands(layer, n_steps), max(t - 1, 1))


def saturation_not_counted(u, layer, n_steps, t):
    return the_rule(u, layer, n_steps, t) & (u > STATE_MIN) & (u < STATE_MAX)


def one_sided_everywhere(u, layer, n_steps, t):
    band = bands(layer, n_steps)
    return hits(u, layer.theta_fire_int, replace(band, one_sided=np.ones_like(band.one_sided)), t)


@pytest.mark.parametrize(
    "rule", [one_unit_narrower, one_observation_late, saturation_not_counted, one_sided_everywhere]
)
def test_the_same_campaign_catches_a_wrong_rule(rule):
    assert campaign(6_000, seed=0, rule=rule).counterexamples > 0


# The band is tight: an adversary reaches its last unit, for every leak


def worst_case(leak: int, n_steps: int) -> tuple[HeadSpec, np.ndarray]:
    """One neuron that loses almost the largest fraction at each leak and ends g - 1 below its threshold."""
    q = 4096 // gcd(leak, 4096)
    lost = np.arange(4096) * leak % 4096
    drives, u = [], 0
    for t in range(n_steps):
        floor = u * leak // 4096
        goal = 8192 * (t + 1)
        steps = 2 * np.arange(max((goal - floor) // 2, 0), max((goal - floor) // 2, 0) + 4096)
        pick = steps[np.argmax(lost[(floor + steps) % 4096])] if t + 1 < n_steps else steps[0] + 8192
        drives.append(pick // 2)
        u = int(floor + pick)
    width = int(bands(layer_of([leak]), n_steps).width[0])
    assert q >= 2
    layer = replace(layer_of([leak]), theta_fire_int=np.array([u + width - 1]))
    return HeadSpec((layer,)), np.array(drives, dtype=np.int64)[:, None, None]


@pytest.mark.parametrize("leak", [1, 1025, 1365, 3001, 3686, 3891, 4055, 4087, 4095])
def test_one_unit_less_would_miss_a_moved_spike(leak):
    n_steps = 16
    spec, drives = worst_case(leak, n_steps)
    membranes, spikes, overflows = run_reference(spec, drives)
    _, sure = run_exact(spec, drives)
    assert overflows == 0
    assert spikes.sum() == 0
    assert sure[:-1].sum() == 0
    assert sure[-1, 0, 0, 0] == 1
    layer = spec.layers[0]
    assert the_rule(membranes[-1, 0], layer, n_steps, n_steps).all()
    assert not one_unit_narrower(membranes[-1, 0], layer, n_steps, n_steps).any()


# Theorem S17 on the grid: the drift bound, at every step


def test_the_drift_stays_within_its_bound_at_every_step():
    rng = np.random.default_rng(5)
    largest, checked = 0.0, 0
    for _ in range(60):
        n_steps = 14
        spec = small_head(rng)
        drives = np.rint(rng.normal(0.0, 60.0, (n_steps, 12, spec.n_inputs))).astype(np.int64)
        membranes, spikes, overflows = run_reference(spec, drives)
        scaled, sure = run_exact(spec, drives)
        same = np.logical_and.accumulate((spikes == sure).all(axis=(1, 3)), axis=0)  # [T, b] all spikes so far
        if overflows:
            continue
        for t in range(n_steps):
            error = abs(scaled[t] - membranes[t].astype(object) * 4096**t)  # [L, b, H] Python integers
            for index, layer in enumerate(spec.layers):
                for neuron, leak in enumerate(layer.lambda_int.tolist()):
                    numerator, denominator = membrane.drift(leak, t)
                    before = same[t - 1] if t else np.ones(12, dtype=bool)
                    for value in error[index, before, neuron]:
                        if index and not (same[t]).all():
                            continue  # an earlier layer may have differed at this very step
                        assert value * denominator <= numerator * 4096**t
                        checked += 1
                        largest = max(largest, value * denominator / (numerator * 4096**t) if numerator else 0.0)
    assert checked > 20_000
    assert largest > 0.9


def test_a_one_sided_neuron_never_goes_negative():
    rng = np.random.default_rng(6)
    seen = negative = 0
    for _ in range(200):
        spec = small_head(rng)
        drives = np.rint(rng.normal(0.0, 60.0, (12, 20, spec.n_inputs))).astype(np.int64)
        membranes, _, _ = run_reference(spec, drives)
        scaled, _ = run_exact(spec, drives)
        for index, layer in enumerate(spec.layers):
            side = bands(layer, 12).one_sided
            seen += int(side.sum())
            assert (membranes[:, index][..., side] >= 0).all()
            assert (scaled[:, index][..., side] >= 0).all()
            negative += int((membranes[:, index][..., ~side] < 0).any())
    assert seen > 50
    assert negative > 20


# The fast engine finds the same hits


def test_the_fast_engine_reports_the_first_hit_of_every_cloud():
    rng = np.random.default_rng(7)
    n_hits = n_overflows = 0
    for trial in range(60):
        spec = small_head(rng) if trial % 2 else specs.random_head(rng, 5, 7, 3)
        drives = specs.random_drives(rng, 10, 9, spec.n_inputs) * (8 if trial % 3 else 1)
        membranes, spikes, overflows = run_reference(spec, drives)
        head = FastHead(spec, None, n_steps=10)
        head.start(9)
        for t in range(10):
            assert (head.observe(drives[t].astype(np.float64)) == membranes[t, -1]).all()
            expected = np.zeros(9, dtype=np.int64)
            for index in reversed(range(len(spec.layers))):
                assert (head.spikes[index] == spikes[t, index]).all()
                words = hit_words(the_rule(membranes[t, index], spec.layers[index], 10, t + 1), index)
                expected = np.where(words > 0, words, expected)
            assert head.hit.tolist() == expected.tolist()
            n_hits += int((expected > 0).sum())
        assert head.n_overflows == overflows
        n_overflows += overflows
    assert n_hits > 200
    assert n_overflows > 100


def test_a_threshold_at_the_limit_is_never_crossed_by_saturating():
    layer = replace(layer_of([4095]), bias_int=np.array([STATE_MAX]), theta_fire_int=np.array([STATE_MAX]))
    head = FastHead(HeadSpec((layer,)), n_steps=3)
    head.start(1)
    for _ in range(3):
        assert head.observe(np.zeros((1, 1))).tolist() == [[STATE_MAX]]
        assert head.spikes[0].tolist() == [[0.0]]
        assert head.hit.tolist() == [1]


def test_more_observations_than_the_bands_are_made_for_are_refused():
    head = FastHead(HeadSpec((layer_of([4000]),)), n_steps=2)
    head.start(1)
    head.observe(np.ones((1, 1)))
    head.observe(np.ones((1, 1)))
    with pytest.raises(UsageError, match="observation 3"):
        head.observe(np.ones((1, 1)))


def test_without_a_number_of_observations_nobody_guards():
    head = FastHead(HeadSpec((layer_of([4000]),)))
    head.start(1)
    head.observe(np.ones((1, 1)))
    assert head.hit is None
