"""Compiled twins of a few functions that take too many calls of numpy (`kernels.c`).

    exp, tanh, normalise_int    of grid.arithmetic
    alone          of scenes.strays._alone, for clouds of up to 16,384 points
    to_grid        of scenes.cloud.to_grid, where no point falls on another one
    groups         of scenes.cloud.groups                  farthest points, nearest points, chunks
    descriptors    of scenes.cloud.descriptors
    embed          of scenes.cloud_encoder.CloudView.embed
    step           of model.mixer.Mixer.step, for few scenes
    layer          of heads.soft.fast.FastHead.observe, for few scenes
    statistics     of scenes.cloud_statistics._some
    part_points, part_tokens, part_near    of tasks.parts
    margins        of grid.softmax.margin

Both forms give the same bits; `tests/test_compiled.py` compares them. `kernels` is None, and numpy does the work, where
nothing was compiled (an install without a compiler), where what is there is of another version of these files, or with
ASP_NEURO_COMPILED=0. `asp-neuro doctor` says which.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

VERSION = 14  # of kernels.c
SWITCH = "ASP_NEURO_COMPILED"


def _found() -> tuple[ModuleType | None, str]:
    """The compiled part, and what to say about it."""
    if os.environ.get(SWITCH) == "0":
        return None, f"{SWITCH}=0: numpy does the work"
    try:
        module = importlib.import_module("asp_neuro.compiled._kernels")
    except ImportError as error:
        return None, f"nothing compiled ({type(error).__name__}): numpy does the work, slower"
    if getattr(module, "VERSION", 0) != VERSION:
        return None, f"compiled for version {getattr(module, 'VERSION', 0)}, {VERSION} is needed: numpy does the work"
    return module, "compiled"


kernels, state = _found()
