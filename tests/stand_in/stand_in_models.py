"""What a package of an INRC member would offer: a model of SoftLIF for neuro cores. This one is Lava's CPU model."""

from lava.magma.core.decorator import implements, requires
from lava.magma.core.model.nc.model import AbstractNcProcessModel
from lava.magma.core.resources import Loihi2NeuroCore
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol

from asp_neuro.chip.processes.chip_host import chip_word, read_chip_word
from asp_neuro.chip.processes.host import PyHostModel
from asp_neuro.chip.processes.soft_lif import PySoftLIFFixed, SoftLIF, read_word, tick_word

on_cpu = PySoftLIFFixed
of_another_process = PyHostModel


@implements(proc=SoftLIF, protocol=LoihiProtocol)
@requires(Loihi2NeuroCore)
class NcSoftLIF(PySoftLIFFixed, AbstractNcProcessModel):
    """Ticks have the chip's 24 bits at the ports, and the simulator's within."""

    reports_guard_hits = True

    def __init__(self, proc_params) -> None:
        super().__init__(proc_params)
        self.is_wired = False

    def run_spk(self) -> None:
        if not self.is_wired:
            self.is_wired = True
            receive, send = self.tick_in.recv, self.tick_out.send
            self.tick_in.recv = lambda: tick_word(*read_chip_word(receive()))
            self.tick_out.send = lambda word: send(chip_word(*read_word(word)))
        super().run_spk()
