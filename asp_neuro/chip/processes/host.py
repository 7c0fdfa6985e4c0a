"""Host: plays episodes against the head, one observation after the other, in one long run.

Each time step it receives, decides, and sends the next drive with its tick. A drive sent in step n reaches layer 1 in
step n + 1, as Dense keeps it for a step, and the last of L layers answers in step n + L: L steps per observation. (A
host that sends before it receives would need one more.) When the last episode is over it asks the runtime to pause,
which ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import numpy as np
from lava.magma.core.decorator import implements, requires
from lava.magma.core.model.py.model import PyLoihiProcessModel
from lava.magma.core.model.py.ports import PyInPort, PyOutPort
from lava.magma.core.model.py.type import LavaPyType
from lava.magma.core.process.ports.ports import InPort, OutPort
from lava.magma.core.process.process import AbstractProcess
from lava.magma.core.resources import CPU
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol

from asp_neuro.chip.processes.soft_lif import read_word
from asp_neuro.model.episode import Request, Response


class Host(AbstractProcess):
    """`play` makes the generator of requests, batches of one; `pauses` the idle steps before each drive."""

    def __init__(
        self,
        n_inputs: int,
        n_neurons: int,
        play: Callable[[], Generator[Request, Response, object]],
        pauses: Callable[[], Iterator[int]],
    ) -> None:
        super().__init__(name="host", n_inputs=n_inputs, play=play, pauses=pauses)
        self.u_in = InPort(shape=(n_neurons + 1,))
        self.drive_out = OutPort(shape=(n_inputs + 1,))


@implements(proc=Host, protocol=LoihiProtocol)
@requires(CPU)
class PyHostModel(PyLoihiProcessModel):
    """Serves both number systems: whole drives go out, membranes come in as the neurons' model sends them."""

    u_in = LavaPyType(PyInPort.VEC_DENSE, np.int64, precision=24)
    drive_out = LavaPyType(PyOutPort.VEC_DENSE, np.int32, precision=16)

    def __init__(self, proc_params) -> None:  # type: ignore[no-untyped-def]
        super().__init__(proc_params)
        self.story = proc_params["play"]()
        self.pauses = proc_params["pauses"]()
        self.silence = np.zeros(proc_params["n_inputs"] + 1, dtype=np.int32)
        self.observation = 0
        self.begun = False
        self.request: Request | None = None  # waits for its time to be sent
        self.idle = 0

    def run_spk(self) -> None:
        shown = self.u_in.recv()  # membranes, tick word
        if not self.begun:
            self.begun = True
            self.ask(None)
        elif shown[-1]:
            _, hit = read_word(shown[-1:])
            self.ask(Response(shown[None, :-1], np.array([hit], dtype=np.int64)))
        self.drive_out.send(self.next_drive())

    def ask(self, response: Response | None) -> None:
        """Tell the story what the head said; it wants another observation, or all is told."""
        try:
            self.request = self.story.send(response)
            self.idle = next(self.pauses)
        except StopIteration:
            self._req_pause = True

    def next_drive(self) -> np.ndarray:
        """The drive of this step and its tick: the one asked for, once its idle steps are over."""
        if self.request is None or self.idle > 0:
            self.idle -= 1
            return self.silence
        request, self.request = self.request, None
        self.observation = 1 if request.keep is None else self.observation + 1
        return np.append(request.drive_int[0], self.observation)
