"""The trained head of each form of neuron."""

from __future__ import annotations

from torch import Tensor, nn

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


def taken_over(head: nn.Module, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """The entries of a head for one whose weights are `given`; of a head of another form its synapses, where they fit.

    Leaks, resets and thresholds mean something else in each form and start afresh, and so do the biases of layers that
    have none in the other.
    """
    own = head.state_dict()
    if isinstance(head, StockHead) == any(key.endswith("raw_rho") for key in given):
        return given
    names = ("weight_raw", "synapse.weight")
    for key, value in own.items():
        at, _, part = key.partition(".")[2].partition(".")
        others = [f"layers.{at}.{name}" for name in (names if part in names else (part,))]
        found = next((given[name] for name in others if name in given and given[name].numel() == value.numel()), None)
        if part in (*names, "scale", "bias") and found is not None:
            own[key] = found.reshape(value.shape)
    return own
