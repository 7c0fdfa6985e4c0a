"""The trained stock head: gradients through the free-running steps, and the same bits as the engines in deploy mode."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from asp_neuro.errors import ConfigError, UsageError
from asp_neuro.heads.stock.ranges import reach
from asp_neuro.learn import recipe as recipes
from asp_neuro.learn.heads import new_head, set_steps, taken_over
from asp_neuro.learn.recipe import HeadRecipe
from asp_neuro.learn.soft_head import SpikingHead
from asp_neuro.learn.stock_head import StockHead


def lively(seed: int = 0, steps: int = 6, read_after: int = 3, n_layers: int = 2) -> StockHead:
    torch.manual_seed(seed)
    head = StockHead(10, 8, n_layers, steps, read_after)
    with torch.no_grad():
        for layer in head.layers:
            layer.scale.mul_(2.0)
            layer.raw_theta.uniform_(-1.0, 0.5)
            layer.raw_rho.uniform_(-1.0, 0.5)
        head.layers[0].bias.normal_(0.0, 0.2)
    return head


def deployed(seed: int, steps: int = 6) -> StockHead:
    head = lively(seed, steps)
    head.fix_scales(np.full((2, 8), 20.0))
    head.deploy = True
    return head


@pytest.mark.parametrize("seed", range(6))
def test_deploy_mode_is_the_reference_and_the_fast_engine_bit_for_bit(seed):
    head = deployed(seed)
    x = torch.randn(7, 5, 10)
    membranes, spikes, _ = head.run(x, head.start(5), head.fold())
    spec, drives = head.spec(), np.rint(x.numpy().astype(np.float64) * 4.0).astype(np.int64)
    want = spec.reference(drives)
    assert np.array_equal(torch.stack(membranes, 1).detach().numpy(), want.membranes)
    assert np.array_equal(torch.stack(spikes, 1).detach().numpy(), want.spikes)
    assert want.spikes.mean() > 0.02
    assert want.overflows == 0
    engine = spec.engine(None, 7)
    engine.start(5)
    for t, drive in enumerate(drives):
        assert np.array_equal(engine.observe(drive), want.membranes[t, -1])


def test_the_hand_written_backward_pass_is_that_of_autograd():
    """The same float network out of autograd's own operations, surrogate included."""
    head = lively(3)
    x = torch.randn(3, 4, 10, requires_grad=True)
    membranes, _, state = head.run(x, head.start(4), head.fold())
    (sum(m.square().sum() for m in membranes[-1:]) + state.spikes[-1].sum()).backward()
    ours = {name: p.grad.clone() for name, p in head.named_parameters()}
    head.zero_grad()
    x_grad = x.grad.clone()
    x.grad = None
    last, spikes = by_autograd(head, x)
    (last.square().sum() + spikes.sum()).backward()
    assert torch.allclose(x.grad, x_grad, rtol=1e-4, atol=1e-5)
    for name, p in head.named_parameters():
        assert torch.allclose(p.grad, ours[name], rtol=1e-3, atol=1e-4), name
        assert p.grad.abs().sum() > 0.0, name


class _Fires(torch.autograd.Function):
    @staticmethod
    def forward(ctx, above):
        ctx.save_for_backward(above)
        return (above > 0.0).to(above.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (above,) = ctx.saved_tensors
        return gradient / (1.0 + (math.pi * above) ** 2)


def by_autograd(head: StockHead, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Readings [T, b, H] of the last layer, and its last spikes."""
    folded = head.fold()
    u = [x.new_zeros(x.shape[1], head.n_neurons) for _ in folded]
    s, read = list(u), []
    for drive in x:
        for tau in range(head.steps):
            before = list(s)
            for index, f in enumerate(folded):
                u[index] = u[index] * f.lam - f.rho * before[index]
                if index == 0 and tau == 0:
                    u[index] = u[index] + torch.nn.functional.linear(drive, f.weight, f.bias)
                if index > 0:
                    u[index] = u[index] + torch.nn.functional.linear(before[index - 1], f.weight)
                s[index] = _Fires.apply(u[index] - f.threshold)
            if tau == head.read_after:
                read.append(u[-1])
    return torch.stack(read), s[-1]


def test_another_number_of_steps_forgets_as_fast_and_is_another_integer_network():
    head = deployed(1, steps=8)
    eight = head.spec()
    set_steps(head, 12)
    twelve = head.spec()
    assert (eight.steps, twelve.steps) == (8, 12)
    for one, other in zip(eight.layers, twelve.layers, strict=True):
        assert np.array_equal(one.weight_int, other.weight_int)
        assert one.lambda_int < other.lambda_int
        assert (one.lambda_int / 4096) ** 8 == pytest.approx((other.lambda_int / 4096) ** 12, rel=3e-3)
    x = torch.randn(4, 3, 10)
    membranes, _, _ = head.run(x, head.start(3), head.fold())
    want = twelve.reference(np.rint(x.numpy().astype(np.float64) * 4.0).astype(np.int64))
    assert np.array_equal(torch.stack(membranes, 1).detach().numpy(), want.membranes)


def test_steps_are_refused_where_they_mean_nothing():
    with pytest.raises(UsageError, match="12 time steps an observation: only heads of the stock form"):
        set_steps(SpikingHead(4, 4, 1), 12)
    with pytest.raises(UsageError, match="4 time steps an observation, at least 5 are needed"):
        set_steps(deployed(0), 4)


def test_scales_leave_room_for_the_range_that_export_proves():
    spec = deployed(2, steps=12).spec()
    found = reach(spec, None, np.full(10, 32.0), 16)
    assert found.largest[1] < 2**23  # layer 1 depends on the norm of the drive, which a head does not know
    assert max(layer.rho_int.max() for layer in spec.layers) <= 254


def test_an_exponent_lifts_the_state_and_not_the_weights():
    torch.manual_seed(0)
    head = StockHead(10, 8, 2, 6, 3, (0, 2))
    head.fix_scales(np.full((2, 8), 20.0))
    assert [layer.weight_exp for layer in head.spec().layers] == [0, 2]
    assert [layer.state_bits for layer in head.spec().layers] == [12, 14]


@pytest.mark.parametrize("n_layers", [1, 2])
def test_a_head_of_the_other_form_gives_its_synapses_and_nothing_else(n_layers):
    torch.manual_seed(0)
    soft, stock = SpikingHead(10, 8, n_layers), lively(1, n_layers=n_layers)
    with torch.no_grad():
        for layer in soft.layers:
            layer.scale.uniform_(0.5, 2.0)
            layer.bias.normal_()
    fresh = {key: value.clone() for key, value in stock.state_dict().items()}
    stock.load_state_dict(taken_over(stock, soft.state_dict()))
    for ours, theirs in zip(stock.layers, soft.layers, strict=True):
        assert torch.equal(ours.weight(), theirs.weight())
    assert torch.equal(stock.layers[0].bias, soft.layers[0].bias)
    for name in ("raw_leak", "raw_theta", "raw_rho", "factor", "state_bits"):
        assert torch.equal(stock.state_dict()[f"layers.0.{name}"], fresh[f"layers.0.{name}"]), name
    back = SpikingHead(10, 8, n_layers)
    back.load_state_dict(taken_over(back, stock.state_dict()))
    assert torch.equal(back.layers[0].weight(), soft.layers[0].weight())


def test_a_head_of_the_same_form_is_taken_over_whole():
    given = lively(2).state_dict()
    assert taken_over(lively(3), given) is given


def test_a_recipe_names_the_form_and_old_ones_mean_the_soft_one():
    how = recipes.load("compact_stock")
    assert (how.head.form, how.head.steps, how.head.read_after) == ("stock", 12, 3)
    assert isinstance(new_head(how.head, 4, 4, 2), StockHead)
    old = recipes.load("compact")
    assert old.head == HeadRecipe()
    assert "head" not in old.as_dict()  # neither written nor hashed
    assert recipes.from_dict("again", how.as_dict()) == how
    assert isinstance(new_head(old.head, 4, 4, 2), SpikingHead)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"form": "stok"}, "head.form = 'stok'; did you mean 'stock'"),
        ({"form": "stock", "read_after": 11}, "head.read_after = 11 must be between 1 and steps - 2 = 10"),
        ({"form": "stock", "weight_exp": [0, 9]}, r"head.weight_exp = \[0, 9\]: expected numbers from 0 to 7"),
        ({"stepps": 12}, "unknown key 'head.stepps'; did you mean 'steps'|stepps"),
    ],
)
def test_a_wrong_head_in_a_recipe_is_named(table, said):
    with pytest.raises(ConfigError, match=said):
        recipes.from_dict("x.toml", {"head": table})
