"""The trained head of each form of neuron."""

from __future__ import annotations

from torch import nn

from asp_neuro.errors import UsageError
from asp_neuro.heads.spec import STOCK
from asp_neuro.learn.recipe import HeadRecipe
from asp_neuro.learn.soft_head import SpikingHead
from asp_neuro.learn.stock_head import StockHead


def new_head(how: HeadRecipe, n_inputs: int, n_neurons: int, n_layers: int) -> nn.Module:
    if how.form == STOCK:
        return StockHead(n_inputs, n_neurons, n_layers, how.steps, how.read_after, how.weight_exp)
    return SpikingHead(n_inputs, n_neurons, n_layers)


def set_steps(head: nn.Module, steps: int) -> None:
    """Another number of time steps an observation: another integer network, which forgets as fast per observation."""
    if not isinstance(head, StockHead):
        raise UsageError(f"{steps} time steps an observation: only heads of the stock form have several")
    if steps < head.read_after + 2:
        raise UsageError(f"{steps} time steps an observation, at least {head.read_after + 2} are needed")
    head.steps = steps
