"""Probabilities and the top-two margin of logits, the same bits on every machine.

    p       = softmax(logits)
    Delta   = p_(1) - p_(2) = (1 - exp(z_(2) - z_(1))) / sum_c exp(z_c - z_(1))       top-two probability gap

Every exponential is rounded to 2^-40, so that their sum is exact in any order; the result is rounded to 2^-30.
"""

from __future__ import annotations

import numpy as np

from asp_neuro import compiled
from asp_neuro.errors import InputError
from asp_neuro.grid.arithmetic import EXP_BITS, EXP_OPERATIONS, MARGIN_BITS, exp, on_grid


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis, [..., C] -> [..., C], multiples of 2^-30."""
    weights = _weights(logits)
    return on_grid(weights / np.add.reduce(weights, axis=-1, keepdims=True), MARGIN_BITS)


def margin(logits: np.ndarray) -> np.ndarray:
    """The top-two probability gap, [..., C] -> [...], multiples of 2^-30."""
    values = np.asarray(logits, dtype=np.float64, order="C")
    if compiled.kernels is not None and values.ndim > 1 and values.shape[-1] >= 2:
        out = np.empty(values.shape[:-1])
        if compiled.kernels.margins(values, out, out.size, values.shape[-1]):
            return out
    weights = _weights(values)
    runner_up = np.partition(weights, -2, axis=-1)[..., -2]  # the best has weight 1
    return on_grid((1.0 - runner_up) / np.add.reduce(weights, axis=-1), MARGIN_BITS)


def margin_operations(n_classes: int) -> int:
    """What `margin` does: difference, exponential, rounding and sum of each class, and the quotient."""
    return (EXP_OPERATIONS + 4) * n_classes + 4


def _weights(logits: np.ndarray) -> np.ndarray:
    """exp(logit - best), multiples of 2^-40."""
    values = np.asarray(logits, dtype=np.float64)
    if values.ndim == 0 or values.shape[-1] < 2:
        raise InputError(f"exit: logits of shape {np.shape(logits)}, a margin needs at least 2 classes")
    if not np.logical_and.reduce(np.isfinite(values), axis=None):
        raise InputError(f"exit: {int((~np.isfinite(values)).sum())} of {values.size} logits are not finite")
    return on_grid(exp(values - np.maximum.reduce(values, axis=-1, keepdims=True)), EXP_BITS)
