"""Spike preservation of the stock form: the same induction as for the soft form, over time steps (Cor. S18).

Reference: the same network in exact arithmetic. Both runs are at rest until a layer first moves, layer l = 0, 1, ... in
time step l; the truncation of k leaks after that moves a membrane by at most E_k (`heads/membrane.py`), so that with
the same spikes so far

    hit  iff  |u - threshold| < ceil(E_k),        k = time steps since the layer first moved,

two-sided, at every time step, is the only way to another spike: E_k is never whole for k > 0 and a leak between 0 and
1, and the threshold is a whole number. Nothing wraps (`ranges.py` proves it), so nothing else can differ.
"""

from __future__ import annotations

from asp_neuro.heads.membrane import float_drift, whole_drift
from asp_neuro.heads.spec import HeadSpec


def n_leaks(t: int, tau: int, steps: int, index: int) -> int:
    """Leaks of layer `index` (from 0) since it first moved, at time step tau of observation t = 1, 2, ..."""
    return max((t - 1) * steps + tau - index, 0)


def widths(head: HeadSpec, index: int, t: int) -> list[int]:
    """The guard bands of a layer in each time step of observation t."""
    leak = int(head.layers[index].lambda_int)
    return [whole_drift(leak, n_leaks(t, tau, head.steps, index)) for tau in range(head.steps)]


def drift_read(head: HeadSpec, t: int) -> float:
    """How far the last layer's exact membrane can be from the one that is read at observation t."""
    last = len(head.layers) - 1
    return float_drift(int(head.layers[last].lambda_int), n_leaks(t, head.read_after, head.steps, last))
