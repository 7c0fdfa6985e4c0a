"""The stock head: worked out by hand, refused by layer and number, and the same bits in every engine of ours."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stock_specs import random_stock_drives, random_stock_head

from asp_neuro.errors import ConfigError, UsageError
from asp_neuro.heads.spec import STOCK, HeadSpec, synaptic_reach
from asp_neuro.heads.stock.exact import ExactStockHead
from asp_neuro.heads.stock.fast import EXACT, FEW, RARE, FastStockHead, Packing
from asp_neuro.heads.stock.layer import StockLayer
from asp_neuro.heads.stock.membrane import CONSTANT, TOP, step_int, wrap
from asp_neuro.heads.stock.reference import run_reference, run_stream


def layer(n_neurons: int = 1, n_inputs: int = 2, **changes: object) -> StockLayer:
    plain = StockLayer(
        weight_int=np.full((n_neurons, n_inputs), 2),
        rho_int=np.full(n_neurons, 100),
        threshold_int=np.full(n_neurons, 6400),
        lambda_int=2048,
        factor=np.ones(n_neurons),
    )
    return replace(plain, **changes)


def head(*layers: StockLayer, steps: int = 4, read_after: int = 1) -> HeadSpec:
    return HeadSpec(layers or (layer(),), STOCK, steps, read_after)


# By hand


def test_one_neuron_worked_out_by_hand() -> None:
    """W = 4, bias weight 2: the pulse 10 brings 40 + 64 = 104, 6656 in the state; half leaks; a spike takes 6400."""
    spec = head(layer(weight_int=np.array([[4, 2]])))
    membranes, spikes, overflows = run_stream(spec, np.array([[[10]], [[-31]]]))
    # 6656 fires; 3328 - 6400 = -3072; -1536; -768 | then -384 + 64 (-124 + 64) = -4224; ...
    assert membranes[:, 0, 0, 0].tolist() == [6656, -3072, -1536, -768, -4224, -2112, -1056, -528]
    assert spikes[:, 0, 0, 0].tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    assert overflows == 0


def test_a_second_layer_hears_the_first_one_step_late_and_across_pulses() -> None:
    first = layer(weight_int=np.array([[100, 0]]), lambda_int=4095, rho_int=np.array([2]))  # fires on and on
    second = layer(n_inputs=1, weight_int=np.array([[8]]), lambda_int=0, threshold_int=np.array([512]))
    membranes, spikes, _ = run_stream(head(first, second), np.array([[[2]], [[0]]]))
    assert spikes[:, 0, 0, 0].tolist() == [1] * 8
    assert membranes[:, 1, 0, 0].tolist() == [0] + [512] * 7  # 8 << 6; not above 512, so it never fires
    assert spikes[:, 1].sum() == 0


def test_truncation_is_toward_zero_on_both_sides() -> None:
    up, _, _ = run_stream(head(layer(weight_int=np.array([[2, 0]]), lambda_int=4095)), np.array([[[1]]]))
    down, _, _ = run_stream(head(layer(weight_int=np.array([[2, 0]]), lambda_int=4095)), np.array([[[-1]]]))
    assert up.ravel().tolist() == [128, 127, 126, 125]
    assert down.ravel().tolist() == [-128, -127, -126, -125]


def test_the_weight_exponent_lifts_weights_and_resets_alike() -> None:
    spec = head(layer(weight_int=np.array([[4, 2]]), weight_exp=2, threshold_int=np.array([4 * 6400])))
    plain = head(layer(weight_int=np.array([[4, 2]])))
    drives = np.array([[[10]], [[-31]]])
    assert (run_stream(spec, drives).membranes == 4 * run_stream(plain, drives).membranes).all()  # all even: no rest


@pytest.mark.parametrize(
    ("current", "kept"),
    [(TOP, TOP), (TOP + 1, 1 - TOP), (1 - TOP, 1 - TOP), (-TOP, TOP), (-TOP - 5, TOP - 5), (3 * TOP, TOP)],
)
def test_a_current_wraps_once_as_lif_does(current: int, kept: int) -> None:
    assert int(wrap(np.array([current]))[0]) == kept


def test_the_reading_is_taken_read_after_steps_behind_the_pulse() -> None:
    spec = random_stock_head(np.random.default_rng(0), 5, 6, 2, steps=7, read_after=4)
    drives = random_stock_drives(np.random.default_rng(1), 3, 2, 5)
    every, read = run_stream(spec, drives), run_reference(spec, drives)
    assert np.array_equal(read.membranes, every.membranes[[4, 11, 18]])
    assert np.array_equal(read.spikes, every.spikes[[4, 11, 18]])


def test_lif_gets_a_threshold_and_biases_that_say_the_same() -> None:
    made = layer(4, threshold_int=64 * np.array([10, 30, 20, 7]), weight_int=np.full((4, 2), 2), lambda_int=4000)
    assert (made.vth, made.bias_mant.tolist(), made.du) == (15, [5, -15, -5, 8], 95)
    assert (64 * (made.vth - made.bias_mant) == made.threshold_int).all()


# Refused


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"weight_int": np.array([[256, 2]])}, "layer 1: weight 256 exceeds 254"),
        ({"weight_int": np.array([[-258, 2]])}, "layer 1: weight -258 is below -256"),
        ({"weight_int": np.array([[3, 2]])}, "layer 1: weight 3 is no multiple of 2"),
        ({"weight_int": np.array([[3.0, 2.0]])}, "layer 1: weight is float64, expected integers"),
        ({"weight_int": np.array([[2]])}, "layer 1: 1 input, expected a drive and the constant"),
        ({"weight_int": np.array([2])}, r"layer 1: weights have shape \[1\]"),
        ({"rho_int": np.array([256])}, "layer 1: rho 256 exceeds 254"),
        ({"rho_int": np.array([-2])}, "layer 1: rho -2 is below 0"),
        ({"rho_int": np.array([7])}, "layer 1: rho 7 is no multiple of 2"),
        ({"rho_int": np.array([2, 2])}, r"layer 1: rho has shape \[2\], expected \[1\]"),
        ({"threshold_int": np.array([-64])}, "layer 1: threshold -64 is below 0"),
        ({"threshold_int": np.array([100])}, "layer 1: threshold 100 is no multiple of 64"),
        ({"threshold_int": np.array([64 * 2**17])}, "layer 1: threshold 131072 of 64 exceeds 131071"),
        ({"lambda_int": 4096}, r"layer 1: leak 4096 is outside 0\.\.4095"),
        ({"lambda_int": 0.5}, "layer 1: leak is 0.5, expected a whole number"),
        ({"weight_exp": 8}, r"layer 1: weight exponent 8 is outside 0\.\.7"),
        ({"factor": np.array([0.0])}, "layer 1: every neuron needs a finite factor above 0"),
        ({"factor": np.array([2.0**101])}, "layer 1: factors 2.54e.30..2.54e.30 are outside"),
    ],
)
def test_what_does_not_fit_is_refused_by_layer_and_number(changes: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        head(layer(**changes))


def test_thresholds_too_far_apart_for_lifs_bias_are_refused() -> None:
    far = layer(3, weight_int=np.full((3, 2), 2), threshold_int=64 * np.array([0, 10, 4106]))
    with pytest.raises(ConfigError, match="layer 1: a threshold is 4096 x 64 from the median, LIF's bias reaches 4095"):
        head(far)
    head(replace(far, threshold_int=64 * np.array([0, 10, 4105])))


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ((layer(2), layer(2, 3)), "layer 2: 3 inputs, but the spikes of 2 neurons arrive"),
        ((layer(2), layer(3, 2)), "layer 2: 3 neurons, the layers before have 2"),
        ((layer(2), 7), "layer 2: a int, the stock form has StockLayer"),
    ],
)
def test_layers_that_do_not_fit_together_are_refused(layers: tuple, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        HeadSpec(layers, STOCK, 8, 3)


@pytest.mark.parametrize(
    ("steps", "read_after", "said"),
    [
        (8, 0, "read 0 time steps after a pulse, which reaches the last layer after 1"),
        (4, 3, r"4 time steps an observation, read after 3: expected 5\.\.64"),
        (65, 3, r"65 time steps an observation, read after 3: expected 5\.\.64"),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused(steps: int, read_after: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        HeadSpec((layer(2), layer(2)), STOCK, steps, read_after)


def test_the_soft_form_refuses_a_schedule_and_stock_layers() -> None:
    with pytest.raises(ConfigError, match="12 time steps an observation, the soft form makes 1"):
        HeadSpec((layer(),), "soft", 12, 3)
    with pytest.raises(ConfigError, match="layer 1: a StockLayer, the soft form has LayerSpec"):
        HeadSpec((layer(),))


def test_sums_count_the_constant_and_one_spike_a_neuron() -> None:
    one = layer(2, weight_int=np.array([[10, -4], [2, 2]]))
    later = layer(2, weight_int=np.array([[6, -8], [2, 2]]))
    spec = HeadSpec((one, later, later), STOCK, 8, 3)
    assert spec.n_inputs == 1
    assert synaptic_reach(spec, np.array([3.0])) == (30 + 4 * CONSTANT, 14, 14)


# The same bits everywhere


def scheduled(rng: np.random.Generator) -> HeadSpec:
    n_layers = int(rng.integers(1, 4))
    read_after = int(rng.integers(max(n_layers - 1, 1), 6))
    steps = int(rng.integers(read_after + 2, 14))
    sizes = int(rng.integers(1, 10)), int(rng.integers(1, 10))
    return random_stock_head(rng, *sizes, n_layers, steps, read_after)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_fast_engine_gives_the_reference_bit_for_bit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spec = scheduled(rng)
    drives = random_stock_drives(rng, 5, 7, spec.n_inputs) * int(rng.choice([1, 1, 20, 3000]))  # the last ones wrap
    every, read = run_stream(spec, drives), run_reference(spec, drives)
    engine = FastStockHead(spec, None, 5 if seed % 2 else None)
    engine.start(7)
    for t, drive in enumerate(drives):
        assert np.array_equal(engine.observe(drive.astype(np.float64)), read.membranes[t, -1])
        for index in range(len(spec.layers)):
            assert np.array_equal(engine.membranes[index], read.membranes[t, index])
            assert np.array_equal(engine.spikes[index], read.spikes[t, index])
            window = slice(t * spec.steps, (t + 1) * spec.steps)
            assert np.array_equal(engine.fired[index], every.spikes[window, index].astype(bool))
    assert (engine.n_overflows > 0) == (every.overflows > 0)


@pytest.mark.parametrize(("n_neurons", "kind", "n_steps"), [(24, np.float32, 2), (150, np.float64, 4)])
def test_packed_products_give_the_reference_whether_spikes_are_many_few_or_rare(n_neurons, kind, n_steps) -> None:
    rng = np.random.default_rng(n_neurons)
    spec = random_stock_head(rng, 20, n_neurons, 3, steps=16, read_after=4)
    spec = replace(spec, layers=tuple(replace(one, rho_int=0 * one.rho_int + 254) for one in spec.layers))
    drives = random_stock_drives(rng, 4, 60, 20)
    every = run_stream(spec, drives)
    engine = FastStockHead(spec, np.full(20, 40.0), 4)
    assert (engine.layers[1].packing.dtype, engine.layers[1].packing.n_steps) == (kind, n_steps)
    engine.start(60)
    for t, drive in enumerate(drives):
        engine.observe(drive.astype(np.float64))
        window = slice(t * spec.steps, (t + 1) * spec.steps)
        for index in range(3):
            assert np.array_equal(engine.fired[index], every.spikes[window, index].astype(bool))
            assert np.array_equal(engine.membranes[index], every.membranes[window][spec.read_after, index])
    counts = every.spikes[:, 0].sum(axis=(1, 2)) / 60
    assert (counts > FEW).any()
    assert ((counts > RARE) & (counts <= FEW)).any()
    assert ((counts > 0) & (counts <= RARE)).any()


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 2**21), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_sums_that_are_packed_can_be_told_apart(reach: int, most: int, seed: int) -> None:
    packing = Packing.of(reach, most)
    sums = np.random.default_rng(seed).integers(-reach, reach + 1, packing.n_steps)
    sums[seed % packing.n_steps] = reach if seed % 2 else -reach
    powers = packing.base ** np.arange(packing.n_steps)
    whole = sum(int(one) * int(power) for one, power in zip(sums, powers))
    assert abs(whole) < 2 ** EXACT[packing.dtype]
    rest, found = packing.dtype(whole), []
    for power in powers[::-1].astype(packing.dtype):
        found.append(np.rint(rest / power))
        rest -= found[-1] * power
    assert found[::-1] == sums.tolist()
    assert 1 <= packing.n_steps <= most


def test_a_base_that_is_too_small_mixes_the_sums_up() -> None:
    packing = Packing.of(100, 2)
    assert packing.base > 200
    assert np.rint((100 * 100 + 100) / 100) != 100  # with a base of 100 the second sum takes from the first


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_who_leaves_the_batch_changes_nothing_for_the_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spec = scheduled(rng)
    drives = random_stock_drives(rng, 6, 5, spec.n_inputs)
    whole, fewer = FastStockHead(spec, None, 6), FastStockHead(spec, None, 6)
    whole.start(5)
    fewer.start(5)
    rows, hits = np.arange(5), []
    for t, drive in enumerate(drives):
        if t == 3:
            rows = np.sort(rng.permutation(5)[: int(rng.integers(1, 5))])
            fewer.keep(rows)
        assert np.array_equal(whole.observe(drive)[rows], fewer.observe(drive[rows]))
        assert np.array_equal(whole.hit[rows], fewer.hit)
        hits.append(whole.hit)
    again = whole.fresh()
    again.start(5)
    assert [again.observe(drive) is None or again.hit.tolist() for drive in drives] == [hit.tolist() for hit in hits]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_exact_arithmetic_is_that_of_fractions(seed: int) -> None:
    """Every membrane as a Fraction, one by one, against the scaled big integers."""
    rng = np.random.default_rng(seed)
    spec = scheduled(rng)
    drives = random_stock_drives(rng, 2, 1, spec.n_inputs)
    exact = ExactStockHead(spec)
    exact.start(1)
    u = [[Fraction(0)] * one.n_neurons for one in spec.layers]
    s = [[0] * one.n_neurons for one in spec.layers]
    for drive in drives:
        read = exact.observe(drive)
        for tau in range(spec.steps):
            pulse = [*drive[0].tolist(), CONSTANT] if tau == 0 else [0] * (spec.n_inputs + 1)
            heard = [pulse, *[list(x) for x in s[:-1]]]
            for index, one in enumerate(spec.layers):
                for k in range(one.n_neurons):
                    a = sum(int(w) * z for w, z in zip(one.weight_int[k], heard[index]))
                    a -= int(one.rho_int[k]) * s[index][k]
                    u[index][k] = u[index][k] * Fraction(one.lambda_int, 4096) + a * 64
            s = [[int(v > int(c)) for v, c in zip(u[i], one.threshold_int)] for i, one in enumerate(spec.layers)]
            assert [x[tau, 0].tolist() for x in exact.fired] == s
            if tau == spec.read_after:
                assert read[0].tolist() == [float(v) for v in u[-1]]
    for index in range(len(spec.layers)):
        assert exact.membrane(index)[0].tolist() == u[index]


def test_an_episode_longer_than_its_guard_is_refused() -> None:
    engine = FastStockHead(head(), None, 1)
    engine.start(1)
    engine.observe(np.array([[1.0]]))
    with pytest.raises(UsageError, match="observation 2, but its guard bands are made for 1"):
        engine.observe(np.array([[1.0]]))


def test_a_step_that_resets_hard_or_fires_at_its_threshold_would_be_seen() -> None:
    """The hand-computed table can fail: two wrong steps give other numbers."""
    spec = head(layer(weight_int=np.array([[4, 2]])))
    u, s, _ = step_int(
        np.array([6656]), np.array([1]), np.array([0]), 2048, spec.layers[0].rho_int, np.array([6400]), 0
    )
    assert (int(u[0]), int(s[0])) == (-3072, 0)
    assert int(u[0]) != 0  # what a hard reset would leave
    at = step_int(np.array([0]), np.array([0]), np.array([100]), 2048, np.array([0]), np.array([6400]), 0)
    assert (int(at[0][0]), int(at[1][0])) == (6400, 0)
