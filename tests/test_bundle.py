"""The bundle: what is written comes back, in the same bytes every time; what is no bundle is refused in one line."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import os
import struct
import subprocess
import sys

import bundle_mutants
import h5py
import numpy as np
import pytest
import specs

from asp_neuro import bundle
from asp_neuro.bundle import (
    Bundle,
    Golden,
    layout,
    make_golden,
    model_sha256,
    plain_hdf5,
    read,
    to_bytes,
    with_certificate,
    write,
)
from asp_neuro.bundle.read import check_paths
from asp_neuro.bundle.write import MAX_FILE, check_groups
from asp_neuro.certify import Recording, certify, make_plan
from asp_neuro.errors import AspError, ConfigError, InputError, MissingError
from asp_neuro.grid.sections import Norm, build, leaves, settings
from asp_neuro.heads.spec import check_synaptic_sums
from asp_neuro.libraries import is_there
from asp_neuro.model.perceiver import Perceiver

SECTIONS = ("scene", "mixer", "belief", "policy", "task")


def make(seed: int = 0, n_layers: int = 2, parts: dict | None = None, **changes: object) -> Bundle:
    """`parts` go to `random_model`, `changes` to the bundle."""
    rng = np.random.default_rng(seed)
    model = specs.random_model(rng, n_layers=n_layers, **(parts or {}))
    plain = Bundle(
        model=model,
        recipe={"name": "small", "seed": 3, "model": {"width": 16, "edge_widths": [8, 12]}},
        golden=specs.golden(model, specs.random_drives(rng, 6, 3, 16)),
        record={"float_accuracy": 0.91, "deploy_accuracy": 0.9, "firing_rate": [0.31, 0.28]},
        versions={"numpy": "1.26.4"},
        licence="ModelNet is offered for academic research.",
    )
    return dataclasses.replace(plain, **changes)


def changed(b: Bundle, section: str, **changes: object) -> Bundle:
    """With another section; the golden vectors stay."""
    new = dataclasses.replace(getattr(b.model, section), **changes)
    return dataclasses.replace(b, model=dataclasses.replace(b.model, **{section: new}))


def with_classes(*words: str) -> Bundle:
    return changed(make(), "task", classes=words)


def golden_of(b: Bundle, drives: np.ndarray) -> Golden:
    return make_golden(b.model, drives, b.golden.inputs)


def promises(model: str) -> tuple[dict, dict]:
    rng = np.random.default_rng(0)
    margins = rng.uniform(size=(4, 400))
    made = make_plan(
        Recording(margins, margins > 0.02), n_calibration=400, n_grid=10, model_sha256=model, data_sha256="v"
    )
    margins = rng.uniform(size=(4, 400))
    certificate = certify(Recording(margins, margins > 0.02), made, model_sha256=model, data_sha256="c")
    return made.to_dict(), certificate.to_dict()


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "model.net", make())
    return tmp_path / "model.net"


# What is written comes back


@pytest.mark.parametrize("n_layers", [1, 2, 3, 8])
def test_a_bundle_comes_back_in_every_part(tmp_path, n_layers):
    first = make(n_layers, n_layers)
    write(tmp_path / "m.net", first)
    again = read(tmp_path / "m.net")
    for mine, theirs in zip(first.head.layers, again.head.layers, strict=True):
        for field in dataclasses.fields(mine):
            np.testing.assert_array_equal(getattr(mine, field.name), getattr(theirs, field.name))
            assert np.asarray(getattr(theirs, field.name)).dtype == np.asarray(getattr(mine, field.name)).dtype
    for section in SECTIONS:
        mine, theirs = getattr(first.model, section), getattr(again.model, section)
        assert settings(mine) == settings(theirs), section
        assert leaves(mine).keys() == leaves(theirs).keys()
        for name, array in leaves(mine).items():
            np.testing.assert_array_equal(array, leaves(theirs)[name])
    for name, array in leaves(first.golden).items():
        np.testing.assert_array_equal(array, leaves(again.golden)[name])
    for name in ("classes", "recipe", "record", "versions", "licence", "plan", "certificate"):
        assert getattr(again, name) == getattr(first, name), name
    assert (again.model.budget, again.head.form) == (first.model.budget, first.head.form)
    assert to_bytes(again) == to_bytes(first)


def test_moments_come_back_from_the_file(tmp_path):
    first = make(parts={"moments": True})
    write(tmp_path / "m.net", first)
    scene, again = first.model.scene, read(tmp_path / "m.net").model.scene
    assert again.moments
    assert not make().model.scene.moments
    np.testing.assert_array_equal(again.geometry.weight, scene.geometry.weight)
    for missing in (10, 31):
        geometry = dataclasses.replace(scene.geometry, weight=scene.geometry.weight[:, :-missing])
        with pytest.raises(ConfigError, match=rf"geometry takes {33 - missing} inputs, expected 3, or 33"):
            dataclasses.replace(scene, geometry=geometry)


FIRST_LOOK = [f"first/outline/{name}" for name in ("weight", "bias", "shift")] + [
    "first/score/weight",
    "first/score/shift",
]


@pytest.mark.parametrize(
    ("parts", "section", "names"),
    [
        ({"token_width": 20}, "scene", ["chunk/weight", "chunk/bias", "chunk/shift"]),
        (
            {"first_look": 6},
            "policy",
            [
                f"first/{name}"
                for name in ("outline/weight", "outline/bias", "outline/shift", "score/weight", "score/shift")
            ],
        ),
    ],
)
def test_an_optional_part_comes_back_whole_or_not_at_all(tmp_path, parts, section, names):
    first = make(parts=parts)
    write(tmp_path / "m.net", first)
    mine, theirs = (getattr(b.model, section) for b in (first, read(tmp_path / "m.net")))
    assert set(leaves(theirs)) == set(leaves(getattr(make().model, section))) | set(names)
    paths, known = set(bundle.contents(first)), layout.table(layout.names_of(first.model))
    places = {name: f"asp/model/{section}/{name}" for name in names}
    for name in names:
        np.testing.assert_array_equal(leaves(theirs)[name], leaves(mine)[name])
        arrays = leaves(mine)
        with pytest.raises(ConfigError, match=rf"{name} is missing"):
            build(type(mine), {path: array for path, array in arrays.items() if path != name}, settings(mine))
        with pytest.raises(ConfigError, match=rf"{section}: first/.* expected|{section}: chunk/.* expected|3 x 8"):
            build(type(mine), {**arrays, name: arrays[name][..., :-1]}, settings(mine))
        with pytest.raises(InputError, match=f"{places[name]} is missing"):
            check_paths(paths - {places[name]}, known)
    check_paths(paths - set(places.values()), known)


def answers(b: Bundle) -> list[tuple]:
    """Every printed number of twelve answers."""
    perceiver = Perceiver(b.model)
    told = perceiver.answers(perceiver.scenes(specs.random_clouds(np.random.default_rng(9), 12)))
    return [(a.label, a.order, a.margins, a.exit, a.membrane.tolist(), a.probabilities.tolist()) for a in told]


def test_a_bundle_that_was_read_answers_like_the_one_that_was_written(path):
    assert answers(read(path)) == answers(make())


def test_a_budget_below_the_number_of_places_comes_back(tmp_path):
    first = make(parts={"budget": 4})
    write(tmp_path / "m.net", first)
    assert read(tmp_path / "m.net").model.budget == 4
    assert len(first.golden.host_drives_int) == 4
    assert {len(order) for _, order, *_ in answers(read(tmp_path / "m.net"))} == {4}


def test_chunking_of_any_number_types_comes_back(tmp_path):
    odd = dataclasses.replace(specs.SMALL, overlap=2, radius=np.float32(0.5), n_chunks=np.int64(6))
    write(tmp_path / "m.net", make(parts={"chunking": odd}))
    assert read(tmp_path / "m.net").model.scene.chunking == odd


def test_unusual_words_come_back(tmp_path):
    words = ("Stuhl", "椅子", "chaise longue", "😀")
    write(tmp_path / "m.net", dataclasses.replace(with_classes(*words), licence="two\nlines"))
    again = read(tmp_path / "m.net")
    assert (again.classes, again.licence) == (words, "two\nlines")


# The same bytes


def test_the_same_bundle_gives_the_same_bytes_in_another_process_and_second(tmp_path):
    program = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); import test_bundle as t;"
        "time.sleep(1.1); t.write(sys.argv[2], t.make())"
    )
    write(tmp_path / "a.net", make())
    subprocess.run([sys.executable, "-c", program, os.path.dirname(__file__), tmp_path / "b.net"], check=True)
    assert (tmp_path / "a.net").read_bytes() == (tmp_path / "b.net").read_bytes()


def test_writing_over_a_file_leaves_one_whole_file(path):
    before = path.read_bytes()
    write(path, make())
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["model.net"]


def test_a_write_that_fails_leaves_what_was_there(path, monkeypatch):
    before = path.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(InputError, match=r"cannot write .*No space left on device; what was there before is untouched"):
        write(path, make(1))
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["model.net"]


def test_a_group_of_more_entries_than_are_read_is_not_written(path):
    nine = [f"asp/model/scene/part_{number}/weight" for number in range(9)]
    check_groups([*nine[:8], *(f"layer/{number}/type" for number in range(8))])
    with pytest.raises(ConfigError, match="asp/model/scene: 9 entries, at most 8 are stored; group them in parts"):
        check_groups(nine)
    why = "asp/model/scene: a group with more links than an object header holds"
    assert why in edited(path, lambda file: [file.create_dataset(name, data=1) for name in nine])


# Identity


def changes() -> list[Bundle]:
    plain = make()
    weight = plain.head.layers[1].weight_int.copy()
    weight[0, 0] = 2 if weight[0, 0] != 2 else 4
    layer = dataclasses.replace(plain.head.layers[1], weight_int=weight)
    head = dataclasses.replace(plain.head, layers=(plain.head.layers[0], layer))
    readout = plain.model.task.readout
    chunking = plain.model.scene.chunking
    golden = dataclasses.replace(plain.golden, host_drives_int=plain.golden.host_drives_int[:-1])
    return [
        dataclasses.replace(plain, model=dataclasses.replace(plain.model, head=head)),
        changed(plain, "task", readout=dataclasses.replace(readout, bias=readout.bias + np.int32(1))),
        changed(plain, "policy", mask=False),
        changed(plain, "policy", scorer="geometry"),
        changed(plain, "scene", chunking=dataclasses.replace(chunking, overlap=1.2)),
        changed(plain, "mixer", drive=Norm(plain.model.mixer.drive.gain, -plain.model.mixer.drive.bias)),
        changed(plain, "belief", bias=-plain.model.belief.bias),
        dataclasses.replace(plain, model=dataclasses.replace(plain.model, budget=5), golden=golden),
        changed(plain, "task", classes=tuple(reversed(plain.classes))),
        dataclasses.replace(plain, recipe={**plain.recipe, "seed": 4}),
        dataclasses.replace(plain, record={}),
        dataclasses.replace(plain, versions={}),
        dataclasses.replace(plain, licence=""),
        dataclasses.replace(plain, golden=golden_of(plain, plain.golden.drives_int[:-1])),
    ]


def test_the_models_hash_covers_every_part():
    hashes = [model_sha256(b) for b in [make(), *changes()]]
    assert len(set(hashes)) == len(hashes)


def test_the_models_hash_leaves_plan_and_certificate_out(tmp_path):
    plain = make()
    model = model_sha256(plain)
    whole = with_certificate(plain, *promises(model))
    assert model_sha256(whole) == model
    write(tmp_path / "m.net", whole)
    again = read(tmp_path / "m.net")
    assert (again.plan, again.certificate) == promises(model)
    assert model_sha256(again) == model
    assert "at most 5 % of the answers that stop with a margin above" in bundle.describe(again)


def test_the_models_hash_does_not_depend_on_the_machine_or_the_version():
    # pinned: certificates out there name models by it
    digest = layout.digest({"a": np.arange(3, dtype="<i4"), "b": np.array(b"xy")})
    expected = "a <i4 [3]\n" + "\0\0\0\0\1\0\0\0\2\0\0\0" + "b |S2 []\n" + "xy"
    assert digest == hashlib.sha256(expected.encode()).hexdigest()


def test_a_certificate_of_another_model_is_not_taken_in():
    with pytest.raises(InputError, match="the plan is for model 0123456789ab, this one is"):
        with_certificate(make(), *promises("0123456789ab" * 4))


def test_a_certificate_of_another_model_that_is_in_a_file_is_shown_as_void(tmp_path):
    foreign = dict(zip(("plan", "certificate"), promises("0123456789ab" * 4)))
    write(tmp_path / "m.net", make(**foreign))
    assert "certificate: void, the certificate was made for model 0123456789ab" in bundle.describe(
        read(tmp_path / "m.net")
    )


@pytest.mark.parametrize("part", ["plan", "certificate"])
def test_an_edited_promise_is_refused(part):
    plain = make()
    found = dict(zip(("plan", "certificate"), promises(model_sha256(plain))))
    found[part]["alpha"] = 0.04
    with pytest.raises(InputError, match=f"{part}: damaged or edited"):
        with_certificate(plain, **found)


def test_a_certificate_needs_its_plan():
    _, certificate = promises(model_sha256(make()))
    with pytest.raises(ConfigError, match="without its plan"):
        make(certificate=certificate)


# Other programs


def test_it_opens_with_h5py_in_netx_layout(path):
    with h5py.File(path, "r") as file:
        assert sorted(file) == ["asp", "layer"]
        assert sorted(file["layer"]) == ["0", "1"]
        assert file["layer/0/type"][()] == b"dense"
        assert file["layer/0/neuron/type"][()] == b"ASP_SOFT"
        np.testing.assert_array_equal(file["layer/1/weight"][()], make().head.layers[1].weight_int)
        assert json.loads(file["asp/about/recipe"][()])["name"] == "small"
        assert file.userblock_size == 512


def test_our_reader_and_h5py_see_the_same_arrays(path):
    data = path.read_bytes()
    ours = {name: plain_hdf5.values(data, found) for name, found in plain_hdf5.arrays(data, 512).items()}
    with h5py.File(path, "r") as file:
        assert sorted(ours) == sorted(bundle_mutants.leaves(file))
        for name, array in ours.items():
            theirs = np.asarray(file[name][()])
            assert (array.dtype, array.shape) == (theirs.dtype, theirs.shape), name
            assert array.tobytes() == theirs.tobytes(), name


@pytest.mark.lava
@pytest.mark.slow
def test_netdict_opens_it_and_stock_netx_fails_rather_than_running_it(path):
    program = """
import sys
from lava.lib.dl.netx.utils import NetDict
layers = NetDict(sys.argv[1])["layer"]
print(len(layers), layers[0]["type"], layers[1]["neuron"]["type"], layers[1]["weight"].tolist()[0][:4])
from lava.lib.dl.netx.hdf5 import Network
for given in ({}, {"input_shape": (16,)}, {"num_layers": 1}, {"reset_interval": 16}, {"skip_layers": 1}):
    try:
        Network(net_config=sys.argv[1], **given)
    except AttributeError as error:
        print(error)
"""
    said = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True).stdout
    lines = said.splitlines()[-6:]
    assert lines[0] == f"2 dense ASP_SOFT {make().head.layers[1].weight_int[0, :4].tolist()}"
    assert lines[1:] == ["'NoneType' object has no attribute 'pop'"] * 5  # quoted in docs/bundle.md


def test_reading_needs_neither_torch_nor_lava(path):
    program = "import sys; from asp_neuro import bundle; bundle.read(sys.argv[1]); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "lava", "nir"} & {name.split(".")[0] for name in loaded.split()}


# What a bundle must be


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda b: with_classes(*b.classes[:-1]), "the read-out has 4 rows, but there are 3 classes"),
        (lambda b: with_classes("a", "b", "c", "a"), "4 classes, of which 3 are distinct"),
        (lambda b: with_classes("a", "b", "c", "\x1b[2J"), "is not printable text"),
        (lambda b: of_width("mixer", 8), "width 8 of embeddings of the mixer, but there are 16 of the scene"),
        (lambda b: of_width("scene", 8), "width 16 of embeddings of the mixer, but there are 8 of the scene"),
        (lambda b: of_width("head", 8, 16), "width 16 of the mixer's drive, but there are 8 inputs of the head"),
        (lambda b: of_width("belief", 8), "width 8 of the belief, but there are 16 neurons in the head's last layer"),
        (lambda b: of_width("policy", 8), "width 8 of beliefs of the policy, but there are 16 neurons"),
        (lambda b: of_width("task", 8), "width 8 of beliefs of the task, but there are 16 neurons"),
        (lambda b: with_budget(0), "budget 0, at least 1 is needed"),
        (lambda b: with_budget(7), "budget 7, but there are 6 places to look at"),
        (lambda b: dataclasses.replace(b, recipe=None), "recipe is a NoneType, expected a table"),
        (lambda b: dataclasses.replace(b, record={"x": float("nan")}), "record is not plain data"),
        (lambda b: dataclasses.replace(b, record={"x": np.float32(1)}), "record is not plain data"),
        (lambda b: dataclasses.replace(b, record={"x": 2**60}), "exceeds 2\\^53"),
        (lambda b: dataclasses.replace(b, record={"x": "\ud800"}), "record is not plain data"),
        (lambda b: dataclasses.replace(b, versions={"x": 1}), "versions: x is 1, expected text"),
        (lambda b: with_golden(b, spikes=b.golden.spikes * 2), "golden: spikes 0..2"),
        (lambda b: with_golden(b, spikes=b.golden.spikes[1:]), "golden: spikes is uint8"),
        (lambda b: with_golden(b, inputs=b.golden.inputs.astype(np.int32)), "golden: inputs is int32"),
        (lambda b: with_golden(b, inputs=b.golden.inputs[:1]), "golden: host_drives_int is"),
        (lambda b: with_golden(b, inputs=b.golden.inputs[0]), "golden: host_drives_int is"),
        (lambda b: with_golden(b, inputs=b.golden.inputs[0, 0, 0]), "golden: inputs have shape"),
        (lambda b: with_golden(b, host_drives_int=b.golden.host_drives_int[1:]), "golden: host_drives_int is"),
        (lambda b: loud(b), "scene: edge_in: sums of row"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(change, said):
    with pytest.raises(ConfigError, match=said):
        change(make())


def of_width(section: str, *widths: int) -> Bundle:
    """A section of a model of other widths."""
    rng = np.random.default_rng(0)
    new = {
        "scene": specs.random_scene,
        "mixer": specs.random_mixer,
        "head": specs.random_head,
        "belief": lambda rng, n: Norm(np.full(n, 2**16, np.int32), np.zeros(n, np.int32)),
        "policy": specs.random_policy,
        "task": specs.random_task,
    }[section](rng, *widths)
    plain = make()
    return dataclasses.replace(plain, model=dataclasses.replace(plain.model, **{section: new}))


def with_budget(budget: int) -> Bundle:
    plain = make()
    return dataclasses.replace(plain, model=dataclasses.replace(plain.model, budget=budget))


def with_golden(b: Bundle, **changes: np.ndarray) -> Bundle:
    return dataclasses.replace(b, golden=dataclasses.replace(b.golden, **changes))


def loud(b: Bundle) -> Bundle:
    edge_in = b.model.scene.edge_in
    return changed(b, "scene", edge_in=dataclasses.replace(edge_in, bias=np.full_like(edge_in.bias, 2**24)))


@pytest.mark.parametrize("inputs", [lambda i: i[:, :5], lambda i: i[..., :2], lambda i: i[:, 0], lambda i: i[:, 0, 0]])
def test_golden_inputs_that_are_no_clouds_are_told_when_they_are_used(inputs):
    plain = make()
    with pytest.raises(AspError, match="cloud"):
        bundle.golden_mismatches(with_golden(plain, inputs=np.ascontiguousarray(inputs(plain.golden.inputs))))


def test_sums_that_could_wrap_in_int32_are_refused():
    plain = make()
    layer = dataclasses.replace(plain.head.layers[0], weight_int=np.full((16, 5000), 254))
    with pytest.raises(ConfigError, match="layer 1: synaptic sums can reach 41614090000, int32 ends at 2147483647"):
        check_synaptic_sums(dataclasses.replace(plain.head, layers=(layer,)))
    check_synaptic_sums(plain.head, plain.model.drive_bound())


@pytest.mark.parametrize("bits", [12.0, True, "12", None])
def test_a_state_scale_that_is_no_whole_power_is_refused(bits):
    head = make().head
    with pytest.raises(ConfigError, match=r"layer 1: state scale .* is not a whole power of two"):
        dataclasses.replace(head, layers=(dataclasses.replace(head.layers[0], state_bits=bits),))


def test_golden_vectors_that_overflow_are_refused():
    plain = make()
    with pytest.raises(ConfigError, match="the state overflows"):
        golden_of(plain, np.full((30, 2, 16), 32767))
    with pytest.raises(ConfigError, match=r"expected \[T, batch, 16\]"):
        golden_of(plain, np.zeros((3, 2, 15), np.int64))


def test_golden_clouds_tell_when_the_host_is_another_one(path):
    found = read(path)
    gates = found.model.mixer.gates
    other = changed(found, "mixer", gates=dataclasses.replace(gates, bias=gates.bias + np.int32(50)))
    assert bundle.golden_mismatches(other) > 50


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_bundle_of_an_earlier_version_is_refused_with_what_to_do(path, version):
    data = bytearray(path.read_bytes())
    data[16:20] = struct.pack("<I", version)
    path.write_bytes(data)
    said = rf"format version {version}, this program reads 4: its host is in floating point; .*: asp-neuro export"
    with pytest.raises(InputError, match=said):
        read(path)


def test_golden_vectors_are_what_the_reference_gives_now(path):
    found = read(path)
    assert bundle.golden_mismatches(found) == 0
    spikes = found.golden.spikes.copy()
    spikes[-1, -1, -1, -1] ^= 1
    assert (
        bundle.golden_mismatches(dataclasses.replace(found, golden=dataclasses.replace(found.golden, spikes=spikes)))
        == 1
    )


# What is not a bundle


def refused(path) -> str:
    with pytest.raises(InputError) as caught:
        read(path)
    text = str(caught.value)
    assert text.startswith(f"'{path}': ")
    assert len(text.splitlines()) == 1
    return text


def test_every_single_byte_is_guarded(path):
    good = path.read_bytes()
    for place in [*range(80), 300, *np.random.default_rng(0).integers(0, len(good), 200)]:
        bad = bytearray(good)
        bad[place] ^= 0x10
        path.write_bytes(bad)
        refused(path)


@pytest.mark.parametrize("size", [0, 1, 16, 511, 512, 513, 1000, -1])
def test_a_truncated_file_is_refused(path, size):
    path.write_bytes(path.read_bytes()[:size])
    assert "damaged" in refused(path) or "not an asp-neuro bundle" in refused(path)


def test_other_kinds_of_file_are_named(path, tmp_path):
    path.write_bytes(b"PK\x03\x04" + bytes(1000))
    assert "does not begin with 'asp-neuro bundle'" in refused(path)
    with h5py.File(path, "w") as file:
        file["layer/0/type"] = "dense"
    assert "a plain HDF5 file" in refused(path)
    assert "not a regular file" in refused("/dev/null")
    assert "Is a directory" in refused(tmp_path)


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(MissingError, match="does not exist"):
        read(tmp_path / "nothing.net")


def test_another_version_is_refused(path):
    data = bytearray(path.read_bytes())
    data[16] = 5
    path.write_bytes(data)
    assert refused(path).endswith("format version 5, this program reads 4")


def test_a_file_of_absurd_size_is_not_even_read(path):
    with open(path, "r+b") as file:
        file.truncate(MAX_FILE + 1)
    assert f"{MAX_FILE + 1} bytes, a bundle has at most" in refused(path)


def edited(path, edit) -> str:
    """Why a file is refused after an edit through h5py, all hashes made to fit."""
    with h5py.File(path, "r+", libver=("v108", "latest")) as file:
        edit(file)
        bundle_mutants.reseal_model(file)
    path.write_bytes(bundle_mutants.sealed(path.read_bytes()))
    return refused(path).removeprefix(f"'{path}': ")


def replaced(name, data, **how):
    return lambda file: bundle_mutants.replace(file, name, data, **how)


def removed(name):
    return lambda file: file.__delitem__(name)


def added(name, data):
    return lambda file: file.create_dataset(name, data=data)


def linked(name, target):
    def edit(file):
        del file[name]
        file[name] = target

    return edit


def declared(name, shape, dtype):
    def edit(file):
        del file[name]
        file.create_dataset(name, shape, dtype)

    return edit


WEIGHT = "layer/0/weight"
ZEROS = np.zeros((16, 16), np.int16)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (removed("layer"), "layers []: expected 0, 1, ..."),
        (removed("layer/0"), "layers [1]: expected 0, 1, ..."),
        (lambda f: f.create_dataset("extra", data=1), "extra: unknown"),
        (lambda f: f.attrs.__setitem__("note", 1), "/: attributes"),
        (replaced(WEIGHT, ZEROS.astype("<i8")), "layer/0/weight: is int64, expected <i2"),
        (replaced(WEIGHT, ZEROS.astype(">i2")), "layer/0/weight: of a type that is not read here"),
        (replaced(WEIGHT, ZEROS[0]), "layer/0/weight: 1 dimensions, expected 2"),
        (replaced(WEIGHT, ZEROS[:, :5]), "width 16 of the mixer's drive, but there are 5 inputs of the head"),
        (replaced(WEIGHT, ZEROS[:5]), "layer 1: bias has shape [16], expected [5]"),
        (replaced(WEIGHT, ZEROS + 3), "layer 1: weight 3 is odd, weights are even"),
        (replaced(WEIGHT, ZEROS + 256), "layer 1: weight 256 exceeds 254"),
        (replaced(WEIGHT, ZEROS, compression="gzip"), "layer/0/weight: filters"),
        (replaced(WEIGHT, ZEROS, chunks=(4, 4)), "layer/0/weight: chunked, compact, virtual or external storage"),
        (replaced(WEIGHT, ZEROS[:0]), "layer/0/weight:"),
        (declared(WEIGHT, (2**20, 2**20), "<i2"), "layer/0/weight: 2199023255552 bytes are declared, but not stored"),
        (linked(WEIGHT, h5py.SoftLink("/layer/1/weight")), "layer/0: a soft or external link"),
        (linked(WEIGHT, h5py.ExternalLink("other.net", "/layer/0/weight")), "layer/0: a soft or external link"),
        (replaced("layer/0/shape", np.array([15])), "layer/0/shape: does not fit the rest of the bundle"),
        (replaced("layer/0/neuron/type", np.bytes_(b"CUBA")), "layer/0/neuron/type: does not fit the rest"),
        (replaced("asp/version", np.array(3)), "asp/version is 3, the user block says 4"),
        (replaced("asp/format", np.bytes_(b"other")), "asp/format is not 'asp-neuro bundle'"),
        (replaced("asp/model/factor", np.full((2, 16), np.nan)), "asp/model/factor: holds values that are not finite"),
        (replaced("asp/model/factor", np.full((2, 16), 1e300)), "layer 1: factors 1e+300..1e+300 are outside"),
        (replaced("asp/model/factor", np.ones((3, 16))), "asp/model/factor: 3 rows for 2 layers"),
        (replaced("asp/about/recipe", np.bytes_(b'{"a":NaN}')), "asp/about/recipe: not the JSON that is written here"),
        (replaced("asp/about/recipe", np.bytes_(b'{"a":1e999}')), "recipe is not plain data"),
        (replaced("asp/about/recipe", np.bytes_(b"\xff\xfe")), "asp/about/recipe: not the JSON"),
        (replaced("asp/about/recipe", np.bytes_(b"[" * 10**6)), "asp/about/recipe: not the JSON"),
        (replaced("asp/about/recipe", np.bytes_(b"9" * 10**6)), "asp/about/recipe: not the JSON"),
        (replaced("asp/about/recipe", np.bytes_(b'{"a":1,"a":2}')), "asp/about/recipe: does not fit the rest"),
        (replaced("asp/about/recipe", np.bytes_(b'{ "a":1}')), "asp/about/recipe: does not fit the rest"),
        (replaced("asp/exit/plan", np.bytes_(b"{}")), "plan: "),
        (replaced("asp/about/licence", "of any length", dtype=h5py.string_dtype()), "asp/about/licence: of a type"),
        (replaced("asp/about/licence", np.bytes_(b"3")), "the licence is not a text"),
        (replaced("asp/golden/spikes", np.zeros(3, [("a", "i4")])), "asp/golden/spikes: of a type"),
    ],
)
def test_an_edited_file_with_hashes_that_fit_is_refused_for_its_reason(path, edit, said):
    plain = make()
    if said == "plan: ":
        write(path, dataclasses.replace(plain, plan=promises(model_sha256(plain))[0]))
    assert said in edited(path, edit)


POLICY, CHUNKING = "asp/model/policy/settings", "asp/model/scene/settings"


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (removed("asp"), "asp/model/scene/kind is missing"),
        (removed("asp/about"), "asp/about/licence is missing"),
        (removed("asp/model/scene/edge_in/bias"), "asp/model/scene/edge_in/bias is missing"),
        (added("asp/model/scene/chunk/bias", np.zeros(16, "<i4")), "asp/model/scene/chunk/shift is missing"),
        (added("asp/model/scene/edge_in/extra", 1), "asp/model/scene/edge_in/extra: unknown, a bundle of version 4"),
        (added("asp/golden/points", np.zeros((2, 96, 3), "<i2")), "asp/golden/points: unknown, a bundle of version 4"),
        (replaced("asp/model/scene/kind", np.bytes_(b"smell")), "scene 'smell' is not known; known: cloud"),
        (replaced("asp/model/scene/kind", np.bytes_(b"clouds")), "scene 'clouds' is not known; did you mean 'cloud'"),
        (replaced("asp/model/task/kind", np.bytes_(b"sing")), "task 'sing' is not known; known: classify"),
        (replaced("asp/model/form", np.bytes_(b"liquid")), "form 'liquid' is not known; known: soft"),
        (removed("asp/model/task/kind"), "asp/model/task/kind is missing"),
        (replaced("asp/model/form", np.bytes_(b"x" * 65)), "asp/model/form: is |S65 [], expected a short text"),
        (replaced("asp/model/form", np.array(3)), "asp/model/form: is int64 [], expected a short text"),
        (replaced("asp/model/form", np.zeros(2, "S4")), "asp/model/form: is |S4 [2], expected a short text"),
        (replaced("asp/model/budget", np.array(0)), "budget 0, at least 1 is needed"),
        (replaced("asp/model/budget", np.array(7)), "budget 7, but there are 6 places"),
        (replaced("asp/model/budget", np.array(5)), "golden: host_drives_int is int16"),
        (replaced(POLICY, np.bytes_(b'{"maks":true}')), "unknown key 'maks'; did you mean 'mask'"),
        (replaced(POLICY, np.bytes_(b'{"mask":1,"scorer":"bilinear"}')), "mask = 1 must be true or false"),
        (replaced(POLICY, np.bytes_(b'{"mask":true,"scorer":"best"}')), "unknown scorer 'best'"),
        (replaced(POLICY, np.bytes_(b'{"mask":true}')), f"{POLICY}: scorer is missing"),
        (replaced(POLICY, np.bytes_(b"[]")), f"{POLICY}: not a table"),
        (replaced(CHUNKING, np.bytes_(b"{}")), f"{CHUNKING}: chunking is missing"),
        (replaced(CHUNKING, np.bytes_(b'{"chunking":{}}')), f"{CHUNKING}: does not fit the rest of the bundle"),
        (replaced(CHUNKING, np.bytes_(b'{"chunking":{"n_points":1}}')), "need at most n_points = 1"),
        (replaced(CHUNKING, np.bytes_(b'{"chunking":{"n_points":1.5}}')), "n_points = 1.5 must be a whole number"),
        (replaced("asp/model/mixer/settings", np.bytes_(b'{"a":1}')), "unknown key 'a'"),
        (replaced("asp/model/mixer/settings", np.bytes_(b'{"skip_shift":-1}')), "skip_shift = -1, expected 0 to 24"),
        (replaced("asp/model/scene/edge_in/shift", np.full(8, 25, "i1")), "scene: edge_in: row 0 is shifted by 25"),
        (replaced("asp/model/policy/exponents", np.full(8, 99, "i1")), "expected at most 12 in size"),
        (replaced("asp/model/belief/gain", np.zeros(5, "<i4")), "belief: bias is int32 [16], expected int32 [n]"),
    ],
)
def test_an_edited_section_of_a_model_is_refused_for_its_reason(path, edit, said):
    assert said in edited(path, edit)


def test_weights_changed_without_the_hash_are_seen(path):
    with h5py.File(path, "r+", libver=("v108", "v108")) as file:
        file["layer/0/weight"][0, 0] += 2
    path.write_bytes(bundle_mutants.sealed(path.read_bytes()))
    assert "edited: the model's SHA-256 is" in refused(path)


def test_a_group_that_holds_itself_is_refused(path):
    data = bytearray(path.read_bytes())
    at = data.index(b"\x05layer") + 6  # the link's address follows its name
    data[at : at + 8] = (48).to_bytes(8, "little")  # the root
    path.write_bytes(bundle_mutants.sealed(bytes(data)))
    assert "layer: linked from two places" in refused(path)


def test_a_file_may_be_opened_again_by_other_programs(path):
    with h5py.File(path, "r+", libver=("v108", "v108")) as file:
        bundle_mutants.reseal_model(file)
    path.write_bytes(bundle_mutants.sealed(path.read_bytes()))
    assert model_sha256(read(path)) == model_sha256(make())


# Finding and showing


def test_finding_by_name_by_file_and_by_default(path, monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.import_module("asp_neuro.bundle.find"), "shipped", lambda: {"compact": path})
    monkeypatch.chdir(tmp_path)
    assert bundle.find("compact") == path
    assert bundle.find(path) == path
    assert str(bundle.find()) == "model.net"
    os.rename(path, tmp_path / "other.net")
    with pytest.raises(MissingError, match=r"no bundle given and no ./model.net here; shipped: compact; .*other.net"):
        bundle.find()
    with pytest.raises(MissingError, match="'compcat' is neither a file nor a shipped bundle; shipped: compact"):
        bundle.find("compcat")


def test_what_is_shipped_can_be_read():
    for name, place in bundle.shipped().items():
        assert bundle.golden_mismatches(read(place)) == 0, name


def test_the_description_says_what_is_inside(path):
    text = bundle.describe(read(path))
    for word in (model_sha256(make()), "class 0, class 1", "n_groups 16, group_size 8", "certificate: none"):
        assert word in text
    for word in ("format     4", "6 of 6 places", "cloud, ", "classify, ", "soft form", "scorer bilinear, mask True"):
        assert word in text
    for word in ("academic research", "deploy_accuracy = 0.9", "numpy 1.26.4", 'name = "small"', "2^14"):
        assert word in text


def test_nothing_that_a_terminal_obeys_is_printed():
    text = bundle.describe(make(versions={"x": "\x1b[2J"}, record={"\x1b[2J": {"\x07": "\x1b"}}))
    assert "\x1b" not in text
    assert "\x07" not in text


def test_versions_name_what_matters():
    optional = {"torch": "torch", "lava-nc": "lava.magma", "lava-dl": "lava.lib.dl"}
    there = {name for name, module in optional.items() if is_there(module)}
    assert set(bundle.library_versions()) == {"asp-neuro", "numpy", "h5py", "hdf5", "python", *there}
