"""What is said about an episode's spikes: guard hits as words, and the verdict. The same for every form of neuron."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NEURONS = 4096  # hit words count layers in steps of this


@dataclass(frozen=True)
class Verdict:
    """Whether an episode is proven to be the exact one; if not, the first thing that is not proven.

    `step` and `layer` count from 1, `neuron` from 0; `decision` is "chunk", "exit" or "class", or None.
    """

    preserved: bool
    sentence: str
    step: int | None = None
    layer: int | None = None
    neuron: int | None = None
    decision: str | None = None


def hit_words(hit: np.ndarray, layer: int) -> np.ndarray:
    """Hits [b, H] of a layer (0, 1, ...) -> [b] int64 word of the first neuron hit, layer * 4096 + neuron + 1, or 0."""
    return np.where(hit.any(axis=1), layer * NEURONS + hit.argmax(axis=1) + 1, 0)


def hit_place(word: int) -> tuple[int, int]:
    """The layer and neuron, both from 0, that a hit word other than 0 names."""
    return divmod(int(word) - 1, NEURONS)
