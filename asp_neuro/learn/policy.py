"""Which chunk next: the bilinear tanh scorer, whose rivals stand in `model/rules.py` (paper 3.1, J.3, J.11, J.13).

    argmax_m  w . tanh(W_u b + W_g g_m)   over unvisited chunks

Before the first look the belief knows nothing, and which chunk is worth it depends on the whole outline. A scorer for
that look alone (`FirstLook`) sees g_m and the lowest and highest value of each descriptor over the cloud's chunks.

Ablations of the scorer's inputs: `geometry` (W_u = 0), `belief` (W_g = 0), `additive` (w_u . tanh(W_u b) +
w_g . tanh(W_g g_m), both inputs without their interaction), `hidden` (descriptors that it does not see).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from asp_neuro.learn.grid import GridRows
from asp_neuro.model.policy import FirstLook as FirstLookSpec
from asp_neuro.model.policy import PolicySpec
from asp_neuro.scenes.cloud import DESCRIPTORS, N_DESCRIPTOR, N_OUTLINE


class Policy(nn.Module):
    """Scores of all chunks from belief and descriptors."""

    def __init__(
        self, n_belief: int, width: int, scorer: str = "bilinear", first_look: int = 0, hidden: Iterable[str] = ()
    ) -> None:
        super().__init__()
        self.from_belief = nn.Linear(n_belief, width, bias=False)
        self.from_descriptor = nn.Linear(N_DESCRIPTOR, width, bias=False)
        self.weight = nn.Parameter(torch.randn(width) / width**0.5)
        self.register_buffer("centre", torch.zeros(N_DESCRIPTOR))
        self.register_buffer("spread", torch.ones(N_DESCRIPTOR))
        seen = torch.ones(N_DESCRIPTOR)
        for name in hidden:
            seen[DESCRIPTORS[name]] = 0.0
        self.register_buffer("seen", seen, persistent=False)  # it follows from the recipe
        self.scorer = scorer
        self.first = FirstLook(first_look) if first_look else None
        shapes = {"from_belief": (width, n_belief), "from_descriptor": (width, N_DESCRIPTOR), "score": (1, width)}
        if first_look:
            shapes |= {"outline": (first_look, N_OUTLINE), "first_score": (1, first_look)}
        self.grid = nn.ModuleDict({name: GridRows(*shape, behind=True) for name, shape in shapes.items()})

    def standardised(self, descriptors: Tensor) -> Tensor:
        return (descriptors - self.centre) / self.spread * self.seen

    def geometry(self, descriptors: Tensor) -> Tensor:
        """Descriptors [b, M, 8] -> W_g g [b, M, d], once per cloud."""
        g = self.from_descriptor(self.standardised(descriptors))
        return g * 0.0 if self.scorer == "belief" else g

    def first_scores(self, descriptors: Tensor) -> Tensor | None:
        """Descriptors [b, M, 8] -> scores [b, M] of the first look, if it has a scorer of its own."""
        return None if self.first is None else self.first(self.standardised(descriptors))

    def forward(self, belief: Tensor, geometry: Tensor) -> Tensor:
        """Belief [..., b, H] and geometry [b, M, d] -> scores [..., b, M]."""
        if self.scorer == "additive":
            constant = torch.tanh(self.from_belief(belief)) @ self.weight
            return torch.tanh(geometry) @ self.weight + constant[..., None]
        if self.scorer == "geometry":
            return (torch.tanh(geometry) @ self.weight).expand(*belief.shape[:-1], -1)
        return torch.tanh(self.from_belief(belief)[..., None, :] + geometry) @ self.weight

    # On the integer grid

    def maps(self) -> dict[str, tuple[Tensor, Tensor | None]]:
        """Weight and bias of every map as deployed: on descriptors as they are."""
        own = self.from_descriptor.weight / self.spread * self.seen
        found: dict[str, tuple[Tensor, Tensor | None]] = {
            "from_belief": (self.from_belief.weight, None),
            "from_descriptor": (own, -own @ self.centre),
            "score": (self.weight[None], None),
        }
        if self.first is not None:  # a chunk's own, lowest and highest: thrice the same scales
            outline, thrice = self.first.from_outline, N_OUTLINE // N_DESCRIPTOR
            weight = outline.weight / self.spread.repeat(thrice) * self.seen.repeat(thrice)
            found["outline"] = weight, outline.bias - weight @ self.centre.repeat(thrice)
            found["first_score"] = self.first.weight[None], None
        return found

    def exponents(self) -> Tensor:
        """[8] powers of two that bring the descriptors to a common size."""
        return -torch.log2(self.spread.double()).round()

    @torch.no_grad()
    def fix_scales(self) -> None:
        size = 2.0 ** -self.exponents()
        units = {"from_descriptor": size, "outline": size.repeat(N_OUTLINE // N_DESCRIPTOR)}
        for name, (weight, bias) in self.maps().items():
            self.grid[name].fix(weight, bias, units.get(name, 1.0), 1.0)

    def settle(self, stored: PolicySpec) -> None:
        """Take over the last bit of the biases that descriptors are centred by (`GridRows.settle`)."""
        biases = {"from_descriptor": stored.from_descriptor.bias}
        if stored.first is not None:
            biases["outline"] = stored.first.outline.bias
        maps = self.maps()
        for name, bias in biases.items():
            weight, own = maps[name]
            assert own is not None
            self.grid[name].settle(weight, own, bias)

    def spec(self, mask: bool) -> PolicySpec:
        """The integers."""
        rows = {name: self.grid[name].rows(*affine) for name, affine in self.maps().items()}
        first = None
        if self.first is not None:
            first = FirstLookSpec(rows["outline"].affine(), rows["first_score"].matrix())
        return PolicySpec(
            from_belief=rows["from_belief"].matrix(),
            from_descriptor=rows["from_descriptor"].affine(),
            score=rows["score"].matrix(),
            exponents=self.exponents().numpy().astype(np.int8),
            first=first,
            scorer=self.scorer,
            mask=mask,
        )


class FirstLook(nn.Module):
    """Scores of all chunks before any was seen, from a chunk's own descriptors and the outline of the cloud."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.from_outline = nn.Linear(N_OUTLINE, width)
        self.weight = nn.Parameter(torch.randn(width) / width**0.5)

    def forward(self, g: Tensor) -> Tensor:
        """Standardised descriptors [b, M, 8] -> scores [b, M]."""
        ends = (g.amin(dim=1, keepdim=True), g.amax(dim=1, keepdim=True))
        seen = torch.cat([g, *(end.expand_as(g) for end in ends)], dim=2)
        return torch.tanh(self.from_outline(seen)) @ self.weight


def gumbel(noise: Tensor) -> Tensor:
    """Uniform noise on (0, 1) -> Gumbel noise."""
    return -torch.log(-torch.log(noise))


def sample(scores: Tensor, temperature: float, gumbel_noise: Tensor) -> Tensor:
    """Hard Gumbel-softmax choice [..., M]: one-hot forward, softened backward. The noise comes from `gumbel`."""
    soft = torch.softmax((scores + gumbel_noise) / temperature, dim=-1)
    hard = torch.zeros_like(soft).scatter_(-1, soft.argmax(dim=-1, keepdim=True), 1.0)
    return hard + (soft - soft.detach())
