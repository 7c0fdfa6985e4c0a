"""The trained model: encoder, mixer, spiking head, belief, read-out and policy, and the episode over its chunks.

    cloud -> chunks + descriptors -> encoder -> mixer -> head -> belief -> policy / exit -> answer

At training all chunks are encoded at once (`look`), and `rollout` plays the episode of every cloud of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asp_neuro.encoder import Encoder
from asp_neuro.heads.slayer import Folded, SpikingHead, State
from asp_neuro.mixer import Mixer
from asp_neuro.policy import VISITED, Policy
from asp_neuro.recipe import ModelRecipe


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


@dataclass
class Moment:
    """An episode in progress, for a batch of clouds."""

    sight: Sight
    folded: list[Folded]
    carry: Tensor  # [b, D]
    state: State
    belief: Tensor  # [b, H]
    visited: Tensor  # [b, M] 0 / 1
    step: int = 0
    mask: bool = True
    peeked: Tensor | None = field(default=None)

    def scores(self, policy: Policy) -> Tensor:
        """[b, M], visited chunks masked out."""
        scores = policy(self.belief, self.sight.geometry)
        return scores + self.visited * VISITED if self.mask else scores


class Rollout(NamedTuple):
    """What an episode at full budget leaves behind."""

    logits: Tensor  # [T, b, C]
    order: Tensor  # [T, b]
    firing_rate: Tensor  # [L]
    max_membrane: Tensor  # [L, H] float units


Choose = Callable[[Moment], Tensor]  # -> one-hot choice [b, M]


class Model(nn.Module):
    """All trained parts."""

    def __init__(self, how: ModelRecipe, n_classes: int) -> None:
        super().__init__()
        self.encoder = Encoder(how.edge_widths, how.width)
        self.mixer = Mixer(how.width)
        self.head = SpikingHead(how.width, how.neurons, how.layers)
        self.belief_norm = nn.LayerNorm(how.neurons)
        self.readout = nn.Linear(how.neurons, n_classes)
        self.policy = Policy(how.neurons, how.policy_width, how.scorer)
        self.mask = how.mask

    def look(self, batch: Batch) -> Sight:
        embedding = self.encoder(batch.points, batch.members, batch.lists)  # [b, M, D]
        return Sight(self.mixer.gates(embedding), self.policy.geometry(batch.descriptors))

    def begin(self, sight: Sight) -> Moment:
        b, m = sight.gates.shape[:2]
        folded, state = self.head.fold(), self.head.start(b)
        carry = sight.gates.new_zeros(b, self.mixer.width)
        return Moment(
            sight, folded, carry, state, self.belief(state, folded), sight.gates.new_zeros(b, m), mask=self.mask
        )

    def belief(self, state: State, folded: list[Folded]) -> Tensor:
        """LayerNorm of the last layer's membrane, in float units."""
        last = state.membrane[-1] / folded[-1].units
        return self.belief_norm(last.to(self.belief_norm.weight.dtype))

    def observe(self, moment: Moment, choice: Tensor) -> tuple[Tensor, Tensor]:
        """Take the chosen chunk [b, M] one-hot: advances `moment`; returns logits [b, C] and spikes [L, b, H]."""
        gates = (choice.unsqueeze(1) @ moment.sight.gates).squeeze(1)
        drive, moment.carry = self.mixer.step(moment.carry, gates)
        _, spikes, moment.state = self.head.run(drive.unsqueeze(0), moment.state, moment.folded)
        moment.belief = self.belief(moment.state, moment.folded)
        moment.visited = torch.maximum(moment.visited, choice.detach())
        moment.step += 1
        return self.readout(moment.belief), spikes[0]

    @torch.no_grad()
    def peek(self, moment: Moment) -> Tensor:
        """Logits [b, M, C] that each chunk would lead to, one step ahead; nothing advances."""
        b, m = moment.visited.shape
        drive, _ = self.mixer.step(moment.carry.unsqueeze(1), moment.sight.gates)
        membrane, spikes = (x.repeat_interleave(m, dim=1) for x in moment.state)
        _, _, after = self.head.run(drive.reshape(1, b * m, -1), State(membrane, spikes), moment.folded)
        return self.readout(self.belief(after, moment.folded)).view(b, m, -1)

    def rollout(self, sight: Sight, choose: Choose, n_steps: int) -> Rollout:
        """Play `n_steps` observations with the given rule."""
        moment = self.begin(sight)
        logits, order, rates, highest = [], [], [], None
        for _ in range(n_steps):
            choice = choose(moment)
            step_logits, spikes = self.observe(moment, choice)
            logits.append(step_logits)
            order.append(choice.detach().argmax(dim=1))
            rates.append(spikes.mean(dim=(1, 2)))
            with torch.no_grad():
                units = torch.stack([layer.units for layer in moment.folded]).unsqueeze(1)
                reached = (moment.state.membrane / units).abs().amax(dim=1)
                highest = reached if highest is None else torch.maximum(highest, reached)
        return Rollout(torch.stack(logits), torch.stack(order), torch.stack(rates).mean(dim=0), highest)


def one_hot(index: Tensor, n: int, like: Tensor) -> Tensor:
    return F.one_hot(index, n).to(like.dtype)


def follow(order: Tensor) -> Choose:
    """Rule: a given order [b, M] of the chunks."""
    return lambda moment: one_hot(order[:, moment.step], moment.visited.shape[1], moment.visited)


def learned(policy: Policy) -> Choose:
    """Rule: the best-scored chunk."""
    return lambda moment: one_hot(moment.scores(policy).argmax(dim=1), moment.visited.shape[1], moment.visited)


def oracle(model: Model, labels: Tensor) -> Choose:
    """Rule: the unvisited chunk whose observation makes the true class most likely."""

    def choose(moment: Moment) -> Tensor:
        gain = true_likelihood(model.peek(moment), labels) + moment.visited * VISITED
        return one_hot(gain.argmax(dim=1), moment.visited.shape[1], moment.visited)

    return choose


def true_likelihood(peeked: Tensor, labels: Tensor) -> Tensor:
    """Logits [b, M, C] -> log-likelihood of each cloud's true class [b, M]."""
    index = labels.view(-1, 1, 1).expand(-1, peeked.shape[1], 1)
    return F.log_softmax(peeked, dim=2).gather(2, index).squeeze(2)
