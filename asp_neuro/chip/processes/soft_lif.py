"""SoftLIF: a layer of soft-reset neurons that update on a tick and hold their state exactly otherwise.

A tick is a word: the observation index t in its lower 16 bits (0 idle; 1 put the membranes at rest, then observe;
t >= 2 observe) and above them the first guard hit met on its way through the layers, 0 for none (`verdict.hit_words`).

`tick_out` is sent before anything is received, one step late, exactly as Dense sends its sums: so spikes and the tick
that goes with them reach the next layer in the same time step. An unbuffered tick would be early by one and silently
wrong from two layers on. The first layer's tick comes with its drive, through one more row of the same Dense: the last
entry of `a_in` is TICK_WEIGHT times the word.

`u_out` shows the membranes and, as its last entry, the tick word of the step, 0 when there was none: who reads a
membrane knows whether it is valid, for one message (each costs Lava more than a layer's arithmetic).
"""

from __future__ import annotations

import numpy as np
from lava.magma.core.decorator import implements, requires, tag
from lava.magma.core.model.py.model import PyLoihiProcessModel
from lava.magma.core.model.py.ports import PyInPort, PyOutPort
from lava.magma.core.model.py.type import LavaPyType
from lava.magma.core.process.ports.ports import InPort, OutPort
from lava.magma.core.process.process import AbstractProcess
from lava.magma.core.process.variable import Var
from lava.magma.core.resources import CPU
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol

from asp_neuro.chip.lava_limits import TICK_BITS
from asp_neuro.heads.bits import STATE_MAX
from asp_neuro.heads.membrane import LEAK_BITS
from asp_neuro.heads.soft.guard import GuardBand, hits
from asp_neuro.heads.soft.layer import LayerSpec
from asp_neuro.heads.soft.membrane import align_shift, step_float, step_int
from asp_neuro.heads.verdict import hit_words

TICK_WEIGHT = 2  # the smallest that Dense keeps beside signed weights
IDLE = np.zeros(1, dtype=np.int64)


def tick_word(observation: int, hit: int = 0) -> np.ndarray:
    """The word that a tick port carries, [1] int64."""
    return np.array([(hit << TICK_BITS) | observation], dtype=np.int64)


def read_word(word: np.ndarray) -> tuple[int, int]:
    """Observation index and first guard hit of a tick word."""
    hit, observation = divmod(int(word[0]), 1 << TICK_BITS)
    return observation, hit


class SoftLIF(AbstractProcess):
    """One layer of a head; `index` counts from 0, `band` is its guard band."""

    def __init__(self, layer: LayerSpec, index: int, band: GuardBand) -> None:
        shift = align_shift(layer.state_bits, first_layer=index == 0)
        super().__init__(name=f"layer {index + 1} neurons", index=index, shift=shift, n_neurons=layer.n_neurons)
        shape = (layer.n_neurons,)
        self.a_in = InPort(shape=(layer.n_neurons + 1,) if index == 0 else shape)
        self.tick_in = InPort(shape=(1,))  # from the layer before; not connected in the first one
        self.tick_out = OutPort(shape=(1,))
        self.s_out = OutPort(shape=shape)
        self.u_out = OutPort(shape=(layer.n_neurons + 1,))
        self.bias_int = Var(shape=shape, init=layer.bias_int)
        self.lambda_int = Var(shape=shape, init=layer.lambda_int)
        self.theta_int = Var(shape=shape, init=layer.theta_int)
        self.theta_fire_int = Var(shape=shape, init=layer.theta_fire_int)
        self.guard_width = Var(shape=shape, init=band.width)
        self.guard_one_sided = Var(shape=shape, init=band.one_sided)
        self.a_sum = Var(shape=shape, init=0)
        self.u = Var(shape=shape, init=0)
        self.s = Var(shape=shape, init=0)


class PySoftLIFModel(PyLoihiProcessModel):
    """Ticks, accumulation and reset, for both number systems; a subclass brings the step."""

    def __init__(self, proc_params) -> None:  # type: ignore[no-untyped-def]
        super().__init__(proc_params)
        self.index = proc_params["index"]
        self.shift = proc_params["shift"]
        self.passing = IDLE
        self.silence = np.zeros(proc_params["n_neurons"] + 1, dtype=np.int64)

    def run_spk(self) -> None:
        self.tick_out.send(self.passing)
        word = self.listen()
        if word[0]:
            self.observe(*read_word(word))
        else:  # between ticks a neuron is silent and holds its state
            self.passing = IDLE
            self.s_out.send(self.silence[:-1])
            self.u_out.send(self.silence)

    def listen(self) -> np.ndarray:
        """Add up what the synapses bring; returns the tick word of this step."""
        if self.index > 0:
            self.a_sum += self.a_in.recv()
            return self.tick_in.recv()
        heard = self.a_in.recv()
        self.a_sum += heard[:-1]
        return heard[-1:] // TICK_WEIGHT

    def observe(self, t: int, hit: int) -> None:
        """One observation. Spikes go out before the guard is asked: the next layer's synapses wait for them."""
        if t == 1:
            self.u[:] = 0
            self.s[:] = 0
        self.u, self.s = self.step()
        self.s_out.send(self.s)
        self.a_sum[:] = 0
        self.passing = tick_word(t, hit or self.first_hit(t))
        self.u_out.send(np.concatenate([self.u, self.passing]))

    def first_hit(self, t: int) -> int:
        """The word of this layer's first guard hit, 0 for none. Bands are at most t - 1 wide: one look mostly does."""
        clear = np.abs(self.u - self.theta_fire_int).min() >= t - 1 and np.abs(self.u).max() < STATE_MAX
        if clear:
            return 0
        near = hits(self.u, self.theta_fire_int, GuardBand(self.guard_width, self.guard_one_sided), t)
        return int(hit_words(near[None], self.index)[0])

    def step(self) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError


@implements(proc=SoftLIF, protocol=LoihiProtocol)
@requires(CPU)
@tag("fixed_pt")
class PySoftLIFFixed(PySoftLIFModel):
    """The integer step, bit for bit that of every other engine."""

    a_in = LavaPyType(PyInPort.VEC_DENSE, np.int32, precision=24)
    tick_in = LavaPyType(PyInPort.VEC_DENSE, np.int64)
    tick_out = LavaPyType(PyOutPort.VEC_DENSE, np.int64)
    s_out = LavaPyType(PyOutPort.VEC_DENSE, np.int32, precision=1)
    u_out = LavaPyType(PyOutPort.VEC_DENSE, np.int64, precision=24)
    bias_int = LavaPyType(np.ndarray, np.int64, precision=24)
    lambda_int = LavaPyType(np.ndarray, np.int64, precision=12)
    theta_int = LavaPyType(np.ndarray, np.int64, precision=24)
    theta_fire_int = LavaPyType(np.ndarray, np.int64, precision=24)
    guard_width = LavaPyType(np.ndarray, np.int64, precision=16)
    guard_one_sided = LavaPyType(np.ndarray, bool, precision=1)
    a_sum = LavaPyType(np.ndarray, np.int64, precision=32)
    u = LavaPyType(np.ndarray, np.int64, precision=24)
    s = LavaPyType(np.ndarray, np.int64, precision=1)

    def step(self) -> tuple[np.ndarray, np.ndarray]:
        aligned = (self.a_sum << self.shift) + self.bias_int  # int64: int32 would wrap
        return step_int(self.u, self.s, aligned, self.lambda_int, self.theta_int, self.theta_fire_int)


@implements(proc=SoftLIF, protocol=LoihiProtocol)
@requires(CPU)
@tag("floating_pt")
class PySoftLIFFloat(PySoftLIFModel):
    """The same neuron, in the same units, without truncation and saturation: the guard's reference in float64."""

    a_in = LavaPyType(PyInPort.VEC_DENSE, float)
    tick_in = LavaPyType(PyInPort.VEC_DENSE, np.int64)
    tick_out = LavaPyType(PyOutPort.VEC_DENSE, np.int64)
    s_out = LavaPyType(PyOutPort.VEC_DENSE, float)
    u_out = LavaPyType(PyOutPort.VEC_DENSE, float)
    bias_int = LavaPyType(np.ndarray, float)
    lambda_int = LavaPyType(np.ndarray, float)
    theta_int = LavaPyType(np.ndarray, float)
    theta_fire_int = LavaPyType(np.ndarray, float)
    guard_width = LavaPyType(np.ndarray, np.int64)
    guard_one_sided = LavaPyType(np.ndarray, bool)
    a_sum = LavaPyType(np.ndarray, float)
    u = LavaPyType(np.ndarray, float)
    s = LavaPyType(np.ndarray, float)

    def step(self) -> tuple[np.ndarray, np.ndarray]:
        synaptic = self.a_sum * 2.0**self.shift + self.bias_int
        lam = self.lambda_int / 2.0**LEAK_BITS
        return step_float(self.u, self.s, synaptic, lam, self.theta_int, self.theta_fire_int)
