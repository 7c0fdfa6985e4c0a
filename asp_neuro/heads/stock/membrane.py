"""The free-running membrane, one time step at a time: what stock LIF and Dense do when the current is the membrane.

    u_l(t) = trunc(lambda_l u_l(t-1) / 4096) + 2^(6+e) ( W_l z_l(t) - rho_l s_l(t-1) )
    s_l(t) = [ u_l(t) > threshold_l ]                  strict, per neuron
    z_1    = the drive and a constant X0 in the step of the pulse, silence otherwise;    z_l(t) = s_{l-1}(t-1)

u is LIF's current and wraps at 24 bits, once (`wrap`); v = u + bias has no memory (dv = 4096), so its hard reset does
no harm. rho is a self-synapse, the soft reset. One observation is a pulse and `steps` time steps tau = 0, 1, ...; the
last layer's membrane is read at tau = `read_after`. What happens is counted from the pulse's arrival at layer 1, so
that no latency on the way there or back changes anything.
"""

from __future__ import annotations

import numpy as np

from asp_neuro.heads.membrane import WEIGHT_BITS, fires, leak_int

CONSTANT = 32  # X0, the message of layer 1's last input: its weight is the bias
DRIVE_BITS = 2  # drives: rint(4 x)
TOP = 1 << 23  # LIF's current lies in (-2^23, 2^23]


def wrap(current: np.ndarray) -> np.ndarray:
    """An int64 or whole float64 current as LIF keeps it: once around, at 24 bits."""
    down = np.where(current > TOP, current - 2 * TOP, current)
    return np.where(down <= -TOP, current + 2 * TOP, down)


def gain_shift(weight_exp: int) -> int:
    """How far synaptic sums are shifted up to the state."""
    return WEIGHT_BITS + weight_exp


def step_int(
    membrane: np.ndarray,
    spikes: np.ndarray,
    synaptic: np.ndarray,
    lambda_int: int,
    rho_int: np.ndarray,
    threshold_int: np.ndarray,
    weight_exp: int,
) -> tuple[np.ndarray, np.ndarray, int]:
    """One time step in int64; `synaptic` is W z. Returns membrane, spikes and how many membranes wrapped."""
    free = leak_int(membrane, lambda_int) + ((synaptic - rho_int * spikes) << gain_shift(weight_exp))
    held = wrap(free)
    return held, fires(held, threshold_int).astype(np.int64), int((held != free).sum())
