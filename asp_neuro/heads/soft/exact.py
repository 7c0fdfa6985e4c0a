"""The reference of spike preservation: the integer head in exact arithmetic, neither truncated nor clipped.

u_t 4096^(t-1) is a whole number, so the recursion runs in Python's big integers, without a single rounding:

    U_t = lambda_int U_{t-1} + (drive_t - theta s_{t-1}) 4096^(t-1),      u_t = U_t / 4096^(t-1)
    s_t = [ U_t > theta_fire 4096^(t-1) ]

Object arrays hold Python integers only: a numpy integer among them would wrap without a word.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from asp_neuro.heads.membrane import LEAK_BITS, fires
from asp_neuro.heads.soft.layer import LayerSpec
from asp_neuro.heads.soft.membrane import align_shift, rest
from asp_neuro.heads.spec import HeadSpec


class ExactHead:
    """Runs like `FastHead`: `start` puts a batch at rest, `observe` takes one drive per cloud."""

    hit: np.ndarray | None = None  # nothing is rounded, so there is nothing to guard

    def __init__(self, spec: HeadSpec) -> None:
        self.spec = spec
        self._lambda = [layer.lambda_int.astype(object) for layer in spec.layers]
        self._theta_fire = [layer.theta_fire_int.astype(object) for layer in spec.layers]
        self.start(0)

    def start(self, batch: int) -> None:
        """All membranes at rest."""
        shape = (batch, self.spec.layers[0].n_neurons)
        self.t = 0
        self.scaled = [np.full(shape, 0, dtype=object) for _ in self.spec.layers]  # membranes times 4096^(t-1)
        self.spikes = [np.zeros(shape, dtype=np.int64) for _ in self.spec.layers]

    def keep(self, rows: np.ndarray) -> None:
        """Go on with some clouds only."""
        self.scaled = [u[rows] for u in self.scaled]
        self.spikes = [s[rows] for s in self.spikes]

    def observe(self, drive_int: np.ndarray) -> np.ndarray:
        """One observation: drives [b, n] (whole numbers) -> the last layer's membranes [b, H], rounded to float64."""
        self.t += 1
        z = np.asarray(drive_int).astype(np.int64)
        for index, layer in enumerate(self.spec.layers):
            if index > 0:
                z = self.spikes[index - 1] if index == 1 else z + self.spikes[index - 1]
            self._advance(index, layer, synaptic(layer, z, first_layer=index == 0))
        return (self.scaled[-1] / self.denominator).astype(np.float64)

    def _advance(self, index: int, layer: LayerSpec, drive: np.ndarray) -> None:
        shift = LEAK_BITS * (self.t - 1)
        gained = rest(0, drive, layer.theta_int, self.spikes[index]).astype(object) << shift
        self.scaled[index] = self._lambda[index] * self.scaled[index] + gained
        self.spikes[index] = fires(self.scaled[index], self._theta_fire[index] << shift).astype(np.int64)

    @property
    def fired(self) -> list[np.ndarray]:
        """Per layer, whether each neuron fired in each time step of the observation: here there is one, [1, b, H]."""
        return [s[None] for s in self.spikes]

    @property
    def denominator(self) -> int:
        """4096^(t-1), a Python integer."""
        return 1 << (LEAK_BITS * max(self.t - 1, 0))

    def membrane(self, layer: int) -> np.ndarray:
        """[b, H] exact membranes of a layer (0, 1, ...), as Fractions."""
        values = [Fraction(value, self.denominator) for value in self.scaled[layer].ravel()]
        return np.array([*values, None], dtype=object)[:-1].reshape(self.scaled[layer].shape)


def synaptic(layer: LayerSpec, z: np.ndarray, first_layer: bool) -> np.ndarray:
    """Inputs [b, n] int64 -> rectified drives [b, H] int64 in state units."""
    aligned = ((z @ layer.weight_int.T) << align_shift(layer.state_bits, first_layer)) + layer.bias_int
    return np.maximum(aligned, 0)


def run_exact(spec: HeadSpec, drives_int: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drives [T, b, n] -> membranes times 4096^t, t = 0, 1, ... (object), and spikes (int64), both [T, L, b, H]."""
    head = ExactHead(spec)
    head.start(drives_int.shape[1])
    shape = (len(drives_int), len(spec.layers), drives_int.shape[1], spec.layers[0].n_neurons)
    scaled, spikes = np.empty(shape, dtype=object), np.empty(shape, dtype=np.int64)
    for t, drive in enumerate(drives_int):
        head.observe(drive)
        for index in range(len(spec.layers)):
            scaled[t, index], spikes[t, index] = head.scaled[index], head.spikes[index]
    return scaled, spikes
