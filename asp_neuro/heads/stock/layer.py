"""StockLayer: one layer of the stock form on the integer grid.

Grid: weights are even integers in [-256, 254], resets even integers in [0, 254] (NetX gives both one exponent), one
leak 0..4095 of 4096 for the layer, thresholds multiples of 64 that LIF's threshold and bias can say. The last input of
layer 1 is the constant X0. A membrane has `units` steps per float unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asp_neuro.errors import ConfigError
from asp_neuro.heads.checks import Limits, check_factors, check_inputs, check_integers
from asp_neuro.heads.membrane import LEAK_BITS, LEAK_MAX, WEIGHT_BITS, WEIGHT_MAX, WEIGHT_MIN

THRESHOLD_STEP = 1 << WEIGHT_BITS
VTH_MAX = 2**17 - 1  # LIF's threshold: 17 bits without a sign
BIAS_MAX = 2**12 - 1  # LIF's bias: 13 bits
EXP_MAX = 7


@dataclass(frozen=True)
class StockLayer:
    """One layer: H neurons on n inputs."""

    weight_int: np.ndarray  # [H, n] int64
    rho_int: np.ndarray  # [H] int64, what a spike takes, in units of the weights
    threshold_int: np.ndarray  # [H] int64, what the membrane must exceed
    lambda_int: int  # of 4096, at every time step
    factor: np.ndarray  # [H] float64
    weight_exp: int = 0  # of both synapses: sums are shifted up by so much more

    @property
    def n_neurons(self) -> int:
        return len(self.rho_int)

    @property
    def state_bits(self) -> int:
        return 2 * WEIGHT_BITS + self.weight_exp

    @property
    def units(self) -> np.ndarray:
        """[H] float64: integer steps per float unit."""
        return self.factor * 2.0**self.state_bits

    @property
    def constants(self) -> tuple[np.ndarray, ...]:
        """All that is held at the scale of the state."""
        return self.rho_int << (WEIGHT_BITS + self.weight_exp), self.threshold_int

    @property
    def vth(self) -> int:
        """LIF's threshold, one for the layer: the median, in steps of 64."""
        return int(np.median(self.threshold_int)) >> WEIGHT_BITS

    @property
    def bias_mant(self) -> np.ndarray:
        """[H] LIF's bias at exponent 6: it moves the threshold of each neuron from `vth` to its own."""
        return self.vth - (self.threshold_int >> WEIGHT_BITS)

    @property
    def du(self) -> int:
        """LIF's decay of the current, which acts as du + 1."""
        return (1 << LEAK_BITS) - self.lambda_int - 1


def validate(layer: StockLayer, number: int, width: int) -> None:
    place = f"layer {number}"
    check_inputs(layer.weight_int, number, width)
    limits: Limits = {
        "weight": (layer.weight_int, WEIGHT_MIN, WEIGHT_MAX),
        "rho": (layer.rho_int, 0, WEIGHT_MAX),
        "threshold": (layer.threshold_int, 0, 2 * VTH_MAX * THRESHOLD_STEP),
    }
    check_integers(limits, place)
    if number == 1 and layer.weight_int.shape[1] < 2:
        raise ConfigError(f"{place}: 1 input, expected a drive and the constant")
    if number > 1 and layer.n_neurons != width:
        raise ConfigError(f"{place}: {layer.n_neurons} neurons, the layers before have {width}")
    _check_number(layer.lambda_int, 0, LEAK_MAX, f"{place}: leak")
    _check_number(layer.weight_exp, 0, EXP_MAX, f"{place}: weight exponent")
    for name, values, step in (
        ("weight", layer.weight_int, 2),
        ("rho", layer.rho_int, 2),
        ("threshold", layer.threshold_int, THRESHOLD_STEP),
    ):
        if (values % step).any():
            raise ConfigError(f"{place}: {name} {values[values % step != 0][0]} is no multiple of {step}")
    if layer.vth > VTH_MAX:
        raise ConfigError(f"{place}: threshold {layer.vth} of 64 exceeds {VTH_MAX}, the 17 bits of LIF")
    if np.abs(layer.bias_mant).max() > BIAS_MAX:
        away = int(np.abs(layer.bias_mant).max())
        raise ConfigError(f"{place}: a threshold is {away} x 64 from the median, LIF's bias reaches {BIAS_MAX}")
    check_factors(layer.factor, layer.n_neurons, place)


def _check_number(value: Any, low: int, high: int, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ConfigError(f"{name} is {value!r}, expected a whole number")
    if not low <= value <= high:
        raise ConfigError(f"{name} {value} is outside {low}..{high}")
