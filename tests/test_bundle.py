"""The bundle: what is written comes back, in the same bytes every time; what is no bundle is refused in one line."""

from __future__ import annotations

import dataclasses
import hashlib
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
from asp_neuro.bundle import Bundle, Golden, make_golden, model_sha256, read, to_bytes, with_certificate, write
from asp_neuro.certify import Recording, certify, make_plan
from asp_neuro.errors import ConfigError, InputError, MissingError
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.scenes.cloud import cut


def make(seed: int = 0, n_layers: int = 2, **changes: object) -> Bundle:
    rng = np.random.default_rng(seed)
    perceiver = specs.random_perceiver(rng, n_layers=n_layers)
    plain = Bundle(
        head=perceiver.head,
        host=perceiver.host,
        chunking=perceiver.chunking,
        classes=perceiver.classes,
        recipe={"name": "small", "seed": 3, "model": {"width": 16, "edge_widths": [8, 12]}},
        golden=specs.golden(perceiver, specs.random_drives(rng, 6, 3, 16)),
        record={"float_accuracy": 0.91, "deploy_accuracy": 0.9, "firing_rate": [0.31, 0.28]},
        versions={"numpy": "1.26.4"},
        licence="ModelNet is offered for academic research.",
    )
    return dataclasses.replace(plain, **changes)


def golden_of(b: Bundle, drives: np.ndarray) -> Golden:
    return make_golden(b.head, drives, b.host, b.chunking, b.golden.points)


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
    for name, array in first.host.arrays().items():
        np.testing.assert_array_equal(array, again.host.arrays()[name])
    assert (again.host.scorer, again.host.mask) == (first.host.scorer, first.host.mask)
    for field in dataclasses.fields(first.golden):
        np.testing.assert_array_equal(getattr(first.golden, field.name), getattr(again.golden, field.name))
    for name in ("chunking", "classes", "recipe", "record", "versions", "licence", "plan", "certificate"):
        assert getattr(again, name) == getattr(first, name), name
    assert again.head.timing == first.head.timing
    assert to_bytes(again) == to_bytes(first)


def test_moments_come_back_from_the_file(tmp_path):
    host = specs.random_host(np.random.default_rng(1), moments=True)
    write(tmp_path / "m.net", dataclasses.replace(make(), host=host))
    again = read(tmp_path / "m.net")
    assert again.host.moments
    assert not make().host.moments
    np.testing.assert_array_equal(again.host.token_in_weight, host.token_in_weight)
    for missing in (10, 31):
        with pytest.raises(ConfigError, match="token_in_weight"):
            dataclasses.replace(host, token_in_weight=host.token_in_weight[:, :-missing])


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"token_width": 20}, ["embedding_in_weight", "embedding_in_bias"]),
        ({"first_look": 6}, ["policy_first_weight", "policy_first_bias", "policy_first_score"]),
    ],
)
def test_a_part_of_the_host_comes_back_whole_or_not_at_all(tmp_path, settings, names):
    host = specs.random_host(np.random.default_rng(1), **settings)
    first = dataclasses.replace(make(), host=host)
    write(tmp_path / "m.net", first)
    again = read(tmp_path / "m.net")
    assert set(again.host.arrays()) == set(make().host.arrays()) | set(names)
    assert model_sha256(again) == model_sha256(first) != model_sha256(make())
    paths = set(bundle.contents(first))
    for name in names:
        np.testing.assert_array_equal(getattr(again.host, name), getattr(host, name))
        with pytest.raises(ConfigError, match="needs all of"):
            dataclasses.replace(host, **{name: None})
        with pytest.raises(ConfigError, match="expected float32"):
            dataclasses.replace(host, **{name: getattr(host, name)[:-1]})
        with pytest.raises(InputError, match="is missing"):
            bundle._check_paths(paths - {bundle.HOST_PLACES[name]})
    bundle._check_paths(paths - {bundle.HOST_PLACES[name] for name in names})


def test_a_bundle_that_was_read_answers_like_the_one_that_was_written(path):
    first, again = make(), read(path)
    rng = np.random.default_rng(9)
    chunks = cut(specs.random_clouds(rng, 12), first.chunking)
    answers = [Perceiver(b.head, b.host, b.chunking, b.classes).answers(chunks) for b in (first, again)]
    for mine, theirs in zip(*answers, strict=True):
        assert (mine.label, mine.order, mine.margins) == (theirs.label, theirs.order, theirs.margins)


def test_chunking_of_any_number_types_comes_back(tmp_path):
    odd = dataclasses.replace(specs.SMALL, overlap=2, radius=np.float32(0.5), n_chunks=np.int64(6))
    write(tmp_path / "m.net", make(chunking=odd))
    assert read(tmp_path / "m.net").chunking == odd


def test_unusual_words_come_back(tmp_path):
    words = ("Stuhl", "椅子", "chaise longue", "😀")
    write(tmp_path / "m.net", make(classes=words, licence="two\nlines"))
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


# Identity


def changes() -> list[Bundle]:
    plain = make()
    weight = plain.head.layers[1].weight_int.copy()
    weight[0, 0] = 2 if weight[0, 0] != 2 else 4
    layer = dataclasses.replace(plain.head.layers[1], weight_int=weight)
    head = dataclasses.replace(plain.head, layers=(plain.head.layers[0], layer))
    host = dataclasses.replace(plain.host, readout_bias=plain.host.readout_bias + np.float32(1e-6))
    return [
        dataclasses.replace(plain, head=head),
        dataclasses.replace(plain, host=host),
        dataclasses.replace(plain, host=dataclasses.replace(plain.host, mask=False)),
        dataclasses.replace(plain, chunking=dataclasses.replace(plain.chunking, overlap=1.2)),
        dataclasses.replace(plain, classes=tuple(reversed(plain.classes))),
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
    digest = bundle._digest({"a": np.arange(3, dtype="<i4"), "b": np.array(b"xy")})
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
    from asp_neuro.bundle import plain_hdf5

    data = path.read_bytes()
    ours = {name: plain_hdf5.values(data, found) for name, found in plain_hdf5.arrays(data, 512).items()}
    with h5py.File(path, "r") as file:
        assert sorted(ours) == sorted(bundle_mutants.leaves(file))
        for name, array in ours.items():
            theirs = np.asarray(file[name][()])
            assert (array.dtype, array.shape) == (theirs.dtype, theirs.shape), name
            assert array.tobytes() == theirs.tobytes(), name


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
        (lambda b: {"classes": b.classes[:-1]}, "the read-out has width 4, but there are 3 classes"),
        (lambda b: {"classes": ("a", "b", "c", "a")}, "4 classes, of which 3 are distinct"),
        (lambda b: {"classes": ("a", "b", "c", "\x1b[2J")}, "is not printable text"),
        (lambda b: {"host": specs.random_host(np.random.default_rng(0), 8, 16)}, "the host's drive has width 8"),
        (lambda b: {"host": specs.random_host(np.random.default_rng(0), 16, 8)}, "the host's belief has width 8"),
        (lambda b: {"recipe": None}, "recipe is a NoneType, expected a table"),
        (lambda b: {"record": {"x": float("nan")}}, "record is not plain data"),
        (lambda b: {"record": {"x": np.float32(1)}}, "record is not plain data"),
        (lambda b: {"record": {"x": 2**60}}, "exceeds 2\\^53"),
        (lambda b: {"record": {"x": "\ud800"}}, "record is not plain data"),
        (lambda b: {"versions": {"x": 1}}, "versions: x is 1, expected text"),
        (lambda b: {"golden": dataclasses.replace(b.golden, spikes=b.golden.spikes * 2)}, "golden: spikes 0..2"),
        (lambda b: {"golden": dataclasses.replace(b.golden, spikes=b.golden.spikes[1:])}, "golden: spikes is uint8"),
        (lambda b: {"golden": dataclasses.replace(b.golden, points=b.golden.points[:, 1:])}, "golden: points is int16"),
        (lambda b: {"golden": dataclasses.replace(b.golden, points=b.golden.points[:1])}, "golden: host_drives_int is"),
        (lambda b: {"golden": dataclasses.replace(b.golden, points=b.golden.points[0])}, "golden: points have shape"),
        (lambda b: {"host": _loud(b.host)}, "host: edge_in: sums can reach"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(change, said):
    plain = make()
    with pytest.raises(ConfigError, match=said):
        dataclasses.replace(plain, **change(plain))


def _loud(host):
    return dataclasses.replace(host, edge_in_weight=np.full_like(host.edge_in_weight, 1e30))


def test_sums_that_could_wrap_in_int32_are_refused():
    plain = make()
    layer = dataclasses.replace(plain.head.layers[0], weight_int=np.full((16, 5000), 254))
    host = specs.random_host(np.random.default_rng(0), 16, 16)
    with pytest.raises(ConfigError, match="layer 1: synaptic sums can reach 41614090000, int32 ends at 2147483647"):
        bundle.check_synaptic_sums(dataclasses.replace(plain.head, layers=(layer,)))
    bundle.check_synaptic_sums(plain.head, host.drive_bound())


@pytest.mark.parametrize("bits", [12.0, True, "12", None])
def test_a_state_scale_that_is_no_whole_power_is_refused(bits):
    head = make().head
    with pytest.raises(ConfigError, match=r"layer 1: state scale .* is not a whole power of two"):
        dataclasses.replace(head, layers=(dataclasses.replace(head.layers[0], state_bits=bits),))


def test_golden_vectors_that_overflow_are_refused():
    plain = make()
    with pytest.raises(ConfigError, match="the 24-bit state overflows"):
        golden_of(plain, np.full((30, 2, 16), 32767))
    with pytest.raises(ConfigError, match=r"expected \[T, batch, 16\]"):
        golden_of(plain, np.zeros((3, 2, 15), np.int64))


def test_golden_clouds_tell_when_the_host_is_another_one(path):
    found = read(path)
    host = dataclasses.replace(found.host, gates_bias=found.host.gates_bias + np.float32(0.1))
    assert bundle.golden_mismatches(dataclasses.replace(found, host=host)) > 50


def test_a_bundle_of_an_earlier_version_is_refused_with_what_to_do(path):
    data = bytearray(path.read_bytes())
    data[16:20] = struct.pack("<I", 1)
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"format version 1, this program reads 2; export its checkpoint again"):
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
    data[16] = 3
    path.write_bytes(data)
    assert "format version 3, this program reads 2" in refused(path)


def test_a_file_of_absurd_size_is_not_even_read(path):
    with open(path, "r+b") as file:
        file.truncate(bundle.MAX_FILE + 1)
    assert f"{bundle.MAX_FILE + 1} bytes, a bundle has at most" in refused(path)


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
        (removed("asp"), "asp/about/licence is missing"),
        (removed("layer"), "layers []: expected 0, 1, ..."),
        (removed("layer/0"), "layers [1]: expected 0, 1, ..."),
        (removed("asp/host/edge/in_bias"), "asp/host/edge/in_bias is missing"),
        (lambda f: f.create_dataset("asp/host/embedding/in_bias", data=np.zeros(16, "<f4")), "in_weight is missing"),
        (lambda f: f.create_dataset("asp/host/edge/extra", data=1), "asp/host/edge/extra: unknown"),
        (lambda f: f.create_dataset("extra", data=1), "extra: unknown"),
        (lambda f: f.attrs.__setitem__("note", 1), "/: attributes"),
        (replaced(WEIGHT, ZEROS.astype("<i8")), "layer/0/weight: is int64, expected <i2"),
        (replaced(WEIGHT, ZEROS.astype(">i2")), "layer/0/weight: of a type that is not read here"),
        (replaced(WEIGHT, ZEROS[0]), "layer/0/weight: 1 dimensions, expected 2"),
        (replaced(WEIGHT, ZEROS[:, :5]), "the host's drive has width 16, but there are 5 inputs of layer 1"),
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
        (replaced("asp/version", np.array(3)), "format version 3, this program reads 2"),
        (replaced("asp/format", np.bytes_(b"other")), "asp/format is not 'asp-neuro bundle'"),
        (replaced("asp/model/timing", np.bytes_(b"free")), "timing 'free' is not known"),
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
        (replaced("asp/model/policy", np.bytes_(b'{"maks":true}')), "unknown key 'maks'; did you mean 'mask'"),
        (replaced("asp/model/chunking", np.bytes_(b"{}")), "asp/model/chunking: n_points is missing"),
        (replaced("asp/exit/plan", np.bytes_(b"{}")), "plan: "),
        (replaced("asp/about/licence", "of any length", dtype=h5py.string_dtype()), "asp/about/licence: of a type"),
        (replaced("asp/golden/spikes", np.zeros(3, [("a", "i4")])), "asp/golden/spikes: of a type"),
    ],
)
def test_an_edited_file_with_hashes_that_fit_is_refused_for_its_reason(path, edit, said):
    if said == "plan: ":
        write(path, make(plan=promises(model_sha256(make()))[0]))
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
    monkeypatch.setattr(bundle, "shipped", lambda: {"compact": path})
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
    for word in (model_sha256(make()), "class 0, class 1", "16 groups of 8", "ticked", "certificate: none"):
        assert word in text
    for word in ("academic research", "deploy_accuracy = 0.9", "numpy 1.26.4", 'name = "small"', "2^14"):
        assert word in text


def test_nothing_that_a_terminal_obeys_is_printed():
    text = bundle.describe(make(versions={"x": "\x1b[2J"}, record={"\x1b[2J": {"\x07": "\x1b"}}))
    assert "\x1b" not in text
    assert "\x07" not in text


def test_versions_name_what_matters():
    assert {"asp-neuro", "numpy", "h5py", "hdf5", "torch", "lava-nc", "lava-dl", "python"} <= set(
        bundle.library_versions()
    )
