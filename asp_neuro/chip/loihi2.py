"""The Lava side of a session on Loihi 2: board, network with embedded I/O, compilation, proof that it is on the chip.

Written from public facts (docs/loihi2.md); no chip has run it. `preflight.py` has looked for everything before this
starts. Modules of Intel's extension are imported inside the functions that need them. What goes wrong here reaches
the supervisor as the errors of `preflight.py`, and always before the first time step.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import asp_neuro.chip.needs_lava  # noqa: F401

# isort: split
from lava.magma.compiler.compiler_utils import split_proc_builders_by_type
from lava.magma.compiler.executable import Executable
from lava.magma.core.process.process import AbstractProcess
from lava.magma.core.run_conditions import RunSteps
from lava.magma.core.run_configs import Loihi2HwCfg
from lava.proc.dense.process import Dense
from lava.proc.lif.process import LIF
from lava.utils import loihi

from asp_neuro.chip.preflight import MODELS, PROFILE, SOFT_LIF, NoBoard, NotExpressible, OnHost, demand_neuron_model
from asp_neuro.chip.processes.chip_host import MESSAGE_BITS, ChipHost
from asp_neuro.chip.processes.head import synapses
from asp_neuro.chip.processes.soft_lif import SoftLIF
from asp_neuro.chip.simulator import (
    Reporter,
    Watch,
    answer_scenes,
    pauses,
    play_drives,
    report_failures,
)
from asp_neuro.chip.simulator import lead as lead_session
from asp_neuro.chip.wire import Job
from asp_neuro.heads.soft.guard import bands
from asp_neuro.heads.spec import STOCK

STEPS_PER_OBSERVATION = 64  # at most: the way in and out, the layers and what ChipHost waits are about 10
NAMED_MOST = 4  # processes in an error's text
BOARD_VARIABLES = ("BOARD", "PARTITION", "LOIHI_GEN", "SLURM", "NXSDKHOST", "HOST_BINARY")
MEASURED = {  # profilers of the extension, by class, and the results that public notebooks read from them
    "Loihi2Power": ("total_power", "static_total_power", "vdd_power", "vddm_power", "vddio_power"),  # W
    "Loihi2ExecutionTime": ("avg_time_per_step", "execution_time_per_step"),  # us
}


def lead(given: dict[str, Any], started: float) -> None:
    """The whole life of a session, as on the simulator."""
    lead_session(given, started, run)


def run(job: Job, report: Reporter, results: int, _records: list[int]) -> None:
    """Take the board, build, compile, see that the head is on the chip, and only then start."""
    if job.head.form == STOCK:
        from asp_neuro.chip import stock_loihi2

        return stock_loihi2.run(job, report, results)
    clock = time.monotonic()
    use_board()
    neuron = neuron_model()
    names: dict[int, str] = {}
    report_failures(report, names)
    host = network(job, results, hits=getattr(neuron, "reports_guard_hits", False))
    n_steps = job.n_clouds * job.n_steps * (STEPS_PER_OBSERVATION + job.idle)
    probes = profilers(n_steps)
    config = Loihi2HwCfg(
        select_sub_proc_model=True,
        exception_proc_model_map={SoftLIF: neuron},
        callback_fxs=list(probes.values()),
    )
    executable = host.compile(config)
    demand_on_chip(executable)
    on_host = split_proc_builders_by_type(executable.proc_builders)[0]
    names.update({process.id: process.name for process in on_host})
    compiled = time.monotonic()
    host.create_runtime(executable=executable)
    actors = [*names.values(), *itertools.repeat("runtime service", len(executable.runtime_service_builders))]
    running = time.monotonic()
    report(phase="running", compile_seconds=compiled - clock, start_seconds=running - compiled)
    with Watch(host.runtime, actors, report):
        host.run(RunSteps(num_steps=n_steps))  # the Host ends it earlier
    ran = time.monotonic()
    host.stop()
    write_profile(probes)
    report(done=True, run_seconds=ran - running, stop_seconds=time.monotonic() - ran)


def use_board() -> None:
    """Tell Lava which board `preflight.choose_board` chose.

    `use_slurm_host` is called without arguments, as its search for a board or partition fails on the newline that
    ends the output of sinfo (lava-nc 0.10.0); it clears the variables, so they are set again.
    """
    chosen = {name: os.environ[name] for name in BOARD_VARIABLES if name in os.environ}
    try:
        if "SLURM" in chosen:
            loihi.use_slurm_host()
        else:
            loihi.use_ethernet_host(chosen["NXSDKHOST"], chosen["HOST_BINARY"])
    except (ValueError, OSError) as error:
        raise NoBoard(f"Lava refused the board that was found: {error}") from error
    os.environ.update(chosen)


def neuron_model() -> type:
    """The model of SoftLIF that an installed package offers."""
    from lava.magma.core.model.nc.model import AbstractNcProcessModel

    point = demand_neuron_model()
    place = f"entry point '{SOFT_LIF}' of '{MODELS}' ({point.value})"
    try:
        model = point.load()
    except Exception as error:
        raise NotExpressible(f"{place} cannot be loaded: {type(error).__name__}: {error}") from error
    if getattr(model, "implements_process", None) is not SoftLIF:
        raise NotExpressible(f"{place} is no model of {SoftLIF.__module__}.{SoftLIF.__name__}")
    if not issubclass(model, AbstractNcProcessModel):
        raise OnHost(f"{place} is no AbstractNcProcessModel: the neurons would run on the host, not on Loihi 2")
    return model


def network(job: Job, results: int, hits: bool) -> ChipHost:
    """Host, adapters and layers in a closed loop; the membrane is read from the last layer's state."""
    from lava.proc import embedded_io as eio
    from lava.proc.embedded_io.state import Read

    layers = job.head.layers
    width = layers[-1].n_neurons
    story = functools.partial(answer_scenes if job.scenes is not None else play_drives, job, results)
    host = ChipHost(job.head.n_inputs, width, story, functools.partial(pauses, job), hits)
    neurons: list[SoftLIF] = []
    for index, layer in enumerate(layers):
        dense = synapses(layer, index)
        lif = SoftLIF(layer, index, bands(layer, job.n_steps))
        if index == 0:
            drive_bits = int(dense.num_message_bits.init)  # both ends of a message must agree on its width
            drives = eio.spike.PyToNxAdapter(shape=dense.s_in.shape, num_message_bits=drive_bits)
            _through(drives, host.drive_out, dense.s_in)
        else:
            neurons[-1].tick_out.connect(lif.tick_in)
        for earlier in neurons:
            earlier.s_out.connect(dense.s_in)
        dense.a_out.connect(lif.a_in)
        neurons.append(lif)
    done = eio.spike.NxToPyAdapter(shape=(1,), num_message_bits=MESSAGE_BITS)
    _through(done, neurons[-1].tick_out, host.done_in)
    read = Read(shape=(width,), interval=1, offset=0)
    read.connect_var(neurons[-1].u)
    read.out.connect(host.u_in)
    return host


def _through(adapter: Any, source: Any, target: Any) -> None:
    source.connect(adapter.inp)
    adapter.out.connect(target)


def demand_on_chip(executable: Executable) -> None:
    """Refuse a compiled network in which a neuron or synapse got anything but a neuro core.

    Loihi2HwCfg alone is no guard: it takes a Python model where it finds no other.
    """
    from lava.magma.core.model.nc.model import AbstractNcProcessModel

    belonging = [process for process in executable.process_list if isinstance(process, (SoftLIF, LIF, Dense))]
    fallen = [process for process in belonging if not issubclass(process.model_class, AbstractNcProcessModel)]
    if fallen or not belonging:
        told = ", ".join(_described(process) for process in fallen[:NAMED_MOST])
        rest = f" and {len(fallen) - NAMED_MOST} more" if len(fallen) > NAMED_MOST else ""
        raise OnHost(
            f"{len(fallen)} of {len(belonging)} neuron and synapse processes would run on the host, not on Loihi 2: "
            f"{told}{rest}. The extension offers no model for them that runs on a neuro core; nothing was started"
        )


def _described(process: AbstractProcess) -> str:
    return f"{process.name} ({process.model_class.__name__})"


def profilers(n_steps: int) -> dict[str, Any]:
    """Time and power probes, those that the extension has."""
    from lava.utils import loihi2_profiler

    arguments = {"Loihi2Power": {"num_steps": n_steps}, "Loihi2ExecutionTime": {}}
    return {
        name: getattr(loihi2_profiler, name)(**arguments[name]) for name in MEASURED if hasattr(loihi2_profiler, name)
    }


def write_profile(probes: dict[str, Any]) -> None:
    """What the probes measured, to the file that $ASP_NEURO_PROFILE names; a result that cannot be had says why."""
    if not os.environ.get(PROFILE):
        return
    measured = {
        probe: {name: _measured(found, name) for name in MEASURED[probe] if name in dir(found)}
        for probe, found in probes.items()
    }
    Path(os.environ[PROFILE]).write_text(json.dumps(measured, indent=2) + "\n")


def _measured(probe: Any, name: str) -> Any:
    try:
        return np.asarray(getattr(probe, name), dtype=float).tolist()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
