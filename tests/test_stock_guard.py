"""The stock form's guard bands and ranges: by hand, fuzzed against exact arithmetic, and shown to be needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from stock_specs import random_stock_head

from asp_neuro.errors import ConfigError
from asp_neuro.grid.sections import NORM_BITS, Norm
from asp_neuro.heads.membrane import drift, whole_drift
from asp_neuro.heads.spec import STOCK, HeadSpec
from asp_neuro.heads.stock.exact import ExactStockHead
from asp_neuro.heads.stock.fast import FastStockHead
from asp_neuro.heads.stock.guard import drift_read, n_leaks, widths
from asp_neuro.heads.stock.layer import StockLayer
from asp_neuro.heads.stock.membrane import DRIVE_BITS, TOP
from asp_neuro.heads.stock.ranges import prove, pulse_reach, reach
from asp_neuro.heads.stock.reference import run_stream
from asp_neuro.heads.verdict import hit_place

# Bands


def test_bands_count_time_steps_since_the_layer_moved() -> None:
    spec = random_stock_head(np.random.default_rng(0), 4, 4, 3, steps=6, read_after=3)
    assert [n_leaks(1, tau, 6, 2) for tau in range(6)] == [0, 0, 0, 1, 2, 3]
    assert [n_leaks(3, tau, 6, 0) for tau in range(6)] == [12, 13, 14, 15, 16, 17]
    leak = spec.layers[1].lambda_int
    assert widths(spec, 1, 2) == [whole_drift(leak, k) for k in range(5, 11)]


def test_a_band_worked_out_by_hand() -> None:
    """Half leaks: each loses at most 1/2, so 1/2, 3/4, 7/8: one unit; 4095 of 4096 loses almost one each time."""
    assert [Fraction(*drift(2048, k)) for k in range(4)] == [0, Fraction(1, 2), Fraction(3, 4), Fraction(7, 8)]
    assert [whole_drift(4095, k) for k in (0, 1, 2, 50)] == [0, 1, 2, ceil(Fraction(*drift(4095, 50)))]
    assert whole_drift(0, 9) == 0


def test_the_drift_of_a_reading_is_that_of_the_last_layers_leaks() -> None:
    spec = random_stock_head(np.random.default_rng(0), 4, 4, 2, steps=8, read_after=3)
    exact = Fraction(*drift(spec.layers[1].lambda_int, 8 + 3 - 1))
    assert exact <= drift_read(spec, 2) <= float(exact) * (1 + 1e-12)
    assert (spec.neurons.drift(spec, 2) == drift_read(spec, 2)).all()


# Soundness


@dataclass
class Tally:
    """What a campaign saw."""

    episodes: int = 0
    proven: int = 0
    diverged: int = 0
    counterexamples: int = 0


Width = Callable[[HeadSpec, int, int], list[int]]


def coarse_head(rng: np.random.Generator) -> HeadSpec:
    """States of a few hundred units, so that the rounding of a leak matters; thresholds are multiples of 64."""
    n_inputs, n_neurons, n_layers = int(rng.integers(2, 5)), int(rng.integers(2, 7)), int(rng.integers(1, 4))
    read_after = max(n_layers - 1, 1)
    layers = []
    for index in range(n_layers):
        width = n_neurons if index else n_inputs + 1
        leak = int(rng.choice([2048, 3072, 3686, 3990, 4010, 4043, 4083, 4090, int(rng.integers(1, 4096))]))
        weight = 2 * rng.integers(-6, 7, (n_neurons, width))
        if index == 0:
            weight[:, -1] = 0
        layers.append(
            StockLayer(weight, 2 * rng.integers(0, 6, n_neurons), 64 * rng.integers(0, 8, n_neurons), leak,
                       np.ones(n_neurons))
        )  # fmt: skip
    return HeadSpec(tuple(layers), STOCK, int(rng.integers(read_after + 2, 8)), read_after)


def exact_spikes(spec: HeadSpec, drives: np.ndarray) -> np.ndarray:
    """[T steps, L, b, H]"""
    head, trains = ExactStockHead(spec), []
    head.start(drives.shape[1])
    for drive in drives:
        head.observe(drive)
        trains.append(np.stack(head.fired, axis=1))
    return np.concatenate(trains)


def campaign(n_episodes: int, seed: int, width: Width = widths, batch: int = 50) -> Tally:
    rng, tally = np.random.default_rng(seed), Tally()
    while tally.episodes < n_episodes:
        spec = coarse_head(rng)
        drives = rng.integers(-3, 4, (int(rng.integers(2, 6)), batch, spec.n_inputs))
        membranes, spikes, _ = run_stream(spec, drives)
        moved = (spikes != exact_spikes(spec, drives)).any(axis=(0, 1, 3))
        hit = np.zeros(batch, dtype=bool)
        for index, layer in enumerate(spec.layers):
            band = np.concatenate([width(spec, index, t) for t in range(1, len(drives) + 1)])  # [T steps]
            near = np.abs(membranes[:, index] - layer.threshold_int) < band[:, None, None]
            hit |= near.any(axis=(0, 2))
        tally.episodes += batch
        tally.proven += int((~hit).sum())
        tally.diverged += int(moved.sum())
        tally.counterexamples += int((moved & ~hit).sum())
    return tally


@pytest.mark.slow
def test_no_hit_means_the_same_spikes_in_20000_episodes() -> None:
    tally = campaign(20_000, seed=0)
    assert tally.counterexamples == 0, tally
    assert tally.diverged >= 500, tally
    assert tally.proven >= 0.1 * tally.episodes, tally


@pytest.mark.soak
def test_no_hit_means_the_same_spikes_in_100000_episodes() -> None:
    tally = campaign(100_000, seed=1)
    assert tally.counterexamples == 0, tally
    assert tally.diverged >= 2_000, tally


def one_unit_narrower(spec: HeadSpec, index: int, t: int) -> list[int]:
    return [max(width - 1, 0) for width in widths(spec, index, t)]


def counting_observations(spec: HeadSpec, index: int, t: int) -> list[int]:
    """As the soft form would: one leak an observation."""
    return [whole_drift(spec.layers[index].lambda_int, t - 1)] * spec.steps


@pytest.mark.parametrize("width", [one_unit_narrower, counting_observations])
def test_the_same_campaign_catches_a_narrower_band(width: Width) -> None:
    assert campaign(5_000, seed=0, width=width).counterexamples > 0


def test_the_engine_reports_the_first_hit_that_the_rule_finds() -> None:
    rng, n_hits = np.random.default_rng(5), 0
    for _ in range(60):
        spec = coarse_head(rng)
        drives = rng.integers(-3, 4, (4, 20, spec.n_inputs))
        engine = FastStockHead(spec, None, len(drives))
        engine.start(20)
        membranes = run_stream(spec, drives).membranes
        clear = np.ones(20, dtype=bool)
        for t, drive in enumerate(drives, start=1):
            engine.observe(drive)
            for row in range(20):
                expected = first_hit(spec, membranes[(t - 1) * spec.steps : t * spec.steps, :, row], t)
                if clear[row] and expected is not None:
                    assert hit_place(engine.hit[row]) == expected
                    clear[row], n_hits = False, n_hits + 1
                else:
                    assert engine.hit[row] == 0
    assert n_hits > 100


def first_hit(spec: HeadSpec, membranes: np.ndarray, t: int) -> tuple[int, int] | None:
    """Membranes [steps, L, H] of observation t -> layer and neuron of the first hit."""
    bands = [widths(spec, index, t) for index in range(len(spec.layers))]
    for tau in range(spec.steps):
        for index, layer in enumerate(spec.layers):
            near = np.abs(membranes[tau, index] - layer.threshold_int) < bands[index][tau]
            if near.any():
                return index, int(near.argmax())
    return None


# Ranges


def test_ranges_of_one_neuron_worked_out_by_hand() -> None:
    """A pulse of at most 2 * 10 + 2 * 32 = 84, 5376 in the state; half of it leaks each step; a spike takes 640."""
    layer = StockLayer(np.array([[2, 2]]), np.array([10]), np.array([6400]), 2048, np.ones(1))
    found = reach(HeadSpec((layer,), STOCK, 3, 1), None, np.array([10.0]), 2)
    assert (found.low[0].tolist(), found.high[0].tolist()) == ([-5376 - 672], [5376 + 672])  # never fires
    assert found.silence == 11  # 6048 halves to 0: 2 leaks within the observation, 11 after it
    fires = replace(layer, threshold_int=np.array([64]))
    found = reach(HeadSpec((fires,), STOCK, 3, 1), None, np.array([10.0]), 1)
    assert found.high[0].tolist() == [5376]
    assert found.low[0].tolist() == [-5376]  # 32 - 640 = -608 would be the least after a spike


def test_no_drive_within_the_bound_leaves_the_proven_range() -> None:
    rng = np.random.default_rng(3)
    for _ in range(30):
        spec = random_stock_head(rng, 6, 8, int(rng.integers(1, 4)), steps=8, read_after=3)
        bound = np.full(6, 12.0)
        found = reach(spec, None, bound, 5)
        drives = rng.choice([-12, 12, 0, 5], (5, 40, 6))
        membranes = run_stream(spec, drives).membranes
        for index in range(len(spec.layers)):
            assert (membranes[:, index] >= found.low[index]).all()
            assert (membranes[:, index] <= found.high[index]).all()
            if index == 0:  # the bound of the pulse is sharp: all signs against all weights
                worst = np.sign(spec.layers[0].weight_int[0, :-1])[None, None] * 12
                first = np.abs(run_stream(spec, worst).membranes[0, 0, 0, 0])
                assert first <= pulse_reach(spec.layers[0], None, bound)[0] * 64


def test_a_normalised_drive_reaches_less_and_never_more() -> None:
    rng = np.random.default_rng(4)
    spec = random_stock_head(rng, 16, 8)
    scale = 2.0 ** (DRIVE_BITS + NORM_BITS)
    norm = Norm(*(np.rint(x * scale).astype(np.int32) for x in (rng.uniform(0.5, 1.5, 16), rng.normal(0.0, 0.3, 16))))
    bound, (gain, bias) = np.ceil(norm.bound), norm.values
    proven = pulse_reach(spec.layers[0], norm, bound)
    assert (proven < 0.7 * pulse_reach(spec.layers[0], None, bound)).all()
    raw = np.concatenate([rng.normal(size=(4000, 16)), np.sign(spec.layers[0].weight_int[:, :-1] * gain)])
    raw -= raw.mean(axis=1, keepdims=True)
    drives = np.rint(raw / raw.std(axis=1, keepdims=True) * gain + bias)
    seen = np.abs(np.column_stack([drives, np.full(len(drives), 32)]) @ spec.layers[0].weight_int.T).max(axis=0)
    assert (seen <= proven).all()
    assert (seen > 0.6 * proven).any()


def test_a_silence_as_long_as_proven_puts_every_membrane_to_rest() -> None:
    rng = np.random.default_rng(6)
    spec = random_stock_head(rng, 6, 8, 2, steps=8, read_after=3)
    silence = reach(spec, None, np.full(6, 12.0), 4).silence
    drives = rng.integers(-12, 13, (4, 30, 6))
    still = replace(spec.layers[0], weight_int=spec.layers[0].weight_int * np.array([1] * 6 + [0]))
    quiet = HeadSpec((still, *spec.layers[1:]), STOCK, 8, 3)  # without the constant an empty pulse is silence
    silence_quiet = reach(quiet, None, np.full(6, 12.0), 4).silence
    padded = np.concatenate([drives, np.zeros((-(-silence_quiet // 8), 30, 6), dtype=np.int64)])
    membranes = run_stream(quiet, padded).membranes
    assert (membranes[4 * 8 + silence_quiet - 1 :] == 0).all()
    assert membranes[4 * 8 + silence_quiet // 2].any()
    assert 100 < silence < 5000


def test_what_could_wrap_is_refused_by_layer_and_number() -> None:
    big = StockLayer(np.array([[254, 254, 0], [2, 2, 2]]), np.array([2, 2]), np.array([64, 64]), 4095, np.ones(2))
    spec = HeadSpec((big,), STOCK, 8, 3)
    with pytest.raises(ConfigError, match=rf"layer 1: membranes can reach \d+ within 16 observations .* at {TOP}"):
        prove(spec, None, np.array([200.0, 200.0]), 16)
    prove(spec, None, np.array([3.0, 3.0]), 16)
