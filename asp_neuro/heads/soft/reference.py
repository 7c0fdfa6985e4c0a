"""The plainest form of the soft head, for tests, golden vectors and `verify`; it is not fast."""

from __future__ import annotations

import numpy as np

from asp_neuro.heads.bits import STATE_MAX, STATE_MIN
from asp_neuro.heads.soft.membrane import align_shift, step_int
from asp_neuro.heads.spec import HeadSpec


def run_reference(spec: HeadSpec, drives_int: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Drives [T, batch, n] int64 -> membranes and spikes [T, L, batch, H] int64, and the number of overflows."""
    n_steps, batch = drives_int.shape[:2]
    width = spec.layers[0].n_neurons
    membranes = np.zeros((n_steps, len(spec.layers), batch, width), dtype=np.int64)
    spikes = np.zeros_like(membranes)
    held = np.zeros((len(spec.layers), batch, width), dtype=np.int64)
    fired = np.zeros_like(held)
    overflows = 0
    for t in range(n_steps):
        z = drives_int[t].astype(np.int64)
        for index, layer in enumerate(spec.layers):
            if index > 0:
                z = fired[:index].sum(axis=0)
            shift = align_shift(layer.state_bits, first_layer=index == 0)
            aligned = ((z @ layer.weight_int.T) << shift) + layer.bias_int
            overflows += int((np.abs(aligned) > STATE_MAX).sum())
            held[index], fired[index] = step_int(
                held[index], fired[index], aligned, layer.lambda_int, layer.theta_int, layer.theta_fire_int
            )
            overflows += int(((held[index] == STATE_MAX) | (held[index] == STATE_MIN)).sum())
        membranes[t], spikes[t] = held, fired
    return membranes, spikes, overflows
