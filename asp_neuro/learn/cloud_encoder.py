"""A chunk's points to its embedding: EdgeConv on a static kNN graph, max-pooled (paper 3.1).

Nodes are the group centres, edges go to the K nearest points of each: an edge carries (x_j - x_i, x_i). Two linear maps
on the edges and a maximum make a token per group; a token map and a maximum over the chunk's groups make the embedding.
The token map can also be given the moments of the group (`moments`), which a maximum of ReLU units is slow to learn.
A group's token depends on the group alone, so at inference only the chosen chunk is ever encoded.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce

from asp_neuro.scenes.cloud import MOMENT_PAIRS, MOMENT_PARTS, N_MOMENTS


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
        self.register_buffer("reach", torch.ones(()))  # typical |x_j - x_i|, so that both halves of an edge weigh alike
        self.edge_in = NormedLinear(6, first)
        self.edge_out = nn.Linear(first, second)
        self.moments = moments  # whether tokens see them
        self.token_in = NormedLinear(second + 3 + (N_MOMENTS if moments else 0), token_width)
        self.token_out = nn.Linear(token_width, token_width)
        self.chunk = NormedLinear(token_width, chunk_width) if chunk_width else None  # on the pooled tokens

    def tokens(self, points: Tensor, members: Tensor) -> Tensor:
        """Points [b, P, 3] and groups [b, G, K] -> tokens [b, G, D]."""
        b, n_groups, k = members.shape
        index = members.reshape(b, -1, 1).expand(-1, -1, 3)
        near = points.gather(1, index).view(b, n_groups, k, 3)
        centre = near[:, :, :1]  # the nearest point of a centre is itself
        offset = (near - centre) / self.reach
        edges = torch.cat([offset, centre.expand_as(near)], dim=3)  # [b, G, K, 6]
        hidden = F.relu(self.edge_in(edges), inplace=True)
        grouped = F.relu(_Largest.apply(self.edge_out(hidden), 2))  # [b, G, second]
        parts = [grouped, centre[:, :, 0]]
        if self.moments:
            parts.append(moments(offset))
        token = torch.cat(parts, dim=2)
        return self.token_out(F.relu(self.token_in(token)))

    def pool(self, tokens: Tensor, lists: Tensor) -> Tensor:
        """Tokens [b, G, D] and the groups of each chunk [b, M, S] -> embeddings [b, M, D]."""
        b, m, s = lists.shape
        index = lists.reshape(b, m * s, 1).expand(-1, -1, tokens.shape[2])
        pooled = _Largest.apply(tokens.gather(1, index).view(b, m, s, -1), 2)
        return pooled if self.chunk is None else F.relu(self.chunk(F.relu(pooled)))

    def forward(self, points: Tensor, members: Tensor, lists: Tensor) -> Tensor:
        return self.pool(self.tokens(points, members), lists)
