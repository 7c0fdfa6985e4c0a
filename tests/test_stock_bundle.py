"""Stock bundles: written and read, refused when forged, and run by stock NetX bit for bit."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import specs
from stock_specs import random_stock_drives, random_stock_head

from asp_neuro.bundle import Bundle, read, write
from asp_neuro.bundle.layout import contents
from asp_neuro.bundle.netx_stock import stock_contents, stock_layer
from asp_neuro.chip.machines import netx, why_not_netx
from asp_neuro.errors import ConfigError, InputError, UsageError
from asp_neuro.heads.spec import STOCK, HeadSpec
from asp_neuro.runtime import hardware, nir_file
from asp_neuro.runtime.verification import verify

DOCS = Path(__file__).parent.parent / "docs" / "loihi2.md"


def made(seed: int = 0, **head: int) -> Bundle:
    rng = np.random.default_rng(seed)
    model = specs.random_model(rng, head=random_stock_head(rng, 16, 16, **head))
    return Bundle(model, {"data": {"name": "shapes"}}, specs.golden(model, random_stock_drives(rng, 4, 2, 16)))


def test_a_bundle_read_again_is_the_same_network(tmp_path):
    bundle = made(steps=9, read_after=4)
    write(tmp_path / "m.net", bundle)
    again = read(tmp_path / "m.net").head
    assert (again.form, again.steps, again.read_after) == (STOCK, 9, 4)
    for ours, theirs in zip(bundle.head.layers, again.layers, strict=True):
        for name in ("weight_int", "rho_int", "threshold_int", "lambda_int", "factor", "weight_exp"):
            assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name


def test_the_layout_is_netx_own_and_the_schedule_stands_apart():
    held = contents(made())
    layer = {path.removeprefix("layer/0/"): array for path, array in held.items() if path.startswith("layer/0/")}
    assert layer["type"].tobytes() == b"dense_rec"
    assert layer["neuron/type"].tobytes() == b"CUBA"
    assert layer["weight"].shape == (16, 17)  # the constant is the last input
    assert {name: int(layer[f"neuron/{name}"]) for name in ("vDecay", "refDelay", "gradedSpike")} == {
        "vDecay": 4096, "refDelay": 1, "gradedSpike": 0}  # fmt: skip
    values = {path: int(array) for path, array in held.items() if path.startswith("asp/head/")}
    assert values == {
        "asp/head/steps": 8, "asp/head/read_after": 3, "asp/head/constant": 32, "asp/head/drive_bits": 2}  # fmt: skip


def test_a_layer_with_an_exponent_has_a_neuron_type_that_stock_netx_refuses():
    layer = replace(made().head.layers[1], weight_exp=2)
    assert stock_contents(layer)["neuron/type"].tobytes() == b"ASP_STOCK"
    assert stock_layer(stock_contents(layer), layer.factor).weight_exp == 2


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("weight_rec", np.zeros((3, 3)), "weight, weight_rec and bias of a layer have shapes"),
        ("neuron/iDecay", np.array(2**40), "neuron/iDecay is 1099511627776"),
    ],
)
def test_forged_layers_are_refused(name, value, said):
    layer = made().head.layers[0]
    stored = {**stock_contents(layer), name: value}
    with pytest.raises(InputError, match=said):
        stock_layer(stored, layer.factor)


def test_a_head_that_could_wrap_cannot_become_a_bundle():
    bundle = made()
    first = replace(bundle.head.layers[0], lambda_int=4095)
    wild = replace(first, weight_int=np.where(first.weight_int > 0, 254, -256), rho_int=0 * first.rho_int)
    head = HeadSpec((wild, replace(bundle.head.layers[1], lambda_int=4095)), STOCK, 64, 3)
    with pytest.raises(ConfigError, match=r"layer 1: membranes can reach .* LIF wraps at 8388608"):
        Bundle(replace(bundle.model, head=head), bundle.recipe, bundle.golden)


def test_verify_and_check_take_stock_bundles():
    bundle = made()
    scenes = bundle.model.scene.scenes(bundle.golden.inputs.astype(np.float64))
    from asp_neuro.model.exit import ExitRule

    found = verify(bundle, scenes, ["a", "b"], ExitRule())
    assert found.mismatches == 0
    fit = hardware.check(bundle.head, bundle.model.mixer, hardware.chip("loihi2"))
    assert fit.fits, fit.text()
    assert [core.axons for core in fit.cores_used] == [17 + 16, 16 + 16]  # inputs, and the neurons' own spikes


def test_a_nir_file_of_a_stock_head_is_refused(tmp_path):
    with pytest.raises(UsageError, match="NIR files hold heads of the soft form, this one is 'stock'"):
        nir_file.write(tmp_path / "x.nir", made().head)


def netx_lines() -> str:
    """The lines of docs/loihi2.md that run a bundle in stock NetX."""
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    return next(block for block in blocks if "netx.hdf5.Network" in block)


@pytest.mark.lava
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_stock_netx_gives_the_golden_membranes_by_the_lines_of_the_docs(tmp_path, seed):
    write(tmp_path / "model.net", made(seed))
    done = subprocess.run(
        [sys.executable, "-c", netx_lines()], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "0 of 64 membranes differ"


@pytest.mark.lava
@pytest.mark.slow
def test_stock_netx_gives_every_membrane_and_spike_of_every_layer(tmp_path):
    """In all time steps, not only at the readings."""
    write(tmp_path / "model.net", made(3))
    program = netx_lines().replace("monitor.probe(net.layers[-1].neuron.u, pulses.shape[1])", PROBES)
    program = program[: program.index("u = next")] + COMPARE
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "0 0 True"


@pytest.mark.lava
@pytest.mark.slow
def test_verify_names_stock_netx_among_its_engines(cli):
    said = cli("verify", "compact_stock", "--limit", "1", "--json")
    assert said.code == 0
    assert {"fast", "lava", "netx"} < set(said.json["engines"])
    assert said.json["mismatches"] == 0


@pytest.mark.lava
@pytest.mark.slow
def test_stock_netx_runs_the_file_and_not_what_we_think_is_in_it(tmp_path):
    ours, theirs = made(6, steps=6), tmp_path / "other.net"
    first = ours.head.layers[0]
    other = replace(ours.head, layers=(replace(first, lambda_int=first.lambda_int - 1), *ours.head.layers[1:]))
    write(theirs, replace(ours, model=replace(ours.model, head=other)))
    drives = ours.golden.drives_int.astype(np.int64)
    membranes, spikes = netx(theirs).run_head(ours.head, drives)
    assert np.array_equal(membranes, other.reference(drives).membranes)
    assert np.array_equal(spikes, other.reference(drives).spikes)
    assert not np.array_equal(membranes, ours.head.reference(drives).membranes)


def test_why_stock_netx_takes_no_part_is_told():
    head = made().head
    lifted = replace(head, layers=(head.layers[0], replace(head.layers[1], weight_exp=2)))
    assert why_not_netx(lifted) == "it has no word for the exponents [0, 2] of the synapses (head.weight_exp)"
    assert why_not_netx(specs.random_head(np.random.default_rng(0))) == "it knows no neurons of the form 'soft'"


PROBES = """
probes = [Monitor() for _ in range(4)]
for index, layer in enumerate(net.layers):
    probes[2 * index].probe(layer.neuron.u, pulses.shape[1])
    probes[2 * index + 1].probe(layer.neuron.s_out, pulses.shape[1])
"""
COMPARE = """
from asp_neuro.heads.stock.reference import run_stream
want = run_stream(head, golden.drives_int[:, :1].astype(np.int64))
seen = [next(iter(next(iter(probe.get_data().values())).values()))[1:] for probe in probes]
net.stop()
wrong_u = sum(int((seen[2 * i] != want.membranes[:, i, 0]).sum()) for i in range(2))
wrong_s = sum(int((seen[2 * i + 1] != want.spikes[:, i, 0]).sum()) for i in range(2))
print(wrong_u, wrong_s, bool(want.spikes.any()))
"""


@pytest.mark.lava
@pytest.mark.slow
def test_stock_netx_refuses_a_ticked_bundle(tmp_path):
    rng = np.random.default_rng(0)
    model = specs.random_model(rng)
    golden = specs.golden(model, specs.random_drives(rng, 4, 2, 16))
    write(tmp_path / "model.net", Bundle(model, {"data": {"name": "shapes"}}, golden))
    done = subprocess.run(
        [sys.executable, "-c", netx_lines()], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode != 0
    assert "NoneType" in done.stderr
