"""What every form of neuron demands of the arrays of a layer; each error names the layer, the number and the limit."""

from __future__ import annotations

import numpy as np

from asp_neuro.errors import ConfigError

FACTOR_MIN, FACTOR_MAX = 2.0**-100, 2.0**100  # so that a membrane in float units is a finite number
Limits = dict[str, tuple[np.ndarray, int, int]]  # name -> values, least, largest


def check_inputs(weight: np.ndarray, number: int, width: int) -> None:
    """A matrix; behind layer 1 it hears the `width` neurons of each layer before."""
    if weight.ndim != 2 or weight.size == 0:
        raise ConfigError(f"layer {number}: weights have shape {list(weight.shape)}, expected [neurons, inputs]")
    if number > 1 and weight.shape[1] != width:
        raise ConfigError(f"layer {number}: {weight.shape[1]} inputs, but the spikes of {width} neurons arrive")


def check_integers(arrays: Limits, place: str) -> None:
    """Whole numbers within their limits, one for each row of `weight`."""
    n_neurons = len(arrays["weight"][0])
    for name, (values, low, high) in arrays.items():
        if not np.issubdtype(values.dtype, np.integer):
            raise ConfigError(f"{place}: {name} is {values.dtype}, expected integers")
        if name != "weight" and values.shape != (n_neurons,):
            raise ConfigError(f"{place}: {name} has shape {list(values.shape)}, expected [{n_neurons}]")
        if values.max() > high:
            raise ConfigError(f"{place}: {name} {values.max()} exceeds {high}")
        if values.min() < low:
            raise ConfigError(f"{place}: {name} {values.min()} is below {low}")


def check_factors(factor: np.ndarray, n_neurons: int, place: str) -> None:
    if factor.shape != (n_neurons,) or not (np.isfinite(factor) & (factor > 0)).all():
        raise ConfigError(f"{place}: every neuron needs a finite factor above 0")
    if factor.min() < FACTOR_MIN or factor.max() > FACTOR_MAX:
        raise ConfigError(f"{place}: factors {factor.min():.3g}..{factor.max():.3g} are outside 2^-100..2^100")
