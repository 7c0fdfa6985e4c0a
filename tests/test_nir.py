"""The NIR file: read back to the identical integers; what NIR cannot say is metadata; other graphs are refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

import h5py
import nir
import numpy as np
import pytest
import specs

from asp_neuro import bundle as bundles
from asp_neuro.errors import InputError, MissingError
from asp_neuro.heads.soft.layer import LayerSpec
from asp_neuro.heads.soft.reference import run_reference
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.runtime import nir_file
from asp_neuro.runtime.kinds import kind


def assert_same(one: HeadSpec, other: HeadSpec) -> None:
    assert (one.form, len(one.layers)) == (other.form, len(other.layers))
    for mine, theirs in zip(one.layers, other.layers, strict=True):
        for field in fields(LayerSpec):
            left, right = np.asarray(getattr(mine, field.name)), np.asarray(getattr(theirs, field.name))
            assert left.dtype == right.dtype, field.name
            np.testing.assert_array_equal(left, right, err_msg=field.name)


@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_a_head_comes_back_to_the_same_integers(tmp_path, n_layers):
    rng = np.random.default_rng(n_layers)
    head = specs.random_head(rng, 12, 20, n_layers)
    nir_file.write(tmp_path / "head.nir", head)
    assert_same(nir_file.read(tmp_path / "head.nir"), head)


def test_every_leak_and_the_ends_of_every_range_come_back(tmp_path):
    n = 4096
    layer = LayerSpec(
        weight_int=np.resize(np.arange(-256, 256, 2), (n, 2)).astype(np.int64),
        bias_int=np.linspace(-(2**23), 2**23 - 1, n).astype(np.int64),
        lambda_int=np.arange(n),
        theta_int=np.linspace(0, 2**23 - 1, n).astype(np.int64),
        theta_fire_int=np.linspace(2**23 - 1, -(2**23), n).astype(np.int64),
        factor=np.linspace(1e-9, 1e9, n),
        state_bits=18,
    )
    nir_file.write(tmp_path / "head.nir", HeadSpec((layer,)))
    assert_same(nir_file.read(tmp_path / "head.nir"), HeadSpec((layer,)))


def test_the_graph_says_in_nirs_words_what_nir_can_say(tmp_path):
    """Rectify, leak, subtract, compare with the graph's own numbers: same spikes as the integer head on this seed."""
    rng = np.random.default_rng(5)
    head = specs.random_head(rng, 10, 12, 3)
    nir_file.write(tmp_path / "head.nir", head, model_sha256="ab" * 32)
    graph = nir.read(tmp_path / "head.nir")
    assert graph.metadata["model_sha256"] == "ab" * 32
    assert "subtracts theta_int" in graph.metadata["note"]
    sources = {(a, b) for a, b in graph.edges}
    assert {("lif_1", "affine_2"), ("lif_1", "affine_3"), ("lif_2", "affine_3"), ("lif_3", "output")} <= sources
    drives = specs.random_drives(rng, 8, 5, 10)
    membranes, spikes, _ = run_reference(head, drives)
    held = [np.zeros((5, 12)) for _ in head.layers]
    fired = [np.zeros((5, 12)) for _ in head.layers]
    for t in range(8):
        for n in range(3):
            affine, lif = graph.nodes[f"affine_{n + 1}"], graph.nodes[f"lif_{n + 1}"]
            scale = 2.0 ** int(lif.metadata["state_bits"])
            z = drives[t] / 64.0 if n == 0 else sum(fired[:n])
            current = np.maximum(z @ affine.weight.T + affine.bias, 0.0)
            held[n] = held[n] * (1.0 - 1.0 / lif.tau) + (lif.r / lif.tau) * current
            held[n] -= fired[n] * lif.metadata["theta_int"] / scale
            fired[n] = (held[n] > lif.v_threshold).astype(float)
            assert np.abs(held[n] * scale - membranes[t, n]).max() < 8.0  # truncation, one step an observation at most
            np.testing.assert_array_equal(fired[n], spikes[t, n])


def test_a_graph_of_another_tool_is_refused(tmp_path):
    path = tmp_path / "other.nir"
    nir.write(path, nir.NIRGraph.from_list(nir.Input(np.array([3])), nir.Output(np.array([3]))))
    with pytest.raises(InputError, match=r"other\.nir': a NIR graph, but not a head"):
        nir_file.read(path)


def test_a_weight_off_the_grid_is_refused(tmp_path):
    head = specs.random_head(np.random.default_rng(0), 4, 4, 1)
    graph = nir_file.graph(head)
    graph.nodes["affine_1"].weight[0, 0] += 0.001
    nir.write(tmp_path / "head.nir", graph)
    with pytest.raises(InputError, match="weight is not on the integer grid"):
        nir_file.read(tmp_path / "head.nir")


def test_the_file_says_how_the_neurons_are_timed_and_another_timing_is_refused(tmp_path):
    graph = nir_file.graph(specs.random_head(np.random.default_rng(0), 4, 4, 1))
    assert graph.metadata["timing"] == "ticked"  # as in the files of 0.1.0
    graph.metadata["timing"] = "free"
    nir.write(tmp_path / "head.nir", graph)
    with pytest.raises(InputError, match="form of neuron 'free' is not known"):
        nir_file.read(tmp_path / "head.nir")


def test_rubbish_and_nothing_are_told_apart(tmp_path):
    (tmp_path / "rubbish.nir").write_bytes(b"rubbish" * 100)
    with pytest.raises(InputError, match="cannot be read as a NIR graph"):
        nir_file.read(tmp_path / "rubbish.nir")
    with pytest.raises(MissingError, match="does not exist"):
        nir_file.read(tmp_path / "nothing.nir")


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(InputError, match="cannot write"):
        nir_file.write(tmp_path / "no" / "head.nir", specs.random_head(np.random.default_rng(0), 4, 4, 1))
    assert list(tmp_path.iterdir()) == []


# Older versions of nir


def datasets(path) -> set[str]:
    found: set[str] = set()
    with h5py.File(path, "r") as file:
        file.visit(found.add)
    return found


def test_a_reset_to_zero_is_left_out_because_old_readers_know_no_such_word(tmp_path):
    head = specs.random_head(np.random.default_rng(0), 4, 6, 2)
    nir_file.write(tmp_path / "head.nir", head)
    named = datasets(tmp_path / "head.nir")
    assert {"node/nodes/lif_2/tau", "node/nodes/lif_2/v_threshold"} <= named
    assert not [name for name in named if name.endswith("v_reset")]
    assert (nir.read(tmp_path / "head.nir").nodes["lif_2"].v_reset == np.zeros(6)).all()


def test_nir_itself_would_have_written_it(tmp_path):
    """Planted: without our care the word is there, and the test above can fail."""
    nir.write(tmp_path / "head.nir", nir_file.graph(specs.random_head(np.random.default_rng(0), 4, 6, 1)))
    assert "node/nodes/lif_1/v_reset" in datasets(tmp_path / "head.nir")


READ = """
import importlib.metadata, sys
import nir
graph = nir.read(sys.argv[1])
lif, affine = graph.nodes["lif_2"], graph.nodes["affine_2"]
print(importlib.metadata.version("nir"), lif.v_threshold.tolist(), affine.weight.tolist(), sorted(graph.edges))
"""


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.0.4", "1.0.6"])
def test_an_older_nir_reads_the_file(tmp_path, version):
    """In an environment of its own; 1.0.4 is what Sinabs 3.1 asks for."""
    python = tmp_path / "own" / "bin" / "python"
    for words in (
        [sys.executable, "-m", "venv", tmp_path / "own"],
        [python, "-m", "pip", "install", f"nir=={version}"],
    ):
        done = subprocess.run(words, capture_output=True, text=True, timeout=600)
        if done.returncode:
            pytest.skip(f"no environment with nir {version}: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    nir_file.write(tmp_path / "head.nir", specs.random_head(np.random.default_rng(3), 4, 6, 2), "ab" * 32)
    done = subprocess.run([python, "-c", READ, tmp_path / "head.nir"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    here = nir.read(tmp_path / "head.nir")
    lif, affine = here.nodes["lif_2"], here.nodes["affine_2"]
    expected = f"{version} {lif.v_threshold.tolist()} {affine.weight.tolist()} {sorted(here.edges)}"
    assert done.stdout.strip() == expected


# Files that are taken for another kind


def test_the_file_of_an_export_names_its_model(tmp_path, cli, monkeypatch):
    from asp_neuro.learn import checkpoint

    monkeypatch.chdir(tmp_path)
    said = cli("export", str(checkpoint.find("compact")), "--nir", "head.nir", "--no-certificate", "--json")
    assert said.code == 0, said.err
    assert nir.read(tmp_path / "head.nir").metadata["model_sha256"] == said.json["sha256"]
    assert_same(nir_file.read(tmp_path / "head.nir"), bundles.read(tmp_path / "model.net").head)


def test_a_nir_file_and_a_checkpoint_that_are_taken_for_a_bundle_are_told(tmp_path, cli, monkeypatch):
    from asp_neuro.learn import checkpoint

    monkeypatch.chdir(tmp_path)
    nir_file.write("head.nir", specs.random_head(np.random.default_rng(0), 4, 4, 1))
    checkpoint.save("my model.pt", {"model": {}})
    for verb in ("show", "run"):
        said = cli(verb, "head.nir")
        assert (said.code, "it is a NIR graph" in said.err) == (2, True)
        assert "asp-neuro export 'my model.pt'" in cli(verb, "my model.pt").err
    (tmp_path / "other.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(1000))
    assert (kind("other.h5"), kind("nothing")) == (None, None)


def test_a_bundle_that_is_taken_for_a_nir_file_or_a_checkpoint_is_told(cli):
    path = bundles.shipped()["compact"]
    with pytest.raises(InputError, match=r"compact\.net' is a bundle and no NIR graph; .*export model.pt --nir"):
        nir_file.read(path)
    assert f"it is a bundle already: asp-neuro run {path}" in cli("export", str(path), "--out", "x.net").err


def test_a_damaged_bundle_gets_no_advice_to_run_it(tmp_path, cli):
    (tmp_path / "a.net").write_bytes(bundles.shipped()["compact"].read_bytes()[:5000])
    said = cli("run", str(tmp_path / "a.net"))
    assert "damaged" in said.err
    assert "asp-neuro run" not in said.err
