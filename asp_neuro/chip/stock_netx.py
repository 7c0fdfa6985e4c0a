"""A bundle of the stock form in stock NetX: `lava.lib.dl.netx.hdf5.Network` builds the network, nothing here does.

Drives go in as pulses, one every N time steps, one scene after the other; probes show what every layer does. Between
scenes the head is put to rest as on a chip: every current far below its threshold for one step, which swallows the
spikes under way, and then to 0.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from lava.lib.dl import netx
from lava.magma.core.run_conditions import RunSteps
from lava.magma.core.run_configs import Loihi2SimCfg
from lava.proc.io.source import RingBuffer
from lava.proc.monitor.process import Monitor

from asp_neuro.chip.processes.stock_host import FAR_BELOW
from asp_neuro.chip.simulator import Reporter, report_failures
from asp_neuro.chip.simulator import lead as lead_session
from asp_neuro.chip.stock_shadow import message
from asp_neuro.chip.wire import Job, to_line
from asp_neuro.heads.spec import HeadSpec

ARRIVAL = 1  # time steps from a pulse to layer 1: Dense keeps it for one
REST = 1  # further steps between scenes


def lead(given: dict[str, Any], started: float) -> None:
    """The whole life of a session, as on the simulator."""
    lead_session(given, started, run)


def run(job: Job, report: Reporter, results: int, records: list[int]) -> None:
    """Load the file, play all drives, write what was seen at each reading."""
    assert job.drives_int is not None
    assert job.net_config is not None
    clock, n_clouds = time.monotonic(), job.drives_int.shape[1]
    report_failures(report, {})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.net"
        file.write_bytes(job.net_config.tobytes())
        net = netx.hdf5.Network(net_config=str(file), input_message_bits=16)
    pulses = schedule(job.head, job.drives_int)
    probes = probe(net, job.head, pulses.shape[1])
    source = RingBuffer(data=pulses)
    source.s_out.connect(net.inp)
    report(phase="running", compile_seconds=time.monotonic() - clock)
    length = pulses.shape[1] // n_clouds
    for cloud in range(n_clouds):
        net.run(RunSteps(num_steps=length - REST), Loihi2SimCfg(select_tag="fixed_pt"))
        put(net, job.head, FAR_BELOW)
        net.run(RunSteps(num_steps=REST), Loihi2SimCfg(select_tag="fixed_pt"))
        put(net, job.head, 0)
        os.write(results, to_line({"cloud": cloud}))
    seen = [[shown(monitor) for monitor in pair] for pair in probes]
    net.stop()
    write_frames(job, seen, length, records)
    report(done=True, run_seconds=time.monotonic() - clock)


def schedule(head: HeadSpec, drives_int: np.ndarray) -> np.ndarray:
    """What layer 1 is sent, [n + 1, time steps]: for each scene its pulses, the last one's arrival, and the rest."""
    n_pulses, n_clouds = drives_int.shape[:2]
    pulses = np.zeros((n_clouds, n_pulses * head.steps + ARRIVAL + REST, head.n_inputs + 1), dtype=np.int32)
    for cloud in range(n_clouds):
        for t in range(n_pulses):
            pulses[cloud, t * head.steps] = message(drives_int[t, cloud])
    return np.ascontiguousarray(pulses.reshape(-1, pulses.shape[2]).T)


def probe(net: Any, head: HeadSpec, n_steps: int) -> list[tuple[Monitor, Monitor]]:
    """For each layer a probe of its currents and one of its spikes."""
    probes = [(Monitor(), Monitor()) for _ in head.layers]
    for layer, (membranes, spikes) in zip(net.layers, probes, strict=True):
        membranes.probe(layer.neuron.u, n_steps)
        spikes.probe(layer.neuron.s_out, n_steps)
    return probes


def put(net: Any, head: HeadSpec, current: int) -> None:
    for layer in net.layers:
        layer.neuron.u.set(np.full(head.layers[0].n_neurons, current))


def shown(monitor: Monitor) -> np.ndarray:
    """[time steps, H]"""
    return np.asarray(next(iter(next(iter(monitor.get_data().values())).values())))


def write_frames(job: Job, seen: list[list[np.ndarray]], length: int, records: list[int]) -> None:
    """As the recorders of the simulator: membranes, a word, spikes, one frame per observation."""
    assert job.drives_int is not None
    n_pulses, n_clouds = job.drives_int.shape[:2]
    first = ARRIVAL + job.head.read_after
    read = (np.arange(n_clouds)[:, None] * length + first + np.arange(n_pulses) * job.head.steps).ravel()
    for file, (membranes, spikes) in zip(records, seen, strict=True):
        frames = np.concatenate([membranes[read], np.ones((len(read), 1)), spikes[read]], axis=1)
        with os.fdopen(os.dup(file), "wb") as out:
            out.write(frames.astype(np.float64).tobytes())
