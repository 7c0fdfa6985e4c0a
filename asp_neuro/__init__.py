"""asp-neuro: Active Spiking Perception, from training to neuromorphic hardware."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asp_neuro.model.perceiver import Perceiver

__version__ = "0.2.0"
__all__ = ["__version__", "load"]


def load(name: str | Path) -> Perceiver:
    """A model by the name of a shipped bundle or from a file: `model(points)` answers for one cloud."""
    from asp_neuro.runtime.deployment import load_perceiver

    return load_perceiver(name)
