"""Parts: every point of a cloud is a target, its label one of the parts of the cloud's category.

    context of a seen group    c = W2 relu(A token + max over neighbours N token_j + B own chunk + C largest of all seen
                                           + E[category])
    a point                    y = relu(V relu(sum of its three nearest contexts, weighted + P position + E'[category]))
    logits of its parts        offset(y) + W b

All of it but W b rests on what was seen, not on the head: the belief stands under no ReLU, so that the bounds of
`model/stability.py` hold for points as they do for classes. Neighbours are the nearest groups that were seen; what is
heard of contexts is in `scenes/interpolation.py`. Points of chunks that were not seen are answered too.

During an episode a few points are asked for, the centres of the first groups, which lie evenly; the scene's margin is
a quantile of their margins. The category is one more target: where it was given its margin is 1, else a read-out of the
belief answers it. All points are answered once, at the end (`model/points.py`).

Whole numbers as in docs/integers.md: contexts are 12 bits in eighths of a point's activation, weights of 2^-12.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from asp_neuro import compiled
from asp_neuro.errors import ConfigError
from asp_neuro.grid.arithmetic import BELIEF_BITS, EXACT_SINGLE, UNSIGNED_MAX, Linear, Product, panels, to_range
from asp_neuro.grid.operations import Operations
from asp_neuro.grid.sections import Affine, Array, Matrix, check, leaf, part
from asp_neuro.grid.softmax import margin_operations, probabilities
from asp_neuro.scenes.cloud_encoder import CloudView
from asp_neuro.scenes.interpolation import FEATURE_MAX, N_FEATURES, N_NEAREST, WEIGHT_BITS, hear, neighbours, squares

CONTEXT_MAX = 2.0**11 - 1.0
CONTEXT_SHIFT = 3  # contexts have steps of an eighth of a point's activation
NEVER = -1e6  # logit of a part that is out of the question
AT_ONCE = 1024  # points that are answered together: what is between two maps stays in the processor's cache


@dataclass(frozen=True)
class GroupMaps:
    """What a seen group says: h units; i inputs: token, neighbours' token, chunk's embedding, largest of all seen."""

    mix: Matrix = part("h", "i")
    category: Array = leaf("i4", "k", "h")  # in units of mix's sum; the last row: not given
    context: Affine = part("h", "h")


@dataclass(frozen=True)
class PointMaps:
    """What a point makes of it; n parts in all."""

    position: Matrix = part("h", N_FEATURES)
    category: Array = leaf("i4", "k", "h")  # in units of position's sum
    hidden: Affine = part("h", "h")
    offset: Affine = part("n", "h")


@dataclass(frozen=True)
class PartsSpec:
    """Contexts, points, and the belief's say in parts and category."""

    kind: ClassVar[str] = "parts"

    groups: GroupMaps = part("h", "i", "k")
    points: PointMaps = part("h", "k", "n")
    belief: Matrix = part("n", "H")
    category: Affine = part("C", "H")
    classes: tuple[str, ...] = ()  # the categories
    count: tuple[int, ...] = ()  # parts of each, numbered one after the other
    n_near: int = 8  # groups that a group hears as its neighbours, itself among them
    asked: int = 64  # points that the exit is decided on
    quantile: float = 0.1  # of their margins: the scene's margin

    def __post_init__(self) -> None:
        sizes = check(self, "task")
        if sizes["C"] != len(self.classes) or sizes["k"] != sizes["C"] + 1 or len(self.count) != sizes["C"]:
            raise ConfigError(
                f"task: {len(self.classes)} categories, but {sizes['C']} rows of their read-out, {sizes['k']} of their "
                f"tables (one more: not given) and {len(self.count)} numbers of parts"
            )
        if min(self.count) < 1 or sum(self.count) != sizes["n"]:
            raise ConfigError(f"task: {sizes['n']} parts, but the categories have {list(self.count)}")
        if self.n_near < 1 or self.asked < 1 or not 0.0 <= self.quantile < 1.0:
            raise ConfigError(
                f"task: n_near = {self.n_near}, asked = {self.asked} (both at least 1), quantile = {self.quantile} "
                "(at least 0, below 1)"
            )

    @property
    def n_inputs(self) -> int:
        return int(self.belief.weight.shape[1])

    @property
    def n_parts(self) -> int:
        return sum(self.count)

    def own(self) -> np.ndarray:
        """[C + 1, n_parts] bool: which parts a category has; the last row: any may be."""
        owner = np.repeat(np.arange(len(self.count)), self.count)
        return np.vstack([owner == np.arange(len(self.count))[:, None], np.ones((1, self.n_parts), dtype=bool)])

    def part_names(self) -> tuple[str, ...]:
        """`mug 1`, `mug 2`: the data have no words for them."""
        return tuple(f"{name} {k + 1}" for name, n in zip(self.classes, self.count, strict=True) for k in range(n))

    def task(self, belief_bound: np.ndarray) -> Parts:
        return Parts(self, belief_bound)

    def operations(self) -> Operations:
        """Of the points asked for after a look, and the contexts that they hear (at most three each, half are new)."""
        groups, points = self.groups, self.points
        each = points.hidden.weight.size + points.offset.weight.size
        return Operations(
            mac8=self.asked * (each + groups.mix.weight.size // 2 + groups.context.weight.size),
            mac16=self.asked * (points.position.weight.size + N_NEAREST * len(groups.context.shift)),
            mac32=self.belief.weight.size + self.category.weight.size,
            float64=self.asked * margin_operations(self.n_parts) + margin_operations(len(self.classes)),
        )


class Parts:
    """Ready to run."""

    def __init__(self, spec: PartsSpec, belief_bound: np.ndarray) -> None:
        self.spec, groups, points = spec, spec.groups, spec.points
        self.mix = Linear("task: mix", groups.mix, UNSIGNED_MAX, np.abs(groups.category.astype(np.float64)).max(axis=0))
        self.context = Linear("task: context", groups.context, UNSIGNED_MAX)
        most = np.abs(points.category.astype(np.float64)).max(axis=0)
        self.position = Linear("task: position", points.position, FEATURE_MAX, most)
        self.hidden = Linear("task: hidden", points.hidden, UNSIGNED_MAX)
        self.offset = Product("task: offset", points.offset, UNSIGNED_MAX, 0)
        self.belief = Product("task: belief", spec.belief, belief_bound, BELIEF_BITS)
        self.category = Product("task: category", spec.category, belief_bound, BELIEF_BITS)
        self.weight = np.vstack([self.belief.weight, self.category.weight])
        self.group_table = _scaled(groups.category, groups.mix.shift) + self.mix.bias
        self.point_table = _scaled(points.category, points.position.shift) + self.position.bias
        self.own = spec.own()
        self.packed = self._packed()
        self.rank = int(spec.quantile * spec.asked)  # of the margins, from the smallest

    def _packed(self) -> np.ndarray | None:
        """The maps as the compiled form wants them; None: offsets need more than float32 holds."""
        reach = np.abs(self.spec.points.offset.weight.astype(np.float64)).sum(axis=1) * UNSIGNED_MAX
        if not reach.max() < EXACT_SINGLE:
            return None
        maps = (self.context.weight, self.context.bias, self.position.weight, self.hidden.weight, self.hidden.bias,
                self.offset.weight.T)  # fmt: skip
        return np.concatenate([panels(np.atleast_2d(one)) for one in maps])

    def logits(self, belief: np.ndarray, view: Any, rows: np.ndarray) -> np.ndarray:
        """[b, asked + 1, n_parts + C]: the points that are asked for, then the category."""
        spec, n = self.spec, self.spec.n_parts
        given = view.chunks.categories[rows].astype(np.intp)
        out = np.full((len(rows), spec.asked + 1, n + len(spec.classes)), NEVER)
        self.answered(_kept(self, view).centres[rows, : spec.asked], view, rows, given, self.belief(belief), out)
        out[:, -1, n:] = self.category(belief) + self.category.bias
        told = (given >= 0).nonzero()[0]
        out[told, -1, n:] = NEVER
        out[told, -1, n + given[told]] = 0.0
        return out

    def points(self, belief: np.ndarray, view: Any, row: int, queries: np.ndarray, category: int) -> np.ndarray:
        """One belief [H], points [q, 3] in whole grid steps of one scene -> logits [q, n_parts]; category negative: not
        known."""
        out = np.empty((1, len(queries), self.spec.n_parts))
        asked = np.asarray(queries[None], dtype=np.float64)
        self.answered(asked, view, np.array([row]), np.array([category]), self.belief(belief[None]), out)
        return out[0]

    def answered(
        self, queries: np.ndarray, view: Any, rows: np.ndarray, category: np.ndarray, said: np.ndarray, out: np.ndarray
    ) -> None:
        """Points [b, q, 3] and what the belief says [b, n_parts] -> logits, out[:, :q, :n_parts]; NEVER of other
        categories' parts."""
        known, own, (b, q), n = _kept(self, view), self.own[category], queries.shape[:2], self.spec.n_parts
        known.update()
        base = known.whole(rows) + self.group_table[category]
        if compiled.kernels is not None and self.packed is not None:
            (_, n_groups, h), (n_scenes, n_chunks) = known.token.shape, view.visited.shape
            compiled.kernels.part_points(
                np.ascontiguousarray(queries), np.ascontiguousarray(rows, dtype=np.int64), known.by_axis, known.done,
                *view.plain[2:], view.visited, known.token, known.around, known.chunk, base, self.point_table[category],
                said, own, self.packed, self.offset.bias, out, n_scenes, b, q, n_groups, n_chunks, h, n, *out.shape[1:],
                NEVER,
            )  # fmt: skip
            return
        seen, context = self.contexts(view, rows, base)
        for start in range(0, q, AT_ONCE):
            some = slice(start, min(start + AT_ONCE, q))
            offset = self.offsets(queries[:, some], known.centres[rows], seen, context, category)
            out[:, some, :n] = np.where(own[:, None], offset + said[:, None], NEVER)

    def contexts(self, view: Any, rows: np.ndarray, base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which groups of these scenes were seen [b, G], and their contexts [b, G, h]; 0 of the others."""
        known, visited, chunks = _kept(self, view), view.visited[rows], view.chunks
        seen = known.done[rows]
        at, group = seen.nonzero()
        scene = rows[at]
        first, second = chunks.first[scene, group].astype(np.intp), chunks.second[scene, group].astype(np.intp)
        own = np.where(visited[at, first] | (second < 0), first, second)
        mixed = known.around[scene, group] + known.token[scene, group]
        mixed += known.chunk[scene, own]
        mixed += base[at]
        context = self.context(to_range(mixed, 0.0, UNSIGNED_MAX))
        context += self.context.bias
        out = np.zeros((*seen.shape, context.shape[1]), dtype=np.float32)
        out[at, group] = to_range(context, -CONTEXT_MAX, CONTEXT_MAX)
        return seen, out

    def offsets(
        self,
        queries: np.ndarray,
        centres: np.ndarray,
        seen: np.ndarray,
        context: np.ndarray,
        category: np.ndarray,
    ) -> np.ndarray:
        """Points [b, q, 3] -> what was seen says of their parts [b, q, n_parts]."""
        b, q = queries.shape[:2]
        told = hear(queries, centres, seen, squares(queries, centres))
        rows = np.arange(b)[:, None]
        heard = np.zeros((b, q, context.shape[2]), dtype=np.float32)
        for k in range(N_NEAREST):
            heard += context[rows, told.group[..., k]] * told.weight[..., k, None].astype(np.float32)
        heard *= np.float32(2.0**-WEIGHT_BITS)
        heard += np.float32(0.5)
        x = np.floor(heard, out=heard)
        placed = self.position(told.features.astype(np.float32).reshape(b * q, -1)).reshape(heard.shape)
        placed += self.point_table[category][:, None]
        x += np.floor(placed, out=placed)
        x *= np.float32(2.0**-CONTEXT_SHIFT)
        x += np.float32(0.5)
        y = self.hidden(to_range(x, 0.0, UNSIGNED_MAX).reshape(b * q, -1))
        y += self.hidden.bias
        said = self.offset(to_range(y, 0.0, UNSIGNED_MAX).astype(np.float64)) + self.offset.bias
        return np.asarray(said.reshape(b, q, -1))

    def pool(self, margins: np.ndarray) -> np.ndarray:
        """The quantile of the points' margins, and no more than the category's."""
        return np.minimum(np.partition(margins[:, :-1], self.rank, axis=1)[:, self.rank], margins[:, -1])

    def label(self, logits: np.ndarray) -> np.ndarray:
        """The category."""
        return np.asarray(logits[:, -1, self.spec.n_parts :].argmax(axis=1))

    def shares(self, logits: np.ndarray) -> np.ndarray:
        return probabilities(logits[:, -1, self.spec.n_parts :])

    def loss(self, label: np.ndarray, truth: np.ndarray) -> np.ndarray:
        """Of the category; that of points is `certify/points.py`'s business."""
        return np.asarray(label != truth, dtype=np.float64)


def _scaled(table: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """[k, h] whole numbers in units of a row's sum -> float32 in units of its result."""
    return np.asarray(table * 2.0 ** -shift.astype(np.float64), dtype=np.float32)


class _Kept:
    """What the groups of a view give to contexts: made once each, as they are seen."""

    def __init__(self, task: Parts, view: CloudView) -> None:
        self.task, self.view = task, view
        n, n_groups = view.chunks.members.shape[:2]
        weight, width = task.mix.weight, view.encoder.spec.width  # [i, h]
        token = view.tokens.shape[1]
        self.parts = np.split(weight, [token, 2 * token, 2 * token + width])
        self.packed = np.concatenate([panels(part) for part in self.parts[:2]])
        self.centres = view.chunks.centres()
        self.by_axis = np.ascontiguousarray(np.swapaxes(self.centres, 1, 2))
        self.near = self._neighbours(task.spec.n_near)
        h = weight.shape[1]
        self.done = np.zeros((n, n_groups), dtype=bool)
        self.token, self.spoken = (np.zeros((n, n_groups, h), dtype=np.float32) for _ in range(2))
        self.around = np.full((n, n_groups, h), -np.inf, dtype=np.float32)  # the largest of the neighbours seen so far
        self.chunk = np.zeros((*view.visited.shape, h), dtype=np.float32)
        self.looked = np.zeros_like(view.visited)

    def _neighbours(self, n_near: int) -> np.ndarray:
        """[n, G, n_near]"""
        n, n_groups = self.centres.shape[:2]
        if compiled.kernels is None or n_near > n_groups:
            return np.ascontiguousarray(neighbours(squares(self.centres, self.centres), n_near), dtype=np.int64)
        out = np.empty((n, n_groups, n_near), dtype=np.int64)
        compiled.kernels.part_near(self.by_axis, out, n, n_groups, n_near)
        return out

    def update(self) -> None:
        """Take in what was seen since."""
        view = self.view
        if compiled.kernels is None:
            self._update_groups()
        else:
            (n, n_groups, h), n_near = self.token.shape, self.near.shape[2]
            compiled.kernels.part_tokens(
                view.tokens, view.encoder.token_out.bias, view.known, self.near, self.packed, self.done, self.token,
                self.spoken, self.around, n, n_groups, view.tokens.shape[1], n_near, h,
            )  # fmt: skip
        at, place = (view.visited & ~self.looked).nonzero()
        if at.size:
            self.chunk[at, place] = view.embeddings[at, place] @ self.parts[2]
            self.looked[at, place] = True

    def _update_groups(self) -> None:
        view = self.view
        new = view.known.reshape(self.done.shape) & ~self.done
        at, group = new.nonzero()
        if not at.size:
            return
        tokens = view.tokens.reshape(*self.done.shape, -1)[at, group] + view.encoder.token_out.bias
        tokens = to_range(tokens, 0.0, UNSIGNED_MAX)
        self.token[at, group], self.spoken[at, group] = tokens @ self.parts[0], tokens @ self.parts[1]
        self.done[at, group] = True
        for k in range(self.near.shape[2]):
            hearer = np.take_along_axis(new, self.near[..., k], axis=1).nonzero()
            said = self.spoken[hearer[0], self.near[hearer[0], hearer[1], k]]
            self.around[hearer] = np.maximum(self.around[hearer], said)

    def whole(self, rows: np.ndarray) -> np.ndarray:
        """[b, h] what the largest of all chunks seen gives; embeddings are 0 of those that were not, and never less."""
        return np.maximum.reduce(self.view.embeddings[rows], axis=1) @ self.parts[3]


def _kept(task: Parts, view: Any) -> _Kept:
    found = view.kept.get(PartsSpec.kind)
    if found is None or found.task is not task:
        if not isinstance(view, CloudView) or view.encoder.chunk is None:
            raise ConfigError("task: parts are asked of clouds, by a model with a chunk layer")
        found = view.kept[PartsSpec.kind] = _Kept(task, view)
    return found
