"""What membranes of the stock form can reach: proven before a head is stored, because LIF wraps without a word.

Intervals of every neuron are carried through the time steps of an episode: each step takes the ends of the interval to
the ends of what can come of it, for the neurons that could not have fired and for those that could, with the largest
and smallest input that the layer before can send. All of it is whole numbers and every map is monotone, so no rounding
can spoil the proof. Between the pulses, and in the silence after the last, intervals shrink until all is at rest: that
is how long a reset by silence takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asp_neuro.errors import ConfigError
from asp_neuro.grid.sections import Norm
from asp_neuro.heads.bits import DRIVE_MAX
from asp_neuro.heads.membrane import LEAK_BITS, leak_int
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.heads.stock.layer import StockLayer
from asp_neuro.heads.stock.membrane import CONSTANT, TOP, gain_shift

SLACK = 1.0 + 1e-9  # of a norm's own rounding
SILENCE_MAX = 1 << 16  # time steps


@dataclass(frozen=True)
class Ranges:
    """The least and the largest membrane of every neuron in any episode, [H] each, and the way back to rest."""

    low: tuple[np.ndarray, ...]
    high: tuple[np.ndarray, ...]
    silence: int  # time steps without a pulse after which every membrane is 0, whatever the episode was

    @property
    def largest(self) -> tuple[int, ...]:
        """Per layer |u|."""
        return tuple(int(max(-low.min(), high.max())) for low, high in zip(self.low, self.high, strict=True))


def pulse_reach(layer: StockLayer, drive: Norm | None, drive_bound: np.ndarray) -> np.ndarray:
    """[H] the largest |W z| of layer 1's pulse: drives within `drive_bound` [n], normalised by `drive` if there is one.

    A normalised n has |n|_2 <= sqrt(D) and sums to 0, so |W (g n)| <= |W g - mean(W g)|_2 sqrt(D) (Cauchy-Schwarz);
    rounding a drive to whole numbers moves it by at most 1/2.
    """
    weight = np.abs(layer.weight_int[:, :-1])
    bias = layer.weight_int[:, -1] * CONSTANT
    apart = weight @ np.ceil(drive_bound).astype(np.int64) + np.abs(bias)
    if drive is None or drive_bound.max() >= DRIVE_MAX:  # a clipped drive is no longer what the norm gave
        return np.asarray(apart)
    weight_float, (gain, shift) = layer.weight_int[:, :-1].astype(np.float64), drive.values
    pull = weight_float * gain
    spread = np.linalg.norm(pull - pull.mean(axis=1, keepdims=True), axis=1) * np.sqrt(pull.shape[1])
    centre = np.abs(weight_float @ shift + bias)
    together = np.ceil((spread + centre + weight.sum(axis=1) / 2.0) * SLACK).astype(np.int64) + 1
    return np.minimum(apart, together)


def reach(head: HeadSpec, drive: Norm | None, drive_bound: np.ndarray, n_observations: int) -> Ranges:
    """The ranges of episodes of at most `n_observations`, and of the silence after them."""
    state = _Intervals(head, pulse_reach(head.layers[0], drive, drive_bound))
    for step in range(n_observations * head.steps):
        state.advance(pulse=step % head.steps == 0)
    silence = 0
    while state.could_fire and state.fits and silence < SILENCE_MAX:
        state.advance(pulse=False)
        silence += 1
    return Ranges(tuple(state.lowest), tuple(state.highest), min(silence + state.fading, SILENCE_MAX))


class _Intervals:
    """Where each membrane can be in the present time step, and where any could be so far."""

    def __init__(self, head: HeadSpec, pulse: np.ndarray) -> None:
        self.layers = head.layers
        self.pulse = pulse
        self.low = [np.zeros(layer.n_neurons, dtype=np.int64) for layer in head.layers]
        self.high = [np.zeros(layer.n_neurons, dtype=np.int64) for layer in head.layers]
        self.lowest, self.highest = list(self.low), list(self.high)

    @property
    def could_fire(self) -> bool:
        return any((high > layer.threshold_int).any() for high, layer in zip(self.high, self.layers, strict=True))

    @property
    def fits(self) -> bool:
        """Whether nothing can have wrapped so far."""
        ends = zip(self.lowest, self.highest, strict=True)
        return all(-low.min() < TOP and high.max() < TOP for low, high in ends)

    @property
    def fading(self) -> int:
        """Time steps until every membrane has leaked to 0, if none can fire."""
        ends = zip(self.layers, self.low, self.high, strict=True)
        return max(_fading(int(max(-low.min(), high.max())), int(layer.lambda_int)) for layer, low, high in ends)

    def advance(self, pulse: bool) -> None:
        """One time step."""
        could_fire = [high > layer.threshold_int for high, layer in zip(self.high, self.layers, strict=True)]
        for index, layer in enumerate(self.layers):
            if index == 0:
                most = self.pulse if pulse else np.zeros_like(self.pulse)
                least = -most
            else:
                heard = layer.weight_int[:, could_fire[index - 1]]
                least, most = np.minimum(heard, 0).sum(axis=1), np.maximum(heard, 0).sum(axis=1)
            shift = gain_shift(layer.weight_exp)
            low, high = self._leaked(index, layer, could_fire[index])
            low, high = low + (least << shift), high + (most << shift)
            self.low[index], self.high[index] = np.maximum(low, -4 * TOP), np.minimum(high, 4 * TOP)  # refused anyway
            self.lowest[index] = np.minimum(self.lowest[index], low)
            self.highest[index] = np.maximum(self.highest[index], high)

    def _leaked(self, index: int, layer: StockLayer, could_fire: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The interval after leak and reset: of those that did not fire, and of those that did."""
        leak, threshold = layer.lambda_int, layer.threshold_int
        taken = layer.rho_int << gain_shift(layer.weight_exp)
        low = leak_int(self.low[index], leak)
        high = leak_int(np.minimum(self.high[index], threshold), leak)
        fired_low = leak_int(np.maximum(self.low[index], threshold + 1), leak) - taken
        fired_high = leak_int(self.high[index], leak) - taken
        return (
            np.where(could_fire, np.minimum(low, fired_low), low),
            np.where(could_fire, np.maximum(high, fired_high), high),
        )


def _fading(membrane: int, leak: int) -> int:
    """How many leaks a membrane takes to 0."""
    n_leaks = 0
    while membrane and n_leaks < SILENCE_MAX:
        membrane, n_leaks = (membrane * leak) >> LEAK_BITS, n_leaks + 1
    return n_leaks


def prove(head: HeadSpec, drive: Norm | None, drive_bound: np.ndarray, n_observations: int) -> Ranges:
    """The ranges, or a refusal by layer and number."""
    found = reach(head, drive, drive_bound, n_observations)
    for number, largest in enumerate(found.largest, start=1):
        if largest >= TOP:
            raise ConfigError(
                f"layer {number}: membranes can reach {largest} within {n_observations} observations of {head.steps} "
                f"time steps, LIF wraps at {TOP}; train with more headroom (train.headroom), or take fewer steps"
            )
    if found.silence >= SILENCE_MAX:
        raise ConfigError(f"not at rest after {SILENCE_MAX} time steps of silence: a leak is too slow")
    return found
