"""StockChipHost: the host of a free-running head on a Loihi 2 chip. The chip proves itself before it answers.

1. The golden pulse: a known drive, and the stream of membranes that comes back. It tells how many time steps the way
   there and back takes, and whether the chip computes what the engines compute; if not, the session ends with both
   streams.
2. A reset and the pulse again. Ways to reset, the first that works is taken: `write` (RefPorts, as on the simulator),
   `set` (the run pauses and the leader sets the variables), `silence` (until every membrane has leaked to 0).
3. The story. Every reading is compared with the shadow engine's.

A drive is sent every N time steps; its reading is there `latency + p` steps later, before the next drive goes out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator
from pathlib import Path

import numpy as np
from lava.magma.core.decorator import implements, requires
from lava.magma.core.model.py.ports import PyInPort, PyOutPort, PyRefPort
from lava.magma.core.model.py.type import LavaPyType
from lava.magma.core.process.ports.ports import InPort, OutPort, RefPort
from lava.magma.core.process.process import AbstractProcess
from lava.magma.core.resources import CPU
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol

from asp_neuro.chip.preflight import PULSE
from asp_neuro.chip.processes.chip_host import sign_extended
from asp_neuro.chip.processes.stock_host import FAR_BELOW, MOST_LAYERS, Telling
from asp_neuro.chip.stock_shadow import Differs, Golden, TooLate, message
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.heads.stock.ranges import reach
from asp_neuro.model.episode import Request, Response

LONGEST = 24  # time steps of the way there and back that are waited for
WRITE, SET, SILENCE = WAYS = ("write", "set", "silence")
ORDER = b"s"  # to the leader: the run pauses so that variables can be set


class StockChipHost(AbstractProcess):
    """`ways`: how this session may reset; `orders`: a pipe to the leader, who sets variables between runs."""

    def __init__(
        self,
        head: HeadSpec,
        n_steps: int,
        drive_bound: np.ndarray | None,
        play: Callable[[], Generator[Request, Response, object]],
        ways: tuple[str, ...],
        orders: int,
    ) -> None:
        super().__init__(
            name="host", head=head, n_steps=n_steps, drive_bound=drive_bound, play=play, ways=ways, orders=orders
        )
        shape = (head.layers[0].n_neurons,)
        self.drive_out = OutPort(shape=(head.n_inputs + 1,))
        self.u_in = InPort(shape=shape)
        for number in range(1, MOST_LAYERS + 1):
            setattr(self, f"u_{number}", RefPort(shape=shape))


Script = Generator[np.ndarray | None, np.ndarray, None]  # yields what to send in a time step, is sent what came in it


@implements(proc=StockChipHost, protocol=LoihiProtocol)
@requires(CPU)
class PyStockChipHostModel(Telling):
    """What is done in which time step is one generator, `script`."""

    implements_process = None  # the decorator sets it

    u_in = LavaPyType(PyInPort.VEC_DENSE, np.int32, precision=24)
    drive_out = LavaPyType(PyOutPort.VEC_DENSE, np.int32, precision=16)
    u_1 = u_2 = u_3 = u_4 = u_5 = u_6 = u_7 = u_8 = LavaPyType(PyRefPort.VEC_DENSE, int)

    def __init__(self, proc_params) -> None:  # type: ignore[no-untyped-def]
        super().__init__(proc_params)
        self.bound, self.n_steps = proc_params["drive_bound"], proc_params["n_steps"]
        self.ways, self.orders = proc_params["ways"], proc_params["orders"]
        self.golden = Golden(self.head, self.bound, LONGEST)
        self.latency, self.way = 0, ""
        self.written: int | None = None  # what every membrane is written to at the end of this time step
        self.acting = self.script()
        next(self.acting)

    def run_spk(self) -> None:
        membrane = sign_extended(self.u_in.recv()).astype(np.int64)
        try:
            sent = self.acting.send(membrane)
        except StopIteration:
            sent, self._req_pause = None, True
        self.drive_out.send(self.silence if sent is None else sent)

    def post_guard(self) -> bool:
        return self.written is not None

    def run_post_mgmt(self) -> None:
        value, self.written = self.written, None
        for number in range(1, len(self.head.layers) + 1):
            port = getattr(self, f"u_{number}")
            port.write(np.full(self.head.layers[0].n_neurons, value))
            port.wait()

    def script(self) -> Script:
        """The whole session. What a yield gives back has come in the time step after the one that it sends in."""
        yield None
        yield from self.prove()
        while self.ask():
            assert self.request is not None
            if self.request.keep is None and self.is_dirty:
                yield from self.reset(self.way)
            drive = self.take()
            for step in range(self.wait):
                self.reading = yield drive if step == 0 else None
            assert self.reading is not None
            self.shadow.compare(self.reading)
            yield from self.pause(self.head.steps - self.wait)

    @property
    def wait(self) -> int:
        """Time steps from a drive to its reading."""
        return self.latency + self.head.read_after

    def prove(self) -> Script:
        """Latency and arithmetic by the golden pulse, then a way to reset by another."""
        found = yield from self.pulse()
        self.tell(found)
        self.latency = self.golden.latency(found)
        if self.wait > self.head.steps:
            raise TooLate(self.latency, self.head)
        for way in self.ways:
            yield from self.reset(way)
            yield from self.pause(self.latency + 1)  # what is still on its way back
            again = yield from self.pulse()
            if self.golden.fits(again, self.latency):
                self.way, self.is_dirty = way, True
                self.tell(found)
                return
        raise Differs(f"no way to put the neurons to rest works here; tried: {', '.join(self.ways)}")

    def pulse(self) -> Generator[np.ndarray | None, np.ndarray, np.ndarray]:
        """Send the golden drive; returns what came back, [K, H], from the step of sending on."""
        found = [np.zeros(self.head.n_neurons, dtype=np.int64)]
        for step in range(self.golden.length):
            found.append((yield message(self.golden.drive).astype(np.int32) if step == 0 else None))
        return np.array(found)

    def reset(self, way: str) -> Script:
        """All membranes far below their thresholds for one time step, which swallows spikes under way; then at 0."""
        if way == SILENCE:
            bound = np.full(self.head.n_inputs, 2.0**15) if self.bound is None else self.bound
            yield from self.pause(reach(self.head, None, bound, self.n_steps).silence)
        elif way == WRITE:
            for value in (FAR_BELOW, 0):
                self.written = value
                yield None
        else:
            os.write(self.orders, ORDER)
            self._req_pause = True
            yield from self.pause(2)  # the step of the pause, and the one between the leader's two settings

    def pause(self, n_steps: int) -> Script:
        for _ in range(n_steps):
            yield None

    def tell(self, found: np.ndarray) -> None:
        """What the golden pulse brought, to the file that $ASP_NEURO_PULSE names."""
        if os.environ.get(PULSE):
            streams = {"expected": self.golden.expected.tolist(), "read": found.tolist()}
            about = {"latency": self.latency, "reset": self.way, "steps": self.head.steps}
            told = {**about, "drive": self.golden.drive.tolist(), **streams}
            Path(os.environ[PULSE]).write_text(json.dumps(told) + "\n")
