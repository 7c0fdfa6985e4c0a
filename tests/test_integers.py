"""The network in plain integers: Python's reference of the whole of it, and the encoder in C, equal the fast host."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import specs
from stock_specs import random_stock_head

from asp_neuro.bundle import Bundle
from asp_neuro.data import load_clouds
from asp_neuro.errors import ConfigError
from asp_neuro.grid.arithmetic import EXACT_SINGLE, Linear, exp, tanh
from asp_neuro.grid.sections import NORM_BITS, Affine, Norm, leaves
from asp_neuro.grid.softmax import margin, probabilities
from asp_neuro.model import mixer, part_reference, reference
from asp_neuro.model.exit import ExitReason, ExitRule
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.model.spec import ModelSpec
from asp_neuro.runtime import integers
from asp_neuro.runtime.machine import Machine
from asp_neuro.runtime.verification import Findings, compare_answers, compare_looks, verify
from asp_neuro.scenes.cloud import Chunking, describe, normalise
from asp_neuro.scenes.cloud_encoder import CloudEncoder, CloudSpec

EVERYTHING = {"token_width": 20, "moments": True, "first_look": 5, "n_layers": 3}
PARTS = {
    "plain": {},
    "everything": EVERYTHING,
    "geometry": {"scorer": "geometry"},
    "belief": {"scorer": "belief"},
    "additive": {"scorer": "additive"},
    "places taken again": {"mask": False, "moments": True},
    "one layer": {"n_layers": 1, "first_look": 3},
    "stock head": {"head": random_stock_head(np.random.default_rng(5)), "moments": True},
}
IDS = [f"cloud {i}" for i in range(6)]


def small(seed: int, n: int = 4, **parts: object) -> tuple[Perceiver, object]:
    rng = np.random.default_rng(seed)
    perceiver = specs.random_perceiver(rng, **parts)
    return perceiver, perceiver.scenes(specs.random_clouds(rng, n))


def differences(spec: ModelSpec, perceiver: Perceiver, scenes: object) -> Findings:
    """The reference of one network against the host of another."""
    found = Findings()
    theirs = integers.integer_looks(Perceiver(spec), scenes)
    compare_looks(found, "integers", IDS, perceiver.played(scenes, ExitRule()).looks, theirs)
    return found


# The reference of the whole network (bit-exact)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_the_reference_is_the_host_in_every_number(parts, seed):
    perceiver, scenes = small(seed, **parts)
    found = differences(perceiver.spec, perceiver, scenes)
    assert found.mismatches == 0, found.first
    assert found.compared["drives"] == found.compared["membranes"] == 4 * 6 * 16


@pytest.mark.parametrize("seed", range(3))
def test_the_reference_of_parts_is_the_host_in_every_number(seed):
    rng = np.random.default_rng(seed)
    perceiver = Perceiver(specs.random_part_model(rng))
    scenes = perceiver.scenes(specs.random_clouds(rng, 4)).asking(np.array([-1, 0, 1, -1]))
    found = differences(perceiver.spec, perceiver, scenes)
    assert found.mismatches == 0, found.first
    rule = ExitRule(float(np.median(perceiver.played(scenes, ExitRule()).looks[2].margin)))
    told = integers.integer_answers(perceiver, scenes, rule)
    compare_answers(found, "integers", IDS[:4], perceiver.answers(scenes, rule), told)
    assert found.mismatches == 0, found.first
    assert differences(specs.random_part_model(np.random.default_rng(seed + 9)), perceiver, scenes).mismatches


def test_points_that_were_not_cut_are_answered_by_the_reference_as_by_the_host():
    rng = np.random.default_rng(7)
    perceiver = Perceiver(specs.random_part_model(rng))
    scenes, model = perceiver.scenes(specs.random_clouds(rng, 1)).asking(np.array([1])), perceiver.model
    network, view = reference.Network(perceiver.spec), model.encoder.view(scenes)
    asked = rng.integers(-32767, 32768, (20, 3))
    (_, embed), one = (
        network.cloud_places(scenes),
        part_reference.PartScene(perceiver.spec.task, scenes, network.tokens),
    )
    for look in perceiver.played(scenes, ExitRule()).looks:
        view.embed(np.array([0]), look.place)
        place, believed = int(look.place[0]), (look.belief[0] * 2.0**24).astype(int).tolist()
        one.look(place, embed(place), believed)
        said = reference.real(one.belief, believed, 24)
        found = [one.answered(query, said, 1) for query in asked.tolist()]
        assert model.task.points(look.belief[0], view, 0, asked, 1).tolist() == found


@pytest.mark.parametrize("parts", [PARTS["plain"], EVERYTHING], ids=("plain", "everything"))
def test_it_stops_where_the_host_stops(parts):
    perceiver, scenes = small(3, 6, **parts)
    margins = np.stack([look.margin for look in perceiver.played(scenes, ExitRule()).looks])
    for tau in (float(np.median(margins)), float(margins[1, 2]), 0.0):  # at a margin itself: not crossed
        rule, found = ExitRule(tau, certified=True), Findings()
        expected, told = perceiver.answers(scenes, rule), integers.integer_answers(perceiver, scenes, rule)
        compare_answers(found, "integers", IDS, expected, told)
        assert found.mismatches == 0, found.first
    assert all(answer.exit is ExitReason.CERTIFIED for answer in told)  # tau 0: every first margin


def leaf_paths() -> list[str]:
    spec = specs.random_model(np.random.default_rng(0), **EVERYTHING)
    parts = ("scene", "mixer", "belief", "policy", "task")
    layer = [f"head/{name}" for name in ("weight_int", "bias_int", "lambda_int", "theta_int", "theta_fire_int")]
    return [f"{part}/{path}" for part in parts for path in leaves(getattr(spec, part))] + layer


def one_more(section: object, path: str, at: int, by: int) -> object:
    """A section with one number changed by one unit."""
    name, _, rest = path.partition("/")
    held = getattr(section, name)
    if rest:
        return dataclasses.replace(section, **{name: one_more(held, rest, at, by)})
    array = held.copy()
    array.flat[at] += -by if array.flat[at] in (127, 4095) else by
    return dataclasses.replace(section, **{name: array})


COARSE = {  # units of what is rounded away otherwise: biases before the head, LayerNorms of the mixer, a threshold
    "scene/edge_in/bias": 2**11,
    **{f"scene/{name}/bias": 2**7 for name in ("edge_out", "token_in", "token_out", "chunk")},
    "mixer/gates/bias": 2**8,
    "mixer/embedding/gain": 2**NORM_BITS,
    "mixer/embedding/bias": 2**NORM_BITS,
    "mixer/drive/gain": 2**NORM_BITS,
    "mixer/drive/bias": 2**NORM_BITS,
    "head/weight_int": 2,  # even
    "head/theta_fire_int": 1000,
}


def planted(spec: ModelSpec, path: str, at: int) -> ModelSpec:
    (part, _, rest), by = path.partition("/"), COARSE.get(path, 1)
    if part == "head":
        layers = list(spec.head.layers)
        layers[-1] = one_more(layers[-1], rest, at, by)
        return dataclasses.replace(spec, head=dataclasses.replace(spec.head, layers=tuple(layers)))
    return dataclasses.replace(spec, **{part: one_more(getattr(spec, part), rest, at, by)})


@pytest.mark.parametrize("path", leaf_paths())
def test_one_weight_changed_by_one_unit_is_seen_and_every_other_number_by_one_step_of_what_it_adds_to(path):
    perceiver, scenes = small(5, 2, **EVERYTHING)
    part, _, rest = path.partition("/")
    size = 16 if part == "head" else leaves(getattr(perceiver.spec, part))[rest].size
    for at in np.random.default_rng(0).permutation(size)[:12]:
        found = differences(planted(perceiver.spec, path, int(at)), perceiver, scenes)
        if found.mismatches:
            assert {"what", "cloud", "step", "expected", "found"} <= set(found.first)
            return
    pytest.fail(f"{path}: nobody saw the change")


def bundle_of(spec: ModelSpec) -> Bundle:
    drives = specs.random_drives(np.random.default_rng(1), 4, 2, 16)
    return Bundle(spec, {"name": "random", "data": {"name": "shapes"}}, specs.golden(spec, drives))


def test_verify_gives_it_a_few_clouds_and_finds_what_is_planted():
    perceiver, scenes = small(0, 5, **EVERYTHING)
    bundle, rule = bundle_of(perceiver.spec), ExitRule(0.2)
    found = verify(bundle, scenes, IDS[:5], rule, {"integers": integers.INTEGERS})
    assert found.mismatches == 0, found.first
    assert found.compared["answers"] == 5 + integers.AT_MOST  # one by one, and in integers
    assert "integers" in found.engines
    other = Perceiver(planted(perceiver.spec, "scene/edge_out/weight", 7))
    faulty = Machine("faulty", looks=lambda _, some: integers.integer_looks(other, some), at_most=2)
    found = verify(bundle, scenes, IDS[:5], rule, {"faulty": faulty})
    assert found.mismatches > 0
    assert found.first["engine"] == "faulty"


def test_what_it_does_not_know_is_left_out_with_a_word():
    spec = specs.random_model(np.random.default_rng(0))
    assert integers.why_not(spec) is None

    class Sound:
        kind = "sound"

    class Other:
        scene, task, head = Sound(), spec.task, spec.head

    assert integers.why_not(Other()) == "it knows cloud or image, classify or parts, this network is sound, classify"


# Its parts against the host's, where a random network may not lead


def test_gates_exp_tanh_and_margins_are_the_hosts_bit_for_bit():
    rng = np.random.default_rng(0)
    assert [reference.gate(step) for step in range(-128, 128)] == mixer.GATES.tolist()
    x = -np.concatenate([[0.0, 59.9, 60.0, 61.0, 1e9], rng.exponential(5.0, 3000)])
    assert [reference.exp(v) for v in x.tolist()] == exp(x).tolist()
    z = np.concatenate([[0.0, -0.0, 40.0, -40.0], rng.normal(size=3000)])
    assert [reference.tanh(v) for v in z.tolist()] == (tanh(z) * 2.0**30).tolist()
    for logits in (*rng.normal(0.0, 6.0, (300, 7)), np.zeros(3), np.array([1e-13, 0.0])):
        gap, shares = reference.softmax(logits.tolist())
        assert gap == margin(logits) * 2.0**30
        assert shares == (probabilities(logits) * 2.0**30).tolist()


def test_the_worked_example_of_the_page():
    # The numbers of docs/integers.md, "A worked example".
    near = [[1001, -2002, 6], [1011, -2000, 0]]
    edge_in = [([100, -20, 5, 3, -7, 1], 3000, 5), ([-90, 40, 0, 2, 2, 2], 0, 4)]
    centre = [reference.shifted(v, 2) for v in near[0]]
    hidden = [reference.mapped(edge_in, [*offset, *centre], 0, 255) for offset in ([0, 0, 0], [10, 2, -6])]
    assert (centre, hidden) == ([250, -500, 2], [[227, 0], [255, 0]])
    grouped = [reference.mapped([([64, -100], -500, 6)], h, 0, 255) for h in hidden]
    assert grouped == [[219], [247]]
    told = reference.shifted(reference.dot([10, 4, -3], centre), 3)
    token = reference.shifted(20 * 247 + 700 + told, 5)
    assert (told, token) == (62, 178)
    assert reference.mapped([([-30], 1000, 6)], [token], -127, 127) == [-68]
    norm = Norm(np.full(4, 64 << NORM_BITS, np.int32), np.array([1 << 15, 0, 0, 0], np.int32))
    assert [round(v) for v in reference.layer_norm([4, 8, 0, 0], norm, 0)] == [20, 96, -58, -58]
    assert (reference.gate(20), reference.gate(-3)) == (3647, 1671)
    assert reference.shifted(3647 * -5000, 12) + reference.shifted(1671 * 300, 8) == -4452 + 1958
    assert sum(reference.gate(step) for step in range(-128, 128)) == 522256
    assert reference.descriptor(near) == [4024, -8004, 12, 0, 0, 0, 24, 8959]
    four = [[0, 0, 0], [10, 2, -6], [-4, 8, 0], [6, -6, 12]]
    assert reference.moments(four)[20:] == [156, 52, 78, 614, 529, 905, -318, -32, -476, 1]
    assert reference.exp(-1.0).hex() == "0x1.78b56362cf12bp-2"
    assert (reference.tanh(1.0), reference.tanh(-0.5)) == (817755498, -496194519)
    assert reference.softmax([2.0, 1.0, -1.0]) == (478768651, [757400853, 278632203, 37708768])


def test_descriptors_of_flat_and_single_points_are_the_hosts():
    clouds = [[[16384, 0, 0]], [[3, -5, 7], [4, -5, 7]], [[-1, -1, -1], [-2, -1, -1], [-2, -2, -1], [-1, -2, 0]]]
    for points in clouds:
        steps = np.array([points])
        host = describe(steps / 2.0**14, np.ones((1, 1, len(points)), dtype=bool))
        assert reference.descriptor(points) == (host[0, 0] * 2.0**16).tolist()


def plain_steps(cloud: list[list[float]]) -> list[list[int]]:
    """A raw cloud on the grid, sorted, distinct: one sum after the other."""
    points = sorted({tuple(point) for point in cloud})
    mean = []
    for axis in range(3):
        total = 0.0
        for point in points:
            total = total + point[axis]
        mean.append(total / len(points))
    centred = [[v - m for v, m in zip(point, mean)] for point in points]
    radius = math.sqrt(max(x * x + y * y + z * z for x, y, z in centred))
    return sorted({tuple(round(v * (16384.0 / radius)) for v in point) for point in centred})


def test_raw_clouds_come_to_the_grid_as_in_a_plain_loop():
    rng = np.random.default_rng(0)
    clouds = specs.random_clouds(rng, 6)
    clouds[3:] = clouds[3:].round(1)  # with copies, and with ties
    clouds[:, -5:] = clouds[:, :5]
    for batch in (clouds, clouds[:1], clouds[3:4]):
        coordinates, n_distinct = normalise(batch)
        for cloud, found, n in zip(batch, coordinates * 2.0**14, n_distinct):
            assert found[:n].tolist() == [list(point) for point in plain_steps(cloud.tolist())]


# What is proven when a model is built


def affine(weight: int, n: int, bias: int = 0, shift: int = 0) -> Affine:
    return Affine(np.full((2, n), weight, np.int8), np.full(2, bias, np.int32), np.full(2, shift, np.int8))


def test_a_map_whose_sums_could_leave_the_exact_numbers_is_refused_by_name():
    fits = (2**24 - 1) // (127 * 255)
    Linear("m", affine(127, fits), 255.0)
    with pytest.raises(ConfigError, match=r"scene: chunk: sums of row 0 can reach 16,\d+,\d+, float32 is exact below"):
        Linear("scene: chunk", affine(127, fits + 1), 255.0)
    room = 2**24 - 1 - 127 * 255 * fits
    Linear("m", affine(127, fits, -room), 255.0)
    with pytest.raises(ConfigError, match="sums of row 0"):
        Linear("m", affine(127, fits, -room - 1), 255.0)
    with pytest.raises(ConfigError, match="sums of row 0"):
        Linear("m", affine(127, fits, 0, 20), 255.0)  # the half that rounds counts: 2^19
    with pytest.raises(ConfigError, match="m: row 0 is shifted by 25, expected 0 to 24"):
        Linear("m", affine(1, 1, 0, 25), 255.0)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sum_that_is_let_through_is_exact(sign):
    fits = (2**24 - 1) // (127 * 255)
    room = 2**24 - 1 - 127 * 255 * fits
    linear = Linear("m", affine(sign * 127, fits, sign * room), 255.0)
    total = linear(np.full((3, fits), 255.0, np.float32)) + linear.bias
    assert (total == sign * (EXACT_SINGLE - 1.0)).all()


def test_the_carry_stays_below_its_bound_however_long_an_episode_is():
    keep, write = max(mixer.GATES[1:]), max(mixer.GATES[1:]) * 2047
    carry = 0
    for _ in range(10_000):  # every observation adds the most, and keeps the most
        carry = reference.shifted(int(keep) * carry, 12) + reference.shifted(int(write), 8)
    assert carry < 2**23
    assert carry == reference.shifted(int(keep) * carry, 12) + reference.shifted(int(write), 8)  # no further


def test_moments_of_more_points_than_their_sums_can_hold_are_refused():
    big = Chunking(n_points=4096, n_groups=4, group_size=2897, n_chunks=2)
    rng = np.random.default_rng(0)
    CloudEncoder(specs.random_scene(rng, chunking=big))
    with pytest.raises(ConfigError, match="scene: moments: sums of row 0 can reach"):
        CloudEncoder(specs.random_scene(rng, chunking=big, moments=True))
    CloudEncoder(specs.random_scene(rng, chunking=dataclasses.replace(big, group_size=2896), moments=True))


# The encoder in C (bit-exact)


class Map(ctypes.Structure):
    _fields_ = [("n_out", ctypes.c_int32), ("n_in", ctypes.c_int32)] + [
        (name, ctypes.c_void_p) for name in ("weight", "bias", "shift")
    ]  # fmt: skip


class Encoder(ctypes.Structure):
    _fields_ = [(name, Map) for name in ("edge_in", "edge_out", "token_in", "geometry", "token_out", "chunk")]


def c_encoder(spec: CloudSpec) -> Encoder:
    """The arrays themselves, as a bundle holds them; `spec` must outlive it."""
    maps = {}
    for name, _ in Encoder._fields_:
        section = getattr(spec, name)
        if section is not None:
            bias = section.bias.ctypes.data if isinstance(section, Affine) else None
            maps[name] = Map(*section.weight.shape, section.weight.ctypes.data, bias, section.shift.ctypes.data)
    return Encoder(**maps)


@pytest.fixture(scope="module")
def c_library(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) on this machine")
    made = tmp_path_factory.mktemp("c") / "encoder.so"
    source = Path(__file__).parent / "c_port" / "encoder.c"
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-shared", "-fPIC"]
    done = subprocess.run([compiler, *flags, "-o", made, source, "-lm"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(made))


def c_embeddings(library: ctypes.CDLL, spec: CloudSpec, chunks: object) -> np.ndarray:
    """[n, M, width] of every chunk."""
    encoder, k = c_encoder(spec), chunks.members.shape[2]
    out = np.zeros((len(chunks), chunks.n_chunks, spec.width), dtype=np.int32)
    belongs = chunks.belongs()
    points, members = np.ascontiguousarray(chunks.points), np.ascontiguousarray(chunks.members)
    pointer = ctypes.c_void_p
    for i, m in np.ndindex(out.shape[:2]):
        groups = np.flatnonzero(belongs[i, m]).astype(np.int32)
        arrays = (pointer(points[i].ctypes.data), pointer(members[i].ctypes.data))
        chosen = (pointer(groups.ctypes.data), len(groups), pointer(out[i, m].ctypes.data))
        library.embedding(ctypes.byref(encoder), *arrays, k, *chosen)
    return out


ENCODERS = {
    "plain": {"width": 64, "edge_widths": (24, 48)},
    "everything": {"width": 64, "edge_widths": (24, 48), "token_width": 80, "moments": True},
}


@pytest.mark.parametrize("parts", ENCODERS.values(), ids=ENCODERS)
def test_the_encoder_in_c_is_the_hosts(c_library, parts):
    spec = specs.random_scene(np.random.default_rng(2), chunking=Chunking(), **parts)
    clouds = load_clouds("shapes", "test", n_points=1024).subset(range(0, 600, 75))
    chunks = spec.scenes(clouds.points, clouds.names)
    view, rows = CloudEncoder(spec).view(chunks), np.arange(len(chunks))
    host = np.stack([view.embed(rows, np.full(len(rows), m)) for m in range(chunks.n_chunks)], axis=1)
    assert (c_embeddings(c_library, spec, chunks) == host).all()
    assert len(np.unique(host)) > 100  # neither dead nor saturated
    other = dataclasses.replace(spec, edge_in=one_more(spec.edge_in, "weight", 3, 1))
    assert (c_embeddings(c_library, other, chunks) != host).any()
