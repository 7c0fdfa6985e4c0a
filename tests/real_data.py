"""Data sets that are not shipped: where they are, or why a test is skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def real_modelnet() -> Path:
    for place in (os.environ.get("ASP_NEURO_DATA"), Path(__file__).parents[2] / "shared" / "data"):
        if place and any(Path(place).glob("modelnet40_train*.npz")):
            return Path(place)
    pytest.skip("the ModelNet npz files are not at hand ($ASP_NEURO_DATA)")
