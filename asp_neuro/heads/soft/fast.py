"""The fast engine: the integer head, vectorised over a batch, bit for bit `head_spec.run_reference`.

Whole numbers ride in floating point where every partial sum is proven to be exact: float32 matrix products while the
worst case stays below 2^24 (weights are even, so W / 2 is used), float64 otherwise; the state in float64, where
lambda_int / 4096 * u is exact (36 bits) and truncation is the integer step's own.

With `n_steps` the engine also looks for guard hits (`guard.hits`): u - theta_fire, which decides the spike, is compared
with the widest band of the layer; the few membranes within are then looked at one by one.
"""

from __future__ import annotations

import copy

import numpy as np

from asp_neuro import compiled
from asp_neuro.errors import UsageError
from asp_neuro.grid.arithmetic import panels
from asp_neuro.heads.bits import DRIVE_MAX, STATE_MAX, STATE_MIN
from asp_neuro.heads.membrane import LEAK_BITS, fires
from asp_neuro.heads.soft.guard import bands, limits
from asp_neuro.heads.soft.layer import LayerSpec
from asp_neuro.heads.soft.membrane import align_shift, rest
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.heads.verdict import NEURONS

FEW = 8  # scenes up to which a compiled layer is quicker than numpy


class _Layer:
    """A layer's constants as the engine wants them."""

    def __init__(self, spec: LayerSpec, index: int, largest: np.ndarray, n_steps: int) -> None:
        reach = np.abs(spec.weight_int) // 2 @ largest  # [H]
        self.dtype = np.float32 if reach.max() < 2.0**24 else np.float64
        self.weight = np.ascontiguousarray((spec.weight_int // 2).T.astype(self.dtype))  # [n, H]
        self.align = 2.0 * 2.0 ** align_shift(spec.state_bits, first_layer=index == 0)
        self.bias = spec.bias_int.astype(np.float64)
        self.may_overflow = bool((reach * self.align + np.abs(self.bias)).max() > STATE_MAX)  # a drive, its 24 bits
        self.lam = spec.lambda_int / 2.0**LEAK_BITS
        self.theta = spec.theta_int.astype(np.float64)
        self.theta_fire = spec.theta_fire_int.astype(np.float64)
        self.room = STATE_MAX - 1 - np.abs(self.theta_fire).max()  # a membrane this far from theta_fire may saturate
        band = bands(spec, n_steps)
        self.edges = [limits(spec.theta_fire_int, band, t) for t in range(1, n_steps + 1)]
        self.packed = panels(self.weight), np.stack([self.bias, self.lam, self.theta, self.theta_fire])
        self.widest = [max((self.theta_fire - low).max(), (high - self.theta_fire).max()) for low, high in self.edges]


class FastHead:
    """Carries the state of a batch of clouds; `start` puts it at rest, `observe` takes one drive per cloud.

    Made for episodes of at most `n_steps` observations it leaves the first guard hit of each cloud at the last
    observation in `hit` ([b] hit words, 0 for none); without `n_steps`, `hit` is None.
    """

    def __init__(self, spec: HeadSpec, drive_bound: np.ndarray | None = None, n_steps: int | None = None) -> None:
        bound = np.full(spec.n_inputs, float(DRIVE_MAX)) if drive_bound is None else drive_bound
        self.spec = spec
        self.n_steps = n_steps
        self.layers = []
        for index, layer in enumerate(spec.layers):
            largest = bound if index == 0 else np.full(layer.weight_int.shape[1], float(index))
            self.layers.append(_Layer(layer, index, largest, n_steps or 0))
        self.n_overflows = 0
        self.start(0)

    def fresh(self) -> FastHead:
        """Another head of the same network, which shares the constants and nothing else."""
        head = copy.copy(self)
        head.n_overflows = 0
        head.start(0)
        return head

    def start(self, batch: int) -> None:
        """All membranes at rest."""
        shape = (batch, self.spec.layers[0].n_neurons)
        self.t = 0
        self.hit: np.ndarray | None = None
        self.membranes = [np.zeros(shape) for _ in self.layers]
        self.spikes = [np.zeros(shape, dtype=np.float32) for _ in self.layers]

    def keep(self, rows: np.ndarray) -> None:
        """Go on with some clouds only."""
        whole = np.array_equal(rows, np.arange(len(self.membranes[0])))  # no copies: no state is changed in place
        self.membranes = [u if whole else u[rows] for u in self.membranes]
        self.spikes = [s if whole else s[rows] for s in self.spikes]

    def observe(self, drive_int: np.ndarray) -> np.ndarray:
        """One observation: drives [b, n] (whole numbers) -> the last layer's membranes [b, H] (whole numbers)."""
        self.t += 1
        self.hit = self._no_hits(len(drive_int))
        z = drive_int
        for index, layer in enumerate(self.layers):
            if compiled.kernels is not None and len(z) <= FEW and self._compiled(index, z):
                z = self.spikes[index] if index == 0 else z + self.spikes[index]
                continue
            synaptic = np.matmul(z.astype(layer.dtype, copy=False), layer.weight)
            drive = np.multiply(synaptic, layer.align, dtype=np.float64)
            drive += layer.bias
            if layer.may_overflow and np.maximum.reduce(np.abs(drive), axis=None, initial=0.0) > STATE_MAX:
                self.n_overflows += int((np.abs(drive) > STATE_MAX).sum())
            np.maximum(drive, 0.0, out=drive)
            leaked = self.membranes[index] * layer.lam  # not in place: what was read may be kept
            np.trunc(leaked, out=leaked)
            held = rest(leaked, drive, layer.theta, self.spikes[index])
            above = np.subtract(held, layer.theta_fire, out=drive)
            fired = fires(above, 0.0)
            far = np.abs(above, out=above)
            saturated = bool(np.maximum.reduce(far, axis=None, initial=0.0) > layer.room) and self._saturate(held)
            if saturated:
                fired = fires(held, layer.theta_fire)
            self.membranes[index], self.spikes[index] = held, fired.astype(np.float32)
            if self.hit is not None and (self.t > 1 or saturated):  # nothing is rounded before the first leak
                self._guard(index, far, saturated, self.hit)
            z = self.spikes[index] if index == 0 else z + self.spikes[index]
        return self.membranes[-1]

    def _compiled(self, index: int, z: np.ndarray) -> bool:
        """One layer by its compiled twin, unless something overflows: numpy counts and clips."""
        layer, old = self.layers[index], self.membranes[index]
        if layer.dtype is not np.float32:
            return False
        held, fired, far = np.empty(old.shape), np.empty(old.shape, dtype=np.float32), np.empty(old.shape)
        assert compiled.kernels is not None
        pushed, most, least = compiled.kernels.layer(
            np.ascontiguousarray(z, dtype=np.float32), *layer.packed, np.ascontiguousarray(old),
            np.ascontiguousarray(self.spikes[index]), held, fired, far, len(z), *layer.weight.shape, layer.align,
        )  # fmt: skip
        if pushed > STATE_MAX or most > layer.room:
            return False
        self.membranes[index], self.spikes[index] = held, fired
        if self.hit is not None and self.t > 1 and least < layer.widest[self.t - 1]:
            self._guard(index, far, False, self.hit)
        return True

    @property
    def fired(self) -> list[np.ndarray]:
        """Per layer, whether each neuron fired in each time step of the observation: here there is one, [1, b, H]."""
        return [s[None] for s in self.spikes]

    def _no_hits(self, batch: int) -> np.ndarray | None:
        if self.n_steps is None:
            return None
        if self.t > self.n_steps:
            raise UsageError(f"head: observation {self.t}, but its guard bands are made for {self.n_steps}")
        return np.zeros(batch, dtype=np.int64)

    def _saturate(self, held: np.ndarray) -> bool:
        """Clip membranes to 24 bits, in place; whether any stands at a limit."""
        np.clip(held, STATE_MIN, STATE_MAX, out=held)
        n_limit = int(((held == STATE_MAX) | (held == STATE_MIN)).sum())
        self.n_overflows += n_limit
        return n_limit > 0

    def _guard(self, index: int, far: np.ndarray, saturated: bool, words: np.ndarray) -> None:
        """Note the first hit of each cloud in this layer, unless an earlier one has it; `far` is |u - theta_fire|."""
        layer, held = self.layers[index], self.membranes[index]
        if not saturated and not np.minimum.reduce(far, axis=None, initial=np.inf) < layer.widest[self.t - 1]:
            return
        close = far < layer.widest[self.t - 1]
        if saturated:
            close |= (held >= STATE_MAX) | (held <= STATE_MIN)
        flat = close.ravel().nonzero()[0]  # sorted by cloud, then neuron
        low, high = layer.edges[self.t - 1]
        membrane, neuron = held.ravel()[flat], flat % held.shape[1]
        hit = (membrane > low[neuron]) & (membrane < high[neuron])
        if saturated:
            hit |= (membrane >= STATE_MAX) | (membrane <= STATE_MIN)
        for place in flat[hit][::-1]:  # the first neuron of a cloud is written last
            row, first = divmod(int(place), held.shape[1])
            if not 0 < words[row] <= index * NEURONS:
                words[row] = index * NEURONS + first + 1
