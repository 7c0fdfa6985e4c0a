"""StockHost: plays episodes against a free-running head of stock processes, one pulse every N time steps.

A drive sent in step n reaches layer 1 in step n + 1, as Dense keeps it for a step; the last membrane is read p steps
after that, in the management phase, and the next drive follows in step n + N. Before a new scene the head is put to
rest in two steps: every membrane is written far below its threshold, which swallows the spikes under way, and then to
0. `RefPort.write` alone may come late; `wait` makes it sure.

The shadow engine runs on the same drives: it brings guard hits and compares every reading.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator

import numpy as np
from lava.magma.core.decorator import implements, requires
from lava.magma.core.model.py.model import PyLoihiProcessModel
from lava.magma.core.model.py.ports import PyInPort, PyOutPort, PyRefPort
from lava.magma.core.model.py.type import LavaPyType
from lava.magma.core.process.ports.ports import InPort, OutPort, RefPort
from lava.magma.core.process.process import AbstractProcess
from lava.magma.core.resources import CPU
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol

from asp_neuro.chip.lava_limits import TICK_BITS
from asp_neuro.chip.stock_shadow import Shadow, message
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.model.episode import Request, Response

MOST_LAYERS = 8  # Lava wants every port of a model declared
FAR_BELOW = -(2**22)


class StockHost(AbstractProcess):
    """`play` makes the generator of requests, batches of one; `records` are files for what each layer does."""

    def __init__(
        self,
        head: HeadSpec,
        n_steps: int,
        drive_bound: np.ndarray | None,
        play: Callable[[], Generator[Request, Response, object]],
        records: list[int],
    ) -> None:
        super().__init__(name="host", head=head, n_steps=n_steps, drive_bound=drive_bound, play=play, records=records)
        shape = (head.layers[0].n_neurons,)
        self.drive_out = OutPort(shape=(head.n_inputs + 1,))
        for number in range(1, MOST_LAYERS + 1):
            setattr(self, f"u_{number}", RefPort(shape=shape))
            setattr(self, f"s_{number}", InPort(shape=shape))


class Telling(PyLoihiProcessModel):
    """What hosts of free-running heads share: the story, its shadow, and the message of a drive."""

    def __init__(self, proc_params) -> None:  # type: ignore[no-untyped-def]
        super().__init__(proc_params)
        self.head: HeadSpec = proc_params["head"]
        self.shadow = Shadow(self.head, proc_params["n_steps"], proc_params["drive_bound"])
        self.story = proc_params["play"]()
        self.silence = np.zeros(self.head.n_inputs + 1, dtype=np.int32)
        self.request: Request | None = None
        self.begun = self.is_dirty = False
        self.reading: np.ndarray | None = None

    def ask(self) -> bool:
        """Tell the story what was read; whether it wants another observation."""
        response = None
        if self.begun:
            assert self.reading is not None
            response = Response(self.reading[None].astype(np.float64), self.shadow.hit)
        self.begun, self.reading = True, None
        try:
            self.request = self.story.send(response)
        except StopIteration:
            self._req_pause = True
            return False
        return True

    def take(self) -> np.ndarray:
        """The message of the request that waits."""
        assert self.request is not None
        request, self.request = self.request, None
        if request.keep is None:
            self.shadow.start()
        self.shadow.observe(request.drive_int[0])
        self.is_dirty = True
        return message(request.drive_int[0]).astype(np.int32)


@implements(proc=StockHost, protocol=LoihiProtocol)
@requires(CPU)
class PyStockHostModel(Telling):
    implements_process = None  # the decorator sets it

    drive_out = LavaPyType(PyOutPort.VEC_DENSE, np.int32, precision=16)
    u_1 = u_2 = u_3 = u_4 = u_5 = u_6 = u_7 = u_8 = LavaPyType(PyRefPort.VEC_DENSE, int)
    s_1 = s_2 = s_3 = s_4 = s_5 = s_6 = s_7 = s_8 = LavaPyType(PyInPort.VEC_DENSE, np.int32)

    def __init__(self, proc_params) -> None:  # type: ignore[no-untyped-def]
        super().__init__(proc_params)
        self.records = proc_params["records"]
        self.numbers = range(1, len(self.head.layers) + 1)
        self.slot, self.read_at, self.low_at, self.rest_at = 1, -1, -1, -1
        self.spikes: list[np.ndarray] = []

    def run_spk(self) -> None:
        now = self.time_step
        self.drive_out.send(self.next_message(now) if now == self.slot else self.silence)
        if self.records:
            self.spikes = [getattr(self, f"s_{number}").recv() for number in self.numbers]

    def next_message(self, now: int) -> np.ndarray:
        """At a slot: the next drive, or silence while the head is put to rest, or for good."""
        if self.request is None and not self.ask():
            return self.silence
        if self.request is not None and self.request.keep is None and self.is_dirty:
            self.low_at, self.rest_at, self.slot, self.is_dirty = now, now + 1, now + 2, False
            return self.silence
        self.read_at, self.slot = now + 1 + self.head.read_after, now + self.head.steps
        return self.take()

    def post_guard(self) -> bool:
        return self.time_step in (self.read_at, self.low_at, self.rest_at)

    def run_post_mgmt(self) -> None:
        ports = [getattr(self, f"u_{number}") for number in self.numbers]
        if self.time_step == self.read_at:
            membranes = [port.read() for port in (ports if self.records else ports[-1:])]
            self.reading = membranes[-1]
            self.write_frames(membranes)
            self.shadow.compare(self.reading)
            return
        value = FAR_BELOW if self.time_step == self.low_at else 0
        for port in ports:
            port.write(np.full(self.head.layers[0].n_neurons, value))
            port.wait()

    def write_frames(self, membranes: list[np.ndarray]) -> None:
        """As the recorder of ticked heads: membranes, a word with the guard hit, spikes."""
        word = (int(self.shadow.hit[0]) << TICK_BITS) | 1
        for file, membrane, spikes in zip(self.records, membranes, self.spikes):
            view = memoryview(np.concatenate([membrane, [word], spikes]).astype(np.float64).tobytes())
            while view:
                view = view[os.write(file, view) :]
