"""Compiled twins (asp_neuro/compiled): bit for bit what numpy gives, and nobody needs them."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import specs

from asp_neuro import compiled
from asp_neuro.errors import InputError
from asp_neuro.grid import arithmetic, softmax
from asp_neuro.heads.soft.fast import FastHead
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.mixer import Mixer
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.scenes import interpolation
from asp_neuro.scenes.cloud import GRID, Chunking, Chunks, cut, descriptors
from asp_neuro.scenes.cloud_statistics import statistics
from asp_neuro.scenes.strays import strays

needs_kernels = pytest.mark.skipif(compiled.kernels is None, reason=f"compiled part: {compiled.state}")
MODULE = "asp_neuro.compiled.kernels"


def clouds(kind: str, rng: np.random.Generator, n_points: int) -> np.ndarray:
    """[3, P, 3]"""
    raw = rng.normal(size=(3, n_points, 3))
    if kind == "lattice":  # ties everywhere, and repeated points
        raw = rng.integers(-5, 6, raw.shape).astype(float)
    elif kind == "line":
        raw[..., 1:] = 0.0
    elif kind == "plane":
        raw = np.rint(raw * 8.0) * [1.0, 0.0, 1.0]
    elif kind == "far point":
        raw[:, 0] = 1e4
    elif kind == "repeated":
        raw[:, n_points // 2 :] = raw[:, : n_points - n_points // 2]
    elif kind == "sphere":  # all at one distance from the origin, up to rounding
        raw /= np.sqrt((raw**2).sum(axis=2, keepdims=True))
    return raw


KINDS = ("normal", "lattice", "line", "plane", "far point", "repeated", "sphere")


def both(monkeypatch, what):
    """What the compiled form gives, and what numpy gives."""
    one = what()
    with monkeypatch.context() as without:
        without.setattr(MODULE, None)
        return one, what()


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_points", [16, 17, 300, 1024])
def test_strays_are_the_same(monkeypatch, kind, n_points):
    some = clouds(kind, np.random.default_rng(n_points), n_points)
    some[:, : n_points // 16] *= 2.5
    with_and_without = both(monkeypatch, lambda: [strays(cloud, 2.0).tolist() for cloud in some])
    assert with_and_without[0] == with_and_without[1]
    assert kind != "sphere" or n_points < 300 or any(map(any, with_and_without[0]))


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("n_groups", "group_size", "n_chunks", "overlap"), [(64, 32, 16, 1.15), (9, 1, 1, 1.0), (20, 40, 20, 2.0)]
)
def test_a_cut_is_the_same_to_the_bit(monkeypatch, kind, n_groups, group_size, n_chunks, overlap):
    rng = np.random.default_rng(n_groups)
    n_points = int(rng.integers(300, 1100))
    how = Chunking(n_points, n_groups, group_size, n_chunks, overlap)
    raw = clouds(kind, rng, n_points)
    if kind == "far point" and n_groups == 64:
        how = Chunking(n_points, 2, 2, 2, overlap)  # the rest falls on few points of the grid
        raw[:, 1:] += 0.5 * np.arange(n_points - 1)[:, None]
    one, other = both(monkeypatch, lambda: cut(raw, how))
    for mine, its in zip(one.plain(), other.plain(), strict=True):
        assert mine.tobytes() == its.tobytes()
    mine, its = both(monkeypatch, lambda: descriptors(one))
    assert mine.tobytes() == its.tobytes()


@needs_kernels
@pytest.mark.parametrize("n_points", [64, 1024, 8192])
def test_clouds_of_every_size_are_cut_the_same(monkeypatch, n_points):
    raw = np.random.default_rng(n_points).normal(size=(1, n_points, 3))
    one, other = both(monkeypatch, lambda: cut(raw, Chunking(n_points, 64, 32, 16)))
    assert all(mine.tobytes() == its.tobytes() for mine, its in zip(one.plain(), other.plain(), strict=True))


@needs_kernels
def test_an_empty_chunk_is_described_as_numpy_does(monkeypatch):
    points = np.arange(12, dtype=np.int16).reshape(1, 4, 3)
    chunks = Chunks(points, np.array([[[0, 1]]], dtype=np.uint16), *np.array([[[0]], [[-1]]], dtype=np.int8), 2)
    with np.errstate(invalid="ignore"):
        mine, its = both(monkeypatch, lambda: descriptors(chunks))
    assert np.array_equal(mine, its, equal_nan=True)
    assert np.isnan(mine[0, 1]).all()


@needs_kernels
@pytest.mark.parametrize("kind", ["normal", "lattice", "plane", "sphere"])
@pytest.mark.parametrize(
    "parts", [{}, {"moments": True}, {"moments": True, "edge_widths": (33, 48), "token_width": 40, "width": 17}]
)
def test_tokens_are_the_same_to_the_bit(monkeypatch, kind, parts):
    rng = np.random.default_rng(3)
    scene = specs.random_scene(rng, **parts)
    encoder, scenes = scene.encoder(), cut(clouds(kind, rng, scene.chunking.n_points), scene.chunking)
    every = np.array([0, 2, 1])

    def tokens() -> list[bytes]:
        view = encoder.view(scenes)
        places = [np.full(3, place) for place in range(scenes.n_chunks)]
        return [
            *(view.embed(every, place).tobytes() for place in places),
            view.tokens.tobytes(),
            str(view.macs).encode(),
        ]

    mine, its = both(monkeypatch, tokens)
    assert mine == its


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_points", [64, 333, 1024])
def test_statistics_are_the_same_to_the_bit(monkeypatch, kind, n_points):
    raw = clouds(kind, np.random.default_rng(n_points), n_points)
    scenes = cut(raw, Chunking(n_points, 2, 2, 2))
    mine, its = both(monkeypatch, lambda: statistics(scenes))
    assert mine.tobytes() == its.tobytes()


@needs_kernels
def test_exp_tanh_and_layer_norm_are_the_same_to_the_bit(monkeypatch):
    rng = np.random.default_rng(0)
    ends = [0.0, -0.0, -60.0, -61.0, -1e300, -np.inf, -1e-300]
    below = np.concatenate([-np.exp(rng.normal(0.0, 5.0, 20_000)), ends])
    either = np.concatenate([rng.normal(0.0, 3.0, 20_000), ends, np.negative(ends)])
    whole = rng.integers(-(2**17), 2**17, (50, 160))
    whole[0], whole[1] = 0, 5
    gain, bias = rng.normal(size=(2, 160))
    for what in (
        lambda: arithmetic.exp(below),
        lambda: arithmetic.tanh(either),
        lambda: arithmetic.normalise_int(whole, gain, bias, 7),
        lambda: arithmetic.normalise_int(whole.astype(np.float64), gain, bias, 0),
    ):
        mine, its = both(monkeypatch, what)
        assert mine.tobytes() == its.tobytes()


@needs_kernels
@pytest.mark.parametrize("width", [16, 17, 64])
def test_a_mixer_carries_the_same_to_the_bit(monkeypatch, width):
    rng = np.random.default_rng(width)
    mixer = Mixer(specs.random_mixer(rng, width))
    embeddings = rng.integers(-127, 256, (30, 3, width)).astype(np.float32)
    embeddings[0] = 0.0

    def told() -> bytes:
        carry, out = mixer.start(3), b""
        for embedding in embeddings:
            drive_int, carry = mixer.step(carry, embedding)
            out += drive_int.tobytes() + carry.tobytes()
        return out

    mine, its = both(monkeypatch, told)
    assert mine == its


@needs_kernels
@pytest.mark.parametrize("scale", [1.0, 300.0])  # the second saturates
@pytest.mark.parametrize("seed", range(8))
def test_a_head_fires_the_same_to_the_bit(monkeypatch, seed, scale):
    rng = np.random.default_rng(seed)
    width, n_neurons = (int(n) for n in rng.integers(3, 40, 2))
    head = specs.random_head(rng, width, n_neurons, 1 + seed % 3)
    drives = np.clip(specs.random_drives(rng, 12, 4, width) * scale, -32767, 32767).astype(np.float64)

    def told() -> list[object]:
        engine = FastHead(head, None if scale > 1.0 else np.full(width, 2000.0), 12)
        engine.start(4)
        seen = [(engine.observe(drive).tobytes(), engine.hit.tobytes()) for drive in drives]
        return [*seen, engine.n_overflows, *(spikes.tobytes() for spikes in engine.spikes)]

    mine, its = both(monkeypatch, told)
    assert mine == its


@needs_kernels
@pytest.mark.parametrize("name", ["compact", "modelnet10", "modelnet40"])
def test_a_shipped_model_answers_the_same(monkeypatch, name):
    from asp_neuro.data import load_clouds
    from asp_neuro.runtime.deployment import load_perceiver

    perceiver = load_perceiver(name)
    raw = load_clouds("shapes", "test", n_points=perceiver.spec.scene.chunking.n_points).points[::120]

    def told() -> list[str]:
        fresh = Perceiver(perceiver.spec, perceiver.exit_rule, perceiver.familiarity)
        looks = fresh.played(fresh.scenes(raw), ExitRule()).looks
        return [repr(fresh([*raw])), *(look.drive_int.tobytes().hex() for look in looks)]

    mine, its = both(monkeypatch, told)
    assert mine == its


@needs_kernels
def test_a_kernel_that_is_off_by_one_is_found(monkeypatch):
    """The comparison above can fail."""

    class Wrong:
        @staticmethod
        def descriptors(points, *rest):
            kernels.descriptors(points + np.int16(1), *rest)

    kernels = compiled.kernels
    chunks = cut(np.random.default_rng(0).normal(size=(1, 256, 3)), Chunking(256, 16, 8, 4))
    right = descriptors(chunks)
    monkeypatch.setattr(MODULE, Wrong)
    assert (descriptors(chunks) != right).any()


@needs_kernels
def test_sizes_that_do_not_fit_and_points_that_are_not_there_are_refused():
    chunks = cut(np.random.default_rng(0).normal(size=(1, 64, 3)), Chunking(64, 8, 4, 2))
    points, members, first, second = chunks.plain()
    out = np.empty((1, 2, 8))
    with pytest.raises(ValueError, match="sizes"):
        compiled.kernels.descriptors(points, members, first, second, out, 1, 65, 8, 4, 2)
    with pytest.raises(ValueError, match="sizes"):
        compiled.kernels.groups(points[0], members[0], first[0], second[0], 64, 8, 65, 2, 1.0, 1.0)
    with pytest.raises(IndexError, match="not there"):
        compiled.kernels.descriptors(points, members + np.uint16(64), first, second, out, 1, 64, 8, 4, 2)


@pytest.mark.parametrize(
    ("value", "words"), [("0", "ASP_NEURO_COMPILED=0: numpy does the work"), ("1", compiled.state)]
)
def test_a_variable_switches_to_numpy(value, words):
    program = "from asp_neuro import compiled; print(compiled.state)"
    environment = os.environ | {compiled.SWITCH: value}
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    if os.environ.get(compiled.SWITCH) != "0" or value == "0":
        assert said.stdout.strip() == words


@needs_kernels
def test_what_was_compiled_from_other_sources_is_not_taken(monkeypatch):
    monkeypatch.setattr(compiled.kernels, "VERSION", compiled.VERSION + 1)
    module, words = compiled._found()
    assert module is None
    assert "numpy does the work" in words


def test_doctor_says_which_form_is_in_use(monkeypatch):
    from asp_neuro.cli import doctor

    monkeypatch.setattr(MODULE, None)
    monkeypatch.setattr("asp_neuro.compiled.state", "nothing compiled (ImportError): numpy does the work, slower")
    found = doctor.kernels()
    assert (found.status, found.needed) == ("missing", False)
    assert "numpy does the work" in found.hint


def test_the_grid_of_the_compiled_form_is_that_of_numpy():
    assert GRID == 2.0**14  # kernels.c writes it as shifts and powers of two


# Points


@needs_kernels
@pytest.mark.parametrize("kind", ["normal", "lattice", "plane", "repeated"])
@pytest.mark.parametrize("seed", range(3))
def test_labels_and_margins_of_points_are_the_same_after_every_look(monkeypatch, kind, seed):
    rng = np.random.default_rng(seed)
    perceiver = Perceiver(specs.random_part_model(rng))
    raw = clouds(kind, rng, 96)
    scenes = perceiver.scenes(raw).asking(np.array([-1, 0, 1]))
    asked = rng.integers(-32767, 32768, (70, 3))  # far outside too
    asked[:16] = scenes.centres()[0]  # on a centre

    def told():
        model = perceiver.model
        view, found = model.encoder.view(scenes), []
        for look in perceiver.played(scenes, ExitRule()).looks:
            view.embed(np.arange(3), look.place)
            points = [model.task.points(look.belief[i], view, i, asked, i - 1) for i in range(3)]
            found.append((look.logits, look.margin, np.stack(points)))
        return found

    one, other = both(monkeypatch, told)
    assert len(one) == len(other) > 3
    for ours, theirs in zip(one, other, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


@needs_kernels
@pytest.mark.parametrize("n_classes", [2, 3, 66])
def test_margins_are_the_same_with_ties_and_with_logits_far_apart(monkeypatch, n_classes):
    rng = np.random.default_rng(n_classes)
    logits = rng.normal(size=(500, n_classes)) * np.exp(rng.normal(size=(500, 1)) * 3.0)
    logits[::7, 1] = logits[::7, 0]
    logits[::5, 1:] = -1e6
    logits[::11] = np.round(logits[::11])
    logits[3, 0], logits[3, 1] = 0.0, -27.9  # just above what counts
    one, other = both(monkeypatch, lambda: softmax.margin(logits))
    np.testing.assert_array_equal(one, other)
    with pytest.raises(InputError, match="not finite"):
        softmax.margin(np.array([[0.0, np.inf]]))


@needs_kernels
def test_margins_of_negative_logits_and_of_both_zeros_are_the_same(monkeypatch):
    logits = -np.abs(np.random.default_rng(0).normal(size=(300, 5))) * 50.0 - 1.0
    logits[0], logits[1] = [-0.0, 0.0, -1.0, -2.0, -3.0], [-0.0, -1e-300, 1e-300, -60.0, -41.0]
    logits[2], logits[3] = [-7.0, -7.0, -7.0, -7.0, -7.0], [-1e6, -1e6, -1e6, -1e6, -3.0]
    one, other = both(monkeypatch, lambda: softmax.margin(logits))
    np.testing.assert_array_equal(one, other)


@needs_kernels
@pytest.mark.parametrize("n_groups", [1, 3, 8, 129])
def test_the_nearest_groups_are_the_same_with_ties_at_every_distance(monkeypatch, n_groups):
    """The least key is the nearest group and, of equals, the first: groups on one another, and far apart."""
    rng = np.random.default_rng(n_groups)
    centres = rng.integers(-2, 3, (6, n_groups, 3)).astype(float)
    centres[3:] = np.clip(centres[3:] * 16384.0, -16384.0, 16384.0)
    out = np.empty((6, n_groups, min(n_groups, 8)), dtype=np.int64)
    by_axis = np.ascontiguousarray(np.swapaxes(centres, 1, 2))
    compiled.kernels.part_near(by_axis, out, *out.shape)
    np.testing.assert_array_equal(out, interpolation.neighbours(interpolation.squares(centres, centres), out.shape[2]))


@needs_kernels
def test_points_of_a_wrong_size_or_place_are_refused():
    empty, number = np.empty(0), np.zeros(1, dtype=np.int64)
    with pytest.raises(ValueError, match="part_points: sizes"):
        compiled.kernels.part_points(*[empty] * 16, np.empty(1), *[1] * 9, 0.0)
    with pytest.raises(ValueError, match="part_tokens: sizes"):
        compiled.kernels.part_tokens(*[empty] * 5, *[np.empty(1)] * 4, 1, 1, 1, 1, 1)
    with pytest.raises(ValueError, match="margins: sizes"):
        compiled.kernels.margins(empty, np.empty(1), 1, 2)
    single, yes = np.zeros(1, dtype=np.float32), np.ones(1, dtype=bool)
    weights, bias = np.zeros(90, dtype=np.float32), np.zeros(1)

    def ask(query=0.0, row=0, seen=True, chunk=0):
        """One scene with one group, one chunk, one unit and one part."""
        out, first = np.zeros(1), np.array([chunk], dtype=np.int8)
        scene = (np.zeros(3), np.array([seen]), first, first, yes, single, single, single)
        of_scene = (single, single, bias, yes, np.zeros(16 * 13, dtype=np.float32), bias)
        query = np.array([query, 0.0, 0.0])
        compiled.kernels.part_points(query, number + row, *scene, *of_scene, out, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0.0)

    ask()
    for wrong in ({"row": 1}, {"row": -1}, {"seen": False}, {"chunk": 1}, {"query": np.nan}, {"query": -np.nan}):
        with pytest.raises(IndexError, match="part_points: a scene, a chunk or a seen group is not there"):
            ask(**wrong)
    with pytest.raises(IndexError, match="part_tokens"):
        compiled.kernels.part_tokens(single, single, yes, number + 1, weights[:32], np.zeros(1, dtype=bool),
                                     *(np.zeros(1, dtype=np.float32) for _ in range(3)), 1, 1, 1, 1, 1)  # fmt: skip
