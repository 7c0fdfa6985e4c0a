"""Clouds as scenes: the deployed encoder of a chunk, EdgeConv on a static kNN graph, max-pooled (paper 3.1).

Nodes are the group centres, edges go to the K nearest points of each: an edge carries (x_j - x_i, x_i). Two linear maps
on the edges and a maximum make a token per group; a token map and a maximum over the chunk's groups make the embedding.
The token map can also be told how the group lies in space (`moments`). A group's token depends on the group alone, so
only the chosen chunks are ever encoded, and a group in two chunks once. `learn/cloud_encoder.py` is the trained twin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from asp_neuro.errors import ConfigError
from asp_neuro.grid.arithmetic import LIMIT, STEP, Linear, to_steps
from asp_neuro.grid.sections import Affine, check, part
from asp_neuro.scenes.cache import chunks_of
from asp_neuro.scenes.cloud import (
    GRID,
    MOMENT_PAIRS,
    MOMENT_PARTS,
    N_DESCRIPTOR,
    N_MOMENTS,
    Chunking,
    Chunks,
    describe,
)

BOUND = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 1.0])  # of descriptors, in the unit sphere


@dataclass(frozen=True)
class CloudSpec:
    """How clouds are cut, and the encoder of a chunk; w is the width of a token."""

    kind: ClassVar[str] = "cloud"
    batch: ClassVar[type] = Chunks

    edge_in: Affine = part("e1", 6)  # on (x_j - x_i, x_i)
    edge_out: Affine = part("e2", "e1")
    token_in: Affine = part("w", "t")  # on e2 features, the centre, and moments if t leaves room for them
    token_out: Affine = part("w", "w")
    chunk: Affine | None = part("D", "w", default=None)  # on a chunk's pooled tokens
    chunking: Chunking = Chunking()

    def __post_init__(self) -> None:
        sizes = check(self, "scene")
        plain = sizes["e2"] + 3
        if sizes["t"] not in (plain, plain + N_MOMENTS):
            raise ConfigError(
                f"scene: token_in takes {sizes['t']} inputs, expected {plain}, or {plain + N_MOMENTS} with moments"
            )

    @property
    def n_places(self) -> int:
        return self.chunking.n_chunks

    @property
    def width(self) -> int:
        return (self.chunk or self.token_out).n_outputs

    @property
    def moments(self) -> bool:
        """Whether tokens see mean and covariance of their group's points."""
        return self.token_in.weight.shape[1] > self.edge_out.n_outputs + 3

    @property
    def descriptor_bound(self) -> np.ndarray:
        return BOUND

    def scenes(self, inputs: np.ndarray, names: Sequence[str] | None = None, cache: bool = False) -> Chunks:
        """Raw clouds [n, P, 3] -> chunks."""
        return chunks_of(inputs, self.chunking, names, cache)

    def encoder(self) -> CloudEncoder:
        return CloudEncoder(self)

    def parts_of(self, scenes: Chunks) -> np.ndarray:
        return scenes.belongs()

    def macs(self, parts: float) -> float:
        """Of an observation that encodes so many groups, and pools a chunk."""
        per_point = self.edge_in.weight.size + self.edge_out.weight.size
        if self.moments:
            per_point += len(MOMENT_PAIRS[0])
        per_group = self.token_in.weight.size + self.token_out.weight.size
        per_chunk = 0 if self.chunk is None else self.chunk.weight.size
        return parts * (self.chunking.group_size * per_point + per_group) + per_chunk


class CloudEncoder:
    """The encoder's arithmetic, ready to run: coordinates are whole steps of 2^-14, activations of 2^-12."""

    def __init__(self, spec: CloudSpec) -> None:
        self.spec = spec
        self.edge_in = Linear("scene: edge_in", spec.edge_in, np.full(6, 1.0 / GRID), 2.0 * GRID)
        self.edge_out = Linear("scene: edge_out", spec.edge_out, 1.0 / STEP, LIMIT)
        units = np.full(spec.token_in.weight.shape[1], 1.0 / STEP)
        centre = spec.edge_out.n_outputs
        units[centre : centre + 3] = 1.0 / GRID
        self.token_in = Linear("scene: token_in", spec.token_in, units, LIMIT)
        self.token_out = Linear("scene: token_out", spec.token_out, 1.0 / STEP, LIMIT)
        self.chunk = None if spec.chunk is None else Linear("scene: chunk", spec.chunk, 1.0 / STEP, LIMIT)

    def view(self, scenes: Chunks) -> CloudView:
        return CloudView(self, scenes)

    def tokens(self, groups: np.ndarray) -> np.ndarray:
        """Points of n groups [n, K, 3], whole grid steps, centre first -> tokens [n, w] in steps (not yet pooled)."""
        n, k = groups.shape[:2]
        edges = np.empty((n, k, 6))
        edges[..., 3:] = groups[:, :1]
        np.subtract(groups, groups[:, :1], out=edges[..., :3])
        hidden = self.edge_in(edges.reshape(n * k, 6))
        hidden += self.edge_in.bias
        grouped = self.edge_out(to_steps(hidden, low=0.0)).reshape(n, k, -1).max(axis=1)
        grouped += self.edge_out.bias
        parts = [to_steps(grouped, low=0.0), groups[:, 0]]
        if self.spec.moments:
            parts.append(moments(edges[..., :3]))
        hidden = self.token_in(np.concatenate(parts, axis=1))
        hidden += self.token_in.bias
        return self.token_out(to_steps(hidden, low=0.0))

    def embedding(self, pooled: np.ndarray) -> np.ndarray:
        """Largest tokens of n chunks [n, w] -> embeddings, whole steps."""
        steps = to_steps(pooled + self.token_out.bias, low=-LIMIT if self.chunk is None else 0.0)
        return steps if self.chunk is None else to_steps(self.chunk(steps) + self.chunk.bias, low=0.0)


class CloudView:
    """A batch of cut clouds under way; remembers the tokens of the groups seen so far."""

    def __init__(self, encoder: CloudEncoder, chunks: Chunks) -> None:
        self.encoder, self.chunks = encoder, chunks
        self.points = chunks.points.astype(np.float64)  # whole grid steps
        self.members = chunks.members.astype(np.intp)
        self.belongs = chunks.belongs()  # [n, M, G]
        shape = self.belongs[:, 0].shape
        self.tokens = np.empty((*shape, encoder.spec.token_out.n_outputs))
        self.known = np.zeros(shape, dtype=bool)
        self.macs = 0

    @cached_property
    def descriptors(self) -> np.ndarray:
        """[n, M, 8]"""
        return describe(self.chunks.coordinates(), self.chunks.mask())

    def embed(self, rows: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Only the groups of the chosen chunks that no earlier chunk had are encoded."""
        looked_at = self.belongs[rows, place]  # [b, G]
        at, group = np.nonzero(looked_at & ~self.known[rows])
        if len(at):
            row = rows[at]
            self.tokens[row, group] = self.encoder.tokens(self.points[row[:, None], self.members[row, group]])
            self.known[row, group] = True
        self.macs += int(self.encoder.spec.macs(len(at)) + (len(rows) - 1) * self.encoder.spec.macs(0))
        at, group = np.nonzero(looked_at)  # sorted by cloud
        starts = np.searchsorted(at, np.arange(len(rows)))
        return self.encoder.embedding(np.maximum.reduceat(self.tokens[rows[at], group], starts, axis=0))


def moments(offset: np.ndarray) -> np.ndarray:
    """Offsets [n, k, 3] of a group's points from its centre, whole grid steps -> [n, 30] in activation steps.

    Of the nearest quarter, half and all points: mean / r, covariance / r^2 (xx, yy, zz, xy, xz, yz) and r, the root of
    the covariance's trace. The sums are whole numbers below 2^53; what remains are single divisions and a square root.
    """
    near = [max(1, offset.shape[1] // share) for share in MOMENT_PARTS]
    terms = np.concatenate([offset, offset[..., MOMENT_PAIRS[0]] * offset[..., MOMENT_PAIRS[1]]], axis=2)
    sums = np.stack([terms[:, :n].sum(axis=1) for n in near], axis=1)  # [n, 3, 9]
    count = np.array(near, dtype=np.float64)[:, None]
    total = sums[..., :3]
    second = count * sums[..., 3:] - total[..., MOMENT_PAIRS[0]] * total[..., MOMENT_PAIRS[1]]
    trace = np.maximum(second[..., :3].sum(axis=2, keepdims=True), 1.0)
    root = np.sqrt(trace)
    values = np.concatenate([total / root, second / trace, root / (count * GRID)], axis=2)
    return to_steps(values.reshape(len(offset), N_MOMENTS) * STEP)


assert len(BOUND) == N_DESCRIPTOR
