"""The soft-reset LIF membrane, one observation at a time (paper Eq. 1-2, put on the integer grid).

    u' = lambda u + ReLU(a + bias) - theta s        subtract the threshold, keep the overshoot
    s' = [ u' > theta_fire ]                        strict, as on Loihi

theta_fire is theta with the firing path's affine N folded in: N(u) > theta  <=>  u > (theta - shift) / gain.

On the integer grid (`_int`) the same step runs in int64; the leak is a 12-bit fraction and rounds toward zero, and the
state saturates at 24 bits. `rest` also serves the float and torch forms, so that the equation stands here and nowhere
else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from asp_neuro.heads.bits import DRIVE_BITS, STATE_MAX, STATE_MIN
from asp_neuro.heads.membrane import WEIGHT_BITS, fires, leak_int


def rest(leaked: Any, drive: Any, theta: Any, spikes: Any) -> Any:
    """The membrane before saturation: what leaked through, plus the rectified drive, minus the soft reset."""
    return leaked + drive - theta * spikes


def align_shift(state_bits: int, first_layer: bool) -> int:
    """How far W_int . z_int is shifted up to the state scale 2^f: the first layer's input carries 2^6 of its own."""
    return state_bits - WEIGHT_BITS - (DRIVE_BITS if first_layer else 0)


def step_int(
    membrane: np.ndarray,
    spikes: np.ndarray,
    aligned: np.ndarray,
    lambda_int: np.ndarray,
    theta_int: np.ndarray,
    theta_fire_int: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """One observation in int64: `aligned` is the shifted synaptic sum with the bias. Returns membrane and spikes."""
    drive = np.maximum(aligned, 0)
    free = rest(leak_int(membrane, lambda_int), drive, theta_int, spikes)
    held = np.clip(free, STATE_MIN, STATE_MAX)
    return held, fires(held, theta_fire_int).astype(np.int64)


def step_float(
    membrane: np.ndarray, spikes: np.ndarray, synaptic: np.ndarray, lam: np.ndarray, theta: np.ndarray, theta_fire: Any
) -> tuple[np.ndarray, np.ndarray]:
    """The same observation in floating point, without rounding or saturation."""
    free = rest(membrane * lam, np.maximum(synaptic, 0.0), theta, spikes)
    return free, fires(free, theta_fire).astype(membrane.dtype)
