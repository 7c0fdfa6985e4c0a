"""The Lava side of a session: builds the network, runs it, tells `session.py` how it went, in its own interpreter.

Lava hangs for ever when a model raises before it sends or when an actor dies, and leaves processes and shared memory
behind when its parent dies. So this leader
- wraps the models' phases and their construction: a failure is told at once, through a pipe that the actors inherit;
- watches the actors' exit codes;
- reads its stdin: the end of it means that the supervisor is gone, and the whole process group ends itself;
- has the kernel kill every actor whose parent dies (PR_SET_PDEATHSIG, set at fork);
- gives its shared-memory segments a prefix of their own, so that they can be found and removed.

Some of this hangs on names that Lava does not promise; `demand_lava` compares them before anything starts.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import json
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import numpy as np

import asp_neuro.chip.needs_lava  # noqa: F401

# isort: split
from lava.magma.compiler.builders.py_builder import PyProcessBuilder
from lava.magma.core.model.py.model import PyLoihiProcessModel
from lava.magma.core.run_conditions import RunSteps
from lava.magma.core.run_configs import Loihi2SimCfg
from lava.magma.runtime.message_infrastructure.multiprocessing import MultiProcessing, SystemProcess
from lava.magma.runtime.runtime import Runtime

from asp_neuro.chip.faults import plant_fault
from asp_neuro.chip.processes.head import HeadProcess
from asp_neuro.chip.processes.host import Host
from asp_neuro.chip.processes.recorder import Recorder
from asp_neuro.chip.processes.stock_host import StockHost
from asp_neuro.chip.processes.stock_layers import build_layers
from asp_neuro.chip.wire import Job, read_job, to_line
from asp_neuro.heads.spec import STOCK
from asp_neuro.model.episode import Request, Response
from asp_neuro.model.perceiver import Perceiver

PHASES = {"_spike": "spiking", "_pre_mgmt": "pre-management", "_lrn": "learning", "_post_mgmt": "post-management"}
FOREVER = 2**40  # time steps; the Host ends the run
WATCH_SECONDS = 0.1
TEXT_MOST = 2500  # characters of a traceback in a report: a pipe takes 4096 bytes in one piece
PR_SET_PDEATHSIG = 1
SHARED_MEMORY = Path("/dev/shm")


class Reporter:
    """Writes reports, JSON lines of less than 4096 bytes, so that several processes can share the pipe."""

    def __init__(self, file: int) -> None:
        self.file = file

    def __call__(self, **report: object) -> None:
        os.write(self.file, (json.dumps(report) + "\n").encode())

    def failure(self, error: BaseException, phase: str, model: str = "", process: str = "", step: int = 0) -> None:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        message = f"{type(error).__name__}: {error}"[:500]
        self(failure=message, phase=phase, model=model, process=process, step=step, trace=text[-TEXT_MOST:])


RunJob = Callable[[Job, Reporter, int, list[int]], None]


def lead(given: dict[str, Any], started: float, run: RunJob | None = None) -> None:
    """The whole life of a session; `given` are the supervisor's settings, `started` its clock before the imports.

    `run` builds and runs the network: the simulator's below, or the chip's in `loihi2.py`.
    """
    report = Reporter(given["report"])
    report(phase="building", import_seconds=time.monotonic() - started)
    try:
        demand_lava()
        guard_processes(given["prefix"])
        with os.fdopen(given["job"], "rb") as file:
            job = read_job(file)
        (run or run_simulator)(job, report, given["results"], given["records"])
    except Exception as error:
        report.failure(error, phase="session")
        raise SystemExit(1) from error


def demand_lava() -> None:
    """Refuse a Lava, or a Python, that lacks the private names used here."""
    needed = {
        "PyLoihiProcessModel phases": all(hasattr(PyLoihiProcessModel, name) for name in PHASES),
        "PyLoihiProcessModel._req_pause": "_req_pause" in PyLoihiProcessModel.__init__.__code__.co_names,
        "PyProcessBuilder.build": hasattr(PyProcessBuilder, "build"),
        "Runtime._messaging_infrastructure": "_messaging_infrastructure" in Runtime.__init__.__code__.co_names,
        "MultiProcessing.actors": hasattr(MultiProcessing, "actors"),
        "SystemProcess.exitcode": hasattr(SystemProcess, "exitcode"),
        "shared_memory._SHM_NAME_PREFIX": hasattr(shared_memory, "_SHM_NAME_PREFIX"),
        "shared_memory._SHM_SAFE_NAME_LENGTH": hasattr(shared_memory, "_SHM_SAFE_NAME_LENGTH"),
    }
    missing = [name for name, found in needed.items() if not found]
    if missing:
        raise RuntimeError(f"made for lava-nc 0.10.0 on Python 3.10; here these are missing: {', '.join(missing)}")


def guard_processes(prefix: str) -> None:
    """Own names for shared memory, actors that die with this process, and an end when the supervisor is gone."""
    shared_memory._SHM_NAME_PREFIX = f"/{prefix}"
    shared_memory._SHM_SAFE_NAME_LENGTH = len(prefix) + 1 + 16  # 8 random bytes behind the prefix
    leader = os.getpid()
    prctl = ctypes.CDLL(None).prctl

    def die_with_leader() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != leader:  # it died before the call
            os._exit(1)

    os.register_at_fork(after_in_child=die_with_leader)
    threading.Thread(target=_lifeline, args=(prefix,), daemon=True).start()


def _lifeline(prefix: str) -> None:
    """Blocks until the supervisor closes our stdin, by will or by dying; then nothing of this session stays."""
    os.read(0, 1)
    for child in multiprocessing.active_children():  # first, so that no segment is made after they are removed
        child.kill()
    for segment in SHARED_MEMORY.glob(f"{prefix}*"):
        segment.unlink(missing_ok=True)
    os.killpg(0, signal.SIGKILL)


def report_failures(report: Reporter, names: dict[int, str]) -> None:
    """Wrap construction and phases of every model, stock ones included, before the actors are forked."""

    def phase_of(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def phase(model: PyLoihiProcessModel) -> None:
            try:
                original(model)
            except Exception as error:
                process = names.get(model.model_id, "")
                report.failure(error, PHASES[name], type(model).__name__, process, model.time_step)
                raise

        return phase

    build = PyProcessBuilder.build

    @functools.wraps(build)
    def constructed(builder: PyProcessBuilder) -> Any:
        try:
            return build(builder)
        except Exception as error:
            process = names.get(builder._model_id, "")
            report.failure(error, "constructor", builder.proc_model.__name__, process)
            raise

    PyProcessBuilder.build = constructed
    for name in PHASES:
        setattr(PyLoihiProcessModel, name, phase_of(name, getattr(PyLoihiProcessModel, name)))


def run_simulator(job: Job, report: Reporter, results: int, records: list[int]) -> None:
    """Build, compile, run to the end of the story, stop."""
    clock = time.monotonic()
    names: dict[int, str] = {}
    plant_fault(PyProcessBuilder)
    report_failures(report, names)
    host = network(job, results, records)
    config = Loihi2SimCfg(select_tag=job.tag, select_sub_proc_model=True)
    executable = host.compile(config)
    names.update({process.id: process.name for process in executable.proc_builders})
    compiled = time.monotonic()
    host.create_runtime(executable=executable)
    actors = [*names.values(), *itertools.repeat("runtime service", len(executable.runtime_service_builders))]
    running = time.monotonic()
    report(phase="running", compile_seconds=compiled - clock, start_seconds=running - compiled)
    with Watch(host.runtime, actors, report):
        host.run(RunSteps(num_steps=FOREVER))
    ran = time.monotonic()
    host.stop()
    report(done=True, run_seconds=ran - running, stop_seconds=time.monotonic() - ran)


class Watch:
    """Tells when an actor has ended although the run has not."""

    def __init__(self, runtime: Runtime, names: list[str], report: Reporter) -> None:
        self.actors = list(zip(runtime._messaging_infrastructure.actors, names, strict=True))
        self.report = report
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def look(self) -> None:
        while not self.over.wait(WATCH_SECONDS):
            for actor, name in self.actors:
                code = actor.exitcode
                if code is not None:
                    text = f"its process {actor.pid} ended with code {code}"
                    self.report(failure=text, phase="running", model="", process=name, step=0, trace="")
                    return


def network(job: Job, results: int, records: list[int]) -> Host | StockHost:
    """Host and head in a closed loop, by form of neuron."""
    return stock_network(job, results, records) if job.head.form == STOCK else ticked_network(job, results, records)


def stock_network(job: Job, results: int, records: list[int]) -> StockHost:
    """Stock processes and the host, which reads and resets membranes, and records them if that is wanted."""
    host = StockHost(job.head, job.n_steps, job.drive_bound, told(job, results), records)
    layers = build_layers(job.head)
    host.drive_out.connect(layers[0].synapses.s_in)
    for number, layer in enumerate(layers, start=1):
        getattr(host, f"u_{number}").connect_var(layer.neurons.u)
        if records:
            layer.neurons.s_out.connect(getattr(host, f"s_{number}"))
    return host


def told(job: Job, results: int) -> Callable[[], Generator[Request, Response, None]]:
    """The story of a job."""
    return functools.partial(answer_scenes if job.scenes is not None else play_drives, job, results)


def ticked_network(job: Job, results: int, records: list[int]) -> Host:
    """With a recorder at each layer if records are wanted."""
    width = job.head.layers[-1].n_neurons
    head = HeadProcess(job.head, job.n_steps, job.drive_bound, taps=bool(records))
    host = Host(job.head.n_inputs, width, told(job, results), functools.partial(pauses, job))
    host.drive_out.connect(head.drive_in)
    head.u_out.connect(host.u_in)
    for number, file in enumerate(records, start=1):
        recorder = Recorder(width, number, file)
        getattr(head, f"u_tap_{number}").connect(recorder.u_in)
        getattr(head, f"s_tap_{number}").connect(recorder.s_in)
    return host


def pauses(job: Job) -> Iterator[int]:
    """Idle steps before each observation."""
    if job.idle_seed is None:
        return itertools.repeat(job.idle)
    rng = np.random.default_rng(job.idle_seed)
    return (int(rng.integers(job.idle + 1)) for _ in itertools.count())


def answer_scenes(job: Job, results: int) -> Generator[Request, Response, None]:
    """One scene after the other through the episode generator; each answer leaves as soon as it is known."""
    assert job.model is not None
    perceiver = Perceiver(job.model, job.exit_rule)
    for index in range(len(job.scenes)):
        one = slice(index, index + 1)
        order = None if job.order is None else job.order[one]
        answers = yield from perceiver.story(job.scenes[one], order=order)
        _write(results, to_line(answers[0]))


def play_drives(job: Job, results: int) -> Generator[Request, Response, None]:
    """Given drives instead of clouds; a line per cloud shows that the run moves on."""
    drives = job.drives_int
    assert drives is not None
    for cloud in range(drives.shape[1]):
        for t in range(len(drives)):
            yield Request(drives[t, cloud : cloud + 1], None if t == 0 else np.zeros(1, dtype=np.intp))
        _write(results, to_line({"cloud": cloud, "clock": time.monotonic()}))


def _write(file: int, line: bytes) -> None:
    view = memoryview(line)
    while view:
        view = view[os.write(file, view) :]
