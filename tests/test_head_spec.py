"""HeadSpec: what does not fit the integer grid is refused by layer, value and limit; scales keep their headroom."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asp_neuro.errors import ConfigError
from asp_neuro.heads.bits import STATE_MAX, STATE_MIN
from asp_neuro.heads.soft.layer import STATE_BITS_MAX, STATE_BITS_MIN, LayerSpec, choose_scales
from asp_neuro.heads.soft.reference import run_reference
from asp_neuro.heads.spec import HeadSpec


def layer(n_neurons: int = 3, n_inputs: int = 3, **changes: object) -> LayerSpec:
    plain = LayerSpec(
        weight_int=np.full((n_neurons, n_inputs), 2),
        bias_int=np.zeros(n_neurons, np.int64),
        lambda_int=np.full(n_neurons, 3686),
        theta_int=np.full(n_neurons, 4096),
        theta_fire_int=np.full(n_neurons, 4096),
        factor=np.ones(n_neurons),
        state_bits=12,
    )
    return replace(plain, **changes)


def with_value(values: np.ndarray, value: int) -> np.ndarray:
    changed = values.copy()
    changed.flat[-1] = value
    return changed


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("weight_int", 256, "weight 256 exceeds 254"),
        ("weight_int", -258, "weight -258 is below -256"),
        ("weight_int", 7, "weight 7 is odd"),
        ("weight_int", -7, "weight -7 is odd"),
        ("bias_int", STATE_MAX + 1, f"bias {STATE_MAX + 1} exceeds {STATE_MAX}"),
        ("bias_int", STATE_MIN - 1, f"bias {STATE_MIN - 1} is below {STATE_MIN}"),
        ("lambda_int", 4096, "leak 4096 exceeds 4095"),
        ("lambda_int", -1, "leak -1 is below 0"),
        ("theta_int", STATE_MAX + 1, f"theta {STATE_MAX + 1} exceeds {STATE_MAX}"),
        ("theta_int", -1, "theta -1 is below 0"),
        ("theta_fire_int", STATE_MAX + 1, f"theta_fire {STATE_MAX + 1} exceeds"),
        ("theta_fire_int", STATE_MIN - 1, f"theta_fire {STATE_MIN - 1} is below"),
    ],
)
@pytest.mark.parametrize("number", [1, 2])
def test_a_value_off_the_grid_is_refused_with_layer_value_and_limit(
    field: str, value: int, said: str, number: int
) -> None:
    layers = [layer(), layer()]
    layers[number - 1] = replace(layers[number - 1], **{field: with_value(getattr(layers[0], field), value)})
    with pytest.raises(ConfigError, match=f"^layer {number}: {said}"):
        HeadSpec(tuple(layers))


def test_the_limits_themselves_are_allowed() -> None:
    for field, low, high in (
        ("weight_int", -256, 254),
        ("bias_int", STATE_MIN, STATE_MAX),
        ("lambda_int", 0, 4095),
        ("theta_int", 0, STATE_MAX),
        ("theta_fire_int", STATE_MIN, STATE_MAX),
    ):
        for value in (low, high):
            HeadSpec((layer(**{field: with_value(getattr(layer(), field), value)}),))


@pytest.mark.parametrize("bits", [11, 19, 0])
def test_a_state_scale_outside_its_range_is_refused(bits: int) -> None:
    with pytest.raises(ConfigError, match=rf"layer 1: state scale 2\^{bits} is outside 2\^12\.\.18"):
        HeadSpec((layer(state_bits=bits),))


@pytest.mark.parametrize("factor", [0.0, -1.0, np.nan, np.inf])
def test_a_row_factor_that_is_no_positive_number_is_refused(factor: float) -> None:
    with pytest.raises(ConfigError, match="layer 1: every neuron needs a finite factor above 0"):
        HeadSpec((layer(factor=np.array([1.0, factor, 1.0])),))


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ((), "at least one layer"),
        ((layer(weight_int=np.zeros((3, 3))),), "layer 1: weight is float64, expected integers"),
        ((layer(bias_int=np.zeros(2, np.int64)),), r"layer 1: bias has shape \[2\], expected \[3\]"),
        ((layer(weight_int=np.zeros(3, np.int64)),), "layer 1: weights have shape"),
        ((layer(weight_int=np.zeros((0, 3), np.int64)),), "layer 1: weights have shape"),
        ((layer(3, 5), layer(3, 5)), "layer 2: 5 inputs, but the spikes of 3 neurons arrive"),
        ((layer(3, 5), layer(4, 3)), "layer 2: 4 neurons, but residual spikes need 3"),
        ((layer(factor=np.ones(2)),), "layer 1: every neuron needs a finite factor"),
    ],
)
def test_layers_that_do_not_fit_together_are_refused(layers: tuple[LayerSpec, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        HeadSpec(layers)


def test_a_form_of_neuron_that_nobody_knows_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"form of neuron 'free' is not known; known: .*soft"):
        HeadSpec((layer(),), form="free")
    with pytest.raises(ConfigError, match="form of neuron 'sotf' is not known; did you mean 'soft'"):
        HeadSpec((layer(),), form="sotf")


def test_a_layer_of_another_form_is_refused() -> None:
    with pytest.raises(ConfigError, match="layer 2: a int, the soft form has LayerSpec"):
        HeadSpec((layer(), 3))


def test_scales_by_hand() -> None:
    # a row of 0.5 is filled by 254/64/0.5 = 7.9375; its membranes of 4 then reach 31.75, twice that 63.5,
    # and 2^23 / 63.5 is just above 2^17
    factor, bits = choose_scales(np.array([0.5]), np.array([4.0]))
    assert (factor.tolist(), bits) == ([7.9375], 17)
    # membranes of 1000: twice 7937.5 is more than 2^11 = 2^23 / 2^12, so the row is not filled
    factor, bits = choose_scales(np.array([0.5]), np.array([1000.0]))
    assert factor[0] == pytest.approx((2**23 - 1) / 2000 / 4096)
    assert bits == 12


def test_a_zero_row_keeps_one_unless_its_bias_alone_fills_the_state() -> None:
    factor, _ = choose_scales(np.array([0.0, 0.5]), np.array([3.0, 3.0]))
    assert factor.tolist() == [1.0, 7.9375]
    factor, _ = choose_scales(np.array([0.0]), np.array([1e6]))
    assert factor[0] < 1.0


positive = st.floats(1e-6, 1e6)


@given(st.lists(st.tuples(st.one_of(st.just(0.0), positive), positive), min_size=1, max_size=8), st.floats(1.0, 4.0))
def test_scales_keep_the_headroom_and_the_limits(rows: list[tuple[float, float]], headroom: float) -> None:
    weight, seen = (np.array(column) for column in zip(*rows))
    factor, bits = choose_scales(weight, seen, headroom)
    assert STATE_BITS_MIN <= bits <= STATE_BITS_MAX
    assert (factor > 0).all()
    room = 1 + 1e-12
    assert (weight * factor * 64 <= 254 * room).all()
    assert (seen * headroom * factor * 2.0**bits <= STATE_MAX * room).all()
    if bits < STATE_BITS_MAX:  # one bit more would break the headroom of some neuron, up to rounding
        assert (seen * headroom * factor * 2.0 ** (bits + 1)).max() > STATE_MAX * (1 - 1e-12)
    full = (weight > 0) & (seen * headroom * 254 / 64 / np.maximum(weight, 1e-9) * 4096 <= STATE_MAX)
    np.testing.assert_allclose((weight * factor)[full], 254 / 64)  # rows are full where the state allows


@given(st.floats(0.0, 1e-3))
def test_a_dead_neuron_gets_scales_too(seen: float) -> None:
    factor, bits = choose_scales(np.array([0.2]), np.array([seen]))
    assert np.isfinite(factor).all()
    assert bits == STATE_BITS_MAX


def test_the_reference_follows_two_layers_worked_out_by_hand() -> None:
    spec = HeadSpec(
        (
            layer(1, 2, weight_int=np.array([[4, -2]]), lambda_int=np.array([2048]), theta_int=np.array([100]),
                  theta_fire_int=np.array([120]), bias_int=np.array([3])),
            layer(1, 1, weight_int=np.array([[2]]), lambda_int=np.array([0]), theta_int=np.array([40]),
                  theta_fire_int=np.array([127])),
        )
    )  # fmt: skip
    drives = np.array([[[40, 10]], [[0, 50]], [[1, 1]]])
    membranes, spikes, overflows = run_reference(spec, drives)
    # layer 1: 160 - 20 + 3 = 143 fires; then 71 + 0 (-100 + 3 is rectified) - 100 = -29; then -14 + 5 = -9
    assert membranes[:, 0, 0, 0].tolist() == [143, -29, -9]
    assert spikes[:, 0, 0, 0].tolist() == [1, 0, 0]
    # layer 2 (f = 12: 2 << 6 = 128 a spike): 128 fires over 127; then 0 + 0 - 40; then 0
    assert membranes[:, 1, 0, 0].tolist() == [128, -40, 0]
    assert spikes[:, 1, 0, 0].tolist() == [1, 0, 0]
    assert overflows == 0


def test_the_third_layer_takes_the_sum_of_both_layers_before_it() -> None:
    always = layer(1, 1, bias_int=np.array([10]), theta_int=np.array([0]), theta_fire_int=np.array([1]),
                   weight_int=np.array([[0]]))  # fmt: skip
    last = layer(1, 1, weight_int=np.array([[2]]), lambda_int=np.array([0]), theta_fire_int=np.array([STATE_MAX]))
    membranes, _, _ = run_reference(HeadSpec((always, always, last)), np.zeros((1, 1, 1), np.int64))
    assert membranes[0, 2, 0, 0] == 2 * 2 * 64


def test_overflows_of_the_sum_and_of_the_state_are_counted() -> None:
    big = layer(1, 1, weight_int=np.array([[254]]), state_bits=18, theta_fire_int=np.array([STATE_MAX]))
    assert run_reference(HeadSpec((big,)), np.array([[[500]]]))[2] == 0  # 254 * 500 << 6 = 8128000
    assert run_reference(HeadSpec((big,)), np.array([[[600]]]))[2] == 2  # the sum, and the clipped state
    assert run_reference(HeadSpec((big,)), np.array([[[-600]]]))[2] == 1  # the sum only: it is rectified afterwards
    assert run_reference(HeadSpec((big,)), np.array([[[500]], [[500]]]))[2] == 1  # the state only
