"""The trained model of images: only the glimpses that are looked at are encoded, at training too.

    image -> fixation points + descriptors -> encoder of the chosen glimpse -> mixer -> head -> belief -> policy / exit

Everything behind the encoder is that of clouds (`model.py`). 49 places are many: encoding them all for every image
would cost seven times what the chosen six cost. Where glimpses are wide and overlap (`model.at_once`), encoding the
maps once for all places is cheaper at training, and gives the same embeddings. A dense control then learns beside it:
the same convolutions, their results over the whole image, one linear map (`whole`); it is not deployed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from asp_neuro.heads.spec import FORMS
from asp_neuro.learn.grid import GridRows, Ranges, instead
from asp_neuro.learn.heads import new_head
from asp_neuro.learn.image_encoder import ImageEncoder, check_at_once, glimpses_at
from asp_neuro.learn.mixer import Mixer
from asp_neuro.learn.model import Deployed, Model, Sight
from asp_neuro.learn.policy import Policy
from asp_neuro.learn.recipe import HeadRecipe, ModelRecipe
from asp_neuro.model.spec import ModelSpec
from asp_neuro.scenes.image import Gaze
from asp_neuro.scenes.image_encoder import BOUND, ImageSpec

ALL_AT_ONCE = 512  # glimpses, when all of many images are encoded


class ImageBatch(NamedTuple):
    """Images as tensors."""

    maps: list[Tensor]  # for each scale [b, c, m, m] uint8
    descriptors: Tensor  # [b, M, 8]
    labels: Tensor  # [b] int64

    def part(self, which: slice) -> ImageBatch:
        return ImageBatch([one[which] for one in self.maps], self.descriptors[which], self.labels[which])


@dataclass(frozen=True)
class Glimpses:
    """What the places of images would show, encoded when asked for: the `Sight` of images.

    What an episode looked at is encoded with gradients and kept (`taken`), so that `along` need not encode it again.
    """

    model: ImageModel
    maps: list[Tensor]
    geometry: Tensor  # [b, M, d]
    first: Tensor | None  # [b, M]
    deployed: Deployed | None
    keep: bool = False
    taken: list[Tensor] = field(default_factory=list)  # [b, 4 D] of each step

    def at(self, choice: Tensor) -> Tensor:
        """One-hot choice [b, M] -> the mixer's gates [b, 4 D]."""
        place = choice.argmax(dim=1)
        if not self.keep:
            return self.model.gates_of(self, place, self.maps)
        with torch.enable_grad():
            self.taken.append(self.model.gates_of(self, place, self.maps))
        return self.taken[-1].detach()

    def along(self, choices: Tensor) -> Tensor:
        """The gates [T, b, 4 D] of the choices [T, b, M] that were made, in that order."""
        assert len(self.taken) == len(choices)
        return torch.stack(self.taken)

    @cached_property
    def gates(self) -> Tensor:
        """[b, M, 4 D] of every place, for those who want to know (an oracle)."""
        b, n_places = self.geometry.shape[:2]
        every = torch.arange(n_places).repeat(b)
        parts = []
        for start in range(0, b * n_places, ALL_AT_ONCE):
            place = every[start : start + ALL_AT_ONCE]
            image = torch.arange(start, start + len(place)) // n_places
            parts.append(self.model.gates_of(self, place, [one[image] for one in self.maps]))
        return torch.cat(parts).view(b, n_places, -1)


class ImageModel(Model):
    """All trained parts. `value` foretells the reward, for the policy's gradient; it is not deployed."""

    def __init__(self, how: ModelRecipe, n_classes: int, head: HeadRecipe, gaze: Gaze) -> None:
        nn.Module.__init__(self)
        self.gaze = gaze
        self.encoder = ImageEncoder(gaze, how.conv_widths, how.width)
        self.mixer = Mixer(how.width, how.width, FORMS[head.form].drive_bits)
        self.head = new_head(head, how.width, how.neurons, how.layers)
        self.belief_norm = nn.LayerNorm(how.neurons)
        self.readout = nn.Linear(how.neurons, n_classes)
        self.policy = Policy(how.neurons, how.policy_width, how.scorer, how.first_look)
        self.points, self.task = None, None  # no dense part
        self.at_once = how.at_once
        if how.at_once:
            check_at_once(gaze, self.encoder.deep)
            self.whole = nn.Linear(2 * self.encoder.scale.numel(), n_classes)
        else:
            self.value = nn.Linear(how.neurons, 1)
        self.mask = how.mask
        self.grid = GridRows(n_classes, how.neurons, behind=True)  # of the read-out
        self.register_buffer("grid_fixed", torch.tensor(0))

    descriptor_bound = BOUND

    @torch.no_grad()
    def measure(self, batch: ImageBatch) -> None:
        """Fix the scale of the descriptors from images of the training data."""
        seen = batch.descriptors.flatten(0, 1)
        self.policy.centre.copy_(seen.mean(dim=0))
        self.policy.spread.copy_(seen.std(dim=0).clamp_min(1e-3))

    def note_ranges(self, batches: Iterable[ImageBatch]) -> Ranges:
        """Activations are noted where an episode looks, and at a few other places."""
        if self.at_once:
            return super().note_ranges(batches)  # type: ignore[arg-type]
        seen = Ranges()
        for batch in batches:
            sight = self.look(batch)
            self.encoder.ranges = self.mixer.ranges = seen
            places = torch.rand(len(batch.labels), self.gaze.n_places, generator=torch.Generator().manual_seed(0))
            bright = batch.descriptors[:, :, 5]
            for order in (places, bright + 0.2 * places * bright.amax()):
                for place in order.topk(self.gaze.budget, dim=1).indices.unbind(dim=1):
                    self.gates_of(sight, place, sight.maps)
            self.encoder.ranges = self.mixer.ranges = None
        return seen

    def gates_of(self, sight: Glimpses, place: Tensor, maps: list[Tensor]) -> Tensor:
        """Places [m] of m images, given as maps -> gates [m, 4 D]."""
        seen = glimpses_at(maps, place, self.gaze)
        if sight.deployed is None:
            return self.mixer.gates(self.encoder(seen, place))
        return self.mixer.gates_on_grid(self.encoder.on_grid(seen, place), sight.deployed.mixer)

    def look(self, batch: ImageBatch) -> Glimpses | Sight:  # type: ignore[override]
        descriptors = batch.descriptors
        geometry, first = self.policy.geometry(descriptors), self.policy.first_scores(descriptors)
        deployed = None
        if self.deploy:
            deployed = self._deployed()
            outlook = deployed.policy.outlook(descriptors.double().numpy())
            geometry = instead(geometry.double(), outlook.geometry)
            first = None if first is None else instead(first.double(), outlook.first)
        if not self.at_once:
            return Glimpses(self, batch.maps, geometry, first, deployed)
        if deployed is None:
            embedding, whole = self.encoder.over_maps(batch.maps)
            gates = self.mixer.gates(embedding)
        else:
            embedding, whole = self.encoder.over_maps_on_grid(batch.maps)
            gates = self.mixer.gates_on_grid(embedding, deployed.mixer)
        return Sight(gates, geometry, first, deployed, whole=self.whole(whole))

    @torch.no_grad()
    def spec(self, how: Gaze, classes: tuple[str, ...]) -> ModelSpec:
        scene = ImageSpec(**self.encoder.sections(), scale=self.encoder.scales().numpy().astype("int32"), gaze=how)
        return self.spec_of(scene, classes, how.budget)
