"""The NIR file: read back to the identical integers; what NIR cannot say is metadata; other graphs are refused."""

from __future__ import annotations

from dataclasses import fields

import nir
import numpy as np
import pytest
import specs

from asp_neuro.errors import InputError, MissingError
from asp_neuro.heads.soft.layer import LayerSpec
from asp_neuro.heads.soft.reference import run_reference
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.runtime import nir_file


def assert_same(one: HeadSpec, other: HeadSpec) -> None:
    assert (one.timing, len(one.layers)) == (other.timing, len(other.layers))
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
