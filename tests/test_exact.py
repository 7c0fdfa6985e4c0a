"""The exact head: by hand, against plain Fractions, and what makes it differ from the carried one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import specs

from asp_neuro.heads.bits import STATE_MAX
from asp_neuro.heads.soft.exact import ExactHead, run_exact
from asp_neuro.heads.soft.layer import LayerSpec
from asp_neuro.heads.soft.membrane import align_shift
from asp_neuro.heads.soft.reference import run_reference
from asp_neuro.heads.spec import HeadSpec


def one_neuron(leak: int, theta: int, theta_fire: int, bias: int = 0) -> HeadSpec:
    whole = [np.array([value]) for value in (bias, leak, theta, theta_fire)]
    return HeadSpec((LayerSpec(np.array([[2]]), *whole, factor=np.ones(1), state_bits=12),))


def test_an_episode_by_hand():
    # drives 2 x = 10, 4, 0, 2; leak 1/2; reset 5; fires above 6
    head = ExactHead(one_neuron(2048, theta=5, theta_fire=6))
    head.start(1)
    seen = []
    for x in (5, 2, 0, 1):
        head.observe(np.array([[x]]))
        seen.append((head.membrane(0)[0, 0], int(head.spikes[0][0, 0])))
    # 10 fires; 5 + 4 - 5 = 4; 2; 1 + 2 = 3
    assert seen == [(10, 1), (4, 0), (2, 0), (3, 0)]


def test_nothing_is_lost_where_the_carried_head_truncates():
    spec = one_neuron(2048, theta=5, theta_fire=100)
    drives = np.array([1, 0, 0, 0], dtype=np.int64)[:, None, None]  # 2, 1, 1/2, 1/4
    scaled, _ = run_exact(spec, drives)
    assert [Fraction(scaled[t, 0, 0, 0], 4096**t) for t in range(4)] == [2, 1, Fraction(1, 2), Fraction(1, 4)]
    assert run_reference(spec, drives)[0].ravel().tolist() == [2, 1, 0, 0]


def test_the_comparison_is_strict_and_exact():
    # 3 then 3/2 + bias: exactly at the threshold does not fire, one 4096th above does
    head = ExactHead(one_neuron(2049, theta=5, theta_fire=4, bias=0))
    head.start(2)
    head.observe(np.array([[2], [0]]))  # 4: not above 4
    assert head.spikes[0].ravel().tolist() == [0, 0]
    head.observe(np.array([[1], [2]]))  # 4 * 2049/4096 + 2 = 4 + 4/4096;  4
    assert head.membrane(0).ravel().tolist() == [4 + Fraction(4, 4096), 4]
    assert head.spikes[0].ravel().tolist() == [1, 0]


def test_the_reference_does_not_saturate():
    spec = one_neuron(4095, theta=0, theta_fire=STATE_MAX - 1, bias=STATE_MAX)
    drives = np.zeros((3, 1, 1), dtype=np.int64)
    scaled, _ = run_exact(spec, drives)
    assert scaled[2, 0, 0, 0] > STATE_MAX * 4096**2
    assert run_reference(spec, drives)[0].max() == STATE_MAX


def plain(spec: HeadSpec, drives: np.ndarray) -> list[list[list[tuple[Fraction, int]]]]:
    """One cloud, in Fractions, one neuron after the other: [T][L][H]."""
    state = [[(Fraction(0), 0)] * layer.n_neurons for layer in spec.layers]
    told = []
    for x in drives.tolist():
        spikes_before = [[s for _, s in layer] for layer in state]
        for index, layer in enumerate(spec.layers):
            z = x if index == 0 else [sum(state[i][k][1] for i in range(index)) for k in range(len(state[0]))]
            shift = 2 ** align_shift(layer.state_bits, first_layer=index == 0)
            fresh = []
            for k in range(layer.n_neurons):
                a = sum(int(w) * v for w, v in zip(layer.weight_int[k], z, strict=True)) * shift + int(
                    layer.bias_int[k]
                )
                u = state[index][k][0] * Fraction(int(layer.lambda_int[k]), 4096) + max(a, 0)
                u -= int(layer.theta_int[k]) * spikes_before[index][k]
                fresh.append((u, int(u > int(layer.theta_fire_int[k]))))
            state[index] = fresh
        told.append([list(layer) for layer in state])
    return told


def test_it_equals_plain_fractions_neuron_by_neuron():
    rng = np.random.default_rng(0)
    for _ in range(6):
        spec = specs.random_head(rng, 4, 5, 3)
        drives = specs.random_drives(rng, 8, 2, 4)
        scaled, spikes = run_exact(spec, drives)
        for cloud in range(2):
            for t, layers in enumerate(plain(spec, drives[:, cloud])):
                for index, layer in enumerate(layers):
                    found = [Fraction(value, 4096**t) for value in scaled[t, index, cloud]]
                    assert found == [u for u, _ in layer]
                    assert spikes[t, index, cloud].tolist() == [s for _, s in layer]


def test_without_leak_it_equals_the_carried_head():
    rng = np.random.default_rng(1)
    spec = specs.random_head(rng, 6, 5, 2)
    spec = HeadSpec(tuple(replace(layer, lambda_int=0 * layer.lambda_int) for layer in spec.layers))
    drives = specs.random_drives(rng, 10, 7, 6)
    membranes, spikes, _ = run_reference(spec, drives)
    scaled, sure = run_exact(spec, drives)
    assert (spikes == sure).all()
    assert all((scaled[t] == membranes[t].astype(object) * 4096**t).all() for t in range(10))


def test_clouds_that_leave_change_nothing_for_the_others_and_floats_are_the_nearest():
    rng = np.random.default_rng(2)
    spec = specs.random_head(rng, 4, 5, 2)
    drives = specs.random_drives(rng, 6, 3, 4)
    whole, kept = ExactHead(spec), ExactHead(spec)
    whole.start(3)
    kept.start(3)
    for t in range(6):
        full = whole.observe(drives[t])
        if t == 2:
            kept.keep(np.array([0, 2]))
        part = kept.observe(drives[t] if t < 2 else drives[t, [0, 2]])
        assert (part == (full if t < 2 else full[[0, 2]])).all()
        assert full.tolist() == [[float(value) for value in row] for row in whole.membrane(1)]
