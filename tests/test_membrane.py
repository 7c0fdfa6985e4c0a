"""The soft-reset membrane: tables worked out by hand, and parity with Python's own integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asp_neuro.heads.bits import STATE_MAX, STATE_MIN
from asp_neuro.heads.membrane import leak_int
from asp_neuro.heads.soft.membrane import align_shift, step_float, step_int


def one(u: int, s: int, a: int, leak: int, theta: int, fire: int) -> tuple[int, int]:
    """One neuron, one observation."""
    held, fired = step_int(*(np.array([v], dtype=np.int64) for v in (u, s, a, leak, theta, fire)))
    return int(held[0]), int(fired[0])


@pytest.mark.parametrize(
    ("u", "leak", "expected"),
    [
        (1000, 2048, 500),
        (1001, 2048, 500),  # 500.5 goes toward zero
        (-1001, 2048, -500),  # and so does -500.5: a bare shift would say -501
        (1, 4095, 0),
        (-1, 4095, 0),
        (4096, 4095, 4095),
        (-4096, 4095, -4095),
        (STATE_MAX, 4095, 8386559),  # 8388607 * 4095 = 34351345665 = 8386559 * 4096 + 1
        (STATE_MIN, 4095, -8386560),
        (12345, 0, 0),
    ],
)
def test_the_leak_rounds_toward_zero_on_both_sides(u: int, leak: int, expected: int) -> None:
    assert leak_int(np.array([u]), np.array([leak]))[0] == expected


@pytest.mark.parametrize(
    ("aligned", "fired"), [(99, 0), (100, 0), (101, 1)], ids=["below", "at the threshold", "one step above"]
)
def test_a_neuron_fires_strictly_above_its_threshold(aligned: int, fired: int) -> None:
    assert one(0, 0, aligned, 4095, 70, 100) == (aligned, fired)


def test_the_reset_subtracts_theta_and_keeps_the_overshoot() -> None:
    # 200 fires over 100; half of it leaks through (100), 30 come in, 70 are taken away: 60. A hard reset says 30.
    assert one(0, 0, 200, 2048, 70, 100) == (200, 1)
    assert one(200, 1, 30, 2048, 70, 100) == (60, 0)


def test_the_reset_comes_one_observation_after_the_spike_and_can_push_below_zero() -> None:
    assert one(10, 1, 0, 4095, 70, 100) == (9 - 70, 0)


def test_a_whole_episode_follows_the_table_worked_out_by_hand() -> None:
    # lambda 3/4, theta 8, theta_fire 10
    inputs = [9, 5, 20, -50, -50, 3]
    expected = [(9, 0), (11, 1), (20, 1), (7, 0), (5, 0), (6, 0)]
    #           9    6+5     8+20-8  15-8    5       3+3
    u = s = 0
    for a, (membrane, spike) in zip(inputs, expected):
        u, s = one(u, s, a, 3072, 8, 10)
        assert (u, s) == (membrane, spike)


def test_a_negative_synaptic_sum_takes_nothing_away() -> None:
    assert one(64, 0, -10_000, 4095, 70, 100) == (63, 0)
    assert one(64, 0, 0, 4095, 70, 100) == (63, 0)


@pytest.mark.parametrize(
    ("u", "s", "a", "theta", "held"),
    [
        (STATE_MAX, 0, 5000, 0, STATE_MAX),
        (0, 0, STATE_MAX, 0, STATE_MAX),
        (0, 0, STATE_MAX + 1, 0, STATE_MAX),
        (0, 0, STATE_MAX + 1, 1, STATE_MAX),  # no spike before: theta plays no part
        (0, 1, STATE_MAX + 1, 1, STATE_MAX),  # the sum is clipped once, at the end
        (0, 1, STATE_MAX + 2, 1, STATE_MAX),
        (STATE_MIN, 1, 0, STATE_MAX, STATE_MIN),
        (-1, 1, 0, STATE_MAX, STATE_MIN + 1),
        (0, 1, 0, STATE_MAX, STATE_MIN + 1),
        (-5000, 1, 0, STATE_MAX, STATE_MIN),
    ],
)
def test_the_state_saturates_at_24_bits_on_both_sides(u: int, s: int, a: int, theta: int, held: int) -> None:
    assert one(u, s, a, 4095, theta, STATE_MAX)[0] == held


def test_a_saturated_state_does_not_exceed_the_largest_threshold() -> None:
    assert one(0, 0, 2**40, 4095, 1, STATE_MAX) == (STATE_MAX, 0)
    assert one(0, 0, 2**40, 4095, 1, STATE_MAX - 1) == (STATE_MAX, 1)


@pytest.mark.parametrize(("bits", "first", "shift"), [(12, True, 0), (14, True, 2), (12, False, 6), (18, False, 12)])
def test_sums_are_shifted_to_the_state_scale(bits: int, first: bool, shift: int) -> None:
    assert align_shift(bits, first) == shift


def python_step(u: int, s: int, a: int, leak: int, theta: int, fire: int) -> tuple[int, int]:
    """The same in Python's integers, which cannot wrap: division of absolute values, sign put back."""
    leaked = abs(u) * leak // 4096
    free = (leaked if u >= 0 else -leaked) + (a if a > 0 else 0) - theta * s
    held = min(max(free, -(2**23)), 2**23 - 1)
    return held, int(held > fire)


state = st.integers(STATE_MIN, STATE_MAX)
near_state_limits = st.one_of(state, st.integers(-3, 3), st.sampled_from([STATE_MIN, STATE_MIN + 1, STATE_MAX]))


@settings(max_examples=500)
@given(
    near_state_limits,
    st.integers(0, 1),
    st.one_of(st.integers(-(2**45), 2**45), st.integers(-3, 3)),
    st.integers(0, 4095),
    st.integers(0, STATE_MAX),
    near_state_limits,
)
def test_a_step_equals_arbitrary_precision(u: int, s: int, a: int, leak: int, theta: int, fire: int) -> None:
    assert one(u, s, a, leak, theta, fire) == python_step(u, s, a, leak, theta, fire)


@given(st.lists(st.tuples(state, st.integers(0, 1), state), min_size=1, max_size=20), st.integers(0, 4095))
def test_neurons_side_by_side_do_not_see_each_other(neurons: list[tuple[int, int, int]], leak: int) -> None:
    u, s, a = (np.array(column, dtype=np.int64) for column in zip(*neurons))
    held, fired = step_int(u, s, a, np.int64(leak), np.int64(50), np.int64(60))
    for k, (membrane, spike, aligned) in enumerate(neurons):
        assert (held[k], fired[k]) == python_step(membrane, spike, aligned, leak, 50, 60)


def test_the_float_step_is_the_same_equation_without_the_grid() -> None:
    u, s = step_float(
        np.array([2.0, -1.0]), np.array([1.0, 0.0]), np.array([0.5, -3.0]), 0.5, 1.0, np.array([0.4, -0.6])
    )
    assert u.tolist() == [0.5, -0.5]  # 1 + 0.5 - 1, and -0.5 + 0
    assert s.tolist() == [1.0, 1.0]


@given(st.integers(0, 2**32 - 1))
def test_the_integer_step_follows_the_float_step_within_two_units(seed: int) -> None:
    """Within a proved bound: one unit for the leak, one for theta and aligned, which are rounded here."""
    rng = np.random.default_rng(seed)
    u, a = rng.uniform(-100, 100, (2, 50))
    lam, theta, s = rng.integers(0, 4096, 50), rng.uniform(0, 50, 50), rng.integers(0, 2, 50)
    scale = 2**12
    held, _ = step_int(
        np.rint(u * scale).astype(np.int64),
        s,
        np.rint(a * scale).astype(np.int64),
        lam,
        np.rint(theta * scale).astype(np.int64),
        np.int64(0),
    )
    free, _ = step_float(u, s, a, lam / 4096, theta, 0.0)
    assert np.abs(held - free * scale).max() <= 2.5  # 0.5 from u, 1 from the leak, 0.5 from each of the others
