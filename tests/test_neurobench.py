"""NeuroBench's names: hand-counted, and compared with NeuroBench itself where it is installed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import specs

from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model.exit import ExitRule
from asp_neuro.runtime import neurobench
from asp_neuro.runtime.machine import fast_head


def sparse_head(rng: np.random.Generator, n_layers: int = 2) -> HeadSpec:
    """A lively head of which a third of the weights is 0."""
    head = specs.random_head(rng, 12, 10, n_layers)
    layers = [
        dataclasses.replace(layer, weight_int=layer.weight_int * (rng.random(layer.weight_int.shape) < 0.67))
        for layer in head.layers
    ]
    return HeadSpec(tuple(layers))


def counted(head: HeadSpec, drives: np.ndarray) -> tuple[neurobench.Tally, np.ndarray]:
    """A tally of drives [T, b, n], and the spikes [T, L, b, H]."""
    spikes = fast_head(head, drives)[1]
    tally = neurobench.Tally(head, scenes=drives.shape[1])
    for drive, fired in zip(drives, spikes, strict=True):
        tally.add(drive, [layer[None] for layer in fired])
    return tally, spikes


def test_operations_are_those_that_a_loop_over_synapses_counts():
    rng = np.random.default_rng(0)
    head, drives = sparse_head(rng, 3), specs.random_drives(rng, 4, 5, 12)
    drives[np.abs(drives) < 40] = 0
    tally, spikes = counted(head, drives)
    macs = accumulates = 0
    for t in range(4):
        for b in range(5):
            macs += sum(w != 0 and x != 0 for row in head.layers[0].weight_int for w, x in zip(row, drives[t, b]))
            for index in (1, 2):
                for source in range(index):
                    fired = spikes[t, source, b]
                    accumulates += sum(
                        w != 0 and s != 0 for row in head.layers[index].weight_int for w, s in zip(row, fired)
                    )
    assert (tally.macs, tally.accumulates) == (macs, accumulates)
    assert tally.dense == 20 * (12 * 10 + 100 + 2 * 100)
    assert tally.as_dict()["activation_sparsity"] == 1.0 - spikes.mean()
    assert tally.as_dict()["synaptic_operations"]["Effective_MACs"] == macs / 5


def test_static_numbers_by_hand():
    head = sparse_head(np.random.default_rng(1))
    zeros = sum(int((layer.weight_int == 0).sum()) for layer in head.layers)
    assert neurobench.connection_sparsity(head) == zeros / 220
    assert neurobench.head_footprint(head) == 220 + 2 * 10 * 2 + 2 * 3 * 10 * 4 + 10 * 8


def test_metrics_of_a_model_count_what_was_looked_at():
    perceiver = specs.random_perceiver(np.random.default_rng(2))
    scenes = perceiver.scenes(specs.random_clouds(np.random.default_rng(3), 6))
    whole = neurobench.metrics(perceiver, [scenes[:4], scenes[4:]], ExitRule())
    early = neurobench.metrics(perceiver, [scenes], ExitRule(tau=0.0))
    assert whole["synaptic_operations"]["Dense"] == 6 * 2 * 256
    assert early["synaptic_operations"]["Dense"] == 2 * 256  # any margin above 0 is enough: one look
    assert whole["footprint_with_host"] > whole["footprint"]
    assert neurobench.metrics(perceiver, [], ExitRule())["synaptic_operations"] is None


def test_neurobench_itself_counts_the_same():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("snntorch", reason="snntorch, which NeuroBench imports, is not installed")
    # no extra names it: it asks for 18 packages that nobody needs here, and works without (`.ci/setup` takes it alone)
    layers, neurons, static, workload, models = (
        pytest.importorskip(f"neurobench.{part}", reason="pip install --no-deps neurobench: it is not installed")
        for part in ("hooks.layer", "hooks.neuron", "metrics.static", "metrics.workload", "models")
    )

    rng = np.random.default_rng(4)
    head, drives = sparse_head(rng), specs.random_drives(rng, 5, 7, 12)
    drives[np.abs(drives) < 30] = 0
    tally, spikes = counted(head, drives)

    class Told(torch.nn.ReLU):
        """A layer of neurons that fires what ours fired."""

        def forward(self, x):
            return self.spikes

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for index, layer in enumerate(head.layers):
                linear = torch.nn.Linear(layer.weight_int.shape[1], layer.n_neurons, bias=False)
                linear.weight.data = torch.tensor(layer.weight_int, dtype=torch.float64)
                setattr(self, f"synapses{index}", linear)
                setattr(self, f"neurons{index}", Told())

        def forward(self, x):
            for t in range(len(x)):
                z = x[t]
                for index in range(len(head.layers)):
                    neurons = getattr(self, f"neurons{index}")
                    neurons.spikes = torch.tensor(spikes[t, index], dtype=torch.float64)
                    z = neurons(getattr(self, f"synapses{index}")(z))
            return z

    model = models.TorchModel(Net())
    told = model.activation_layers()
    model.activation_hooks = [neurons.NeuronHook(found["layer"], found["layer_name"]) for found in told]
    model.connection_hooks = [layers.LayerHook(one) for one in model.connection_layers()]
    inputs = torch.tensor(drives, dtype=torch.float64)
    model.__net__()(inputs)
    found = workload.SynapticOperations()(model, None, (inputs[0],))
    assert found == tally.as_dict()["synaptic_operations"]
    assert workload.ActivationSparsity()(model, None, None) == pytest.approx(tally.as_dict()["activation_sparsity"])
    assert static.ConnectionSparsity()(model) == round(neurobench.connection_sparsity(head), 4)
