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
from asp_neuro.heads.membrane import LEAK_BITS, LEAK_MAX, WEIGHT_BITS, WEIGHT_MAX, WEIGHT_MIN

THRESHOLD_STEP = 1 << WEIGHT_BITS
VTH_MAX = 2**17 - 1  # LIF's threshold: 17 bits without a sign
BIAS_MAX = 2**12 - 1  # LIF's bias: 13 bits
EXP_MAX = 7
FACTOR_MIN, FACTOR_MAX = 2.0**-100, 2.0**100  # so that a membrane in float units is a finite number


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
    _check_arrays(layer, place)
    if number > 1 and layer.weight_int.shape[1] != width:
        raise ConfigError(f"{place}: {layer.weight_int.shape[1]} inputs, but the spikes of {width} neurons arrive")
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
    if layer.factor.shape != layer.rho_int.shape or not (np.isfinite(layer.factor) & (layer.factor > 0)).all():
        raise ConfigError(f"{place}: every neuron needs a finite factor above 0")
    if layer.factor.min() < FACTOR_MIN or layer.factor.max() > FACTOR_MAX:
        span = f"{layer.factor.min():.3g}..{layer.factor.max():.3g}"
        raise ConfigError(f"{place}: factors {span} are outside 2^-100..2^100")


def _check_arrays(layer: StockLayer, place: str) -> None:
    if layer.weight_int.ndim != 2 or layer.weight_int.size == 0:
        raise ConfigError(f"{place}: weights have shape {list(layer.weight_int.shape)}, expected [neurons, inputs]")
    limits = {
        "weight": (layer.weight_int, WEIGHT_MIN, WEIGHT_MAX),
        "rho": (layer.rho_int, 0, WEIGHT_MAX),
        "threshold": (layer.threshold_int, 0, 2 * VTH_MAX * THRESHOLD_STEP),
    }
    for name, (values, low, high) in limits.items():
        if not np.issubdtype(values.dtype, np.integer):
            raise ConfigError(f"{place}: {name} is {values.dtype}, expected integers")
        if name != "weight" and values.shape != (len(layer.weight_int),):
            raise ConfigError(f"{place}: {name} has shape {list(values.shape)}, expected [{len(layer.weight_int)}]")
        if values.max() > high:
            raise ConfigError(f"{place}: {name} {values.max()} exceeds {high}")
        if values.min() < low:
            raise ConfigError(f"{place}: {name} {values.min()} is below {low}")


def _check_number(value: Any, low: int, high: int, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ConfigError(f"{name} is {value!r}, expected a whole number")
    if not low <= value <= high:
        raise ConfigError(f"{name} {value} is outside {low}..{high}")
