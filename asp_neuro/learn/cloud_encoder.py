"""A chunk's points to its embedding: EdgeConv on a static kNN graph, max-pooled (paper 3.1).

Nodes are the group centres, edges go to the K nearest points of each: an edge carries (x_j - x_i, x_i). Two linear maps
on the edges and a maximum make a token per group; a token map and a maximum over the chunk's groups make the embedding.
The token map can also be given the moments of the group (`moments`), which a maximum of ReLU units is slow to learn.
A group's token depends on the group alone, so at inference only the chosen chunk is ever encoded. `on_grid` is the
deployed arithmetic, with gradients that pass through its roundings; batch statistics are then those seen so far.
"""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce

from asp_neuro.grid.arithmetic import SIGNED_MAX, UNSIGNED_MAX
from asp_neuro.learn.grid import GridRows, Ranges, Rows, to_range
from asp_neuro.scenes.cloud import GRID, MOMENT_PAIRS, MOMENT_PARTS, N_MOMENTS
from asp_neuro.scenes.cloud_encoder import CENTRE_SHIFT, MOMENT_STEPS
from asp_neuro.scenes.cloud_encoder import moments as moments_int


class NormedLinear(nn.Module):
    """A linear map and its batch normalisation, in one product.

    The batch statistics of W x follow from the mean and the covariance of x, so the wide output is never normalised
    by itself; with narrow inputs (an edge has 6 numbers) this is several times faster and the same function. Over
    several processes the statistics are those of the whole batch. At inference it is a plain affine map.
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
        return F.linear(x, *(self._from_batch(x.reshape(-1, x.shape[-1])) if self.training else self.fold()))

    def fold(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the affine map that inference runs."""
        return self._affine(self.mean, self.variance)

    def _affine(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        scale = self.gain * torch.rsqrt(variance + 1e-5)
        return self.weight * scale[:, None], self.bias - mean * scale

    def _from_batch(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        n = torch.full((1,), float(len(flat)), dtype=flat.dtype, device=flat.device)
        sums = over_processes(torch.cat([flat.sum(dim=0), n]))
        centre, n = sums[:-1] / sums[-1], sums[-1]
        apart = flat - centre
        covariance = over_processes(apart.T @ apart) / n
        mean = self.weight @ centre
        variance = ((self.weight @ covariance) * self.weight).sum(dim=1)
        with torch.no_grad():
            self.mean.lerp_(mean, self.momentum)
            self.variance.lerp_(variance * (n / (n - 1.0)), self.momentum)
        return self._affine(mean, variance)


def over_processes(x: Tensor) -> Tensor:
    """Sum over all processes, with a gradient; the tensor itself where there is only one."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        return all_reduce(x)
    return x


class _Largest(torch.autograd.Function):
    """Maximum over an axis; several that are largest share the gradient evenly, as in torch's own but faster.

    Ties are no accident here: a chunk's list of groups is padded by repeating the first one, whose gradient would
    otherwise count once for every copy.
    """

    @staticmethod
    def forward(ctx, x, dim):
        top = x.amax(dim=dim, keepdim=True)
        ctx.save_for_backward(x, top)
        ctx.dim = dim
        return top.squeeze(dim)

    @staticmethod
    def backward(ctx, grad):
        x, top = ctx.saved_tensors
        hit = torch.eq(x, top, out=torch.empty_like(x))
        return hit.mul_(grad.unsqueeze(ctx.dim) / hit.sum(dim=ctx.dim, keepdim=True)), None


def moments(offset: Tensor) -> Tensor:
    """Offsets [..., k, 3] of a group's points from its centre -> [..., 30]: of the nearest quarter, half and
    all of them, where they lie about the centre, in which plane and how wide.

    Mean / r, covariance / r^2 (xx, yy, zz, xy, xz, yz) and r, the root of the covariance's trace.
    """
    terms = torch.cat([offset, offset[..., MOMENT_PAIRS[0]] * offset[..., MOMENT_PAIRS[1]]], dim=-1)  # [..., k, 9]
    near = [max(1, offset.shape[-2] // share) for share in MOMENT_PARTS]
    sums = torch.stack([terms[..., :n, :].sum(dim=-2) for n in near], dim=-2)  # [..., 3, 9]
    count = sums.new_tensor(near)[:, None]
    total = sums[..., :3]
    second = count * sums[..., 3:] - total[..., MOMENT_PAIRS[0]] * total[..., MOMENT_PAIRS[1]]  # count^2 covariance
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
        near = grouped_points(points, members)  # [b, G, K, 3]
        centre = near[:, :, :1]  # the nearest point of a centre is itself
        offset = (near - centre) / self.reach
        edges = torch.cat([offset, centre.expand_as(near)], dim=3)  # [b, G, K, 6]
        hidden = self._noted("hidden", F.relu(self.edge_in(edges), inplace=True))
        grouped = self._noted("grouped", F.relu(_Largest.apply(self.edge_out(hidden), 2)))  # [b, G, second]
        parts = [grouped, centre[:, :, 0]]
        if self.moments:
            parts.append(moments(offset))
        return self.token_out(self._noted("token", F.relu(self.token_in(torch.cat(parts, dim=2)))))

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
        weights = {name: one.scaled() for name, one in rows.items()}
        near = grouped_points((points * GRID).round(), members)
        centre = torch.floor(near[:, :, :1] * 2.0**-CENTRE_SHIFT + 0.5)
        offset = near - near[:, :, :1]
        hidden = F.linear(torch.cat([offset, centre.expand_as(near)], dim=3), *weights["edge_in"])
        weight, bias = weights["edge_out"]
        grouped = _Largest.apply(F.linear(to_range(hidden, 0.0, UNSIGNED_MAX), weight), 2) + bias
        told = F.linear(self._geometry(centre[:, :, 0], offset), *weights["geometry"])
        scale = (2.0 ** -rows["token_in"].shift.double()).float()
        token = F.linear(to_range(grouped, 0.0, UNSIGNED_MAX), *weights["token_in"])
        token = to_range(token + to_range(told, -math.inf, math.inf) * scale, 0.0, UNSIGNED_MAX)
        weight, bias = weights["token_out"]
        pooled = largest_of(F.linear(token, weight), lists) + bias
        if self.chunk is None:
            return to_range(pooled, -SIGNED_MAX, SIGNED_MAX)
        return to_range(F.linear(to_range(pooled, 0.0, UNSIGNED_MAX), *weights["chunk"]), 0.0, UNSIGNED_MAX)

    def _geometry(self, centre: Tensor, offset: Tensor) -> Tensor:
        """Centres [b, G, 3] and offsets [b, G, K, 3], whole numbers -> [b, G, 3 or 33]."""
        if not self.moments:
            return centre
        flat = offset.flatten(0, 1).permute(2, 1, 0).numpy()  # [3, K, b G]
        told = torch.from_numpy(moments_int(flat).T.copy()).view(*centre.shape[:2], N_MOMENTS)
        return torch.cat([centre, told.to(centre.dtype)], dim=2)


def grouped_points(points: Tensor, members: Tensor) -> Tensor:
    """Points [b, P, 3] and groups [b, G, K] -> [b, G, K, 3]."""
    b, n_groups, k = members.shape
    return points.gather(1, members.reshape(b, -1, 1).expand(-1, -1, 3)).view(b, n_groups, k, 3)


def largest_of(tokens: Tensor, lists: Tensor) -> Tensor:
    """Tokens [b, G, D] and the groups of each chunk [b, M, S] -> the largest [b, M, D]."""
    b, m, s = lists.shape
    index = lists.reshape(b, m * s, 1).expand(-1, -1, tokens.shape[2])
    return _Largest.apply(tokens.gather(1, index).view(b, m, s, -1), 2)
