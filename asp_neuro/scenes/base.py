"""Scene and View: what is looked at, one place at a time.

A scene has M places to look at, each with a few parameter-free numbers, its descriptor. A batch of scenes is whatever
its kind makes of raw inputs (`SceneSpec.scenes`): it has a length, takes slices and index arrays, and is a section of
plain arrays, so that it can be sent to another process. A view is a batch under way: it encodes a place when asked, and
remembers what it has encoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from asp_neuro.grid.operations import Operations


class Scenes(Protocol):
    """A batch of scenes."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> Any: ...


class View(Protocol):
    """A batch of scenes under way."""

    @property
    def macs(self) -> int:
        """Multiply-accumulates spent on encoding so far."""

    @property
    def descriptors(self) -> np.ndarray:
        """[n, M, g], multiples of 2^-DESCRIPTOR_BITS within the spec's `descriptor_bound`."""

    def embed(self, rows: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Scenes [b] and a place of each [b] -> embeddings [b, w], whole activation steps; encodes what is new."""


class Encoder(Protocol):
    """The arithmetic of a kind of scene, built once for a model."""

    def view(self, scenes: Any) -> View:
        """A batch, nothing looked at yet."""


class SceneSpec(Protocol):
    """A kind of scene as a section (`grid.sections`): settings, and the weights of its encoder."""

    kind: ClassVar[str]
    batch: ClassVar[type]  # the section that a batch of scenes is

    @property
    def n_places(self) -> int: ...

    @property
    def width(self) -> int:
        """Of an embedding."""

    @property
    def descriptor_bound(self) -> np.ndarray:
        """[g] proven largest |descriptor|."""

    def scenes(self, inputs: Any, names: Sequence[str] | None = None, cache: bool = False) -> Any:
        """Raw inputs of n scenes -> a batch."""

    def encoder(self) -> Encoder: ...

    def parts_of(self, scenes: Any) -> np.ndarray:
        """[n, M, G] bool: what each place is made of; a part that two places share is encoded once."""

    def operations(self, parts: float) -> Operations:
        """Of an observation that encodes so many parts anew."""


class KnownScene(SceneSpec, Protocol):
    """A kind of scene of which a model can say whether it knows its like (`model/familiarity.py`)."""

    def statistics(self, scenes: Any) -> np.ndarray:
        """[n, S] parameter-free, the same bits for a scene in any batch, within -4 .. 4."""

    @property
    def words(self) -> dict[str, str]:
        """Statistic -> what it is, for people; S of them, in order."""
