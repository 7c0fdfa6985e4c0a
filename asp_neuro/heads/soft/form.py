"""The soft form of neuron: ticked soft-reset LIF, exact and provable."""

from __future__ import annotations

import numpy as np

from asp_neuro.errors import ConfigError
from asp_neuro.grid.sections import Norm
from asp_neuro.heads.bits import DRIVE_BITS, STATE_MIN
from asp_neuro.heads.soft import guard
from asp_neuro.heads.soft.exact import ExactHead
from asp_neuro.heads.soft.fast import FastHead
from asp_neuro.heads.soft.layer import LayerSpec, validate
from asp_neuro.heads.soft.reference import run_reference
from asp_neuro.heads.spec import SOFT, HeadRun, HeadSpec


class SoftForm:
    """Neurons update on an observation tick and hold their state otherwise."""

    name = SOFT
    neuron_type = "ASP_SOFT"  # stock NetX knows no such neuron, and fails instead of running it with a hard reset
    layer = LayerSpec
    drive_bits, constant, residual = DRIVE_BITS, 0, True

    def validate(self, head: HeadSpec) -> None:
        if (head.steps, head.read_after) != (1, 0):
            raise ConfigError(f"{head.steps} time steps an observation, the soft form makes 1 and is read in it")
        for number, layer in enumerate(head.layers, start=1):
            if not isinstance(layer, LayerSpec):
                raise ConfigError(f"layer {number}: a {type(layer).__name__}, the soft form has LayerSpec")
            validate(layer, number, head.layers[0].n_neurons)

    def reference(self, head: HeadSpec, drives_int: np.ndarray) -> HeadRun:
        return HeadRun(*run_reference(head, drives_int))

    def engine(self, head: HeadSpec, drive_bound: np.ndarray | None, n_steps: int | None) -> FastHead:
        return FastHead(head, drive_bound, n_steps)

    def exact(self, head: HeadSpec) -> ExactHead:
        return ExactHead(head)

    def drift(self, head: HeadSpec, t: int) -> np.ndarray:
        return guard.drift(head.layers[-1].lambda_int, t)

    def prove_ranges(self, head: HeadSpec, drive: Norm, drive_bound: np.ndarray, n_steps: int) -> None:
        """The state saturates, the same in every engine: nothing to prove."""

    def largest(self, layer: LayerSpec) -> float:
        return float(-STATE_MIN / layer.units.min())
