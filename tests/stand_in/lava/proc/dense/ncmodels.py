"""Stands for the neuro-core model of Dense."""

from lava.magma.core.decorator import implements, requires
from lava.magma.core.model.nc.model import AbstractNcProcessModel
from lava.magma.core.resources import Loihi2NeuroCore
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol
from lava.proc.dense.models import PyDenseModelBitAcc
from lava.proc.dense.process import Dense


@implements(proc=Dense, protocol=LoihiProtocol)
@requires(Loihi2NeuroCore)
class NcModelDense(PyDenseModelBitAcc, AbstractNcProcessModel):
    pass
