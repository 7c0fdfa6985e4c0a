"""The head on Lava and a bare Lava loop, in turns within one interpreter. Prints seconds per time step, as JSON.

    python benchmarks/bare_loop/loop.py JOB ROUNDS STEPS_PER_TURN

The bare loop has as many processes, as wide, and no work in them: one ring of vectors, host -> synapses -> neurons ->
... -> host, in the order of Lava's own processes: synapses send what they kept and then receive, as Dense does, the
others receive and then send, as LIF does. The head has a channel for its ticks besides. A head of the stock form is
made of Lava's own processes, whose work is not ours: beside a loop of relays its bare loop is made of the same
processes, with a host that sends the same pulses and does nothing else. Turns of a fraction of a second make the ratio
robust against other work on the machine. Lava executes every file beside a process's module, hence a folder for this
one.
"""

from __future__ import annotations

import json
import os
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

from asp_neuro.chip.processes.stock_layers import build_layers
from asp_neuro.chip.simulator import network
from asp_neuro.chip.wire import Job, read_job
from asp_neuro.heads.spec import STOCK
from asp_neuro.heads.stock.membrane import CONSTANT


class Relay(AbstractProcess):
    """Receives a vector and sends one, in either order."""

    def __init__(self, width: int, sends_first: bool) -> None:
        super().__init__(width=width, sends_first=sends_first)
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

    def run_spk(self) -> None:
        if self.sends_first:
            self.out.send(self.vector)
            self.inp.recv()
        else:
            self.inp.recv()
            self.out.send(self.vector)


def bare_loop(n_layers: int, width: int) -> Relay:
    layers = [Relay(width, sends_first) for _ in range(n_layers) for sends_first in (True, False)]
    ring = [Relay(width, False), *layers]
    for one, other in zip(ring, [*ring[1:], ring[0]], strict=True):
        one.out.connect(other.inp)
    return ring[0]


def bare_stock_loop(n_layers: int, width: int) -> Relay:
    """As a head of the stock form: a host that sends, and for each layer synapses, neurons and their self-synapses."""
    host = last = Relay(width, True)
    for _ in range(n_layers):
        synapses, neurons, reset = Relay(width, True), Relay(width, False), Relay(width, True)
        for one, other in ((last, synapses), (synapses, neurons), (neurons, reset), (reset, neurons)):
            one.out.connect(other.inp)
        last = neurons
    return host


class Pulses(AbstractProcess):
    """Sends a drive with its constant every `n_steps` time steps, silence otherwise."""

    def __init__(self, drives: np.ndarray, n_steps: int) -> None:
        super().__init__(drives=drives, n_steps=n_steps)
        self.out = OutPort(shape=(drives.shape[1],))


@implements(proc=Pulses, protocol=LoihiProtocol)
@requires(CPU)
class PyPulses(PyLoihiProcessModel):
    out = LavaPyType(PyOutPort.VEC_DENSE, np.int32)

    def __init__(self, proc_params) -> None:
        super().__init__(proc_params)
        self.drives, self.n_steps = proc_params["drives"], proc_params["n_steps"]
        self.silence = np.zeros_like(self.drives[0])

    def run_spk(self) -> None:
        number, phase = divmod(self.time_step, self.n_steps)
        self.out.send(self.silence if phase else self.drives[number % len(self.drives)])


def same_processes(job: Job) -> Pulses:
    """The stock processes of a head, and a host without a story."""
    drives = np.pad(job.drives_int[:, 0], ((0, 0), (0, 1)), constant_values=CONSTANT).astype(np.int32)
    host = Pulses(drives, job.head.steps)
    host.out.connect(build_layers(job.head)[0].synapses.s_in)
    return host


def main(path: str, n_rounds: int, n_steps: int) -> None:
    with open(path, "rb") as file:
        job = read_job(file)
    size = len(job.head.layers), job.head.layers[0].n_neurons
    nets = {"head": network(job, os.open(os.devnull, os.O_WRONLY), [])}
    if job.head.form == STOCK:
        nets |= {"bare": same_processes(job), "relays": bare_stock_loop(*size)}
    else:
        nets |= {"bare": bare_loop(*size)}
    seconds: dict[str, list[float]] = {name: [] for name in nets}
    for _ in range(n_rounds + 1):
        for name, net in nets.items():
            started = time.perf_counter()
            config = Loihi2SimCfg(select_tag="fixed_pt", select_sub_proc_model=True)
            net.run(RunSteps(num_steps=n_steps), config)
            seconds[name].append((time.perf_counter() - started) / n_steps)
    for net in nets.values():
        net.stop()
    print(json.dumps({name: values[1:] for name, values in seconds.items()}))  # the first turn compiled


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
