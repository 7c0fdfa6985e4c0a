"""Encoder, mixer, policy and the episode over them: equal to plain forms, and each rule changes the order alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import specs
import torch
from torch import Tensor, nn

from asp_neuro.data import load_clouds
from asp_neuro.grid.arithmetic import BELIEF_BITS, on_grid
from asp_neuro.learn import checkpoint, cloud_encoder
from asp_neuro.learn.cloud_encoder import Encoder, NormedLinear, _Edges, largest_of, moments
from asp_neuro.learn.evaluation import Record, accuracy_at, evaluate, negative_log_likelihood, temperature_scaled_nll
from asp_neuro.learn.examples import Examples, examples_of
from asp_neuro.learn.grid import GridRows, to_range
from asp_neuro.learn.machine import module_looks
from asp_neuro.learn.mixer import Mixer, gate
from asp_neuro.learn.model import Model, follow, learned, one_hot, oracle, true_likelihood
from asp_neuro.learn.policy import Policy, gumbel, sample
from asp_neuro.learn.recipe import SCORERS, ModelRecipe
from asp_neuro.learn.training import load_model
from asp_neuro.model.exit import ExitRule
from asp_neuro.model.mixer import GATES, Gates
from asp_neuro.model.mixer import Mixer as DeployedMixer
from asp_neuro.model.perceiver import Perceiver
from asp_neuro.model.policy import VISITED
from asp_neuro.model.rules import RULES
from asp_neuro.runtime.verification import Findings, compare_looks
from asp_neuro.scenes.augment import Augmentation
from asp_neuro.scenes.cloud import GRID, Chunking, describe
from asp_neuro.scenes.cloud_encoder import MOMENT_MAX, MOMENT_STEPS
from asp_neuro.scenes.cloud_encoder import moments as host_moments

HOW = Chunking(n_points=96, n_groups=12, group_size=6, n_chunks=5)
SMALL = ModelRecipe(width=12, neurons=10, layers=2, edge_widths=(6, 8), policy_width=7)


@pytest.fixture(scope="module")
def examples() -> Examples:
    return examples_of(load_clouds("shapes", "test", n_points=96).subset(range(70)), HOW)


def some_model(examples: Examples, seed: int = 0, **changes: object) -> Model:
    """A small model with lively weights, as after some training."""
    torch.manual_seed(seed)
    model = Model(ModelRecipe(**{**vars(SMALL), **changes}), 8)
    model.measure(examples.batch(np.arange(30)))
    model.train()
    model.look(examples.batch(np.arange(30)))  # fills the running statistics
    with torch.no_grad():
        model.policy.weight.mul_(5.0)
        model.readout.weight.mul_(3.0)
    return model.eval()


def perceiver_of(model: Model, examples: Examples) -> Perceiver:
    """The deployed twin; the model is in deploy mode afterwards."""
    return Perceiver(deployed(model, examples).spec(HOW, tuple("abcdefgh")))


def deployed(model: Model, examples: Examples) -> Model:
    model.deploy = False
    model.fix_host_scales([examples.batch(np.arange(40))])
    model.head.fix_scales(evaluate(model, examples).max_membrane)
    model.deploy = True
    return model


class Pair(nn.Module):
    """What NormedLinear stands for."""

    def __init__(self, ours: NormedLinear) -> None:
        super().__init__()
        out, n = ours.weight.shape
        self.linear = nn.Linear(n, out, bias=False)
        self.norm = nn.BatchNorm1d(out, momentum=ours.momentum)
        with torch.no_grad():
            self.linear.weight.copy_(ours.weight)
            self.norm.weight.copy_(ours.gain)
            self.norm.bias.copy_(ours.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.linear(x.reshape(-1, x.shape[-1]))).view(*x.shape[:-1], -1)


def normed_pair() -> tuple[NormedLinear, Pair]:
    torch.manual_seed(3)
    ours = NormedLinear(6, 9)
    with torch.no_grad():
        ours.gain.normal_()
        ours.bias.normal_()
    ours = ours.double()
    return ours, Pair(ours).double()


def test_normed_linear_equals_linear_and_batch_norm_in_value_gradient_and_statistics() -> None:
    """Within 1e-9, in float64, over several steps and then at inference."""
    ours, pair = normed_pair()
    for step in range(4):
        x = torch.randn(5, 7, 6, dtype=torch.float64) * (1 + step) + step
        xs = [x.clone().requires_grad_() for _ in range(2)]
        weight = torch.randn(5, 7, 9, dtype=torch.float64)
        outs = [module(inner) for module, inner in zip((ours, pair), xs)]
        torch.testing.assert_close(outs[0], outs[1], rtol=1e-9, atol=1e-9)
        for out in outs:
            (out.sin() * weight).sum().backward()
        torch.testing.assert_close(xs[0].grad, xs[1].grad, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(ours.weight.grad, pair.linear.weight.grad, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(ours.gain.grad, pair.norm.weight.grad, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(ours.bias.grad, pair.norm.bias.grad, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(ours.mean, pair.norm.running_mean, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(ours.variance, pair.norm.running_var, rtol=1e-10, atol=1e-12)
    x = torch.randn(11, 6, dtype=torch.float64)
    torch.testing.assert_close(ours.eval()(x), pair.eval()(x), rtol=1e-10, atol=1e-12)


def test_statistics_from_the_covariance_of_the_inputs_are_those_of_the_outputs() -> None:
    """`affine` against `forward`, within 1e-9, in float64, values, gradients and what is noted."""
    found = []
    for through in (lambda ours, x: ours(x), lambda ours, x: nn.functional.linear(x, *ours.affine(x))):
        ours, _ = normed_pair()
        x = torch.randn(35, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2 + 1
        out = through(ours, x.requires_grad_())
        out.sin().sum().backward()
        found.append((out, x.grad, ours.weight.grad, ours.gain.grad, ours.bias.grad, ours.mean, ours.variance))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_inference_leaves_the_statistics_alone_and_does_not_see_the_batch() -> None:
    ours, _ = normed_pair()
    ours(torch.randn(50, 6, dtype=torch.float64))
    before = ours.mean.clone(), ours.variance.clone()
    x = torch.randn(9, 6, dtype=torch.float64)
    torch.testing.assert_close(ours.eval()(x)[:1], ours(x[:1]), rtol=1e-12, atol=1e-12)
    assert torch.equal(before[0], ours.mean)
    assert torch.equal(before[1], ours.variance)


def plain_groups(edges: Tensor, first: Tensor, second: Tensor, k: int, whole: bool) -> Tensor:
    """Both maps on all edges at once, and torch's maximum."""
    hidden = edges.t() @ first.t()
    hidden = to_range(hidden, 0.0, 255.0) if whole else hidden.relu()
    return (hidden @ second.t()).view(-1, k, len(second)).amax(dim=1)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("block", "many"), [(1, 1000), (8, 3), (24, 1), (1000, 1000)])
def test_edges_in_blocks_are_the_plain_maps_and_maximum(
    monkeypatch: pytest.MonkeyPatch, block: int, many: int, whole: bool
) -> None:
    """Within 1e-12, in float64, values and gradients; the last two edges of a group are the same, so some are tied, and
    where nothing opens all four are; some groups have no gradient."""
    monkeypatch.setattr(cloud_encoder, "BLOCK", block)
    monkeypatch.setattr(cloud_encoder, "MANY", many)
    torch.manual_seed(0)
    edges = torch.randn(7, 11, 4, dtype=torch.float64)
    edges[:, :, 3] = edges[:, :, 2]
    edges[6] = 1.0
    weight = torch.randn(11, 6, dtype=torch.float64)
    weight[3:5] = 0.0
    found = []
    for groups in (plain_groups, _Edges.apply):
        first = (
            torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 100
        ).requires_grad_()
        second = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
        out = groups(edges.flatten(1), first, second, 4, whole)
        (out * weight).sum().backward()
        found.append((out.detach(), first.grad, second.grad))
    for plain, ours in zip(*found, strict=True):
        assert plain.abs().max() > 0.1
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


def test_a_chunks_largest_tokens_have_the_gradient_of_a_maximum() -> None:
    tokens = torch.randn(2, 6, 4, dtype=torch.float64, requires_grad=True)
    lists = torch.tensor([[[0, 3, 5], [2, 2, 2]], [[1, 1, 4], [5, 0, 5]]])  # copies of the first, at the end or between
    plain = torch.stack([torch.stack([own[rows].amax(dim=0) for rows in of]) for own, of in zip(tokens, lists)])
    assert torch.equal(largest_of(tokens, lists), plain)
    assert torch.autograd.gradcheck(lambda tokens: largest_of(tokens, lists), (tokens,))


def test_tokens_that_are_both_largest_share_the_gradient_and_copies_count_once() -> None:
    tokens = torch.tensor([[[2.0], [1.0], [2.0]]], requires_grad=True)
    largest_of(tokens, torch.tensor([[[0, 1, 0, 2, 0]]])).backward(torch.tensor([[[6.0]]]))
    assert tokens.grad.flatten().tolist() == [3.0, 0.0, 3.0]


def test_padding_a_chunks_list_changes_neither_embedding_nor_gradient() -> None:
    encoder = Encoder((6, 8), 12)
    tokens = torch.randn(2, 7, 12, dtype=torch.float64)
    short = torch.tensor([[[0, 3], [5, 6]], [[1, 2], [4, 0]]])
    long = torch.cat([short, short[..., :1].expand(-1, -1, 9)], dim=2)  # nine more copies of the first group
    gradients = []
    for lists in (short, long):
        leaf = tokens.clone().requires_grad_()
        pooled = encoder.pool(leaf, lists)
        pooled.square().sum().backward()
        gradients.append((pooled.detach(), leaf.grad))
    assert torch.equal(gradients[0][0], gradients[1][0])
    torch.testing.assert_close(gradients[0][1], gradients[1][1], rtol=1e-12, atol=0)


def test_an_embedding_depends_on_its_own_chunk_only(examples: Examples) -> None:
    model = some_model(examples)
    batch = examples.batch(np.arange(4))
    with torch.no_grad():
        whole = model.encoder(batch.points, batch.members, batch.lists)
        alone = model.encoder(batch.points, batch.members, batch.lists[:, 2:3])
        torch.testing.assert_close(alone[:, 0], whole[:, 2], rtol=0, atol=0)
        inside = torch.from_numpy(examples.chunks[np.arange(4)].mask()[:, 2])
        moved = torch.where(inside[..., None], batch.points, batch.points + 0.5)
        again = model.encoder(moved, batch.members, batch.lists)
    torch.testing.assert_close(again[:, 2], whole[:, 2], rtol=0, atol=1e-6)
    assert not torch.allclose(again[:, 0], whole[:, 0], atol=1e-3)


def test_a_gate_is_a_sigmoid_worked_out_by_hand() -> None:
    z = torch.tensor([0.0, 0.75, -0.75, 1e6, -1e6], dtype=torch.float64)
    torch.testing.assert_close(gate(z), torch.tensor([0.5, 0.8, 0.2, 1.0, 0.0], dtype=torch.float64))


def random_gates(mixer: Mixer, steps: int) -> Tensor:
    with torch.no_grad():
        return mixer.gates(torch.randn(3, steps, mixer.width, generator=torch.Generator().manual_seed(1)))


def prefix(mixer: Mixer, gates: Tensor, t: int) -> tuple[Tensor, Tensor]:
    """Drive and state after t + 1 embeddings, run again from nothing: no state is kept between calls."""
    state = torch.zeros(len(gates), mixer.width)
    for i in range(t + 1):
        keep, write, read, skip = gates[:, i].split(mixer.width, dim=-1)
        state = torch.addcmul(write, keep, state)
    return mixer.drive_norm(torch.addcmul(skip, read, state)), state


def test_the_stream_equals_the_prefix_bit_for_bit() -> None:
    mixer = Mixer(12, 12).eval()
    gates = random_gates(mixer, 16)
    carry = torch.zeros(3, 12)
    with torch.no_grad():
        for t in range(16):
            drive, carry = mixer.step(carry, gates[:, t])
            again, state = prefix(mixer, gates, t)
            assert torch.equal(drive, again)
            assert torch.equal(carry, state)


KINDS = [{}, {"token_width": 15}, {"token_width": 15, "chunk_layer": True}, {"moments": True}]


@pytest.mark.parametrize("changes", KINDS)
def test_the_deployed_host_sees_what_the_trained_encoder_sees(examples: Examples, changes: dict) -> None:
    """In deploy mode bit for bit; in floating point about the same."""
    model = some_model(examples, **changes)
    chunks = examples.chunks[np.arange(5)]
    with torch.no_grad():
        floating = model.look(examples.batch(np.arange(5))).gates.numpy()
    twin = perceiver_of(model, examples).model
    with torch.no_grad():
        expected = model.look(examples.batch(np.arange(5))).gates.numpy()
    assert (twin.spec.scene.chunk is not None) == bool(changes.get("chunk_layer"))
    assert twin.spec.scene.moments == bool(changes.get("moments"))
    view = twin.encoder.view(chunks)
    for chunk in range(chunks.n_chunks):
        found = np.concatenate(twin.mixer.gates(view.embed(np.arange(5), np.full(5, chunk))), axis=1)
        assert np.array_equal(found, expected[:, chunk])
    for one, other in zip(np.split(floating, 4, axis=2), np.split(expected, 4, axis=2), strict=True):
        assert np.corrcoef(one.ravel(), other.ravel())[0, 1] > 0.98


@pytest.mark.parametrize("changes", [*KINDS, {"first_look": 5, "moments": True, "chunk_layer": True}])
def test_whole_episodes_of_module_and_host_are_equal_bit_for_bit(examples: Examples, changes: dict) -> None:
    model = some_model(examples, **changes)
    perceiver = perceiver_of(model, examples)
    expected = perceiver.played(examples.chunks, ExitRule()).looks
    findings = Findings()
    looks = module_looks(model, perceiver, examples.chunks, ExitRule())
    compare_looks(findings, "torch", [str(i) for i in range(70)], expected, looks)
    assert findings.mismatches == 0, findings.first
    assert len({tuple(order) for order in np.stack([look.place for look in expected], axis=1)}) > 5


@pytest.mark.parametrize("path", ["encoder.edge_out.weight", "mixer.project.weight", "readout.weight", "policy.weight"])
def test_one_unit_in_one_weight_is_seen_in_an_episode(examples: Examples, path: str) -> None:
    model = some_model(examples)
    perceiver = perceiver_of(model, examples)
    with torch.no_grad():
        weight = model.get_parameter(path)
        largest = np.unravel_index(int(weight.abs().argmax()), weight.shape)
        weight[largest] *= 0.97  # some units of its 8 bits
    findings, expected = Findings(), perceiver.played(examples.chunks, ExitRule()).looks
    looks = module_looks(model, perceiver, examples.chunks, ExitRule())
    compare_looks(findings, "torch", [str(i) for i in range(70)], expected, looks)
    assert findings.mismatches > 0


def test_gradients_reach_every_weight_through_the_grid(examples: Examples) -> None:
    model = deployed(some_model(examples, moments=True, chunk_layer=True, first_look=5), examples)
    played = model.rollout(model.look(examples.batch(np.arange(20))), learned(model.policy), 5)
    scores = model.begin(model.look(examples.batch(np.arange(20)))).scores(model.policy)
    later = model.policy(torch.ones(1, 10), model.policy.geometry(examples.batch(np.arange(1)).descriptors))
    (played.logits.square().sum() + scores.square().sum() + later.sum()).backward()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0.0, name


def test_the_gradient_on_the_grid_points_where_the_smooth_one_does(examples: Examples) -> None:
    gradients = []
    for whole in (False, True):
        model = some_model(examples)
        if whole:
            deployed(model, examples)
        order = follow(torch.arange(5).expand(30, 5))
        played = model.rollout(model.look(examples.batch(np.arange(30))), order, 2)
        loss = torch.nn.functional.cross_entropy(played.logits[-1], torch.from_numpy(examples.labels[:30]))
        loss.backward()
        gradients.append(
            {name: p.grad.double().flatten() for name, p in model.named_parameters() if p.grad is not None}
        )
    for name in ("encoder.edge_out.weight", "encoder.token_out.weight", "mixer.project.weight", "readout.weight"):
        assert torch.nn.functional.cosine_similarity(*(g[name] for g in gradients), dim=0) > 0.5, name


def test_moments_say_how_points_lie_about_their_centre() -> None:
    """A flat square on one side of its centre, by hand: mean (1, 0, 1), variances 1 and 1, no other covariance."""
    square = np.array([[[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 2.0], [2.0, 0.0, 2.0]]])
    root = np.sqrt(2.0)
    nearest = [0.0] * 10  # the centre alone
    nearer = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]  # a line of two points
    whole = [1 / root, 0.0, 1 / root, 0.5, 0.0, 0.5, 0.0, 0.0, 0.0, root]
    np.testing.assert_allclose(moments(torch.from_numpy(square))[0].numpy(), nearest + nearer + whole, atol=1e-5)
    told = host_moments(square.transpose(2, 1, 0) * GRID / 4.0)[:, 0] / np.tile(MOMENT_STEPS, 3)
    np.testing.assert_allclose(
        told, [*nearest, *nearer[:9], 0.25, *whole[:9], root / 4.0], atol=1.0 / MOMENT_STEPS.min()
    )
    tilted = square.copy()
    tilted[..., 1] = tilted[..., 0]
    assert moments(torch.from_numpy(tilted))[0, 26] > 0.2  # xy
    assert moments(torch.zeros(2, 5, 3)).abs().max() < 1e-5  # a group of one point, many times
    assert not host_moments(np.zeros((3, 5, 2))).any()
    assert not host_moments(np.zeros((3, 1, 2))).any()


@pytest.mark.parametrize("seed", range(3))
def test_deployed_moments_are_the_trained_ones_and_do_not_depend_on_the_batch(seed: int) -> None:
    offset = np.random.default_rng(seed).integers(-GRID // 2, GRID // 2, (40, 16, 3)).astype(np.float64)
    offset[:, 0] = 0.0
    offset[:5, :, 1] //= 1000  # nearly flat
    offset[5:10, 2:] = offset[5:10, 1:2]  # nearly all of them the same: the largest mean / r there is
    planes = np.ascontiguousarray(offset.transpose(2, 1, 0))
    told = host_moments(planes)
    trained = moments(torch.from_numpy((offset / GRID).astype(np.float32))).numpy().T
    steps = np.tile(MOMENT_STEPS, 3)[:, None]
    clipped = np.clip(trained * steps, -MOMENT_MAX, MOMENT_MAX)
    assert np.abs(told - clipped).max() <= 1.0
    alone = [host_moments(planes[..., at : at + 1]) for at in range(40)]
    assert np.array_equal(np.concatenate(alone, axis=1), told)
    assert np.abs(told).max() <= MOMENT_MAX


def test_the_deployed_host_follows_a_carry_of_any_size(examples: Examples) -> None:
    """What is read from the carry may have few bits or forty; the drive is that of LayerNorm all the same."""
    model = some_model(examples)
    host, mixer = perceiver_of(model, examples).model.mixer, model.mixer
    rng = np.random.default_rng(0)
    gain, bias = (
        array.astype(np.float64)
        for array in (mixer.drive_norm.weight.detach().numpy(), mixer.drive_norm.bias.detach().numpy())
    )
    for size in (2.0**10, 2.0**18, 2.0**19, 2.0**30, 2.0**40):
        mixed = rng.normal(size=(50, mixer.width))
        mixed = np.rint(mixed * size / np.abs(mixed).max(axis=1, keepdims=True))
        centred = mixed - mixed.mean(axis=1, keepdims=True)
        exact = (centred / centred.std(axis=1, keepdims=True) * gain + bias) * 64.0
        assert np.abs(host.drive(mixed) - exact).max() <= 0.5 + 1e-2, size
        alone = np.concatenate([host.drive(row[None]) for row in mixed])
        assert np.array_equal(alone, host.drive(mixed))
    assert not host.drive(np.zeros((2, mixer.width))).std()  # nothing to see: the bias alone


def test_a_trained_host_drives_the_head_as_the_trained_module_does() -> None:
    """The shipped compact model over whole episodes: all that is compared is equal, bit for bit."""
    model, recipe, classes, _ = load_model(checkpoint.find("compact"))
    clouds = load_clouds("shapes", "validation", n_points=recipe.chunking.n_points, classes=classes).subset(range(24))
    perceiver = Perceiver(model.spec(recipe.chunking, classes))
    scenes = perceiver.scenes(clouds.points)
    findings = Findings()
    looks = perceiver.played(scenes, ExitRule()).looks
    compare_looks(findings, "torch", list(clouds.names), looks, module_looks(model, perceiver, scenes, ExitRule()))
    assert findings.mismatches == 0
    assert findings.compared["drives"] == 16 * 24 * 64


def test_the_deployed_stream_equals_the_prefix_bit_for_bit(examples: Examples) -> None:
    """Alone, and as the last of sixteen in a batch."""
    mixer = perceiver_of(some_model(examples), examples).model.mixer
    embeddings = np.random.default_rng(2).integers(-127, 128, (16, SMALL.width)).astype(np.float32)
    carry = mixer.start(1)
    for t in range(16):
        drive, carry = mixer.step(carry, embeddings[t : t + 1])
        states = mixer.start(16)
        for embedding in embeddings[: t + 1]:
            again, states = mixer.step(states, np.stack([*embeddings[:15], embedding]))
        assert np.array_equal(drive, again[-1:])
        assert np.array_equal(carry, states[-1:])
    assert np.abs(drive).max() > 10


def test_the_deployed_state_is_the_sum_of_what_was_written_and_kept_since(examples: Examples) -> None:
    """Against the closed form, h = sum_i (prod_{j>i} A_j) B_i V_i: each step rounds by half a unit at most."""
    mixer = perceiver_of(some_model(examples), examples).model.mixer
    embeddings = np.random.default_rng(3).integers(-127, 128, (9, 2, SMALL.width)).astype(np.float32)
    gates = [mixer.gates(embedding) for embedding in embeddings]
    keep, write = (np.stack([getattr(gate, name) for gate in gates]) for name in ("keep", "write"))
    carry = mixer.start(2)
    for t in range(9):
        drive, carry = mixer.step(carry, embeddings[t])
        closed = sum((keep[i + 1 : t + 1] / 4096.0).prod(axis=0) * write[i] for i in range(t + 1))
        assert np.abs(carry - closed).max() <= 0.5 * t + 1e-6
        assert (carry == np.rint(carry)).all()
        again = mixer.drive(gates[t].read * carry + gates[t].skip * 2.0**mixer.spec.skip_shift)
        assert np.array_equal(drive, again)
    assert np.abs(carry - write[-1]).max() > 10.0  # what came before is still seen


def test_a_step_of_the_deployed_mixer_by_hand() -> None:
    """A = 3/4, B V = 10 and a carry of -7: -21/4 = -5.25 is rounded to -5."""
    spec = specs.random_mixer(np.random.default_rng(0), 4)
    mixer = DeployedMixer(spec)
    one = np.ones((1, 4))
    _, carry = mixer.advance(-7.0 * one, Gates(3072.0 * one, 10.0 * one, one, 0.0 * one))
    assert carry.tolist() == [[5.0] * 4]
    _, half = mixer.advance(2.0 * one, Gates(1024.0 * one, 0.0 * one, one, 0.0 * one))
    assert half.tolist() == [[1.0] * 4]  # halves go up
    assert GATES[128] == 2048.0
    assert GATES[128 + 12] == 0.8 * 4096.0 // 1 + 1  # z = 3/4: 3276.8, rounded
    assert GATES.max() < 4096.0


def test_the_state_is_the_sum_of_what_was_written_and_kept_since() -> None:
    """Against the closed form, h = sum_i (prod_{j>i} A_j) B_i V_i, within 1e-12 in float64."""
    mixer = Mixer(12, 12).double().eval()
    with torch.no_grad():
        gates = mixer.gates(torch.randn(2, 9, 12, dtype=torch.float64))
        keep, write = gates[..., :12], gates[..., 12:24]
        carry = torch.zeros(2, 12, dtype=torch.float64)
        for t in range(9):
            _, carry = mixer.step(carry, gates[:, t])
            closed = sum(keep[:, i + 1 : t + 1].prod(dim=1) * write[:, i] for i in range(t + 1))
            torch.testing.assert_close(carry, closed, rtol=1e-12, atol=1e-12)


def test_a_stale_carry_does_not_go_unnoticed() -> None:
    """The check above can fail: a carry left over from another episode shows in the first drive."""
    mixer = Mixer(12, 12).eval()
    gates = random_gates(mixer, 4)
    with torch.no_grad():
        _, stale = prefix(mixer, gates.flip(1), 3)
        drive, _ = mixer.step(stale, gates[:, 0])
        assert not torch.equal(drive, prefix(mixer, gates, 0)[0])


def test_the_drive_is_bounded_as_documented() -> None:
    mixer = Mixer(12, 12).eval()
    with torch.no_grad():
        mixer.drive_norm.weight.normal_()
        mixer.drive_norm.bias.normal_()
        drive, _ = mixer.step(torch.randn(500, 12) * 100, mixer.gates(torch.randn(500, 12) * 10))
    bound = mixer.drive_norm.weight.abs() * 11**0.5 + mixer.drive_norm.bias.abs()
    assert (drive.abs() <= bound + 1e-4).all()


@pytest.fixture(scope="module", params=[False, True], ids=["float", "deploy"])
def model(request: pytest.FixtureRequest, examples: Examples) -> Model:
    found = some_model(examples)
    return deployed(found, examples) if request.param else found


@pytest.fixture(scope="module")
def records(model: Model, examples: Examples) -> dict[str, Record]:
    return {rule: evaluate(model, examples, rule) for rule in RULES}


def test_every_rule_takes_every_chunk_exactly_once(records: dict[str, Record]) -> None:
    for record in records.values():
        assert (np.sort(record.order, axis=0) == np.arange(5)[:, None]).all()


def test_the_rules_take_different_orders_with_the_same_weights(model: Model, examples: Examples) -> None:
    before = {k: v.clone() for k, v in model.state_dict().items()}
    orders = {rule: evaluate(model, examples, rule).order for rule in RULES}
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert (orders["fps_order"] == np.arange(5)[:, None]).all()
    pairs = [(a, b) for a in RULES for b in RULES if a < b]
    assert all(not np.array_equal(orders[a], orders[b]) for a, b in pairs)


def test_a_rules_order_replayed_gives_the_same_logits_bit_for_bit(
    model: Model, examples: Examples, records: dict[str, Record]
) -> None:
    for record in records.values():
        batch = examples.batch(np.arange(64))
        with torch.no_grad():
            order = torch.from_numpy(record.order[:, :64].T.copy())
            again = model.rollout(model.look(batch), follow(order), 5)
        assert np.array_equal(again.logits.numpy(), record.logits[:, :64])


def test_the_random_rule_follows_its_seed(model: Model, examples: Examples, records: dict[str, Record]) -> None:
    same, other = (evaluate(model, examples, "random", seed) for seed in (0, 1))
    assert np.array_equal(same.order, records["random"].order)
    assert np.array_equal(same.logits, records["random"].logits)
    assert not np.array_equal(other.order, same.order)
    first = np.bincount(records["random"].order[0], minlength=5)
    assert first.min() > 0


def test_the_oracle_finds_the_best_first_chunk(model: Model, examples: Examples, records: dict[str, Record]) -> None:
    def likelihood(record: Record) -> np.ndarray:
        log = torch.log_softmax(torch.from_numpy(record.logits[0]), dim=1)
        return log[torch.arange(len(record.labels)), torch.from_numpy(record.labels)].numpy()

    best = likelihood(records["oracle"])
    for rule in RULES:
        assert (best >= likelihood(records[rule]) - 1e-5).all()
    assert (best > likelihood(records["fps_order"]) + 1e-3).any()


def test_the_oracle_sees_what_observing_then_shows(model: Model, examples: Examples) -> None:
    batch = examples.batch(np.arange(6))
    with torch.no_grad():
        episode = model.begin(model.look(batch))
        for _ in range(3):
            peeked = model.peek(episode, torch.ones(6, 5, dtype=torch.bool)).view(6, 5, -1)
            before = episode.carry.clone(), episode.state.membrane[-1].clone()
            choice = oracle(model, batch.labels)(episode)
            assert torch.equal(before[0], episode.carry)  # peeking and choosing advance nothing
            assert torch.equal(before[1], episode.state.membrane[-1])
            own = torch.log_softmax(peeked, dim=2)[torch.arange(6), :, batch.labels]
            gain = own.masked_fill(episode.visited > 0, -np.inf)
            assert torch.equal(choice.argmax(dim=1), gain.argmax(dim=1))
            model.observe(episode, choice)
            seen = model.logits(episode.belief, episode.sight.deployed)
            torch.testing.assert_close(seen, peeked[torch.arange(6), choice.argmax(dim=1)], rtol=1e-4, atol=1e-4)


def test_only_chunks_to_come_of_the_clouds_in_question_are_looked_at_ahead(model: Model, examples: Examples) -> None:
    batch, among = examples.batch(np.arange(6)), torch.tensor([True, False, True, True, False, True])
    asked = []
    with torch.no_grad():
        episode = model.begin(model.look(batch))
        model.observe(episode, one_hot(torch.arange(6) % 5, 5, episode.visited))
        every = true_likelihood(model, episode, batch.labels)
        original, model.peek = model.peek, lambda episode, which: asked.append(which) or original(episode, which)
        some = true_likelihood(model, episode, batch.labels, among)
        none = true_likelihood(model, episode, batch.labels, torch.zeros(6, dtype=torch.bool))
        del model.peek
    assert [int(which.sum()) for which in asked] == [4 * 4]  # and nothing where nobody is asked
    torch.testing.assert_close(some[among], every[among], rtol=1e-5, atol=1e-5)
    assert (some[~among] == VISITED).all()
    assert (none == VISITED).all()
    assert torch.equal(every == VISITED, episode.visited > 0)


@pytest.mark.parametrize("deploy", [False, True])
def test_chunks_are_taken_alike_with_and_without_gradients(examples: Examples, deploy: bool) -> None:
    model = some_model(examples)
    if deploy:
        deployed(model, examples)
    sight = model.look(examples.batch(np.arange(6)))
    choice = one_hot(torch.tensor([0, 1, 2, 3, 4, 0]), 5, sight.geometry)
    with torch.no_grad():
        picked = sight.at(choice)
    assert torch.equal(picked, sight.at(choice))
    assert torch.equal(picked, sight.along(choice[None])[0])
    assert sight.at(choice).requires_grad


def test_without_the_mask_a_chunk_may_be_taken_again(examples: Examples) -> None:
    free = some_model(examples, mask=False, scorer="geometry")
    record = evaluate(free, examples)
    assert (record.order == record.order[:1]).all()  # the geometry does not change, so neither does the choice
    masked = some_model(examples, scorer="geometry")
    assert (np.sort(evaluate(masked, examples).order, axis=0) == np.arange(5)[:, None]).all()


@pytest.mark.parametrize("scorer", SCORERS)
def test_each_scorer_uses_its_inputs_and_ignores_the_others(scorer: str) -> None:
    torch.manual_seed(0)
    policy = Policy(10, 7, scorer)
    with torch.no_grad():
        beliefs, descriptors = torch.randn(2, 4, 10), torch.randn(2, 4, 5, 8)
        one, other_belief, other_place = (
            policy(b, policy.geometry(g))
            for b, g in ((beliefs[0], descriptors[0]), (beliefs[1], descriptors[0]), (beliefs[0], descriptors[1]))
        )
    assert torch.equal(one, other_belief) == (scorer == "geometry")
    assert torch.equal(one, other_place) == (scorer == "belief")
    preference = one - one[:, :1]  # what the choice sees
    other_preference = other_belief - other_belief[:, :1]
    if scorer == "additive":  # both inputs count, but they do not interact
        torch.testing.assert_close(preference, other_preference, rtol=0, atol=1e-5)
    if scorer == "bilinear":
        assert not torch.allclose(preference, other_preference, atol=1e-2)


def test_the_bilinear_score_is_the_one_worked_out_by_hand() -> None:
    policy = Policy(1, 1)
    with torch.no_grad():
        policy.from_belief.weight.fill_(2.0)
        policy.from_descriptor.weight.fill_(0.0)
        policy.from_descriptor.weight[0, 3] = 1.0
        policy.weight.fill_(3.0)
        policy.centre[3], policy.spread[3] = 1.0, 4.0
        descriptors = torch.zeros(1, 2, 8)
        descriptors[0, :, 3] = torch.tensor([1.0, 5.0])  # standardised: 0 and 1
        scores = policy(torch.tensor([[0.25]]), policy.geometry(descriptors))
    torch.testing.assert_close(scores, 3 * torch.tanh(torch.tensor([[0.5, 1.5]])))


def test_the_first_look_sees_the_lowest_and_the_highest_of_the_cloud() -> None:
    policy = Policy(1, 1, first_look=1)
    with torch.no_grad():
        policy.first.from_outline.weight.fill_(0.0)
        policy.first.from_outline.weight[0, [3, 8 + 3, 16 + 3]] = torch.tensor([0.01, 0.1, 1.0])
        policy.first.from_outline.bias.fill_(-1.0)
        policy.first.weight.fill_(3.0)
        policy.centre[3], policy.spread[3] = 1.0, 4.0
        descriptors = torch.zeros(2, 3, 8)
        descriptors[:, :, 3] = torch.tensor([[1.0, 5.0, 9.0], [5.0, 5.0, 9.0]])  # standardised: 0, 1, 2 and 1, 1, 2
        scores = policy.first_scores(descriptors)
    inside = torch.tensor([[1.0, 1.01, 1.02], [1.11, 1.11, 1.12]])  # own / 100 + lowest / 10 + highest - 1
    torch.testing.assert_close(scores, 3 * torch.tanh(inside))
    assert Policy(1, 1).first_scores(descriptors) is None


def test_the_first_look_chooses_the_first_chunk_and_no_other(examples: Examples) -> None:
    batch = examples.batch(np.arange(6))
    model = some_model(examples, first_look=7)
    with torch.no_grad():
        sight = model.look(batch)
        episode = model.begin(sight)
        first = episode.scores(model.policy)
        assert torch.equal(first, model.policy.first_scores(batch.descriptors))
        model.observe(episode, learned(model.policy)(episode))
        later = episode.scores(model.policy)
        usual = model.policy(episode.belief, sight.geometry) + episode.visited * VISITED
    assert torch.equal(later, usual)
    assert torch.equal(episode.visited.argmax(dim=1), first.argmax(dim=1))
    descriptors = batch.descriptors.numpy().astype(np.float64)
    perceiver = perceiver_of(model, examples)
    policy = perceiver.model.policy
    np.testing.assert_allclose(policy.first_scores(descriptors), first.numpy(), atol=0.1)
    with torch.no_grad():
        assert np.array_equal(policy.first_scores(descriptors), model.look(batch).first.numpy())
    alone = np.concatenate([policy.first_scores(row[None]) for row in descriptors])
    assert np.array_equal(alone, policy.first_scores(descriptors))
    answers = perceiver.answers(examples.chunks[:6])
    assert [answer.order[0] for answer in answers] == policy.first_scores(descriptors).argmax(axis=1).tolist()


@pytest.mark.parametrize("scorer", SCORERS)
def test_the_deployed_policy_scores_as_the_trained_one(examples: Examples, scorer: str) -> None:
    model = some_model(examples, scorer=scorer)
    batch = examples.batch(np.arange(6))
    belief = torch.randn(6, 10, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        geometry = model.policy.geometry(batch.descriptors)
        expected = model.policy(belief, geometry)
    descriptors = batch.descriptors.numpy().astype(np.float64)
    policy = perceiver_of(model, examples).model.policy
    outlook = policy.outlook(descriptors)
    np.testing.assert_allclose(outlook.geometry, geometry.numpy(), atol=0.05)
    beliefs = on_grid(belief.numpy().astype(np.float64), BELIEF_BITS)
    found, wanted = policy.scores(beliefs, outlook.geometry), expected.numpy()
    np.testing.assert_allclose(found - found[:, :1], wanted - wanted[:, :1], atol=0.2)
    alone = [policy.outlook(row[None]).geometry for row in descriptors]
    assert np.array_equal(np.concatenate(alone), outlook.geometry)
    alone = [policy.scores(beliefs[i : i + 1], outlook.geometry[i : i + 1]) for i in range(6)]
    assert np.array_equal(np.concatenate(alone), found)


def test_a_sampled_choice_is_one_hot_forward_and_soft_backward() -> None:
    scores = torch.tensor([[0.0, 1.0, -1e9], [2.0, -1.0, 0.5]], requires_grad=True)
    choice = sample(scores, 0.5, torch.zeros(2, 3))
    assert choice.tolist() == [[0, 1, 0], [1, 0, 0]]
    (choice * torch.tensor([1.0, 2.0, 4.0])).sum().backward()
    soft = torch.softmax(scores.detach() / 0.5, dim=1).requires_grad_()
    leaf = scores.detach().clone().requires_grad_()
    (torch.softmax(leaf / 0.5, dim=1) * torch.tensor([1.0, 2.0, 4.0])).sum().backward()
    torch.testing.assert_close(scores.grad, leaf.grad)
    assert soft[0, 2] == 0  # a visited chunk has no share


def test_gumbel_noise_makes_choices_as_likely_as_the_softmax_says() -> None:
    scores = torch.tensor([1.0, 0.0, -1.0]).expand(20_000, 3)
    noise = torch.rand(20_000, 3, generator=torch.Generator().manual_seed(0)).clamp(1e-9, 1 - 1e-7)
    share = sample(scores, 0.3, gumbel(noise)).mean(dim=0)
    torch.testing.assert_close(share, torch.softmax(scores[0], dim=0), rtol=0, atol=0.012)


def test_the_extremes_of_the_noise_stay_finite() -> None:
    assert torch.isfinite(gumbel(torch.tensor([0.0, 1.0]).clamp(1e-9, 1 - 1e-7))).all()


def test_the_learned_rule_masks_what_was_visited_even_when_it_scores_best(examples: Examples) -> None:
    model = some_model(examples)
    with torch.no_grad():
        episode = model.begin(model.look(examples.batch(np.arange(8))))
        first = learned(model.policy)(episode).argmax(dim=1)
        episode.visited[torch.arange(8), first] = 1.0
        second = learned(model.policy)(episode).argmax(dim=1)
    assert (first != second).all()


def test_batches_hold_the_descriptors_of_the_changed_points(examples: Examples) -> None:
    index = np.array([5, 2, 9])
    plain = examples.batch(index)
    changed = examples.batch(index, Augmentation(turn=90.0, drop=0.2), np.random.default_rng(1))
    assert not torch.equal(plain.points, changed.points)
    assert not torch.allclose(plain.descriptors, changed.descriptors, atol=1e-3)
    for batch in (plain, changed):
        mask = replace(examples.chunks[index], members=batch.members.numpy()).mask()
        assert np.array_equal(batch.descriptors.numpy(), describe(batch.points.numpy(), mask))
        exact = describe(batch.points.double().numpy(), mask)
        np.testing.assert_allclose(batch.descriptors.numpy(), exact, atol=2e-3)
    assert np.array_equal(plain.members, examples.chunks[index].members)
    assert (changed.members != plain.members).any()
    assert plain.labels.tolist() == examples.labels[index].tolist()


def test_evaluating_keeps_the_mode_and_follows_hand_computed_accuracy(examples: Examples) -> None:
    model = some_model(examples).train()
    evaluate(model, examples)
    assert model.training
    logits = np.zeros((2, 3, 2), np.float32)
    logits[0, :, 0] = 1.0  # after one look every answer is class 0
    logits[1, 1:, 1] = 3.0  # after two, the last two clouds are class 1
    record = Record(logits, np.zeros((2, 3), int), np.array([0, 1, 0]), np.zeros(1), np.zeros((1, 1)))
    # right after one look: clouds 0 and 2; after two: cloud 0 (a tie goes to class 0) and cloud 1
    assert accuracy_at(record) == {"1": 2 / 3, "2": 2 / 3, "M": 2 / 3}
    assert record.accuracy(average=True).tolist() == [2 / 3, 2 / 3]
    log = [np.log1p(np.exp(x)) for x in (-1, 1, -1, 0, -3, 3)]
    assert negative_log_likelihood(record) == pytest.approx(np.mean(log))


def test_a_rule_nobody_knows_is_refused(examples: Examples) -> None:
    with pytest.raises(ValueError, match="unknown rule 'best'"):
        evaluate(some_model(examples), examples, "best")


def test_the_beginning_knows_nothing_of_the_cloud(examples: Examples) -> None:
    model = some_model(examples)
    with torch.no_grad():
        episode = model.begin(model.look(examples.batch(np.arange(5))))
    assert torch.equal(episode.belief, model.belief_norm.bias.expand_as(episode.belief))
    assert episode.visited.sum() == 0


def test_a_temperature_scaled_nll_does_not_mind_how_sure_a_model_is_as_a_whole() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(400, 5)).astype(np.float32)
    share = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.array([rng.choice(5, p=p / p.sum()) for p in share.astype(np.float64)])
    own = -np.log(share[np.arange(400), labels])
    np.testing.assert_allclose(temperature_scaled_nll(logits, labels), own, rtol=1e-5)  # these are the true odds
    np.testing.assert_allclose(temperature_scaled_nll(logits / 2.0, labels), own, rtol=1e-5)


def test_a_finished_model_keeps_the_last_bit_of_its_biases_on_a_machine_that_adds_in_another_way() -> None:
    """One step is the library's; two are another model, and stay a difference."""
    grid = GridRows(3, 2, behind=True)
    weight, bias = torch.tensor([[1.0, -0.5], [0.25, 2.0], [0.5, 0.5]]), torch.tensor([0.3, -0.7, 0.0])
    grid.fix(weight, bias, 1.0, 1.0)
    own = grid.rows(weight, bias).bias.numpy()
    grid.settle(weight, bias, own + np.array([1, 0, -2]))
    assert (grid.rows(weight, bias).bias.numpy() - own).tolist() == [1.0, 0.0, 0.0]
    grid.settle(weight, bias, own)
    assert np.array_equal(grid.rows(weight, bias).bias.numpy(), own)
