"""Stands for the neuro-core model of LIF. $STAND_IN_FAULT makes it a wrong one:

leak          the current leaks a little faster than it was told
hard reset    a spike puts the current back to 0
deaf          writing to the current, or setting it, does nothing
reset N       the N-th reset is missed
"""

import os

from lava.magma.core.decorator import implements, requires
from lava.magma.core.model.nc.model import AbstractNcProcessModel
from lava.magma.core.resources import Loihi2NeuroCore
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol
from lava.proc.lif.models import PyLifModelBitAcc
from lava.proc.lif.process import LIF

FAULT = os.environ.get("STAND_IN_FAULT", "")
FAR_BELOW = -(2**22)


@implements(proc=LIF, protocol=LoihiProtocol)
@requires(Loihi2NeuroCore)
class NcModelLif(PyLifModelBitAcc, AbstractNcProcessModel):
    kept = None  # the current as it was at the end of the last time step
    n_resets = 0
    is_missing = False

    def run_spk(self) -> None:
        self.maybe_ignore_writing()
        if FAULT == "leak" and self.time_step == 1:
            self.ds_offset = 2
        super().run_spk()
        if FAULT == "hard reset":
            self.u[self.s_out_buff.astype(bool)] = 0
        self.kept = self.u.copy()

    def maybe_ignore_writing(self) -> None:
        if self.kept is None:
            return
        is_low = bool((self.u == FAR_BELOW).all())
        self.n_resets += is_low
        if FAULT == "deaf" or (FAULT.startswith("reset") and self.n_resets == int(FAULT.split()[1]) and is_low):
            self.is_missing = True
        if self.is_missing:
            self.u[:] = self.kept
            self.is_missing = is_low or FAULT == "deaf"  # the step after the low one ignores the zero, too
