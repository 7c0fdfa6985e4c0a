"""Recorder: writes what a layer says to an open file.

One frame per observation: membranes, tick word, spikes. Membranes have 24 bits, so float64 holds them
exactly, and one format serves both number systems.
"""

from __future__ import annotations

import os

import numpy as np
from lava.magma.core.decorator import implements, requires
from lava.magma.core.model.py.model import PyLoihiProcessModel
from lava.magma.core.model.py.ports import PyInPort
from lava.magma.core.model.py.type import LavaPyType
from lava.magma.core.process.ports.ports import InPort
from lava.magma.core.process.process import AbstractProcess
from lava.magma.core.resources import CPU
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol


class Recorder(AbstractProcess):
    """Listens to one layer; `file` is a descriptor that the model's process inherits."""

    def __init__(self, n_neurons: int, number: int, file: int) -> None:
        super().__init__(name=f"layer {number} recorder", file=file)
        self.u_in = InPort(shape=(n_neurons + 1,))
        self.s_in = InPort(shape=(n_neurons,))


@implements(proc=Recorder, protocol=LoihiProtocol)
@requires(CPU)
class PyRecorderModel(PyLoihiProcessModel):
    u_in = LavaPyType(PyInPort.VEC_DENSE, np.int64, precision=24)
    s_in = LavaPyType(PyInPort.VEC_DENSE, np.int32, precision=1)

    def __init__(self, proc_params) -> None:  # type: ignore[no-untyped-def]
        super().__init__(proc_params)
        self.file = proc_params["file"]

    def run_spk(self) -> None:
        shown, spikes = self.u_in.recv(), self.s_in.recv()
        if shown[-1]:
            frame = np.concatenate([shown, spikes]).astype(np.float64)
            view = memoryview(frame.tobytes())
            while view:
                view = view[os.write(self.file, view) :]
