"""Clouds as scenes: the deployed encoder of a chunk, EdgeConv on a static kNN graph, max-pooled (paper 3.1).

Nodes are the group centres, edges go to the K nearest points of each: an edge carries (x_j - x_i, x_i). Two linear maps
on the edges and a maximum make a token per group; a token map and a maximum over the chunk's groups make the embedding.
The token map is also told where the group lies, and if wished how (`moments`). A group's token depends on the group
alone, so only the chosen chunks are ever encoded, and a group in two chunks once. `learn/cloud_encoder.py` is the
trained twin.

Everything is whole numbers, held in float32 (docs/integers.md): offsets x_j - x_i in steps of 2^-14, centres in steps
of 2^-12, moments in 12 bits, activations 0 .. 255, weights in 8 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from asp_neuro import compiled
from asp_neuro.errors import ConfigError
from asp_neuro.grid.arithmetic import (
    EXACT,
    SIGNED_MAX,
    UNSIGNED_MAX,
    Linear,
    check_exact,
    panels,
    rounded_shift,
    to_range,
    within,
)
from asp_neuro.grid.operations import Operations
from asp_neuro.grid.sections import Affine, Matrix, check, part
from asp_neuro.scenes.cache import chunks_of
from asp_neuro.scenes.cloud import (
    GRID,
    MOMENT_PARTS,
    N_DESCRIPTOR,
    N_MOMENTS,
    Chunking,
    Chunks,
    descriptors,
)
from asp_neuro.scenes.cloud_statistics import N_APART, STATISTICS, statistics

BOUND = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 1.0])  # of descriptors, in the unit sphere
CENTRE_SHIFT = 2  # centres are given in steps of 2^-12
RADIUS = GRID + 1.0  # no point is farther from the origin, in grid steps: the unit sphere, and rounding
CENTRE_MAX = 2.0**-CENTRE_SHIFT * RADIUS + 1.0
MOMENT_MAX = 2.0**11 - 1.0
MOMENT_STEPS = np.array([2.0**9] * 3 + [2.0**11] * 7)  # per unit: mean / r, covariance / r^2, r
BLOCK = 128  # groups that are encoded at once: what is between two maps stays in the processor's cache


@dataclass(frozen=True)
class CloudSpec:
    """How clouds are cut, and the encoder of a chunk; w is the width of a token."""

    kind: ClassVar[str] = "cloud"
    batch: ClassVar[type] = Chunks

    edge_in: Affine = part("e1", 6)  # on (x_j - x_i, x_i)
    edge_out: Affine = part("e2", "e1")
    token_in: Affine = part("w", "e2")
    geometry: Matrix = part("w", "t")  # the centre, and moments if t leaves room for them, in units of token_in's sum
    token_out: Affine = part("w", "w")
    chunk: Affine | None = part("D", "w", default=None)  # on a chunk's pooled tokens
    chunking: Chunking = Chunking()

    def __post_init__(self) -> None:
        sizes = check(self, "scene")
        if sizes["t"] not in (3, 3 + N_MOMENTS):
            raise ConfigError(f"scene: geometry takes {sizes['t']} inputs, expected 3, or {3 + N_MOMENTS} with moments")

    @property
    def n_places(self) -> int:
        return self.chunking.n_chunks

    @property
    def width(self) -> int:
        return (self.chunk or self.token_out).n_outputs

    @property
    def moments(self) -> bool:
        """Whether tokens see mean and covariance of their group's points."""
        return self.geometry.weight.shape[1] > 3

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

    def statistics(self, scenes: Chunks) -> np.ndarray:
        """[n, S] what kind of clouds these are, in the order of `words`."""
        return statistics(scenes)

    @property
    def words(self) -> dict[str, str]:
        """Statistic -> what it is, for people."""
        return {one.name: one.words for one in STATISTICS}

    @property
    def n_apart(self) -> int:
        """Statistics that distances count, the first ones."""
        return N_APART

    def operations(self, parts: float) -> Operations:
        """Of an observation that encodes so many groups, and pools a chunk."""
        k = self.chunking.group_size
        point = Operations(mac8=self.edge_out.weight.size, mac16=self.edge_in.weight.size)
        token = Operations(self.token_in.weight.size + self.token_out.weight.size, self.geometry.weight.size)
        group = point * k + token + (moment_operations(k) if self.moments else Operations())
        return group * parts + Operations(mac8=0 if self.chunk is None else self.chunk.weight.size)


def edge_reach(affine: Affine) -> np.ndarray:
    """[e1] largest |W (x_j - x_i, x_i)|: both points lie in the unit sphere, whatever its corners would allow."""
    offset, centre = np.abs(affine.weight.astype(np.float64)).reshape(-1, 2, 3).swapaxes(0, 1)
    return np.asarray(np.sqrt((offset**2).sum(axis=1)) * 2.0 * RADIUS + centre.sum(axis=1) * CENTRE_MAX)


class CloudEncoder:
    """The encoder's arithmetic, ready to run."""

    def __init__(self, spec: CloudSpec) -> None:
        self.spec = spec
        self.edge_in = Linear("scene: edge_in", spec.edge_in, 0.0, edge_reach(spec.edge_in))
        self.edge_in.weight = np.vstack([self.edge_in.weight, self.edge_in.bias])  # [7, e1]: the last input is 1
        self.edge_out = Linear("scene: edge_out", spec.edge_out, UNSIGNED_MAX)
        largest = np.full(spec.geometry.weight.shape[1], MOMENT_MAX)
        largest[:3] = CENTRE_MAX
        self.geometry = Linear("scene: geometry", spec.geometry, largest)
        self.geometry.weight = np.vstack([self.geometry.weight, self.geometry.bias])  # the last input is 1
        self.token_in = Linear("scene: token_in", spec.token_in, UNSIGNED_MAX, np.ceil(self.geometry.reach))
        self.token_scale = (2.0 ** -spec.token_in.shift.astype(np.float64)).astype(np.float32)
        self.token_out = Linear("scene: token_out", spec.token_out, UNSIGNED_MAX)
        self.chunk = None if spec.chunk is None else Linear("scene: chunk", spec.chunk, UNSIGNED_MAX)
        if spec.moments:  # of up to K points: K sum x^2 and (sum x)^2
            squares = np.array([(spec.chunking.group_size * 2.0 * RADIUS) ** 2])
            check_exact("scene: moments", squares, EXACT, "float64")

    def view(self, scenes: Chunks) -> CloudView:
        return CloudView(self, scenes)

    @cached_property
    def macs(self) -> tuple[int, int]:
        """Multiply-accumulates of a group, and of pooling a chunk."""
        chunk = self.spec.operations(0).macs
        return int(self.spec.operations(1).macs - chunk), int(chunk)

    @cached_property
    def packed(self) -> np.ndarray:
        """All weights but the chunk's as the compiled form wants them: one after the other, in panels, float32."""
        maps = (self.edge_in.weight, self.edge_out.weight, self.edge_out.bias, self.token_in.weight, self.token_in.bias,
                self.geometry.weight, self.token_scale, self.token_out.weight)  # fmt: skip
        return np.concatenate([panels(np.atleast_2d(one)) for one in maps])

    def tokens(self, near: np.ndarray) -> np.ndarray:
        """Points of m groups [3, K, m] float32, whole grid steps, centre first -> tokens [m, w], not yet pooled."""
        _, k, m = near.shape
        edges = np.empty((7, k, m), dtype=np.float32)
        centre = rounded_shift(near[:, 0], CENTRE_SHIFT)  # [3, m]
        np.subtract(near, near[:, :1], out=edges[:3])
        edges[3:6] = centre[:, None]
        edges[6] = 1.0
        hidden = to_range(self.edge_in(edges.reshape(7, k * m).T), 0.0, UNSIGNED_MAX)  # [K m, e1]
        grouped = np.maximum.reduce(self.edge_out(hidden).reshape(k, m, -1), axis=0)
        grouped += self.edge_out.bias
        told = self.geometry(self._geometry(centre, edges[:3]).T)
        np.floor(told, out=told)
        told *= self.token_scale
        token = self.token_in(to_range(grouped, 0.0, UNSIGNED_MAX))
        token += self.token_in.bias
        token += told
        return self.token_out(to_range(token, 0.0, UNSIGNED_MAX))

    def _geometry(self, centre: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """[3, m] and [3, K, m] -> [3 or 33, and a row of ones, m] float32."""
        told = np.ones((len(self.geometry.weight), centre.shape[1]), dtype=np.float32)
        told[:3] = centre
        if self.spec.moments:
            told[3:-1] = moments(offset)
        return told

    def embedding(self, pooled: np.ndarray) -> np.ndarray:
        """Largest tokens of n chunks [n, w] -> embeddings, whole numbers of 8 bits."""
        pooled += self.token_out.bias
        if self.chunk is None:
            return to_range(pooled, -SIGNED_MAX, SIGNED_MAX)
        out = self.chunk(to_range(pooled, 0.0, UNSIGNED_MAX))
        out += self.chunk.bias
        return to_range(out, 0.0, UNSIGNED_MAX)


class CloudView:
    """A batch of cut clouds under way; remembers the tokens of the groups seen so far.

    The G groups of all n clouds are numbered through: group g of cloud i is i G + g.
    """

    def __init__(self, encoder: CloudEncoder, chunks: Chunks) -> None:
        self.encoder, self.chunks = encoder, chunks
        n, n_groups = chunks.members.shape[:2]
        self.tokens = np.empty((n * n_groups, encoder.spec.token_out.n_outputs), dtype=np.float32)
        self.known = np.zeros(n * n_groups, dtype=bool)
        self.visited = np.zeros((n, chunks.n_chunks), dtype=bool)
        self.embeddings = np.zeros((n, chunks.n_chunks, encoder.spec.width), dtype=np.float32)  # of those visited
        self.n_encoded = self.n_pooled = 0  # groups, chunks
        self.kept: dict[str, Any] = {}  # what a task made of it, to be used again

    @cached_property
    def points(self) -> np.ndarray:
        """[3, n P] float32, whole grid steps."""
        return self.chunks.points.reshape(-1, 3).T.astype(np.float32, order="C")

    @cached_property
    def members(self) -> np.ndarray:
        """[n G, K] the points of each group, numbered through."""
        n, n_points = self.chunks.points.shape[:2]
        first = np.arange(n) * n_points  # of each cloud
        return (self.chunks.members + first[:, None, None]).reshape(-1, self.chunks.members.shape[2])

    @cached_property
    def belongs(self) -> np.ndarray:
        """[n, M, G]"""
        return self.chunks.belongs()

    @cached_property
    def plain(self) -> tuple[np.ndarray, ...]:
        return self.chunks.plain()

    @property
    def macs(self) -> int:
        """Multiply-accumulates spent so far."""
        group, chunk = self.encoder.macs
        return self.n_encoded * group + self.n_pooled * chunk

    @cached_property
    def descriptors(self) -> np.ndarray:
        """[n, M, 8]"""
        return descriptors(self.chunks)

    def embed(self, rows: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Only the groups of the chosen chunks that no earlier chunk had are encoded."""
        pooled, n_new = (self._pooled if compiled.kernels is None else self._compiled_pooled)(rows, place)
        self.n_encoded += n_new
        self.n_pooled += len(rows)
        found = self.encoder.embedding(pooled)
        self.visited[rows, place], self.embeddings[rows, place] = True, found
        return found

    def _pooled(self, rows: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, int]:
        """The largest tokens [b, w] of these chunks, and how many groups were new."""
        at, group = self.belongs[rows, place].nonzero()  # sorted by cloud
        group += (rows * self.belongs.shape[2])[at]
        new = group[~self.known[group]]
        for start in range(0, len(new), BLOCK):
            some = new[start : start + BLOCK]
            self.tokens[some] = self.encoder.tokens(self.points.take(self.members[some].T, axis=1))
        self.known[new] = True
        starts = at.searchsorted(np.arange(len(rows)))
        return np.maximum.reduceat(self.tokens[group], starts, axis=0), len(new)

    def _compiled_pooled(self, rows: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, int]:
        spec, (n, n_groups, k) = self.encoder.spec, self.plain[1].shape
        b, w = len(rows), self.tokens.shape[1]
        pooled = np.empty((b, w), dtype=np.float32)
        assert compiled.kernels is not None
        n_new = compiled.kernels.embed(
            *self.plain, np.ascontiguousarray(rows, dtype=np.int64), np.ascontiguousarray(place, dtype=np.int64),
            self.encoder.packed, self.known, self.tokens, pooled, n, self.plain[0].shape[1], n_groups, k, b,
            spec.edge_in.n_outputs, spec.edge_out.n_outputs, spec.geometry.weight.shape[1], w,
        )  # fmt: skip
        return pooled, n_new


def moment_sizes(k: int) -> list[int]:
    """How many of a group's k points, nearest first, each of its moments is of."""
    return [max(1, k // share) for share in MOMENT_PARTS]


def moment_operations(k: int) -> Operations:
    """Of `moments` for one group: squares and products, 9 sums a point and part, and 42 for each part's ten numbers."""
    sizes = moment_sizes(k)
    return Operations(mac32=6 * k, float64=9 * sum(sizes) + 42 * len(sizes))


def moments(offset: np.ndarray) -> np.ndarray:
    """Offsets [3, k, n] of a group's points from its centre, whole grid steps -> [30, n] whole numbers of 12 bits.

    Of the nearest quarter, half and all points: mean / r, covariance / r^2 (xx, yy, zz, xy, xz, yz) and r, the root of
    the covariance's trace. The sums are whole numbers below 2^53; what remains are single divisions and a square root.
    """
    _, k, n = offset.shape
    terms = np.empty((9, k, n))
    terms[:3] = offset
    _pairs(terms[:3], terms[3:])
    sums = np.empty((len(MOMENT_PARTS), 9, n))
    before = 0
    for at, size in enumerate(moment_sizes(k)):
        np.add.reduce(terms[:, before:size], axis=1, out=sums[at])
        if at > 0:
            sums[at] += sums[at - 1]  # the nearest are among the next, too
        before = size
    return _moments_of(sums, np.array(moment_sizes(k), dtype=np.float64)[:, None, None]).reshape(N_MOMENTS, n)


def _pairs(x: np.ndarray, out: np.ndarray) -> None:
    """x, y, z [3, ...] -> xx, yy, zz, xy, xz, yz [6, ...]."""
    np.multiply(x, x, out=out[:3])
    np.multiply(x[:1], x[1:], out=out[3:5])
    np.multiply(x[1], x[2], out=out[5])


def _moments_of(sums: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Sums [3, 9, n] of so many offsets [3, 1, 1] and of their products -> [3, 10, n] whole numbers of 12 bits."""
    means = sums[:, :3]
    squares = np.empty_like(sums[:, 3:])
    _pairs(means.swapaxes(0, 1), squares.swapaxes(0, 1))
    second = np.subtract(count * sums[:, 3:], squares, out=squares)
    trace = np.maximum(np.add.reduce(second[:, :3], axis=1, keepdims=True), 1.0)  # [3, 1, n]
    root = np.sqrt(trace)
    out = np.empty((len(sums), 10, sums.shape[2]))
    np.divide(means, root, out=out[:, :3])
    np.divide(second, trace, out=out[:, 3:9])
    np.divide(root, count * GRID, out=out[:, 9:])
    out *= MOMENT_STEPS[:, None]
    return within(np.rint(out, out=out), -MOMENT_MAX, MOMENT_MAX)


assert len(BOUND) == N_DESCRIPTOR
