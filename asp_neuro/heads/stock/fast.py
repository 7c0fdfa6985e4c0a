"""The fast engine of the stock form, vectorised over a batch, bit for bit `reference.run_reference`.

Whole numbers ride in floating point where they are proven exact: the state in float64 (a leak's product has 36 bits),
synaptic sums in float32 (multiples of 128 below 2^31; in float64 where they are too large).

A layer hears the layer before one time step late, so layers run one after the other through all steps of an
observation, and the products of several steps are one: spikes of the next step count S, those of the one after that S^2
and so on, with S above twice the largest sum, so that the sums of each step can be told apart again (`Packing`).

Every step leaks. A step is *quiet* if nothing arrives: a membrane that does not fire then shrinks towards 0, so only
those that fired in the step before can fire, and only they are looked at, by their places. Guard bands grow by at most
one a step and such a membrane moves away from its threshold by at least one (or is at most 0, where a threshold wider
than every band is out of reach): whoever was clear stays clear until the next input.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from asp_neuro.errors import UsageError
from asp_neuro.heads.bits import DRIVE_MAX
from asp_neuro.heads.membrane import LEAK_BITS, fires, whole_drift
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.heads.stock.guard import n_leaks
from asp_neuro.heads.stock.layer import StockLayer
from asp_neuro.heads.stock.membrane import CONSTANT, TOP, gain_shift, wrap
from asp_neuro.heads.verdict import NEURONS

FEW = 4.0  # spikes per scene up to which they are known by their places
RARE = 0.5  # spikes per scene up to which only those who hear one are looked at
SLACK = 1.0 + 1e-9  # of a bound in float64
EXACT = {np.float32: 24, np.float64: 53}  # bits of a whole number


@dataclass(frozen=True)
class Packing:
    """How many time steps one product holds, in which type, and S, what a spike of each later step counts more."""

    dtype: Any
    n_steps: int
    base: float

    @staticmethod
    def of(reach: int, most: int) -> Packing:
        """The cheapest for sums of at most `reach`, at most `most` steps; products in float64 take twice the time."""
        bits = int(2 * reach).bit_length()
        fits = {kind: _n_digits(reach, bits, room, most) for kind, room in EXACT.items()}
        kind = np.float32 if fits[np.float32] and 2 * fits[np.float32] >= fits[np.float64] else np.float64
        return Packing(kind, fits[kind], 2.0**bits)


def _n_digits(reach: int, bits: int, room: int, most: int) -> int:
    """How many sums within +-`reach` fit into one whole number of `room` bits, each `bits` above the one before."""
    return max((n for n in range(1, most + 1) if sum(reach << (bits * i) for i in range(n)) < 1 << room), default=0)


class _Layer:
    """A layer's constants as the engine wants them."""

    def __init__(self, spec: StockLayer, index: int, largest: np.ndarray, bands: list[int], n_steps: int) -> None:
        gain = 2.0 ** gain_shift(spec.weight_exp)
        reach = int((np.abs(spec.weight_int) // 2 @ largest.astype(np.int64)).max())
        self.packing = Packing.of(reach, min(n_steps, 4) if index else 1)
        self.unit = 2.0 * gain  # weights are even
        weight = spec.weight_int if index else spec.weight_int[:, :-1]
        self.dtype = self.packing.dtype
        self.weight = np.ascontiguousarray((weight * gain).T.astype(self.dtype))  # [n, H] to state units
        self.bias = None if index else (spec.weight_int[:, -1] * (CONSTANT * gain)).astype(self.dtype)
        self.lam = spec.lambda_int / 2.0**LEAK_BITS
        self.rho = spec.rho_int * gain
        self.threshold = spec.threshold_int.astype(np.float64)
        self.bands = bands  # in each time step of an episode
        self.settles = bool(not bands or self.threshold.min() >= max(bands))  # clear at the pulse, clear until the next
        gains = [reach * self.unit * (index > 0 or tau == 0) + self.rho.max() for tau in range(n_steps)]
        held = [sum(gain * self.lam ** (tau - i) for i, gain in enumerate(gains[: tau + 1])) for tau in range(n_steps)]
        self.within = self.lam * SLACK, max(held) * SLACK  # no membrane exceeds the line of those before an observation
        self.after = self.lam**n_steps * SLACK, held[-1] * SLACK
        self.grow(0)

    def grow(self, batch: int) -> None:
        """Constants a row each, for at least so many rows: numpy is twice as fast without broadcasting."""
        self.thresholds = np.tile(self.threshold, (batch, 1))
        self.rhos = np.tile(self.rho, (batch, 1))
        self.resets = self.rhos.astype(self.dtype)
        self.biases = None if self.bias is None else np.tile(self.bias, (batch, 1))
        widest = max(self.bands, default=0)
        self.below, self.above = self.thresholds - widest, self.thresholds + widest
        self.parts = np.empty((self.packing.n_steps, *self.rhos.shape), dtype=self.dtype)
        self.z = np.empty_like(self.resets)


class _Spikes:
    """The spikes of a layer in one time step, by their places (flat) if they are few, else all of them [b, H] bool."""

    def __init__(self, shape: tuple[int, ...], places: np.ndarray | None, every: np.ndarray | None = None) -> None:
        self.shape, self._places, self._every = shape, places, every
        self.is_few = places is not None
        self.is_rare = places is not None and places.size <= RARE * shape[0]
        self.is_silent = places is not None and not places.size

    @staticmethod
    def of(every: np.ndarray) -> _Spikes:
        few = np.count_nonzero(every) <= FEW * len(every)
        return _Spikes(every.shape, every.ravel().nonzero()[0] if few else None, every)

    @staticmethod
    def none(shape: tuple[int, ...]) -> _Spikes:
        return _Spikes(shape, np.zeros(0, dtype=np.int64))

    @property
    def places(self) -> np.ndarray:
        if self._places is None:
            assert self._every is not None
            self._places = self._every.ravel().nonzero()[0]
        return self._places

    @property
    def every(self) -> np.ndarray:
        if self._every is None:
            self._every = np.zeros(self.shape, dtype=bool)
            self._every.reshape(-1)[self._places] = True
        return self._every

    def put(self, out: np.ndarray) -> np.ndarray:
        """1 where a neuron fired, else 0, in place."""
        if self._every is not None:
            np.copyto(out, self._every)
        else:
            out.fill(0.0)
            out.reshape(-1)[self._places] = 1.0
        return out


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
            largest = np.ones(layer.weight_int.shape[1]) if index else np.append(np.ceil(bound), CONSTANT)
            leaks = (n_leaks(1, step, spec.steps, index) for step in range((n_steps or 0) * spec.steps))
            bands = [whole_drift(int(layer.lambda_int), k) for k in leaks]
            self.layers.append(_Layer(layer, index, largest, bands, spec.steps))
        self.n_overflows = 0
        self.start(0)

    def fresh(self) -> FastStockHead:
        """Another head of the same network, which shares the constants and nothing else."""
        head = copy.copy(self)
        head.layers = [copy.copy(layer) for layer in self.layers]
        head.n_overflows = 0
        for layer in head.layers:
            layer.grow(0)
        head.start(0)
        return head

    def start(self, batch: int) -> None:
        """All membranes at rest."""
        shape = (batch, self.spec.layers[0].n_neurons)
        self.t = 0
        self.hit: np.ndarray | None = None
        self._near: list[tuple[np.ndarray, np.ndarray]] | None = None  # hits of the last observation; None: no guard
        self._clear = np.ones(batch, dtype=bool)  # scenes without a hit so far
        self._u = [np.zeros(shape) for _ in self.layers]
        self._farthest = [0.0 for _ in self.layers]  # what no membrane exceeds
        self._spoken = [[_Spikes.none(shape)] * self.spec.steps for _ in self.layers]  # in each time step
        self.membranes = list(self._u)

    def keep(self, rows: np.ndarray) -> None:
        """Go on with some scenes only."""
        self._u = [u[rows] for u in self._u]
        self._spoken = [[*spoken[:-1], _Spikes.of(spoken[-1].every[rows])] for spoken in self._spoken]
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
        self._near = [] if self.n_steps is not None and self._clear.any() else None
        last = [spoken[-1] for spoken in self._spoken]
        self.membranes, self._spoken = [], []
        for index in range(len(self.layers)):
            heard = [last[index - 1], *self._spoken[-1]] if index else []
            self._spoken.append(self._run(index, drive_int, heard, last[index]))
        self.hit = self._words(batch)
        return self.membranes[-1]

    @property
    def spikes(self) -> list[np.ndarray]:
        """Per layer, the spikes at the last reading, [b, H] float32."""
        return [spoken[self.spec.read_after].every.astype(np.float32) for spoken in self._spoken]

    @property
    def fired(self) -> list[np.ndarray]:
        """Per layer, all spikes of the last observation, [steps, b, H] bool."""
        return [np.array([spikes.every for spikes in spoken]) for spoken in self._spoken]

    def _run(self, index: int, drive_int: np.ndarray, heard: list[_Spikes], last: _Spikes) -> list[_Spikes]:
        """All time steps of a layer; layer 1 hears the pulse, a later one the layer before, `heard` step by step."""
        layer, u, steps = self.layers[index], self._u[index], self.spec.steps
        careful = self._may_wrap(index)
        spoken: list[_Spikes] = []
        brought: list[np.ndarray] = [] if index else [self._pulse(drive_int)]
        for tau in range(steps):
            np.multiply(u, layer.lam, out=u)
            np.trunc(u, out=u)
            is_quiet = not brought and (index == 0 or heard[tau].is_rare)
            if is_quiet and last.is_few and layer.settles and not careful:
                last = self._step_few(index, tau, u, last, heard[tau] if index else None)
            else:
                if index and not brought and not heard[tau].is_silent:
                    brought = self._hear(layer, heard[tau:steps])
                self._add(u, last, layer, brought.pop(0) if brought else None)
                if careful:
                    careful = self._wrap(u) or index > 0  # without input a membrane that is in range stays there
                last = self._fire(index, tau, u)
            spoken.append(last)
            if tau == self.spec.read_after:
                self.membranes.append(u.copy())
        return spoken

    def _may_wrap(self, index: int) -> bool:
        """Whether a membrane could wrap in this observation; membranes are looked at only where bounds do not say."""
        within, after = self.layers[index].within, self.layers[index].after
        held = self._farthest[index]
        if _bound(within, held) >= TOP:
            held = _largest(self._u[index])
        self._farthest[index] = min(_bound(after, held), float(TOP))
        return _bound(within, held) >= TOP

    def _pulse(self, drive_int: np.ndarray) -> np.ndarray:
        """What a drive and the constant bring to layer 1, [b, H]."""
        layer, batch = self.layers[0], len(drive_int)
        assert layer.biases is not None
        out = layer.parts[0, :batch]
        np.matmul(drive_int.astype(layer.dtype, copy=False), layer.weight, out=out)
        out += layer.biases[:batch]
        return out

    def _hear(self, layer: _Layer, heard: list[_Spikes]) -> list[np.ndarray]:
        """What the spikes of the next time steps bring to a layer, [b, H] each, as far as there are many."""
        ends = (n for n in range(1, layer.packing.n_steps) if n == len(heard) or heard[n].is_rare)
        heard, batch = heard[: next(ends, layer.packing.n_steps)], heard[0].shape[0]
        out, z = layer.parts[0, :batch], heard[0].put(layer.z[:batch])
        for i, spikes in enumerate(heard[1:], start=1):
            z += np.multiply(spikes.put(out), layer.packing.base**i, out=out)
        np.matmul(z, layer.weight, out=out)
        return [out, *self._unpack(layer, out, z, len(heard))]

    def _unpack(self, layer: _Layer, out: np.ndarray, scratch: np.ndarray, n_steps: int) -> list[np.ndarray]:
        """The sums of the later of `n_steps` steps, taken out of `out`, in which that of the first remains."""
        for i in range(n_steps - 1, 0, -1):
            part, step = layer.parts[i, : len(out)], layer.unit * layer.packing.base**i
            np.multiply(out, 1.0 / step, out=part)
            np.rint(part, out=part)
            np.multiply(part, step, out=scratch)
            np.subtract(out, scratch, out=out)
            np.multiply(part, layer.unit, out=part)
        return [layer.parts[i, : len(out)] for i in range(1, n_steps)]

    def _add(self, u: np.ndarray, last: _Spikes, layer: _Layer, brought: np.ndarray | None) -> None:
        """Reset, and what the step brought, in place."""
        if not last.is_few:
            taken = last.put(layer.z[: len(u)])
            taken *= layer.resets[: len(u)]
            if brought is None:
                np.subtract(u, taken, out=u)
            else:
                brought -= taken
        elif not last.is_silent:
            u.reshape(-1)[last.places] -= layer.rhos.reshape(-1)[last.places]
        if brought is not None:
            np.add(u, brought, out=u)

    def _fire(self, index: int, tau: int, u: np.ndarray) -> _Spikes:
        """The spikes of a step, and its guard, among all membranes."""
        layer, batch = self.layers[index], len(u)
        if self._near is None:
            return _Spikes.of(fires(u, layer.thresholds[:batch]))
        fired, near = fires(u, layer.above[:batch]), fires(u, layer.below[:batch])
        if np.count_nonzero(fired) < np.count_nonzero(near):  # some are within the widest band
            places = (fired != near).ravel().nonzero()[0]
            far = u.reshape(-1)[places] - layer.thresholds.reshape(-1)[places]
            fired.reshape(-1)[places] = fires(far, 0.0)
            self._note(index, tau, places, far)
        return _Spikes.of(fired)

    def _step_few(self, index: int, tau: int, u: np.ndarray, last: _Spikes, heard: _Spikes | None) -> _Spikes:
        """Reset, input, spikes and guard of a step to which few spikes matter: of scenes that hear one, and of neurons
        that fired in the step before. Nobody else can fire."""
        layer, places, flat = self.layers[index], last.places, u.reshape(-1)
        if places.size:
            flat[places] -= layer.rhos.reshape(-1)[places]
        if heard is not None and not heard.is_silent:
            rows = np.zeros(len(u), dtype=bool)
            rows[heard.places // u.shape[1]] = True
            u[rows] += np.matmul(heard.every[rows].astype(layer.dtype), layer.weight)
            places = (last.every | rows[:, None]).ravel().nonzero()[0]
        if not places.size:
            return last
        far = flat[places]
        far -= layer.thresholds.reshape(-1)[places]
        self._note(index, tau, places, far)
        return _Spikes(u.shape, places[fires(far, 0.0)])

    def _wrap(self, u: np.ndarray) -> bool:
        """Once around at 24 bits, in place, counted; whether any did. A proven head never does (`ranges.py`)."""
        if _largest(u) < TOP:
            return False
        held = wrap(u)
        self.n_overflows += int((held != u).sum())
        u[...] = held
        return True

    def _note(self, index: int, tau: int, places: np.ndarray, far: np.ndarray) -> None:
        """Keep those of `places` that are hit, with time step, layer and neuron; each is `far` from its threshold."""
        if self._near is None:
            return
        near = places[np.abs(far) < self.layers[index].bands[(self.t - 1) * self.spec.steps + tau]]
        if near.size:
            row, neuron = np.divmod(near, self.spec.layers[0].n_neurons)
            self._near.append((row, neuron + (tau * len(self.layers) + index) * NEURONS))

    def _words(self, batch: int) -> np.ndarray | None:
        """Hit words of this observation: the earliest of each scene by time step, layer and neuron."""
        if self.n_steps is None:
            return None
        words = np.zeros(batch, dtype=np.int64)
        if self._near:
            row, place = (np.concatenate(parts) for parts in zip(*self._near, strict=True))
            latest_first = place.argsort()[::-1]  # so that the earliest is written last
            words[row[latest_first]] = place[latest_first] % (len(self.layers) * NEURONS) + 1
            words[~self._clear] = 0
            self._clear &= words == 0
        return words


def _bound(line: tuple[float, float], held: float) -> float:
    return line[0] * held + line[1]


def _largest(u: np.ndarray) -> float:
    return float(max(u.max(initial=0.0), -u.min(initial=0.0)))
