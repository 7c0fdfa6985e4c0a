"""SLAYER's blocks, lava-dl's and our own: one head, one training, the same bits."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from asp_neuro.learn import slayer

# Builds a head from a seed, trains it for some steps in float and on the integer grid, and saves all that came of it.
PROGRAM = """
import sys
if sys.argv[2] == "own":
    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] == "lava":
                raise ModuleNotFoundError(name=name)
    sys.meta_path.insert(0, Absent())

import numpy as np, torch
from asp_neuro.learn import slayer
from asp_neuro.learn.soft_head import SpikingHead

torch.set_num_threads(1)
torch.manual_seed(3)
head = SpikingHead(7, 9, 3)
drives = torch.randn(5, 7, 11) * 2.0
kept = {f"start.{key}": value.clone() for key, value in head.state_dict().items()}
kept["draws"] = torch.rand(4)  # the same random numbers were used up
optimiser = torch.optim.Adam(head.parameters(), 0.05)
for step in range(12):
    if step == 6:
        head.fix_scales(np.full((3, 9), 8.0))
        head.deploy = True
    optimiser.zero_grad()
    membranes, spikes = head(drives)
    (membranes.square().mean() - spikes.mean()).backward()
    for name, parameter in head.named_parameters():
        kept[f"gradient.{step}.{name}"] = parameter.grad.clone()
    kept[f"membranes.{step}"], kept[f"spikes.{step}"] = membranes.detach(), spikes.detach()
    optimiser.step()
kept |= {f"end.{key}": value for key, value in head.state_dict().items()}
np.savez(sys.argv[1], **{key: value.numpy() for key, value in kept.items()}, base=slayer.Neuron.__module__)
"""


def trained(folder, whose: str) -> dict[str, np.ndarray]:
    path = folder / f"{whose}.npz"
    subprocess.run([sys.executable, "-c", PROGRAM, path, whose], check=True, capture_output=True)
    with np.load(path) as stored:
        return dict(stored)


@pytest.mark.lava
def test_our_blocks_are_lava_dls_bit_for_bit(tmp_path):
    theirs, ours = trained(tmp_path, "theirs"), trained(tmp_path, "own")
    assert str(theirs.pop("base")).startswith("lava.lib.dl.slayer")
    assert str(ours.pop("base")) == "asp_neuro.learn.slayer"
    assert list(theirs) == list(ours)  # state-dict keys among them
    different = [key for key in theirs if not np.array_equal(theirs[key], ours[key])]
    assert different == []
    assert any(theirs[key].any() for key in theirs if key.startswith("spikes.11"))


@pytest.mark.lava
@pytest.mark.parametrize("descale", [False, True])
def test_weights_land_on_the_same_grid_and_pass_the_same_gradient(descale):
    from lava.lib.dl.slayer.neuron.base import Neuron

    scales = {"threshold": 1.0, "p_scale": 1 << 12, "w_scale": 64, "s_scale": 64 * 64, "shared_param": False}
    values = torch.cat([torch.linspace(-6, 6, 4001, dtype=torch.float64), torch.tensor([1 / 64, -3 / 64, 3.97, -4.0])])
    found = []
    for neuron in (Neuron(**scales), slayer.OwnNeuron(**scales)):
        x = values.clone().requires_grad_()
        on_grid = neuron.quantize_8bit(x, descale=descale)
        on_grid.square().sum().backward()
        found.append((on_grid.detach(), x.grad, neuron.threshold))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert found[0][2] == found[1][2]


def test_the_grid_is_even_numbers_of_nine_bits():
    neuron = slayer.OwnNeuron(1.0, 1 << 12, 64, 64 * 64, False)
    weight = torch.tensor([0.0, 1.0, 1.001, -1.0, -1.001, 3.0, 254.9, 300.0, -256.9, -300.0]) / 64
    assert neuron.quantize_8bit(weight, descale=True).tolist() == [0, 0, 2, 0, -2, 4, 254, 254, -256, -256]


def test_the_gradient_passes_at_the_limits_whatever_torch_thinks_of_it():
    x = torch.tensor([-5.0, -4.0, 0.0, 254 / 64, 4.0], requires_grad=True)
    slayer.OwnNeuron(1.0, 1 << 12, 64, 64 * 64, False).quantize_8bit(x).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 1.0, 1.0, 0.0]


def test_a_synapse_draws_its_weights_as_a_convolution_does():
    torch.manual_seed(5)
    ours = slayer.OwnSynapse(6, 4).weight
    torch.manual_seed(5)
    assert torch.equal(ours, torch.nn.Conv3d(6, 4, 1, bias=False).weight)
    assert ours.shape == (4, 6, 1, 1, 1)
