"""HeadProcess: a HeadSpec as Lava processes, stock Dense synapses and SoftLIF neurons.

    drive_in -> Dense -> SoftLIF 1 -> Dense -> SoftLIF 2 -> ... -> u_out
                              tick ----------->      tick

The last entry of `drive_in` is the tick: the first Dense has one more input and one more row for it. A channel of its
own would cost Lava as much as the layer does.

Residual spikes: the Dense of layer l >= 2 hears every earlier layer. The spikes of layer k arrive k steps after the
drive, so two layers never speak to one Dense in the same step, and one-bit messages (`num_message_bits=0`) lose
nothing.
"""

from __future__ import annotations

import numpy as np
from lava.magma.core.decorator import implements
from lava.magma.core.model.sub.model import AbstractSubProcessModel
from lava.magma.core.process.ports.ports import InPort, OutPort
from lava.magma.core.process.process import AbstractProcess
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol
from lava.proc.dense.process import Dense
from lava.utils.weightutils import SignMode

from asp_neuro.chip.lava_limits import demand_buildable
from asp_neuro.chip.processes.soft_lif import TICK_WEIGHT, SoftLIF
from asp_neuro.heads.soft.guard import bands
from asp_neuro.heads.soft.layer import LayerSpec
from asp_neuro.heads.spec import HeadSpec


class HeadProcess(AbstractProcess):
    """The whole head, for episodes of at most `n_steps` observations.

    With `taps`, each layer l = 1.. also shows its membranes and spikes at `u_tap_l` and `s_tap_l`.
    """

    def __init__(self, spec: HeadSpec, n_steps: int, drive_bound: np.ndarray | None = None, taps: bool = False) -> None:
        demand_buildable(spec, n_steps, drive_bound)
        super().__init__(name="head", spec=spec, n_steps=n_steps, taps=taps)
        width = spec.layers[-1].n_neurons
        self.drive_in = InPort(shape=(spec.n_inputs + 1,))
        self.u_out = OutPort(shape=(width + 1,))
        for number in range(1, len(spec.layers) + 1) if taps else ():
            setattr(self, f"u_tap_{number}", OutPort(shape=(width + 1,)))
            setattr(self, f"s_tap_{number}", OutPort(shape=(width,)))


def synapses(layer: LayerSpec, index: int) -> Dense:
    """Stock Dense that keeps every even weight of [-256, 254]: without MIXED an all-negative matrix loses its -256."""
    weights = layer.weight_int
    if index == 0:
        weights = np.pad(weights, ((0, 1), (0, 1)))
        weights[-1, -1] = TICK_WEIGHT
    return Dense(
        weights=weights,
        name=f"layer {index + 1} synapses",
        num_weight_bits=8,
        weight_exp=0,
        sign_mode=SignMode.MIXED,
        num_message_bits=16 if index == 0 else 0,
    )


@implements(proc=HeadProcess, protocol=LoihiProtocol)
class SubHeadProcessModel(AbstractSubProcessModel):
    """Builds and wires the layers; Lava finds sub-processes as attributes, hence one attribute each."""

    def __init__(self, proc: AbstractProcess) -> None:
        spec = proc.proc_params["spec"]
        neurons: list[SoftLIF] = []
        for index, layer in enumerate(spec.layers):
            dense = synapses(layer, index)
            lif = SoftLIF(layer, index, bands(layer, proc.proc_params["n_steps"]))
            setattr(self, f"synapses_{index + 1}", dense)
            setattr(self, f"neurons_{index + 1}", lif)
            if index == 0:
                proc.in_ports.drive_in.connect(dense.s_in)
            else:
                neurons[-1].tick_out.connect(lif.tick_in)
            for earlier in neurons:
                earlier.s_out.connect(dense.s_in)
            dense.a_out.connect(lif.a_in)
            neurons.append(lif)
        neurons[-1].u_out.connect(proc.out_ports.u_out)
        for number, lif in enumerate(neurons, start=1) if proc.proc_params["taps"] else ():
            lif.u_out.connect(getattr(proc.out_ports, f"u_tap_{number}"))
            lif.s_out.connect(getattr(proc.out_ports, f"s_tap_{number}"))
