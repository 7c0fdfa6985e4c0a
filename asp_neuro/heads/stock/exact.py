"""The reference of spike preservation: the stock head in exact arithmetic, neither truncated nor wrapped.

u(k) 4096^k is a whole number, k = 0, 1, ... time steps, so the recursion runs in Python's big integers:

    U(k) = lambda_int U(k-1) + 2^(6+e) (W z - rho s) 4096^k,       s(k) = [ U(k) > threshold 4096^k ]
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from asp_neuro.heads.membrane import LEAK_BITS, fires
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.heads.stock.membrane import CONSTANT, gain_shift


class ExactStockHead:
    """Runs like `FastStockHead`: `start` puts a batch at rest, `observe` takes one drive per scene."""

    hit: np.ndarray | None = None  # nothing is rounded, so there is nothing to guard

    def __init__(self, spec: HeadSpec) -> None:
        self.spec = spec
        self._threshold = [layer.threshold_int.astype(object) for layer in spec.layers]
        self.start(0)

    def start(self, batch: int) -> None:
        """All membranes at rest."""
        shape = (batch, self.spec.layers[0].n_neurons)
        self.t = 0
        self.step = 0  # time steps done: membranes are multiplied by 4096^step
        self.scaled = [np.full(shape, 0, dtype=object) for _ in self.spec.layers]
        self._spikes = [np.zeros(shape, dtype=np.int64) for _ in self.spec.layers]
        self.spikes = self._spikes  # at the last reading
        self.fired = [np.zeros((self.spec.steps, *shape), dtype=bool) for _ in self.spec.layers]

    def keep(self, rows: np.ndarray) -> None:
        """Go on with some scenes only."""
        self.scaled = [u[rows] for u in self.scaled]
        self._spikes = [s[rows] for s in self._spikes]

    def observe(self, drive_int: np.ndarray) -> np.ndarray:
        """One observation: drives [b, n] -> the last layer's membranes at the reading [b, H], rounded to float64."""
        self.t += 1
        drive = np.asarray(drive_int).astype(np.int64)
        heard = np.concatenate([drive, np.full((len(drive), 1), CONSTANT)], axis=1)
        self.fired = [np.zeros((self.spec.steps, *s.shape), dtype=bool) for s in self._spikes]
        read = None
        for tau in range(self.spec.steps):
            self._advance(heard if tau == 0 else np.zeros_like(heard), tau)
            if tau == self.spec.read_after:
                read = (self.scaled[-1] / (1 << (LEAK_BITS * self.step))).astype(np.float64)
                self.spikes = list(self._spikes)
        assert read is not None
        return np.asarray(read)

    def _advance(self, heard: np.ndarray, tau: int) -> None:
        """One time step of every layer."""
        self.step += 1
        shift, before = LEAK_BITS * self.step, list(self._spikes)
        for index, layer in enumerate(self.spec.layers):
            z = before[index - 1] if index else heard
            gained = (z @ layer.weight_int.T - layer.rho_int * before[index]) << gain_shift(layer.weight_exp)
            self.scaled[index] = int(layer.lambda_int) * self.scaled[index] + (gained.astype(object) << shift)
            self._spikes[index] = fires(self.scaled[index], self._threshold[index] << shift).astype(np.int64)
            self.fired[index][tau] = self._spikes[index]

    def membrane(self, layer: int) -> np.ndarray:
        """[b, H] exact membranes of a layer (0, 1, ...) after the last time step, as Fractions."""
        denominator = 1 << (LEAK_BITS * self.step)
        values = [Fraction(value, denominator) for value in self.scaled[layer].ravel()]
        return np.array([*values, None], dtype=object)[:-1].reshape(self.scaled[layer].shape)
