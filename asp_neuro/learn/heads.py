"""The trained head of each form of neuron."""

from __future__ import annotations

from torch import nn

from asp_neuro.heads.spec import STOCK
from asp_neuro.learn.recipe import HeadRecipe
from asp_neuro.learn.soft_head import SpikingHead
from asp_neuro.learn.stock_head import StockHead


def new_head(how: HeadRecipe, n_inputs: int, n_neurons: int, n_layers: int) -> nn.Module:
    if how.form == STOCK:
        return StockHead(n_inputs, n_neurons, n_layers, how.steps, how.read_after, how.weight_exp)
    return SpikingHead(n_inputs, n_neurons, n_layers)
