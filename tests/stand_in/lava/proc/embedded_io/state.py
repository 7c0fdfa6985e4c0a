"""The reader of states: a variable's 24 bits, without their sign, $STAND_IN_READ steps late (at least 1)."""

import collections
import os

import numpy as np
from lava.magma.core.decorator import implements, requires
from lava.magma.core.model.py.model import PyLoihiProcessModel
from lava.magma.core.model.py.ports import PyOutPort, PyRefPort
from lava.magma.core.model.py.type import LavaPyType
from lava.magma.core.process.ports.ports import OutPort, RefPort
from lava.magma.core.process.process import AbstractProcess
from lava.magma.core.resources import CPU
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol

FAULT = os.environ.get("STAND_IN_FAULT", "")  # "read sign": turns the sign of what is read
STEPS = int(os.environ.get("STAND_IN_READ", "1"))


class Read(AbstractProcess):
    def __init__(self, shape, interval, offset) -> None:
        super().__init__(silence=np.zeros(shape, dtype=np.int32))
        assert (interval, offset) == (1, 0)
        self.state = RefPort(shape=shape)
        self.out = OutPort(shape=shape)

    def connect_var(self, var) -> None:
        self.state.connect_var(var)


@implements(proc=Read, protocol=LoihiProtocol)
@requires(CPU)
class ReadModel(PyLoihiProcessModel):
    state = LavaPyType(PyRefPort.VEC_DENSE, int)
    out = LavaPyType(PyOutPort.VEC_DENSE, np.int32)

    def __init__(self, proc_params) -> None:
        super().__init__(proc_params)
        self.under_way = collections.deque([proc_params["silence"]] * STEPS)

    def run_spk(self) -> None:
        self.out.send(self.under_way.popleft())

    def post_guard(self) -> bool:
        return True

    def run_post_mgmt(self) -> None:
        sign = -1 if FAULT == "read sign" else 1
        self.under_way.append((sign * self.state.read().astype(np.int32)) & 0xFFFFFF)
