"""The trained module in deploy mode as a machine: `verify --checkpoint` compares it with the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from asp_neuro.errors import InputError
from asp_neuro.heads.bits import DRIVE_BITS
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.learn.model import Model
from asp_neuro.learn.training import load_model
from asp_neuro.runtime.machine import Machine


def trained(checkpoint: str | Path, head: HeadSpec) -> Machine:
    """The module of a checkpoint; refused unless it holds the very integers of `head`."""
    model, *_ = load_model(checkpoint)
    if not model.head.has_scales:
        raise InputError(f"'{checkpoint}' never ran on the integer grid; there is no integer network to compare")
    _check_same_network(model, checkpoint, head)
    model.head.deploy = True
    return Machine("torch", lambda spec, drives_int: run_head(model, drives_int), any_head=False)


def run_head(model: Model, drives_int: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drives [T, b, n] through the module's own head: membranes and spikes [T, L, b, H]."""
    with torch.no_grad():
        drives = torch.from_numpy(drives_int.astype(np.float64) / 2.0**DRIVE_BITS)
        membranes, spikes, _ = model.head.run(drives, model.head.start(drives.shape[1]), model.head.fold())
    return tuple(torch.stack(x, dim=1).round().to(torch.int64).numpy() for x in (membranes, spikes))


def _check_same_network(model: Model, checkpoint: str | Path, head: HeadSpec) -> None:
    for number, (ours, theirs) in enumerate(zip(head.layers, model.head.spec().layers, strict=True), start=1):
        for name in ("weight_int", "bias_int", "lambda_int", "theta_int", "theta_fire_int"):
            if not np.array_equal(getattr(ours, name), getattr(theirs, name)):
                raise InputError(f"'{checkpoint}' is not what this bundle was made of: layer {number}, {name} differs")
