"""LayerSpec: one layer of the soft form on the integer grid.

Grid: weights are even integers in [-256, 254] at scale 2^6, drives signed 16-bit integers at 2^6, leaks 0..4095 of
4096, states signed 24-bit integers at scale 2^f with f >= 12 per layer. Neuron k has c_k 2^f units per float unit:
`membrane / (2^f c_k)` is its membrane in the trained model's own unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asp_neuro.errors import ConfigError
from asp_neuro.heads.bits import STATE_MAX, STATE_MIN
from asp_neuro.heads.checks import check_factors, check_inputs, check_integers
from asp_neuro.heads.membrane import LEAK_MAX, WEIGHT_BITS, WEIGHT_MAX, WEIGHT_MIN

STATE_BITS_MIN, STATE_BITS_MAX = 12, 18


@dataclass(frozen=True)
class LayerSpec:
    """One layer: H neurons on n inputs."""

    weight_int: np.ndarray  # [H, n] int64
    bias_int: np.ndarray  # [H] int64, state scale
    lambda_int: np.ndarray  # [H] int64
    theta_int: np.ndarray  # [H] int64, what the soft reset subtracts
    theta_fire_int: np.ndarray  # [H] int64, what the membrane must exceed
    factor: np.ndarray  # [H] float64, c_k
    state_bits: int  # f

    @property
    def n_neurons(self) -> int:
        return len(self.bias_int)

    @property
    def units(self) -> np.ndarray:
        """[H] float64: integer steps per float unit, c_k 2^f."""
        return self.factor * 2.0**self.state_bits

    @property
    def constants(self) -> tuple[np.ndarray, ...]:
        """All that is held at the scale of the state."""
        return self.bias_int, self.theta_int, self.theta_fire_int


def validate(layer: LayerSpec, number: int, width: int) -> None:
    place = f"layer {number}"
    arrays = {
        "weight": (layer.weight_int, WEIGHT_MIN, WEIGHT_MAX),
        "bias": (layer.bias_int, STATE_MIN, STATE_MAX),
        "leak": (layer.lambda_int, 0, LEAK_MAX),
        "theta": (layer.theta_int, 0, STATE_MAX),
        "theta_fire": (layer.theta_fire_int, STATE_MIN, STATE_MAX),
    }
    check_inputs(layer.weight_int, number, width)
    check_integers(arrays, place)
    if (layer.weight_int % 2).any():
        raise ConfigError(f"{place}: weight {layer.weight_int[layer.weight_int % 2 != 0][0]} is odd, weights are even")
    if isinstance(layer.state_bits, bool) or not isinstance(layer.state_bits, (int, np.integer)):
        raise ConfigError(f"{place}: state scale 2^{layer.state_bits!r} is not a whole power of two")
    if not STATE_BITS_MIN <= layer.state_bits <= STATE_BITS_MAX:
        limits = f"{STATE_BITS_MIN}..{STATE_BITS_MAX}"
        raise ConfigError(f"{place}: state scale 2^{layer.state_bits} is outside 2^{limits}")
    check_factors(layer.factor, layer.n_neurons, place)
    if (layer.n_neurons != width) and number > 1:
        raise ConfigError(f"{place}: {layer.n_neurons} neurons, but residual spikes need {width} in every layer")


def choose_scales(max_weight: np.ndarray, max_membrane: np.ndarray, headroom: float = 2.0) -> tuple[np.ndarray, int]:
    """Row factors c_k and the state scale f of a layer, from ranges seen on training data (float units).

    c_k fills the 8 bits of its row, unless the 24-bit state would not hold `headroom` times the largest membrane at
    f = 12; a zero row keeps 1 (or that cap). f is then the largest that keeps every neuron within the same headroom.
    """
    seen = np.maximum(np.asarray(max_membrane, dtype=np.float64), 1e-9)
    row = np.asarray(max_weight, dtype=np.float64)
    full = np.where(row > 0.0, WEIGHT_MAX / 2.0**WEIGHT_BITS / np.where(row > 0.0, row, 1.0), 1.0)
    factor = np.minimum(full, STATE_MAX / (headroom * seen * 2.0**STATE_BITS_MIN))
    room = STATE_MAX / (headroom * float((factor * seen).max()))
    state_bits = int(np.clip(np.floor(np.log2(room)), STATE_BITS_MIN, STATE_BITS_MAX))
    return factor, state_bits
