"""A head's numbers under the names of NeuroBench (2.3), from the integers that run.

    footprint              bytes that inference reads: weights 1, leaks 2, what is held at the state's scale 4 each
    connection_sparsity    share of the weights that are 0
    activation_sparsity    share of neurons and time steps without a spike
    synaptic_operations    of a scene at its exit: an input that is not 0 meets a weight that is not 0
        Effective_MACs     layer 1, whose input is graded
        Effective_ACs      the other layers: a spike of each layer that they hear, and of their own where it resets
        Dense              the same if no input and no weight were 0

NeuroBench takes a sum of several layers' spikes for one graded input; here each spike is an accumulate, as on a chip,
so the two agree for heads of at most two layers (a development test compares).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asp_neuro.grid.sections import leaves
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model.episode import Watched, episodes, play
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.model.spec import ModelSpec

BYTES_OF_WEIGHT, BYTES_OF_LEAK, BYTES_OF_CONSTANT, BYTES_OF_FACTOR = 1, 2, 4, 8


@dataclass
class Tally:
    """What was counted so far."""

    head: HeadSpec
    scenes: int = 0
    neuron_steps: int = 0
    spikes: int = 0
    macs: int = 0
    accumulates: int = 0
    dense: int = 0
    fan_out: list[np.ndarray] = field(init=False)  # per layer [n] weights of each input that are not 0

    def __post_init__(self) -> None:
        self.fan_out = [(layer.weight_int != 0).sum(axis=0) for layer in self.head.layers]

    def add(self, drive_int: np.ndarray, fired: list[np.ndarray]) -> None:
        """One observation: drives [b, n], and spikes of each layer [steps, b, H]."""
        batch, steps = drive_int.shape[0], self.head.steps
        sent = (drive_int != 0).sum(axis=0)  # [n]
        sent = np.append(sent, batch) if self.head.neurons.constant else sent
        spikes = [np.asarray(layer).sum(axis=(0, 1)).astype(np.int64) for layer in fired]  # [H] each
        self.macs += int(sent @ self.fan_out[0])
        self.spikes += int(sum(layer.sum() for layer in spikes))
        for index, layer in enumerate(self.head.layers):
            heard = spikes[:index] if self.head.neurons.residual else spikes[max(index - 1, 0) : index]
            self.accumulates += sum(int(source @ self.fan_out[index]) for source in heard)
            self.dense += batch * layer.weight_int.size * (1 if index == 0 else steps * len(heard))
            self.neuron_steps += batch * steps * layer.n_neurons
            own = getattr(layer, "rho_int", None)  # a reset by a synapse of its own
            if own is not None:
                self.accumulates += int(spikes[index] @ (own != 0))
                self.dense += batch * steps * layer.n_neurons

    def as_dict(self) -> dict[str, Any]:
        """Of an average scene."""
        if self.scenes == 0:
            return {"activation_sparsity": None, "synaptic_operations": None}
        each = {"Effective_MACs": self.macs, "Effective_ACs": self.accumulates, "Dense": self.dense}
        return {
            "activation_sparsity": 1.0 - self.spikes / self.neuron_steps,
            "synaptic_operations": {name: count / self.scenes for name, count in each.items()},
        }


def connection_sparsity(head: HeadSpec) -> float:
    weights = [layer.weight_int for layer in head.layers]
    return float(sum((weight == 0).sum() for weight in weights) / sum(weight.size for weight in weights))


def head_footprint(head: HeadSpec) -> int:
    """Bytes."""
    total = BYTES_OF_FACTOR * head.n_neurons  # the host reads the last layer's membranes with it
    for layer in head.layers:
        total += BYTES_OF_WEIGHT * layer.weight_int.size + BYTES_OF_LEAK * np.size(layer.lambda_int)
        total += BYTES_OF_CONSTANT * sum(np.size(values) for values in layer.constants)
    return int(total)


def footprint(model: ModelSpec) -> int:
    """Bytes of head and host."""
    host = (model.scene, model.mixer, model.belief, model.policy, model.task)
    return head_footprint(model.head) + sum(array.nbytes for part in host for array in leaves(part).values())


def metrics(perceiver: Perceiver, parts: Iterable[Any], rule: ExitRule) -> dict[str, Any]:
    """All of them, on batches of scenes; without one only what needs no run."""
    tally = Tally(perceiver.head)
    for scenes in parts:
        fired: list[list[np.ndarray]] = []
        engine = Watched(perceiver.new_head(), lambda e: fired.append([layer.copy() for layer in e.fired]))  # noqa: B023
        looks = play(episodes(perceiver.model, scenes, rule), engine).looks
        for look, spikes in zip(looks, fired, strict=True):
            tally.add(look.drive_int, spikes)
        tally.scenes += len(scenes)
    return {
        "footprint": head_footprint(perceiver.head),
        "footprint_with_host": footprint(perceiver.spec),
        "connection_sparsity": connection_sparsity(perceiver.head),
        **tally.as_dict(),
    }
