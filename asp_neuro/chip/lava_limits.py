"""What the Lava simulator cannot build, told before anything starts."""

from __future__ import annotations

import numpy as np

from asp_neuro.errors import ConfigError
from asp_neuro.heads.bits import DRIVE_MAX
from asp_neuro.heads.spec import HeadSpec, check_synaptic_sums
from asp_neuro.heads.verdict import NEURONS

TICK_BITS = 16  # of a tick word, for the observation index; the guard hit stands above them


def demand_buildable(spec: HeadSpec, n_steps: int, drive_bound: np.ndarray | None = None) -> None:
    """Refuse a head whose sums could wrap or whose ticks do not fit; `drive_bound` [n] is the largest |drive_int|."""
    most = DRIVE_MAX  # a tick travels as the last entry of a drive
    if not 1 <= n_steps <= most:
        raise ConfigError(f"{n_steps} observations in an episode, a tick counts 1..{most}")
    check_synaptic_sums(spec, drive_bound)  # stock Dense adds in int32 and wraps in silence
    if spec.layers[0].n_neurons > NEURONS:
        raise ConfigError(f"{spec.layers[0].n_neurons} neurons in a layer, a guard hit names at most {NEURONS}")
