"""The Lava side of a session on Loihi 2 with a head of stock processes: no model of ours is needed on the chip.

Written from public facts (docs/loihi2.md); no chip has run it. What a chip might refuse is tried in turn: if the
network does not compile with ports that write to the neurons' state, it is built without them, and the head is put to
rest in one of the other ways (`processes/stock_chip_host.py`).
"""

from __future__ import annotations

import itertools
import os
import time
from typing import Any, NamedTuple

import numpy as np
from lava.magma.compiler.compiler_utils import split_proc_builders_by_type
from lava.magma.core.run_conditions import RunSteps
from lava.magma.core.run_configs import Loihi2HwCfg
from lava.proc.lif.process import LIF

from asp_neuro.chip.loihi2 import demand_on_chip, profilers, use_board, write_profile
from asp_neuro.chip.processes.stock_chip_host import LONGEST, ORDER, WAYS, WRITE, StockChipHost
from asp_neuro.chip.processes.stock_host import FAR_BELOW
from asp_neuro.chip.processes.stock_layers import build_layers
from asp_neuro.chip.simulator import Reporter, Watch, report_failures, told
from asp_neuro.chip.wire import Job
from asp_neuro.heads.stock.ranges import SILENCE_MAX

DRIVE_MESSAGE_BITS = 16
WAYS_VARIABLE = "ASP_NEURO_RESET"  # "silence", or "set,silence": the ways to reset that may be tried


class Network(NamedTuple):
    host: StockChipHost
    neurons: list[LIF]


def run(job: Job, report: Reporter, results: int) -> None:
    """Take the board, build, compile, see that the head is on the chip, start; the host proves the chip first."""
    clock = time.monotonic()
    use_board()
    names: dict[int, str] = {}
    report_failures(report, names)
    read_orders, write_orders = os.pipe()
    os.set_blocking(read_orders, False)
    os.set_inheritable(write_orders, True)
    n_steps = most_steps(job)
    probes = profilers(n_steps)
    net, executable = compiled(job, results, write_orders, probes)
    demand_on_chip(executable)
    on_host = split_proc_builders_by_type(executable.proc_builders)[0]
    names.update({process.id: process.name for process in on_host})
    done = time.monotonic()
    net.host.create_runtime(executable=executable)
    actors = [*names.values(), *itertools.repeat("runtime service", len(executable.runtime_service_builders))]
    running = time.monotonic()
    report(phase="running", compile_seconds=done - clock, start_seconds=running - done)
    with Watch(net.host.runtime, actors, report):
        play(net, read_orders, n_steps)
    ran = time.monotonic()
    net.host.stop()
    write_profile(probes)
    report(done=True, run_seconds=ran - running, stop_seconds=time.monotonic() - ran)


def most_steps(job: Job) -> int:
    """An upper bound of a run: golden pulses, observations, and the slowest reset between scenes."""
    return (job.n_clouds + 4) * (job.n_steps * job.head.steps + SILENCE_MAX) + 4 * LONGEST


def compiled(job: Job, results: int, orders: int, probes: dict[str, Any]) -> tuple[Network, Any]:
    """The network and its executable, with ports that write to the neurons if they can be compiled."""
    asked = os.environ.get(WAYS_VARIABLE)
    ways = tuple(asked.split(",")) if asked else WAYS
    config = Loihi2HwCfg(select_sub_proc_model=True, callback_fxs=list(probes.values()))
    if WRITE in ways:
        try:
            net = network(job, results, orders, ways)
            return net, net.host.compile(config)
        except Exception:  # whatever the compiler says to a port into a neuro core's state: there are other ways
            ways = tuple(way for way in ways if way != WRITE)
    net = network(job, results, orders, ways)
    return net, net.host.compile(config)


def network(job: Job, results: int, orders: int, ways: tuple[str, ...]) -> Network:
    """Host, adapter, layers, and a reader of the last layer's current."""
    from lava.proc import embedded_io as eio
    from lava.proc.embedded_io.state import Read

    head = job.head
    host = StockChipHost(head, job.n_steps, job.drive_bound, told(job, results), ways, orders)
    layers = build_layers(head)
    entry = layers[0].synapses.s_in
    drives = eio.spike.PyToNxAdapter(shape=entry.shape, num_message_bits=DRIVE_MESSAGE_BITS)
    host.drive_out.connect(drives.inp)
    drives.out.connect(entry)
    read = Read(shape=(head.n_neurons,), interval=1, offset=0)
    read.connect_var(layers[-1].neurons.u)
    read.out.connect(host.u_in)
    for number, layer in enumerate(layers, start=1) if WRITE in ways else ():
        getattr(host, f"u_{number}").connect_var(layer.neurons.u)
    return Network(host, [layer.neurons for layer in layers])


def play(net: Network, orders: int, n_steps: int) -> None:
    """Run; where the host asks for it, set the neurons' state between two runs."""
    net.host.run(RunSteps(num_steps=n_steps))
    while _was_asked(orders):
        _set(net.neurons, FAR_BELOW)
        net.host.run(RunSteps(num_steps=1))
        _set(net.neurons, 0)
        net.host.run(RunSteps(num_steps=n_steps))


def _was_asked(orders: int) -> bool:
    try:
        return os.read(orders, 1) == ORDER
    except BlockingIOError:
        return False


def _set(neurons: list[LIF], value: int) -> None:
    for one in neurons:
        one.u.set(np.full(one.u.shape, value))
