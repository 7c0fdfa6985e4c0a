"""Examples with labelled points: clouds cut into chunks, and points of them, in the same frame, to be answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from asp_neuro.data.parts import PartSet, pick
from asp_neuro.learn.examples import Examples
from asp_neuro.learn.model import Batch
from asp_neuro.scenes.augment import Augmentation, augment
from asp_neuro.scenes.cache import chunks_of, joined
from asp_neuro.scenes.cloud import GRID, Chunking, Chunks, describe
from asp_neuro.scenes.frame import frame_of


class PartBatch(NamedTuple):
    """Clouds as tensors, and the points that are asked for."""

    clouds: Batch  # its labels are the categories
    first: Tensor  # [b, G] int64, the chunk of each group
    second: Tensor  # [b, G] int64, its second chunk, or -1
    queries: Tensor  # [b, Q, 3] float64, whole grid steps
    parts: Tensor  # [b, Q] int64

    def rows(self, some: slice) -> PartBatch:
        """Some of the clouds."""
        return PartBatch(Batch(*(x[some] for x in self.clouds)), *(x[some] for x in self[1:]))


@dataclass(frozen=True)
class PartExamples(Examples):
    """As `Examples`, with all points of each cloud in the frame of each of its cuts."""

    queries: np.ndarray = field(default_factory=lambda: np.empty(0, np.int16))  # [n * cuts, Q, 3] whole grid steps
    parts: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint8))  # [n, Q]

    def part_batch(
        self,
        index: np.ndarray,
        n_queries: int | None = None,
        how: Augmentation | None = None,
        rng: np.random.Generator | None = None,
    ) -> PartBatch:
        """The clouds at `index`; with `n_queries`, so many points of each, drawn by `rng`; changed by `how`."""
        labels, own = self.labels[index], index
        if how is not None and rng is not None:
            index = index + len(self) * rng.integers(len(self.chunks) // len(self), size=len(index))
        part = self.chunks[index]
        queries, parts = self.queries[index], self.parts[own]
        if n_queries is not None and rng is not None:
            drawn = rng.integers(queries.shape[1], size=(len(index), n_queries))
            rows = np.arange(len(index))[:, None]
            queries, parts = queries[rows, drawn], parts[rows, drawn]
        points = part.points.astype(np.float32) / np.float32(GRID)
        asked = queries.astype(np.float64)
        if how is not None and rng is not None:
            both = np.concatenate([points, queries.astype(np.float32) / np.float32(GRID)], axis=1)
            both = augment(both, how, rng)
            points, asked = both[:, : points.shape[1]], np.rint(both[:, points.shape[1] :] * GRID).astype(np.float64)
        exact = points.astype(np.float64) if how is None else points  # on the grid, as they are deployed
        clouds = Batch(
            torch.from_numpy(np.ascontiguousarray(points)),
            torch.from_numpy(part.members.astype(np.int64)),
            torch.from_numpy(self.lists[index].astype(np.int64)),
            torch.from_numpy(describe(exact, part.mask()).astype(np.float32)),
            torch.from_numpy(labels),
        )
        first, second = (torch.from_numpy(x.astype(np.int64)) for x in (part.first, part.second))
        return PartBatch(clouds, first, second, torch.from_numpy(asked), torch.from_numpy(parts.astype(np.int64)))


def part_examples_of(
    clouds: PartSet, how: Chunking, cache: bool = True, change: Augmentation | None = None, seed: int = 0
) -> PartExamples:
    """The clouds, cut; with `change.cuts`, that many further cuts of stretched copies and other draws, to train on."""
    sampled = np.stack([cloud[pick(cloud, how.n_points)] for cloud in clouds.points])
    parts, asked = [chunks_of(sampled, how, clouds.names, cache)], [_queries(clouds.points, sampled, how)]
    for number in range(change.cuts if change is not None else 0):
        assert change is not None
        rng = np.random.default_rng([seed, number, len(clouds)])
        log = np.log(change.scale)
        factor = np.exp(rng.uniform(-log, log, size=(len(clouds), 1, 3))).astype(np.float32)
        stretched = clouds.points * factor
        drawn = rng.random(stretched.shape[:2]).argsort(axis=1)[:, : how.n_points]
        sampled = np.take_along_axis(stretched, drawn[..., None], axis=1)
        parts.append(chunks_of(sampled, how, clouds.names, cache=False))
        asked.append(_queries(stretched, sampled, how))
    chunks: Chunks = parts[0] if len(parts) == 1 else joined(parts)
    return PartExamples(
        chunks,
        chunks.groups_of_chunks(),
        clouds.labels,
        queries=np.concatenate(asked),
        parts=clouds.parts.astype(np.uint8),
    )


def _queries(points: np.ndarray, sampled: np.ndarray, how: Chunking) -> np.ndarray:
    """All points [n, Q, 3] of clouds in the frame of what was cut of them [n, P, 3]: whole grid steps."""
    return np.stack([frame_of(cut, how).steps(all_of) for all_of, cut in zip(points, sampled, strict=True)])
