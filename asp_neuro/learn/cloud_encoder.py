"""A chunk's points to its embedding: EdgeConv on a static kNN graph, max-pooled (paper 3.1).

Nodes are the group centres, edges go to the K nearest points of each: an edge carries (x_j - x_i, x_i). Two linear maps
on the edges and a maximum make a token per group; a token map and a maximum over the chunk's groups make the embedding.
The token map can also be given the moments of the group (`moments`), which a maximum of ReLU units is slow to learn.
A group's token depends on the group alone, so at inference only the chosen chunk is ever encoded. `on_grid` is the
deployed arithmetic, with gradients that pass through its roundings; batch statistics are then those seen so far.

Most of a training step is the edges'. They stand coordinate by coordinate, [7, edges], and run through both maps a
block at a time (`_Edges`), so that what is between the maps stays in the caches; backward only those count that were
the largest of a group in some channel.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.distributed.nn.functional import all_reduce

from asp_neuro.grid.arithmetic import EPSILON, SIGNED_MAX, UNSIGNED_MAX
from asp_neuro.learn.grid import GridRows, Ranges, Rows, to_range
from asp_neuro.scenes.cloud import GRID, MOMENT_PAIRS, MOMENT_PARTS, N_MOMENTS
from asp_neuro.scenes.cloud_encoder import CENTRE_SHIFT, MOMENT_STEPS
from asp_neuro.scenes.cloud_encoder import moments as moments_int

BLOCK = 4096  # edges that run through the maps together: few for the caches, many for the number of calls
MANY = 65536  # ties that the backward pass takes at once


class NormedLinear(nn.Module):
    """A linear map and its batch normalisation. At inference it is a plain affine map.

    Where the output is wide and long and must not be kept (`affine`: an edge has 6 numbers), the batch statistics of
    W x follow from the mean and the covariance of x. Over several processes they are those of the whole batch.
    """

    def __init__(self, n_inputs: int, n_outputs: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_outputs, n_inputs))
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)
        self.gain = nn.Parameter(torch.ones(n_outputs))
        self.bias = nn.Parameter(torch.zeros(n_outputs))
        self.register_buffer("mean", torch.zeros(n_outputs))
        self.register_buffer("variance", torch.ones(n_outputs))
        self.momentum = momentum

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return F.linear(x, *self.fold())
        out = F.linear(x.reshape(-1, x.shape[-1]), self.weight)
        if not several_processes():
            own = (self.mean, self.variance, self.gain, self.bias)
            return F.batch_norm(out, *own, True, self.momentum, EPSILON).view(*x.shape[:-1], -1)
        n = over_processes(out.new_full((1,), float(len(out))))
        mean = over_processes(out.sum(dim=0)) / n
        apart = out - mean
        variance = over_processes(apart.square().sum(dim=0)) / n
        self._note(mean, variance, n)
        return torch.addcmul(self.bias, apart, self._scale(variance)).view(*x.shape[:-1], -1)

    def affine(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Weight and bias for inputs [n, inputs]: at training with their statistics, which are noted."""
        return self._from_batch(flat) if self.training else self.fold()

    def fold(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the affine map that inference runs."""
        return self._affine(self.mean, self.variance)

    def _affine(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        scale = self._scale(variance)
        return self.weight * scale[:, None], self.bias - mean * scale

    def _scale(self, variance: Tensor) -> Tensor:
        return self.gain * torch.rsqrt(variance + EPSILON)

    def _from_batch(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        n = torch.full((1,), float(len(flat)), dtype=flat.dtype, device=flat.device)
        sums = over_processes(torch.cat([flat.sum(dim=0), n]))
        centre, n = sums[:-1] / sums[-1], sums[-1]
        apart = flat - centre
        covariance = over_processes(apart.T @ apart) / n
        mean = self.weight @ centre
        variance = ((self.weight @ covariance) * self.weight).sum(dim=1)
        self._note(mean, variance, n)
        return self._affine(mean, variance)

    @torch.no_grad()
    def _note(self, mean: Tensor, variance: Tensor, n: Tensor) -> None:
        self.mean.lerp_(mean, self.momentum)
        self.variance.lerp_(variance * (n / (n - 1.0)), self.momentum)


def over_processes(x: Tensor) -> Tensor:
    """Sum over all processes, with a gradient; the tensor itself where there is only one."""
    return all_reduce(x) if several_processes() else x


def several_processes() -> bool:
    return dist.is_initialized() and dist.get_world_size() > 1


class _Edges(torch.autograd.Function):
    """Edges [7, E], the last row 1, through two maps, and the largest of every k: [E / k, c].

        largest of  second . open(first . edge),      open = ReLU, or on the grid whole numbers from 0 to 255

    Only the largest have a gradient, so no more is kept than which they are; the backward pass computes what is between
    the maps again for these alone, channel by channel. Several edges that are largest (`ties`) share the gradient
    evenly. The edges themselves have no gradient.
    """

    @staticmethod
    def forward(ctx, edges, first, second, k, whole):
        n_groups, c = edges.shape[1] // k, len(second)
        top, found = edges.new_empty(c, n_groups), edges.new_empty(2, c, n_groups)
        ruler = torch.stack([torch.ones(k), torch.arange(k)]).to(edges.dtype)
        ties, size = [], max(1, BLOCK // k)
        for start in range(0, n_groups, size):
            groups = slice(start, start + size)
            hidden = _opened(edges[:, start * k : (start + size) * k].t(), first, whole)
            out = torch.mm(second, hidden.t()).view(c, -1, k)
            own = top[:, groups] = out.amax(dim=2)
            hits = torch.eq(out, own.unsqueeze(2), out=out)
            # how many are largest, and the sum of their places: of one, its place
            found[:, :, groups] = torch.mm(ruler, hits.view(-1, k).t()).view(2, c, -1)
            channel, group = (found[0, :, groups] > 1.0).nonzero(as_tuple=True)
            tied, place = hits[channel, group].nonzero(as_tuple=True)
            ties.append(torch.stack([channel[tied], (start + group[tied]) * k + place]))
        ctx.save_for_backward(edges, first, second, found, torch.cat(ties, dim=1))
        ctx.k, ctx.whole = k, whole
        return top.t().contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        edges, first, second, found, ties = ctx.saved_tensors
        count, place = found
        rows, grad_first, grad_second = edges.t().contiguous(), torch.zeros_like(first.t()), torch.zeros_like(second)
        shares = grad.t() / count  # [c, groups]
        alone = (count == 1.0) & (shares != 0.0)
        places = place.long() + torch.arange(0, len(rows), ctx.k)
        of_ties = shares[ties[0], ties[1] // ctx.k]
        for channel, own in enumerate(alone.numpy()):
            which = torch.from_numpy(np.flatnonzero(own))
            at, share = places[channel].index_select(0, which), shares[channel].index_select(0, which)
            weighted, hidden, inside = _chosen(rows, at, share, first, ctx.whole)
            grad_second[channel] = share @ hidden
            grad_first.addcmul_(weighted.t() @ inside, second[channel])
        for (channel, at), share in zip(ties.split(MANY, dim=1), of_ties.split(MANY)):
            weighted, hidden, inside = _chosen(rows, at, share, first, ctx.whole)
            grad_second.index_add_(0, channel, hidden.mul_(share.unsqueeze(1)))
            grad_first.addmm_(weighted.t(), inside.mul_(second[channel]))
        return None, grad_first.t(), grad_second, None, None


def _chosen(rows: Tensor, at: Tensor, share: Tensor, first: Tensor, whole: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Of the rows [E, 7] those at `at` [n], times their shares; what the first map makes of them; where it opens."""
    part = rows.index_select(0, at)
    hidden = _opened(part, first, whole, inside := part.new_empty(len(at), len(first)))
    return part.mul_(share.unsqueeze(1)), hidden, inside


def _opened(edges: Tensor, first: Tensor, whole: bool, inside: Tensor | None = None) -> Tensor:
    """Edges [n, 7] through the first map -> [n, h]; `inside` becomes 1 where the gradient passes, else 0."""
    hidden = edges @ first.t()
    if not whole:
        hidden.clamp_min_(0.0)
        if inside is not None:
            torch.sign(hidden, out=inside)
        return hidden
    hidden.floor_()
    if inside is None:
        return hidden.clamp_(0.0, UNSIGNED_MAX)
    inside.copy_(hidden)
    torch.eq(inside, hidden.clamp_(0.0, UNSIGNED_MAX), out=inside)
    return hidden


class _LargestOf(torch.autograd.Function):
    """Rows [n, D] and the rows of each chunk [chunks, S] -> the largest [chunks, D].

    A chunk's list is padded by repeating its first row, which counts once. Chunks stand by falling length here, so that
    the r-th rows of all those that have as many are one block. Several that are largest share the gradient evenly.
    """

    @staticmethod
    def forward(ctx, rows, lists):
        order, ranks = _ranks(lists)
        top = rows.index_select(0, ranks[0])
        for rank in ranks[1:]:
            own = top[: len(rank)]
            torch.maximum(own, rows.index_select(0, rank), out=own)
        ctx.save_for_backward(rows, top, order, *ranks)
        return torch.empty_like(top).index_copy_(0, order, top)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        rows, top, order, *ranks = ctx.saved_tensors
        hits = [torch.eq(own := rows.index_select(0, rank), top[: len(rank)], out=own) for rank in ranks]
        count = hits[0].clone()
        for hit in hits[1:]:
            count[: len(hit)] += hit
        shared = grad.index_select(0, order).div_(count)
        spread = torch.zeros_like(rows)
        for rank, hit in zip(ranks, hits, strict=True):
            spread.index_add_(0, rank, hit.mul_(shared[: len(rank)]))
        return spread, None


def _ranks(lists: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Lists [chunks, S] -> chunks by falling length, and for each r the r-th rows of those that have as many."""
    real = lists != lists[:, :1]
    real[:, 0] = True
    length, order = real.sum(dim=1).sort(descending=True, stable=True)
    front = real.logical_not().sort(dim=1, stable=True).indices
    sorted_lists = lists.gather(1, front).index_select(0, order).t()  # [S, chunks], real ones first
    n_longer = (length[None] > torch.arange(lists.shape[1])[:, None]).sum(dim=1).tolist()
    return order, [row[:n] for row, n in zip(sorted_lists, n_longer) if n]


def moments(offset: Tensor) -> Tensor:
    """Offsets [..., k, 3] of a group's points from its centre -> [..., 30]: of the nearest quarter, half and
    all of them, where they lie about the centre, in which plane and how wide.

    Mean / r, covariance / r^2 (xx, yy, zz, xy, xz, yz) and r, the root of the covariance's trace.
    """
    at = offset.unbind(dim=-1)
    pairs = [at[i] * at[j] for i, j in zip(*MOMENT_PAIRS)]
    terms = torch.stack([*at, *pairs])  # [9, ..., k]
    near = [max(1, offset.shape[-2] // share) for share in MOMENT_PARTS]
    within = torch.stack([torch.arange(offset.shape[-2]) < n for n in near]).to(terms.dtype)  # [3, k]
    sums = (terms @ within.t()).movedim(0, -1)  # [..., 3, 9]
    count = sums.new_tensor(near)[:, None]
    total = sums[..., :3]
    products = torch.stack([total[..., i] * total[..., j] for i, j in zip(*MOMENT_PAIRS)], dim=-1)
    second = count * sums[..., 3:] - products  # count^2 covariance
    trace = second[..., :3].sum(dim=-1, keepdim=True).clamp_min(1e-12)
    root = trace.sqrt()
    return torch.cat([total / root, second / trace, root / count], dim=-1).flatten(-2)


class Encoder(nn.Module):
    """Points, groups and chunk lists -> embeddings."""

    def __init__(
        self, edge_widths: tuple[int, int], token_width: int, chunk_width: int = 0, moments: bool = False
    ) -> None:
        super().__init__()
        first, second = edge_widths
        n_geometry = 3 + (N_MOMENTS if moments else 0)
        self.register_buffer("reach", torch.ones(()))  # typical |x_j - x_i|, so that both halves of an edge weigh alike
        self.edge_in = NormedLinear(6, first)
        self.edge_out = nn.Linear(first, second)
        self.moments = moments  # whether tokens see them
        self.token_in = NormedLinear(second + n_geometry, token_width)
        self.token_out = nn.Linear(token_width, token_width)
        self.chunk = NormedLinear(token_width, chunk_width) if chunk_width else None  # on the pooled tokens
        self.grid = nn.ModuleDict(
            {
                "edge_in": GridRows(first, 6),
                "edge_out": GridRows(second, first),
                "token_in": GridRows(token_width, second),
                "geometry": GridRows(token_width, n_geometry),
                "token_out": GridRows(token_width, token_width),
            }
        )
        if chunk_width:
            self.grid["chunk"] = GridRows(chunk_width, token_width)
        self.ranges: Ranges | None = None  # where activations are noted

    def tokens(self, points: Tensor, members: Tensor) -> Tensor:
        """Points [b, P, 3] and groups [b, G, K] -> tokens [b, G, D]."""
        near = grouped_points(points, members)  # [3, b, G, K]
        centre = near[..., :1]  # the nearest point of a centre is itself
        offset = (near - centre) / self.reach
        edges = edges_of(offset, centre)  # [7, b G K]
        affine = self.edge_in.affine(edges[:-1].t())
        if self.ranges is not None:
            self.ranges.note("hidden", F.relu(F.linear(edges[:-1].t(), *affine)))
        grouped = self._grouped(edges, *affine, self.edge_out.weight, members, whole=False)
        grouped = self._noted("grouped", F.relu(grouped + self.edge_out.bias))  # [b, G, second]
        parts = [grouped, centre[..., 0].movedim(0, -1)]
        if self.moments:
            parts.append(moments(offset.movedim(0, -1)))
        return self.token_out(self._noted("token", F.relu(self.token_in(torch.cat(parts, dim=2)))))

    def _grouped(
        self, edges: Tensor, weight: Tensor, bias: Tensor, second: Tensor, members: Tensor, whole: bool
    ) -> Tensor:
        """Edges [7, b G K] through the maps -> the largest of each group [b, G, second]."""
        b, n_groups, k = members.shape
        first = torch.cat([weight, bias[:, None]], dim=1)
        return _Edges.apply(edges, first, second, k, whole).view(b, n_groups, -1)

    def pool(self, tokens: Tensor, lists: Tensor) -> Tensor:
        """Tokens [b, G, D] and the groups of each chunk [b, M, S] -> embeddings [b, M, D]."""
        pooled = largest_of(tokens, lists)
        if self.chunk is None:
            return self._noted("pooled", pooled)
        pooled = self._noted("pooled", F.relu(pooled))
        return self._noted("embedding", F.relu(self.chunk(pooled)))

    def forward(self, points: Tensor, members: Tensor, lists: Tensor) -> Tensor:
        return self.pool(self.tokens(points, members), lists)

    def _noted(self, name: str, x: Tensor) -> Tensor:
        if self.ranges is not None:
            self.ranges.note(name, x)
        return x

    # On the integer grid: the arithmetic of `scenes/cloud_encoder.py`, whole numbers in float32

    def maps(self) -> dict[str, tuple[Tensor, Tensor | None]]:
        """Weight and bias of every map as deployed, statistics folded in; biases stand with `token_in`."""
        token_weight, token_bias = self.token_in.fold()
        second = self.edge_out.out_features
        found: dict[str, tuple[Tensor, Tensor | None]] = {
            "edge_in": self.edge_in.fold(),
            "edge_out": (self.edge_out.weight, self.edge_out.bias),
            "token_in": (token_weight[:, :second], token_bias),
            "geometry": (token_weight[:, second:], None),
            "token_out": (self.token_out.weight, self.token_out.bias),
        }
        if self.chunk is not None:
            found["chunk"] = self.chunk.fold()
        return found

    def rows(self) -> dict[str, Rows]:
        """Every map on the grid."""
        return {name: self.grid[name].rows(*affine) for name, affine in self.maps().items()}

    @torch.no_grad()
    def fix_scales(self, seen: Ranges) -> None:
        """Units of the activations from the largest seen, shifts from the weights."""
        maps, reach = self.maps(), self.reach.double()
        units = {name: seen.unit(name, UNSIGNED_MAX) for name in ("hidden", "grouped", "token")}
        centre = torch.full((3,), 2.0**CENTRE_SHIFT / GRID, dtype=torch.float64)
        edge = torch.cat([torch.full((3,), 1.0 / GRID, dtype=torch.float64) / reach, centre])
        geometry = centre
        if self.moments:
            steps = torch.from_numpy(1.0 / MOMENT_STEPS)
            steps[-1] /= reach
            geometry = torch.cat([centre, steps.repeat(len(MOMENT_PARTS))])
        pooled = seen.unit("pooled", SIGNED_MAX if self.chunk is None else UNSIGNED_MAX)
        self.grid["edge_in"].fix(*maps["edge_in"], edge, units["hidden"])
        self.grid["edge_out"].fix(*maps["edge_out"], units["hidden"], units["grouped"])
        token = self.grid["token_in"]
        token.fix(*maps["token_in"], units["grouped"], units["token"])
        self.grid["geometry"].fix(*maps["geometry"], geometry, token.unit_out * 2.0 ** -token.shift.double())
        self.grid["token_out"].fix(*maps["token_out"], units["token"], pooled)
        if self.chunk is not None:
            self.grid["chunk"].fix(*maps["chunk"], pooled, seen.unit("embedding", UNSIGNED_MAX))

    def on_grid(self, points: Tensor, members: Tensor, lists: Tensor) -> Tensor:
        """As `forward`; embeddings are whole numbers of 8 bits."""
        rows = self.rows()
        return self.pool_on_grid(self.tokens_on_grid(points, members, rows), lists, rows)

    def tokens_on_grid(self, points: Tensor, members: Tensor, rows: dict[str, Rows]) -> Tensor:
        """As `tokens`: sums of the last map [b, G, w] without their bias, not yet rounded (`activations`)."""
        weights = {name: one.scaled() for name, one in rows.items()}
        near = grouped_points((points * GRID).round(), members)  # [3, b, G, K]
        centre = torch.floor(near[..., :1] * 2.0**-CENTRE_SHIFT + 0.5)
        offset = near - near[..., :1]
        weight, bias = weights["edge_out"]
        grouped = self._grouped(edges_of(offset, centre), *weights["edge_in"], weight, members, whole=True) + bias
        told = F.linear(self._geometry(centre[..., 0].movedim(0, -1), offset), *weights["geometry"])
        scale = (2.0 ** -rows["token_in"].shift.double()).float()
        token = F.linear(to_range(grouped, 0.0, UNSIGNED_MAX), *weights["token_in"])
        token = to_range(token + to_range(told, -math.inf, math.inf) * scale, 0.0, UNSIGNED_MAX)
        return F.linear(token, weights["token_out"][0])

    def activations(self, tokens: Tensor, rows: dict[str, Rows]) -> Tensor:
        """Sums of `tokens_on_grid` -> whole numbers of 8 bits."""
        return to_range(tokens + rows["token_out"].scaled()[1], 0.0, UNSIGNED_MAX)

    def pool_on_grid(self, tokens: Tensor, lists: Tensor, rows: dict[str, Rows]) -> Tensor:
        """As `pool`, of `tokens_on_grid`."""
        pooled = largest_of(tokens, lists) + rows["token_out"].scaled()[1]
        if self.chunk is None:
            return to_range(pooled, -SIGNED_MAX, SIGNED_MAX)
        return to_range(F.linear(to_range(pooled, 0.0, UNSIGNED_MAX), *rows["chunk"].scaled()), 0.0, UNSIGNED_MAX)

    def _geometry(self, centre: Tensor, offset: Tensor) -> Tensor:
        """Centres [b, G, 3] and offsets [3, b, G, K], whole numbers -> [b, G, 3 or 33]."""
        if not self.moments:
            return centre
        flat = offset.flatten(1, 2).transpose(1, 2).numpy()  # [3, K, b G]
        told = torch.from_numpy(moments_int(flat).T.copy()).view(*centre.shape[:2], N_MOMENTS)
        return torch.cat([centre, told.to(centre.dtype)], dim=2)


def grouped_points(points: Tensor, members: Tensor) -> Tensor:
    """Points [b, P, 3] and groups [b, G, K] -> [3, b, G, K]."""
    index = members.flatten(1).expand(3, -1, -1)  # [3, b, G K]
    return points.movedim(2, 0).contiguous().gather(2, index).view(3, *members.shape)


def edges_of(offset: Tensor, centre: Tensor) -> Tensor:
    """Offsets [3, b, G, K] and centres [3, b, G, 1] -> edges [7, b G K], the last row 1."""
    edges = offset.new_empty(7, *offset.shape[1:])
    edges[:3], edges[3:6], edges[6] = offset, centre, 1.0
    return edges.flatten(1)


def largest_of(tokens: Tensor, lists: Tensor) -> Tensor:
    """Tokens [b, G, D] and the groups of each chunk [b, M, S] -> the largest [b, M, D]."""
    b, n_groups, width = tokens.shape
    rows = lists + n_groups * torch.arange(b)[:, None, None]
    return _LargestOf.apply(tokens.flatten(0, 1), rows.flatten(0, 1)).view(b, -1, width)
