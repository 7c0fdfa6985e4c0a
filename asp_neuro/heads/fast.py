"""The fast engine: the integer head, vectorised over a batch, bit for bit `head_spec.run_reference`.

Whole numbers ride in floating point where every partial sum is proven to be exact: float32 matrix products while the
worst case stays below 2^24 (weights are even, so W / 2 is used), float64 otherwise; the state in float64, where
lambda_int / 4096 * u is exact (36 bits) and truncation is the integer step's own.
"""

from __future__ import annotations

import numpy as np

from asp_neuro.head_spec import DRIVE_MAX, HeadSpec, LayerSpec
from asp_neuro.membrane import STATE_MAX, STATE_MIN, align_shift, fires, rest


class _Layer:
    """A layer's constants as the engine wants them."""

    def __init__(self, spec: LayerSpec, index: int, largest: np.ndarray) -> None:
        reach = float((np.abs(spec.weight_int) // 2 @ largest).max())
        self.dtype = np.float32 if reach < 2.0**24 else np.float64
        self.weight = np.ascontiguousarray((spec.weight_int // 2).T.astype(self.dtype))  # [n, H]
        self.align = 2.0 * 2.0 ** align_shift(spec.state_bits, first_layer=index == 0)
        self.bias = spec.bias_int.astype(np.float64)
        self.lam = spec.lambda_int / 4096.0
        self.theta = spec.theta_int.astype(np.float64)
        self.theta_fire = spec.theta_fire_int.astype(np.float64)


class FastHead:
    """Carries the state of a batch of clouds; `start` puts it at rest, `observe` takes one drive per cloud."""

    def __init__(self, spec: HeadSpec, drive_bound: np.ndarray | None = None) -> None:
        bound = np.full(spec.n_inputs, float(DRIVE_MAX)) if drive_bound is None else drive_bound
        self.spec = spec
        self.layers = []
        for index, layer in enumerate(spec.layers):
            largest = bound if index == 0 else np.full(layer.weight_int.shape[1], float(index))
            self.layers.append(_Layer(layer, index, largest))
        self.n_overflows = 0
        self.start(0)

    def start(self, batch: int) -> None:
        """All membranes at rest."""
        shape = (batch, self.spec.layers[0].n_neurons)
        self.membranes = [np.zeros(shape) for _ in self.layers]
        self.spikes = [np.zeros(shape, dtype=np.float32) for _ in self.layers]

    def keep(self, rows: np.ndarray) -> None:
        """Go on with some clouds only."""
        self.membranes = [u[rows] for u in self.membranes]
        self.spikes = [s[rows] for s in self.spikes]

    def observe(self, drive_int: np.ndarray) -> np.ndarray:
        """One observation: drives [b, n] (whole numbers) -> the last layer's membranes [b, H] (whole numbers)."""
        z = drive_int
        for index, layer in enumerate(self.layers):
            synaptic = z.astype(layer.dtype, copy=False) @ layer.weight
            drive = np.multiply(synaptic, layer.align, dtype=np.float64)
            drive += layer.bias
            if max(-drive.min(initial=0.0), drive.max(initial=0.0)) > STATE_MAX:
                self.n_overflows += int((np.abs(drive) > STATE_MAX).sum())
            np.maximum(drive, 0.0, out=drive)
            membrane = self.membranes[index]
            np.multiply(membrane, layer.lam, out=membrane)
            np.trunc(membrane, out=membrane)
            held = rest(membrane, drive, layer.theta, self.spikes[index])
            if held.max(initial=0.0) >= STATE_MAX or held.min(initial=0.0) <= STATE_MIN:
                np.clip(held, STATE_MIN, STATE_MAX, out=held)
                self.n_overflows += int(((held == STATE_MAX) | (held == STATE_MIN)).sum())
            self.membranes[index] = held
            self.spikes[index] = fires(held, layer.theta_fire).astype(np.float32)
            z = self.spikes[index] if index == 0 else z + self.spikes[index]
        return self.membranes[-1]
