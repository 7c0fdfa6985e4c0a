"""Which place next: the bilinear tanh scorer, deployed (paper 3.1, J.3, J.11, J.13).

    argmax_m  w . tanh(W_u b + W_g g_m)   over places not yet visited

Before the first look the belief knows nothing, and which place is worth it depends on the whole outline. A scorer for
that look alone (`FirstLook`) sees g_m and the lowest and highest value of each descriptor over the scene's places.
Scorers: `bilinear`, and the ablations `geometry` (W_u = 0), `belief` (W_g = 0), `additive` (without interaction: the
belief's part is then the same for every place). `learn/policy.py` is the trained twin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from asp_neuro.errors import ConfigError, nearest
from asp_neuro.grid.arithmetic import BELIEF_BITS, DESCRIPTOR_BITS, TANH_BITS, TANH_OPERATIONS, Product, tanh
from asp_neuro.grid.operations import Operations
from asp_neuro.grid.sections import Affine, Array, Matrix, check, leaf, part

SCORERS = ("bilinear", "geometry", "belief", "additive")
EXPONENT_MAX = 12
VISITED = -1e9  # masks a visited place; never -inf, which turns into NaN in a softmax over nothing


@dataclass(frozen=True)
class FirstLook:
    """A scorer of f units on a place's own descriptor, and the lowest and the highest of its scene."""

    outline: Affine = part("f", "3 g")
    score: Matrix = part(1, "f")

    def operations(self, n_places: int) -> Operations:
        """Of all places; their scene's lowest and highest count once."""
        units, mine = n_places * self.score.weight.size, self.outline.weight.size // 3
        return Operations(mac32=n_places * mine + 2 * mine + units, float64=(TANH_OPERATIONS + 1) * units)


@dataclass(frozen=True)
class PolicySpec:
    """d units on beliefs of width H and descriptors of width g, each multiplied by a power of two."""

    from_belief: Matrix = part("d", "H")
    from_descriptor: Affine = part("d", "g")
    score: Matrix = part(1, "d")
    exponents: Array = leaf("i1", "g", is_scale=True)  # of the descriptors' powers of two: they differ in size
    first: FirstLook | None = part("f", "3 g", default=None)
    scorer: str = "bilinear"
    mask: bool = True  # False: a place may be taken again

    def __post_init__(self) -> None:
        sizes = check(self, "policy")
        if self.first is not None and sizes["3 g"] != 3 * sizes["g"]:
            raise ConfigError(f"policy: first/outline takes {sizes['3 g']} inputs, expected 3 x {sizes['g']}")
        if not (np.abs(self.exponents.astype(int)) <= EXPONENT_MAX).all():
            raise ConfigError(f"policy: exponents {self.exponents.tolist()}, expected at most {EXPONENT_MAX} in size")
        if self.scorer not in SCORERS:
            raise ConfigError(f"policy: unknown scorer '{self.scorer}'{nearest(self.scorer, SCORERS)}")

    @property
    def n_inputs(self) -> int:
        return int(self.from_belief.weight.shape[1])

    @property
    def n_descriptors(self) -> int:
        return int(self.from_descriptor.weight.shape[1])

    @property
    def sees_belief(self) -> bool:
        """Whether a choice depends on the belief."""
        return self.scorer == "bilinear"

    def operations(self, n_places: int) -> Operations:
        """Of the scores before an observation."""
        looks, units = self.scorer in ("bilinear", "belief"), n_places * self.score.weight.size
        return Operations(mac32=looks * self.from_belief.weight.size + units, float64=(TANH_OPERATIONS + looks) * units)

    def operations_once(self, n_places: int) -> Operations:
        """Once per scene: the descriptors' part, and the first look, whose outline counts once for all places."""
        own = Operations(mac32=(self.scorer != "belief") * n_places * self.from_descriptor.weight.size)
        return own if self.first is None else own + self.first.operations(n_places)


class Choice(NamedTuple):
    """What was chosen for each scene under way, and from which scores (None: an order was given)."""

    place: np.ndarray  # [b]
    scores: np.ndarray | None = None  # [b, M]
    rivals: np.ndarray | None = None  # [b, M] bool: what could have been chosen; None: no membrane was asked


class Outlook(NamedTuple):
    """What the policy knows of a batch before the first look."""

    geometry: np.ndarray  # [n, M, d] W_g g
    first: np.ndarray | None  # [n, M] scores of the first look, if it has a scorer of its own

    def of(self, rows: np.ndarray) -> Outlook:
        """Of some scenes only."""
        return Outlook(self.geometry[rows], None if self.first is None else self.first[rows])


class Policy:
    """Ready to run on beliefs and descriptors within their bounds."""

    def __init__(self, spec: PolicySpec, belief_bound: np.ndarray, descriptor_bound: np.ndarray) -> None:
        self.spec = spec
        self.from_belief = Product("policy: from_belief", spec.from_belief, belief_bound, BELIEF_BITS)
        geometry = (descriptor_bound, DESCRIPTOR_BITS, spec.exponents)
        self.from_descriptor = Product("policy: from_descriptor", spec.from_descriptor, *geometry)
        self.score = Product("policy: score", spec.score, 1.0, TANH_BITS)
        if spec.first is not None:
            thrice = (np.tile(descriptor_bound, 3), DESCRIPTOR_BITS, np.tile(spec.exponents, 3))
            name, outline, n_own = "policy: first/outline", spec.first.outline, spec.n_descriptors
            self.first = Product(name, outline, *thrice)  # proves that the sum of the two below is exact
            own, ends = (Matrix(part, outline.shift) for part in np.split(outline.weight, [n_own], axis=1))
            self.first_own = Product(name, own, *geometry)
            self.first_ends = Product(
                name, ends, np.tile(descriptor_bound, 2), DESCRIPTOR_BITS, np.tile(spec.exponents, 2)
            )
            self.first_score = Product("policy: first/score", spec.first.score, 1.0, TANH_BITS)

    def outlook(self, descriptors: np.ndarray) -> Outlook:
        """Descriptors [n, M, g] -> what does not change while looking."""
        if self.spec.scorer == "belief":
            geometry = np.zeros((*descriptors.shape[:2], self.spec.from_belief.n_outputs))
        else:
            geometry = self.from_descriptor(descriptors) + self.from_descriptor.bias
        return Outlook(geometry, self.first_scores(descriptors))

    def first_scores(self, descriptors: np.ndarray) -> np.ndarray | None:
        """Descriptors [n, M, g] -> scores [n, M] of the first look, if it has a scorer of its own."""
        if self.spec.first is None:
            return None
        reach = (np.minimum.reduce(descriptors, axis=1), np.maximum.reduce(descriptors, axis=1))
        ends = np.concatenate(reach, axis=1)
        outline = self.first_ends(ends) + self.first.bias
        return self.first_score(tanh(self.first_own(descriptors) + outline[:, None]))[..., 0]

    def scores(self, belief: np.ndarray, geometry: np.ndarray) -> np.ndarray:
        """Beliefs [b, H] and geometry [b, M, d] -> scores [b, M]."""
        z = geometry
        if self.spec.scorer in ("bilinear", "belief"):
            z = self.from_belief(belief)[:, None, :] + geometry
        return np.asarray(self.score(tanh(z))[..., 0])

    def choose(self, belief: np.ndarray, outlook: Outlook, visited: np.ndarray, t: int) -> Choice:
        """The best-scored place of each scene (all have b rows; visited is [b, M]) at observation t."""
        if t == 1 and outlook.first is not None:
            return Choice(outlook.first.argmax(axis=1), outlook.first)
        scores = self.scores(belief, outlook.geometry)
        rivals = ~visited if self.spec.mask else np.ones_like(visited)
        place = np.where(rivals, scores, VISITED).argmax(axis=1)
        return Choice(place, scores, rivals if t > 1 else None)  # the first choice rests on no membrane
