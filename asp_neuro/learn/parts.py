"""Parts, trained: the twin of `tasks/parts.py`. Logits of points from what was seen, and W b of the belief.

    context of a seen group    relu(token + largest over its neighbours + own chunk + whole + E[category]), mapped
    point                      relu(its three nearest contexts, weighted + position + E'[category]), relu, offset
    logits                     offset + W b

The belief stands under no ReLU: the bounds on decisions need logits that are affine in it. What a point must know of
the whole cloud comes from `whole`, the largest of each feature over the chunks seen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asp_neuro.grid.arithmetic import BIAS_BITS, UNSIGNED_MAX
from asp_neuro.learn.cloud_encoder import NormedLinear, largest_of
from asp_neuro.learn.grid import BIAS_MAX, GridRows, Ranges, round_through, to_range
from asp_neuro.learn.slayer import clamp
from asp_neuro.scenes.cloud import GRID
from asp_neuro.scenes.interpolation import (
    DISTANCE_HALF,
    FEATURE_BITS,
    FEATURE_UNITS,
    N_FEATURES,
    N_NEAREST,
    NEARBY,
    OFFSET_MAX,
    POSITION_SHIFT,
    WEIGHT_BITS,
)
from asp_neuro.tasks.parts import CONTEXT_MAX, CONTEXT_SHIFT, NEVER, GroupMaps, PartsSpec, PointMaps

FAR = 2.0**50  # above every squared distance in grid steps, and exact when groups are told apart by a number below 2^13


class Map(NamedTuple):
    """Where groups and points of a batch of clouds lie; whole numbers, no gradients."""

    queries: Tensor  # [b, Q, 3] float64
    centres: Tensor  # [b, G, 3] float64
    square: Tensor  # [b, Q, G] float64
    nearest: Tensor  # [b, Q] the nearest group, seen or not
    near: Tensor  # [b, G, n] the nearest groups of each, itself first
    first: Tensor  # [b, G]
    second: Tensor  # [b, G]


class Hears(NamedTuple):
    """What the points hear after some looks; see `scenes/interpolation.py`, whose numbers these are."""

    seen: Tensor  # [b, G] bool
    own: Tensor  # [b, G] the chunk that speaks for each group
    weight: Tensor  # [b, Q, G] whole numbers, float32
    features: Tensor  # [b, Q, 8] whole numbers, float32


def squares(queries: Tensor, centres: Tensor) -> Tensor:
    own = (queries**2).sum(dim=2)[..., None] + (centres**2).sum(dim=2)[:, None]
    return own - 2.0 * (queries @ centres.transpose(1, 2))


@torch.no_grad()
def map_of(points: Tensor, members: Tensor, first: Tensor, second: Tensor, queries: Tensor, n_near: int) -> Map:
    """Points [b, P, 3] in units, groups [b, G, K], chunks [b, G], queries [b, Q, 3] in whole steps."""
    steps = (points.double() * GRID).round()
    centres = steps.gather(1, members[..., :1].expand(-1, -1, 3))
    square = squares(queries, centres)
    n_groups = centres.shape[1]
    key = squares(centres, centres) * n_groups + torch.arange(n_groups)
    torch.diagonal(key, dim1=1, dim2=2).fill_(-1.0)
    near = key.topk(n_near, dim=2, largest=False).indices
    return Map(queries, centres, square, square.argmin(dim=2), near, first, second)


@torch.no_grad()
def hears(where: Map, visited: Tensor) -> Hears:
    """Chunks visited [b, M] (0 / 1)."""
    looked = visited > 0.5
    by_first = looked.gather(1, where.first)
    by_second = looked.gather(1, where.second.clamp_min(0)) & (where.second >= 0)
    seen, own = by_first | by_second, torch.where(by_first, where.first, where.second.clamp_min(0))
    b, n_queries, n_groups = where.square.shape
    key = torch.where(seen[:, None], where.square, FAR) * n_groups + torch.arange(n_groups)
    low, group = key.topk(N_NEAREST, dim=2, largest=False)
    found = torch.div(low, n_groups, rounding_mode="floor")
    found = torch.where(found >= FAR, torch.inf, found)
    pull = 1.0 / (found + NEARBY)
    total = pull[..., 0] + pull[..., 1] + pull[..., 2]
    weight = (pull / total[..., None] * 2.0**WEIGHT_BITS).round()
    weight[..., 0] = 2.0**WEIGHT_BITS - weight[..., 1] - weight[..., 2]
    any_seen = seen.any(dim=1)[:, None]
    weight = torch.where(any_seen[..., None], weight, 0.0)
    spread = torch.zeros(b, n_queries, n_groups).scatter_(2, group, weight.float())
    centre = where.centres.gather(1, group[..., :1].expand(-1, -1, 3))
    offset = (where.queries - centre).clamp(-OFFSET_MAX, OFFSET_MAX) * any_seen[..., None]
    far = torch.where(any_seen, found[..., 0], 1e12).sqrt()
    told = torch.empty(b, n_queries, N_FEATURES, dtype=torch.float64)
    told[..., :3] = (where.queries * 2.0**-POSITION_SHIFT + 0.5).floor()
    told[..., 3:6] = (offset * 2.0**-POSITION_SHIFT + 0.5).floor()
    told[..., 6] = (far / (far + DISTANCE_HALF) * 2.0**FEATURE_BITS).round()
    told[..., 7] = seen.gather(1, where.nearest) * 2.0**FEATURE_BITS
    return Hears(seen, own, spread, told.float())


class Groups(NamedTuple):
    """What groups and chunks give to contexts, once a batch."""

    token: Tensor  # [b, G, h]
    near: Tensor  # [b, G, h]
    chunk: Tensor  # [b, M, h]
    embedding: Tensor  # [b, M, D]


class Points(nn.Module):
    """The dense part of a model."""

    def __init__(self, token: int, width: int, neurons: int, hidden: int, count: tuple[int, ...]) -> None:
        super().__init__()
        n_categories, n_parts = len(count), sum(count)
        self.token = NormedLinear(token, hidden)
        self.near = nn.Linear(token, hidden, bias=False)
        self.chunk = nn.Linear(width, hidden, bias=False)
        self.whole = nn.Linear(width, hidden, bias=False)
        self.category = nn.Embedding(n_categories + 1, hidden)  # the last: not given
        self.context = nn.Linear(hidden, hidden)
        self.position = nn.Linear(N_FEATURES, hidden)
        self.point_category = nn.Embedding(n_categories + 1, hidden)
        self.hidden = nn.Linear(hidden, hidden)
        self.offset = nn.Linear(hidden, n_parts)
        self.belief = nn.Linear(neurons, n_parts, bias=False)
        for table in (self.category, self.point_category):
            nn.init.normal_(table.weight, std=0.5)
        nn.init.zeros_(self.belief.weight)
        own = torch.zeros(n_categories + 1, n_parts, dtype=torch.bool)
        at = 0
        for category, n in enumerate(count):
            own[category, at : at + n] = True
            at += n
        own[-1] = True
        self.register_buffer("own", own, persistent=False)
        self.unknown, self.count = n_categories, count
        inputs = 2 * token + 2 * width
        self.grid = nn.ModuleDict(
            {
                "mix": GridRows(hidden, inputs),
                "context": GridRows(hidden, hidden),
                "position": GridRows(hidden, N_FEATURES),
                "hidden": GridRows(hidden, hidden),
                "offset": GridRows(n_parts, hidden, behind=True),
                "belief": GridRows(n_parts, neurons, behind=True),
            }
        )
        self.splits = [token, token, width, width]
        self.ranges: Ranges | None = None

    def _noted(self, name: str, x: Tensor) -> Tensor:
        if self.ranges is not None:
            self.ranges.note(name, x)
        return x

    # In floating point

    def groups(self, tokens: Tensor, embedding: Tensor) -> Groups:
        """Tokens [b, G, w] and embeddings [b, M, D], both after their ReLU."""
        return Groups(self.token(tokens), self.near(tokens), self.chunk(embedding), embedding)

    def forward(self, groups: Groups, where: Map, visited: Tensor, belief: Tensor, category: Tensor) -> Tensor:
        """After looks at `visited` [b, M]: beliefs [b, H], categories [b] -> logits [b, Q, n_parts]."""
        told = hears(where, visited)
        mixed = self._mixed(groups, where, told, visited, self.whole) + self.category(category)[:, None]
        context = self.context(self._noted("mixed", F.relu(mixed)))  # [b, G, h]
        heard = (told.weight * 2.0**-WEIGHT_BITS) @ context
        units = torch.from_numpy(FEATURE_UNITS).float()
        x = heard + self.position(told.features * units) + self.point_category(category)[:, None]
        x = self._noted("point", F.relu(x))
        y = self._noted("hidden", F.relu(self.hidden(x)))
        return self.restrict(self.offset(y) + self.belief(belief)[:, None], category)

    def _mixed(self, groups: Groups, where: Map, told: Hears, visited: Tensor, whole: Any) -> Tensor:
        """[b, G, h] what a group hears of itself, its neighbours, its chunk and all that was seen."""
        itself = where.near[..., :1].expand_as(where.near)
        b, n_groups, n_near = where.near.shape
        known = told.seen.gather(1, where.near.flatten(1)).view(b, n_groups, n_near)
        around = largest_of(groups.near, torch.where(known, where.near, itself))
        own = groups.chunk.gather(1, told.own[..., None].expand(-1, -1, groups.chunk.shape[2]))
        all_of = (groups.embedding * visited[..., None].to(groups.embedding.dtype)).amax(dim=1)
        return groups.token + around + own + whole(all_of)[:, None]

    def restrict(self, logits: Tensor, category: Tensor) -> Tensor:
        """Parts that the category does not have are out of the question."""
        return logits.masked_fill(~self.own[category][:, None], NEVER)

    # On the integer grid: the arithmetic of `tasks/parts.py`, whole numbers in float32

    def maps(self) -> dict[str, tuple[Tensor, Tensor | None]]:
        """Weight and bias of every map as deployed; those of the tables stand with them."""
        weight, _ = self.token.fold()
        mix = torch.cat([weight, self.near.weight, self.chunk.weight, self.whole.weight], dim=1)
        return {
            "mix": (mix, None),
            "context": (self.context.weight, self.context.bias),
            "position": (self.position.weight, None),
            "hidden": (self.hidden.weight, self.hidden.bias),
            "offset": (self.offset.weight, self.offset.bias),
            "belief": (self.belief.weight, None),
        }

    def tables(self) -> dict[str, Tensor]:
        """What a category adds to `mix` and to `position`, in units of their sums, whole numbers."""
        values = {
            "mix": self.category.weight + self.token.fold()[1],
            "position": self.point_category.weight + self.position.bias,
        }
        out = {}
        for name, table in values.items():
            grid = self.grid[name]
            unit = grid.unit_out * 2.0 ** -grid.shift.double()
            out[name] = clamp(round_through(table.double() / unit), -BIAS_MAX, BIAS_MAX)
        return out

    @torch.no_grad()
    def fix_scales(self, seen: Ranges, token_unit: float, embedding_unit: float) -> None:
        """Units of the activations from the largest seen, shifts from the weights."""
        maps = self.maps()
        units = {name: seen.unit(name, UNSIGNED_MAX) for name in ("mixed", "point", "hidden")}
        inputs = torch.cat(
            [torch.full((n,), u, dtype=torch.float64)
             for n, u in zip(self.splits, (token_unit, token_unit, embedding_unit, embedding_unit))]
        )  # fmt: skip
        finer = units["point"] * 2.0**-CONTEXT_SHIFT
        largest = (self.category.weight + self.token.fold()[1]).abs().amax(dim=0)  # so that the tables fit
        self.grid["mix"].fix(maps["mix"][0], largest, inputs, units["mixed"])
        self.grid["context"].fix(*maps["context"], units["mixed"], finer)
        largest = (self.point_category.weight + self.position.bias).abs().amax(dim=0)
        self.grid["position"].fix(maps["position"][0], largest, torch.from_numpy(FEATURE_UNITS), finer)
        self.grid["hidden"].fix(*maps["hidden"], units["point"], units["hidden"])
        self.grid["offset"].fix(*maps["offset"], units["hidden"], 1.0)
        self.grid["belief"].fix(*maps["belief"], 1.0, 1.0)

    def whole_maps(self) -> dict[str, Any]:
        """Every map on the grid, for one forward pass."""
        return {name: self.grid[name].rows(*affine) for name, affine in self.maps().items()}

    def groups_on_grid(self, tokens: Tensor, embedding: Tensor) -> Groups:
        """As `groups`, of whole numbers; sums in units of `mixed`, not yet rounded."""
        weight, _ = self.whole_maps()["mix"].scaled()
        token, near, chunk, _ = weight.split(self.splits, dim=1)
        return Groups(F.linear(tokens, token), F.linear(tokens, near), F.linear(embedding, chunk), embedding)

    def on_grid(self, groups: Groups, where: Map, visited: Tensor, belief: Tensor, category: Tensor) -> Tensor:
        """As `forward`, of whole numbers; logits are those of the deployed task, bit for bit."""
        rows, tables = self.whole_maps(), self.tables()
        told = hears(where, visited)
        weight, half = rows["mix"].scaled()
        scale = (2.0 ** -rows["mix"].shift.double()).float()
        whole = weight.split(self.splits, dim=1)[3]
        mixed = self._mixed(groups, where, told, visited, lambda x: F.linear(x, whole))
        mixed = mixed + (tables["mix"].float()[category] * scale + half)[:, None]
        context = F.linear(to_range(mixed, 0.0, UNSIGNED_MAX), *rows["context"].scaled())
        context = to_range(context, -CONTEXT_MAX, CONTEXT_MAX)
        heard = to_range((told.weight @ context) * 2.0**-WEIGHT_BITS + 0.5, -torch.inf, torch.inf)
        weight, half = rows["position"].scaled()
        scale = (2.0 ** -rows["position"].shift.double()).float()
        placed = F.linear(told.features, weight) + (tables["position"].float()[category] * scale + half)[:, None]
        x = heard + to_range(placed, -torch.inf, torch.inf)
        x = to_range(x * 2.0**-CONTEXT_SHIFT + 0.5, 0.0, UNSIGNED_MAX)
        y = to_range(F.linear(x, *rows["hidden"].scaled()), 0.0, UNSIGNED_MAX)
        offset = _behind(rows["offset"], y.double())
        return self.restrict(offset + _behind(rows["belief"], belief.double())[:, None], category)

    @torch.no_grad()
    def spec(self, readout: Any, categories: tuple[str, ...], n_near: int, asked: int, quantile: float) -> PartsSpec:
        """The integers."""
        rows, tables = self.whole_maps(), self.tables()
        groups = GroupMaps(rows["mix"].matrix(), tables["mix"].numpy().astype("i4"), rows["context"].affine())
        points = PointMaps(
            rows["position"].matrix(),
            tables["position"].numpy().astype("i4"),
            rows["hidden"].affine(),
            rows["offset"].affine(),
        )
        said = rows["belief"].matrix()
        return PartsSpec(groups, points, said, readout, categories, self.count, n_near, asked, quantile)


def _behind(rows: Any, x: Tensor) -> Tensor:
    """A map behind the head: real numbers that float64 holds exactly."""
    scale = 2.0 ** -rows.shift.double()
    out = F.linear(x, rows.weight * scale[:, None])
    return out if rows.bias is None else out + rows.bias * 2.0**-BIAS_BITS * scale
