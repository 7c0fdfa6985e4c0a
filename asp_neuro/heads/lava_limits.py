"""What the Lava simulator cannot build, told before anything starts."""

from __future__ import annotations

import numpy as np

from asp_neuro.errors import ConfigError
from asp_neuro.guard import NEURONS
from asp_neuro.head_spec import DRIVE_MAX, HeadSpec

SUM_MAX = 2**31 - 1  # stock Dense adds in int32 and wraps in silence
MOST_OBSERVATIONS = 2**16 - 1  # the tick word keeps 16 bits for the observation index


def demand_buildable(spec: HeadSpec, n_steps: int, drive_bound: np.ndarray | None = None) -> None:
    """Refuse a head whose sums could wrap or whose ticks do not fit; `drive_bound` [n] is the largest |drive_int|."""
    if not 1 <= n_steps <= MOST_OBSERVATIONS:
        raise ConfigError(f"{n_steps} observations in an episode, a tick counts 1..{MOST_OBSERVATIONS}")
    bound = np.full(spec.n_inputs, float(DRIVE_MAX)) if drive_bound is None else np.asarray(drive_bound)
    for index, layer in enumerate(spec.layers):
        largest = bound if index == 0 else np.full(layer.weight_int.shape[1], float(index))
        reach = np.abs(layer.weight_int).astype(np.float64) @ largest
        if reach.max() > SUM_MAX:
            worst = int(reach.argmax())
            raise ConfigError(
                f"layer {index + 1}, neuron {worst}: synaptic sums reach {reach[worst]:.0f}, "
                f"Lava's Dense adds in 32 bits (at most {SUM_MAX})"
            )
        if layer.n_neurons > NEURONS:
            raise ConfigError(f"layer {index + 1}: {layer.n_neurons} neurons, a guard hit names at most {NEURONS}")
