"""Golden vectors: made at export, compared by `verify` and `doctor` on every machine."""

from __future__ import annotations

import numpy as np

from asp_neuro.bundle.records import Bundle, Golden
from asp_neuro.errors import ConfigError
from asp_neuro.model.episode import host_drives
from asp_neuro.model.spec import Model, ModelSpec


def make_golden(model: ModelSpec, drives_int: np.ndarray, inputs: np.ndarray) -> Golden:
    """Golden vectors of drives [T, b, n] through the head, and of raw inputs of scenes (int16) through the host.

    Drives that overflow are no good example and refused.
    """
    head = model.head
    if drives_int.ndim != 3 or drives_int.size == 0 or drives_int.shape[2] != head.n_inputs:
        raise ConfigError(f"golden: drives of shape {list(drives_int.shape)}, expected [T, batch, {head.n_inputs}]")
    membranes, spikes, overflows = head.reference(drives_int)
    if overflows:
        raise ConfigError(f"golden: the state overflows {overflows} times on these drives")
    seen = host_drives(Model(model), model.scene.scenes(inputs)).astype(np.int16)
    return Golden(drives_int.astype(np.int16), membranes.astype(np.int32), spikes.astype(np.uint8), inputs, seen)


def host_drives_now(bundle: Bundle) -> np.ndarray:
    """[budget, c, n] what the host makes of the golden scenes here and now."""
    return host_drives(Model(bundle.model), bundle.model.scene.scenes(bundle.golden.inputs))


def golden_mismatches(bundle: Bundle) -> int:
    """Spikes, membranes and drives in which reference and host, run now, differ from the golden vectors."""
    membranes, spikes, _ = bundle.head.reference(bundle.golden.drives_int.astype(np.int64))
    wrong = (membranes != bundle.golden.membranes).sum() + (spikes != bundle.golden.spikes).sum()
    return int(wrong + (host_drives_now(bundle) != bundle.golden.host_drives_int).sum())
