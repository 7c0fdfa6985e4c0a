"""ChipHost: the Host of a head on a Loihi 2 chip, tolerant of the way there and back.

What it sends takes about two time steps to reach the neurons, what they say about one to come back. Ticks make that
harmless: drive and tick go in one message through one Dense, neurons add up what arrives until the tick, and hold
their membranes until the next. Membrane and tick come back by two ways that need not take equally long, so the
membrane is taken SETTLE_STEPS after the tick.

Messages have 24 bits. A membrane is signed and comes back in 32 bits without its sign; a tick word is unsigned: the
observation index in its lower 8 bits, above them the first guard hit (`verdict.hit_words`), 0 for none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import numpy as np
from lava.magma.core.decorator import implements, requires
from lava.magma.core.model.py.ports import PyInPort
from lava.magma.core.model.py.type import LavaPyType
from lava.magma.core.process.ports.ports import InPort, OutPort
from lava.magma.core.process.process import AbstractProcess
from lava.magma.core.resources import CPU
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol

from asp_neuro.chip.preflight import CHIP_TICK_BITS
from asp_neuro.chip.processes.host import PyHostModel
from asp_neuro.model.episode import Request, Response

SETTLE_STEPS = 2
MESSAGE_BITS = 24


def sign_extended(values: np.ndarray) -> np.ndarray:
    """24-bit numbers in words of 32 bits, whatever stands above them -> int32 with their sign."""
    return (values.astype(np.int32) << 8) >> 8


def chip_word(observation: int, hit: int = 0) -> np.ndarray:
    """The word that a tick carries on the chip, [1] int64."""
    return np.array([(hit << CHIP_TICK_BITS) | observation], dtype=np.int64)


def read_chip_word(word: np.ndarray) -> tuple[int, int]:
    """Observation index and first guard hit of a word that comes from the chip."""
    hit, observation = divmod(int(word[0]) & ((1 << MESSAGE_BITS) - 1), 1 << CHIP_TICK_BITS)
    return observation, hit


class ChipHost(AbstractProcess):
    """As `Host`; membranes and ticks come in by two ways. `hits`: whether the chip's neurons report guard hits."""

    def __init__(
        self,
        n_inputs: int,
        n_neurons: int,
        play: Callable[[], Generator[Request, Response, object]],
        pauses: Callable[[], Iterator[int]],
        hits: bool,
    ) -> None:
        super().__init__(name="host", n_inputs=n_inputs, play=play, pauses=pauses, hits=hits)
        self.u_in = InPort(shape=(n_neurons,))
        self.done_in = InPort(shape=(1,))
        self.drive_out = OutPort(shape=(n_inputs + 1,))


@implements(proc=ChipHost, protocol=LoihiProtocol)
@requires(CPU)
class PyChipHostModel(PyHostModel):
    """The story is told as by the simulator's Host; only the time of its sentences differs."""

    implements_process = None  # not Host: the decorator sets it

    u_in = LavaPyType(PyInPort.VEC_DENSE, np.int32, precision=24)
    done_in = LavaPyType(PyInPort.VEC_DENSE, np.int64)

    def __init__(self, proc_params) -> None:  # type: ignore[no-untyped-def]
        super().__init__(proc_params)
        self.hits = proc_params["hits"]
        self.settling = -1  # steps until the membrane is taken; below 0: nothing has come back
        self.hit = 0

    def run_spk(self) -> None:
        membrane, word = sign_extended(self.u_in.recv()), self.done_in.recv()
        if not self.begun:
            self.begun = True
            self.ask(None)
        elif self.has_settled(*read_chip_word(word)):
            hit = np.array([self.hit], dtype=np.int64) if self.hits else None
            self.ask(Response(membrane[None], hit))
        self.drive_out.send(self.next_drive())

    def has_settled(self, observation: int, hit: int) -> bool:
        if observation:
            if observation != self.observation:
                raise RuntimeError(f"the chip answered to observation {observation}, asked was {self.observation}")
            self.hit, self.settling = hit, SETTLE_STEPS
            return False
        self.settling = max(self.settling - 1, -1)
        return self.settling == 0
