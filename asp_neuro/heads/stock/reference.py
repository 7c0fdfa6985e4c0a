"""The plainest form of the stock head, for tests, golden vectors and `verify`; it is not fast."""

from __future__ import annotations

import numpy as np

from asp_neuro.heads.spec import HeadRun, HeadSpec
from asp_neuro.heads.stock.membrane import CONSTANT, step_int


def run_stream(spec: HeadSpec, drives_int: np.ndarray) -> HeadRun:
    """Drives [T, b, n] int64, one every `steps` -> membranes and spikes of every time step, [T steps, L, b, H]."""
    n_pulses, batch = drives_int.shape[:2]
    shape = (n_pulses * spec.steps, len(spec.layers), batch, spec.layers[0].n_neurons)
    membranes, spikes = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    held, fired = np.zeros(shape[1:], dtype=np.int64), np.zeros(shape[1:], dtype=np.int64)
    overflows = 0
    for step in range(shape[0]):
        before = fired.copy()
        for index, layer in enumerate(spec.layers):
            heard = before[index - 1] if index else pulse(drives_int, step, spec.steps)
            held[index], fired[index], wrapped = step_int(
                held[index],
                before[index],
                heard @ layer.weight_int.T,
                layer.lambda_int,
                layer.rho_int,
                layer.threshold_int,
                layer.weight_exp,
            )
            overflows += wrapped
        membranes[step], spikes[step] = held, fired
    return HeadRun(membranes, spikes, overflows)


def pulse(drives_int: np.ndarray, step: int, n_steps: int) -> np.ndarray:
    """What reaches layer 1 in a time step, [b, n + 1]: a drive and the constant, or silence."""
    batch, n_inputs = drives_int.shape[1:]
    if step % n_steps:
        return np.zeros((batch, n_inputs + 1), dtype=np.int64)
    drive = drives_int[step // n_steps].astype(np.int64)
    return np.concatenate([drive, np.full((batch, 1), CONSTANT)], axis=1)


def run_reference(spec: HeadSpec, drives_int: np.ndarray) -> HeadRun:
    """Drives [T, b, n] -> membranes and spikes at the moment of reading, [T, L, b, H]; overflows of every step."""
    membranes, spikes, overflows = run_stream(spec, drives_int)
    read = slice(spec.read_after, None, spec.steps)
    return HeadRun(membranes[read], spikes[read], overflows)
