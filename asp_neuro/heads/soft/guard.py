"""Spike preservation: which neurons came so close to their threshold that rounding could have moved a spike (Cor. S18).

Reference: the same integer network in exact arithmetic, v_t = lambda v_{t-1} + d_t - theta s_{t-1}, never clipped.
Carried: u_t, truncated toward zero at every leak. While both emitted the same spikes and nothing was clipped, the error
e_t = v_t - u_t obeys

    e_1 = 0,    e_t = lambda e_{t-1} + frac_t,    |frac_t| <= 1 - q,    q = gcd(lambda_int, 4096) / 4096

because u_0 = 0 and the lost fraction of lambda u is a multiple of q. So |e_t| <= E_t (Theorem S17 on our grid), with

    E_t = (1 - q) sum_{i < t-1} lambda^i,       g_k = ceil(E_M) <= M - 1,       0 for lambda = 0.

For 0 < lambda < 1 and t > 1, E_t is an odd number over a power of two, never whole, so with m = min(t-1, g_k)

    E_t < ceil(E_t) <= m.

The network fires on u > theta_fire, integers both, and so does the reference, v > theta_fire:

    u <= theta_fire:  v fires only if e_t > theta_fire - u, impossible once theta_fire - u >= m;
    u >  theta_fire:  v rests only if -e_t >= u - theta_fire, impossible once u - theta_fire >= m, since -e_t < m.

Hence the rule: a neuron is hit iff |u - theta_fire| < min(t-1, g_k), or if u stands at a clip limit. Without a hit in
any neuron, layer and observation both runs emit the same spikes, by induction over observations and layers.

One side suffices where (theta_fire + 1) lambda_int >= 4096 theta. Drives are rectified and u_0 = 0: without a spike u
stays >= 0, and after one trunc(lambda u) >= trunc(lambda (theta_fire + 1)) >= theta covers the reset: u never goes
negative, every lost fraction is >= 0, v >= u, and a spike of the carried run is a spike of the reference. Only
theta_fire - m < u <= theta_fire can then be wrong. (theta_fire + 1 < 0 meets the condition with theta = 0 only, where
nothing is ever subtracted.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asp_neuro.errors import UsageError
from asp_neuro.heads.bits import STATE_MAX, STATE_MIN
from asp_neuro.heads.membrane import ONE, float_drift, whole_drift
from asp_neuro.heads.soft.layer import LayerSpec


@dataclass(frozen=True)
class GuardBand:
    """A layer's guard bands, in units of the last place of the state."""

    width: np.ndarray  # [H] int64, g_k
    one_sided: np.ndarray  # [H] bool: only the lower side can be wrong


def bands(layer: LayerSpec, n_steps: int) -> GuardBand:
    """The guard bands of a layer for episodes of at most `n_steps` observations."""
    widths = {leak: whole_drift(leak, n_steps - 1) for leak in np.unique(layer.lambda_int).tolist()}
    covered = (layer.theta_fire_int.astype(np.int64) + 1) * layer.lambda_int >= ONE * layer.theta_int.astype(np.int64)
    return GuardBand(np.array([widths[leak] for leak in layer.lambda_int.tolist()], dtype=np.int64), covered)


def hits(u: np.ndarray, theta_fire_int: np.ndarray, band: GuardBand, t: int) -> np.ndarray:
    """Membranes [..., H] after observation t = 1, 2, ... (int64 or whole float64) -> [..., H] whether each is hit."""
    low, high = limits(theta_fire_int, band, t)
    return ((u > low) & (u < high)) | (u >= STATE_MAX) | (u <= STATE_MIN)


def limits(theta_fire_int: np.ndarray, band: GuardBand, t: int) -> tuple[np.ndarray, np.ndarray]:
    """[H] int64 each: a membrane strictly between the two is hit at observation t."""
    if t < 1:
        raise UsageError(f"guard: observation {t}, observations count from 1")
    reach = np.minimum(t - 1, band.width)
    low = theta_fire_int - reach
    return low, np.where(band.one_sided, np.where(reach > 0, theta_fire_int + 1, low), theta_fire_int + reach)


def drift(lambda_int: np.ndarray, t: int) -> np.ndarray:
    """E_t of each neuron, [H] float64 rounded up: how far the exact membrane can stand from the carried one."""
    bounds = {leak: float_drift(leak, t - 1) for leak in np.unique(lambda_int).tolist()}
    return np.array([bounds[leak] for leak in lambda_int.tolist()])
