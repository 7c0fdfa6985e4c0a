"""The same bits on every machine: no product or sum of the deployed host depends on the order in which it is added."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
import specs
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from asp_neuro.errors import ConfigError, InputError
from asp_neuro.grid import arithmetic
from asp_neuro.grid.arithmetic import (
    BELIEF_BITS,
    BIAS_BITS,
    MARGIN_BITS,
    TANH_BITS,
    Linear,
    Product,
    exp,
    membrane_bits,
    normalise_int,
    on_grid,
    tanh,
    to_range,
)
from asp_neuro.grid.sections import Affine, Matrix
from asp_neuro.grid.softmax import margin, probabilities
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.runtime.deployment import open_bundle
from asp_neuro.scenes.cloud import GRID, Chunking, cut, describe

# A library that adds in another order on purpose


class Unruly(np.ndarray):
    """Weights whose products are added in two halves, backwards: what another BLAS, or another batch size, may do."""

    def __rmatmul__(self, x: np.ndarray) -> np.ndarray:
        plain, middle = np.asarray(self)[::-1], len(self) // 2
        turned = np.ascontiguousarray(np.asarray(x)[..., ::-1])
        return turned[..., middle:] @ plain[middle:] + turned[..., :middle] @ plain[:middle]


@pytest.fixture(autouse=True)
def numpy_alone(monkeypatch):
    """Libraries are tried here, so they do all the work."""
    monkeypatch.setattr("asp_neuro.compiled.kernels", None)


def unruly(model: object, seen: set[int] | None = None) -> int:
    """Make every matrix of a built model unruly; returns how many there were."""
    seen = set() if seen is None else seen
    n = 0
    for value in vars(model).values():
        if isinstance(value, arithmetic.Linear):
            value.weight = value.weight.view(Unruly)
            n += 1
        elif isinstance(value, Product):
            value._columns = value._columns.view(Unruly)
            n += 1
        elif (
            type(value).__module__.startswith("asp_neuro")
            and not dataclasses.is_dataclass(value)
            and id(value) not in seen
        ):
            seen.add(id(value))
            n += unruly(value, seen)
    return n


def is_arithmetic(value: object) -> bool:
    """An object of ours that is not plain data."""
    return type(value).__module__.startswith("asp_neuro") and not dataclasses.is_dataclass(value)


def printed(perceiver: Perceiver, scenes: object, rule: ExitRule, batch: int) -> list[tuple]:
    """Every number of every answer, and the verdict."""
    told = []
    for start in range(0, len(scenes), batch):
        told += perceiver.answers(scenes[start : start + batch], rule)
    return [
        (a.order, a.labels, a.margins, a.exit, a.probability, a.probabilities.tolist(), a.membrane.tolist(), a.verdict)
        for a in told
    ]


def small(**parts: object) -> tuple[Perceiver, object]:
    rng = np.random.default_rng(4)
    perceiver = specs.random_perceiver(rng, width=48, n_neurons=48, n_classes=7, **parts)
    return perceiver, perceiver.scenes(specs.random_clouds(rng, 34))


PARTS = [{}, {"token_width": 40, "moments": True, "first_look": 9}]


@pytest.mark.parametrize("parts", PARTS, ids=("plain", "all parts"))
@pytest.mark.parametrize("rule", [ExitRule(), ExitRule(0.3, certified=True)], ids=("budget", "exit"))
def test_a_product_that_adds_in_another_order_changes_no_printed_number(parts, rule):
    perceiver, scenes = small(**parts)
    expected = printed(perceiver, scenes, rule, 34)
    other = Perceiver(perceiver.spec)
    assert unruly(other.model) >= 9
    assert printed(other, scenes, rule, 34) == expected


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 17])
def test_no_printed_number_depends_on_the_batch(batch):
    perceiver, scenes = small(first_look=9)
    rule = ExitRule(0.3, certified=True)
    assert printed(perceiver, scenes, rule, batch) == printed(perceiver, scenes, rule, 34)


def test_weights_off_the_grid_are_found_by_the_unruly_product():
    # The same test with the products behind the head as they were in version 0.1: float64 weights as they come.
    perceiver, scenes = small()
    other = Perceiver(perceiver.spec)
    for model in (perceiver.model, other.model):
        for product in (model.task.product, model.policy.from_belief):
            product._columns = product._columns * (1.0 + 1e-9 / math.pi)
    unruly(other.model)
    logits = [[look.logits for look in p.played(scenes, ExitRule()).looks] for p in (perceiver, other)]
    assert any((one != two).any() for one, two in zip(*logits, strict=True))


def test_an_encoder_whose_sums_leave_float32_is_found_by_the_unruly_product():
    # Weights of 8 bits keep every sum below 2^24. With last bits of a float32 beside them, a sum that was whole lies at
    # the edge of rounding, and the order decides on which side.
    perceiver, scenes = small()

    def apart(steps: int) -> bool:
        two = [Perceiver(perceiver.spec) for _ in range(2)]
        for one in two:
            encoder = one.model.encoder
            encoder.edge_out.weight = (encoder.edge_out.weight * np.float32(1.0 - steps * 2.0**-24)).astype(np.float32)
        unruly(two[1].model)
        drives = [[look.drive_int for look in one.played(scenes, ExitRule()).looks] for one in two]
        return any((one != other).any() for one, other in zip(*drives, strict=True))

    assert any(apart(steps) for steps in range(1, 9))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["compact", "modelnet10", "modelnet40"])
def test_a_shipped_model_gives_the_same_numbers_with_an_unruly_library(name):
    from asp_neuro.data import load_clouds

    perceiver = open_bundle(name).perceiver
    clouds = load_clouds("shapes", "test", n_points=perceiver.spec.scene.chunking.n_points).subset(range(0, 600, 12))
    scenes = perceiver.scenes(clouds.points)
    other = Perceiver(perceiver.spec)
    unruly(other.model)
    assert printed(other, scenes, ExitRule(0.5), 17) == printed(perceiver, scenes, ExitRule(0.5), 50)


# Descriptors


def test_descriptors_do_not_depend_on_the_order_of_the_points():
    rng = np.random.default_rng(0)
    chunks = cut(specs.random_clouds(rng, 5, 256), Chunking(256, 32, 8, 8))
    points, mask = chunks.coordinates(), chunks.mask()
    expected = describe(points, mask)
    for _ in range(5):
        order = rng.permutation(points.shape[1])
        assert (describe(points[:, order], mask[:, :, order]) == expected).all()
    assert (expected * 2.0**16 == np.rint(expected * 2.0**16)).all()
    assert (points * GRID == np.rint(points * GRID)).all()


# Products


def matrix(weight: np.ndarray, shift: int | np.ndarray = 7) -> Matrix:
    return Matrix(weight.astype(np.int8), np.broadcast_to(shift, len(weight)).astype(np.int8))


def whole_numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(-127, 128, shape)


def test_a_product_that_cannot_be_exact_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"task: readout: sums of row 1 can reach .* float64 is exact below"):
        Product("task: readout", matrix(np.array([[1, 1], [127, 127]])), 2.0**22, BELIEF_BITS)


def test_a_layer_that_cannot_be_exact_is_refused_by_name():
    weight = np.full((2, 520), 127)
    assert Linear("scene: edge_out", matrix(weight[:, :512]), 255.0).weight.dtype == np.float32
    with pytest.raises(ConfigError, match=r"scene: edge_out: sums of row 0 can reach .* float32 is exact below 16,777"):
        Linear("scene: edge_out", matrix(weight), 255.0)


@pytest.mark.parametrize("shift", [-1, 25])
def test_a_shift_out_of_range_is_refused_by_row(shift):
    for kind in (lambda one: Linear("a", one, 1.0), lambda one: Product("a", one, 1.0, 24)):
        with pytest.raises(ConfigError, match=f"a: row 2 is shifted by {shift}, expected 0 to 24"):
            kind(matrix(np.ones((3, 4)), np.array([0, 24, shift])))


@given(st.integers(0, 2**32 - 1))
def test_a_product_is_exact_to_the_last_bit(seed):
    rng = np.random.default_rng(seed)
    weight, shift, powers = whole_numbers(rng, (2, 6)), rng.integers(0, 20, 2), rng.integers(-3, 4, 6)
    bias = rng.integers(-(2**20), 2**20, 2).astype(np.int32)
    affine = Affine(weight.astype(np.int8), bias, shift.astype(np.int8))
    product = Product("p", affine, 16.0, BELIEF_BITS, powers)
    x = on_grid(rng.uniform(-16, 16, (3, 6)), BELIEF_BITS)
    found = product(x) + product.bias
    for row, values in enumerate(x):
        for out in range(2):
            exact = sum(Fraction(v) * int(w) * Fraction(2) ** int(e) for v, w, e in zip(values, weight[out], powers))
            exact += Fraction(int(bias[out]), 2**BIAS_BITS)
            assert Fraction(found[row, out]) == exact / 2 ** int(shift[out])


@given(st.integers(0, 2**32 - 1))
def test_a_layer_rounds_to_the_nearest_halves_up(seed):
    rng = np.random.default_rng(seed)
    weight, shift = whole_numbers(rng, (5, 9)), rng.integers(0, 12, 5)
    bias = rng.integers(-(2**18), 2**18, 5).astype(np.int32)
    layer = Linear("l", Affine(weight.astype(np.int8), bias, shift.astype(np.int8)), 255.0)
    x = rng.integers(0, 256, (4, 9))
    found = to_range(layer(x.astype(np.float32)) + layer.bias, -1e9, 1e9)
    sums = x @ weight.T + bias
    half = np.where(shift > 0, 1 << np.maximum(shift - 1, 0), 0)
    assert (found == (sums + half) >> shift).all()


def test_a_range_holds_whole_numbers_only():
    x = np.array([-130.2, -0.5, 0.0, 0.99, 254.5, 255.5, 300.0], np.float32)
    assert to_range(x.copy(), 0.0, 255.0).tolist() == [0.0, 0.0, 0.0, 0.0, 254.0, 255.0, 255.0]
    assert to_range(x.copy(), -127.0, 127.0).tolist() == [-127.0, -1.0, 0.0, 0.0, 127.0, 127.0, 127.0]


# LayerNorm in integers


def test_the_normalised_belief_is_that_of_the_plain_formula():
    rng = np.random.default_rng(1)
    x = rng.integers(-(2**20), 2**20, (6, 32))
    gain, bias = rng.uniform(0.5, 1.5, 32), rng.normal(size=32)
    u = x / 2.0**12
    centred = u - u.mean(axis=1, keepdims=True)
    plain = centred / np.sqrt(centred.var(axis=1, keepdims=True) + arithmetic.EPSILON) * gain + bias
    assert normalise_int(x, gain, bias, 12) == pytest.approx(plain, abs=1e-12)


@pytest.mark.parametrize(("largest", "n"), [(256.0, 128), (1e-3, 16), (2.0**123, 12), (3.0, 4096), (1.0, 1)])
def test_the_sums_of_the_normalisation_stay_in_int64(largest, n):
    bits = membrane_bits(largest, n)
    assert (n * largest * 2.0**bits) ** 2 < 2.0**63
    assert bits <= arithmetic.MEMBRANE_BITS_MAX


# exp and tanh of our own


def test_exp_is_within_its_promise():
    x = -np.concatenate([np.linspace(0, 59, 20001), np.random.default_rng(0).exponential(5.0, 20000)])
    x = x[x > -60]
    assert np.abs(exp(x) - np.exp(x)).max() < 2.0**-41
    assert exp(np.array([0.0]))[0] == 1.0
    assert exp(np.array([-np.inf, -1e9])).max() < 1e-25


def test_tanh_is_within_its_promise():
    z = np.concatenate([np.linspace(-30, 30, 20001), np.random.default_rng(0).normal(size=20000)])
    assert np.abs(tanh(z) - np.tanh(z)).max() < 2.0 ** -(TANH_BITS + 1) + 2.0**-40
    assert (tanh(-z) == -tanh(z)).all()
    assert (np.diff(tanh(np.sort(z))) >= 0.0).all()


def test_exp_and_tanh_by_pinned_bits():
    # What any other machine, and a port to C or torch, must give.
    x = -np.arange(1, 65) / 8.0
    bits = [value.hex() for value in exp(x[[0, 7, 63]]).tolist()]
    assert bits == [
        "0x1.c3d6a24ed8222p-1",
        "0x1.78b56362cf12bp-2",
        "0x1.5fc210410262ap-12",
    ]
    assert (tanh(x) * 2.0**TANH_BITS).astype(np.int64)[[0, 7, 15]].tolist() == [-133523019, -817755498, -1035116732]


# Margins and probabilities


@given(arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(2, 9)), elements=st.floats(-80, 80)))
def test_margins_are_those_of_softmax_on_the_grid(logits):
    z = logits - logits.max(axis=1, keepdims=True)
    shares = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    top = np.sort(shares, axis=1)
    assert margin(logits) == pytest.approx(top[:, -1] - top[:, -2], abs=2.0**-MARGIN_BITS)
    assert probabilities(logits) == pytest.approx(shares, abs=2.0**-MARGIN_BITS)
    assert (margin(logits) * 2.0**MARGIN_BITS % 1.0 == 0.0).all()
    assert ((margin(logits) >= 0.0) & (margin(logits) <= 1.0)).all()


@given(arrays(np.float64, st.tuples(st.just(1), st.integers(2, 9)), elements=st.floats(-80, 80)), st.integers(0, 99))
def test_margins_do_not_depend_on_the_order_of_the_classes(logits, seed):
    order = np.random.default_rng(seed).permutation(logits.shape[1])
    assert margin(logits[:, order]) == margin(logits)
    assert (probabilities(logits[:, order]) == probabilities(logits)[:, order]).all()


def test_logits_that_are_not_finite_are_refused():
    with pytest.raises(InputError, match="1 of 2 logits are not finite"):
        margin(np.array([[0.0, np.nan]]))
    with pytest.raises(InputError, match="at least 2 classes"):
        margin(np.array([[0.0]]))
