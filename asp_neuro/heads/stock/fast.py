"""The fast engine of the stock form, vectorised over a batch, bit for bit `reference.run_reference`.

Whole numbers ride in floating point where they are proven exact: the state in float64 (a leak's product has 36 bits),
synaptic sums in float32 (multiples of 128 below 2^31; layer 1 in float64 where its drives are too large).

A layer hears the layer before one time step late, so layers run one after the other through all steps of an
observation. In a step without input (for layer 1 all but that of the pulse) a membrane that does not fire shrinks
towards 0, so only those that fired in the step before can fire, and the rest is two operations. Guard bands grow by at
most one a step and such a membrane moves away from its threshold by at least one (or is at most 0, where a threshold
wider than every band is out of reach): whoever was clear stays clear until the next input.
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
MANY = (0.2, 0.04)  # share of the neurons from which on spikes are handled all at once: in layer 1, in the others
ROWS_CLEAR = 0.8  # share of the scenes without a hit below which only they are guarded
SPARSE = 0.5  # spikes per row below which only the rows that have one are multiplied


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
        self.rhos = np.tile(self.rho, (batch, 1))
        self.biases = np.tile(self.bias, (batch, 1))


class _Spikes:
    """The spikes of a layer in one time step: all of them [b, H] bool, and where they are, flat, if they are few."""

    def __init__(self, fired: np.ndarray, places: np.ndarray | None = None, many: float = 1.0) -> None:
        self.fired, self.places = fired, places
        if places is None and np.count_nonzero(fired) <= many * fired.size:
            self.places = fired.ravel().nonzero()[0]

    @staticmethod
    def at(places: np.ndarray, shape: tuple[int, ...]) -> _Spikes:
        fired = np.zeros(shape, dtype=bool)
        fired.reshape(-1)[places] = True
        return _Spikes(fired, places)

    @property
    def is_silent(self) -> bool:
        return self.places is not None and not self.places.size


class _Spoken:
    """The spikes of a layer in the time steps of an observation; silence after the last that is noted."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.steps: list[_Spikes] = []

    def at(self, tau: int) -> _Spikes:
        return self.steps[tau] if tau < len(self.steps) else _Spikes(np.zeros(self.shape, dtype=bool))

    def all(self, n_steps: int) -> np.ndarray:
        """[n_steps, b, H] bool"""
        return np.array([self.at(tau).fired for tau in range(n_steps)])


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
        self._scratch = np.empty((batch, shape[1]))
        self.hit: np.ndarray | None = None
        self._clear = np.ones(batch, dtype=bool)  # scenes without a hit so far
        self._u = [np.zeros(shape) for _ in range(n_layers)]
        self._last = [_Spikes(np.zeros(shape, dtype=bool)) for _ in range(n_layers)]  # of the last time step
        self._spoken = [_Spoken(shape) for _ in range(n_layers)]
        self.membranes, self.spikes = list(self._u), [np.zeros(shape, dtype=np.float32) for _ in range(n_layers)]

    def keep(self, rows: np.ndarray) -> None:
        """Go on with some scenes only."""
        self._u = [u[rows] for u in self._u]
        self._last = [_Spikes(last.fired[rows]) for last in self._last]
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
        if len(self._scratch) < batch:
            self._scratch = np.empty((batch, self.spec.layers[0].n_neurons))
        self._first = np.full(batch, NEVER) if self.n_steps is not None and self._clear.any() else None
        clear = self._clear.nonzero()[0]
        self._rows = clear if len(clear) < ROWS_CLEAR * batch else None  # whom the guard looks at
        self.membranes, self.spikes = [], []
        self._spoken = [self._run_first(drive_int)]
        for index in range(1, len(self.layers)):
            self._spoken.append(self._run_later(index, self._spoken[-1]))
        self._last = [spoken.at(self.spec.steps - 1) for spoken in self._spoken]
        self.hit = self._words(batch)
        return self.membranes[-1]

    def _run_first(self, drive_int: np.ndarray) -> _Spoken:
        """All time steps of layer 1."""
        layer, u = self.layers[0], self._u[0]
        last, spoken, wrapped = self._last[0], _Spoken(u.shape), False
        for tau in range(self.spec.steps):
            if tau > 0 and not wrapped and layer.settles and last.is_silent:
                self._fade(u, layer, tau)
                break
            self._leak(u, last, layer)
            if tau == 0:
                u += np.matmul(drive_int.astype(layer.dtype, copy=False), layer.weight)
                u += layer.biases[: len(u)]
            if tau == 0 or wrapped:
                wrapped = self._wrap(u)
            has_input = tau == 0 or wrapped
            last = self._fire(0, tau, u, last, has_input)
            spoken.steps.append(last)
            if tau == self.spec.read_after:
                self._read(u, last)
        return spoken

    def _run_later(self, index: int, heard: _Spoken) -> _Spoken:
        """All time steps of a layer that hears the one before, at first its last step of the last observation."""
        layer, u = self.layers[index], self._u[index]
        last, spoken = self._last[index], _Spoken(u.shape)
        careful = max(u.max(initial=0.0), -u.min(initial=0.0)) + self.spec.steps * layer.stride >= TOP
        for tau in range(self.spec.steps):
            if tau > len(heard.steps) and not careful and layer.settles and last.is_silent:
                self._fade(u, layer, tau)
                break
            self._leak(u, last, layer)
            before = self._last[index - 1] if tau == 0 else heard.at(tau - 1)
            if not before.is_silent:
                _add_product(u, before, layer)
            if careful:
                self._wrap(u)
            last = self._fire(index, tau, u, last, careful or not before.is_silent)
            spoken.steps.append(last)
            if tau == self.spec.read_after:
                self._read(u, last)
        return spoken

    def _leak(self, u: np.ndarray, last: _Spikes, layer: _Layer) -> None:
        """Leak and reset, in place."""
        np.multiply(u, layer.lam, out=u)
        np.trunc(u, out=u)
        if last.places is None:
            scratch = self._scratch[: len(u)]
            np.multiply(last.fired, layer.rhos[: len(u)], out=scratch)
            np.subtract(u, scratch, out=u)
        elif last.places.size:
            u.reshape(-1)[last.places] -= layer.rhos.reshape(-1)[last.places]

    def _fade(self, u: np.ndarray, layer: _Layer, tau: int) -> None:
        """The rest of an observation in which nothing fires and nothing arrives."""
        for now in range(tau, self.spec.steps):
            np.multiply(u, layer.lam, out=u)
            np.trunc(u, out=u)
            if now == self.spec.read_after:
                self._read(u, _Spikes(np.zeros(u.shape, dtype=bool)))

    def _fire(self, index: int, tau: int, u: np.ndarray, last: _Spikes, has_input: bool) -> _Spikes:
        """The spikes of a step, and its guard; without input only those of the step before need a look."""
        layer, places = self.layers[index], last.places
        if has_input or places is None or not layer.settles:
            self._guard(index, tau, u)
            return _Spikes(fires(u, layer.thresholds[: len(u)]), many=MANY[index > 0])
        above = u.reshape(-1)[places] - layer.thresholds.reshape(-1)[places]
        width = self._width(index, tau)
        if width and places.size:
            self._note(index, tau, places[np.abs(above) < width])
        return _Spikes.at(places[fires(above, 0.0)], u.shape)

    def _read(self, u: np.ndarray, spikes: _Spikes) -> None:
        self.membranes.append(u.copy())
        self.spikes.append(spikes.fired.astype(np.float32))

    @property
    def fired(self) -> list[np.ndarray]:
        """Per layer, all spikes of the last observation, [steps, b, H] bool."""
        return [spoken.all(self.spec.steps) for spoken in self._spoken]

    def _wrap(self, u: np.ndarray) -> bool:
        """Once around at 24 bits, in place, counted; whether any did. A proven head never does (`ranges.py`)."""
        if not u.size or (u.max() <= TOP and u.min() > -TOP):
            return False
        held = wrap(u)
        self.n_overflows += int((held != u).sum())
        u[...] = held
        return True

    def _guard(self, index: int, tau: int, u: np.ndarray) -> None:
        """Look for hits among all membranes of a layer."""
        width = self._width(index, tau)
        if not width:
            return
        rows = self._rows  # None: all of them
        seen = u if rows is None else u[rows]
        far = np.subtract(seen, self.layers[index].thresholds[: len(seen)], out=self._scratch[: len(seen)])
        np.abs(far, out=far)
        if np.minimum.reduce(far, axis=None, initial=np.inf) < width:
            places = (far.ravel() < width).nonzero()[0]
            if rows is not None:
                places += (rows - np.arange(len(rows)))[places // u.shape[1]] * u.shape[1]
            self._note(index, tau, places)

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


def _add_product(u: np.ndarray, heard: _Spikes, layer: _Layer) -> None:
    """u += spikes W, in place; rows without a spike are left out where spikes are few."""
    if heard.places is not None and heard.places.size < SPARSE * len(u):
        rows = heard.fired.any(axis=1).nonzero()[0]
        u[rows] += np.matmul(heard.fired[rows].astype(layer.dtype), layer.weight)
    else:
        u += np.matmul(heard.fired.astype(layer.dtype), layer.weight)
