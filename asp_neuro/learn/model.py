"""The trained model: encoder, mixer, spiking head, belief, read-out and policy, and the episode over its chunks.

    cloud -> chunks + descriptors -> encoder -> mixer -> head -> belief -> policy / exit -> answer

At training all chunks are encoded at once (`look`), and `rollout` plays the episode of every cloud of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asp_neuro.grid.sections import Affine, Norm
from asp_neuro.learn.cloud_encoder import Encoder
from asp_neuro.learn.heads import new_head
from asp_neuro.learn.mixer import Mixer
from asp_neuro.learn.policy import Policy
from asp_neuro.learn.recipe import HeadRecipe, ModelRecipe
from asp_neuro.learn.soft_head import Folded, State
from asp_neuro.model.mixer import MixerSpec
from asp_neuro.model.policy import VISITED, PolicySpec
from asp_neuro.model.policy import FirstLook as FirstLookSpec
from asp_neuro.model.spec import ModelSpec
from asp_neuro.scenes.cloud import MOMENT_PARTS, N_DESCRIPTOR, N_MOMENTS, N_OUTLINE, Chunking
from asp_neuro.scenes.cloud_encoder import CloudSpec
from asp_neuro.tasks.classify import ClassifySpec


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy().copy()


def _folded(weight: Tensor, bias: Tensor) -> Affine:
    return Affine(_array(weight), _array(bias))


def _affine(layer: nn.Linear) -> Affine:
    return _folded(layer.weight, layer.bias)


def _norm(layer: nn.LayerNorm) -> Norm:
    return Norm(_array(layer.weight), _array(layer.bias))


class Batch(NamedTuple):
    """Clouds as tensors."""

    points: Tensor  # [b, P, 3]
    members: Tensor  # [b, G, K] int64
    lists: Tensor  # [b, M, S] int64, groups of each chunk
    descriptors: Tensor  # [b, M, 8]
    labels: Tensor  # [b] int64


class Sight(NamedTuple):
    """What every chunk of a cloud would show: the mixer's gates and the policy's geometry."""

    gates: Tensor  # [b, M, 4 D]
    geometry: Tensor  # [b, M, d]
    first: Tensor | None = None  # [b, M] scores of the first look, if it has a scorer of its own


@dataclass
class Episode:
    """An episode in progress, for a batch of clouds."""

    sight: Sight
    folded: list[Folded]
    carry: Tensor  # [b, D]
    state: State
    belief: Tensor  # [b, H]
    visited: Tensor  # [b, M] 0 / 1
    step: int = 0
    mask: bool = True

    def scores(self, policy: Policy, detach_belief: bool = False) -> Tensor:
        """[b, M], visited chunks masked out; `detach_belief`: a stop-gradient, from here only the policy learns."""
        if self.step == 0 and self.sight.first is not None:
            return self.sight.first
        scores = policy(self.belief.detach() if detach_belief else self.belief, self.sight.geometry)
        return scores + self.visited * VISITED if self.mask else scores


class Rollout(NamedTuple):
    """What an episode at full budget leaves behind."""

    logits: Tensor  # [T, b, C]
    order: Tensor  # [T, b]
    firing_rate: Tensor  # [L]
    max_membrane: Tensor  # [L, H] float units


Choose = Callable[[Episode], Tensor]  # -> one-hot choice [b, M]


class Model(nn.Module):
    """All trained parts."""

    def __init__(self, how: ModelRecipe, n_classes: int, head: HeadRecipe | None = None) -> None:
        super().__init__()
        token_width = how.token_width or how.width
        self.encoder = Encoder(how.edge_widths, token_width, how.width if how.chunk_layer else 0, how.moments)
        self.mixer = Mixer(how.width if how.chunk_layer else token_width, how.width)
        self.head = new_head(head or HeadRecipe(), how.width, how.neurons, how.layers)
        self.belief_norm = nn.LayerNorm(how.neurons)
        self.readout = nn.Linear(how.neurons, n_classes)
        self.policy = Policy(how.neurons, how.policy_width, how.scorer, how.first_look)
        self.mask = how.mask

    @torch.no_grad()
    def measure(self, batch: Batch) -> None:
        """Fix the scale of the inputs from clouds of the training data."""
        near = batch.points.gather(1, batch.members.flatten(1).unsqueeze(2).expand(-1, -1, 3))
        near = near.view(*batch.members.shape, 3)
        self.encoder.reach.copy_((near - near[:, :, :1]).std() * 2.0)
        seen = batch.descriptors.flatten(0, 1)
        self.policy.centre.copy_(seen.mean(dim=0))
        self.policy.spread.copy_(seen.std(dim=0).clamp_min(1e-3))

    @torch.no_grad()
    def spec(self, how: Chunking, classes: tuple[str, ...]) -> ModelSpec:
        """The deployed model as plain data: normalisation and input scales folded in."""
        return ModelSpec(
            scene=self._scene(how),
            mixer=MixerSpec(
                _norm(self.mixer.embedding_norm), _affine(self.mixer.project), _norm(self.mixer.drive_norm)
            ),
            head=self.head.spec(),
            belief=_norm(self.belief_norm),
            policy=self._policy(),
            task=ClassifySpec(_affine(self.readout), classes),
            budget=how.n_chunks,
        )

    def _scene(self, how: Chunking) -> CloudSpec:
        encoder = self.encoder
        edge_weight, edge_bias = encoder.edge_in.fold()
        edge_weight = torch.cat([edge_weight[:, :3] / encoder.reach, edge_weight[:, 3:]], dim=1)
        token_weight, token_bias = encoder.token_in.fold()
        if encoder.moments:
            width = [-1 - at * N_MOMENTS // len(MOMENT_PARTS) for at in range(len(MOMENT_PARTS))]
            token_weight[:, width] /= encoder.reach
        return CloudSpec(
            edge_in=_folded(edge_weight, edge_bias),
            edge_out=_affine(encoder.edge_out),
            token_in=_folded(token_weight, token_bias),
            token_out=_affine(encoder.token_out),
            chunk=None if encoder.chunk is None else _folded(*encoder.chunk.fold()),
            chunking=how,
        )

    def _policy(self) -> PolicySpec:
        policy, first = self.policy, None
        descriptor = policy.from_descriptor.weight / policy.spread
        if policy.first is not None:  # a chunk's own, lowest and highest: thrice the same scales
            outline, thrice = policy.first.from_outline, N_OUTLINE // N_DESCRIPTOR
            weight = outline.weight / policy.spread.repeat(thrice)
            bias = outline.bias - weight @ policy.centre.repeat(thrice)
            first = FirstLookSpec(_folded(weight, bias), _array(policy.first.weight))
        return PolicySpec(
            from_belief=_array(policy.from_belief.weight),
            from_descriptor=_folded(descriptor, -descriptor @ policy.centre),
            score=_array(policy.weight),
            first=first,
            scorer=policy.scorer,
            mask=self.mask,
        )

    def look(self, batch: Batch) -> Sight:
        embedding = self.encoder(batch.points, batch.members, batch.lists)  # [b, M, D]
        descriptors = batch.descriptors
        return Sight(
            self.mixer.gates(embedding), self.policy.geometry(descriptors), self.policy.first_scores(descriptors)
        )

    def begin(self, sight: Sight) -> Episode:
        b, m = sight.gates.shape[:2]
        folded, state = self.head.fold(), self.head.start(b)
        carry = sight.gates.new_zeros(b, self.mixer.width)
        return Episode(
            sight, folded, carry, state, self.belief(state, folded), sight.gates.new_zeros(b, m), mask=self.mask
        )

    def belief(self, state: State, folded: list[Folded]) -> Tensor:
        """LayerNorm of the last layer's membrane, in float units."""
        last = state.membrane[-1] / folded[-1].units
        return self.belief_norm(last.to(self.belief_norm.weight.dtype))

    def observe(self, episode: Episode, choice: Tensor) -> None:
        """Take the chosen chunk [b, M] one-hot: advances `episode`."""
        gates = (choice.unsqueeze(1) @ episode.sight.gates).squeeze(1)
        drive, episode.carry = self.mixer.step(episode.carry, gates)
        episode.state = self.head.step(drive, episode.state, episode.folded)
        episode.belief = self.belief(episode.state, episode.folded)
        episode.visited = torch.maximum(episode.visited, choice.detach())
        episode.step += 1

    @torch.no_grad()
    def peek(self, episode: Episode) -> Tensor:
        """Logits [b, M, C] that each chunk would lead to, one step ahead; nothing advances."""
        b, m = episode.visited.shape
        drive, _ = self.mixer.step(episode.carry.unsqueeze(1), episode.sight.gates)
        spread = State(*(tuple(x.repeat_interleave(m, dim=0) for x in layers) for layers in episode.state))
        after = self.head.step(drive.reshape(b * m, -1), spread, episode.folded)
        return self.readout(self.belief(after, episode.folded)).view(b, m, -1)

    def rollout(self, sight: Sight, choose: Choose, n_steps: int) -> Rollout:
        """Play `n_steps` observations with the given rule."""
        episode = self.begin(sight)
        beliefs, order, states = [], [], []
        for _ in range(n_steps):
            choice = choose(episode)
            self.observe(episode, choice)
            beliefs.append(episode.belief)
            order.append(choice.detach())
            states.append(episode.state)
        layers = range(len(episode.folded))
        rates = [torch.stack([state.spikes[layer] for state in states]).mean() for layer in layers]
        with torch.no_grad():
            highest = [torch.stack([s.membrane[k] for s in states]).abs().amax(dim=(0, 1)) for k in layers]
            highest = [u / constants.units for u, constants in zip(highest, episode.folded, strict=True)]
        return Rollout(
            self.readout(torch.stack(beliefs)),
            torch.stack(order).argmax(dim=2),
            torch.stack(rates),
            torch.stack(highest),
        )


def one_hot(index: Tensor, n: int, like: Tensor) -> Tensor:
    return F.one_hot(index, n).to(like.dtype)


def follow(order: Tensor) -> Choose:
    """Rule: a given order [b, M] of the chunks."""
    return lambda episode: one_hot(order[:, episode.step], episode.visited.shape[1], episode.visited)


def learned(policy: Policy) -> Choose:
    """Rule: the best-scored chunk."""
    return lambda episode: one_hot(episode.scores(policy).argmax(dim=1), episode.visited.shape[1], episode.visited)


def oracle(model: Model, labels: Tensor) -> Choose:
    """Rule: the unvisited chunk whose observation makes the true class most likely."""

    def choose(episode: Episode) -> Tensor:
        gain = true_likelihood(model.peek(episode), labels) + episode.visited * VISITED
        return one_hot(gain.argmax(dim=1), episode.visited.shape[1], episode.visited)

    return choose


def true_likelihood(peeked: Tensor, labels: Tensor) -> Tensor:
    """Logits [b, M, C] -> log-likelihood of each cloud's true class [b, M]."""
    index = labels.view(-1, 1, 1).expand(-1, peeked.shape[1], 1)
    return F.log_softmax(peeked, dim=2).gather(2, index).squeeze(2)
