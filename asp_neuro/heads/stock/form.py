"""The stock form of neuron: free-running stock LIF and Dense, for chips without our microcode and for stock NetX."""

from __future__ import annotations

import numpy as np

from asp_neuro.errors import ConfigError
from asp_neuro.grid.sections import Norm
from asp_neuro.heads.spec import STOCK, HeadRun, HeadSpec
from asp_neuro.heads.stock.exact import ExactStockHead
from asp_neuro.heads.stock.fast import FastStockHead
from asp_neuro.heads.stock.guard import drift_read
from asp_neuro.heads.stock.layer import StockLayer, validate
from asp_neuro.heads.stock.membrane import CONSTANT, DRIVE_BITS, TOP
from asp_neuro.heads.stock.ranges import prove
from asp_neuro.heads.stock.reference import run_reference

STEPS_MAX = 64  # time steps per observation


class StockForm:
    """Neurons run freely: a pulse every `steps` time steps, the last membrane read `read_after` steps after it."""

    name = STOCK
    neuron_type = "CUBA"  # stock NetX builds LIF for it
    layer = StockLayer
    drive_bits, constant, residual = DRIVE_BITS, CONSTANT, False

    def validate(self, head: HeadSpec) -> None:
        for number, layer in enumerate(head.layers, start=1):
            if not isinstance(layer, StockLayer):
                raise ConfigError(f"layer {number}: a {type(layer).__name__}, the stock form has StockLayer")
            validate(layer, number, head.layers[0].n_neurons)
        on_its_way, read = len(head.layers) - 1, head.read_after
        if read < on_its_way:
            raise ConfigError(f"read {read} time steps after a pulse, which reaches the last layer after {on_its_way}")
        if not read + 2 <= head.steps <= STEPS_MAX:
            limits = f"{read + 2}..{STEPS_MAX}"
            raise ConfigError(f"{head.steps} time steps an observation, read after {read}: expected {limits}")

    def reference(self, head: HeadSpec, drives_int: np.ndarray) -> HeadRun:
        return run_reference(head, drives_int)

    def engine(self, head: HeadSpec, drive_bound: np.ndarray | None, n_steps: int | None) -> FastStockHead:
        return FastStockHead(head, drive_bound, n_steps)

    def exact(self, head: HeadSpec) -> ExactStockHead:
        return ExactStockHead(head)

    def drift(self, head: HeadSpec, t: int) -> np.ndarray:
        return np.full(head.n_neurons, drift_read(head, t))

    def prove_ranges(self, head: HeadSpec, drive: Norm, drive_bound: np.ndarray, n_steps: int) -> None:
        prove(head, drive, drive_bound, n_steps)

    def largest(self, layer: StockLayer) -> float:
        return float(TOP / layer.units.min())
