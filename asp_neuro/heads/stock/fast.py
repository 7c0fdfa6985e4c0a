"""The fast engine of the stock form, vectorised over a batch, bit for bit `reference.run_reference`.

Whole numbers ride in floating point where they are proven exact: the state in float64 (a leak's product has 36 bits),
synaptic sums in float32 (multiples of 128 below 2^31; layer 1 in float64 where its drives are too large).

A layer hears the layer before one time step late, so layers run one after the other through all steps of an
observation. Layer 1 is touched by a pulse only: from its step on a membrane that does not fire shrinks towards 0, so
only those that fired in the step before can fire in the next, and the rest is two operations a step. Its guard bands
grow by at most one a step and such a membrane moves away from its threshold by at least one (or is at most 0, where a
threshold wider than every band is out of reach): whoever was clear at the pulse stays clear.
"""

from __future__ import annotations

import copy

import numpy as np

from asp_neuro.errors import UsageError
from asp_neuro.heads.bits import DRIVE_MAX
from asp_neuro.heads.membrane import LEAK_BITS, fires, whole_drift
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.heads.stock.guard import n_leaks
from asp_neuro.heads.stock.layer import StockLayer
from asp_neuro.heads.stock.membrane import CONSTANT, TOP, gain_shift, wrap
from asp_neuro.heads.verdict import NEURONS

NEVER = np.iinfo(np.int64).max
SPARSE = 0.5  # share of the rows with input spikes below which only those rows are multiplied


class _Layer:
    """A layer's constants as the engine wants them."""

    def __init__(self, spec: StockLayer, index: int, largest: np.ndarray, bands: list[int]) -> None:
        gain = 2.0 ** gain_shift(spec.weight_exp)
        weight = spec.weight_int if index else spec.weight_int[:, :-1]
        reach = float((np.abs(weight) // 2 @ largest).max())
        self.dtype = np.float32 if reach < 2.0**24 else np.float64
        self.weight = np.ascontiguousarray((weight * gain).T.astype(self.dtype))  # [n, H] to state units
        self.bias = np.zeros(1) if index else spec.weight_int[:, -1] * float(CONSTANT) * gain
        self.lam = spec.lambda_int / 2.0**LEAK_BITS
        self.rho = spec.rho_int * gain
        self.threshold = spec.threshold_int.astype(np.float64)
        self.stride = float(np.abs(weight).sum(axis=1).max() + spec.rho_int.max()) * gain  # of one time step
        self.bands = bands  # in each time step of an episode
        self.settles = bool(not bands or self.threshold.min() >= max(bands))  # clear at the pulse, clear until the next
        self.grow(0)

    def grow(self, batch: int) -> None:
        """Constants a row each, for at least so many rows: numpy is twice as fast without broadcasting."""
        self.thresholds = np.tile(self.threshold, (batch, 1))
        self.rhos = np.tile(self.rho, (batch, 1)).ravel()


class FastStockHead:
    """Carries the state of a batch of scenes; `start` puts it at rest, `observe` takes one drive per scene.

    `membranes` and `spikes` are those at the last reading, `fired` [steps, b, H] per layer all spikes of the last
    observation. Made for episodes of at most `n_steps` observations it leaves the first guard hit of each scene at the
    last observation in `hit` ([b] hit words, 0 for none); without `n_steps`, `hit` is None. A scene that was hit is
    not looked at again: its verdict stands.
    """

    def __init__(self, spec: HeadSpec, drive_bound: np.ndarray | None = None, n_steps: int | None = None) -> None:
        bound = np.full(spec.n_inputs, float(DRIVE_MAX)) if drive_bound is None else drive_bound
        self.spec, self.n_steps = spec, n_steps
        self.layers = []
        for index, layer in enumerate(spec.layers):
            largest = np.ones(layer.weight_int.shape[1]) if index else np.ceil(bound)
            leaks = (n_leaks(1, step, spec.steps, index) for step in range((n_steps or 0) * spec.steps))
            bands = [whole_drift(int(layer.lambda_int), k) for k in leaks]
            self.layers.append(_Layer(layer, index, largest, bands))
        self.n_overflows = 0
        self.start(0)

    def fresh(self) -> FastStockHead:
        """Another head of the same network, which shares the constants and nothing else."""
        head = copy.copy(self)
        head.n_overflows = 0
        head.start(0)
        return head

    def start(self, batch: int) -> None:
        """All membranes at rest."""
        shape, n_layers = (batch, self.spec.layers[0].n_neurons), len(self.layers)
        self.t = 0
        self.hit: np.ndarray | None = None
        self._clear = np.ones(batch, dtype=bool)  # scenes without a hit so far
        self._u = [np.zeros(shape) for _ in range(n_layers)]
        self._s = [np.zeros(shape, dtype=bool) for _ in range(n_layers)]
        self.membranes, self.spikes = list(self._u), [s.astype(np.float32) for s in self._s]
        self.fired = [np.zeros((self.spec.steps, *shape), dtype=bool) for _ in range(n_layers)]

    def keep(self, rows: np.ndarray) -> None:
        """Go on with some scenes only."""
        self._u = [u[rows] for u in self._u]
        self._s = [s[rows] for s in self._s]
        self._clear = self._clear[rows]

    def observe(self, drive_int: np.ndarray) -> np.ndarray:
        """One observation: drives [b, n] (whole numbers) -> the last layer's membranes at the reading [b, H]."""
        self.t += 1
        if self.n_steps is not None and self.t > self.n_steps:
            raise UsageError(f"head: observation {self.t}, but its guard bands are made for {self.n_steps}")
        batch = len(drive_int)
        if len(self.layers[0].thresholds) < batch:
            for layer in self.layers:
                layer.grow(batch)
        self._first = np.full(batch, NEVER) if self.n_steps is not None and self._clear.any() else None
        before = [s.copy() for s in self._s]
        self.membranes, self.spikes, self.fired = [], [], []
        self._run_first(drive_int)
        for index in range(1, len(self.layers)):
            self._run_later(index, before[index - 1])
        self.hit = self._words(batch)
        return self.membranes[-1]

    def _run_first(self, drive_int: np.ndarray) -> None:
        """All time steps of layer 1."""
        layer, u, s = self.layers[0], self._u[0], self._s[0]
        flat, rho, threshold = u.reshape(-1), layer.rhos, layer.thresholds[: len(u)]
        fired = np.zeros((self.spec.steps, *u.shape), dtype=bool)
        active, wrapped = s.ravel().nonzero()[0], False  # who fired in the step before
        for tau in range(self.spec.steps):
            np.multiply(u, layer.lam, out=u)
            np.trunc(u, out=u)
            if active.size:
                flat[active] -= rho[active]
            if tau == 0:
                u += np.matmul(drive_int.astype(layer.dtype, copy=False), layer.weight)
                u += layer.bias
            if tau == 0 or wrapped:
                wrapped = self._wrap(u)
            if tau == 0 or wrapped or not layer.settles:
                active = fires(u, threshold).ravel().nonzero()[0]
                self._guard_all(0, tau, u, threshold)
            else:
                self._guard(0, tau, flat, active)
                active = active[fires(flat[active], threshold.reshape(-1)[active])]
            fired[tau].reshape(-1)[active] = True
            if tau == self.spec.read_after:
                self._read(u, fired[tau])
        self._s[0] = fired[-1]
        self.fired.append(fired)

    def _run_later(self, index: int, heard: np.ndarray) -> None:
        """All time steps of a layer that hears the spikes of the one before, of the last observation at first."""
        layer, u = self.layers[index], self._u[index]
        flat, rho, threshold = u.reshape(-1), layer.rhos, layer.thresholds[: len(u)]
        fired = np.zeros((self.spec.steps, *u.shape), dtype=bool)
        now, before = self._s[index], self.fired[index - 1]
        careful = float(np.abs(u).max(initial=0.0)) + self.spec.steps * layer.stride >= TOP
        for tau in range(self.spec.steps):
            np.multiply(u, layer.lam, out=u)
            np.trunc(u, out=u)
            active = now.ravel().nonzero()[0]
            if active.size:
                flat[active] -= rho[active]
            _add_product(u, heard, layer)
            if careful:
                self._wrap(u)
            fired[tau] = now = fires(u, threshold)
            self._guard_all(index, tau, u, threshold)
            heard = before[tau]
            if tau == self.spec.read_after:
                self._read(u, now)
        self._s[index] = fired[-1]
        self.fired.append(fired)

    def _read(self, u: np.ndarray, spikes: np.ndarray) -> None:
        self.membranes.append(u.copy())
        self.spikes.append(spikes.astype(np.float32))

    def _wrap(self, u: np.ndarray) -> bool:
        """Once around at 24 bits, in place, counted; whether any did. A proven head never does (`ranges.py`)."""
        if not u.size or (u.max() <= TOP and u.min() > -TOP):
            return False
        held = wrap(u)
        self.n_overflows += int((held != u).sum())
        u[...] = held
        return True

    def _guard_all(self, index: int, tau: int, u: np.ndarray, threshold: np.ndarray) -> None:
        """Look for hits among all membranes of a layer."""
        width = self._width(index, tau)
        if not width:
            return
        far = np.subtract(u, threshold)
        np.abs(far, out=far)
        if np.minimum.reduce(far, axis=None, initial=np.inf) < width:
            self._note(index, tau, (far.ravel() < width).nonzero()[0])

    def _guard(self, index: int, tau: int, flat: np.ndarray, places: np.ndarray) -> None:
        """Look for hits among some membranes."""
        width = self._width(index, tau)
        if width and places.size:
            far = np.abs(flat[places] - self.layers[index].thresholds.reshape(-1)[places])
            self._note(index, tau, places[far < width])

    def _width(self, index: int, tau: int) -> int:
        """The guard band of this time step; 0: nobody can be hit, or nobody looks."""
        return self.layers[index].bands[(self.t - 1) * self.spec.steps + tau] if self._first is not None else 0

    def _note(self, index: int, tau: int, places: np.ndarray) -> None:
        """The earliest hit of each scene by time step, layer and neuron."""
        assert self._first is not None
        row, neuron = np.divmod(places, self.spec.layers[0].n_neurons)
        key = (tau * len(self.layers) + index) * NEURONS + neuron
        np.minimum.at(self._first, row, key)

    def _words(self, batch: int) -> np.ndarray | None:
        """Hit words of this observation."""
        if self.n_steps is None:
            return None
        words = np.zeros(batch, dtype=np.int64)
        if self._first is not None:
            new = (self._first != NEVER) & self._clear
            words[new] = self._first[new] % (len(self.layers) * NEURONS) + 1
            self._clear &= ~new
        return words


def _add_product(u: np.ndarray, heard: np.ndarray, layer: _Layer) -> None:
    """u += spikes W, in place; rows without a spike are left out where they are many."""
    rows = heard.any(axis=1).nonzero()[0]
    if len(rows) < SPARSE * len(u):
        if rows.size:
            u[rows] += np.matmul(heard[rows].astype(layer.dtype), layer.weight)
    else:
        u += np.matmul(heard.astype(layer.dtype), layer.weight)
