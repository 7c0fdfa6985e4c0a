"""HeadSpec: the frozen integer network that training ends on, every engine runs and the bundle stores.

What a layer is made of, and who runs it, is a matter of its form: `FORMS` names the forms of neuron that a head can
have. A form brings its layer class, checks, the plain reference, the engines and the bounds of its rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from asp_neuro.errors import ConfigError, nearest
from asp_neuro.grid.sections import Norm
from asp_neuro.heads.bits import DRIVE_MAX, SYNAPTIC_MAX

SOFT, STOCK = "soft", "stock"


class HeadRun(NamedTuple):
    """What drives [T, b, n] make of a head: [T, L, b, H] int64 each, and how often the state overflowed."""

    membranes: np.ndarray
    spikes: np.ndarray
    overflows: int


class Engine(Protocol):
    """Carries the state of a batch of scenes; `start` puts it at rest, `observe` takes one drive per scene."""

    @property
    def hit(self) -> np.ndarray | None:
        """[b] first guard hit of the last observation (`verdict.hit_words`), 0 for none; None: nobody looks."""

    def start(self, batch: int) -> None: ...

    def keep(self, rows: np.ndarray) -> None:
        """Go on with some scenes only."""

    def observe(self, drive_int: np.ndarray) -> np.ndarray:
        """Drives [b, n], whole numbers -> the last layer's membranes [b, H]."""


class NeuronForm(Protocol):
    """What a layer is made of and who runs it."""

    name: str
    neuron_type: str  # in a NetX file
    layer: Any  # class of its layers
    drive_bits: int  # drives are integers at scale 2^drive_bits
    constant: int  # message of one more input of layer 1, its bias, which comes with every drive; 0: there is none
    residual: bool  # whether a layer hears all layers before it, or the last one only

    def validate(self, head: HeadSpec) -> None: ...

    def reference(self, head: HeadSpec, drives_int: np.ndarray) -> HeadRun: ...

    def engine(self, head: HeadSpec, drive_bound: np.ndarray | None, n_steps: int | None) -> Engine:
        """The fast engine; made for episodes of at most `n_steps` observations it looks for guard hits."""

    def exact(self, head: HeadSpec) -> Engine | None:
        """Exact arithmetic, neither truncated nor clipped; None: there is none."""

    def drift(self, head: HeadSpec, t: int) -> np.ndarray | None:
        """[H] how far the last layer's exact membrane can be from the one read at observation t; None: not known."""

    def prove_ranges(self, head: HeadSpec, drive: Norm, drive_bound: np.ndarray, n_steps: int) -> None:
        """Refuse a head whose state could leave its bits on drives that `drive` normalises, where that ruins it."""

    def largest(self, layer: Any) -> float:
        """The largest |membrane| of a layer, in float units."""


FORMS: dict[str, NeuronForm] = {}


@dataclass(frozen=True)
class HeadSpec:
    """L layers; layer 1 takes the drive. A free-running form makes `steps` time steps an observation."""

    layers: tuple[Any, ...]
    form: str = SOFT
    steps: int = 1  # N, time steps per observation
    read_after: int = 0  # p, time steps from the drive's arrival at layer 1 to the reading of the last membrane

    def __post_init__(self) -> None:
        if not self.layers:
            raise ConfigError("a head needs at least one layer")
        if self.form not in FORMS:
            raise ConfigError(f"form of neuron '{self.form}' is not known{nearest(self.form, FORMS)}")
        self.neurons.validate(self)

    @property
    def neurons(self) -> NeuronForm:
        return FORMS[self.form]

    @property
    def n_inputs(self) -> int:
        return int(self.layers[0].weight_int.shape[1]) - (1 if self.neurons.constant else 0)

    @property
    def n_neurons(self) -> int:
        """Of the last layer: the width of the belief."""
        return int(self.layers[-1].n_neurons)

    @property
    def units(self) -> np.ndarray:
        """[H] float64: the last layer's integer steps per float unit."""
        return np.asarray(self.layers[-1].units)

    @property
    def largest(self) -> float:
        """The largest |membrane| of the last layer, in float units."""
        return self.neurons.largest(self.layers[-1])

    def reference(self, drives_int: np.ndarray) -> HeadRun:
        """Drives [T, b, n] through the plainest form."""
        return self.neurons.reference(self, drives_int)

    def engine(self, drive_bound: np.ndarray | None = None, n_steps: int | None = None) -> Any:
        return self.neurons.engine(self, drive_bound, n_steps)


def synaptic_reach(spec: HeadSpec, drive_bound: np.ndarray | None = None) -> tuple[int, ...]:
    """Per layer, the largest |W_int . z_int| that any input can cause: drives within `drive_bound` [n], or 16 bits."""
    form = spec.neurons
    largest = np.full(spec.n_inputs, DRIVE_MAX) if drive_bound is None else np.ceil(drive_bound).astype(np.int64)
    bounds = [np.append(largest, form.constant) if form.constant else largest]
    for index in range(1, len(spec.layers)):
        bounds.append(np.full(spec.layers[0].n_neurons, index if form.residual else 1))
    return tuple(int((np.abs(layer.weight_int) @ bound).max()) for layer, bound in zip(spec.layers, bounds))


def check_synaptic_sums(spec: HeadSpec, drive_bound: np.ndarray | None = None) -> None:
    """Refuse a head whose synaptic sums could leave int32, in which Lava and the chip add up."""
    for number, reach in enumerate(synaptic_reach(spec, drive_bound), start=1):
        if reach > SYNAPTIC_MAX:
            raise ConfigError(f"layer {number}: synaptic sums can reach {reach}, int32 ends at {SYNAPTIC_MAX}")
