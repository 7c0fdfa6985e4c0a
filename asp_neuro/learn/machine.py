"""The trained module in deploy mode as a machine: `verify --checkpoint` compares it with the others."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch

from asp_neuro.errors import InputError
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.learn.heads import set_steps
from asp_neuro.learn.model import Model
from asp_neuro.learn.training import load_model
from asp_neuro.runtime.machine import Machine


def trained(checkpoint: str | Path, head: HeadSpec) -> Machine:
    """The module of a checkpoint; refused unless it holds the very integers of `head`."""
    model, *_ = load_model(checkpoint)
    if head.steps > 1:
        set_steps(model.head, head.steps)
    if not model.head.has_scales:
        raise InputError(f"'{checkpoint}' never ran on the integer grid; there is no integer network to compare")
    _check_same_network(model, checkpoint, head)
    model.head.deploy = True
    return Machine("torch", lambda spec, drives_int: run_head(model, drives_int), any_head=False)


def run_head(model: Model, drives_int: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drives [T, b, n] through the module's own head: membranes and spikes [T, L, b, H]."""
    with torch.no_grad():
        drive_bits = model.head.spec().neurons.drive_bits
        drives = torch.from_numpy(drives_int.astype(np.float64) / 2.0**drive_bits)
        membranes, spikes, _ = model.head.run(drives, model.head.start(drives.shape[1]), model.head.fold())
    return tuple(torch.stack(x, dim=1).round().to(torch.int64).numpy() for x in (membranes, spikes))


def _check_same_network(model: Model, checkpoint: str | Path, head: HeadSpec) -> None:
    found = model.head.spec()
    if (found.form, found.read_after) != (head.form, head.read_after):
        raise InputError(f"'{checkpoint}' is not what this bundle was made of: its head is of the {found.form} form")
    for number, (ours, theirs) in enumerate(zip(head.layers, found.layers, strict=True), start=1):
        for name in (field.name for field in dataclasses.fields(ours) if field.name not in ("factor", "state_bits")):
            if not np.array_equal(getattr(ours, name), getattr(theirs, name)):
                raise InputError(f"'{checkpoint}' is not what this bundle was made of: layer {number}, {name} differs")
