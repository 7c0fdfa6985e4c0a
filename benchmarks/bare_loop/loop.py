"""A bare Lava loop: as many processes as the head's session has, as wide, and no work in them. Prints seconds per step.

    python benchmarks/bare_loop/loop.py LAYERS WIDTH STEPS

One ring of vectors, host -> synapses -> neurons -> ... -> host, in the order of Lava's own processes: synapses send
what they kept and then receive, as Dense does, the others receive and then send, as LIF does. The head has channels for
its ticks besides. Lava executes every file beside a process's module, hence a folder for this one.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from lava.magma.core.decorator import implements, requires
from lava.magma.core.model.py.model import PyLoihiProcessModel
from lava.magma.core.model.py.ports import PyInPort, PyOutPort
from lava.magma.core.model.py.type import LavaPyType
from lava.magma.core.process.ports.ports import InPort, OutPort
from lava.magma.core.process.process import AbstractProcess
from lava.magma.core.resources import CPU
from lava.magma.core.run_conditions import RunSteps
from lava.magma.core.run_configs import Loihi2SimCfg
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol

STEPS_PER_CLOCK = 32


class Relay(AbstractProcess):
    """Receives a vector and sends one; the one with `n_steps` also keeps the time and ends the run."""

    def __init__(self, width: int, sends_first: bool, n_steps: int = 0) -> None:
        super().__init__(width=width, sends_first=sends_first, n_steps=n_steps)
        self.inp = InPort(shape=(width,))
        self.out = OutPort(shape=(width,))


@implements(proc=Relay, protocol=LoihiProtocol)
@requires(CPU)
class PyRelay(PyLoihiProcessModel):
    inp = LavaPyType(PyInPort.VEC_DENSE, np.int32)
    out = LavaPyType(PyOutPort.VEC_DENSE, np.int32)

    def __init__(self, proc_params) -> None:
        super().__init__(proc_params)
        self.vector = np.zeros(proc_params["width"], dtype=np.int32)
        self.sends_first = proc_params["sends_first"]
        self.n_steps = proc_params["n_steps"]
        self.clocks: list[float] = []

    def run_spk(self) -> None:
        if self.sends_first:
            self.out.send(self.vector)
            self.inp.recv()
        else:
            self.inp.recv()
            self.out.send(self.vector)
        if self.n_steps and self.time_step % STEPS_PER_CLOCK == 0:
            self.clocks.append(time.monotonic())
        if self.time_step == self.n_steps:
            print(np.quantile(np.diff(self.clocks), 0.25) / STEPS_PER_CLOCK, flush=True)
            self._req_pause = True


def main(n_layers: int, width: int, n_steps: int) -> None:
    layers = [Relay(width, sends_first) for _ in range(n_layers) for sends_first in (True, False)]
    ring = [Relay(width, False, n_steps), *layers]
    for one, other in zip(ring, [*ring[1:], ring[0]], strict=True):
        one.out.connect(other.inp)
    ring[0].run(RunSteps(num_steps=2 * n_steps), Loihi2SimCfg())
    ring[0].stop()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
