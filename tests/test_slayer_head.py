"""The trained head: bit-exact with the integer reference in deploy mode, the same however it is called, and its
hand-written gradients are those of the recurrence."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from asp_neuro.heads.bits import STATE_MAX, STATE_MIN
from asp_neuro.heads.soft.membrane import step_float
from asp_neuro.heads.soft.reference import run_reference
from asp_neuro.heads.spec import HeadSpec
from asp_neuro.learn.grid import round_through
from asp_neuro.learn.soft_head import Folded, SoftReset, SpikingHead, State, _SoftResetRun, floor_through, whole_sums

WIDTH, NEURONS, BATCH, STEPS = 7, 9, 5, 11


def random_head(seed: int, n_layers: int, deploy: bool = True, seen: float | None = None) -> SpikingHead:
    """A head that is nothing like a fresh one: every parameter is drawn."""
    torch.manual_seed(seed)
    head = SpikingHead(WIDTH, NEURONS, n_layers)
    with torch.no_grad():
        for layer in head.layers:
            layer.scale.copy_(torch.randn(NEURONS) * 2)
            layer.bias.copy_(torch.randn(NEURONS) * 0.3)
            layer.neuron.raw_leak.copy_(torch.randn(NEURONS) * 3)
            layer.neuron.raw_theta.copy_(torch.randn(NEURONS))
            layer.neuron.raw_gain.copy_(torch.randn(NEURONS) * 0.5)
            layer.neuron.shift.copy_(torch.randn(NEURONS) * 0.5)
            layer.synapse.weight[0].zero_()  # one zero row
        if deploy:
            membranes, _, _ = head.run(drives(seed), head.start(BATCH), head.fold())
            largest = torch.stack(membranes).abs().amax(dim=(1, 2)).double().numpy()
            head.fix_scales(largest if seen is None else np.full_like(largest, seen))
            head.deploy = True
    return head


def drives(seed: int, scale: float = 2.0) -> Tensor:
    return torch.randn(STEPS, BATCH, WIDTH, generator=torch.Generator().manual_seed(seed + 1000)) * scale


def whole_run(head: SpikingHead, drive: Tensor) -> tuple[Tensor, Tensor]:
    """Membranes and spikes, [T, L, batch, H]."""
    with torch.no_grad():
        membranes, fired, _ = head.run(drive, head.start(BATCH), head.fold())
    return torch.stack(membranes, dim=1), torch.stack(fired, dim=1)


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_deploy_mode_is_the_integer_reference_bit_for_bit(seed: int, n_layers: int) -> None:
    head = random_head(seed, n_layers)
    membranes, fired = whole_run(head, drives(seed))
    drives_int = torch.round(drives(seed).double() * 64).to(torch.int64).numpy()
    expected, spikes, overflows = run_reference(head.spec(), drives_int)
    assert np.array_equal(membranes.numpy(), expected)
    assert np.array_equal(fired.numpy(), spikes)
    assert 0.02 < spikes[:, 0].mean() < 0.98
    assert overflows == 0


def test_deploy_mode_saturates_as_the_reference_does() -> None:
    counted = 0
    for seed in range(6):
        head = random_head(seed, 2, seen=0.01)  # scales for tiny membranes: large ones do not fit
        membranes, fired = whole_run(head, drives(seed, 20.0))
        drives_int = torch.round(drives(seed, 20.0).double() * 64).to(torch.int64).numpy()
        expected, spikes, overflows = run_reference(head.spec(), drives_int)
        assert np.array_equal(membranes.numpy(), expected)
        assert np.array_equal(fired.numpy(), spikes)
        counted += overflows
    assert counted > 0


@pytest.mark.parametrize("deploy", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_two_parts_equal_one_run_for_any_split(seed: int, deploy: bool) -> None:
    """Bit-exact on the grid; the same spikes, and membranes to 1e-5, in float32."""
    head = random_head(seed, 3, deploy)
    drive = drives(seed)
    membranes, fired = whole_run(head, drive)
    folded = head.fold()
    for cut in range(1, STEPS):
        state = head.start(BATCH)
        with torch.no_grad():
            _, _, state = head.run(drive[:cut], state, folded)
            late, spikes, state = head.run(drive[cut:], state, folded)
        late, spikes = torch.stack(late, dim=1), torch.stack(spikes, dim=1)
        assert torch.equal(spikes, fired[cut:])
        torch.testing.assert_close(late, membranes[cut:], rtol=0, atol=0 if deploy else 1e-5)
        assert torch.equal(torch.stack(state.membrane), late[-1])


@pytest.mark.parametrize("deploy", [False, True])
def test_slayers_call_equals_single_steps(deploy: bool) -> None:
    head = random_head(4, 2, deploy)
    drive = drives(4)
    with torch.no_grad():
        belief, spikes = head(drive.permute(1, 2, 0))  # (batch, channel, time)
        folded, state = head.fold(), head.start(BATCH)
        for t in range(STEPS):
            state = head.step(drive[t], state, folded)
            torch.testing.assert_close(
                state.membrane[-1] / folded[-1].units, belief[:, :, t], rtol=0, atol=0 if deploy else 1e-5
            )
            assert torch.equal(state.spikes[-1], spikes[:, :, t])


def test_the_block_alone_takes_slayers_tensors_and_gives_the_same_spikes() -> None:
    head = random_head(5, 1, deploy=False)
    drive = drives(5)
    with torch.no_grad():
        spikes = head.layers[0](drive.permute(1, 2, 0))
        assert torch.equal(spikes, head(drive.permute(1, 2, 0))[1])
    assert spikes.shape == (BATCH, NEURONS, STEPS)


def test_float_mode_is_the_float_step_of_the_membrane() -> None:
    head = random_head(6, 1, deploy=False).double()
    drive = drives(6).double()
    membranes, fired = whole_run(head, drive)
    layer, neuron = head.layers[0], head.layers[0].neuron
    u = s = np.zeros((BATCH, NEURONS))
    with torch.no_grad():
        weight, bias = layer.weight().numpy(), layer.bias.numpy()
        lam, theta, gain, shift = (x.numpy() for x in (neuron.lam, neuron.theta, neuron.gain, neuron.shift))
    for t in range(STEPS):
        u, s = step_float(u, s, drive[t].numpy() @ weight.T + bias, lam, theta, (theta - shift) / gain)
        np.testing.assert_allclose(membranes[t, 0], u, atol=1e-12)
        assert np.array_equal(fired[t, 0], s)
        assert np.array_equal(s, gain * u + shift > theta)  # the fold: N(u) > theta


def test_a_fresh_head_starts_at_leak_09_threshold_1_and_no_affine() -> None:
    neuron = SpikingHead(WIDTH, NEURONS, 1).layers[0].neuron
    torch.testing.assert_close(neuron.lam, torch.full((NEURONS,), 0.9))
    torch.testing.assert_close(neuron.theta, torch.ones(NEURONS))
    torch.testing.assert_close(neuron.theta_fire, torch.ones(NEURONS))


def test_the_gain_is_positive_whatever_training_does() -> None:
    neuron = SoftReset(5)
    with torch.no_grad():
        neuron.raw_gain.copy_(torch.tensor([-50.0, -3.0, 0.0, 3.0, 50.0]))
    assert (neuron.gain > 0).all()
    assert (neuron.lam > 0).all()
    assert (neuron.theta > 0).all()


class ReferenceSpike(torch.autograd.Function):
    """One threshold with the arctangent surrogate, for plain autograd."""

    @staticmethod
    def forward(ctx, membrane, theta_fire, slope):
        ctx.save_for_backward(membrane, theta_fire, slope)
        return (membrane > theta_fire).to(membrane.dtype)

    @staticmethod
    def backward(ctx, grad):
        membrane, theta_fire, slope = ctx.saved_tensors
        surrogate = slope / (1.0 + (math.pi * slope * (membrane - theta_fire)) ** 2)
        return grad * surrogate, -(grad * surrogate).sum(dim=0), None


def reference_run(pre, membrane, spikes, lam, theta, theta_fire, slope, integer):
    """The recurrence as one would write it, differentiated by autograd; rounding and clipping pass gradients on."""
    membranes, fired = [], []
    for t in range(len(pre)):
        leaked = membrane * lam
        if integer:
            leaked = leaked + (leaked.trunc() - leaked).detach()
        membrane = leaked + torch.relu(pre[t]) - theta * spikes
        if integer:
            membrane = membrane + (membrane.clamp(STATE_MIN, STATE_MAX) - membrane).detach()
        spikes = ReferenceSpike.apply(membrane, theta_fire, slope)
        membranes.append(membrane)
        fired.append(spikes)
    return torch.stack(membranes), torch.stack(fired)


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 6])
def test_hand_written_gradients_equal_those_of_autograd(steps: int, integer: bool) -> None:
    """Within 1e-5: the surrogate is computed in float32."""
    generator = torch.Generator().manual_seed(steps)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    unit = 4096.0 if integer else 1.0
    pre, membrane = draw(steps, 3, 4) * unit, draw(3, 4) * unit
    spikes, lam = (draw(3, 4) > 0).double(), torch.rand(4, generator=generator, dtype=torch.float64)
    theta, theta_fire = draw(4).abs() * unit, draw(4) * 0.3 * unit
    if integer:
        pre, membrane, theta, theta_fire = (x.round() for x in (pre, membrane, theta, theta_fire))
        pre[-1, 0, 0] = 2.0**25  # one neuron saturates
        lam = (lam * 4096).round() / 4096
    slope = torch.full((4,), 1.3, dtype=torch.float64) / unit
    inputs = [x.requires_grad_() for x in (pre, membrane, spikes, lam, theta, theta_fire)]
    weights = draw(steps, 3, 4), draw(steps, 3, 4) * unit
    found = _SoftResetRun.apply(*inputs, slope, integer)
    gradients = torch.autograd.grad(sum((w * x).sum() for w, x in zip(weights, found)), inputs)
    expected = reference_run(*inputs, slope, integer)
    references = torch.autograd.grad(sum((w * x).sum() for w, x in zip(weights, expected)), inputs)
    for one, two in zip(found, expected):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)
    for one, two in zip(gradients, references):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6 * float(two.abs().max()) + 1e-12)
        assert float(two.abs().max()) > 0


def test_gradients_without_spikes_equal_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    pre = torch.randn(5, 2, 3, generator=generator, dtype=torch.float64)
    pre = torch.where(pre.abs() < 0.1, 0.5, pre).requires_grad_()  # away from the corner of the rectifier
    membrane = torch.randn(2, 3, generator=generator, dtype=torch.float64).requires_grad_()
    lam = torch.rand(3, generator=generator, dtype=torch.float64).requires_grad_()
    never = torch.full((3,), 1e9, dtype=torch.float64)
    ones = torch.ones(3, dtype=torch.float64)

    def membranes(pre: Tensor, membrane: Tensor, lam: Tensor) -> Tensor:
        return _SoftResetRun.apply(pre, membrane, torch.zeros(2, 3).double(), lam, ones, never, ones, False)[0]

    assert torch.autograd.gradcheck(membranes, (pre, membrane, lam), atol=1e-6)


@pytest.mark.parametrize("deploy", [False, True])
def test_every_parameter_of_the_head_gets_a_finite_gradient(deploy: bool) -> None:
    head = random_head(8, 2, deploy)
    belief, spikes = head(drives(8).permute(1, 2, 0))
    (belief.square().mean() + spikes.mean()).backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().max() > 0, name


def test_deploy_gradients_point_where_the_float_gradients_point() -> None:
    """Straight through: same units, nearly the same direction."""
    head = random_head(9, 1)
    gradients = []
    for deploy in (False, True):
        head.deploy = deploy
        head.zero_grad()
        head(drives(9).permute(1, 2, 0))[0].square().mean().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in head.parameters()]))
    assert torch.cosine_similarity(*gradients, dim=0) > 0.9
    assert 0.5 < gradients[1].norm() / gradients[0].norm() < 2.0


@pytest.mark.parametrize(("largest", "single"), [(100, True), (2**15 - 1, False)])
def test_sums_of_whole_numbers_are_exact_in_either_type(largest: int, single: bool) -> None:
    """Bit-exact against int64, gradients within 1e-6: in float32 below 2^24, in float64 where a sum may be larger."""
    source = np.random.default_rng(0)
    weight, z = source.integers(-128, 128, (30, 200)) * 2, source.integers(-largest, largest + 1, (40, 200))
    z[0] = largest * np.sign(weight[0])  # as far as a sum of these can go
    constants = [torch.zeros(30)] * 6
    asked = [torch.from_numpy(x).double().requires_grad_() for x in (weight, z)]
    folded = Folded(asked[0], 1.0, *constants, reach=float(np.abs(weight).sum(axis=1).max()))
    found = whole_sums(asked[1], folded)
    assert (found.dtype == torch.float32) is single
    assert found.tolist() == (z @ weight.T).tolist()
    toward = torch.from_numpy(source.standard_normal((40, 30)))
    (found * toward).sum().backward()
    for x, expected in zip(asked, (toward.T @ asked[1].detach(), toward @ asked[0].detach())):
        torch.testing.assert_close(x.grad, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))


def test_without_gradients_a_run_is_the_same_bit_for_bit() -> None:
    for deploy in (False, True):
        head = random_head(3, 2, deploy)
        membranes, fired, _ = head.run(drives(3), head.start(BATCH), head.fold())
        assert membranes[0].requires_grad
        quiet = whole_run(head, drives(3))
        assert torch.equal(torch.stack(membranes, dim=1), quiet[0])
        assert torch.equal(torch.stack(fired, dim=1), quiet[1])


def test_rounding_lands_on_integers_and_passes_the_gradient_on() -> None:
    x = torch.tensor([0.5, 1.5, -0.5, -1.2, 8388606.5, -0.3, 1e-20, -1e-20], dtype=torch.float64, requires_grad=True)
    assert round_through(x).tolist() == [0, 2, 0, -1, 8388606, 0, 0, 0]
    assert floor_through(x).tolist() == [0, 1, -1, -2, 8388606, -1, 0, -1]
    (round_through(x).sum() + 2 * floor_through(x).sum()).backward()
    assert (x.grad == 3).all()


@pytest.mark.lava
def test_without_spikes_the_leak_is_slayers_leaky_integrator_bit_for_bit() -> None:
    from lava.lib.dl.slayer.neuron.dynamics import leaky_integrator

    generator = torch.Generator().manual_seed(3)
    sums = torch.randint(0, 2**18, (STEPS, BATCH, NEURONS), generator=generator).double()
    start = torch.randint(-(2**20), 2**20, (BATCH, NEURONS), generator=generator).double()  # negative ones too
    lambda_int = torch.randint(0, 4096, (NEURONS,), generator=generator)
    never, zero = torch.full((NEURONS,), 2.0**23).double(), torch.zeros(BATCH, NEURONS).double()
    ours, fired = _SoftResetRun.apply(sums, start, zero, lambda_int / 4096.0, never, never, torch.ones(9), True)
    decay = 4096 - lambda_int
    theirs = leaky_integrator.dynamics(sums.permute(1, 2, 0) / 64, decay, start / 64, 64) * 64
    assert fired.sum() == 0
    assert torch.equal(ours.permute(1, 2, 0), theirs)
    assert (start < 0).any()


@pytest.mark.lava
def test_without_spikes_the_head_is_slayers_cuba_neuron_bit_for_bit() -> None:
    from lava.lib.dl.slayer.neuron import cuba

    stock = cuba.Neuron(threshold=1000.0, current_decay=1.0, voltage_decay=0.1, shared_param=True)
    lambda_int = 4096 - int(stock.device_params["vDecay"])
    sums = torch.randint(0, 2**14, (STEPS, BATCH, NEURONS), generator=torch.Generator().manual_seed(7))
    _, voltage = stock.dynamics((sums.permute(1, 2, 0) / stock.s_scale).float())
    zero = torch.zeros(BATCH, NEURONS).double()
    leak, never = (torch.full((NEURONS,), v).double() for v in (lambda_int / 4096, 2.0**23))
    ours, _ = _SoftResetRun.apply(sums.double(), zero, zero, leak, never, never, torch.ones(9), True)
    assert torch.equal(ours.permute(1, 2, 0), (voltage.double() * stock.s_scale).round())


def test_scales_leave_room_for_bias_and_thresholds_of_neurons_that_never_moved() -> None:
    head = SpikingHead(WIDTH, NEURONS, 2)
    with torch.no_grad():
        for layer in head.layers:
            layer.scale.fill_(1e-3)  # small rows ask for large factors
            layer.bias.fill_(-3.0)
            layer.neuron.shift.fill_(-5.0)
    head.fix_scales(np.zeros((2, NEURONS)))
    assert isinstance(head.spec(), HeadSpec)  # valid: nothing exceeds 24 bits


def test_scales_are_part_of_the_saved_state_and_a_fresh_head_has_none() -> None:
    head = random_head(1, 2)
    other = SpikingHead(WIDTH, NEURONS, 2)
    assert not other.has_scales
    other.load_state_dict(head.state_dict())
    other.deploy = True
    assert other.has_scales
    for one, two in zip(whole_run(head, drives(1)), whole_run(other, drives(1))):
        assert torch.equal(one, two)


def test_a_state_planted_from_another_episode_is_noticed() -> None:
    head = random_head(2, 2)
    clean, _ = whole_run(head, drives(2))
    with torch.no_grad():
        stale = State(tuple(clean[-1]), tuple(torch.ones(BATCH, NEURONS).double() for _ in range(2)))
        membranes, _, _ = head.run(drives(2), stale, head.fold())
    assert not torch.equal(torch.stack(membranes, dim=1), clean)
