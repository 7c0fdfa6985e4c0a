"""The stock form in NetX's layout, as stock `lava.lib.dl.netx.hdf5.Network` reads it: CUBA neurons, recurrent synapses.

    type dense_rec, weight [H, n] (layer 1: the constant is the last input), weight_rec = -diag(rho),
    bias = vth - threshold / 64,
    neuron/{type CUBA, iDecay 4096 - lambda, vDecay 4096, vThMant vth, refDelay, gradedSpike}

NetX has no word for an exponent of the synapses: a layer that has one gets a type of neuron that stock NetX refuses.
The schedule stands in `asp/head`, which stock NetX does not look at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from asp_neuro.errors import InputError
from asp_neuro.heads.membrane import LEAK_BITS, WEIGHT_BITS
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.heads.stock.form import StockForm
from asp_neuro.heads.stock.layer import StockLayer
from asp_neuro.heads.stock.membrane import CONSTANT, DRIVE_BITS

ONE = 1 << LEAK_BITS
LIFTED = "ASP_STOCK"  # the neuron type of a layer with an exponent

STOCK_LEAVES: dict[str, tuple[str, int]] = {
    "type": ("string", 0),
    "shape": ("<i8", 1),
    "inFeatures": ("<i8", 0),
    "outFeatures": ("<i8", 0),
    "weight": ("<i2", 2),
    "weight_rec": ("<i2", 2),
    "bias": ("<i4", 1),
    "neuron/type": ("string", 0),
    "neuron/iDecay": ("<i8", 0),
    "neuron/vDecay": ("<i8", 0),
    "neuron/vThMant": ("<i8", 0),
    "neuron/refDelay": ("<i8", 0),
    "neuron/gradedSpike": ("|u1", 0),
    "neuron/weightExp": ("<i8", 0),
}
STOCK_HEAD: dict[str, tuple[str, int]] = {
    f"asp/head/{name}": ("<i8", 0) for name in ("steps", "read_after", "constant", "drive_bits")
}


def stock_contents(layer: StockLayer) -> dict[str, np.ndarray]:
    n_neurons, n_inputs = layer.weight_int.shape
    kind = LIFTED if layer.weight_exp else StockForm.neuron_type
    return {
        "type": np.array(b"dense_rec"),
        "shape": np.array([n_neurons]),
        "inFeatures": np.array(n_inputs),
        "outFeatures": np.array(n_neurons),
        "weight": layer.weight_int,
        "weight_rec": -np.diag(layer.rho_int),
        "bias": layer.bias_mant,
        "neuron/type": np.array(kind.encode()),
        "neuron/iDecay": np.array(ONE - layer.lambda_int),
        "neuron/vDecay": np.array(ONE),
        "neuron/vThMant": np.array(layer.vth),
        "neuron/refDelay": np.array(1),
        "neuron/gradedSpike": np.array(0),
        "neuron/weightExp": np.array(layer.weight_exp),
    }


def stock_layer(stored: dict[str, np.ndarray], factor: np.ndarray) -> StockLayer:
    """What does not follow from these fields is compared with what would be written, afterwards."""
    weight, rec = stored["weight"].astype(np.int64), stored["weight_rec"].astype(np.int64)
    if rec.shape != (len(weight), len(weight)) or stored["bias"].shape != (len(weight),):
        shapes = f"{list(weight.shape)}, {list(rec.shape)}, {list(stored['bias'].shape)}"
        raise InputError(f"weight, weight_rec and bias of a layer have shapes {shapes}")
    vth, decay, exponent = (int(stored[f"neuron/{name}"]) for name in ("vThMant", "iDecay", "weightExp"))
    for name, value in (("vThMant", vth), ("iDecay", decay), ("weightExp", exponent)):
        if abs(value) > 2**24:
            raise InputError(f"neuron/{name} is {value}")
    return StockLayer(
        weight_int=weight,
        rho_int=-np.diag(rec),
        threshold_int=(vth - stored["bias"].astype(np.int64)) << WEIGHT_BITS,
        lambda_int=ONE - decay,
        factor=factor.copy(),
        weight_exp=exponent,
    )


def stock_head_contents(head: HeadSpec) -> dict[str, np.ndarray]:
    values = {"steps": head.steps, "read_after": head.read_after, "constant": CONSTANT, "drive_bits": DRIVE_BITS}
    return {f"asp/head/{name}": np.array(value) for name, value in values.items()}


def stock_schedule(held: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The fields of a HeadSpec beside its layers."""
    return {name: int(held[f"asp/head/{name}"]) for name in ("steps", "read_after")}
