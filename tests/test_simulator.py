"""Lava against the reference and the fast engine, bit for bit: heads with given drives, then whole closed loops.

A session costs seconds, so each carries many cases.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools

import numpy as np
import pytest
import specs

from asp_neuro.chip.session import run_head, simulate
from asp_neuro.errors import ConfigError, UsageError
from asp_neuro.heads.bits import DRIVE_MAX, STATE_MAX, STATE_MIN
from asp_neuro.heads.soft.guard import bands
from asp_neuro.heads.soft.layer import LayerSpec
from asp_neuro.heads.soft.membrane import align_shift, step_float
from asp_neuro.heads.soft.reference import run_reference
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.heads.verdict import hit_place
from asp_neuro.model.episode import Response
from asp_neuro.model.exit import ExitReason, ExitRule

pytestmark = [pytest.mark.lava, pytest.mark.slow]


def with_layer(head: HeadSpec, index: int, **changes: np.ndarray) -> HeadSpec:
    layers = list(head.layers)
    layers[index] = dataclasses.replace(layers[index], **changes)
    return HeadSpec(tuple(layers))


def even(rng: np.random.Generator, low: int, high: int, shape: tuple[int, ...]) -> np.ndarray:
    return 2 * rng.integers(low // 2, high // 2 + 1, shape)


def tense_head(rng: np.random.Generator, n_layers: int) -> HeadSpec:
    """Small numbers, so that membranes often stand within a few units of a threshold: guard hits everywhere."""

    def layer(index: int) -> LayerSpec:
        # A spike weighs 64 times a drive: behind the first layer spikes only inhibit, and the bias drives.
        return LayerSpec(
            weight_int=even(rng, -4, 6, (8, 8))
            if index == 0
            else even(rng, -2, 0, (8, 8)) * rng.integers(0, 2, (8, 8)),
            bias_int=rng.integers(0, 40, 8),
            lambda_int=rng.choice([0, 1024, 3000, 3999, 4095], 8),
            theta_int=rng.integers(10, 60, 8),
            theta_fire_int=rng.integers(100 if index == 0 else 10, 200 if index == 0 else 60, 8),
            factor=np.ones(8),
            state_bits=12,
        )

    return HeadSpec(tuple(layer(index) for index in range(n_layers)))


def first_hits(head: HeadSpec, membranes: np.ndarray) -> np.ndarray:
    """[T, L, b, H] -> [T, b]: the rule of the guard, neuron by neuron in plain Python."""
    n_steps, n_layers, batch, width = membranes.shape
    found = np.zeros((n_steps, batch), dtype=np.int64)
    edges = [bands(layer, n_steps) for layer in head.layers]
    for t, row in itertools.product(range(n_steps), range(batch)):
        for layer, k in itertools.product(range(n_layers), range(width)):
            u = int(membranes[t, layer, row, k])
            above = u - int(head.layers[layer].theta_fire_int[k])
            near = abs(above) < min(t, int(edges[layer].width[k]))
            near &= not (edges[layer].one_sided[k] and above > 0)
            if near or u in (STATE_MIN, STATE_MAX):
                found[t, row] = layer * 4096 + k + 1
                break
    return found


def assert_equals_reference(head: HeadSpec, drives: np.ndarray, **options) -> np.ndarray:
    got = run_head(head, drives, **options)
    membranes, spikes, _ = run_reference(head, drives)
    np.testing.assert_array_equal(got.membranes, membranes)
    np.testing.assert_array_equal(got.spikes, spikes)
    np.testing.assert_array_equal(got.hits, first_hits(head, membranes))
    assert got.membranes.dtype == got.spikes.dtype == np.int64
    return got.hits


def test_one_layer_with_negative_rows_zero_rows_extreme_drives_and_equality():
    rng = np.random.default_rng(1)
    head = specs.random_head(rng, 12, 10, 1)
    weight = even(rng, -256, -2, (10, 12))
    weight[0], weight[1, 0], weight[2] = 0, -256, -256
    head = with_layer(head, 0, weight_int=weight)
    drives = specs.random_drives(rng, 6, 4, 12)
    drives[:, 1] = rng.choice([-DRIVE_MAX, DRIVE_MAX], (6, 12))
    drives[:, 2] = 0
    first = run_reference(head, drives)[0][0, 0, 0]  # membranes of the first observation of cloud 0
    at = first.copy()
    at[5:] -= 1
    assert (first[3:] > 0).any()
    head = with_layer(head, 0, theta_fire_int=at)
    got = run_head(head, drives)
    assert got.spikes[0, 0, 0].tolist() == [0] * 5 + [1] * 5  # equality does not fire, one above does
    membranes, spikes, overflows = run_reference(head, drives)
    np.testing.assert_array_equal(got.membranes, membranes)
    np.testing.assert_array_equal(got.spikes, spikes)
    np.testing.assert_array_equal(got.hits, first_hits(head, membranes))
    assert overflows > 0  # clip limits were reached: they count as hits
    assert got.hits.any()


def test_two_layers_with_an_all_negative_second_matrix_and_idle_steps():
    rng = np.random.default_rng(2)
    head = specs.random_head(rng, 16, 16, 2)
    weight = even(rng, -256, 0, (16, 16))
    weight[3], weight[4, 4] = 0, -256
    head = with_layer(head, 1, weight_int=weight, bias_int=head.layers[1].theta_int * 2)
    drives = specs.random_drives(rng, 8, 5, 16)
    assert_equals_reference(head, drives, idle=1)
    assert run_reference(head, drives)[1][:, 1].any()


@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_guard_hits_of_every_layer_are_those_of_the_rule(n_layers):
    rng = np.random.default_rng(n_layers)
    head = tense_head(rng, n_layers)
    drives = rng.integers(-4, 12, (12, 12, 8))
    found = assert_equals_reference(head, drives, idle=3, idle_seed=5)
    layers = {hit_place(word)[0] for word in found[found > 0]}
    assert layers == set(range(n_layers))
    assert (found == 0).any()


def test_three_layers_hear_the_spikes_of_all_earlier_ones():
    rng = np.random.default_rng(3)
    head = specs.random_head(rng, 20, 12, 3)
    drives = specs.random_drives(rng, 10, 6, 20)
    assert_equals_reference(head, drives)
    spikes = run_reference(head, drives)[1]
    assert ((spikes[:, 0] + spikes[:, 1]) == 2).any()  # both spoke to layer 3 within one observation


def test_the_floating_point_models_follow_the_equation_without_rounding():
    rng = np.random.default_rng(4)
    head = specs.random_head(rng, 8, 8, 2)
    drives = specs.random_drives(rng, 7, 2, 8)
    got = run_head(head, drives, tag="floating_pt")
    held, fired = np.zeros((2, 2, 8)), np.zeros((2, 2, 8))  # [L, b, H]
    for t in range(7):
        z = drives[t].astype(float)
        for index, layer in enumerate(head.layers):
            synaptic = (z @ layer.weight_int.T) * 2.0 ** align_shift(layer.state_bits, index == 0) + layer.bias_int
            lam = layer.lambda_int / 4096.0
            held[index], fired[index] = step_float(
                held[index], fired[index], synaptic, lam, layer.theta_int, layer.theta_fire_int
            )
            z = fired[index]
        np.testing.assert_array_equal(got.membranes[t], held)
        np.testing.assert_array_equal(got.spikes[t], fired)
    assert (got.membranes % 1.0 != 0.0).any()
    np.testing.assert_allclose(got.membranes, run_reference(head, drives)[0], atol=7)


@pytest.fixture(scope="module")
def scene():
    """A perceiver, clouds, a rule that stops some of them early, and the fast engine's answers."""
    rng = np.random.default_rng(11)
    perceiver = specs.random_perceiver(rng, n_layers=2)
    chunks = perceiver.scenes(specs.random_clouds(rng, 12))
    largest = np.sort([max(answer.margins) for answer in perceiver.answers(chunks, ExitRule())])
    rule = ExitRule(tau=float(largest[3:5].mean()))
    answers = perceiver.answers(chunks, rule)
    assert {answer.exit for answer in answers} == {ExitReason.THRESHOLD, ExitReason.BUDGET}
    assert len({answer.observations for answer in answers}) > 2
    return perceiver, chunks, rule, answers


def assert_same_answer(got, want):
    """Everything, to the last bit."""
    for field in dataclasses.fields(want):
        ours, theirs = getattr(got, field.name), getattr(want, field.name)
        if isinstance(theirs, np.ndarray):
            np.testing.assert_array_equal(ours, theirs, err_msg=field.name)
            assert ours.dtype == theirs.dtype
        else:
            assert ours == theirs, field.name
            assert type(ours) is type(theirs)


@pytest.mark.parametrize(
    ("backwards", "options"),
    [(False, {}), (True, {"idle": 1}), (False, {"idle": 7}), (True, {"idle": 5, "idle_seed": 3})],
    ids=["no idle steps", "backwards, 1 idle step", "7 idle steps", "backwards, random idle steps"],
)
def test_answers_do_not_depend_on_backend_order_of_clouds_or_idle_steps(scene, backwards, options):
    perceiver, chunks, rule, answers = scene
    turn = slice(None, None, -1) if backwards else slice(None)
    told = []
    got = simulate(perceiver, chunks[turn], rule, on_answer=lambda index, answer: told.append(index), **options)
    assert told == list(range(len(chunks)))
    for ours, theirs in zip(got, answers[turn], strict=True):
        assert_same_answer(ours, theirs)


def test_a_recording_holds_every_layer_of_every_observation(scene):
    perceiver, chunks, _, _ = scene
    few, order = chunks[:3], np.array([[5, 4, 3, 2, 1, 0]] * 3)
    record = []
    got = simulate(perceiver, few, ExitRule(), order=order, record=record)
    for index, (ours, theirs) in enumerate(zip(got, perceiver.answers(few, ExitRule(), order), strict=True)):
        assert_same_answer(ours, theirs)
        assert ours.order == (5, 4, 3, 2, 1, 0)
        story, drives = perceiver.story(few[index : index + 1], ExitRule(), order[index : index + 1]), []
        request = next(story)
        for membrane in record[index].membranes[:, -1]:  # played back, the host shows its drives
            drives.append(request.drive_int)
            with contextlib.suppress(StopIteration):
                request = story.send(Response(membrane[None], np.zeros(1, dtype=np.int64)))
        membranes, spikes, _ = run_reference(perceiver.head, np.array(drives).astype(np.int64))
        np.testing.assert_array_equal(record[index].membranes, membranes[:, :, 0])
        np.testing.assert_array_equal(record[index].spikes, spikes[:, :, 0])
        np.testing.assert_array_equal(record[index].hits, first_hits(perceiver.head, membranes)[:, 0])


def test_no_clouds_no_session(scene):
    perceiver, chunks, rule, _ = scene
    assert simulate(perceiver, chunks[:0], rule) == []


@pytest.mark.parametrize(
    ("drives", "options", "words"),
    [
        (np.zeros((2, 1, 5)), {}, "expected .observations, clouds, 16."),
        (np.full((2, 1, 16), 2**15), {}, "drive 32768 exceeds 32767"),
        (np.zeros((2, 1, 16)), {"tag": "fixed"}, "model tag 'fixed' is not known"),
        (np.zeros((2, 1, 16)), {"idle": -1}, "idle steps -1"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(drives, options, words, monkeypatch):
    monkeypatch.setattr("subprocess.Popen", None)
    head = specs.random_head(np.random.default_rng(0))
    with pytest.raises(UsageError, match=words):
        run_head(head, drives, **options)


def test_a_head_that_lava_cannot_build_is_refused_before_anything_starts(monkeypatch):
    monkeypatch.setattr("subprocess.Popen", None)
    ones = np.ones(2, dtype=np.int64)
    wide = HeadSpec((LayerSpec(np.full((2, 300), 254), ones, ones, ones, ones, np.ones(2), 12),))
    with pytest.raises(ConfigError, match="layer 1: synaptic sums can reach"):
        run_head(wide, np.full((1, 1, 300), DRIVE_MAX))
