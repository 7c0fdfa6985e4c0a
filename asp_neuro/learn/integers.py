"""The integers of a trained model in its checkpoint: what training ended on, and what export copies.

`model.pt` holds them under the paths that a bundle has them under, beside the weights in floating point from which a
training goes on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from asp_neuro.bundle.layout import model_arrays, names_of, read_model, read_names, table
from asp_neuro.bundle.netx import string
from asp_neuro.errors import AspError, InputError
from asp_neuro.model.spec import ModelSpec

KEY = "integers"


def to_plain(model: ModelSpec) -> dict[str, Any]:
    """Path -> tensor or text: what a checkpoint can hold and `torch.load` reads without running any code."""
    known = table(names_of(model))
    held = {}
    for path, array in sorted(model_arrays(model).items()):
        kind = known.kind(path)
        assert kind is not None, path
        held[path] = array.tobytes().decode("ascii") if array.dtype.kind == "S" else _tensor(array, kind[0])
    return held


def _tensor(array: np.ndarray, kind: str) -> torch.Tensor:
    return torch.from_numpy(np.array(array, dtype=np.dtype(kind).newbyteorder("=")))


def from_plain(held: dict[str, Any], place: str) -> ModelSpec:
    """The way back; refused, with the name of the file, where something is missing or wrong."""
    try:
        arrays = {path: string(one) if isinstance(one, str) else one.numpy() for path, one in held.items()}
        return read_model(arrays, read_names(lambda path: held[path]))
    except (AspError, KeyError, AttributeError, TypeError, ValueError) as error:
        raise InputError(f"'{place}': its integers cannot be read ({str(error).splitlines()[0][:120]})") from None


def first_difference(ours: ModelSpec, theirs: ModelSpec) -> str | None:
    """Where two networks differ, with how many numbers; None: nowhere."""
    mine, other = model_arrays(ours), model_arrays(theirs)
    for path in sorted(mine.keys() | other.keys()):
        if path not in mine or path not in other or mine[path].shape != other[path].shape:
            return f"{path}, which only one has in this shape"
        n_apart = int((mine[path] != other[path]).sum())
        if n_apart:
            return f"{path}, {n_apart} of {mine[path].size}"
    return None
