"""Adapters between Python and neuro cores: they delay, and keep as many bits as a message has.

$STAND_IN_DELAYS is "in,out" in time steps; public notebooks say 2 and 1. $STAND_IN_FAULT "drop N" loses the N-th
message, "drive sign" turns the sign of all.
"""

import collections
import os

import numpy as np
from lava.magma.core.decorator import implements, requires
from lava.magma.core.model.py.model import PyLoihiProcessModel
from lava.magma.core.model.py.ports import PyInPort, PyOutPort
from lava.magma.core.model.py.type import LavaPyType
from lava.magma.core.process.ports.ports import InPort, OutPort
from lava.magma.core.process.process import AbstractProcess
from lava.magma.core.resources import CPU
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol

FAULT = os.environ.get("STAND_IN_FAULT", "")
IN, OUT = (int(steps) for steps in os.environ.get("STAND_IN_DELAYS", "2,1").split(","))


class Adapter(AbstractProcess):
    def __init__(self, shape, num_message_bits, steps) -> None:
        super().__init__(steps=steps, n_bits=num_message_bits, silence=np.zeros(shape, dtype=np.int64))
        self.inp = InPort(shape=shape)
        self.out = OutPort(shape=shape)


class PyToNxAdapter(Adapter):
    def __init__(self, shape, num_message_bits=0) -> None:
        super().__init__(shape, num_message_bits, IN)


class NxToPyAdapter(Adapter):
    def __init__(self, shape, num_message_bits=0) -> None:
        super().__init__(shape, num_message_bits, OUT)


class AdapterModel(PyLoihiProcessModel):
    inp = LavaPyType(PyInPort.VEC_DENSE, np.int64)
    out = LavaPyType(PyOutPort.VEC_DENSE, np.int64)

    def __init__(self, proc_params) -> None:
        super().__init__(proc_params)
        self.under_way = collections.deque([proc_params["silence"]] * proc_params["steps"])
        self.above = 32 - proc_params["n_bits"]

    def run_spk(self) -> None:
        if not self.under_way:  # no delay at all
            self.out.send(self.carried(self.inp.recv()))
            return
        self.out.send(self.under_way.popleft())
        self.under_way.append(self.carried(self.inp.recv()))

    def carried(self, message):
        raise NotImplementedError


@implements(proc=PyToNxAdapter, protocol=LoihiProtocol)
@requires(CPU)
class PyToNxModel(AdapterModel):
    n_messages = 0

    def carried(self, message):
        self.n_messages += bool(message.any())
        if FAULT.startswith("drop") and message.any() and self.n_messages == int(FAULT.split()[1]):
            return np.zeros_like(message)
        if FAULT == "drive sign":
            message = -message
        return (message.astype(np.int32) << self.above) >> self.above  # a neuro core knows the sign


@implements(proc=NxToPyAdapter, protocol=LoihiProtocol)
@requires(CPU)
class NxToPyModel(AdapterModel):
    def carried(self, message):
        return message & 0xFFFFFF
