"""A chunk's points to its embedding: EdgeConv on a static kNN graph, max-pooled (paper 3.1).

Nodes are the group centres, edges go to the K nearest points of each: an edge carries (x_j - x_i, x_i). Two linear maps
on the edges and a maximum make a token per group; a token map and a maximum over the chunk's groups make the embedding.
A group's token depends on the group alone, so at inference only the chosen chunk is ever encoded.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce


class Norm(nn.Module):
    """Batch normalisation over the last axis; over several processes the statistics are those of the whole batch."""

    def __init__(self, width: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))
        self.momentum = momentum

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        if self.training and dist.is_initialized() and dist.get_world_size() > 1:
            return self._over_processes(flat).reshape(x.shape)
        out = F.batch_norm(flat, self.mean, self.variance, self.gain, self.bias, self.training, self.momentum, 1e-5)
        return out.reshape(x.shape)

    def _over_processes(self, flat: Tensor) -> Tensor:
        count = torch.full((1,), float(len(flat)), dtype=flat.dtype, device=flat.device)
        sums = all_reduce(torch.cat([flat.sum(dim=0), (flat**2).sum(dim=0), count]))
        width, n = flat.shape[1], sums[-1]
        mean = sums[:width] / n
        variance = sums[width : 2 * width] / n - mean**2
        with torch.no_grad():
            self.mean.lerp_(mean.detach(), self.momentum)
            self.variance.lerp_(variance.detach() * (n / (n - 1.0)).detach(), self.momentum)
        return (flat - mean) * torch.rsqrt(variance + 1e-5) * self.gain + self.bias


class Encoder(nn.Module):
    """Points, groups and chunk lists -> embeddings."""

    def __init__(self, edge_widths: tuple[int, int], width: int) -> None:
        super().__init__()
        first, second = edge_widths
        self.edge_in = nn.Linear(6, first, bias=False)
        self.edge_norm = Norm(first)
        self.edge_out = nn.Linear(first, second, bias=False)
        self.group_norm = Norm(second)
        self.token_in = nn.Linear(second + 3, width, bias=False)
        self.token_norm = Norm(width)
        self.token_out = nn.Linear(width, width)

    def tokens(self, points: Tensor, members: Tensor) -> Tensor:
        """Points [b, P, 3] and groups [b, G, K] -> tokens [b, G, D]."""
        b, n_groups, k = members.shape
        index = members.reshape(b, -1, 1).expand(-1, -1, 3)
        near = points.gather(1, index).view(b, n_groups, k, 3)
        centre = near[:, :, :1]  # the nearest point of a centre is itself
        edges = torch.cat([near - centre, centre.expand_as(near)], dim=3)  # [b, G, K, 6]
        hidden = F.relu(self.edge_norm(self.edge_in(edges)))
        grouped = self.edge_out(hidden).amax(dim=2)  # [b, G, second]
        grouped = F.relu(self.group_norm(grouped))
        token = torch.cat([grouped, centre[:, :, 0]], dim=2)
        return self.token_out(F.relu(self.token_norm(self.token_in(token))))

    def pool(self, tokens: Tensor, lists: Tensor) -> Tensor:
        """Tokens [b, G, D] and the groups of each chunk [b, M, S] -> embeddings [b, M, D]."""
        b, m, s = lists.shape
        index = lists.reshape(b, m * s, 1).expand(-1, -1, tokens.shape[2])
        return tokens.gather(1, index).view(b, m, s, -1).amax(dim=2)

    def forward(self, points: Tensor, members: Tensor, lists: Tensor) -> Tensor:
        return self.pool(self.tokens(points, members), lists)
