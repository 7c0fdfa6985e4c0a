"""The head in NetX's HDF5 layout: `layer/0..` with type, shape, weight, bias and neuron/..., by form of neuron."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asp_neuro.bundle import netx_stock
from asp_neuro.heads.soft.form import SoftForm
from asp_neuro.heads.soft.layer import LayerSpec
from asp_neuro.heads.spec import STOCK, HeadSpec

STRING = "string"
Kinds = dict[str, tuple[str, int]]  # path: type, number of dimensions


@dataclass(frozen=True)
class LayerLayout:
    """How a layer of a form is stored; its factors stand apart, as NetX has no word for them."""

    leaves: Kinds
    contents: Callable[[Any], dict[str, np.ndarray]]
    layer: Callable[[dict[str, np.ndarray], np.ndarray], Any]
    head: Kinds = field(default_factory=dict)  # of the whole head, by path in the file
    head_contents: Callable[[HeadSpec], dict[str, np.ndarray]] = lambda head: {}
    schedule: Callable[[Mapping[str, np.ndarray]], dict[str, Any]] = lambda held: {}  # fields of a HeadSpec


def string(text: str) -> np.ndarray:
    return np.array(text.encode())


SOFT_LEAVES: Kinds = {
    "type": (STRING, 0),
    "shape": ("<i8", 1),
    "inFeatures": ("<i8", 0),
    "outFeatures": ("<i8", 0),
    "weight": ("<i2", 2),
    "bias": ("<i4", 1),
    "neuron/type": (STRING, 0),
    "neuron/lambda": ("<i2", 1),
    "neuron/theta": ("<i4", 1),
    "neuron/theta_fire": ("<i4", 1),
    "neuron/state_bits": ("<i8", 0),
}


def soft_contents(layer: LayerSpec) -> dict[str, np.ndarray]:
    n_neurons, n_inputs = layer.weight_int.shape
    return {
        "type": string("dense"),
        "shape": np.array([n_neurons]),
        "inFeatures": np.array(n_inputs),
        "outFeatures": np.array(n_neurons),
        "weight": layer.weight_int,
        "bias": layer.bias_int,
        "neuron/type": string(SoftForm.neuron_type),
        "neuron/lambda": layer.lambda_int,
        "neuron/theta": layer.theta_int,
        "neuron/theta_fire": layer.theta_fire_int,
        "neuron/state_bits": np.array(layer.state_bits),
    }


def soft_layer(stored: dict[str, np.ndarray], factor: np.ndarray) -> LayerSpec:
    whole = {leaf: stored[leaf].astype(np.int64) for leaf, (kind, _) in SOFT_LEAVES.items() if kind != STRING}
    return LayerSpec(
        weight_int=whole["weight"],
        bias_int=whole["bias"],
        lambda_int=whole["neuron/lambda"],
        theta_int=whole["neuron/theta"],
        theta_fire_int=whole["neuron/theta_fire"],
        factor=factor.copy(),
        state_bits=int(whole["neuron/state_bits"]),
    )


LAYOUTS: dict[str, LayerLayout] = {
    SoftForm.name: LayerLayout(SOFT_LEAVES, soft_contents, soft_layer),
    STOCK: LayerLayout(
        netx_stock.STOCK_LEAVES,
        netx_stock.stock_contents,
        netx_stock.stock_layer,
        netx_stock.STOCK_HEAD,
        netx_stock.stock_head_contents,
        netx_stock.stock_schedule,
    ),
}
