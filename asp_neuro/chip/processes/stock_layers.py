"""A head of the stock form as stock Lava processes: for each layer Dense -> LIF, and a Dense from LIF to itself.

    drive -> Dense -> LIF 1 -> Dense -> LIF 2 -> ...         each LIF -> Dense(-diag(rho)) -> itself

MIXED keeps every even weight of [-256, 254]: without it an all-negative matrix loses its -256.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from lava.proc.dense.process import Dense
from lava.proc.lif.process import LIF
from lava.utils.weightutils import SignMode

from asp_neuro.heads.membrane import WEIGHT_BITS
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.heads.stock.layer import StockLayer

NO_MEMORY = 4096  # dv: v is the current plus a bias, and nothing else


class Built(NamedTuple):
    synapses: Dense
    neurons: LIF
    reset: Dense


def build_layers(head: HeadSpec) -> list[Built]:
    """The layers, wired; the first one's `synapses.s_in` takes drives with the constant behind them."""
    built: list[Built] = []
    for index, layer in enumerate(head.layers):
        one = build_layer(layer, index)
        if built:
            built[-1].neurons.s_out.connect(one.synapses.s_in)
        built.append(one)
    return built


def build_layer(layer: StockLayer, index: int) -> Built:
    def dense(weights: np.ndarray, name: str, message_bits: int) -> Dense:
        return Dense(
            weights=weights,
            name=f"layer {index + 1} {name}",
            num_weight_bits=8,
            weight_exp=layer.weight_exp,
            sign_mode=SignMode.MIXED,
            num_message_bits=message_bits,
        )

    synapses = dense(layer.weight_int, "synapses", 0 if index else 16)
    reset = dense(-np.diag(layer.rho_int), "reset", 0)
    neurons = LIF(
        shape=(layer.n_neurons,),
        name=f"layer {index + 1} neurons",
        du=layer.du,
        dv=NO_MEMORY,
        vth=layer.vth,
        bias_mant=layer.bias_mant,
        bias_exp=np.full(layer.n_neurons, WEIGHT_BITS),
    )
    synapses.a_out.connect(neurons.a_in)
    neurons.s_out.connect(reset.s_in)
    reset.a_out.connect(neurons.a_in)
    return Built(synapses, neurons, reset)
