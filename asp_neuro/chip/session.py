"""Lava sessions, supervised: the head on Lava's CPU simulator, from a process that never imports Lava.

`simulate` answers clouds in a closed loop on Lava; `run_head` plays given drives and records every layer. Both start
a fresh interpreter (`heads/simulator.py`, the leader) in a process group of its own and wait for it. Whatever goes
wrong in there (an exception in any model, a killed or hanging process) and whatever happens here (an interrupt, a
termination, a deadline), the group is killed, its shared memory is removed, and a `SessionError` tells the cause.
Answers given until then stay given.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import IO, Any, NamedTuple

import numpy as np

from asp_neuro.chip.lava_limits import TICK_BITS, demand_buildable
from asp_neuro.chip.wire import FIXED, FLOATING, Job, from_line, write_job
from asp_neuro.errors import AspError, UsageError
from asp_neuro.heads.bits import DRIVE_MAX
from asp_neuro.heads.spec import STOCK, HeadSpec
from asp_neuro.libraries import demand
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.look import Answer
from asp_neuro.model.perceiver import Perceiver

POLL_SECONDS = 0.2
LEAVE_SECONDS = 2.0  # how long a killed group may take to be gone
TERMINATED = 143
SHARED_MEMORY = Path("/dev/shm")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Side(NamedTuple):
    """Which module leads the Lava side of a session, and the longest silence of it that is taken for work."""

    module: str
    stall_seconds: float

    @property
    def program(self) -> str:
        """What the leader's interpreter runs; it sees the modules that we see, whatever folder it is started in."""
        return (
            "import sys, time; started = time.monotonic(); import json; given = json.loads(sys.argv[1]); "
            f"sys.path[:] = given['path']; from {self.module} import lead; lead(given, started)"
        )


SIMULATOR = Side("asp_neuro.chip.simulator", 120.0)
NETX = Side("asp_neuro.chip.stock_netx", 300.0)


class SessionError(AspError):
    """A Lava session failed or took too long; `answers` were finished before."""

    kind = "session"
    exit_code = 6

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace
        self.answers: list[Any] = []


class LavaRun(NamedTuple):
    """What every layer did: arrays [T, L, b, H], int64 (float64 from the floating-point models), and hits [T, b]."""

    membranes: np.ndarray
    spikes: np.ndarray
    hits: np.ndarray  # first guard hit of each observation (`verdict.hit_place`), 0 for none


class CloudRun(NamedTuple):
    """What every layer did during one cloud: arrays [T, L, H] and hits [T], as in `LavaRun`."""

    membranes: np.ndarray
    spikes: np.ndarray
    hits: np.ndarray


@dataclass
class SessionOutput:
    """What a session brought: a result per cloud, a frame per observation and layer, and its own times in seconds."""

    results: list[Any] = field(default_factory=list)
    frames: list[np.ndarray] = field(default_factory=list)  # per layer [n, 2 H + 1]: membranes, tick word, spikes
    seconds: dict[str, float] = field(default_factory=dict)


def simulate(
    perceiver: Perceiver,
    scenes: Any,
    exit_rule: ExitRule | None = None,
    *,
    order: np.ndarray | None = None,
    idle: int = 0,
    idle_seed: int | None = None,
    deadline: float | None = None,
    on_answer: Callable[[int, Answer], None] | None = None,
    record: list[CloudRun] | None = None,
    tag: str = FIXED,
    side: Side = SIMULATOR,
) -> list[Answer]:
    """The answers of a batch of scenes on Lava, bit for bit those of `perceiver.answers`.

    `on_answer(index, answer)` is called as soon as a cloud is done; `record` is a list that takes a CloudRun per
    cloud. `idle` adds time steps between observations, with `idle_seed` 0..idle at random: neither changes anything.
    `deadline` is in seconds for the whole session.
    """
    job = Job(
        head=perceiver.head,
        n_steps=perceiver.budget,
        model=perceiver.spec,
        scenes=scenes,
        exit_rule=perceiver.exit_rule if exit_rule is None else exit_rule,
        order=order,
        drive_bound=perceiver.spec.drive_bound(),
        tag=tag,
        idle=idle,
        idle_seed=idle_seed,
    )
    if not len(scenes):
        return []
    output = run_session(job, on_answer, deadline, record is not None, side)
    answers: list[Answer] = output.results
    if record is not None:
        ends = np.cumsum([answer.observations for answer in answers])
        for start, end in zip(ends - [answer.observations for answer in answers], ends, strict=True):
            record.append(CloudRun(*_unpack([frames[start:end] for frames in output.frames], tag)))
    return answers


def run_head(
    head: HeadSpec,
    drives_int: np.ndarray,
    *,
    tag: str = FIXED,
    idle: int = 0,
    idle_seed: int | None = None,
    deadline: float | None = None,
    net_config: bytes | None = None,
) -> LavaRun:
    """Drives [T, b, n] (whole numbers) through Lava, one cloud after the other: membranes and spikes of every layer.

    With `net_config`, the file of a bundle of the stock form, stock NetX builds the network from it.
    """
    drives = np.asarray(drives_int)
    if drives.ndim != 3 or drives.shape[2] != head.n_inputs or drives.size == 0:
        raise UsageError(f"drives of shape {list(drives.shape)}, expected [observations, clouds, {head.n_inputs}]")
    if np.abs(drives).max() > DRIVE_MAX:
        raise UsageError(f"drive {np.abs(drives).max()} exceeds {DRIVE_MAX}, the 16 bits of a drive")
    bound = np.abs(drives).max(axis=(0, 1)).astype(np.float64)
    job = Job(
        head=head,
        n_steps=len(drives),
        drives_int=drives.astype(np.int64),
        drive_bound=bound,
        tag=tag,
        idle=idle,
        idle_seed=idle_seed,
        net_config=None if net_config is None else np.frombuffer(net_config, dtype=np.uint8),
    )
    output = run_session(job, None, deadline, record=True, side=SIMULATOR if net_config is None else NETX)
    n_steps, batch = drives.shape[:2]
    membranes, spikes, hits = _unpack(output.frames, tag)  # [b T, L, H]
    by_step = (1, 2, 0, 3)  # [b, T, L, H] -> [T, L, b, H]
    shape = (batch, n_steps, *membranes.shape[1:])
    return LavaRun(
        membranes.reshape(shape).transpose(by_step),
        spikes.reshape(shape).transpose(by_step),
        hits.reshape(batch, n_steps).T,
    )


def _unpack(frames: Sequence[np.ndarray], tag: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Frames of each layer [n, 2 H + 1] -> membranes [n, L, H], spikes [n, L, H], hits [n]."""
    dtype = np.int64 if tag == FIXED else np.float64
    stacked = np.stack(frames, axis=1)  # [n, L, 2 H + 1]
    width = stacked.shape[2] // 2
    membranes, spikes = stacked[..., :width].astype(dtype), stacked[..., width + 1 :].astype(dtype)
    return membranes, spikes, stacked[:, -1, width].astype(np.int64) >> TICK_BITS


def run_session(
    job: Job,
    on_result: Callable[[int, Any], None] | None = None,
    deadline: float | None = None,
    record: bool = False,
    side: Side = SIMULATOR,
) -> SessionOutput:
    """Start the leader, hear it to its end, leave nothing behind."""
    if job.tag not in (FIXED, FLOATING):
        raise UsageError(f"model tag '{job.tag}' is not known; known: {FIXED}, {FLOATING}")
    if job.idle < 0:
        raise UsageError(f"idle steps {job.idle}, expected 0 or more")
    if job.head.form == STOCK and (job.idle or job.tag != FIXED):
        raise UsageError("a head of the stock form runs freely: no idle steps, and fixed_pt only")
    demand_buildable(job.head, job.n_steps, job.drive_bound)
    demand("lava.magma", "a Lava session (--backend=sim)")
    with ExitStack() as stack:
        records = [stack.enter_context(tempfile.TemporaryFile()) for _ in job.head.layers] if record else []
        stack.enter_context(_terminable())
        leader = stack.enter_context(_leader(job, records, side.program))
        hearing = Hearing(leader, job.n_clouds, on_result, deadline, side.stall_seconds)
        hearing.until_done()
        frame = 2 * job.head.layers[-1].n_neurons + 1
        for file in records:
            file.seek(0)
            hearing.output.frames.append(np.frombuffer(file.read(), dtype=np.float64).reshape(-1, frame))
        return hearing.output


class Leader(NamedTuple):
    """A running leader: its process, the pipes that it writes to, and where its prints go."""

    process: subprocess.Popen[bytes]
    reports: int
    results: int
    prints: IO[bytes]


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM unwind the stack where it would kill us on the spot."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def leave(*_: object) -> None:
        raise SystemExit(TERMINATED)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def _leader(job: Job, records: Sequence[IO[bytes]], program: str) -> Iterator[Leader]:
    """A fresh interpreter in a session of its own. Its stdin stays open as long as we live; the group ends with us."""
    prefix = f"asp{os.getpid():x}_{token_hex(3)}_"
    with ExitStack() as stack:
        job_file = stack.enter_context(tempfile.TemporaryFile())
        prints = stack.enter_context(tempfile.TemporaryFile())
        write_job(job_file, job)
        job_file.seek(0)
        reports, report_end = _pipe(stack)
        results, result_end = _pipe(stack)
        files = [job_file.fileno(), report_end, result_end, *(file.fileno() for file in records)]
        given = {"prefix": prefix, "path": sys.path, "job": files[0], "report": files[1], "results": files[2]}
        process = subprocess.Popen(
            [sys.executable, "-c", program, json.dumps(given | {"records": files[3:]})],
            stdin=subprocess.PIPE,
            stdout=prints,
            stderr=subprocess.STDOUT,
            pass_fds=files,
            start_new_session=True,
            env=os.environ | ONE_THREAD,
        )
        try:
            yield Leader(process, reports, results, prints)
        finally:
            _end(process, prefix)


def _pipe(stack: ExitStack) -> tuple[int, int]:
    reading, writing = os.pipe()
    stack.callback(os.close, reading)
    stack.callback(os.close, writing)
    os.set_blocking(reading, False)
    return reading, writing


def _end(process: subprocess.Popen[bytes], prefix: str) -> None:
    """Kill what is left of the group, then remove its shared memory (the tracker that would do it is killed too)."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
    patience = time.monotonic() + LEAVE_SECONDS
    while members(process.pid) and time.monotonic() < patience:
        time.sleep(0.01)
    for segment in SHARED_MEMORY.glob(f"{prefix}*"):
        segment.unlink(missing_ok=True)


def members(group: int) -> list[int]:
    """The living processes of a process group; one that is dead and waits to be reaped does not count."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                found.append(int(stat.parent.name))
    return found


class Hearing:
    """Hears a leader until it is done, and raises for everything else that can happen."""

    def __init__(
        self,
        leader: Leader,
        n_clouds: int,
        on_result: Callable[[int, Any], None] | None,
        deadline: float | None,
        stall_seconds: float,
    ) -> None:
        self.leader = leader
        self.stall_seconds = stall_seconds
        self.n_clouds = n_clouds
        self.on_result = on_result
        self.started = self.heard = time.monotonic()
        self.deadline = deadline
        self.output = SessionOutput()
        self.phase = "starting"
        self.done = False
        self.failure: dict[str, Any] | None = None
        self.rest = {leader.reports: b"", leader.results: b""}

    def until_done(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self.leader.reports, selectors.EVENT_READ)
            selector.register(self.leader.results, selectors.EVENT_READ)
            while not self.done:
                selector.select(POLL_SECONDS)
                gone = self._has_ended()  # asked first: what it wrote before it ended is read below
                self._hear()
                if self.done:
                    break
                if self.failure is not None:
                    raise self._error(**self.failure)
                if gone:
                    end = f"the leader ended with code {gone.si_status} during {self.phase}"
                    raise self._error(f"{end}; {self._last_words()}")
                self._look_at_clock()
        if len(self.output.results) != self.n_clouds:
            raise self._error(f"the session brought {len(self.output.results)} of {self.n_clouds} results")

    def _has_ended(self) -> Any:
        """Whether the leader has ended, without reaping it: its number must stay its own until the group is killed."""
        return os.waitid(os.P_PID, self.leader.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)

    def _hear(self) -> None:
        """All that the pipes hold. Reports first: who is done, or failed, has written every result before."""
        reports = self._lines(self.leader.reports)
        for line in self._lines(self.leader.results):
            result = from_line(line)
            self.output.results.append(result)
            self.heard = time.monotonic()
            if self.on_result is not None:
                self.on_result(len(self.output.results) - 1, result)
        for line in reports:
            self.heard = time.monotonic()
            self._note(json.loads(line))

    def _lines(self, pipe: int) -> list[bytes]:
        data = self.rest[pipe]
        with suppress(BlockingIOError):
            while block := os.read(pipe, 1 << 16):
                data += block
        *lines, self.rest[pipe] = data.split(b"\n")
        return lines

    def _note(self, report: dict[str, Any]) -> None:
        self.output.seconds |= {key: value for key, value in report.items() if key.endswith("_seconds")}
        if "failure" in report and self.failure is None:
            self.failure = _cause(**report)
        self.phase = report.get("phase", self.phase)
        self.done |= report.get("done", False)

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        progress = f"during {self.phase}, {len(self.output.results)} of {self.n_clouds} clouds done"
        if self.deadline is not None and now - self.started > self.deadline:
            raise self._error(f"the deadline of {self.deadline:g} s has passed {progress}")
        if now - self.heard > self.stall_seconds:
            raise self._error(f"nothing was heard for {self.stall_seconds:g} s {progress}")

    def _error(self, text: str, trace: str = "") -> SessionError:
        error = SessionError(f"Lava session: {text}", trace)
        error.answers = self.output.results
        return error

    def _last_words(self) -> str:
        self.leader.prints.seek(0)
        lines = self.leader.prints.read().decode(errors="replace").strip().splitlines()
        return f"its last words: {lines[-1]}" if lines else "it said nothing"


def _cause(failure: str, phase: str, model: str, process: str, step: int, trace: str) -> dict[str, str]:
    """A reported failure as a sentence: process, model, phase, time step, text."""
    who = " ".join(part for part in (process, f"({model})" if model else "") if part) or "the leader"
    where = f" at time step {step}" if step else ""
    return {"text": f"{who} failed in phase {phase}{where}: {failure}", "trace": trace}
