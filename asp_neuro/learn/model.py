"""The trained model: encoder, mixer, spiking head, belief, read-out and policy, and the episode over its chunks.

    cloud -> chunks + descriptors -> encoder -> mixer -> head -> belief -> policy / exit -> answer

At training all chunks are encoded at once (`look`), and `rollout` plays the episode of every cloud of the batch. Once
it is known where they looked, `again` computes these episodes over all steps at once, for their gradients. In deploy
mode the values of a forward pass are those of the deployed network, bit for bit: the encoder computes the same whole
numbers, and what follows it is computed by the deployed code itself (`Deployed`); gradients are those of the smooth
functions, at these values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asp_neuro.errors import ConfigError
from asp_neuro.grid.arithmetic import UNSIGNED_MAX
from asp_neuro.grid.sections import Affine
from asp_neuro.heads.spec import FORMS
from asp_neuro.learn.cloud_encoder import Encoder
from asp_neuro.learn.grid import GridRows, Ranges, instead, norm_ints
from asp_neuro.learn.heads import new_head
from asp_neuro.learn.mixer import Mixer
from asp_neuro.learn.parts import Points
from asp_neuro.learn.policy import Policy
from asp_neuro.learn.recipe import HeadRecipe, ModelRecipe, PartsRecipe
from asp_neuro.learn.soft_head import Folded, State
from asp_neuro.model.belief import Belief
from asp_neuro.model.mixer import Mixer as DeployedMixer
from asp_neuro.model.policy import VISITED
from asp_neuro.model.policy import Policy as DeployedPolicy
from asp_neuro.model.spec import ModelSpec
from asp_neuro.scenes.base import SceneSpec
from asp_neuro.scenes.cloud import Chunking
from asp_neuro.scenes.cloud_encoder import BOUND, CloudSpec
from asp_neuro.tasks.classify import Classify, ClassifySpec
from asp_neuro.tasks.parts import PartsSpec


class Batch(NamedTuple):
    """Clouds as tensors."""

    points: Tensor  # [b, P, 3]
    members: Tensor  # [b, G, K] int64
    lists: Tensor  # [b, M, S] int64, groups of each chunk
    descriptors: Tensor  # [b, M, 8]
    labels: Tensor  # [b] int64

    def part(self, which: slice) -> Batch:
        return Batch(*(one[which] for one in self))


class Sight(NamedTuple):
    """What every chunk of a cloud would show: the mixer's gates and the policy's geometry."""

    gates: Tensor  # [b, M, 4 D]
    geometry: Tensor  # [b, M, d]
    first: Tensor | None = None  # [b, M] scores of the first look, if it has a scorer of its own
    deployed: Deployed | None = None  # in deploy mode: who computes the values
    tokens: Tensor | None = None  # [b, G, w] of the groups, for a task that asks for points
    embedding: Tensor | None = None  # [b, M, D] likewise
    whole: Tensor | None = None  # [b, C] logits from a whole image, while a model learns

    def at(self, choice: Tensor) -> Tensor:
        """One-hot choice [b, M] -> gates [b, 4 D]."""
        if not torch.is_grad_enabled():
            return self.gates[torch.arange(len(choice)), choice.argmax(dim=1)]
        return (choice.to(self.gates.dtype).unsqueeze(1) @ self.gates).squeeze(1)

    def along(self, choices: Tensor) -> Tensor:
        """One-hot choices [T, b, M] -> gates [T, b, 4 D]."""
        return (choices.to(self.gates.dtype).transpose(0, 1) @ self.gates).transpose(0, 1)


class Deployed(NamedTuple):
    """The deployed arithmetic of the present weights, all but the encoder's: a forward pass computes with it."""

    mixer: DeployedMixer
    belief: Belief
    policy: DeployedPolicy
    task: Classify
    folded: list[Folded]  # of the head, without gradients


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
    drive: Tensor | None = None  # [b, D] the last one

    def scores(self, policy: Policy, detach_belief: bool = False) -> Tensor:
        """[b, M], visited chunks masked out; `detach_belief`: a stop-gradient, from here only the policy learns."""
        if self.step == 0 and self.sight.first is not None:
            return self.sight.first
        scores = self._scores(policy, self.belief.detach() if detach_belief else self.belief)
        return scores + self.visited * VISITED if self.mask else scores

    def _scores(self, policy: Policy, belief: Tensor) -> Tensor:
        deployed, geometry = self.sight.deployed, self.sight.geometry
        if deployed is None:
            return policy(belief, geometry)
        exact = deployed.policy.scores(belief.detach().numpy(), geometry.detach().numpy())
        if not torch.is_grad_enabled():
            return torch.from_numpy(exact)
        return instead(policy(belief.float(), geometry.float()).double(), exact)


class Rollout(NamedTuple):
    """What an episode at full budget leaves behind."""

    logits: Tensor  # [T, b, C]
    order: Tensor  # [T, b]
    firing_rate: Tensor  # [L]
    drives: Tensor  # [T, b, D]
    carries: Tensor  # [T, b, D]
    beliefs: Tensor  # [T, b, H]
    states: list[State]  # of the head, [T]
    folded: list[Folded]

    @torch.no_grad()
    def max_membrane(self) -> Tensor:
        """[L, H] float units."""
        layers = zip(*(state.membrane for state in self.states), strict=True)
        highest = [torch.stack(steps).abs().amax(dim=(0, 1)) for steps in layers]
        return torch.stack([u / constants.units for u, constants in zip(highest, self.folded, strict=True)])


Choose = Callable[[Episode], Tensor]  # -> one-hot choice [b, M]


class Model(nn.Module):
    """All trained parts."""

    descriptor_bound = BOUND

    def __init__(
        self, how: ModelRecipe, n_classes: int, head: HeadRecipe | None = None, task: object | None = None
    ) -> None:
        super().__init__()
        token_width = how.token_width or how.width
        self.encoder = Encoder(how.edge_widths, token_width, how.width if how.chunk_layer else 0, how.moments)
        form = head or HeadRecipe()
        self.mixer = Mixer(how.width if how.chunk_layer else token_width, how.width, FORMS[form.form].drive_bits)
        self.head = new_head(form, how.width, how.neurons, how.layers)
        self.belief_norm = nn.LayerNorm(how.neurons)
        self.readout = nn.Linear(how.neurons, n_classes)
        self.policy = Policy(how.neurons, how.policy_width, how.scorer, how.first_look, how.hidden)
        self.points, self.task = None, task
        if isinstance(task, PartsRecipe):
            if not how.chunk_layer:
                raise ConfigError('task.kind = "parts" needs model.chunk_layer = true')
            if len(task.parts) != n_classes:
                raise ConfigError(f"task.parts has {len(task.parts)} categories, the data have {n_classes}")
            self.points = Points(token_width, how.width, how.neurons, task.hidden, task.parts)
        self.mask = how.mask
        self.grid = GridRows(n_classes, how.neurons, behind=True)  # of the read-out
        self.register_buffer("grid_fixed", torch.tensor(0))

    @torch.no_grad()
    def measure(self, batch: Batch) -> None:
        """Fix the scale of the inputs from clouds of the training data."""
        near = batch.points.gather(1, batch.members.flatten(1).unsqueeze(2).expand(-1, -1, 3))
        near = near.view(*batch.members.shape, 3)
        self.encoder.reach.copy_((near - near[:, :, :1]).std() * 2.0)
        seen = batch.descriptors.flatten(0, 1)
        self.policy.centre.copy_(seen.mean(dim=0))
        self.policy.spread.copy_(seen.std(dim=0).clamp_min(1e-3))

    # On the integer grid, or not

    @property
    def deploy(self) -> bool:
        """Whether everything runs on the integer grid."""
        return self.head.deploy

    @deploy.setter
    def deploy(self, on: bool) -> None:
        self.head.deploy = on

    @property
    def has_scales(self) -> bool:
        """Whether all scales are fixed, which deploy mode needs."""
        return bool(self.grid_fixed) and self.head.has_scales

    @torch.no_grad()
    def fix_host_scales(self, batches: Iterable[Batch], points: Callable[[Model], None] | None = None) -> None:
        """Choose units and shifts of the host from activations on training data. Done once, in float mode.

        `points` shows the dense part, if there is one, some points.
        """
        training = self.training
        self.eval()
        seen = self.note_ranges(batches)
        if self.points is not None and points is not None:
            self.points.ranges = seen
            points(self)
            self.points.ranges = None
        self.train(training)
        self.encoder.fix_scales(seen)
        self.mixer.fix_scales(seen)
        self.policy.fix_scales()
        if self.points is not None:
            self.points.fix_scales(seen, seen.unit("pooled", UNSIGNED_MAX), seen.unit("embedding", UNSIGNED_MAX))
        self.grid.fix(self.readout.weight, self.readout.bias, 1.0, 1.0)
        self.grid_fixed.fill_(1)

    def note_ranges(self, batches: Iterable[Batch]) -> Ranges:
        """The largest activations of encoder and mixer."""
        self.encoder.ranges = self.mixer.ranges = seen = Ranges()
        for batch in batches:
            self.look(batch)
        self.encoder.ranges = self.mixer.ranges = None
        return seen

    @torch.no_grad()
    def spec(self, how: Chunking, classes: tuple[str, ...]) -> ModelSpec:
        """The deployed model as plain data: its integers, normalisation and input scales folded in."""
        rows = self.encoder.rows()
        scene = CloudSpec(
            **{name: one.matrix() if one.bias is None else one.affine() for name, one in rows.items()}, chunking=how
        )
        return self.spec_of(scene, classes, how.n_chunks)

    def spec_of(self, scene: SceneSpec, classes: tuple[str, ...], budget: int) -> ModelSpec:
        """With a scene of any kind."""
        return ModelSpec(
            scene=scene,
            mixer=self.mixer.spec(),
            head=self.head.spec(),
            belief=norm_ints(self.belief_norm.weight, self.belief_norm.bias),
            policy=self.policy.spec(self.mask),
            task=self._task_spec(classes),
            budget=budget,
        )

    def _task_spec(self, classes: tuple[str, ...]) -> ClassifySpec | PartsSpec:
        if self.points is None:
            return ClassifySpec(self._readout(), classes)
        assert isinstance(self.task, PartsRecipe)
        return self.points.spec(self._readout(), classes, self.task.near, self.task.asked, self.task.quantile)

    def _readout(self) -> Affine:
        return self.grid.rows(self.readout.weight, self.readout.bias).affine()

    @torch.no_grad()
    def _deployed(self) -> Deployed:
        folded = self.head.fold()
        units = folded[-1].units.double().cpu().numpy()
        largest = float(self.head.state_limit / units.min())
        belief = Belief(norm_ints(self.belief_norm.weight, self.belief_norm.bias), units, largest)
        task = ClassifySpec(self._readout(), ("",) * self.readout.out_features)
        return Deployed(
            DeployedMixer(self.mixer.spec()),
            belief,
            DeployedPolicy(self.policy.spec(self.mask), belief.bound, self.descriptor_bound),
            task.task(belief.bound),
            folded,
        )

    def look(self, batch: Batch) -> Sight:
        descriptors = batch.descriptors
        geometry, first = self.policy.geometry(descriptors), self.policy.first_scores(descriptors)
        if not self.deploy:
            tokens = self.encoder.tokens(batch.points, batch.members)
            embedding = self.encoder.pool(tokens, batch.lists)  # [b, M, D]
            sight = Sight(self.mixer.gates(embedding), geometry, first)
            return sight if self.points is None else sight._replace(tokens=F.relu(tokens), embedding=embedding)
        deployed = self._deployed()
        rows = self.encoder.rows()
        raw = self.encoder.tokens_on_grid(batch.points, batch.members, rows)
        embedding = self.encoder.pool_on_grid(raw, batch.lists, rows)
        outlook = deployed.policy.outlook(descriptors.double().numpy())
        return Sight(
            self.mixer.gates_on_grid(embedding, deployed.mixer),
            instead(geometry.double(), outlook.geometry),
            None if first is None else instead(first.double(), outlook.first),
            deployed,
            *((None, None) if self.points is None else (self.encoder.activations(raw, rows), embedding)),
        )

    def begin(self, sight: Sight) -> Episode:
        b, m = sight.geometry.shape[:2]
        known = sight.deployed is not None and not torch.is_grad_enabled()
        folded, state = sight.deployed.folded if known else self.head.fold(), self.head.start(b)
        carry = sight.geometry.new_zeros(b, self.mixer.width)
        belief = self.belief(state, folded, sight.deployed)
        return Episode(sight, folded, carry, state, belief, sight.geometry.new_zeros(b, m), mask=self.mask)

    def belief(self, state: State, folded: list[Folded], deployed: Deployed | None) -> Tensor:
        """LayerNorm of the last layer's membrane, in float units."""
        membrane = state.membrane[-1]
        exact = None if deployed is None else torch.from_numpy(deployed.belief(membrane.detach().numpy()))
        return self._belief(membrane, folded, exact)

    def _belief(self, membrane: Tensor, folded: list[Folded], exact: Tensor | None) -> Tensor:
        """Membranes [..., H] -> beliefs; in deploy mode their values are at hand."""
        if exact is not None and not torch.is_grad_enabled():
            return exact
        if exact is None:
            return self.belief_norm(membrane)  # in float units already
        smooth = self.belief_norm((membrane / folded[-1].units).to(self.belief_norm.weight.dtype))
        return instead(smooth.double(), exact)

    def logits(self, belief: Tensor, deployed: Deployed | None) -> Tensor:
        """Beliefs [..., H] -> [..., C]."""
        if deployed is None:
            return self.readout(belief)
        exact = torch.from_numpy(deployed.task.linear(belief.detach().flatten(0, -2).numpy()))
        if not torch.is_grad_enabled():
            return exact.view(*belief.shape[:-1], -1)
        return instead(self.readout(belief.float()).double(), exact)

    def step(self, carry: Tensor, gates: Tensor, deployed: Deployed | None) -> tuple[Tensor, Tensor]:
        """The mixer's step."""
        if deployed is None:
            return self.mixer.step(carry, gates)
        return self.mixer.step_on_grid(carry, gates, deployed.mixer)

    def observe(self, episode: Episode, choice: Tensor) -> None:
        """Take the chosen chunk [b, M] one-hot: advances `episode`."""
        deployed = episode.sight.deployed
        gates = episode.sight.at(choice)
        episode.drive, episode.carry = self.step(episode.carry, gates, deployed)
        episode.state = self.head.step(episode.drive, episode.state, episode.folded)
        episode.belief = self.belief(episode.state, episode.folded, deployed)
        episode.visited = torch.maximum(episode.visited, choice.detach())
        episode.step += 1

    @torch.no_grad()
    def peek(self, episode: Episode, asked: Tensor) -> Tensor:
        """Logits [n, C] that the n asked chunks ([b, M] bool) would lead to, one step ahead; nothing advances."""
        deployed = episode.sight.deployed
        place = asked.flatten().nonzero().squeeze(1)  # among all of the batch
        cloud = place // asked.shape[1]
        gates = episode.sight.gates.flatten(0, 1).index_select(0, place)
        drive, _ = self.step(episode.carry.index_select(0, cloud), gates, deployed)
        spread = State(*(tuple(x.index_select(0, cloud) for x in layers) for layers in episode.state))
        after = self.head.step(drive, spread, episode.folded)
        return self.logits(self.belief(after, episode.folded, deployed), deployed)

    def rollout(self, sight: Sight, choose: Choose, n_steps: int) -> Rollout:
        """Play `n_steps` observations with the given rule."""
        episode = self.begin(sight)
        beliefs, order, states, drives, carries = [], [], [], [], []
        for _ in range(n_steps):
            choice = choose(episode)
            self.observe(episode, choice)
            beliefs.append(episode.belief)
            order.append(choice.detach())
            states.append(episode.state)
            drives.append(episode.drive)
            carries.append(episode.carry)
        rates = [torch.stack(steps).mean() for steps in zip(*(state.spikes for state in states), strict=True)]
        all_beliefs = torch.stack(beliefs)
        return Rollout(
            self.logits(all_beliefs, sight.deployed),
            torch.stack(order).argmax(dim=2),
            torch.stack(rates),
            torch.stack(drives),
            torch.stack(carries),
            all_beliefs,
            states,
            episode.folded,
        )

    def again(self, sight: Sight, choices: Tensor, played: Rollout) -> Rollout:
        """Episodes that were played, over all steps at once: the same values, with gradients.

        `choices` [T, b, M] one-hot, with whatever gradient they have; none of it may reach a belief (`detach_belief`).
        An episode that is played with gradients has some hundred nodes a step, this a few.
        """
        deployed = sight.deployed is not None
        gates = sight.along(choices)  # [T, b, 4 D]
        drives = self.mixer.scan_on_grid(gates, played.drives, played.carries) if deployed else self.mixer.scan(gates)
        folded = self.head.fold()
        membranes, fired, _ = self.head.run(drives, self.head.start(choices.shape[1]), folded)
        beliefs = self._belief(membranes[-1], folded, played.beliefs if deployed else None)
        logits = self.readout(beliefs.to(self.readout.weight.dtype))
        return played._replace(
            logits=instead(logits.double(), played.logits) if deployed else logits,
            firing_rate=torch.stack([spikes.mean() for spikes in fired]),
            drives=drives,
            beliefs=beliefs,
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
        gain = true_likelihood(model, episode, labels)
        return one_hot(gain.argmax(dim=1), episode.visited.shape[1], episode.visited)

    return choose


def true_likelihood(model: Model, episode: Episode, labels: Tensor, among: Tensor | None = None) -> Tensor:
    """Log-likelihood [b, M] of each cloud's true class after one more chunk; VISITED where that was seen already.

    `among` [b] bool: of other clouds nothing is asked.
    """
    asked = episode.visited == 0.0
    if among is not None:
        asked &= among[:, None]
    found = torch.full_like(episode.visited, VISITED)
    if asked.any():
        log = F.log_softmax(model.peek(episode, asked), dim=1)
        own = labels[:, None].expand_as(asked)[asked]  # [n]
        found.masked_scatter_(asked, log.gather(1, own[:, None]).squeeze(1))
    return found
